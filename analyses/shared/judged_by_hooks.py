"""An explanation tried on the model by hooks: each input that a part is said to read, each head's attention, each part
that is said not to be used, and the word for the level.

None of it uses what explain measures: values come from run_with_cache, and go in by hooks of TransformerLens. Of a
program it takes the steps, and runs them.

An *edge* is a claim "this part reads this variable": in the part's input, and nowhere else, what writes the variable
has its value from another row of the same length, or, if rows or positions do not tell it apart, from another position.
For heads, the query's input, the key's and the value's are apart. The edge is false if no answer changes; where the
explanation says that next to none follow from it, if more than a few change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.models.subject import Subject
from interp.programs.explanations import Explanation
from interp.programs.explanations.findings import READOUT
from interp.programs.language import Program
from interp.programs.steps import Head, Step, Sums

Donor: TypeAlias = tuple[Tensor, Tensor]
Hooks: TypeAlias = list[tuple[str, Callable[[Tensor, Any], Tensor]]]
OUT = ("not used", "minor", "stands in")
EVEN = 0.02
"""Largest distance (total variation) of even attention from exactly even."""
ELSEWHERE = 0.1
"""How much of a head's attention may go elsewhere than its table says, unless the sentence says so."""
UNSAID = 0.98
"""Share of the answers that must stay with all but what a part is said to read from another row."""
NEXT_TO_NONE = 0.01
"""Most answers, as a share, that may follow from an input from which next to none are said to follow."""
UNUSED = 0.99
"""Share of the answers that must stay with all parts at their means that are said not to be used."""
SHOWN, LOW = 0.95, 0.9
"""Interchange accuracy that the word "explained" needs, and the lower end of its interval."""
TIED = 1e-6
"""Two sums of a program that are this close, relative to the larger one, are equal: it says no answer then."""
FEW = 35
"""Cases of an interchange below which it says nothing: the interval never begins at LOW then."""


@dataclass(frozen=True)
class Claim:
    """One thing that an explanation says, and what was measured. holds: None if it could not be tried."""

    part: str
    kind: str
    said: str
    measured: float | None
    n: int
    holds: bool | None


