"""Describe an MLP: a table of a few variables, the largest of a few sums of weights, or what the other files know."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.measures.runs import Part
from interp.models.architecture.blocks import PostNormBlock
from interp.programs import maps
from interp.programs.quantize import Quantized
from interp.programs.read_cells import fill_unmet_cells
from interp.programs.read_own import describe_by_product
from interp.programs.read_sums import FROM_OTHER_ROWS, describe_by_sums, nothing_more
from interp.programs.read_waves import describe_by_waves
from interp.programs.reading import MOST_VALUES, TRIED, Reading, matrix
from interp.programs.steps import Features, Linear, Step, Table

FEW = 16
"""Most values of an MLP for which sums of weights are tried that give each of them exactly."""
NEAR = 0.1
"""Up to which share of the least distance of two values an output has one of them."""
AS_NEAR = 1e-4
"""Difference of distances, as a share of the largest, up to which two values are as near as each other."""
NEARLY = 0.9995
"""Share of the positions at which such sums must give the value: limits between close sums are fitted."""


def describe_mlp(reading: Reading, part: Part) -> None:
    enough = reading.enough()
    quantized = reading.quantized(part)
    if quantized.size == 1:
        reading.minor(part, quantized)
        return
    every = reading.edges(part.layer, shuffled=True)
    for values in (quantized, None):  # values of one effect are one; where these have no description, they stay apart
        values = values or reading.quantized(part, apart=True)
        if values.size == 1 or values.share < enough:
            continue
        if (best := exactly(reading, part, values, every, enough)) is not None:
            return described(reading, part, values, best, enough)
        if describe_by_product(reading, part, values, every):
            return None
    best = loosely(reading, part, quantized, every, enough) if quantized.share >= enough else None
    if best is not None:
        return described(reading, part, quantized, best, enough)
    if not describe_by_waves(reading, part, quantized) and not describe_by_sums(reading, part, quantized):
        reading.keep(part, quantized, "its output is no table over up to three variables, and no sum of weights")
    return None


def described(reading: Reading, part: Part, found: Quantized, step: Step, enough: float) -> None:
    reading.explain(part, found, [step], found.vectors, found.vectors[reading.code(step)], enough)


def exactly(reading: Reading, part: Part, found: Quantized, every: Sequence[str] | None, enough: float) -> Step | None:
    """A table of what has one value, or sums of weights, that give the value at each position."""
    table = as_table(reading, part, found, every, enough, exact=True, levels=False)
    return table or as_sums(reading, part, found, every, enough, exact=True)


def loosely(reading: Reading, part: Part, found: Quantized, every: Sequence[str] | None, enough: float) -> Step | None:
    """A table of rounded values, one of fewer variables, or one of the token, too, which tells marks apart."""
    return (
        as_table(reading, part, found, every, enough, exact=True)
        or as_table(reading, part, found, reading.edges(part.layer), enough)
        or as_table(reading, part, found, every and [*every, "token"], enough, exact=True)
    )


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
    for table in sorted(fitting, key=lambda table: (table.share < 1, not reading.whole(table.of, sources)))[:TRIED]:
        step = Table(str(part), table.of, table.entries, found.names, str(part))
        if reads_all(reading, part, table.of) and reading.stays(part, found.put(reading.code(step))) >= enough:
            return completed(reading, part, found, step)
    return None


def reads_all(reading: Reading, part: Part, names: Sequence[str]) -> bool:
    """Whether all that an MLP reads besides these variables may be from another row: only asked in a finer reading."""
    return not reading.finer or nothing_more(reading, part, names) >= FROM_OTHER_ROWS


def completed(reading: Reading, part: Part, found: Quantized, step: Table) -> Table:
    """The table with entries for combinations of values that never occur, which the MLP is asked for."""
    if isinstance(reading.running.blocks[part.layer], PostNormBlock):
        return step
    low, mask = reading.low(part), reading.running.mask
    codes = reading.codes(mask, part)
    if not set(step.of) <= set(codes):  # not of one value where the part does not matter
        mask, codes = found.needed, reading.codes(found.needed, part)
    return fill_unmet_cells(
        reading, step, codes, mask, part.layer,
        lambda stream: nearest(reading.running.mlp_of(part.layer, stream) @ low, found.vectors @ low),
        met=found.needed[mask],
    )  # fmt: skip


def nearest(points: Float[Tensor, "points d"], centers: Float[Tensor, "centers d"]) -> Int[Tensor, "points"]:
    """The nearest center of each point; of several that are as near (see AS_NEAR), the first."""
    distance = torch.cdist(points, centers)
    return (distance <= distance.amin(1, keepdim=True) + AS_NEAR * distance.amax()).byte().argmax(1)


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
    target = found.code[found.needed]
    if exact and sources is not None:
        more, codes = exchanged(reading, part, found, sources, list(features))
        features, target = {n: torch.cat([features[n], more[n]]) for n in features}, torch.cat([target, codes])
    fit = maps.weighed(target, features, found.size, 1.0 if exact else maps.DETERMINED)
    if not reads_all(reading, part, fit.of):
        fit = maps.weighed(target, features, found.size, 1.0, whole=True)
    if exact and fit.share < NEARLY:
        return None
    weights, bias = tuple(map(matrix, fit.weights)), tuple(fit.bias.tolist())
    step = Linear(str(part), fit.of, weights, bias, found.names, str(part))
    return step if reading.stays(part, found.put(reading.code(step))) >= enough else None


def exchanged(
    reading: Reading, part: Part, found: Quantized, sources: Sequence[str], names: Sequence[str]
) -> tuple[Features, Int[Tensor, "points"]]:
    """What the MLP gives if one source has its value of another position: the variables then, and the value nearest to
    the output, where it is near enough to one.

    On inputs as they are, some combinations of values never occur: which sum of weights decides is seen on these.
    """
    running = reading.running
    if not running.paths or isinstance(running.blocks[part.layer], PostNormBlock):
        sources = []
    low = reading.low(part)
    centers = found.vectors @ low
    near = NEAR * float(torch.pdist(centers).min())
    made, codes = {name: [reading.made[name][:0, 0]] for name in names}, [found.code[:0, 0]]
    written = reading.sources(part)
    for source in sources:
        added = written[source]
        donors = reading.kinds.exchanged(found.needed & reading.matters(source))
        out = running.mlp_on(part.layer, {source: donors(added) - added})[found.needed]
        distance, code = torch.cdist(out @ low, centers).min(1)
        here = reading.remade({name: donors(reading.made[name]) for name in reading.of_part(source)})
        for name in names:
            made[name].append(here[name][found.needed][distance < near])
        codes.append(code[distance < near])
    return {name: torch.cat(pieces) for name, pieces in made.items()}, torch.cat(codes)
