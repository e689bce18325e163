"""TaskModel: a HookedTransformer built from a spec, with `.task` and `.spec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import ON_META, InterpError, SpecError, UnsupportedError
from interp.models.architecture import blocks, reduced
from interp.models.architecture.answers import answers_of, decide, find_positions
from interp.models.architecture.limits import LengthLimit
from interp.models.architecture.parameters import as_device, check_parameters, initialize, outputs
from interp.models.architecture.parameters import as_dtype as as_dtype
from interp.models.architecture.parameters import model_problems as model_problems
from interp.models.lens import (
    ActivationCache,
    HookedTransformer,
    HookedTransformerConfig,
    RMSNorm,
    as_slice,
    config,
    quiet_construction,
)
from interp.models.spec import ModelSpec
from interp.tasks import Task, make_task
from interp.tasks.batch_checks import OWN, check_padded_right, check_tokens
from interp.tasks.task_checks import check_made


class TaskModel(HookedTransformer):
    """A transformer built from a spec, with parameters from `tensors` or initialized from `seed`.

    All methods of HookedTransformer work (run_with_cache, run_with_hooks, stack_head_results, generate, ...), or raise
    UnsupportedError with the reason if their numbers would be wrong. Training fills `history` and `snapshots`; training
    or loading a checkpoint fills `summary`. Raises SpecError with all problems of the spec, and InterpError if tensors
    do not fit.

    Example:

        >>> model = interp.load("count01/paper")
        >>> batch = model.task.sample(3, seed=0)
        >>> logits, cache = model.run_with_cache(batch.tokens)
        >>> cache["z", 0].shape[2:]  # heads, d_head
        torch.Size([16, 2])
        >>> bool((model.predict(batch.tokens) == batch.labels).all())
        True
    """

    @torch.inference_mode(False)  # whose tensors count no changes
    def __init__(
        self,
        spec: ModelSpec,
        task: Task | None = None,
        tensors: Mapping[str, Tensor] | None = None,
        *,
        seed: int = 0,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | str | None = None,
    ) -> None:
        task = make_task(spec.task) if task is None else task
        if not type(task).__module__.startswith(OWN):  # this package's tests check its own tasks
            check_made(task)
        if problems := model_problems(spec, task):
            raise SpecError(problems)
        cfg = _config(spec, task, as_dtype(dtype or spec.dtype), as_device(device))
        cfg.n_layers = 0  # the base class' blocks would be replaced
        with quiet_construction():
            super().__init__(cfg, move_to_device=False)
        cfg.n_layers = len(spec.layers)
        self.spec, self.task, self.seed = spec, task, seed
        self.length_limit: LengthLimit | None = None
        self.history: Any = None
        self.ids_before: tuple[Tensor | None, Tensor | None] = (None, None)
        """For a converted external model: its original ids of the task's tokens and outputs."""
        self.notes: tuple[str, ...] = ()
        """For a converted external model: what was assumed, one sentence each."""
        self.snapshots: Mapping[int, TaskModel] = {}
        self.summary: Mapping[str, Any] = {}
        self._loaded: tuple[str, object] = ("", None)
        parts: Any = self  # the base class declares other types for these modules
        parts.pos_embed = blocks.make_positions(spec, cfg)
        parts.blocks.extend(blocks.make_block(spec, cfg, index) for index in range(len(spec.layers)))
        if spec.final_norm != "none":
            parts.ln_final = blocks.make_final_norm(spec, cfg)
        if spec.readout == "relu_mlp":
            parts.unembed = blocks.ReluReadout(cfg, spec.readout_width or 0)
        elif spec.tied_embeddings:
            parts.unembed = blocks.TiedReadout(cfg, spec.readout_bias, parts.embed)
        else:
            parts.unembed = blocks.LinearReadout(cfg, spec.readout_bias)
        self.setup()  # names the hook points of the replaced modules
        self.load_parameters(initialize(spec, task, seed) if tensors is None else tensors)
        if spec.embedding == "frozen":
            self.embed.W_E.requires_grad_(False)
        self.to(as_device(device), print_details=False)

    # ------------------------------------------------------------ parameters

    def load_parameters(self, tensors: Mapping[str, Tensor]) -> None:
        """Set every parameter. Raises InterpError unless names and shapes match the spec and values are finite."""
        check_parameters(self.spec, self.task, tensors)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(tensors[name])

    def _apply(self, *args: Any, **kwargs: Any) -> TaskModel:
        """Apply `to`, `double`, ... to every part and its config, to whose dtype norms cast their outputs."""
        super()._apply(*args, **kwargs)
        for part in self.modules():
            if hasattr(part, "cfg"):
                part.cfg.dtype = self.embed.W_E.dtype
        return self

    @property
    def loaded_as(self) -> str:
        """The name or path that the model was loaded from; "" for a model that was built, or whose weights changed."""
        name, version = self._loaded
        return name if version == self._changes() else ""

    @loaded_as.setter
    def loaded_as(self, name: str) -> None:
        self._loaded = (name, self._changes())

    def _changes(self) -> object:
        """The parameters, each with the number of its changes in place, as torch counts them."""
        return [(id(parameter), parameter._version) for parameter in self.parameters()]

    # ------------------------------------------------------------ inputs and answers

    def input_to_embed(self, input: Any, *args: Any, **kwargs: Any) -> Any:
        """Check the tokens, mask padding, and call TransformerLens's method."""
        tokens = self._as_rows(input)
        if self.length_limit is not None and tokens.numel():
            longest = int(find_positions(self.task, tokens, "last").max()) + 1
            self.length_limit.check(longest, self.embed.W_E.dtype)
        pad, cached = self.task.pad_id, kwargs.get("past_kv_cache")
        if kwargs.get("attention_mask") is None and self.spec.direction == "bidirectional" and pad is not None:
            mask = tokens != pad
            if not mask.all():
                kwargs["attention_mask"] = mask.int()
        if cached is not None and kwargs.get("attention_mask") is None:
            kwargs["attention_mask"] = torch.ones_like(tokens)  # otherwise TransformerLens would need a tokenizer
        return super().input_to_embed(tokens, *args, **kwargs)

    def _as_rows(self, tokens: Any) -> Tensor:
        """Check rows of tokens; a single row becomes a batch of one."""
        if not isinstance(tokens, Tensor):
            kind = type(tokens).__name__
            raise InterpError(f"tokens must be a tensor of token ids, not {kind}; see model.task.parse")
        tokens = tokens[None] if tokens.ndim == 1 else tokens
        self._check_tokens(tokens)
        return tokens

    def _check_tokens(self, tokens: Tensor) -> None:
        check_tokens(self.task, tokens)
        limit, length = self.spec.max_length, tokens.shape[1]
        fixed = any(layer.mixing == "linear" for layer in self.spec.layers)
        if limit is not None and (length != limit if fixed else length > limit):
            raise InterpError(
                f"sequences of length {length}: this model needs {'exactly' if fixed else 'at most'} {limit}"
            )

    def answer_positions(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows"]:
        """Return the read position of each row ("last": the last token that is not padding)."""
        if self.spec.readout_at == "all":
            raise UnsupportedError(f"{self.spec.id} is read at all positions, not at one")
        return find_positions(self.task, tokens, self.spec.readout_at)

    @torch.no_grad()
    def predict(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows *length"] | Bool[Tensor, "rows"]:
        """Return the model's answer to each row (or position), in the units of Batch.labels."""
        tokens = self._as_rows(tokens).to(self.cfg.device)
        if not tokens.shape[1] and len(tokens):
            raise InterpError(f"tokens of shape {tuple(tokens.shape)}: the rows are empty, so there is no answer")
        if self.embed.W_E.is_meta:
            raise InterpError(ON_META)
        check_padded_right(self.task, tokens)
        self.task.check_input(tokens)
        return answers_of(self.task, decide(self.read(tokens), self.spec), tokens)

    def token_tables(self) -> reduced.TokenTables:
        """Return tables for evaluation in count space (leading axis 1), from the parameters in float64 on the CPU."""
        if (reason := reduced.reduced_refusal(self.spec)) is not None:
            self._refuse("token_tables", reason)
        return reduced.token_tables(
            self.spec, reduced.stack_one({n: p.double().cpu() for n, p in self.named_parameters()})
        )

    def read(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows *length n_out"]:
        """Return outputs at the spec's read positions, computed in count space if possible and without hooks."""
        if self.spec.readout_at == "all":
            return self(tokens)
        self._check_tokens(tokens)  # counting would ignore invalid ids
        positions = self.answer_positions(tokens)
        if reduced.count_space_refusal(self.spec) is None and not hooked(self):
            pad = self.task.pad_id
            visible = torch.ones_like(tokens) if pad is None else tokens != pad
            return self.read_counts(reduced.counted_at(self.spec, self.task.d_vocab, tokens, positions, visible))
        # Run whole sequences in batches whose (rows, heads, length, length) patterns take at most 512 MB.
        size = max(1, 2**27 // (self.cfg.n_heads * tokens.shape[1] ** 2))
        parts = zip(tokens.split(size), positions.split(size))
        return torch.cat([self(part)[torch.arange(len(part)), at] for part, at in parts])

    def read_counts(self, rows: reduced.CountedRows) -> Float[Tensor, "rows n_out"]:
        """Return outputs for query tokens with counts, for models that depend on nothing else."""
        tables = reduced.token_tables(self.spec, reduced.stack_one(dict(self.named_parameters())))
        return reduced.reduced_outputs(tables, rows.stacked(tables.scores.dtype))[0]

    # ------------------------------------------------------------ tokens as text

    def to_tokens(self, input: Any, *args: Any, **kwargs: Any) -> Int[Tensor, "rows length"]:
        """Convert one string of the task, or several of equal length, to token ids, without adding [BOS]."""
        texts = [input] if isinstance(input, str) else list(input)
        rows = [self.task.parse(text) for text in texts]
        if len({len(row) for row in rows}) != 1:
            raise InterpError(
                f"the strings have {sorted({len(row) for row in rows})} tokens: they must have one length"
            )
        return torch.tensor(rows, device=self.cfg.device)

    def to_str_tokens(self, input: Any, *args: Any, **kwargs: Any) -> list[str]:
        """Return the tokens of one string, or of one row of ids, as text."""
        ids = self.task.parse(input) if isinstance(input, str) else torch.as_tensor(input).flatten().tolist()
        return [self.task.vocabulary[int(token)] for token in ids]

    def to_string(self, tokens: Any) -> str | list[str]:
        """Convert one row of ids, or several, to text."""
        ids = torch.as_tensor(tokens)
        return self.task.format(ids) if ids.ndim < 2 else [self.task.format(row) for row in ids]

    def to_single_token(self, string: str) -> int:
        return self.task.token_id(string)

    def to_single_str_token(self, int_token: int) -> str:
        return self.task.vocabulary[int_token]

    def __repr__(self) -> str:
        spec, heads = self.spec, self.spec.layers[0].n_heads
        parts = f"{len(spec.layers)} layer{'s' * (len(spec.layers) > 1)} of {heads} head{'s' * (heads > 1)}"
        numbers = sum(parameter.numel() for parameter in self.parameters())
        text = f"TaskModel({spec.id}, task={self.task!r}, seed={self.seed}: {parts}, {numbers:,} parameters)"
        return " ".join([text, *(f"({note})" for note in self.notes)])

    # ------------------------------------------------------------ methods of TransformerLens that need care

    def run_with_cache(
        self, *args: Any, return_cache_object: bool = True, remove_batch_dim: bool = False, **kwargs: Any
    ) -> Any:
        """Call TransformerLens's method; decompositions of the returned cache raise an error if they would be wrong."""
        out, cache = super().run_with_cache(
            *args, return_cache_object=False, remove_batch_dim=remove_batch_dim, **kwargs
        )
        return out, (TaskCache(cache, self, not remove_batch_dim) if return_cache_object else cache)

    def generate(self, input: Any = "", max_new_tokens: int = 10, **kwargs: Any) -> Any:  # type: ignore[override]
        """Generate tokens after rows without padding, without a key-value cache if the cache would be wrong."""
        if outputs(self.spec, self.task) != self.task.d_vocab:
            self._refuse(
                "generate", f"its {outputs(self.spec, self.task)} outputs are not the {self.task.d_vocab} tokens"
            )
        if any(layer.mixing == "linear" for layer in self.spec.layers):
            self._refuse("generate", "linear mixing works at one length only")
        tokens = self._as_rows(input)
        limit, longest = self.spec.max_length, tokens.shape[1] + max_new_tokens - 1
        if limit is not None and longest > limit:
            raise InterpError(f"{max_new_tokens} more tokens make {longest} positions; this model has {limit}")
        pad = self.task.pad_id
        if self.spec.direction == "bidirectional" and pad is not None and (tokens == pad).any():
            self._refuse("generate", "TransformerLens generates without a mask, so it would attend to the padding")
        kwargs.setdefault("stop_at_eos", "eos_token_id" in kwargs)
        # Cached keys are wrong if later tokens change earlier rows. They are also wrong with positions, because
        # TransformerLens counts those of cached tokens twice.
        if self.spec.direction == "bidirectional" or self.spec.positions != "none":
            kwargs["use_past_kv_cache"] = False
        return super().generate(tokens, max_new_tokens, **kwargs)

    def process_weights_(self, *args: Any, **kwargs: Any) -> None:
        self._refuse("process_weights_", not_folded(self.spec))

    def load_and_process_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._refuse("load_and_process_state_dict", "it folds weights; use load_state_dict or interp.load")

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        self._need_stock_block("set_use_split_qkv_input")
        super().set_use_split_qkv_input(use_split_qkv_input)

    def set_use_attn_in(self, use_attn_in: bool) -> None:
        self._need_stock_block("set_use_attn_in")
        if self.spec.layers[0].key_value_heads is not None:
            self._refuse("set_use_attn_in", "its heads share keys and values; use set_use_split_qkv_input")
        super().set_use_attn_in(use_attn_in)

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        self._need_stock_block("set_use_hook_mlp_in")
        if self.cfg.attn_only:
            self._refuse("set_use_hook_mlp_in", "it has no MLP")
        super().set_use_hook_mlp_in(use_hook_mlp_in)

    def _need_stock_block(self, what: str) -> None:
        if self.spec.layers[0].norm == "post":
            self._refuse(what, "blocks with post-layer-norm have no such hooks")

    @property
    def W_U(self) -> Tensor:
        if self.spec.readout == "relu_mlp":
            self._refuse("W_U", "its readout is a ReLU MLP (model.unembed.W_in, W_out), not a linear map")
        return self.unembed.W_U

    @property
    def b_U(self) -> Tensor:
        if self.spec.readout == "relu_mlp":
            self._refuse("b_U", "its readout is a ReLU MLP (model.unembed.b_in, b_out), not a linear map")
        return self.unembed.b_U

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, "d_model"]:
        """Sum all b_O and b_out before the input of a layer, or of its MLP, in the model's number format.

        (TransformerLens sums in float32, and fails on blocks without an MLP.)
        """
        if not 0 <= layer <= len(self.spec.layers) - mlp_input:
            raise InterpError(f"layer {layer}: this model has layers 0 to {len(self.spec.layers) - 1}")
        total = torch.zeros_like(self.embed.W_E[0])
        parts: list[Any] = [*self.blocks]
        for index, block in enumerate(parts[: layer + mlp_input]):
            total = total + block.attn.b_O
            if include_mlp_biases and index < layer and self.spec.layers[index].mlp is not None:
                total = total + block.mlp.b_out
        return total

    def tokens_to_residual_directions(self, tokens: Any) -> Any:
        """Call TransformerLens's method, for tokens that are outputs of the model."""
        n_out = outputs(self.spec, self.task)
        ids = torch.as_tensor(self.to_single_token(tokens) if isinstance(tokens, str) else tokens)
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < n_out:
            self._refuse("tokens_to_residual_directions", f"{int(ids.max())} is none of its outputs, 0 to {n_out - 1}")
        return super().tokens_to_residual_directions(tokens)

    def sample_datapoint(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse("sample_datapoint", "it has no data set of texts; model.task.sample(n) draws inputs")

    load_sample_training_dataset = sample_datapoint

    def _of_mlps(self, name: str) -> Tensor:
        """Stack a parameter of all MLPs."""
        self._need_mlps(name)
        parts: list[Any] = [*self.blocks]
        return torch.stack([getattr(block.mlp, name) for block in parts])

    W_in = property(lambda self: self._of_mlps("W_in"))
    W_out = property(lambda self: self._of_mlps("W_out"))
    b_in = property(lambda self: self._of_mlps("b_in"))
    b_out = property(lambda self: self._of_mlps("b_out"))

    def _need_mlps(self, what: str) -> None:
        if any(layer.mlp is None for layer in self.spec.layers):
            self._refuse(what, "not every block of it has an MLP")

    def _refuse(self, what: str, why: str) -> None:
        raise UnsupportedError(f"{what} does not apply to {self.spec.id}: {why}")


class TaskCache(ActivationCache):
    """An ActivationCache that raises UnsupportedError for decompositions of residual streams that are not sums."""

    def __init__(self, cache_dict: dict[str, Tensor], model: TaskModel, has_batch_dim: bool = True) -> None:
        super().__init__(cache_dict, model, has_batch_dim)
        self.task_model = model

    def _need_sum(self, what: str) -> None:
        if not self.task_model.spec.additive_residual:
            self.task_model._refuse(what, "after post-layer-norm, the stream is not the sum of the parts' outputs")

    def decompose_resid(self, *args: Any, **kwargs: Any) -> Any:
        self._need_sum("decompose_resid")
        return super().decompose_resid(*args, **kwargs)

    def apply_ln_to_stack(
        self,
        residual_stack: Float[Tensor, "parts *rows d_model"],
        layer: int | None = None,
        mlp_input: bool = False,
        pos_slice: Any = None,
        batch_slice: Any = None,
        has_batch_dim: bool = True,
        recompute_ln: bool = False,
    ) -> Float[Tensor, "parts *rows d_model"]:
        """Return each part's contribution to a layer's input (None, -1 or n_layers: to the readout's input).

        Applies the norm's cached scale and its gain, so that the contributions plus the norm's bias add up to the
        layer's input. (TransformerLens omits the gain because it assumes folded weights.) recompute_ln: apply the final
        norm to each part separately, as for a logit lens.
        """
        at, batches = as_slice(pos_slice), as_slice(batch_slice)
        if has_batch_dim:
            residual_stack = batches.apply(residual_stack, dim=1)
        final = layer is None or layer in (-1, self.task_model.cfg.n_layers)
        norm = self._norm_before(layer, mlp_input)
        if norm is None:
            return residual_stack
        model: Any = self.task_model
        module = model.get_submodule(norm)
        if recompute_ln and final:
            return torch.stack([module(part) for part in residual_stack])
        if f"{norm}.hook_scale" not in self.cache_dict:
            raise InterpError(f"the cache has no {norm}.hook_scale; names_filter must include it")
        scale = at.apply(self[f"{norm}.hook_scale"], dim=-2)
        if self.has_batch_dim:
            scale = batches.apply(scale)
        if isinstance(module, RMSNorm):
            return residual_stack / scale * module.w
        return (residual_stack - residual_stack.mean(-1, keepdim=True)) / scale * module.w

    def _norm_before(self, layer: int | None, mlp_input: bool) -> str | None:
        """Return the name of the norm before a layer's attention or MLP, or before the readout; None without a norm."""
        spec = self.task_model.spec
        if layer is None or layer in (-1, len(spec.layers)):
            return "ln_final" if spec.final_norm != "none" else None
        if not 0 <= layer < len(spec.layers):
            raise InterpError(f"layer {layer}: this model has layers 0 to {len(spec.layers) - 1}")
        has_mlp = spec.layers[layer].mlp is not None
        if mlp_input and not has_mlp:
            raise InterpError(f"mlp_input: layer {layer} has no MLP")
        return f"blocks.{layer}.ln{2 if mlp_input else 1}" if spec.layers[layer].norm == "pre" else None

    def get_full_resid_decomposition(self, *args: Any, **kwargs: Any) -> Any:
        self._need_sum("get_full_resid_decomposition")
        arguments = signature(super().get_full_resid_decomposition).bind(*args, **kwargs).arguments
        if arguments.get("expand_neurons", True) and not self.task_model.cfg.attn_only:
            self.task_model._need_mlps("get_full_resid_decomposition with expand_neurons")
        self._need_gain("get_full_resid_decomposition", super().get_full_resid_decomposition, args, kwargs)
        return super().get_full_resid_decomposition(*args, **kwargs)

    def get_neuron_results(self, layer: int, *args: Any, **kwargs: Any) -> Any:
        layers = self.task_model.spec.layers
        if not 0 <= layer < len(layers) or layers[layer].mlp is None:
            self.task_model._refuse("get_neuron_results", f"layer {layer} of it has no MLP")
        return super().get_neuron_results(layer, *args, **kwargs)

    def remove_batch_dim(self) -> Any:
        if self.has_batch_dim and (rows := len(next(iter(self.cache_dict.values())))) != 1:
            raise InterpError(f"the cache holds {rows} rows; the axis of rows can be removed if there is one")
        return super().remove_batch_dim()

    def compute_ssm_state(self, *args: Any, **kwargs: Any) -> Any:
        self.task_model._refuse("this method", "it is for state-space layers, and the model has none")

    compute_ssm_effective_attention = compute_ssm_state

    def logit_lens(self, *args: Any, **kwargs: Any) -> Any:
        why = "it needs TransformerLens's own blocks; model.unembed(cache['resid_post', layer]) is the lens of a layer"
        self.task_model._refuse("logit_lens", why)

    def stack_neuron_results(self, *args: Any, **kwargs: Any) -> Any:
        self.task_model._need_mlps("stack_neuron_results")
        self._need_gain("stack_neuron_results", super().stack_neuron_results, args, kwargs)
        return super().stack_neuron_results(*args, **kwargs)

    def _need_gain(self, what: str, stock: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise UnsupportedError for the one option with which TransformerLens bypasses apply_ln_to_stack."""
        arguments = signature(stock).bind(*args, **kwargs).arguments
        normed = any(layer.norm != "none" for layer in self.task_model.spec.layers)
        normed = normed or self.task_model.spec.final_norm != "none"
        if normed and arguments.get("apply_ln") and arguments.get("project_output_onto") is not None:
            self.task_model._refuse(
                f"{what} with apply_ln and project_output_onto", "it leaves the norm's gain out; project its result"
            )

    def logit_attrs(self, *args: Any, **kwargs: Any) -> Any:
        self._need_sum("logit_attrs")
        if self.task_model.spec.readout == "relu_mlp":
            self.task_model._refuse(
                "logit_attrs", "its readout is a ReLU MLP, so the logits are not a sum over components"
            )
        return super().logit_attrs(*args, **kwargs)


NORMALIZATION = {"none": None, "layer_norm": "LN", "rms_norm": "RMS"}
"""TransformerLens's names of final norms."""


def _config(spec: ModelSpec, task: Task, dtype: torch.dtype, device: torch.device) -> HookedTransformerConfig:
    first = spec.layers[0]
    mlp = next((layer.mlp for layer in spec.layers if layer.mlp is not None), None)
    return config(
        n_layers=len(spec.layers),
        d_model=spec.d_model,
        d_head=first.d_head,
        n_heads=first.n_heads,
        d_mlp=mlp.d_mlp if mlp else None,
        act_fn=mlp.activation if mlp else None,
        attn_only=mlp is None,
        n_ctx=spec.max_length or 1024,  # only matters for linear mixing and learned positions
        d_vocab_out=outputs(spec, task),
        d_vocab=task.d_vocab,
        normalization_type=NORMALIZATION[spec.final_norm],  # TransformerLens applies ln_final
        n_key_value_heads=first.key_value_heads,
        use_qk_norm=first.query_key_norm,
        gated_mlp=all(layer.mlp is not None and layer.mlp.gated for layer in spec.layers),
        attention_dir=spec.direction,
        positional_embedding_type="standard",
        dtype=dtype,
        device=str(device),
        use_attn_scale=first.factor(spec.d_model) != 1.0,
        attn_scale=1 / first.factor(spec.d_model),
    )


def not_folded(spec: ModelSpec) -> str:
    """Return the reason why the weights of a model of this spec cannot be folded."""
    lacks = []
    if any(layer.normalizer != "softmax" for layer in spec.layers):
        lacks.append("attention without a softmax")
    if spec.positions == "none":
        lacks.append("no position table")
    if spec.layers[0].norm == "post":
        lacks.append("layer norm after its blocks")
    if lacks:
        return f"this model has {' and '.join(lacks)}, for which folding changes outputs or fails"
    return "folded weights would need another spec; fold a plain HookedTransformer with these weights instead"


def standing_hooks(model: torch.nn.Module) -> list[str]:
    """Return the names of the hook points and modules that have hooks."""
    return [
        name or "the model itself"
        for name, module in model.named_modules()
        if module._forward_hooks or module._forward_pre_hooks
    ]


def hooked(model: HookedTransformer) -> bool:
    """Test whether the model has hooks."""
    return any(hook.fwd_hooks for hook in model.hook_dict.values())
