"""The model under study, with its task and the mapping between the task's tokens and the model's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import ON_META, InterpError, UnsupportedError, check_one_of, of_type, quoted, refuse_if
from interp.models.architecture.answers import (
    Decision,
    answers_of,
    decide,
    decision_of,
    find_positions,
    has_answer,
    read_mask,
    right_classes,
    with_others,
)
from interp.models.architecture.comparison import cast
from interp.models.architecture.reduced import CountedRows, count_space_refusal, counted_at
from interp.models.architecture.task_model import TaskModel, hooked
from interp.models.lens import HookedTransformer
from interp.support.words import counted
from interp.tasks import Batch, Task, make_task
from interp.tasks.batch_checks import check_batch, check_padding, check_tokens
from interp.tasks.domain import check_entry
from interp.tasks.task_checks import check_made

Value = TypeVar("Value")
RECENT = 8
"""Number of recent results that a study keeps."""
COUNTED = 2**22
"""Number of tokens that are counted at once."""
LEAST_BYTES, MOST_BYTES = 2**26, 2**28
"""Limits on the bytes of activations per batch. Within them, a batch may take as many bytes as the weights."""

Padding: TypeAlias = Literal["mask", "attend"]


@dataclass(frozen=True, repr=False)
class Subject:
    """A HookedTransformer with a task.

    token_ids: [t] is the model's id of the task's token t (None: the same ids). output_ids: [c] is the model's output
    for the task's output index c (None: the same). Outputs that are no answers of the task come after its own: they
    compete with the answers, and are never right. padding: how an external bidirectional model treats padding: "mask"
    (no position attends to it) or "attend" (like other tokens); task models mask it. notes: what was assumed when the
    model was loaded, one sentence each. source: the path that an external model was loaded from, if any. recent: a
    cache of results within a study; see `once`.
    """

    model: HookedTransformer
    task: Task
    token_ids: Int[Tensor, "d_vocab"] | None = None
    output_ids: Int[Tensor, "n_out"] | None = None
    padding: Padding = "mask"
    notes: tuple[str, ...] = ()
    source: str = ""
    recent: deque[tuple[HookedTransformer, Batch, object, Any]] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, model: Model) -> Subject:
        """Make a subject of a task model; a subject stays as it is. Raises InterpError for anything else.

        Raises UnsupportedError under torch's autocast, which would change all numbers without a word.
        """
        refuse_if(autocast())
        if isinstance(model, Subject):
            return model
        if not isinstance(model, HookedTransformer):
            raise InterpError(f"{of_type(model)} is not a HookedTransformer; see interp.load and interp.build")
        if next(model.parameters()).is_meta:
            raise InterpError(ON_META)
        if isinstance(model, TaskModel):
            return cls(model, model.task, notes=model.notes)
        raise InterpError(
            "a HookedTransformer of your own needs its task: pass "
            'interp.load(model, task="count01", tokens={"0": 3, ...}) instead'
        )

    @classmethod
    def external(
        cls,
        model: HookedTransformer,
        task: Task | str,
        tokens: Mapping[str, int] | None = None,
        outputs: Mapping[str, int] | None = None,
        padding: Padding = "mask",
    ) -> Subject:
        """Make a subject of any HookedTransformer and its task, as interp.load does if no spec can express the model.

        tokens: the model's id of each of the task's tokens. outputs: the model's output for each answer word (default:
        the tokens' ids if answers are tokens, otherwise the same indices). Raises InterpError if a vocabulary does not
        fit.
        """
        if not isinstance(task, str | Task):
            raise InterpError(f"task = {quoted(task)}: give a task's name, or a Task")
        if next(model.parameters()).is_meta:
            raise InterpError(ON_META)
        if padding not in ("mask", "attend"):
            raise InterpError(f"padding = {padding!r} must be 'mask' or 'attend'")
        if model.cfg.positional_embedding_type == "alibi" and model.cfg.attention_dir == "bidirectional":
            raise UnsupportedError(
                "TransformerLens's alibi is for causal attention: it keeps the bias of the longest input so far, so a "
                "bidirectional model's outputs would depend on which inputs ran before"
            )
        known = make_task(task) if isinstance(task, str) else task
        if isinstance(task, str) and tokens is None:
            known = known.for_vocabulary(model.cfg.d_vocab)
        check_made(known)
        ids = token_ids_of(model.cfg.d_vocab, known, tokens)
        many = model.cfg.d_vocab_out
        named = output_ids_of(many, model.cfg.d_vocab, known, ids, outputs)
        return cls(model, known, ids, None if named is None else with_others(named, many, known), padding)

    def __repr__(self) -> str:
        cfg = self.model.cfg
        name = self.model.spec.id if isinstance(self.model, TaskModel) else "a HookedTransformer of your own"
        parts = f"{counted(cfg.n_layers, 'layer')} of {counted(cfg.n_heads, 'head')}"
        return " ".join([f"{name} on task {self.task.name}: {parts}", *(f"({note})" for note in self.notes)])

    @property
    def name(self) -> str:
        """What the model was loaded as, or else a name from its spec."""
        if isinstance(self.model, TaskModel):
            return self.model.loaded_as or f"{self.model.spec.id}, seed {self.model.seed}"
        return self.source or "a HookedTransformer of your own"

    def remembering(self) -> Subject:
        """Return a copy that caches the last few results of `once`."""
        return replace(self, recent=deque(maxlen=RECENT))

    def once(self, make: Callable[[Batch], Value], batch: Batch, key: object) -> Value:
        """Return make(batch), or the cached result for the same inputs and key."""
        for model, inputs, known, value in self.recent or ():
            if model is self.model and known == key and same_inputs(inputs, batch):
                return value
        value = make(batch)
        if self.recent is not None:
            self.recent.append((self.model, batch, key, value))
        return value

    @property
    def task_model(self) -> TaskModel:
        """The model as a TaskModel. Raises UnsupportedError for other models."""
        if not isinstance(self.model, TaskModel):
            raise UnsupportedError("this question needs a model built from a spec, not a HookedTransformer of your own")
        return self.model

    @property
    def count_space(self) -> bool:
        """Whether outputs can be computed from token counts: the spec allows it, and the model has no hooks."""
        if not isinstance(self.model, TaskModel) or count_space_refusal(self.model.spec) is not None:
            return False
        return not hooked(self.model)

    @property
    def own_split(self) -> bool:
        """Whether the task's fixed data sets are this model's: interp made it, or the user's task or seed says so."""
        if isinstance(self.model, TaskModel) and (self.model.spec.origin or "engine" in self.model.summary):
            return True
        return bool(self.task.data_seed) or not type(self.task).__module__.startswith("interp.")

    # ------------------------------------------------------------ inputs, outputs, answers

    @property
    def read_at(self) -> str:
        """Where answers are read: "all" positions, the "last", or the position of a token."""
        return self.model.spec.readout_at if isinstance(self.model, TaskModel) else self.task.readout

    @property
    def decision(self) -> Decision:
        """How outputs become answers.

        For external models: a set of outputs if the task's answers are sets, otherwise the sign of a single output, or
        the largest of several.
        """
        if isinstance(self.model, TaskModel):
            return decision_of(self.model.spec)
        if self.task.decision == "set":
            return Decision("set")
        return Decision("sigmoid" if self.task.n_out == 1 and self.output_ids is None else "argmax")

    def inputs(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """Convert the task's token ids to the model's. Raises InterpError for rows longer than the model's n_ctx."""
        length, most = tokens.shape[1], self.model.cfg.n_ctx
        if length > most and not isinstance(self.model, TaskModel):
            raise InterpError(f"inputs of task {self.task.name} have {length} tokens; the model's n_ctx is {most}")
        check_tokens(self.task, tokens)
        return tokens if self.token_ids is None else self.token_ids[tokens]

    @torch.no_grad()
    def __call__(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length n_out"]:
        """Return outputs at all positions, in the task's order, for rows of the task's tokens, with padding masked."""
        pad = self.task.pad_id
        lengths = torch.full((len(tokens),), tokens.shape[1]) if pad is None else (tokens != pad).sum(1)
        with self.masked(Batch(tokens, lengths, lengths)):
            return self.columns(self.model(self.inputs(tokens).to(self.model.cfg.device)))

    def columns(self, outputs: Float[Tensor, "*rows n_model_out"]) -> Float[Tensor, "*rows n_out"]:
        """Return the model's outputs in the task's order."""
        return outputs if self.output_ids is None else outputs[..., self.output_ids.to(outputs.device)]

    def words(self, batch: Batch) -> tuple[tuple[str, ...], ...]:
        """Return the tokens of each row in words, without padding."""
        return tuple(
            tuple(self.task.vocabulary[token] for token in row[:n])
            for row, n in zip(batch.tokens.tolist(), batch.lengths.tolist())
        )

    def answer_positions(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows"]:
        """Return the read position of each row. Raises UnsupportedError if answers are read at every position."""
        if self.read_at == "all":
            raise UnsupportedError(f"task {self.task.name} is read at every position; this needs one answer per row")
        return find_positions(self.task, tokens, self.read_at)

    def read_mask(self, batch: Batch) -> Bool[Tensor, "rows length"]:
        """Return the mask of the read positions, one per row or all labeled ones; InterpError for badly padded rows."""

        def make() -> Bool[Tensor, "rows length"]:
            self.check(batch)
            check_padding(self.task, batch)
            return read_mask(self.task, batch, self.read_at)

        return self.shared("read mask", batch, make)

    def check(self, batch: Batch) -> None:
        """Raise InterpError for anything that is not a batch of the task's tokens."""
        if not isinstance(batch, Batch):
            raise InterpError(f"{of_type(batch)} is not a Batch: task.sample(n) and task.batch(tokens) give one")
        check_tokens(self.task, batch.tokens)
        if not len(batch.tokens) == len(batch.lengths) == len(batch.labels):
            raise InterpError(
                f"a batch of {len(batch.tokens)} rows has {len(batch.lengths)} lengths and {len(batch.labels)} labels"
            )

    def classes(self, batch: Batch) -> Int[Tensor, "reads"]:
        """Return the right output index at every read position, row by row."""
        return self.shared("classes", batch, lambda: right_classes(self.task, batch, self.read_at))

    def shared(self, what: str, batch: Batch, make: Callable[[], Value]) -> Value:
        """Return make(). Models that are compared make it once for all of them (see programs.many): it depends on the
        batch, and on nothing of the model but its read position and the direction of its attention."""
        return make()

    def in_format(self, dtype: torch.dtype) -> Subject:
        """Return a copy that computes in another number format."""
        return replace(self, model=cast(self.model, dtype))

    @torch.no_grad()
    def logits(self, batch: Batch, chunk: int | None = None) -> Float[Tensor, "reads n_out"]:
        """Return the outputs at every read position, row by row, in the task's order.

        Rows run in chunks of bounded memory, or of `chunk` rows.
        """
        places = self.read_mask(batch)
        plain = chunk is None and batch.counts is None and self.token_ids is None
        if plain and self.count_space and self.read_at != "all":  # rows become counts, and no pattern is built
            counted = self.shared("counts", batch, lambda: self._counted(batch, places))
            device = self.model.cfg.device or "cpu"
            outputs = [self.task_model.read_counts(rows.to(device, rows.counts.dtype)).cpu() for rows in counted]
        else:
            outputs = []
            for here in self.chunks(batch, chunk):
                piece = self.trimmed(batch[here])
                outputs.append(self._outputs(piece, places[here, : piece.tokens.shape[1]]).cpu())
        if not outputs:
            return torch.zeros(0, self.n_classes if self.n_classes > 2 else self.task.n_out)
        return self.columns(torch.cat(outputs))

    def _counted(self, batch: Batch, places: Bool[Tensor, "rows length"]) -> list[CountedRows]:
        """The reads as counts of tokens, in pieces of bounded memory."""
        spec, pieces = self.task_model.spec, []
        size = max(1, COUNTED // batch.tokens.shape[1])
        for start in range(0, len(batch), size):
            piece = self.trimmed(batch[start : start + size])
            at = places[start : start + size].nonzero(as_tuple=True)[1]
            tokens = self.inputs(piece.tokens)
            pieces.append(counted_at(spec, self.task.d_vocab, tokens, at, piece.attention_mask.to(tokens.device)))
        return pieces

    def _outputs(self, batch: Batch, places: Tensor) -> Tensor:
        tokens, where = self.inputs(batch.tokens).to(self.model.cfg.device), places.to(self.model.cfg.device)
        if isinstance(self.model, TaskModel) and self.token_ids is None and batch.counts is None:
            out = self.model.read(tokens)
            return out if self.read_at != "all" else out[where]
        with self.masked(batch):
            return self.model(tokens)[where]

    def answers(self, batch: Batch) -> Tensor:
        """Return the model's answers in the units of Batch.labels: one per row, or one per position."""
        return self.answers_of(self.logits(batch), batch)

    def answers_of(self, logits: Float[Tensor, "reads n_out"], batch: Batch) -> Tensor:
        """Convert outputs to answers in the units of Batch.labels; -1 for an output that is no answer of the task."""
        classes, places = decide(logits, self.decision), self.read_mask(batch)
        if self.read_at != "all":
            return answers_of(self.task, classes, batch.tokens)
        spread = classes.new_zeros(places.shape)
        spread[places] = classes
        return answers_of(self.task, spread, batch.tokens)

    def right(self, batch: Batch) -> Bool[Tensor, "reads"]:
        """Test whether each answer is right: one value per read position, row by row."""
        return self.right_of(self.logits(batch), batch)

    def right_of(self, logits: Float[Tensor, "reads n_out"], batch: Batch) -> Bool[Tensor, "reads"]:
        """Test whether outputs give the right answers; outputs that are not finite count as wrong."""
        right = self.answers_of(logits, batch) == batch.labels
        return (right[self.read_mask(batch)] if self.read_at == "all" else right) & has_answer(logits)

    @property
    def n_classes(self) -> int:
        """Number of possible answers: two for a single output."""
        return max(2, self.task.n_out)

    # ------------------------------------------------------------ running

    def trimmed(self, batch: Batch) -> Batch:
        """Drop the columns that are padding in all rows, unless the model attends to padding."""
        if (self.model.cfg.attention_dir != "causal" and self.padding == "attend") or hooked(self.model):
            return batch
        length, used = batch.tokens.shape[1], int(batch.lengths.max()) if len(batch) else 0
        if not 0 < used < length:
            return batch
        labels = batch.labels[:, :used] if batch.labels.ndim == 2 else batch.labels
        return replace(batch, tokens=batch.tokens[:, :used], labels=labels)

    def chunks(self, batch: Batch, chunk: int | None = None) -> Iterator[slice]:
        """Yield slices of `chunk` rows, or with activations of at most `budget` bytes."""
        cfg, length = self.model.cfg, batch.tokens.shape[1]
        width = 6 * cfg.d_model + 2 * (cfg.d_mlp or 0) + cfg.d_vocab_out + 4 * cfg.n_heads * cfg.d_head
        row_bytes = 4 * length * (3 * cfg.n_heads * length + width)
        size = max(1, min(4096, budget(self.model) // max(1, row_bytes))) if chunk is None else chunk
        for start in range(0, len(batch), size):
            yield slice(start, min(start + size, len(batch)))

    def added_to_scores(self, batch: Batch) -> Float[Tensor, "rows 1 1 length"] | None:
        """Return what `masked` adds to the score of each key: -inf for padding, and the logarithm of a key's count."""
        mask, cfg = batch.attention_mask, self.model.cfg
        ours = isinstance(self.model, TaskModel)
        open_ = ours or cfg.attention_dir != "bidirectional" or self.padding == "attend" or bool(mask.all())
        if batch.counts is None and open_:
            return None
        more = torch.zeros(mask.shape) if open_ else torch.zeros(mask.shape).masked_fill(~mask.cpu(), -torch.inf)
        more = more if batch.log_counts is None else more + batch.log_counts
        return more[:, None, None, :].to(cfg.device, cfg.dtype)

    @contextmanager
    def masked(self, batch: Batch) -> Iterator[None]:
        """Within this context, count equal tokens that these rows hold once, and hide padding.

        Only from external bidirectional models: TransformerLens's bidirectional attention has no mask, and task models
        derive one from the tokens.
        """
        if (more := self.added_to_scores(batch)) is None:
            yield
            return

        def add(scores: Tensor, hook: Any) -> Tensor:
            return scores + more

        layers = range(self.model.cfg.n_layers)
        with self.model.hooks(fwd_hooks=[(f"blocks.{i}.attn.hook_attn_scores", add) for i in layers]):
            yield

    def run_with_cache(self, batch: Batch, **kwargs: Any) -> Any:
        """Call the model's run_with_cache on a batch of the task, with padding masked."""
        with self.masked(batch):
            return self.model.run_with_cache(self.inputs(batch.tokens).to(self.model.cfg.device), **kwargs)

    # ------------------------------------------------------------ structure

    def two_answers(self) -> tuple[int, int]:
        """Return the output indices of the two answers in a logit difference.

        These are the two words of the task's contrast in order. Without a contrast, they are the two answers that occur
        in its samples, the larger index first. Raises UnsupportedError if there are not exactly two.
        """
        if self.task.contrast is not None:
            first, second = (self.task.answer_words.index(word) for word in self.task.contrast)
            return first, second
        answers = self.classes(self.task.sample(200, self.task.splits[0], seed=0)).unique().tolist()
        if len(answers) != 2:
            raise UnsupportedError(f"task {self.task.name} has {len(answers)} answers; this measure needs two")
        return answers[1], answers[0]

    def no_decomposition(self) -> str | None:
        """Return why the logits are no sum over the last layer's heads and a part without them, or None if they are."""
        if (reason := no_sum(self.model)) is not None:
            return reason
        cfg, spec = self.model.cfg, self.model.spec if isinstance(self.model, TaskModel) else None
        if cfg.normalization_type is not None if spec is None else spec.final_norm != "none":
            return "after a final norm, the logits are not a sum over heads"
        if hasattr(self.model.blocks[-1], "mlp"):
            return (
                "what follows the heads (an MLP or a further layer) is not linear, so the logits are not a sum over "
                "heads"
            )
        return None


def autocast() -> str | None:
    """Return a sentence if torch's autocast, which runs parts of a model in other formats, is on, or None."""
    for kind in ("cpu", "cuda"):
        if torch.is_autocast_enabled(kind):
            return f"torch.autocast({kind!r}) is on and runs parts of a model in another number format: turn it off"
    return None


def check_finite(subject: Subject) -> None:
    """Raise InterpError for weights that are not finite."""
    for name, parameter in subject.model.named_parameters():
        weights = parameter.detach()
        if weights.dtype.itemsize == 1:  # isfinite is not there for float8
            weights = weights.float()
        if wrong := int((~weights.isfinite()).sum()):
            some = f"{wrong:,} of the {parameter.numel():,} weights of {name} {'is' if wrong == 1 else 'are'}"
            raise InterpError(f"{some} not finite: the model cannot be analyzed")


def check_runs(subject: Subject) -> None:
    """Raise InterpError if the task's inputs are too long for the model, its answers are not outputs of the model, or
    the task does not list its inputs as it declares.

    Checks 16 samples per split, before a report in which every section would fail; see also check_entry.
    """
    task = subject.task
    for split in task.splits:
        try:
            batch = task.sample(16, split, seed=0)
        except UnsupportedError:  # a task may list its inputs and have no sampler
            continue
        subject.inputs(batch.tokens)
        check_batch(task, batch, f"sample(16, {split!r})")
    check_entry(task)


def no_sum(model: HookedTransformer) -> str | None:
    """Return why outputs are not a sum over parts, even with the final norm's scale fixed, or None if they are."""
    if isinstance(model, TaskModel):
        if not model.spec.additive_residual:
            return "after post-layer-norm, the outputs are not a sum over the parts"
        if model.spec.readout == "relu_mlp":
            return "after a ReLU readout, the outputs are not a sum over the parts"
    if norm_follows_attention(model):
        return "if a norm follows the attention, what a head writes is not a linear map of its output"
    if getattr(model.cfg, "output_logits_soft_cap", -1.0) > 0:
        return "after a soft cap, the outputs are not a sum over the parts"
    norm = getattr(model, "ln_final", None)
    if norm is not None and not isinstance(norm, torch.nn.Identity) and not final_scale(model):
        return f"the final norm is {of_type(norm)} without a hook_scale, so its divisor is unknown"
    return None


def final_scale(model: HookedTransformer) -> list[str]:
    """Return the hook point of the final norm's scale, if any. (hook_dict may list a norm that has been replaced.)"""
    return ["ln_final.hook_scale"] if hasattr(getattr(model, "ln_final", None), "hook_scale") else []


def norm_follows_attention(model: HookedTransformer) -> bool:
    """Test whether a norm follows the attention, before or after its output is added to the stream."""
    return post_norm(model) or bool(getattr(model.cfg, "use_normalization_before_and_after", False))


def post_norm(model: HookedTransformer) -> bool:
    """Test whether the norm comes after the attention instead of before it."""
    if isinstance(model, TaskModel):
        return model.spec.layers[0].norm == "post"
    # TransformerLens identifies these architectures only by name.
    return str(getattr(model.cfg, "original_architecture", None)).startswith(("Olmo2", "Olmo3"))


Model: TypeAlias = HookedTransformer | Subject


def budget(model: HookedTransformer) -> int:
    """Return the limit on the bytes of activations per batch.

    It is MOST_BYTES if the model has hooks, because hooks may depend on which rows run together.
    """
    if hooked(model):
        return MOST_BYTES
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    return min(MOST_BYTES, max(LEAST_BYTES, weights))


def same_inputs(batch: Batch, other: Batch) -> bool:
    """Test whether two batches have the same inputs and labels."""
    return all(torch.equal(getattr(batch, name), getattr(other, name)) for name in ("tokens", "lengths", "labels"))


def check_nothing_else(
    model: HookedTransformer, task: Task | str | None, tokens: object, outputs: object, padding: str
) -> None:
    """Raise InterpError for arguments that contradict a model with its own task."""
    if not isinstance(model, TaskModel):
        raise InterpError("this model already has its task: leave out task, tokens, outputs and padding")
    own, name = model.task, task if isinstance(task, str) or task is None else getattr(task, "name", quoted(task))
    if not isinstance(task, str | Task | None):
        raise InterpError(f"task = {quoted(task)}: give a task's name, or a Task")
    if name not in (None, own.name):
        raise InterpError(f"{model.spec.id} is a model of task {own.name}, not {name}")
    if isinstance(task, Task) and task.ref != own.ref:
        raise InterpError(f"{model.spec.id} is a model of task {own!r}, not {task!r}")
    if tokens is not None or outputs is not None or padding != "mask":
        raise InterpError(
            f"{model.spec.id} already has the ids of task {own.name}: leave out tokens, outputs and padding, which are "
            "for external models"
        )


def token_ids_of(d_vocab: int, task: Task, tokens: Mapping[str, int] | None) -> Tensor | None:
    """Return the model's id of each of the task's tokens, or None without `tokens`, if the vocabulary sizes agree."""
    if tokens is None:
        if d_vocab != task.d_vocab:
            raise InterpError(
                f"the model has {d_vocab} tokens, task {task.name} has {task.d_vocab}; say which is which "
                f"(padding may be left out): tokens={{{task.vocabulary[0]!r}: 0, ...}} or --tokens FILE"
            )
        return None
    needed = [token for token in task.vocabulary if token != task.pad]
    _check_names(task, "token", "id", tokens, needed, d_vocab)
    ids = [tokens[token] for token in needed]
    # Many models have no padding token. Padding comes after the end of a row, where it has no effect.
    filler = next(iter(ids), 0)
    return torch.tensor([tokens.get(token, filler) for token in task.vocabulary])


def output_ids_of(
    n_out: int, d_vocab: int, task: Task, token_ids: Tensor | None, outputs: Mapping[str, int] | None
) -> Tensor | None:
    """Return the model's output for each of the task's output indices, or None if they are the same."""
    words = task.answer_words
    if outputs is not None:
        _check_names(task, "answer", "output", outputs, words, n_out)
        return torch.tensor([outputs[word] for word in words])
    # If the model has one output per answer instead of one per token, the outputs are in the order of the answers.
    of_tokens = n_out == d_vocab and set(words) <= set(task.vocabulary)
    if token_ids is not None and (of_tokens or (words == task.vocabulary and n_out != task.n_out)):
        ids = token_ids[[task.token_id(word) for word in words]]
        _check_ids("token", "outputs", dict(zip(words, ids.tolist())), n_out)
        return ids
    if n_out == task.n_out:
        return None
    if n_out == len(words):
        return torch.arange(n_out)
    if of_tokens:  # answers are tokens, and so are outputs
        return torch.tensor([task.token_id(word) for word in words])
    if n_out == 1 and len(words) == 2:
        raise InterpError(
            f"the model has one output: set n_out = 1 in task {task.name}, and a positive output means {words[1]!r}"
        )
    raise InterpError(
        f"the model has {n_out} outputs, task {task.name} has {len(words)} answers; "
        f"say which is which: outputs={{{words[0]!r}: 0, ...}}"
    )


def _check_names(task: Task, kind: str, number: str, ids: Mapping[str, int], needed: Sequence[str], limit: int) -> None:
    """Raise InterpError unless all needed tokens or answers, and no unknown ones, have each a number of their own."""
    known, called = (task.vocabulary, "tokens") if kind == "token" else (task.answer_words, "outputs")
    for name in ids:
        check_one_of(f"{kind} of task {task.name}", name, known)
    if missing := [name for name in needed if name not in ids]:
        raise InterpError(f"{called} lacks {', '.join(missing)} of task {task.name}")
    _check_ids(kind, f"{number}s", ids, limit)
    if len({ids[name] for name in needed}) < len(needed):
        raise InterpError(f"two {kind}s share an {number}: {dict(ids)}")


def _check_ids(kind: str, what: str, ids: Mapping[str, int], limit: int) -> None:
    for word, number in ids.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < limit:
            raise InterpError(f"{kind} {word!r} has id {number!r}; the model's {what} are 0 to {limit - 1}")