@dataclass
class Examined:
    """A model with inputs, what it computes on them, and the values that its places have."""

    subject: Subject
    tokens: Int[Tensor, "rows length"]
    seed: int = 0
    draws: int = 2
    cache: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        batch = self.subject.task.batch(self.tokens)
        self.lengths, self.there = batch.lengths, batch.attention_mask
        self.reads: Bool[Tensor, "rows length"] = self.subject.read_mask(batch)
        self.model = self.subject.model
        with torch.no_grad():
            logits, self.cache = self.model.run_with_cache(self.tokens, return_type="logits")
        self.right = self.decided(logits)
        self.generator = torch.Generator().manual_seed(self.seed)

    # ------------------------------------------------------------ runs

    def decided(self, logits: Tensor) -> Int[Tensor, "reads"]:
        """The answers at the positions that are read: the largest logit, or which logits are positive, packed."""
        out = logits[self.reads][:, : self.subject.task.n_out]
        kind = self.subject.decision.kind
        if kind == "argmax":
            return out.argmax(-1)
        if out.shape[-1] == 1:
            return (out[:, 0] > 0).long()
        return ((out > 0).long() * 2 ** torch.arange(out.shape[-1])).sum(-1)

    def said(self, program: Program, made: dict[str, Tensor]) -> Int[Tensor, "reads"]:
        """A program's answers as those of `decided`: sets by their members, -1 for one that the model never gives."""
        found = program.answer.sums(made)[self.reads].argmax(-1)
        if self.subject.decision.kind != "set":
            return found
        known = {self.subject.task.word(one): one for one in self.right.unique().tolist()}
        return torch.tensor([known.get(word, -1) for word in program.answers])[found]

    def answers(self, hooks: Hooks) -> Int[Tensor, "reads"]:
        with torch.no_grad():
            return self.decided(self.model.run_with_hooks(self.tokens, return_type="logits", fwd_hooks=hooks))

    def changed(self, hooks: Hooks) -> int:
        return int((self.answers(hooks) != self.right).sum())

    def decides(self, program: Program, made: dict[str, Tensor]) -> Bool[Tensor, "reads"]:
        """Where a program says one answer: its largest sum is larger than the next one by more than rounding."""
        sums = program.answer.sums(made)[self.reads].double()
        if sums.shape[-1] < 2:
            return torch.ones(len(sums), dtype=torch.bool)
        first, second = sums.topk(2).values.unbind(-1)
        return first - second > TIED * first.abs().clamp(min=1)

    # ------------------------------------------------------------ donors

    def donors(self) -> list[Donor]:
        """Where values come from, as a row and a position for each place.

        From other positions of the same row; from other rows of the same length; and from rows of any length, where
        these have the position, too, if there are several.
        """
        n, length = self.tokens.shape
        own, at = torch.arange(n)[:, None].expand(n, length), torch.arange(length).expand(n, length)
        any_row = torch.randperm(n, generator=self.generator).roll(1)[:, None]
        alike = torch.arange(n)
        for one in self.lengths.unique():
            some = (self.lengths == one).nonzero()[:, 0]
            some = some[torch.randperm(len(some), generator=self.generator)]
            alike[some] = some.roll(1)
        moved = at.clone()
        for row in range(n):
            some = self.there[row].nonzero()[:, 0]
            moved[row, some] = some[torch.randperm(len(some), generator=self.generator)].roll(1)
        both = self.there & self.there[any_row[:, 0]]
        found = [(own, moved), (alike[:, None].expand(n, length), at)]
        return found if len(self.lengths.unique()) == 1 else [*found, (torch.where(both, any_row, own), at)]

    def scrambled(self, content: bool = False) -> Donor:
        """Each position from a position of any row, drawn for itself; content: only content, and from content."""
        where = self.there & (self.content if content else self.there)
        rows, at = where.nonzero(as_tuple=True)
        order = torch.randperm(len(rows), generator=self.generator)
        n, length = self.tokens.shape
        found = torch.arange(n)[:, None].repeat(1, length), torch.arange(length).repeat(n, 1)
        found[0][where], found[1][where] = rows[order], at[order]
        return found

    @cached_property
    def content(self) -> Bool[Tensor, "rows length"]:
        """Where tokens are no marks."""
        content = getattr(self.subject.task, "content", range(len(self.subject.task.vocabulary)))
        ids = [self.subject.task.token_id(one) if isinstance(one, str) else one for one in content]
        return torch.isin(self.tokens, torch.tensor(ids)) & self.there

    # ------------------------------------------------------------ what writes and what reads

    def written(self, source: str) -> Float[Tensor, "rows length d"]:
        """What a source adds to the stream."""
        if source == "token":
            return self.cache["hook_embed"]
        if source == "position":
            return self.cache["hook_pos_embed"]
        kind, _, at = source.partition(" ")
        if kind == "MLP":
            return self.cache[f"blocks.{at}.hook_mlp_out"]
        layer, head = at.split(".")
        return (
            self.cache[f"blocks.{layer}.attn.hook_z"][:, :, int(head)]
            @ self.model.blocks[int(layer)].attn.W_O[int(head)]
        )

    def sources(self, part: str) -> list[str]:
        """All that writes to the stream before a part ("output": the readout)."""
        model, layers = self.model, len(self.model.blocks)
        layer, mlp = (
            (layers, True) if part == "output" else (int(part.split()[1].split(".")[0]), part.startswith("MLP"))
        )
        found = ["token"] + ["position"] * ("hook_pos_embed" in self.cache)
        for at in range(min(layer + 1, layers)):
            if at < layer or mlp:
                found += [f"head {at}.{head}" for head in range(model.blocks[at].attn.W_O.shape[0])]
            if at < layer and f"blocks.{at}.hook_mlp_out" in self.cache:
                found.append(f"MLP {at}")
        return found

    def patched(self, part: str, way: str, stream: Float[Tensor, "rows length d"]) -> Hooks:
        """Hooks that let a part read another stream; way: query, key or value of a head, "in" of an MLP, "all"."""
        layers = len(self.model.blocks)
        if part == "output":
            return [(f"blocks.{layers - 1}.hook_resid_post", lambda value, hook: stream)]
        layer, _, head = part.split()[1].partition(".")
        if not head:
            found = self._recorded(f"blocks.{layer}.hook_resid_mid", stream, f"blocks.{layer}.hook_mlp_out")
            return [(f"blocks.{layer}.hook_mlp_out", lambda value, hook: found)]
        hooks: Hooks = []
        for name in "qkv" if way == "all" else way[0]:
            place = f"blocks.{layer}.attn.hook_{name}"
            found = self._recorded(f"blocks.{layer}.hook_resid_pre", stream, place)
            hooks.append((place, _one_head(found, int(head))))
        return hooks

    def _recorded(self, place: str, stream: Tensor, wanted: str) -> Tensor:
        """What is at `wanted` if `stream` is at `place`."""
        found: list[Tensor] = []

        def record(value: Tensor, hook: Any) -> Tensor:
            found.append(value.detach().clone())
            return value

        with torch.no_grad():
            self.model.run_with_hooks(self.tokens, fwd_hooks=[(place, lambda value, hook: stream), (wanted, record)])
        return found[0]

    def stream(self, part: str) -> Float[Tensor, "rows length d"]:
        """What a part reads, before its norm."""
        if part == "output":
            return self.cache[f"blocks.{len(self.model.blocks) - 1}.hook_resid_post"]
        layer = part.split()[1].split(".")[0]
        return self.cache[f"blocks.{layer}.hook_resid_{'pre' if '.' in part else 'mid'}"]

    # ------------------------------------------------------------ claims

    def edge(self, part: str, way: str, sources: list[str], content: bool = False) -> int:
        """Most answers that change if a part reads what writes a variable from elsewhere.

        content: only content tokens are exchanged, with one another.
        """
        written = torch.stack([self.written(source) for source in sources]).sum(0)
        donors = [self.scrambled(content) for _ in range(self.draws)]
        if not content:
            donors += [donor for _ in range(self.draws) for donor in self.donors()]
        streams = (self.stream(part) - written + written[donor] for donor in donors)
        return max(self.changed(self.patched(part, way, stream)) for stream in streams)

    def unsaid(self, part: str, said: set[str]) -> float:
        """Share of the answers that stay if a part reads all that it is not said to read from other rows."""
        own = self.stream(part)
        others = [source for source in self.sources(part) if source not in said]
        kept = 1.0
        for _ in range(self.draws):
            stream = own.clone()
            for source in others:  # positions change places with other content: elsewhere each has its own meaning
                donor = self.scrambled(content=True) if source == "position" else self.donors()[-1]
                stream += self.written(source)[donor] - self.written(source)
            kept = min(kept, 1 - self.changed(self.patched(part, "all", stream)) / len(self.right))
        return kept

    @cached_property
    def kinds(self) -> Int[Tensor, "rows length"]:
        """Positions by what they are: padding, the read one, marks, content."""
        kind = torch.where(self.content, 0, self.tokens + 2)
        single = self.reads.sum(1).max() == 1
        return torch.where(self.there, torch.where(self.reads & single, 1, kind), -1)

    def at_means(self, parts: list[str]) -> float:
        """Share of the answers that stay with parts at their means over positions of the same kind."""
        hooks: Hooks = []
        for part in parts:
            value = self.cache[place_of(part)[0]].clone()
            for kind in self.kinds.unique():
                value[self.kinds == kind] = value[self.kinds == kind].mean(0)
            hooks.append(put_at(part, value))
        return 1 - self.changed(hooks) / len(self.right)

    def output_moved(self, part: str) -> int:
        """Most answers that change if a part has its value from elsewhere."""
        value, most = self.cache[place_of(part)[0]], 0
        for donor in [self.scrambled(), *(donor for _ in range(self.draws) for donor in self.donors())]:
            most = max(most, self.changed([put_at(part, value[donor])]))
        return most

    def evened(self, head: str, causal: bool) -> int:
        """How many answers change with even attention of a head."""
        layer, index = map(int, head.split()[1].split("."))
        seen = self.there[:, None, :].expand(-1, self.tokens.shape[1], -1)
        seen = seen & torch.ones(seen.shape[1:], dtype=torch.bool).tril() if causal else seen

        def put(pattern: Tensor, hook: Any) -> Tensor:
            new = pattern.clone()
            new[:, index] = seen / seen.sum(-1, keepdim=True).clamp(min=1)
            return new

        return self.changed([(f"blocks.{layer}.attn.hook_pattern", put)])

    def matters(self, part: str) -> Bool[Tensor, "rows length"]:
        """At which positions a head's value from another row would change an answer of the row."""
        value, found = self.cache[place_of(part)[0]], torch.zeros_like(self.there)
        read = self.reads.nonzero()[:, 0]
        for at in range(self.tokens.shape[1]):
            for _ in range(self.draws):
                new = value.clone()
                rows = torch.randperm(len(value), generator=self.generator)
                new[:, at] = value[rows, (self.lengths[rows] * torch.rand(len(value), generator=self.generator)).long()]
                found[read[self.answers([put_at(part, new)]) != self.right], at] = True
        return found & self.there


