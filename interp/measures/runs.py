"""Running a model under study in pieces of bounded memory: its reads, its parts, and scores of its outputs.

A *read* is one output that the task asks for: one per row if answers are read at one position, or one per row and
labeled position if they are read at all positions. A *part* is a head or an MLP. Its value is hook_z of the head, or
hook_mlp_out, and hooks can replace it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError, check_one_of, one_of, short
from interp.measures.results import reduced, reduces
from interp.models.architecture.answers import Decision, correct, losses
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Subject, budget, norm_follows_attention
from interp.tasks import Batch, Task
from interp.tasks.batch import Reads
from interp.tasks.populations import Cost
from interp.tasks.scores import Score

Hook = tuple[str, Callable[..., Any]]

FITTED, MADE = 300_000, 500
"""Operations for each read to which a separator is fitted, and for each token of a sample, which is drawn."""
STORED = 16
"""Operations for each stored number, of which a core writes fewer per second than it multiplies."""

# ---------------------------------------------------------------- reads


def reads_of(subject: Subject, batch: Batch) -> Reads:
    """Return the reads of a batch, in order of rows and positions."""

    def made() -> Reads:
        rows, positions = subject.read_mask(batch).cpu().nonzero(as_tuple=True)
        return Reads(rows, positions, subject.classes(batch).cpu())

    return subject.shared("reads", batch, made)


def check_reads(subject: Subject, batch: Batch) -> Reads:
    """Return the reads of a batch. Raises InterpError if there are none."""
    if not len(reads := reads_of(subject, batch)):
        raise InterpError(nothing(subject.task))
    return reads


def check_answers(subject: Subject, classes: Int[Tensor, "reads"]) -> None:
    """Raise InterpError if all reads have one right answer, so that no separator can be fitted to them or judged."""
    if len(only := classes.unique()) == 1:
        word = short(subject.task.word(int(only)))
        raise InterpError(f"the labels hold one class only ({word!r}); there is nothing to separate")


def nothing(task: Task) -> str:
    """Say that inputs have no reads, and how a row has some if answers are generated."""
    example = task.example if task.generates is not None else None
    shown = ""
    if example is not None:
        text = task.format(example.tokens[0, : int(example.lengths[0])])
        shown = f"; write answers out, as in {short(text)!r}"
    return f"no position of these inputs has an answer of task {task.name}, so there is nothing to measure{shown}"


# ---------------------------------------------------------------- running


def pieces(subject: Subject, batch: Batch, kept: int = 0) -> Iterator[tuple[slice, Batch]]:
    """Split a batch into slices whose forward pass fits the subject's memory budget, with at least one row each.

    Yields each slice and its rows, without the columns that are padding in all of them. kept: additional numbers per
    position that the caller stores.
    """
    subject.check(batch)
    cfg, length = subject.model.cfg, batch.tokens.shape[1]
    per_position = 2 * cfg.n_heads * length + 10 * cfg.d_model + 3 * (cfg.d_mlp or 0) + 2 * cfg.d_vocab_out
    size = max(1, budget(subject.model) // (cfg.dtype.itemsize * length * (per_position + kept)))
    for start in range(0, len(batch), size):
        here = slice(start, min(start + size, len(batch)))
        yield here, subject.trimmed(batch[here])


def operations(subject: Subject, length: int) -> int:
    """Count the operations of one forward pass of one input with hooks, roughly, from the model's sizes.

    These are its multiplications, and STORED for each number that it stores: small models spend most time on these.
    """
    cfg = subject.model.cfg
    heads, mlp = cfg.n_layers * cfg.n_heads, cfg.n_layers * (cfg.d_mlp or 0)
    weights = sum(weight.numel() for name, weight in subject.model.named_parameters() if "embed.W_" not in name)
    weights += subject.model.cfg.d_model * cfg.d_vocab_out
    stored = 2 * heads * length + 4 * heads * cfg.d_head + 6 * cfg.n_layers * cfg.d_model + 2 * mlp + cfg.d_vocab_out
    return length * (weights + 2 * heads * length * cfg.d_head + STORED * stored)


def work_of(subject: Subject, passes: float | int = 1, fits: int = 0, whole: bool = False) -> Cost:
    """Return the operations of some work on one input of a length: forward passes, and separators fitted to its reads.

    whole: whether whole inputs run even if distinct tokens would do.
    """
    short = reduces(subject) and not whole

    def cost(length: int) -> float | int:
        reads = length if subject.read_at == "all" else 1
        one_pass = operations(subject, min(length, subject.task.d_vocab) if short else length)
        return passes * one_pass + MADE * length + fits * reads * FITTED

    return cost


def forward(
    subject: Subject, batch: Batch, hooks: Sequence[Hook] = (), differentiable: bool = False
) -> Float[Tensor, "rows length n_out"]:
    """Return the outputs at all positions, in the task's order. Runs the whole batch at once."""
    tokens = subject.inputs(batch.tokens).to(subject.model.cfg.device)
    with subject.masked(batch), torch.set_grad_enabled(differentiable):
        return subject.columns(subject.model.run_with_hooks(tokens, fwd_hooks=[*hooks]))


