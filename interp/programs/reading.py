"""The state of reading a program out of a model: what is described so far, and the model with that in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import and_

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import linear

from interp.measures.runs import Part
from interp.programs.inputs_tried import InputsTried
from interp.programs.language import Answer, largest, sums_at
from interp.programs.quantize import SHARE_KEPT_BY_VALUES, Quantized, enough_of, quantize
from interp.programs.readers import Readers, runs_before
from interp.programs.relevance import Kinds, needed
from interp.programs.running import Edits, Kept, Running
from interp.programs.steps import Features, Head, Step, codes, visible
from interp.support.cached import cached_method
from interp.tasks import Task

READ = 1e-3
"""Least spread of what a source adds to a head's queries, keys or values, as a share of the largest, that is read."""
MOST_VALUES = 64
"""Most values of a soft head that other steps may look up."""
TRIED = 8
"""Largest number of descriptions of one part that are tried in the running model."""
HARD = 0.99
OF_MEANS = 0.25
"""Answers that change with values of other positions, as a share of those that change with means, below which the means
are what changes them."""


@dataclass(frozen=True)
class Role:
    """What was found about one part.

    status: "explained", "kept" (it matters, and no description takes its place), "minor" (it matters, but for fewer
    answers than the program may get wrong) or "not used". kept: the share of the model's answers that stay with the
    part as described, and earlier ones, too.
    """

    part: str
    status: str
    kept: float | None = None
    note: str = ""