def place_of(part: str) -> tuple[str, int | None]:
    """The hook at which a part's value is, and the index of a head there."""
    layer, _, head = part.split()[1].partition(".")
    return (f"blocks.{layer}.attn.hook_z", int(head)) if head else (f"blocks.{layer}.hook_mlp_out", None)


def put_at(part: str, value: Tensor) -> tuple[str, Callable[[Tensor, Any], Tensor]]:
    """A hook that gives a part a value: of all heads of its layer, or of its MLP."""
    place, head = place_of(part)
    return (place, _one_head(value, head)) if head is not None else (place, lambda old, hook: value)


def _one_head(found: Tensor, head: int) -> Callable[[Tensor, Any], Tensor]:
    def put(value: Tensor, hook: Any) -> Tensor:
        new = value.clone()
        new[:, :, head] = found[:, :, head]
        return new

    return put


def parts_of(found: Explanation, name: str, own: str = "") -> list[str]:
    """What writes a variable: the token, the position, or parts; own: the part that reads it."""
    if name in ("token", "position"):
        return [name]
    step = found.program.step(name)  # type: ignore[union-attr]
    part = getattr(step, "part", "")
    if part and part != own:
        return [part]
    return list(dict.fromkeys(source for one in step.of for source in parts_of(found, one, own)))