def writes(subject: Subject, part: Part, seen: Mapping[str, Tensor]) -> Float[Tensor, "*rows d_model"]:
    """Return what a head or an MLP adds to the residual stream, without attention biases, from activations."""
    value = part.get(seen[part.hook])
    return value if part.head is None else value @ subject.model.blocks[part.layer].attn.W_O[part.head].to(value)


def not_summed(subject: Subject) -> str | None:
    """Return the reason why the input of a part is not the sum of what earlier parts wrote, or None."""
    cfg = subject.model.cfg
    if isinstance(subject.model, TaskModel) and not subject.model.spec.additive_residual:
        return "after post-layer-norm, a part's input is not a sum of what other parts wrote"
    if norm_follows_attention(subject.model):
        return "if a norm follows the attention, what a head writes is not a linear map of its output"
    if getattr(cfg, "parallel_attn_mlp", False):
        return "edges need blocks whose MLP reads the attention output, not parallel ones"
    if cfg.positional_embedding_type == "shortformer":
        return "shortformer adds positions to what queries and keys read, beside the residual stream"
    return None


@torch.no_grad()
def read_out(subject: Subject, stream: Float[Tensor, "reads d_model"]) -> Float[Tensor, "reads n_out"]:
    """Return the outputs, in the task's order, for the residual stream after the last layer."""
    return subject.columns(subject.model(stream[:, None], start_at_layer=subject.model.cfg.n_layers))[:, 0]


def activations(
    subject: Subject, batch: Batch, names: Sequence[str], hooks: Sequence[Hook] = ()
) -> tuple[Float[Tensor, "rows length n_out"], dict[str, Tensor]]:
    """Return the outputs for one piece, and the activations at the named hook points after applying `hooks`."""
    seen: dict[str, Tensor] = {}

    def keep(activation: Tensor, hook: Any) -> None:
        seen[hook.name] = activation.detach()

    return forward(subject, batch, [*hooks, *((name, keep) for name in names)]), seen


def gradients(
    subject: Subject, batch: Batch, names: Sequence[str], score: Callable[[Float[Tensor, "rows length n_out"]], Tensor]
) -> dict[str, Tensor]:
    """Return the gradients of a number, computed from the outputs of one piece, with respect to named activations."""
    seen: dict[str, Tensor] = {}
    start = stream_hook(subject, 0)

    def keep(activation: Tensor, hook: Any) -> Tensor:
        if hook.name == start:  # so that weights need no gradients
            activation = activation.detach().requires_grad_()
        seen[hook.name] = activation
        return activation

    out = forward(subject, batch, [(name, keep) for name in dict.fromkeys([start, *names])], differentiable=True)
    with torch.enable_grad():
        total = score(out)
    if not total.requires_grad:
        raise InterpError('the metric has no gradient, which attribution needs; use method="exact"')
    slopes = torch.autograd.grad(total, [seen[name] for name in names], allow_unused=True)
    return {name: seen[name] * 0 if slope is None else slope for name, slope in zip(names, slopes)}


