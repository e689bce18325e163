"""Describe parts that read several variables at once: heads and MLPs as a few sums of weights.

What a part reads is fitted by a sum of vectors, one for each value of each variable; a norm before it is fitted with
it, or else written as it is. Then a head attends by products of a few sums of the query's and of the key's variables,
and reads a few sums; an MLP's neurons are ramps of sums. Variables, sums and neurons that the answers do not need are
left out, those that add least first. Of what an MLP reads, a variable stays if the model's answers change with it from
another row: its mean may keep the answers of rows as they are. Sums that say the same are turned until many of their
weights are 0.

A norm divides by the length of a vector. This vector is nearly a sum over the variables, so its length is that of a
few sums of weights: written once, for all that is read behind the norm, with only as many sums as the length needs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.measures.runs import Part
from interp.models.architecture.blocks import PostNormBlock
from interp.programs.other_rows import (
    Described,
    Swapped,
    answers_elsewhere,
    applied,
    as_swapped,
    same_elsewhere,
    same_when_swapped,
)
from interp.programs.quantize import Quantized
from interp.programs.reading import MOST_VALUES, Reading, matrix, regressed
from interp.programs.running import Running, scaled, softmax
from interp.programs.steps import Features, Head, Normed, Step, Sums
from interp.support.cached import cached_method

LOST = 0.006
"""Share of the answers that all parts that are described by sums may lose together, each as much as any other: in the
first reading; in the second, and in finer ones, they may lose none."""
LEAST = 0.993
"""Least share of each frequent answer that stays."""
FROM_OTHER_ROWS = 0.99
"""Share of the model's answers that must stay if all that an MLP does not read, by its description, is from another
row. Where the longest description falls short of it, that one's share takes its place."""
LOST_ELSEWHERE = 0.03
"""In a reading of other rows (see Reading.of_other_rows), the share of the model's answers with values of other rows
that a description may lose, divided by the root of the number of parts that follow each other: the inputs on which two
of them go wrong are rarely the same, and a variable may lose .05 at last."""
ROUNDING = 1e-6
"""Difference, as a share of what is compared, below which numbers count as equal."""
ACCURACY = 0.002
"""Root of the mean square of the relative error of a length."""


