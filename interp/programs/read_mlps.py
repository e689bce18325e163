"""Describe an MLP: a table over a few variables, or the largest of a few sums; judged in the running model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from interp.measures.runs import Part
from interp.programs import maps
from interp.programs.language import Linear, Step, Table
from interp.programs.quantize import Quantized
from interp.programs.read_own import describe_by_product
from interp.programs.read_sums import describe_by_sums
from interp.programs.read_waves import describe_by_waves
from interp.programs.reading import MOST_VALUES, TRIED, Reading, Role, matrix

FEW = 16
"""Most values of an MLP for which sums of weights are tried that give each of them exactly."""
NEARLY = 0.9995
"""Share of the positions at which such sums must give the value: limits between close sums are fitted."""


def describe_mlp(reading: Reading, part: Part) -> None:
    enough = reading.enough()
    found = reading.quantized(part)
    if found.size == 1:
        reading.minor(part, found)
        return
    best = None
    if found.share >= enough:
        every, sources = reading.edges(part.layer, shuffled=True), reading.edges(part.layer)
        best = as_table(reading, part, found, every, enough, exact=True, levels=False) or as_sums(
            reading, part, found, every, enough, exact=True
        )
        if best is None and describe_by_product(reading, part, found, every):
            return
        best = best or (
            as_table(reading, part, found, every, enough, exact=True)
            or as_table(reading, part, found, sources, enough)
            or as_table(reading, part, found, every and [*every, "token"], enough, exact=True)  # it tells marks apart
        )
    if best is None:
        if not describe_by_waves(reading, part, found) and not describe_by_sums(reading, part, found):
            reading.keep(part, found, "its output is no table over up to three variables, and no sum of weights")
        return
    step, name = best, str(part)
    reading.add(step)
    reading.vectors[name] = found.vectors
    share = reading.described(part, found, found.vectors[reading.made[name].argmax(-1)], enough)
    reading.roles[part] = Role(name, "explained", name, share)


def as_table(
    reading: Reading, part: Part, found: Quantized, sources: Sequence[str] | None, enough: float, exact: bool = False,
    levels: bool = True,
) -> Step | None:  # fmt: skip
    """The MLP as a table over at most three variables that reach it; levels: levels of soft heads among them."""
    known = {
        n: c
        for n, c in reading.codes(found.needed, part).items()
        if reading.allowed(n, sources) and (levels or not n.endswith(" level"))
    }
    if not known:
        return None
    share = 1.0 if exact else maps.DETERMINED
    fitting = list(islice(maps.tables(found.code[found.needed], known, enough=share), 200))
    for one in sorted(fitting, key=lambda one: (one.share < 1, not reading.whole(one.of, sources)))[:TRIED]:
        step = Table(str(part), one.of, one.entries, found.names, str(part))
        if reading.stays(part, found.put(reading.code(step))) >= enough:
            return step
    return None


def as_sums(
    reading: Reading, part: Part, found: Quantized, sources: Sequence[str] | None, enough: float, exact: bool = False
) -> Step | None:
    """The MLP as the largest of a few sums of weights; exact: at each position, and of shares, not their levels."""
    if found.size > (FEW if exact else MOST_VALUES):
        return None
    features = {
        n: reading.made[n][found.needed]
        for n in reading.made
        if reading.allowed(n, sources) and reading.before(n, part) and not (exact and n.endswith(" level"))
    }
    fit = maps.weighed(found.code[found.needed], features, found.size, 1.0 if exact else maps.DETERMINED)
    if exact and fit.share < NEARLY:
        return None
    weights, bias = tuple(map(matrix, fit.weights)), tuple(fit.bias.tolist())
    step = Linear(str(part), fit.of, weights, bias, found.names, str(part))
    return step if reading.stays(part, found.put(reading.code(step))) >= enough else None