def ways(step: Step) -> list[tuple[str, str]]:
    """The inputs of a step: ("query", "token"), ..."""
    if isinstance(step, Head):
        return [(way, getattr(step, way)) for way in ("query", "key", "value") if getattr(step, way)]
    return [("in", name) for name in step.of]


def examine(found: Explanation, subject: Subject, tokens: Int[Tensor, "rows length"], seed: int = 0) -> list[Claim]:
    """Try all that an explanation says of a model."""
    model = Examined(subject, tokens, seed)
    n, claims = len(model.right), list[Claim]()
    out = [one.part for one in found.parts if one.status in OUT]
    if out:
        kept = model.at_means(out)
        claims.append(Claim(", ".join(out), "not used", "not used", kept, n, kept >= UNUSED))
    if found.program is None:
        return claims
    said = {one.part: one.does for one in found.parts}
    steps = [*found.program.steps, found.program.answer]
    less = {(one.reader, one.way, one.sources) for one in found.less}
    reads: dict[str, set[str]] = {}
    for step in steps:
        part = getattr(step, "part", "") or "output"
        inner = step is not found.program.answer and (part == "output" or ("." in part and not isinstance(step, Head)))
        for way, name in [] if inner else ways(step):
            sources = parts_of(found, name, part)
            reads.setdefault(part, set()).update(sources)
            if not sources:
                continue
            changed = model.edge(part, way, sources)
            what = f"{name} [{', '.join(sources)}]"
            if (READOUT if part == "output" else part, way, tuple(sources)) in less:
                rare = changed / n <= NEXT_TO_NONE
                claims.append(Claim(part, f"reads for next to no answer ({way})", what, changed / n, n, rare))
                continue
            claims.append(Claim(part, f"reads ({way})", what, changed / n, n, changed > 0))
            if name == "token" and finer(model, found, step, way, said.get(part, "")):
                changed = model.edge(part, way, sources, content=True)
                claims.append(Claim(part, f"reads ({way})", "more than which mark", changed / n, n, changed > 0))
    copies = {one.part: one.like for one in found.parts if one.like}
    for part, sources in reads.items():
        also = {copy for copy, like in copies.items() if like in sources}
        kept = model.unsaid(part, sources | also)
        claims.append(Claim(part, "reads nothing else", ", ".join(sorted(sources)), kept, n, kept >= UNSAID))
    for step in found.program.steps:
        if not getattr(step, "part", ""):
            continue
        part = step.part
        moved = model.output_moved(part)
        claims.append(Claim(part, "used", "used", moved / n, n, moved > 0))
        if isinstance(step, Head) and not step.total:
            claims += attention(found, model, step, said[part])
    return [*claims, *agreement(found, model), *interchanges(found, model)]


def finer(model: Examined, found: Explanation, step: Step, way: str, said: str) -> bool:
    """Whether a step is said to tell content tokens apart, where there are marks, too."""
    if bool(model.content.equal(model.there)) or "whether" in said or not isinstance(step, Head):
        return False
    if way == "value":
        return True
    table = torch.tensor(step.scores) if way == "query" else torch.tensor(step.scores).T
    return bool((table[model.tokens[model.content].unique()].diff(dim=0) != 0).any())