@dataclass(frozen=True, eq=False)
class Input:
    """What a part reads at the positions `where`, and the variables whose sum it may be."""

    features: dict[str, Tensor]
    """(rows, length, values) of each variable."""
    stream: Float[Tensor, "rows length d"]
    norm: Any
    length: Sums | None
    """The length by which the norm divides; without one, the sum is fitted to what comes out of the norm."""
    where: Bool[Tensor, "rows length"]

    @cached_property
    def read(self) -> Float[Tensor, "points d"]:
        """What the part reads, after the norm."""
        if self.norm is None:
            return self.stream[self.where]
        with torch.no_grad():
            return self.norm(self.stream.float())[self.where].double()

    @cached_property
    def target(self) -> Float[Tensor, "points d"]:
        """What the sum is fitted to: what the part reads, or that before it is divided."""
        return self.read if self.length is None else undivided(self.norm, self.stream[self.where])

    @cached_property
    def _shortened(self) -> tuple[dict[str, Float[Tensor, "rows values"]], Float[Tensor, "rows d"]]:
        """The values of each variable (and of the constant 1, under ""), and the target, turned by one map so that they
        are 0 but for a few rows: distances are the same, so what is nearest is found without the other rows."""
        points = {"": torch.ones(len(self.target), 1).double()}
        points |= {name: one[self.where].double() for name, one in self.features.items()}
        q, r = torch.linalg.qr(torch.cat([*points.values()], 1))
        return dict(zip(points, r.split([one.shape[1] for one in points.values()], 1), strict=True)), q.T @ self.target

    @cached_method
    def fit(self, *names: str) -> Fitted:
        """The sum over these variables, and a constant, that is nearest to what is read."""
        if not names:
            return Fitted((), self.read[:0], self.read.mean(0), [], None)
        points, target = self._shortened
        rank = torch.finfo(torch.float64).eps * len(self.target)
        chosen = torch.cat([points[name] for name in ("", *names)], 1)
        vectors = torch.linalg.lstsq(chosen, target, rcond=rank, driver="gelsd").solution
        sizes = [self.features[name].shape[-1] for name in names]
        vectors = self._without_most_frequent(names, vectors)
        if self.length is None:
            return Fitted(names, vectors[1:], vectors[0], sizes, None)
        gain, shift = gain_and_shift(self.norm, vectors.shape[1])
        return Fitted(names, vectors * gain, shift, sizes, self.length)

    def _without_most_frequent(self, names: Sequence[str], vectors: Float[Tensor, "values d"]) -> Tensor:
        """The same sum, in which the most frequent value of each variable whose weights add up to 1 adds nothing: what
        it adds is in the constant."""
        vectors = vectors.clone()
        start = 1
        for name in names:
            weights = self.features[name][self.where]
            if bool(((weights.sum(-1) - 1).abs() < ROUNDING).all()):
                met = weights.sum(0)
                most = vectors[start + first_largest(met)].clone()
                vectors[start : start + len(met)][met > 0] -= most
                vectors[0] += most
            start += weights.shape[-1]
        return vectors

    def by_spread(self, weights: Float[Tensor, "d k"]) -> list[str]:
        """The variables by how much what they add to sums varies, least first."""
        names = list(self.features)
        fitted = self.fit(*names)
        rows = fitted.vectors[-sum(fitted.sizes) :].split(fitted.sizes) if names else ()
        spread = {
            name: float((self.features[name][self.where] @ row @ weights).std(0).norm())
            for name, row in zip(names, rows, strict=True)
        }
        return sorted(names, key=spread.__getitem__)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A sum of vectors of the values of variables (with a norm, first that of the constant 1), and a constant."""

    names: tuple[str, ...]
    vectors: Float[Tensor, "values d"]
    constant: Float[Tensor, "d"]
    sizes: list[int]
    length: Sums | None

    def sums(self, name: str, weights: Tensor, bias: Tensor | float = 0.0, ramps: bool = False) -> list[Step]:
        """The steps that make sums of what is read, (d, numbers) weights of it; ramps make the part's own variable."""
        of, found, sizes = self.names, list[Step](), self.sizes
        if self.length is not None:
            normed = Normed(f"{' and '.join(self.names)} by {self.length.name}", self.names, self.length.name)
            of, found, sizes = (normed.name,), [self.length, normed], [len(self.vectors)]
        blocks = without_rounding(self.vectors @ weights).split(sizes) if of else ()
        constant = without_rounding(self.constant @ weights + bias)
        made = Sums(name, of, tuple(map(matrix, blocks)), tuple(constant.tolist()), ramps, name if ramps else "")
        return [*found, made]


def without_rounding(weights: Tensor) -> Tensor:
    """Weights, of which those that only rounding tells from a whole number are whole."""
    whole = weights.round() + 0.0  # and no -0.0
    return torch.where((weights - whole).abs() < ROUNDING**2, whole, weights)


def read_by(
    reading: Reading, part: Part, sources: Sequence[str] | None, where: Tensor, by: Sums | None = None,
    swapped: Sequence[Swapped] = (),
) -> Input:  # fmt: skip
    """What a part reads from the variables so far that it may read; by: the length by which its norm divides.

    swapped: further rows to which sums are fitted, the first of these alone.
    """
    known = {
        name: one
        for name, one in reading.made.items()
        if reading.before(name, part) and reading.allowed(name, sources) and one.shape[-1] <= MOST_VALUES
        and not name.endswith(" level")
    }  # fmt: skip
    norm, stream = norm_before(reading.running, part)
    for more in swapped[:1]:
        known = {name: torch.cat([one, more.features[name]]) for name, one in known.items()}
        stream, where = torch.cat([stream, more.stream.to(stream)]), torch.cat([where, where])
    return Input(known, stream.double().cpu(), norm, by, where)


