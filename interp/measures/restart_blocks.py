"""The arithmetic of a block at some positions only, for the models whose structure is known here.

`unknown` gives the reason why a model's structure is not: everything that a spec can describe with norms before its
parts or without norms is. Weights are read from the model's own parts, and what runs is fused: one product for queries,
keys and values, PyTorch's own norms and attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from interp.measures.runs import has_mlp
from interp.models.architecture.sequence import ACTIVATIONS
from interp.models.architecture.stock import refusal
from interp.models.architecture.task_model import TaskModel, standing_hooks
from interp.models.lens import GatedMLP, PlainMLP
from interp.models.lens.forward import softmax
from interp.models.relative_positions import alibi_bias, rotated
from interp.models.subject import Subject
from interp.tasks import Batch

AT_ONCE = 2**18
"""Activations of neurons that are computed at once."""

Mask = Float[Tensor, "_ _ asking length"] | None
"""Added to the scores: 0, -inf, the logarithm of a key's count, or ALiBi's bias."""


def unknown(subject: Subject) -> str | None:
    """Return the reason why a run of this model cannot be restarted by `RunBlock`, or None."""
    model: Any = subject.model
    if isinstance(model, TaskModel):
        if any(layer.norm == "post" for layer in model.spec.layers):
            return "its norms follow its parts"
    elif (reason := refusal(model, "a restarted run")) is not None:
        return reason
    if model.cfg.dtype not in (torch.float32, torch.float64):
        return f"its numbers are {model.cfg.dtype}"
    if standing_hooks(model):
        return "it has hooks"
    odd = [block for block in model.blocks if has_mlp(block) and type(block.mlp) not in (PlainMLP, GatedMLP)]
    odd += [block for block in model.blocks if not hasattr(block.attn, "hook_q")]
    return "a part of a block was replaced" if odd else None


def seen_tokens(subject: Subject, batch: Batch) -> Bool[Tensor, "rows length"] | None:
    """Return the mask of the tokens that a task model attends to, if it hides some; see TaskModel.input_to_embed."""
    model, pad = subject.model, subject.task.pad_id
    if not isinstance(model, TaskModel) or model.spec.direction == "causal" or pad is None:
        return None
    visible = (batch.tokens != pad).to(model.cfg.device)
    return None if bool(visible.all()) else visible


def added_to_scores(subject: Subject, batch: Batch) -> Float[Tensor, "rows 1 1 length"] | None:
    """Return what every score of a key gets: -inf for padding that is hidden, the logarithm of a key's count."""
    added, seen = subject.added_to_scores(batch), seen_tokens(subject, batch)
    if seen is None:
        return added
    hidden = torch.zeros(seen.shape, dtype=subject.model.cfg.dtype, device=seen.device).masked_fill(~seen, -torch.inf)
    return hidden[:, None, None] if added is None else hidden[:, None, None] + added