def attention(found: Explanation, model: Examined, step: Head, said: str) -> list[Claim]:
    """Compare a head's table, and what is said of it, with its pattern, where the head matters."""
    if step.evened:
        changed = model.evened(step.part, found.program.causal)  # type: ignore[union-attr]
        return [Claim(step.part, "even attention changes no answer", said, changed / len(model.right), 1, not changed)]
    where = model.matters(step.part)
    if not bool(where.any()):
        where = model.there
    layer, head = map(int, step.part.split()[1].split("."))
    measured = model.cache[f"blocks.{layer}.attn.hook_pattern"][:, head].double()
    made = found.program.run(model.tokens)  # type: ignore[union-attr]
    seen = model.there[:, None, :].expand(-1, model.tokens.shape[1], -1)
    if found.program.causal:  # type: ignore[union-attr]
        seen = seen & torch.ones(seen.shape[1:], dtype=torch.bool).tril()
    claimed = step.attention(made, seen.double().log())
    apart = float(0.5 * (measured - claimed).abs().sum(-1)[where].mean())
    even = seen.double() / seen.sum(-1, keepdim=True).clamp(min=1)
    flat = float(0.5 * (measured - even).abs().sum(-1)[where].mean())
    n = int(where.sum())
    admits = "goes elsewhere" in said or any(
        one.part == step.part and (one.elsewhere or 0) > 0.05 for one in found.parts
    )
    claims = [Claim(step.part, "attention", said, apart, n, apart <= ELSEWHERE or admits)]
    story = "evenly to all positions" not in said and bool((seen.sum(-1)[where] > 1).any())
    claims.append(Claim(step.part, "even attention", said, flat, n, not (story and flat <= EVEN)))
    return claims


def agreement(found: Explanation, model: Examined) -> list[Claim]:
    """How many of the model's answers the program gives."""
    assert found.program is not None
    given = model.said(found.program, found.program.run(model.tokens))
    share = float((given == model.right).double().mean())
    return [Claim("", "answers", "gives the answers", share, len(given), share >= 0.99)]


def places(found: Explanation) -> list[tuple[str, ...]]:
    """The parts in which each variable lives together."""
    return [one.places for one in found.variables]


def interchanges(found: Explanation, model: Examined) -> list[Claim]:
    """How often the model answers as the program does with a variable's value from another row, in all its places.

    Apart: where the program says that the answer changes, and where it says that it stays. Values from other positions
    of the same row are reported, too, but no claim is judged by them. Where two answers of the program tie, as when a
    head is told to read a position that the row does not have, it says nothing.
    """
    program, claims = found.program, list[Claim]()
    assert program is not None
    made = program.run(model.tokens)
    right = model.said(program, made)
    for parts in places(found):
        names = [step.name for step in program.steps if getattr(step, "part", "") in parts]
        for kind in ("interchange", "interchange of positions"):
            same, cases = {True: 0, False: 0}, {True: 0, False: 0}
            rows = slice(1, None) if kind == "interchange" else slice(1)
            for donor in [one for _ in range(model.draws) for one in model.donors()[rows]]:
                now = model.answers([put_at(one, model.cache[place_of(one)[0]][donor]) for one in parts])
                given = {name: made[name][donor] for name in names}
                new = program.run(model.tokens, given=given)
                said, decides = model.said(program, new), model.decides(program, new)
                for changes in (True, False):
                    here = ((said != right) == changes) & decides
                    same[changes] += int((now == said)[here].sum())
                    cases[changes] += int(here.sum())
            for changes, n in cases.items():
                if n:
                    share = same[changes] / n
                    judged = kind == "interchange" and n >= FEW
                    good = share >= SHOWN and low_end(share, n) >= LOW
                    what = f"{kind} ({'changes' if changes else 'stays'})"
                    claims.append(Claim(", ".join(parts), what, found.level, share, n, good if judged else None))
    return claims


def low_end(share: float, n: int) -> float:
    """Lower end of the 95% Wilson interval."""
    z = 1.96
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    return middle - z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5


def verdict(found: Explanation, claims: list[Claim]) -> str:
    """What an explanation is, and whether it is true; an imitation says that it is not the model's."""
    if found.level != "explained":
        return found.level
    if any(isinstance(step, Sums) for step in found.program.steps):  # type: ignore[union-attr]
        return "smaller network"
    return "explained and true" if all(claim.holds is not False for claim in claims) else "misleading"