def length_before(reading: Reading, part: Part) -> Sums | None:
    """The length by which the norm before a part divides; all heads of a layer have the same."""
    name = f"length before {f'MLP {part.layer}' if part.head is None else f'the heads of layer {part.layer}'}"
    if isinstance(known := reading.step(name), Sums):
        return known
    one = read_by(reading, part, None, reading.running.mask)
    if one.norm is None:
        return None
    features = {name: weights[one.where] for name, weights in one.features.items()}
    return length(name, features, undivided(one.norm, one.stream[one.where]), float(one.norm.eps))


def fewest(names: Sequence[Any], good: Callable[[list[Any]], bool]) -> list[Any]:
    """Leave out names, the first ones first, while the rest is good."""
    left = list(names)
    for name in names:
        rest = [one for one in left if one != name]
        if good(rest):
            left = rest
    return left


def stays(reading: Reading, part: Part, found: Quantized, value: Tensor, enough: float) -> bool:
    """Whether enough answers stay, and enough of each frequent one; unless the reading is finer, the mean may be put
    where the part does not matter."""
    least = min(LEAST, reading.kept({}).least)
    values = (value,) if reading.finer else (value, reading.spread(found, value))
    kept = (reading.kept({part: new}) for new in values)
    return any(one.share >= enough and one.least >= least for one in kept)


def nothing_more(reading: Reading, part: Part, names: Sequence[str], side: str = "") -> float:
    """The share of the answers that stay if a part reads nothing but these variables: all else is from another row.
    side: "q", "k" or "v" of a head, which then reads so."""
    return reading.tried.stay_without(part, set[str]().union(*map(reading.writers, names)), side)


def reads_enough(reading: Reading, part: Part, side: str, every: Sequence[str], some: Sequence[str]) -> bool:
    """Whether a side of a head may read only some of these variables; only asked in a finer reading."""
    if not reading.finer or (stay := nothing_more(reading, part, some, side)) >= FROM_OTHER_ROWS:
        return True
    return stay >= nothing_more(reading, part, every, side)


def describe_by_sums(reading: Reading, part: Part, found: Quantized) -> bool:
    """Describe a part by a few sums, if these keep the answers; a norm before it is written only where needed, and all
    positions are described only where too few answers stay with those at which the part matters."""
    may_lose = LOST if reading.strict and not reading.finer else 0.0
    enough = reading.kept({}).share - may_lose / len(reading.matter)
    describe = _head if part.head is not None else _mlp
    swapped = as_swapped(reading, part)
    everywhere = replace(found, needed=reading.running.mask)
    for at in (found, everywhere)[: 1 if torch.equal(found.needed, everywhere.needed) else 2]:
        for without_norm in (True, False):
            by = None if without_norm else length_before(reading, part)
            if without_norm or by is not None:
                one = describe(reading, part, at, enough, by, swapped)
                if one is not None:
                    return reading.explain(part, at, *one, enough)
    return False


def sufficient(
    reading: Reading, part: Part, found: Quantized, enough: float, by: Sums | None, swapped: Sequence[Swapped],
    longest: Described,
) -> Callable[[Described], bool] | None:  # fmt: skip
    """Whether a description of a part keeps enough answers, and gives enough of those of a model that takes values from
    other rows, or as many as the longest one. None if the longest one does not, or only with a norm that is written."""
    stages = len({(other.layer, other.head is None) for other in reading.matter})
    least = 1 - LOST_ELSEWHERE / stages**0.5
    model = answers_elsewhere(reading, part) if reading.of_other_rows else ()

    def elsewhere(one: Described) -> Iterator[float]:
        if reading.of_other_rows:
            yield same_elsewhere(reading, part, one[2], model)
            yield same_when_swapped(reading, one, swapped)

    def good(one: Described) -> bool:
        if not stays(reading, part, found, one[2], enough):
            return False
        return all(share >= min(least, most) for share, most in zip(elsewhere(one), wanted, strict=True))

    wanted = [*elsewhere(longest)]
    if by is None and norm_before(reading.running, part)[0] is not None and min(wanted, default=1.0) < least:
        return None
    return good if good(longest) else None


# ---------------------------------------------------------------- norms