def at_reads(subject: Subject, batch: Batch, names: Sequence[str], where: Reads | None = None) -> dict[str, Tensor]:
    """Return activations of the named hook points at the reads of a batch (or at `where`), (reads, ...), in float64."""
    reads = reads_of(subject, batch)
    if where is None or torch.equal(where.positions, reads.positions):
        batch = reduced(subject, batch)
        where = reads_of(subject, batch)
    by_name: dict[str, list[Tensor]] = {name: [] for name in names}
    for here, piece in pieces(subject, batch):
        _, seen = activations(subject, piece, names)
        inside = (where.rows >= here.start) & (where.rows < here.stop)
        rows, positions = where.rows[inside] - here.start, where.positions[inside]
        for name in names:
            by_name[name].append(seen[name].cpu()[rows, positions].double())
    if not len(where):
        raise InterpError(nothing(subject.task))
    return {name: torch.cat(parts) for name, parts in by_name.items()}


# ---------------------------------------------------------------- scores


@dataclass(frozen=True)
class ScoreWithLoss(Score):
    """How many reads are right, and the sum of their losses in nats (NaN if the decision is an indicator).

    Scores of disjoint reads add up: ScoreWithLoss() is that of none.
    """

    n: int = 0
    right: int | float = 0
    rows: int = 0
    total_loss: float = 0.0

    @classmethod
    def of(
        cls, outputs: Float[Tensor, "reads n_out"], classes: Int[Tensor, "reads"], decision: Decision, rows: int
    ) -> ScoreWithLoss:
        """Score the outputs at some reads. rows: the number of inputs that they belong to."""
        outputs = outputs.double().cpu()
        lost = losses(outputs, classes, decision)
        right = int(correct(outputs, classes, decision).sum())
        return cls(len(classes), right, rows, total_loss=math.nan if lost is None else float(lost.sum()))

    @classmethod
    def of_reads(cls, subject: Subject, where: Reads, outputs: Float[Tensor, "reads n_out"]) -> ScoreWithLoss:
        """Score a subject's outputs at the reads of a batch."""
        return cls.of(outputs, where.classes, subject.decision, len(where.rows.unique()))

    @property
    def loss(self) -> float:
        """Mean loss in nats; NaN if there is none."""
        return self.total_loss / self.n if self.n else math.nan

    def __add__(self, other: ScoreWithLoss) -> ScoreWithLoss:
        return ScoreWithLoss(
            self.n + other.n, self.right + other.right, self.rows + other.rows, self.exact and other.exact,
            self.total_loss + other.total_loss,
        )  # fmt: skip

    @staticmethod
    def table(scores: Mapping[str, ScoreWithLoss]) -> pd.DataFrame:
        """Return one row per score; columns what, accuracy, loss."""
        rows = [(name, score.accuracy, score.loss) for name, score in scores.items()]
        return pd.DataFrame(rows, columns=["what", "accuracy", "loss"])


# ---------------------------------------------------------------- parts


@dataclass(frozen=True, order=True)
class Part:
    """A head, or an MLP (then head is None)."""

    layer: int
    head: int | None = None

    @property
    def kind(self) -> Literal["head", "MLP"]:
        return "MLP" if self.head is None else "head"

    @property
    def hook(self) -> str:
        return f"blocks.{self.layer}." + ("hook_mlp_out" if self.head is None else "attn.hook_z")

    def get(self, activation: Tensor) -> Tensor:
        """Return the part's value in an activation of its hook: (*rows, d)."""
        return activation if self.head is None else activation[..., self.head, :]

    def __str__(self) -> str:
        return f"MLP {self.layer}" if self.head is None else f"head {self.layer}.{self.head}"


@dataclass(frozen=True)
class Neuron:
    """A neuron of a layer's MLP, or of the readout (layer None)."""

    layer: int | None
    index: int

    @property
    def hook(self) -> str:
        return "unembed.hook_post" if self.layer is None else f"blocks.{self.layer}.mlp.hook_post"

    def get(self, activation: Tensor) -> Tensor:
        """Return the neuron's value in an activation of its hook: (rows, length, 1)."""
        return activation[..., self.index, None]

    def __str__(self) -> str:
        return f"neuron readout.{self.index}" if self.layer is None else f"neuron {self.layer}.{self.index}"


What = Literal["q", "k", "v", "pattern"]