@dataclass(eq=False)
class Reading:
    """The state of reading a program: steps so far, their variables on the batch, and the model with the parts that are
    described replaced."""

    running: Running
    check: Callable[[], None] = lambda: None
    strict: bool = True
    """Whether what does not matter must not matter with the values of other positions either, not only at its mean, and
    whether a head that selects keys must weigh none. Trained models may have a program only without this."""
    finer: bool = False
    """Whether descriptions must keep all answers, not nearly all (parts of little effect may need it), and those of
    MLPs leave out nothing that they read."""
    of_other_rows: bool = False
    """Whether descriptions must give the model's answers with values of other rows, too: in a finer reading after one
    that gives too few answers, or of which a variable is not the model's; see programs.other_rows. Tables of heads must
    only in the strict reading: they may hold together."""
    others: Mapping[Part, Int[Tensor, "rows"]] = field(default_factory=dict)
    """For each part, the row from which each row takes its variable, once it is described; see programs.moved_rows."""
    steps: list[Step] = field(default_factory=list)
    made: Features = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    vectors: dict[str, Tensor] = field(default_factory=dict)
    roles: dict[Part, Role] = field(default_factory=dict)
    matter: list[Part] = field(default_factory=list)
    """The parts that matter, in order of running; heads of one layer by their precedence."""
    without: dict[Part, float] = field(default_factory=dict)
    """The share of answers that stays with this part alone at its mean."""
    moved: dict[Part, float] = field(default_factory=dict)
    """The share that stays with its values at other positions, of a part whose mean changes next to nothing."""
    groups: list[list[Part]] = field(default_factory=list)
    """Parts that stand in for each other; see `relevance.stand_ins`."""
    pairs: list[tuple[Part, Part]] = field(default_factory=list)
    """Parts that cancel; see `relevance.cancelling`."""
    alike: dict[str, str] = field(default_factory=dict)
    """Heads that the readout may read as another one, and which; see `readout.alike`."""
    elsewhere: dict[Part, float] = field(default_factory=dict)
    """How much of a described head's attention in the model is given otherwise."""
    needed: dict[str, Tensor] = field(default_factory=dict)
    """The positions at which each part's output matters."""

    @cached_property
    def kinds(self) -> Kinds:
        return Kinds(self.running.original)

    @cached_property
    def readers(self) -> Readers:
        """Who reads what parts write; asked once it is known which parts matter."""
        return Readers(self.running, self.matter, self.kinds.mean, self.check)

    @cached_property
    def tried(self) -> InputsTried:
        """Which inputs of parts matter, in the model as it is."""
        return InputsTried(self.running.original, self.kinds, self.check)

    @cached_property
    def seen(self) -> Tensor:
        return visible(self.running.weights, self.causal)

    @property
    def causal(self) -> bool:
        return self.running.subject.model.cfg.attention_dir == "causal"

    @property
    def task(self) -> Task:
        return self.running.subject.task

    def step(self, name: str) -> Step | None:
        """The step that makes a variable; None for the token, the position, and parts without description."""
        return next((step for step in self.steps if step.name == name), None)

    def values(self, name: str) -> tuple[str, ...]:
        """The values of a variable, in words."""
        if name in ("token", "position"):
            return tuple(self.task.vocabulary) if name == "token" else tuple(map(str, range(self.made[name].shape[-1])))
        step = self.step(name)
        if isinstance(step, Head):
            return self.values(step.value)
        return tuple(map(str, range(self.made[name].shape[-1]))) if step is None else tuple(step.values)

    @property
    def cyclic(self) -> bool:
        """Whether addition modulo a number acts on tokens: then they are numbers on a circle, and no classes."""
        return bool(self.task.cyclic)

    def before(self, name: str, part: Part | None) -> bool:
        """Whether a variable exists when a part runs (None: the readout)."""
        writers = self.writers(name)
        if "position" in writers and self.running.counts is not None:
            return False
        parts = (self.running.by_name[writer] for writer in writers - {"token", "position"})
        return all(part is None or runs_before(writer, part) for writer in parts)

    def codes(self, mask: Tensor | None = None, part: Part | None = None) -> dict[str, tuple[Tensor, int]]:
        """The variables that have one value at each position when a part runs: the value, and how many there are.

        Positions at which the variable's own part does not matter are left out of account.
        """
        where = self.running.mask if mask is None else mask
        known = [name for name in self.made if self.before(name, part) and self.has_code(name, where)]
        codes = {name: self._divided(name)[1] for name in known}
        return {name: (code if mask is None else code[mask], self.made[name].shape[-1]) for name, code in codes.items()}

    def has_code(self, name: str, where: Tensor) -> bool:
        """Whether a variable has one value at each of these positions, as far as its own part matters there."""
        return float(self._divided(name)[0][self.matters(name) & where].double().mean()) > 0.999

    def _divided(self, name: str) -> tuple[Tensor, Tensor]:
        """Where a variable has one value, and its largest value everywhere."""
        weights = self.made[name]
        if (known := self._known.get(name)) is None or known[0] is not weights:
            single = (weights.amax(-1) > HARD) & (weights.sum(-1) < 2 - HARD)
            self._known[name] = known = (weights, single, weights.argmax(-1))
        return known[1:]

    @cached_property
    def _known(self) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        return {}

    def of_part(self, source: str) -> list[str]:
        """The variables that a part makes; of the token and the position, these themselves."""
        named = {step.name: step.part for step in self.steps if step.part}
        return [name for name in self.made if named.get(name, name) == source]

    def matters(self, name: str) -> Tensor:
        """The positions at which a variable matters, as far as its own part is concerned."""
        everywhere = self.running.mask
        return reduce(and_, (self.needed.get(writer, everywhere) for writer in self.writers(name)), everywhere)

    def explain(
        self, part: Part, found: Quantized, steps: Sequence[Step], vectors: Tensor, value: Tensor, enough: float,
        note: str = "",
    ) -> bool:  # fmt: skip
        """Let steps take a part's place, of which the last makes its variable; False if too few of the answers stay.

        vectors: what the part gives for each value of the variable. value: what it gives at each position. Where the
        part does not matter, it gets its mean only if the steps give too few of the answers there.
        """
        name = str(part)
        for new in (value, self.spread(found, value)):
            if (share := self.stays(part, new)) >= enough:
                self.put({part: new})
                self.made[name], self.vectors[name] = self.variable(*steps), vectors
                self.steps += [step for step in steps if self.step(step.name) is None]
                self.roles[part] = Role(name, "explained", share, note)
                self.move(part)
                return True
        return False

    def move(self, part: Part) -> None:
        """From here on, some rows take a part's variable from another row; not those that are then `undecided`."""
        rows, before = self.others.get(part), self.running
        if rows is None or before.moved is None:
            return
        value, numbers = before.value(part), torch.arange(len(rows))
        undecided = before.undecided(before.after({part: value[rows]}).logits)
        if len(odd := before.reads.rows[undecided]):
            rows = rows.index_copy(0, odd, odd)
        self.made = self.remade({name: self.made[name][rows] for name in self.of_part(str(part))})
        self.put({part: value[rows]})
        changed = (rows != numbers)[before.reads.rows]
        answers = torch.where(changed, before.decided(self.running.logits), before.answers)
        self.running = replace(self.running, moved=replace(before.moved, answers=answers))

    def put(self, edits: Edits) -> None:
        """Parts are replaced from here on."""
        self.running = self.running.after(edits)

    def enough(self) -> float:
        """The share of answers that the next description must keep."""
        return enough_of(self.running.kept({}).share, self.finer)

    @cached_method
    def low(self, part: Part) -> Tensor:
        """What later parts read of a part's value; of later MLPs, those that its direct path matters to."""
        return self.readers.of(part, self.read_by(part))

    def read_by(self, part: Part) -> list[Part]:
        """The parts that may read a part: of later MLPs, those that its direct path matters to."""
        return [reader for reader in self.matter if reader.head is not None or self.reaches(part, reader)]

    def reaches(self, part: Part, mlp: Part) -> bool:
        """Whether the direct path from a part to a later MLP matters, at its mean or with values of other positions."""
        running = self.running
        if mlp.layer < part.layer or mlp == part or not running.paths:
            return mlp.layer > part.layer
        written, base = running.written(part), running.kept({}).share
        changes = (new(written) - written for new in (self.kinds.mean, self.kinds.shuffled))
        return any(self.stays(mlp, running.mlp_on(mlp.layer, {str(part): change})) < base for change in changes)

    def quantized(self, part: Part, apart: bool = False) -> Quantized:
        """The values of a part. apart: values stay apart that differ for any neuron, whether or not it matters."""
        low = replace(self.readers, every=True).of(part, self.read_by(part)) if apart else self.low(part)
        quantized = quantize(self.running, self.kinds, part, low, self.strict, self.finer)
        self.needed[str(part)] = quantized.needed
        return quantized

    def left(self, out: Iterable[Part], moved: bool = False) -> float:
        """The share of answers that stays with these parts at their means, and all others as in the model.

        moved: with their values at other positions of the same kind instead.
        """
        self.check()
        whole = self.running.original
        new = {part: self.kinds.shuffled(whole.value(part)) if moved else self.kinds.means(part) for part in out}
        return whole.kept(new).share

    @cached_method
    def left_without(self, *out: Part) -> float:
        """The share of answers that stays without parts: at their means, unless it is these, which no input has, that
        change answers, and next to none change with values of other positions; then with those."""
        at_means = self.left(out)
        if at_means >= SHARE_KEPT_BY_VALUES:
            return at_means
        moved = self.left(out, moved=True)
        return moved if 1 - moved < OF_MEANS * (1 - at_means) else at_means

    @cached_method
    def left_when_moved(self, part: Part) -> float:
        """The share of answers that stays with a part's values at other positions of the same kind."""
        return self.left([part], moved=True)

    @cached_method
    def precedence(self, part: Part) -> tuple[float, float]:
        """What parts are ordered by, those that matter most first, whatever their numbers: the share of answers that
        stays without a part, and how much of what it writes varies, negative."""
        whole = self.running.original
        written = whole.written(part)[whole.mask]
        return self.without[part], -round(float((written - written.mean(0)).norm()), 3)

    def in_place(self, part: Part, other: str) -> Tensor:
        """The value of a head if its variable were that of another one."""
        return (self.made[other] @ self.vectors[str(part)].to(self.made[other])).float()

    def read_as(self, other: str) -> float:
        """The share of answers that stays, in the model, with a head's variable in all heads that are read as it."""
        heads = [part for part in self.matter if self.alike.get(str(part)) == other]
        return self.running.original.kept({part: self.in_place(part, other) for part in heads}).share

    def stays(self, part: Part, value: Tensor) -> float:
        return self.kept({part: value}).share

    def kept(self, edits: Edits) -> Kept:
        self.check()
        return self.running.kept(edits)

    def sources(self, reader: Part | None) -> dict[str, Tensor]:
        """What reaches a part's input (or the readout, None), by the name of its variable: what each source adds."""
        before = (part for part in self.matter if reader is None or runs_before(part, reader))
        return {**self.running.embedded, **{str(part): self.running.written(part) for part in before}}

    def edges(self, layer: int | None, shuffled: bool = False) -> list[str] | None:
        """The sources whose direct path to an MLP (or to the readout) matters; None where paths are no sum.

        shuffled: paths matter that cannot carry the values of other positions instead, not only those that cannot carry
        the mean.
        """
        running = self.running
        if not running.paths:
            return None
        other = self.kinds.shuffled if shuffled else self.kinds.mean

        def moved(value: Tensor) -> Tensor:
            change = other(value) - value
            return running.reads.pick(change) if layer is None else change

        change = {name: moved(value) for name, value in running.embedded.items()}
        before = [part for part in self.matter if layer is None or runs_before(part, Part(layer))]
        change |= {str(part): running.writes(part, moved(running.value(part))) for part in before}

        def kept(out: Sequence[str]) -> Kept:
            self.check()
            changed = {name: change[name] for name in out}
            if layer is None:
                return Kept.of(running.read_out(changed), running.answers)
            return running.kept({Part(layer): running.mlp_on(layer, changed)})

        return needed(list(change), kept)

    def read(self, part: Part) -> tuple[list[str] | None, ...]:
        """The sources that a head's queries, keys and values read, by how much what they add varies."""
        if not self.running.paths:
            return None, None, None
        attn = self.running.blocks[part.layer].attn
        added = {name: value[self.running.mask] for name, value in self.sources(part).items()}
        unseen = [] if "position" in added else ["position"]  # a model may add positions to scores, not to values
        sides: list[list[str] | None] = []
        for side, weights in (("query", attn.W_Q), ("key", attn.W_K), ("value", attn.W_V)):
            seen = weights[part.head].detach().float().cpu().T.contiguous()  # a transposed matrix is slow
            spread = {name: float(linear(value, seen).std(0).norm()) for name, value in added.items()}
            read = [name for name, size in spread.items() if size >= READ * max(spread.values())]
            sides.append(read if side == "value" else [*unseen, *read])
        return tuple(sides)

    def allowed(self, name: str, sources: Sequence[str] | None) -> bool:
        """Whether a variable may be read where only some sources matter."""
        return sources is None or self.writers(name) <= {*sources}

    def writers(self, name: str) -> set[str]:
        """What writes a variable: the token, the position, or parts."""
        step = self.step(name)
        if step is None or step.part:
            return {name if step is None else step.part}
        return set[str]().union(*map(self.writers, step.of))

    def holds_tokens(self, name: str) -> bool:
        """Whether the values of a variable are tokens."""
        step = self.step(name)
        return name == "token" if step is None else isinstance(step, Head) and self.holds_tokens(step.value)

    def whole(self, of: Sequence[str], sources: Sequence[str] | None) -> bool:
        """Whether variables cover all sources that matter."""
        if sources is None:
            return True
        covered = {*of}
        for step in filter(None, map(self.step, of)):
            covered |= {step.part} if step.part else {*step.of}
        return covered >= {*sources}

    def after(self, steps: Sequence[Step]) -> Features:
        """The variables with those that further steps make."""
        made = dict(self.made)
        for step in steps:
            made[step.name] = step.applied(made, self.seen)
        return made

    def remade(self, given: Features) -> Features:
        """The variables with some of them given; those that are computed of them, without a part, follow."""
        made = {**self.made, **given}
        for step in self.steps:
            if not step.part and step.name in self.made:
                made[step.name] = step.applied(made, self.seen)
        return made

    def variable(self, *steps: Step) -> Tensor:
        """The variable that the last of these steps makes."""
        return self.after(steps)[steps[-1].name]

    def answered(self, answer: Answer, steps: Sequence[Step] = ()) -> Kept:
        """How many of the model's answers a readout gives, with steps before it; sums that tie give none."""
        answers = largest(sums_at(answer, self.after(steps), self.running.reads))
        return Kept.of(answers, self.running.answers)

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.made[step.name] = self.variable(step)

    def spread(self, found: Quantized, value: Tensor) -> Tensor:
        return torch.where(found.needed[..., None], value, found.elsewhere)

    def code(self, step: Step) -> Tensor:
        """The value that a step gives at each position."""
        return self.variable(step).argmax(-1)

    def minor(self, part: Part, found: Quantized) -> None:
        self.put({part: found.put()})
        self.roles[part] = Role(str(part), "minor", kept=found.share)

    def keep(self, part: Part, found: Quantized, why: str) -> None:
        """A part without description keeps its own values; others may still be described by them."""
        name = str(part)
        self.roles[part] = Role(name, "kept", note=why)
        if found.size <= MOST_VALUES:
            self.made[name] = codes(found.code.clamp(min=0), found.size)
            self.given.add(name)


def matrix(table: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())


def regressed(numbers: Float[Tensor, "points n"], target: Float[Tensor, "points d"]) -> tuple[Tensor, Tensor]:
    """The vectors of numbers, and the constant, whose sum is nearest to the target."""
    points = torch.cat([numbers, torch.ones(len(numbers), 1).double()], 1)
    solution = torch.linalg.lstsq(points, target, driver="gelsd").solution
    return solution[:-1], solution[-1]