def norm_before(running: Running, part: Part) -> tuple[Any, Float[Tensor, "rows length d_model"]]:
    """The last norm that is before a part (None: none is), and the residual stream before this norm.

    It is the part's own, or that after an earlier part.
    """
    block, mlp = running.blocks[part.layer], Part(part.layer - 1)
    after = isinstance(block, PostNormBlock)
    if part.head is None:
        norm, stream = block.ln1 if after else getattr(block, "ln2", None), running.between(part.layer)
    elif not after:
        norm, stream = getattr(block, "ln1", None), running.before(part.layer)
    elif part.layer == 0 or not isinstance(earlier := running.blocks[mlp.layer], PostNormBlock):
        norm, stream = None, running.before(part.layer)
    elif mlp in running.parts:
        norm, stream = earlier.ln2, running.stream({}, mlp.layer, reads=False) + running.value(mlp)
    else:
        norm, stream = earlier.ln1, running.between(mlp.layer)
    return (norm if hasattr(norm, "eps") else None), stream


def undivided(norm: Any, here: Float[Tensor, "points d"]) -> Float[Tensor, "points d"]:
    """What a norm divides: a layer norm takes the mean off first."""
    return here if "RMS" in type(norm).__name__ else here - here.mean(-1, keepdim=True)


def gain_and_shift(norm: Any, d: int) -> tuple[Tensor, Tensor]:
    """What a norm multiplies by and adds after it has divided, (d,) each."""
    gain, shift = getattr(norm, "w", torch.ones(d)), getattr(norm, "b", torch.zeros(d))
    return gain.detach().double().cpu(), shift.detach().double().cpu()


def length(name: str, features: Features, divided: Float[Tensor, "points d"], eps: float) -> Sums:
    """The sums whose length is that by which a norm divides. features: (points, values) of each variable.

    The sums that add least are left out: their mean square is a constant. Weights are turned so that many are zero.
    """
    points = torch.cat([torch.ones(len(divided), 1).double(), *features.values()], 1)
    vectors = torch.linalg.lstsq(points, divided, driver="gelsd").solution / divided.shape[1] ** 0.5
    each = points @ vectors
    vectors = vectors @ torch.linalg.eigh(each.T @ each)[1].flip(1)  # those that add most come first
    wanted = divided.square().mean(1, keepdim=True) + eps
    found = (points @ vectors).square().cumsum(1)
    rest = (wanted - found).mean(0).clamp(min=0)
    error = ((found + rest) / wanted).sqrt().sub(1).square().mean(0).sqrt().tolist()
    n = next((n for n, one in enumerate(error, 1) if one <= ACCURACY), len(error))
    constant = torch.zeros(len(vectors), 1).double()
    constant[0] = rest[n - 1].sqrt()
    turned = lower(torch.cat([vectors[:, :n], constant], 1))
    blocks = turned[1:].split([one.shape[1] for one in features.values()])
    return Sums(name, tuple(features), tuple(map(matrix, blocks)), tuple(turned[0].tolist()))


def lower(weights: Float[Tensor, "values n"]) -> Float[Tensor, "values m"]:
    """The same sums turned, so that their lengths stay and many weights are 0: the first of m sums alone has weight of
    the first value, only the first two have of the next one that does not follow from it, and so on."""
    axes, least = weights[:0], ROUNDING * float(weights.norm(dim=1).max())
    found = torch.zeros_like(weights)
    for value, row in enumerate(weights):
        rest = row
        for _ in range(2):  # once more, against rounding
            rest = rest - (rest @ axes.T) @ axes
        if float(rest.norm()) > least:
            axes = torch.cat([axes, rest[None] / rest.norm()])
        found[value, : len(axes)] = row @ axes.T
    return found[:, : len(axes)].masked_fill(found[:, : len(axes)].abs() < least, 0.0)


# ---------------------------------------------------------------- heads