@dataclass(frozen=True, order=True)
class Site:
    """What a head makes on its way to its output: its queries, keys, values or attention pattern."""

    layer: int
    head: int
    what: What

    @property
    def hook(self) -> str:
        return f"blocks.{self.layer}.attn.hook_{self.what}"

    def get(self, activation: Tensor) -> Tensor:
        """Return the site's value in an activation of its hook: (rows, length, d); d are the keys of a pattern."""
        return activation[:, self.head] if self.what == "pattern" else activation[:, :, self.head]

    def __str__(self) -> str:
        return f"{self.what} of head {self.layer}.{self.head}"


def heads_of(subject: Subject) -> list[Part]:
    """Return all heads; head h of layer l has index l * n_heads + h."""
    return [
        Part(layer, head) for layer, block in enumerate(subject.model.blocks) for head in range(len(block.attn.W_O))
    ]


def sites_of(subject: Subject) -> list[Site]:
    """Return what every head makes before its output; heads that share keys and values have one such site."""
    sites = []
    for part in heads_of(subject):
        attn: Any = subject.model.blocks[part.layer].attn
        shared = len(getattr(attn, "_W_K", attn.W_K))
        head = part.head or 0
        kinds = get_args(What) if head < shared else ("q", "pattern")
        sites += [Site(part.layer, head, what) for what in kinds]
    return sites


def head_named(subject: Subject, head: Any) -> Part:
    """Return the head with a given number (l * n_heads + h) or name ("1.0", "head 1.0" or "L1H0"), or the given Part.

    Raises InterpError for anything else. A tuple of numbers is a group of heads, so (1, 0) is not head 1.0.
    """
    known = heads_of(subject)
    if isinstance(head, Part) and head in known:
        return head
    if isinstance(head, Integral) and not isinstance(head, bool) and 0 <= int(head) < len(known):
        return known[int(head)]
    for part in known:
        if isinstance(head, str) and head in (str(part), f"{part.layer}.{part.head}", f"L{part.layer}H{part.head}"):
            return part
    if isinstance(head, tuple) and len(head) == 2 and Part(*head) in known:
        part = Part(*head)
        raise InterpError(f"{head} is a group of two heads; head {part.layer}.{part.head} is '{part}' or its number, "
                          f"{known.index(part)}")  # fmt: skip
    raise InterpError(one_of("head", head, known))


def numbered(subject: Subject, groups: Any, heads: Sequence[Part]) -> Any:
    """Replace names of heads in groups by their numbers in `heads`; a name alone is a group of one head.

    select_groups checks everything else.
    """
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        return groups

    def number(head: Any) -> Any:
        if not isinstance(head, str | Part):
            return head
        return heads.index(check_one_of("head of this layer", head_named(subject, head), heads))

    groups = [(group,) if isinstance(group, str | Part) else group for group in groups]
    return [tuple(map(number, group)) if isinstance(group, tuple | list) else group for group in groups]


def part_named(subject: Subject, name: Any) -> Part | Neuron:
    """Return the head, MLP or neuron with a name: "head 0.3", "0.3" or "L0H3" (or its number), "MLP 1", "neuron 1.7".

    Raises InterpError for a part that the model does not have.
    """
    if isinstance(name, str) and (match := re.fullmatch(r"neuron (\d+|readout)\.(\d+)", name)):
        layer, index = None if match[1] == "readout" else int(match[1]), int(match[2])
        known = neuron_layers(subject)
        if layer not in known:
            layers = ["readout" if number is None else number for number in known]
            raise InterpError(one_of("layer of neurons", match[1], layers))
        if index >= (width := int(known[layer].W_out.shape[0])):
            raise InterpError(f"{name} does not exist: its layer has neurons 0 to {width - 1}")
        return Neuron(layer, index)
    for part in mlps_of(subject):
        if name in (part, str(part)):
            return part
    if isinstance(name, str) and not re.fullmatch(r"(head )?\d+\.\d+|L\d+H\d+", name):
        if name.startswith("MLP") and not mlps_of(subject):
            raise InterpError(f"there is no {name}: this model has no MLPs")
        raise InterpError(
            one_of("part", name, [*parts_of(subject), *(["neuron 0.0"] if neuron_layers(subject) else [])])
        )
    return head_named(subject, name)


