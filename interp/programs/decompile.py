"""Read a program out of a model: what matters, what each part that matters is, and the readout.

Parts are described in the order in which they run; earlier ones are already replaced by their descriptions, and each
description takes the part's place in the running model. What has no description keeps its own values. At last the
program runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import combinations, islice
from operator import and_

import torch
from torch import Tensor

from interp.measures.runs import Part
from interp.programs import maps
from interp.programs.heads import Pattern, Queries, hardened, patterns, soft, values_by, values_of_shares
from interp.programs.language import Features, Head, Linear, Program, Step, Table, applied, codes, linear, visible
from interp.programs.maps import Codes
from interp.programs.quantize import KEPT, Quantized, metric, quantize
from interp.programs.relevance import Kinds, needed, used
from interp.programs.running import Edits, Kept, Running, softmax
from interp.programs.words import same_word
from interp.tasks import Task

TRIED = 8
"""Largest number of descriptions of one part that are tried in the running model."""
CLOSE = 0.05
"""Total variation of a pattern, or share of variance of values that is left out, up to which a description is close."""
EXACT = 1e-3
"""The same of a description that is exact up to rounding; where there is one, no looser one is tried."""
MOST_VALUES = 64
"""Most values of a soft head that other steps may look up."""
SELECTED = 0.01
"""Total variation of a pattern from one without grades, up to which the head selects keys, and weighs none."""
READ = 1e-3
"""Least spread of what a source adds to a head's queries, keys or values, as a share of the largest, that is read."""
FEW = 8
"""Most values of an MLP for which sums of weights are tried that give each of them exactly."""
NEARLY = 0.9995
"""Share of the positions at which such sums must give the value: limits between close sums are fitted."""
HARD = 0.99
ANSWER = 0.998
"""Share of the model's answers that a table of the readout must give."""
MOST_PAIRED, PAIRED = 128, 3


@dataclass(frozen=True)
class Role:
    """What was found about one part.

    status: "explained", "kept" (it matters, and no description takes its place), "minor" (it matters, but for fewer
    answers than the program may get wrong) or "not used". kept: the share of the model's answers that stay with the
    part as described, and earlier ones, too. alone: the share that stays with this part at its mean, and others as
    they are.
    """

    part: str
    status: str
    variable: str = ""
    kept: float | None = None
    alone: float | None = None
    note: str = ""