def _head(
    reading: Reading, part: Part, found: Quantized, enough: float, by: Sums | None, swapped: Sequence[Swapped]
) -> Described | None:
    attn, low = reading.running.blocks[part.layer].attn, reading.low(part).double()
    where = {"Q": found.needed, "K": reading.running.mask, "V": reading.running.mask}
    reads = {
        side: read_by(reading, part, sources, where[side], by, swapped)
        for side, sources in zip("QKV", reading.read(part), strict=True)
    }
    weights, bias = ({side: getattr(attn, f"{kind}_{side}")[part.head].detach().double().cpu() for side in "QKV"}
                     for kind in "Wb")  # fmt: skip
    scale = float(getattr(attn, "attn_scale", 1.0))

    @cache
    def whole(side: str, *names: str) -> Float[Tensor, "rows length d_head"]:
        """A head's queries, keys or values, if they read these variables."""
        return reading.variable(*reads[side].fit(*names).sums(f"{part} {side}", weights[side], bias[side]))

    @lru_cache(maxsize=1)
    def attention(of_query: tuple[str, ...], of_key: tuple[str, ...], products: int) -> tuple[list[Step], Head, Tensor]:
        """The steps of queries and keys with this many products, the head, and its attention."""
        if not of_key and softmax(reading.running.blocks[part.layer]):  # all keys are alike
            evenly = Head(str(part), "", "", ((0.0,),), f"{part} reads", str(part))
            return [], evenly, evenly.attention(reading.made, reading.seen)
        q, k = (whole(side, *of)[where[side]] for side, of in (("Q", of_query), ("K", of_key)))
        query, key = reads["Q"].fit(*of_query), reads["K"].fit(*of_key)
        left, right = products_of(q, k, products)
        turned = turn(key.vectors @ weights["K"] @ right)
        left, right = left @ torch.linalg.inv(turned).T, right @ turned
        of_keys = bias["K"]
        if softmax(reading.running.blocks[part.layer]):  # what all keys have alike changes no attention
            of_keys = -key.constant @ weights["K"]
        steps = [
            *query.sums(f"{part} query", weights["Q"] @ left / scale, bias["Q"] @ left / scale),
            *key.sums(f"{part} key", weights["K"] @ right, of_keys @ right),
        ]
        attend = Head(
            str(part), f"{part} query", f"{part} key", matrix(torch.eye(left.shape[1])), f"{part} reads", str(part),
            scaled=scaled(reading.running.blocks[part.layer]),
        )  # fmt: skip
        return steps, attend, attend.attention(reading.after(steps), reading.seen)

    def made(names: dict[str, list[str]], products: int, n: int) -> Described:
        steps, attend, pattern = attention(tuple(names["Q"]), tuple(names["K"]), products)
        z = pattern @ whole("V", *names["V"])
        axes = torch.linalg.eigh(low.T @ covariance(z[where["Q"]]) @ low)[1]
        to = low @ axes[:, -n:]
        read = reads["V"].fit(*names["V"])
        to = to @ turn(read.vectors @ weights["V"] @ to)
        more = read.sums(f"{part} reads", weights["V"] @ to, bias["V"] @ to)
        every = {step.name: step for step in (*steps, *more)}  # of a norm, the length is there more than once
        return fitted_to(reading, [*every.values(), attend], z @ to, z, found.needed, swapped)

    d = weights["Q"].shape[1]
    best = {side: list(one.features) for side, one in reads.items()}
    suffices = sufficient(reading, part, found, enough, by, swapped, made(best, d, d)) if best["V"] else None
    if suffices is None:
        return None

    def good(names: dict[str, list[str]], products: int = d, n: int = d) -> bool:
        return bool(names["V"]) and suffices(made(names, products, n))

    def least(side: str) -> list[str]:
        """The fewest variables that a side must read beside those of the others."""
        every = reads[side].by_spread(weights[side])
        enough_read = partial(reads_enough, reading, part, side.lower(), every)
        return fewest(every, lambda some: enough_read(some) and good({**best, side: some}))

    for side in "VKQ":
        best[side] = least(side)
    products = next(n for n in range(1, d + 1) if n == d or good(best, n))
    return made(best, products, next(n for n in range(1, d + 1) if n == d or good(best, products, n)))


def products_of(q: Float[Tensor, "queries d"], k: Float[Tensor, "keys d"], n: int) -> tuple[Tensor, Tensor]:
    """Maps (d, n) of queries and keys whose products are nearest to the scores, up to a constant of each query."""
    values, axes = torch.linalg.eigh(covariance(k))
    root = values.clamp(min=1e-9 * float(values.max()) + 1e-30).sqrt()
    half = axes * root @ axes.T
    top = torch.linalg.eigh(half @ (q.T @ q / len(q)) @ half)[1][:, -n:]
    return half @ top, axes / root @ axes.T @ top