class RunBlock:
    """One block: queries, keys and values of some positions, what heads write, and what the MLP writes."""

    def __init__(self, subject: Subject, index: int, batch: Batch, added: Tensor | None) -> None:
        model: Any = subject.model
        block = model.blocks[index]
        self.attn, self.cfg, self.added = block.attn, model.cfg, added
        self.causal = model.cfg.attention_dir == "causal"
        self.length = batch.tokens.shape[1]
        attn, layer = self.attn, model.spec.layers[index] if isinstance(model, TaskModel) else None
        self.normalized = layer is None or layer.normalizer == "softmax"
        kind = model.cfg.normalization_type if layer is None else layer.norm_kind
        rms = kind in ("RMS", "RMSPre", "rms")
        self.first_norm, self.second_norm = (_norm(getattr(block, name, None), rms) for name in ("ln1", "ln2"))
        held = [[getattr(attn, f"_{kind}_{name}", None) for name in "KV"] for kind in "Wb"]
        weights, biases = ([getattr(attn, f"{kind}_{name}") for name in "QKV"] for kind in "Wb")
        if held[0][0] is not None and held[0][0].shape[0] == weights[1].shape[0]:
            pass  # grouped in name only
        elif held[0][0] is not None and not getattr(attn.cfg, "ungroup_grouped_query_attention", False):
            weights[1:], biases[1:] = held
        self.heads = [len(weight) for weight in weights]
        flat = [rearrange(weight, "head d_model d_head -> d_model (head d_head)") for weight in weights]
        self.W_in = torch.cat(flat, 1)
        self.b_in = torch.cat([rearrange(bias, "head d_head -> (head d_head)") for bias in biases])
        self.W_O, self.b_O = attn.W_O, attn.b_O
        self.W_out = rearrange(attn.W_O, "head d_head d_model -> (head d_head) d_model")
        self.scale = 1 / float(attn.attn_scale)
        self.mixing = getattr(attn, "W_mix", None)
        self.entering = getattr(attn, "W_pos", None)
        self.log_length: Tensor | float = 1.0
        if layer is not None and layer.log_length != "none":
            self.log_length = attn._log_length(seen_tokens(subject, batch), self.length, attn.W_O)
        self.sloped = bool(getattr(attn, "sloped", False)) or model.cfg.positional_embedding_type == "alibi"
        self.mlp = block.mlp if has_mlp(block) else None

    # ------------------------------------------------------------ attention

    def project(
        self, x: Float[Tensor, "rows asking d_model"], at: Int[Tensor, "asking"], which: str = "qkv"
    ) -> list[Float[Tensor, "rows asking heads d_head"]]:
        """Return queries, keys and values (or those of `which`, "q" or "kv"), as their hooks see them."""
        x = self.first_norm(x)
        if self.entering is not None:
            x = x + self.entering[at]
        size, heads = self.W_O.shape[1], self.heads[slice(1 if which == "kv" else 0, 1 if which == "q" else 3)]
        start = self.heads[0] * size if which == "kv" else 0
        here = slice(start, start + sum(heads) * size)
        out = torch.addmm(self.b_in[here], x.flatten(0, 1), self.W_in[:, here]).unflatten(0, x.shape[:2])
        return [projected.unflatten(2, (-1, size)) for projected in out.split([n * size for n in heads], 2)]

    def placed(self, x: Float[Tensor, "rows asking heads d_head"], which: str, at: Int[Tensor, "asking"]) -> Tensor:
        """Return queries ("q") or keys ("k") as scores see them: normed and rotated."""
        attn = self.attn
        if (norm := getattr(attn, f"{which}_norm", None)) is not None:
            x = attn._apply_qk_norm(x, norm)
        if getattr(attn, "rotary_dim", 0):
            x = rotated(x, at, attn.rotary_base, attn.rotary_dim, attn.rotary_adjacent)
        elif hasattr(attn, "rotary_cos"):  # TransformerLens's own attention, with its own table of angles
            turned = x[..., : self.cfg.rotary_dim]
            cos, sin = (table[at][:, None] for table in (attn.rotary_cos, attn.rotary_sin))
            turned = turned * cos + attn.rotate_every_two(turned) * sin
            x = torch.cat([turned, x[..., self.cfg.rotary_dim :]], -1)
        return x

    def mix(
        self,
        q: Float[Tensor, "rows asking heads d_head"],
        k: Float[Tensor, "_rows _length _heads d_head"],
        v: Float[Tensor, "_rows _length _heads d_head"],
        at: Int[Tensor, "asking"],
        edit: Callable[[Tensor], None] | None = None,
    ) -> Float[Tensor, "rows asking heads d_head"]:
        """Return the heads' outputs, as hook_z sees them, from placed queries and keys. edit: edits of the pattern."""
        heads, rows = self.heads[0], len(v)
        first = self.length - len(at)
        fused = self.mixing is None and self.normalized and edit is None
        ordered = fused and self.causal and self.added is None and not self.sloped and int(at[0]) == first
        mask = None if ordered else self._mask(at, v)
        if mask is not None and len(mask) > 1:
            mask = repeat(mask, "row head asking key -> (change row) head asking key", change=rows // len(mask))
        values = _for_heads(v, heads).transpose(1, 2)
        if self.mixing is None:
            if isinstance(self.log_length, Tensor) and len(self.log_length) > 1:
                q = (q.unflatten(0, (-1, len(self.log_length))) * self.log_length).flatten(0, 1)
            elif not isinstance(self.log_length, float) or self.log_length != 1.0:
                q = q * self.log_length
            queries, keys = q.transpose(1, 2), _for_heads(k, heads).transpose(1, 2)
            if fused:
                if ordered and len(at) > 1:  # a mask costs more than queries of all positions
                    queries = functional.pad(queries, (0, 0, first, 0))
                z = functional.scaled_dot_product_attention(
                    queries, keys, values, mask, is_causal=ordered and len(at) > 1, scale=self.scale
                )
                return z[:, :, -len(at) :].transpose(1, 2)
            scores = queries @ keys.transpose(2, 3) * self.scale
        else:
            scores = self.mixing[:, at, : self.length].expand(rows, -1, -1, -1)
        if self.normalized:
            pattern = softmax(scores if mask is None else scores + mask)
        else:
            pattern = scores if mask is None else scores.masked_fill(mask == -torch.inf, 0.0)
        if edit is not None:
            pattern = pattern.clone()
            edit(pattern)
        return (pattern @ values).transpose(1, 2)

    def heads_apart(
        self, streams: Float[Tensor, "heads rows length d_model"], every: Int[Tensor, "length"]
    ) -> Float[Tensor, "rows length heads d_head"]:
        """Return the outputs of all heads if each reads a stream of its own."""
        x, attn = self.first_norm(streams), self.attn
        x = x if self.entering is None else x + self.entering[every]
        weights, biases = (torch.cat([getattr(attn, f"{kind}_{name}") for name in "QKV"], -1) for kind in "Wb")
        out = torch.baddbmm(biases[:, None], x.flatten(1, 2), weights).unflatten(1, x.shape[1:3])
        q, k, v = rearrange(out, "head row place (which d_head) -> which row place head d_head", which=3)
        return self.mix(self.placed(q, "q", every), self.placed(k, "k", every), v, every)

    def _mask(self, at: Int[Tensor, "asking"], like: Tensor) -> Mask:
        added = None if self.added is None else self.added.to(like)
        if self.sloped:
            bias = alibi_bias(at, self.length, self.heads[0]).to(like)[None]
            added = bias if added is None else added + bias
        if self.causal:
            hidden = torch.arange(self.length, device=at.device) > at[:, None]
            later = like.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)[None, None]
            added = later if added is None else added + later
        elif added is not None and added.shape[2] == 1:
            added = added.expand(-1, -1, len(at), -1)
        return added

    def written(self, z: Float[Tensor, "rows asking heads d_head"]) -> Float[Tensor, "rows asking d_model"]:
        """Return what the heads add to the stream, with the bias."""
        flat = z.flatten(2)
        return torch.addmm(self.b_O, flat.flatten(0, 1), self.W_out).unflatten(0, flat.shape[:2])

    # ------------------------------------------------------------ the MLP

    def neurons(self, mid: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_mlp"]:
        """Return the activations of the MLP's neurons, as its hook_post sees them."""
        mlp: Any = self.mlp
        x = self.second_norm(mid).flatten(0, -2)
        act = ACTIVATIONS[{"gelu_pytorch_tanh": "gelu_new"}.get(mlp.cfg.act_fn, mlp.cfg.act_fn)]
        if isinstance(mlp, GatedMLP):
            return (act(x @ mlp.W_gate) * (x @ mlp.W_in) + mlp.b_in).unflatten(0, mid.shape[:-1])
        return act(torch.addmm(mlp.b_in, x, mlp.W_in)).unflatten(0, mid.shape[:-1])

    def through_mlp(self, mid: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Return what the MLP adds to the stream, with few neurons in memory at a time."""
        mlp: Any = self.mlp
        flat = mid.flatten(0, -2)
        out = torch.empty_like(flat)
        size = max(1, AT_ONCE // len(mlp.W_out))
        for here, there in zip(flat.split(size), out.split(size)):
            there[:] = self.mlp_written(self.neurons(here))
        return out.view(mid.shape)

    def mlp_written(self, neurons: Float[Tensor, "*rows d_mlp"]) -> Float[Tensor, "*rows d_model"]:
        """Return what the MLP adds to the stream."""
        mlp: Any = self.mlp
        return torch.addmm(mlp.b_out, neurons.flatten(0, -2), mlp.W_out).unflatten(0, neurons.shape[:-1])


def _for_heads(x: Float[Tensor, "rows length _ d_head"], heads: int) -> Float[Tensor, "rows length heads d_head"]:
    return x if x.shape[2] == heads else x.repeat_interleave(heads // x.shape[2], 2)


def _norm(norm: Any, rms: bool) -> Callable[[Tensor], Tensor]:
    """Return a norm of a block as one fused function; the identity if there is none."""
    if norm is None or isinstance(norm, torch.nn.Identity):
        return lambda x: x
    gain, bias, eps = getattr(norm, "w", None), getattr(norm, "b", None), float(norm.eps)
    if not rms:
        return lambda x: functional.layer_norm(x, x.shape[-1:], gain, bias, eps)

    def by_root_mean_square(x: Tensor) -> Tensor:
        x = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
        return x if gain is None else x * gain

    return by_root_mean_square