def neuron_layers(subject: Subject) -> dict[int | None, Any]:
    """Return the modules with neurons by layer; the key None is for a readout with neurons."""
    hooks = subject.model.hook_dict
    layers: dict[int | None, Any] = {
        i: block.mlp
        for i, block in enumerate(subject.model.blocks)
        if has_mlp(block) and Neuron(i, 0).hook in hooks  # experts have separate neurons
    }
    if "unembed.hook_post" in hooks:
        layers[None] = subject.model.unembed
    return layers


def parts_of(subject: Subject) -> list[Part]:
    """Return all heads and MLPs in the order of computation."""
    parts = [*heads_of(subject), *mlps_of(subject)]
    return sorted(parts, key=lambda part: (part.layer, part.head is None, part.head or 0))


def stream_hook(subject: Subject, layer: int) -> str:
    """Return the hook point of the residual stream before a layer; with layer = n_layers, after the last one."""
    last = subject.model.cfg.n_layers
    return f"blocks.{last - 1}.hook_resid_post" if layer == last else f"blocks.{layer}.hook_resid_pre"


def stream_name(layer: int, n_layers: int) -> str:
    """Return the words for the residual stream at `stream_hook`."""
    return f"after layer {layer - 1}" if layer == n_layers else f"before layer {layer}"


def mlps_of(subject: Subject) -> list[Part]:
    """Return all MLPs."""
    return [Part(layer) for layer, block in enumerate(subject.model.blocks) if has_mlp(block)]


def has_mlp(block: Any) -> bool:
    """Test whether a block has an MLP with parameters; a task model's block may have an empty placeholder."""
    return hasattr(block, "mlp") and any(True for _ in block.mlp.parameters())


# ---------------------------------------------------------------- edits


@dataclass(frozen=True)
class Edit:
    """A replacement of one activation in a forward pass.

    place: a part, a neuron, a site, or the name of a hook point. value: a number or tensor that broadcasts to the
    place's value (rows, length, d). at: a mask (rows, length) of the positions to edit, or one position per row, with
    values (rows, d); default: all positions. add: whether to add the value instead. basis: a matrix (d, k) with
    orthonormal columns, if only the part of the value in their span is replaced.
    """

    place: Part | Neuron | Site | str
    value: Tensor | float
    at: Bool[Tensor, "rows length"] | Int[Tensor, "rows"] | None = None
    add: bool = False
    basis: Float[Tensor, "d k"] | None = None

    @property
    def hook(self) -> str:
        return self.place if isinstance(self.place, str) else self.place.hook

    def apply(self, activation: Tensor) -> None:
        """Edit an activation of the place's hook, in place."""
        mine = activation if isinstance(self.place, str) else self.place.get(activation)
        value = self.value.to(mine) if isinstance(self.value, Tensor) else self.value
        at = slice(None) if self.at is None else self.at.to(mine.device)
        if isinstance(at, Tensor) and at.ndim == 1:
            rows = torch.arange(len(mine), device=mine.device)
            mine[rows, at] = self._new(mine[rows, at], value)
            return
        value = self._new(mine, value)
        mine[:] = torch.where(at[(...,) + (None,) * (mine.ndim - 2)], value, mine) if isinstance(at, Tensor) else value

    def changed(self, activation: Tensor) -> Bool[Tensor, "rows length"]:
        """Return where the edit changes an activation of the place's hook. at: as a mask."""
        mine = activation if isinstance(self.place, str) else self.place.get(activation)
        value = self.value.to(mine) if isinstance(self.value, Tensor) else self.value
        differs = (self._new(mine, value) != mine).flatten(2).any(2)
        return differs if self.at is None else differs & self.at.to(mine.device)

    def _new(self, mine: Tensor, value: Any) -> Any:
        if self.basis is not None:
            basis = self.basis.to(mine)
            return mine + (value - mine) @ basis @ basis.T
        return mine + value if self.add else value


def hooks_of(edits: Iterable[Edit]) -> list[Hook]:
    """Return hooks that make the edits, one per hook point, in the given order."""
    by_hook: dict[str, list[Edit]] = {}
    for edit in edits:
        by_hook.setdefault(edit.hook, []).append(edit)

    def make(edits: list[Edit]) -> Callable[..., Tensor]:
        def put(activation: Tensor, hook: object) -> Tensor:
            changed = activation.clone()
            for edit in edits:
                edit.apply(changed)
            return changed

        return put

    return [(name, make(edits)) for name, edits in by_hook.items()]