def first_largest(sizes: Float[Tensor, "n"]) -> int:
    """Which of some sizes is the first one that is largest but for rounding."""
    return int((sizes >= float(sizes.max()) * (1 - ROUNDING)).nonzero()[0])


def turn(weights: Float[Tensor, "values n"]) -> Float[Tensor, "n n"]:
    """A map of sums to others that say the same, so that as many weights as can be are 0: each has the weight 1 for one
    value that adds nothing to the others. Sums of fewer dimensions than there are sums are left as they are."""
    n, found = weights.shape[1], torch.eye(weights.shape[1]).double()
    if len(weights) < n:
        return found
    left = weights.clone()
    chosen = list[int]()
    for _ in range(n):  # the value whose weights are farthest from those that are chosen
        sizes = left.square().sum(1)
        at = first_largest(sizes)
        if float(sizes[at]) <= ROUNDING * float(weights.square().sum(1).max()):
            return found
        chosen.append(at)
        along = left[at] / left[at].norm()
        left = left - (left @ along)[:, None] * along
    return torch.linalg.inv(weights[sorted(chosen)])


def covariance(points: Float[Tensor, "points d"]) -> Float[Tensor, "d d"]:
    """Also of one dimension, for which torch.cov gives a number and no matrix."""
    centered = points - points.mean(0)
    return centered.T @ centered / len(points)


# ---------------------------------------------------------------- MLPs


def _mlp(
    reading: Reading, part: Part, found: Quantized, enough: float, by: Sums | None, swapped: Sequence[Swapped]
) -> Described | None:
    """The fewest of an MLP's neurons that will do."""
    mlp, value = reading.running.blocks[part.layer].mlp, reading.running.value(part).double()
    if reading.running.subject.model.cfg.act_fn != "relu" or hasattr(mlp, "W_gate"):
        return None
    w_in, b_in, w_out = (getattr(mlp, name).detach().double().cpu() for name in ("W_in", "b_in", "W_out"))
    writes = w_out.any(1)
    w_in, b_in, w_out = w_in[:, writes], b_in[writes], w_out[writes]
    where = found.needed
    reads = read_by(reading, part, None, where, by, swapped)

    def made(names: Sequence[str], neurons: Sequence[int]) -> Described:
        at = sorted(neurons)
        steps = reads.fit(*names).sums(str(part), w_in[:, at], b_in[at], ramps=True)
        return fitted_to(reading, steps, reading.variable(*steps), value, where, swapped)

    neurons, every = list(range(w_in.shape[1])), reads.by_spread(w_in)
    suffices = sufficient(reading, part, found, enough, by, swapped, made(every, neurons)) if every else None
    if suffices is None:
        return None

    def good(names: Sequence[str], neurons: Sequence[int]) -> bool:
        return bool(names) and bool(neurons) and suffices(made(names, neurons))

    least = min(FROM_OTHER_ROWS, nothing_more(reading, part, every))
    names = fewest(every, lambda some: nothing_more(reading, part, some) >= least and good(some, neurons))
    order = (reading.variable(*made(names, neurons)[0])[where].std(0) * w_out.norm(dim=1)).argsort().tolist()
    n = len(order) - 1  # as many as can go at once, then one by one
    out = n - bisect_left(range(n, 0, -1), True, key=lambda out: good(names, order[out:]))
    return made(names, fewest(order[out:], lambda some: good(names, some)))


def fitted_to(
    reading: Reading, steps: list[Step], numbers: Tensor, value: Tensor, where: Tensor, swapped: Sequence[Swapped]
) -> Described:
    """A part's description by its steps; each number that the last one makes has a vector, so that their sum is nearest
    to the part's value."""
    points, target = [numbers[where]], [value[where]]
    for more in swapped[:1]:
        points.append(applied(steps, more.features, reading)[where])
        target.append(more.value.to(value)[where])
    vectors, constant = regressed(torch.cat(points), torch.cat(target))
    return steps, vectors.float(), (numbers @ vectors + constant).float()