@dataclass(eq=False)
class Decompiler:
    """The state of reading a program: steps so far, their variables on the batch, and the model with the parts that are
    described replaced."""

    running: Running
    check: Callable[[], None] = lambda: None
    strict: bool = True
    """Whether what does not matter must not matter with the values of other positions either, not only at its mean, and
    whether a head that selects keys must weigh none. Trained models may have a program only without this."""
    steps: list[Step] = field(default_factory=list)
    made: Features = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    vectors: dict[str, Tensor] = field(default_factory=dict)
    roles: dict[Part, Role] = field(default_factory=dict)
    matter: list[Part] = field(default_factory=list)
    """The parts that matter, in order of running."""
    without: Kept | None = None
    """What stays without all other parts."""
    needed: dict[str, Tensor] = field(default_factory=dict)
    """The positions at which each part's output matters."""

    # ------------------------------------------------------------ the batch

    @cached_property
    def kinds(self) -> Kinds:
        return Kinds(self.running)

    @cached_property
    def counts(self) -> Tensor:
        given = self.running.counts
        return self.running.mask.double() if given is None else given.double()

    @cached_property
    def seen(self) -> Tensor:
        return visible(self.counts, self.causal)

    @property
    def causal(self) -> bool:
        return self.running.subject.model.cfg.attention_dir == "causal"

    @property
    def task(self) -> Task:
        return self.running.subject.task

    def before(self, name: str, part: Part | None) -> bool:
        """Whether a variable exists when a part runs (None: the readout)."""
        if name in ("token", "position"):
            return name == "token" or self.running.counts is None
        step = next((one for one in self.steps if one.name == name), None)
        if step is not None and not step.part:
            return all(self.before(one, part) for one in step.of)
        own = next(one for one in self.running.parts if str(one) == (name if step is None else step.part))
        if part is None or own.layer < part.layer:
            return True
        return own.layer == part.layer and own.head is not None and part.head is None

    def codes(self, mask: Tensor | None = None, part: Part | None = None) -> dict[str, tuple[Tensor, int]]:
        """The variables that have one value at each position when a part runs: the value, and how many there are.

        Positions at which the variable's own part does not matter are left out of account.
        """
        found = {}
        for name, weights in self.made.items():
            if not self.before(name, part):
                continue
            where = self.matters(name) & (self.running.mask if mask is None else mask)
            if float((weights[where].amax(-1) > HARD).double().mean()) > 0.999:
                code = weights.argmax(-1)
                found[name] = (code if mask is None else code[mask], weights.shape[-1])
        return found

    def matters(self, name: str) -> Tensor:
        """The positions at which a variable matters, as far as its own part is concerned."""
        step = next((one for one in self.steps if one.name == name), None)
        everywhere = self.running.mask
        if step is None or step.part:
            return self.needed.get(name if step is None else step.part, everywhere)
        return reduce(and_, map(self.matters, step.of), everywhere)

    # ------------------------------------------------------------ the whole

    def run(self) -> None:
        batch = self.running.batch
        self.made = {"token": codes(batch.tokens, len(self.task.vocabulary))}
        places = torch.arange(batch.tokens.shape[1]).expand_as(batch.tokens)
        self.made["position"] = codes(places, batch.tokens.shape[1])
        matter, self.without = used(self.running, self.kinds, self.check, self.strict)
        unused = [part for part in self.running.parts if part not in matter]
        self.roles |= {part: Role(str(part), "not used") for part in unused}
        self.put({part: self.kinds.means(part) for part in unused})
        self.matter = matter
        for part in matter:
            self.check()
            (self.head if part.head is not None else self.mlp)(part)

    def described(self, part: Part, found: Quantized, value: Tensor, enough: float) -> float:
        """Replace a part by its description, and return the share of answers that stays.

        Where the part does not matter, it gets its mean only if the description gives too few of the answers there.
        """
        share = 0.0
        for new in (value, self.spread(found, value)):
            if (share := self.stays(part, new)) >= enough:
                self.put({part: new})
                break
        return share

    def put(self, edits: Edits) -> None:
        """Parts are replaced from here on."""
        self.running = self.running.after(edits)

    def enough(self) -> float:
        """The share of answers that the next description must keep."""
        return min(KEPT, self.running.kept({}).share - (1 - KEPT) / 4)

    def low(self, part: Part) -> Tensor:
        return metric(self.running, part, self.matter)

    def quantized(self, part: Part) -> Quantized:
        found = quantize(self.running, self.kinds, part, self.low(part), self.strict)
        self.needed[str(part)] = found.needed
        return found

    def stays(self, part: Part, value: Tensor) -> float:
        self.check()
        return self.running.kept({part: value}).share

    # ------------------------------------------------------------ edges

    def sources(self, layer: int | None) -> dict[str, Tensor]:
        """What reaches an MLP's input (or the readout, None), by the name of its variable: what each source adds."""
        found = {name: self.running.embedded(name) for name in ("token", "position")}
        for part in self.matter:
            if layer is None or part.layer < layer or (part.layer == layer and part.head is not None):
                found[str(part)] = self.running.written(part)
        return {name: added for name, added in found.items() if added is not None}

    def edges(self, layer: int | None, shuffled: bool = False) -> list[str] | None:
        """The sources whose direct path to an MLP (or to the readout) matters; None where paths are no sum.

        shuffled: paths matter that cannot carry the values of other positions instead, not only those that cannot carry
        the mean.
        """
        running = self.running
        if not running.paths:
            return None
        added = self.sources(layer)
        other = self.kinds.shuffled if shuffled else self.kinds.mean
        change = {name: other(one) - one for name, one in added.items()}

        def kept(out: Sequence[str]) -> Kept:
            self.check()
            some = {name: change[name] for name in out}
            if layer is None:
                return Kept.of(running.read_out(some), running.answers)
            return running.kept({Part(layer): running.mlp_on(layer, some)})

        return needed(list(added), kept)

    def read(self, part: Part) -> tuple[list[str] | None, ...]:
        """The sources that a head's queries, keys and values read, by how much what they add varies."""
        if not self.running.paths:
            return None, None, None
        attn = self.running.blocks[part.layer].attn
        added = {
            name: one[self.running.mask]
            for name, one in self.sources(part.layer).items()
            if name in ("token", "position") or self.before(name, part)
        }
        unseen = [] if "position" in added else ["position"]  # a model may add positions to scores
        found: list[list[str] | None] = []
        for weights in (attn.W_Q, attn.W_K, attn.W_V):
            spread = {
                name: float((one @ weights[part.head].detach().float().cpu()).std(0).norm())
                for name, one in added.items()
            }
            found.append([*unseen, *(name for name, one in spread.items() if one >= READ * max(spread.values()))])
        return tuple(found)

    def allowed(self, name: str, sources: Sequence[str] | None) -> bool:
        """Whether a variable may be read where only some sources matter."""
        if sources is None or name in sources:
            return True
        step = next((one for one in self.steps if one.name == name), None)
        if step is None:
            return False
        return step.part in sources if step.part else all(self.allowed(one, sources) for one in step.of)

    def whole(self, of: Sequence[str], sources: Sequence[str] | None) -> bool:
        """Whether variables cover all sources that matter."""
        if sources is None:
            return True
        covered: set[str] = set()
        for name in of:
            step = next((one for one in self.steps if one.name == name), None)
            covered |= {name, *(() if step is None else (step.part,) if step.part else step.of)}
        return covered >= set(sources)

    # ------------------------------------------------------------ heads

    def head(self, part: Part) -> None:
        running, enough = self.running, self.enough()
        found = self.quantized(part)
        name = str(part)
        if found.size == 1:
            self.minor(part, found)
            return
        asked = self.queries(part, found) if softmax(running.blocks[part.layer]) else None
        step, mean = (None, None) if asked is None else self.select(part, found, asked, enough)
        if step is None or mean is None:
            self.keep(part, found, "its attention and values are no table over variables found so far")
            return
        shares = applied(step, self.made, self.seen)
        share = self.described(part, found, (shares @ mean.double()).float(), enough)
        if share < enough:
            self.keep(part, found, "as a table of attention and values, it does not keep the answers")
            return
        self.steps.append(step)
        self.made[name], self.vectors[name] = shares, mean
        self.roles[part] = Role(name, "explained", name, share)
        if name not in self.codes(found.needed) and found.size <= MOST_VALUES and found.share >= enough:
            self.level(part, found, mean, enough)

    def queries(self, part: Part, found: Quantized) -> Queries | None:
        scores = self.running.scores(part)
        if scores is None:
            return None
        rows, positions, scores_ = scores
        there = found.needed[rows, positions]
        rows, positions = rows[there], positions[there]
        return Queries(rows, positions, scores_[there], self.seen[rows, positions].float())

    def select(self, part: Part, found: Quantized, asked: Queries, enough: float) -> tuple[Head | None, Tensor | None]:
        """The simplest attention by two variables and value by a third that take the head's place."""
        v, low = self.running.v(part), self.low(part)
        pattern = self.pattern(part, found, asked, v, enough)
        if pattern is None:
            return None, None
        hard = hardened(pattern)
        graded = soft(pattern)
        codes_ = {"": (torch.zeros_like(self.running.batch.tokens), 1), **self.codes(part=part)}
        query, key = codes_[pattern.query][0], codes_[pattern.key][0]

        def weights(scores: Tensor) -> Tensor:
            table = scores[query[asked.rows, asked.positions][:, None], key[asked.rows]]
            return (table + asked.counts).softmax(-1).nan_to_num(0.0)

        scores = graded
        far = float((weights(hard) - asked.pattern).abs().sum(-1).mean()) / 2
        selects = not self.strict or far <= SELECTED
        if selects and self.stays(part, self.at(found, asked, weights(hard), v)) >= enough:
            scores = hard
        received = torch.zeros(self.counts.shape).index_add_(0, asked.rows, weights(scores))
        tried = []
        read = self.read(part)[2]
        known = self.codes(part=part)
        for name, weights_ in self.made.items():
            if not self.allowed(name, read) or not self.before(name, part):
                continue
            if name in known:
                mean, left = values_by(v, received, *known[name], low)
            elif weights_.shape[-1] <= MOST_VALUES:
                mean, left = values_of_shares(v, received, weights_, low)
            else:
                continue
            tried.append((weights_.shape[-1], left, name, mean))
        near = nearby([left for _, left, _, _ in tried] or [1.0])
        for _, left, name, mean in sorted(tried, key=lambda one: one[:2]):
            if left <= near:
                step = Head(str(part), pattern.query, pattern.key, matrix(scores), name, str(part))
                shares = applied(step, self.made, self.seen)
                if self.stays(part, self.spread(found, (shares @ mean.double()).float())) >= enough:
                    return step, mean
        return None, None

    def pattern(self, part: Part, found: Quantized, asked: Queries, v: Tensor, enough: float) -> Pattern | None:
        """The cheapest pattern by two variables that takes the place of the head's; pairs only where none does."""
        some = asked.some()
        singles = {n: c for n, c in self.codes(part=part).items() if " and " not in n}
        queries, keys, _ = self.read(part)

        def fits(codes: Codes) -> list[Pattern]:
            return list(
                patterns(
                    some,
                    {name: one for name, one in codes.items() if self.allowed(name, queries)},
                    {name: one for name, one in codes.items() if self.allowed(name, keys)},
                )
            )

        fitted = fits(singles)
        if (one := self.first(part, found, asked, v, enough, fitted)) is not None:
            return one
        near = sorted(fitted, key=lambda one: one.distance)
        self.pair([*dict.fromkeys(one.query for one in near if one.query)][:PAIRED])
        self.pair([*dict.fromkeys(one.key for one in near if one.key)][:PAIRED])
        return self.first(part, found, asked, v, enough, fits(self.codes(part=part)))

    def first(
        self, part: Part, found: Quantized, asked: Queries, v: Tensor, enough: float, fitted: list[Pattern]
    ) -> Pattern | None:
        """The first of these patterns, cheapest first, that takes the place of the head's in the running model."""
        codes_ = {"": (torch.zeros_like(self.running.batch.tokens), 1), **self.codes(part=part)}
        limit = nearby([one.distance for one in fitted])
        near = [one for one in fitted if one.distance <= limit]
        for one in sorted(near, key=lambda one: (one.cost, one.distance))[:TRIED]:
            table = soft(one)[
                codes_[one.query][0][asked.rows, asked.positions][:, None], codes_[one.key][0][asked.rows]
            ]
            weights = (table + asked.counts).softmax(-1).nan_to_num(0.0)
            if self.stays(part, self.at(found, asked, weights, v)) >= enough:
                return one
        return None

    def pair(self, names: Sequence[str]) -> None:
        """Add variables that pair two others."""
        known = self.codes()
        for one, other in combinations([name for name in known if name in names], 2):
            n, m = known[one][1], known[other][1]
            if n * m <= MOST_PAIRED and f"{one} and {other}" not in self.made:
                values = tuple(f"{a} {b}" for a in range(n) for b in range(m))
                self.add(Table(f"{one} and {other}", (one, other), tuple(range(n * m)), values))

    def add(self, step: Step) -> None:
        self.steps.append(step)
        self.made[step.name] = applied(step, self.made, self.seen)

    def at(self, found: Quantized, asked: Queries, weights: Tensor, v: Tensor) -> Tensor:
        """The head's value with other attention at the queries that matter."""
        new = found.elsewhere.clone()
        new[asked.rows, asked.positions] = torch.einsum("nk,nkd->nd", weights, v[asked.rows])
        return new

    def spread(self, found: Quantized, value: Tensor) -> Tensor:
        return torch.where(found.needed[..., None], value, found.elsewhere)

    def level(self, part: Part, found: Quantized, mean: Tensor, enough: float) -> None:
        """A soft head's value as a code: the nearest of its vectors, by what later parts read."""
        low = self.low(part)
        seen, centers = (mean @ low).double(), (found.vectors @ low).double()
        weights, bias = 2 * seen @ centers.T, -centers.square().sum(1)
        name = f"{part} level"
        values = tuple(f"level {i}" for i in range(found.size))
        step = Linear(name, (str(part),), (matrix(weights),), tuple(bias.tolist()), values, str(part))
        code = applied(step, self.made, self.seen).argmax(-1)
        if self.stays(part, found.put(code)) >= enough:
            self.add(step)

    # ------------------------------------------------------------ MLPs

    def mlp(self, part: Part) -> None:
        enough = self.enough()
        found = self.quantized(part)
        if found.size == 1:
            self.minor(part, found)
            return
        best = None
        if found.share >= enough:
            every, sources = self.edges(part.layer, shuffled=True), self.edges(part.layer)
            best = (
                self.table(part, found, every, enough, exact=True, levels=False)
                or self.sums(part, found, every, enough, exact=True)
                or self.table(part, found, every, enough, exact=True)
                or self.table(part, found, sources, enough)
                or self.sums(part, found, sources, enough)
            )
        if best is None:
            self.keep(part, found, "its output is no table over up to three variables, and no sum of weights")
            return
        step, name = best, str(part)
        self.add(step)
        self.vectors[name] = found.vectors
        share = self.described(part, found, found.vectors[self.made[name].argmax(-1)], enough)
        self.roles[part] = Role(name, "explained", name, share)

    def table(
        self, part: Part, found: Quantized, sources: Sequence[str] | None, enough: float, exact: bool = False,
        levels: bool = True,
    ) -> Step | None:  # fmt: skip
        """The MLP as a table over at most three variables that reach it; levels: levels of soft heads among them."""
        known = {
            n: c
            for n, c in self.codes(found.needed, part).items()
            if self.allowed(n, sources) and (levels or not n.endswith(" level"))
        }
        if not known:
            return None
        share = 1.0 if exact else maps.DETERMINED
        fitting = list(islice(maps.tables(found.code[found.needed], known, enough=share), 200))
        for one in sorted(fitting, key=lambda one: (one.share < 1, not self.whole(one.of, sources)))[:TRIED]:
            step = Table(str(part), one.of, one.entries, found.names, str(part))
            if self.stays(part, found.put(self.code(step))) >= enough:
                return step
        return None

    def sums(
        self, part: Part, found: Quantized, sources: Sequence[str] | None, enough: float, exact: bool = False
    ) -> Step | None:
        """The MLP as the largest of a few sums of weights; exact: at each position, and of shares, not their levels."""
        if found.size > (FEW if exact else MOST_VALUES):
            return None
        features = {
            n: self.made[n][found.needed]
            for n in self.made
            if self.allowed(n, sources) and self.before(n, part) and not (exact and n.endswith(" level"))
        }
        fit = maps.weighed(found.code[found.needed], features, found.size, 1.0 if exact else maps.DETERMINED)
        if exact and fit.share < NEARLY:
            return None
        weights, bias = tuple(map(matrix, fit.weights)), tuple(fit.bias.tolist())
        step = Linear(str(part), fit.of, weights, bias, found.names, str(part))
        return step if self.stays(part, found.put(self.code(step))) >= enough else None

    def code(self, step: Step) -> Tensor:
        """The value that a step gives at each position."""
        return applied(step, self.made, self.seen).argmax(-1)

    # ------------------------------------------------------------ what has no description

    def minor(self, part: Part, found: Quantized) -> None:
        self.put({part: found.put()})
        self.roles[part] = Role(str(part), "minor", kept=found.share)

    def keep(self, part: Part, found: Quantized, why: str) -> None:
        """A part without description keeps its own values; others may still be described by them."""
        name = str(part)
        self.roles[part] = Role(name, "kept", name, note=why)
        if found.size <= MOST_VALUES:
            self.made[name] = codes(found.code.clamp(min=0), found.size)
            self.given.add(name)

    # ------------------------------------------------------------ the readout

    def readout(self) -> tuple[Linear, list[Step]] | None:
        """The answer as a table over a few variables, as the sum that the model makes, or as a fitted sum.

        It reads only what reaches the readout by a direct path that matters, and leaves none of these out.
        """
        running, reads = self.running, self.running.reads
        target, words = running.answers, answer_words(running)
        mask = torch.zeros_like(running.mask)
        mask[reads.rows, reads.positions] = True
        sources = self.edges(None)
        minor = {str(part) for part, role in self.roles.items() if role.status == "minor"}
        sources = None if sources is None else [name for name in sources if name not in minor]
        readable = [n for n in self.made if n not in self.given and self.allowed(n, sources)
                    and not (n == "position" and running.counts is not None)]  # fmt: skip
        known = {n: c for n, c in self.codes(mask).items() if n in readable}

        plain = {n: c for n, c in known.items() if not n.endswith(" level")}
        for one in maps.tables(target, plain, most=2, enough=ANSWER):
            if self.whole(one.of, sources) and (len(one.of) == 1 or one.cells <= 16):
                return self.looked_up(one, words)
        for name in readable:  # the value that has the largest share
            if name not in known and self.vocabulary(name) and self.whole((name,), sources):
                same = same_word(tuple(self.task.vocabulary), words)
                given = (self.made[name][mask] @ torch.tensor(same, dtype=torch.float64)).argmax(1)
                if float((given == target).double().mean()) >= ANSWER:
                    return Linear("answer", (name,), (same,), (0.0,) * len(words), words), []
        if (direct := self.direct(sources, mask, words)) is not None:
            return direct
        for one in maps.tables(target, known, most=3, enough=ANSWER):
            if self.whole(one.of, sources):
                return self.looked_up(one, words)
        features = {n: self.made[n][mask] for n in readable}
        if sources is not None:  # one variable for each source: its level, where it has one
            names = [f"{name} level" if f"{name} level" in features else name for name in sources]
            if not set(names) <= set(features):
                return None  # the answer follows from a part that is not described, too
            features = {name: features[name] for name in names}
        if features and len(target.unique()) <= 64:
            fit = maps.weighed(target, features, len(words), ANSWER, whole=sources is not None)
            if fit.share >= 0.9:
                return Linear("answer", fit.of, tuple(map(matrix, fit.weights)), tuple(fit.bias.tolist()), words), []
        return None

    def vocabulary(self, name: str) -> bool:
        """Whether the values of a variable are tokens."""
        step = next((one for one in self.steps if one.name == name), None)
        return name == "token" if step is None else isinstance(step, Head) and self.vocabulary(step.value)

    def looked_up(self, one: maps.Lookup, words: tuple[str, ...]) -> tuple[Linear, list[Step]]:
        eye = tuple(tuple(float(i == j) for j in range(len(words))) for i in range(len(words)))
        zero = (0.0,) * len(words)
        if len(one.of) == 1:
            weights = tuple(eye[entry] for entry in one.entries)
            return Linear("answer", one.of, (weights,), zero, words), []
        step = Table("result", one.of, one.entries, words)
        return Linear("answer", ("result",), (eye,), zero, words), [step]

    def direct(
        self, sources: Sequence[str] | None, mask: Tensor, words: tuple[str, ...]
    ) -> tuple[Linear, list[Step]] | None:
        """The logits as the model adds them up, where it has no norm before the readout and a linear one."""
        running, model = self.running, self.running.subject.model
        kind = running.subject.decision.kind
        if sources is None or running.subject.no_sum() or kind not in ("argmax", "sigmoid"):
            return None
        unembed = model.unembed.W_U.detach().double()
        weights: dict[str, Tensor] = {}
        for name in sources:
            if name == "token":
                ids = torch.arange(len(self.task.vocabulary))
                ids = ids if running.subject.token_ids is None else running.subject.token_ids[ids]
                out = model.embed.W_E[ids].detach().double()
            elif name == "position":
                out = model.pos_embed.W_pos[: self.made["position"].shape[-1]].detach().double()
            elif name in self.vectors:
                part = next(one for one in self.matter if str(one) == name)
                out = self.vectors[name].double()
                if part.head is not None:
                    out = out @ running.blocks[part.layer].attn.W_O[part.head].detach().double()
            else:
                return None
            weights[name] = running.subject.columns(out @ unembed)[:, : self.task.n_out]
        total = sum(self.made[name][mask] @ one for name, one in weights.items())
        bias = (running.logits[:, : self.task.n_out].double() - total).mean(0)
        if kind == "sigmoid":
            weights = {name: torch.cat([torch.zeros_like(one), one], 1) for name, one in weights.items()}
            bias = torch.cat([torch.zeros(1).double(), bias])
        step = Linear("answer", tuple(weights), tuple(map(matrix, weights.values())), tuple(bias.tolist()), words)
        given = linear(step, self.made)[mask].argmax(1)
        return (step, []) if float((given == running.answers).double().mean()) >= 0.99 else None

    def program(self) -> Program | None:
        """The program of the parts, without steps that nothing reads; None if the answer is not reached."""
        found = self.readout()
        if found is None:
            return None
        answer, more = found
        wanted, kept = set(answer.of), []
        for step in reversed([*self.steps, *more]):
            if step.name in wanted:
                kept.append(step)
                wanted |= set(step.of)
        if wanted & self.given:
            return None
        subject = self.running.subject
        return Program(
            tuple(self.task.vocabulary), self.made["position"].shape[-1], self.causal, tuple(reversed(kept)), answer,
            subject.read_at, self.task.pad,
        )  # fmt: skip

    def sketch(self, program: Program | None) -> Program:
        """All steps so far as a program, with the words of `program`; its answer is constant."""
        answer = Linear("answer", (), (), (0.0,), ("",))
        given = [
            Table(name, (), (0,), tuple(map(str, range(self.made[name].shape[-1])))) for name in sorted(self.given)
        ]
        words = {} if program is None else program.words
        return Program(
            tuple(self.task.vocabulary), self.made["position"].shape[-1], self.causal, (*given, *self.steps), answer,
            words=words,
        )  # fmt: skip

    def alone(self, program: Program) -> Kept:
        """How many of the model's answers the program gives by itself."""
        reads = self.running.reads
        given = program.classes(self.running.batch.tokens, self.counts)[reads.rows, reads.positions]
        return Kept.of(given, self.running.answers)


def nearby(distances: Sequence[float]) -> float:
    """Up to which distance descriptions are tried, cheapest first."""
    best = min(distances)
    return 10 * best + 1e-9 if best < EXACT / 10 else max(CLOSE, 1.5 * best)


def answer_words(running: Running) -> tuple[str, ...]:
    return tuple(running.subject.task.answer_words)


def matrix(table: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())
