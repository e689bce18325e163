"""Read a program out of a model: what matters, what each part that matters is, and the readout.

Parts are described in the order in which they run; earlier ones are already replaced by their descriptions, and each
description takes the part's place in the running model. What has no description keeps its own values. At last the
program runs alone. Heads are described in read_heads.py; MLPs and the readout here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from types import MappingProxyType

import torch
from torch import Tensor

from interp.measures.runs import Part
from interp.models.architecture.blocks import PostNormBlock
from interp.models.subject import no_sum
from interp.programs import maps
from interp.programs.language import Answer, Program
from interp.programs.quantize import KEPT, Quantized
from interp.programs.read_heads import describe_head, elsewhere
from interp.programs.read_own import describe_by_product, own_weight
from interp.programs.read_sums import describe_by_sums
from interp.programs.read_waves import as_cosines, describe_by_waves
from interp.programs.reading import MOST_VALUES, TRIED, Reading, Role, matrix
from interp.programs.relevance import cancelling, stand_ins, used
from interp.programs.running import Kept, Running
from interp.programs.steps import Head, Linear, Step, Table, codes
from interp.programs.words import same_word


def decompile(running: Running, check: Callable[[], None] = lambda: None, strict: bool = True) -> Reading:
    """Describe each part that matters. check: is called often, and may raise to stop; strict: see `Reading`."""
    reading = Reading(running, check, strict)
    batch = reading.running.batch
    reading.made = {"token": codes(batch.tokens, len(reading.task.vocabulary))}
    places = torch.arange(batch.tokens.shape[1]).expand_as(batch.tokens)
    reading.made["position"] = codes(places, batch.tokens.shape[1])
    reading.without = {part: reading.left([part]) for part in reading.running.parts}
    reading.pairs = cancelling(reading.running, reading.kinds, reading.without, reading.left)
    reading.matter = used(reading.running, reading.kinds, reading.check, reading.strict, reading.pairs)
    unused = [part for part in reading.running.parts if part not in reading.matter]
    reading.roles |= {part: Role(str(part), "not used") for part in unused}
    reading.put({part: reading.kinds.means(part) for part in unused})
    for part in reading.matter:
        reading.check()
        (describe_head if part.head is not None else describe_mlp)(reading, part)
    heads = [part for part in reading.matter if isinstance(reading.step(str(part)), Head)]
    reading.elsewhere = {part: elsewhere(reading, part) for part in heads}
    loose = [part for part, share in reading.without.items() if share >= KEPT]
    reading.groups = stand_ins(loose, lambda out: reading.left(out) >= KEPT)
    odd = [part for part in reading.matter if part in loose and not any(part in group for group in reading.groups)]
    reading.moved = {part: reading.left([part], moved=True) for part in odd}
    return reading


def program_of(reading: Reading, found: tuple[Answer, list[Step]] | None = None) -> Program | None:
    """The program of the parts, without steps that nothing reads; None if the answer is not reached.

    found: the answer and the steps before it, if they are known.
    """
    found = found or readout(reading)
    if found is None:
        return None
    answer, more = found
    wanted, kept = set(answer.of), []
    for step in reversed([*reading.steps, *more]):
        if step.name in wanted:
            kept.append(step)
            wanted |= set(step.of)
    if wanted & reading.given:
        return None
    subject = reading.running.subject
    return replace(_of_steps(reading, kept[::-1], answer), read=subject.read_at, pad=reading.task.pad)


def sketch(reading: Reading, program: Program | None) -> Program:
    """All steps so far as a program, with the words of `program`; its answer is constant."""
    answer = Linear("answer", (), (), (0.0,), ("",))
    given = [
        Table(name, (), (0,), tuple(map(str, range(reading.made[name].shape[-1])))) for name in sorted(reading.given)
    ]
    words = {} if program is None else program.words
    return replace(_of_steps(reading, [*given, *reading.steps], answer), words=words)


def _of_steps(reading: Reading, steps: Sequence[Step], answer: Answer) -> Program:
    """A program of these steps over the task's tokens."""
    return Program(
        tuple(reading.task.vocabulary), reading.made["position"].shape[-1], reading.causal, tuple(steps), answer
    )


def alone(reading: Reading, program: Program) -> Kept:
    """How many of the model's answers the program gives by itself."""
    reads = reading.running.reads
    given = program.classes(reading.running.batch.tokens, reading.counts)[reads.rows, reads.positions]
    return Kept.of(given, reading.running.answers)


ANSWER = 0.998
"""Share of the model's answers that a table of the readout must give."""


def readout(reading: Reading) -> tuple[Answer, list[Step]] | None:
    """The answer as a table over a few variables, as the sum that the model makes, or as a fitted sum.

    It reads only what reaches the readout by a direct path that matters, and leaves none of these out: first paths that
    cannot carry the values of other positions, so that parts that stand in for each other are all read; then those that
    cannot carry the mean. Of heads that carry the same, it reads one if this gives as many answers.
    """
    tried = [reading.edges(None, shuffled=True)] if reading.strict else []
    found: list[tuple[tuple[float, float], tuple[Answer, list[Step]]]] = []
    for sources in (*tried, reading.edges(None)):
        copies = {} if sources is None else alike(reading, sources)
        reading.alike |= copies
        for some in [copies, {}] if copies else [{}]:
            if (one := over(reading, sources, some)) is not None:
                kept = reading.answered(*one)
                found.append(((kept.share, kept.least), one))
        if found and (best := max(found, key=lambda pair: pair[0]))[0][0] >= ANSWER:
            return best[1]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def alike(reading: Reading, sources: Sequence[str]) -> dict[str, str]:
    """Heads among the sources that carry what another one does, and which: with its values there, the answers stay.

    Both select by the same variables and read the same. The values are put in place all at once. The head that matters
    less is read as the other, if this can be.
    """
    order = sorted(reading.matter, key=reading.without.__getitem__)
    heads = {str(part): part for part in order if selects(reading.step(str(part))) and str(part) in sources}
    found: dict[str, str] = {}
    edits: dict[Part, Tensor] = {}
    for name, other in product(reversed(heads), heads):
        free = name not in found and other not in found and name not in found.values()
        if free and name != other and selects(reading.step(name)) == selects(reading.step(other)):
            new = {**edits, heads[name]: reading.in_place(heads[name], other)}
            if reading.kept(new).share >= reading.enough():
                found[name], edits = other, new
    return found


def selects(step: Step | None) -> tuple[str, str, str] | None:
    """The variables by which a head selects, and the one that it reads; None for other steps."""
    return (step.query, step.key, step.value) if isinstance(step, Head) else None


def over(
    reading: Reading, every: Sequence[str] | None, copies: Mapping[str, str] = MappingProxyType({})
) -> tuple[Answer, list[Step]] | None:
    """The answer over what some sources write (None: not known which); it leaves none of them out.

    copies: sources that are read as another one.
    """
    sources = None if every is None else [name for name in every if name not in copies]
    running, reads = reading.running, reading.running.reads
    target, words = running.answers, tuple(reading.task.answer_words)
    mask = torch.zeros_like(running.mask)
    mask[reads.rows, reads.positions] = True
    minor = {str(part) for part, role in reading.roles.items() if role.status == "minor"}
    sources = None if sources is None else [name for name in sources if name not in minor]
    readable = [n for n in reading.made if n not in reading.given and reading.allowed(n, sources)
                and not (n == "position" and running.counts is not None)]  # fmt: skip
    codes = reading.codes(mask)
    known = {n: c for n, c in codes.items() if n in readable}
    different = None if sources is None else without_copies(sources, codes)

    plain = {n: c for n, c in known.items() if not n.endswith(" level")}
    for one in maps.tables(target, plain, most=2, enough=ANSWER):
        if reading.whole(one.of, different) and (len(one.of) == 1 or one.cells <= 16):
            return looked_up(one, words)
    for name in readable:  # the value that has the largest share
        if name not in known and reading.holds_tokens(name) and reading.whole((name,), different):
            same = same_word(tuple(reading.task.vocabulary), words)
            largest = Linear("answer", (name,), (same,), (0.0,) * len(words), words)
            if reading.answered(largest).share >= ANSWER:
                return largest, []
    every = None if every is None else [name for name in every if name not in minor]
    if (direct := model_sum(reading, every, mask, words, copies)) is not None:
        cosines = as_cosines(reading, direct[0], ANSWER)
        return direct if cosines is None else (cosines, [])
    for one in maps.tables(target, known, most=3, enough=ANSWER):
        if reading.whole(one.of, different):
            return looked_up(one, words)
    if (found := own_weight(reading, sources, mask, words)) is not None:
        return found
    features = {n: reading.made[n][mask] for n in readable}
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


def without_copies(sources: Sequence[str], codes: maps.Codes) -> list[str]:
    """The sources but for those that have the value of an earlier one at each position, and so say no more."""
    found: list[str] = []
    for name in sources:
        if not any(name in codes and one in codes and codes[name][0].equal(codes[one][0]) for one in found):
            found.append(name)
    return found


def looked_up(one: maps.Lookup, words: tuple[str, ...]) -> tuple[Linear, list[Step]]:
    eye = tuple(tuple(float(i == j) for j in range(len(words))) for i in range(len(words)))
    zero = (0.0,) * len(words)
    if len(one.of) == 1:
        weights = tuple(eye[entry] for entry in one.entries)
        return Linear("answer", one.of, (weights,), zero, words), []
    step = Table("result", one.of, one.entries, words)
    return Linear("answer", ("result",), (eye,), zero, words), [step]


def model_sum(
    reading: Reading, sources: Sequence[str] | None, mask: Tensor, words: tuple[str, ...], copies: Mapping[str, str]
) -> tuple[Linear, list[Step]] | None:
    """The logits as the model adds them up, where it has no norm before the readout and a linear one.

    copies: sources that are read as another one, which has their weights, too.
    """
    running, model = reading.running, reading.running.subject.model
    kind = running.subject.decision.kind
    norm = getattr(model, "ln_final", None)
    if sources is None or no_sum(model) or kind not in ("argmax", "sigmoid"):
        return None
    unembed = model.unembed.W_U.detach().double()
    logits = running.logits[:, : reading.task.n_out].double()
    if norm is not None:  # its divisor is one for all logits
        centered = torch.eye(len(unembed)).double()
        centered -= 0.0 if "RMS" in type(norm).__name__ else 1 / len(unembed)
        unembed = centered * getattr(norm, "w", torch.ones(())).detach().double() @ unembed
        stream = running.stream({}, None, reads=True).double()
        scale = ((stream @ centered).square().mean(1) + norm.eps).sqrt()
        logits = logits * scale[:, None]
    weights: dict[str, Tensor] = {}
    for name in sources:
        if name == "token":
            ids = torch.arange(len(reading.task.vocabulary))
            ids = ids if running.subject.token_ids is None else running.subject.token_ids[ids]
            out = model.embed.W_E[ids].detach().double()
        elif name == "position":
            out = model.pos_embed.W_pos[: reading.made["position"].shape[-1]].detach().double()
        elif name in reading.vectors:
            part = next(one for one in reading.matter if str(one) == name)
            out = reading.vectors[name].double()
            if part.head is not None:
                out = out @ running.blocks[part.layer].attn.W_O[part.head].detach().double()
        else:
            return None
        weights[name] = running.subject.columns(out @ unembed)[:, : reading.task.n_out]
    for name, other in copies.items():
        weights[other] = weights[other] + weights.pop(name)
    total = sum(reading.made[name][mask] @ one for name, one in weights.items())
    bias = (logits - total).mean(0)
    if kind == "sigmoid":
        weights = {name: torch.cat([torch.zeros_like(one), one], 1) for name, one in weights.items()}
        bias = torch.cat([torch.zeros(1).double(), bias])
    step = Linear("answer", tuple(weights), tuple(map(matrix, weights.values())), tuple(bias.tolist()), words)
    return (step, []) if reading.answered(step).share >= 0.99 else None


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
    reading.explain(part, found, [best], found.vectors, found.vectors[reading.code(best)], enough)


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
            return completed(reading, part, found, step)
    return None


def completed(reading: Reading, part: Part, found: Quantized, step: Table) -> Table:
    """The table with entries for combinations of values that never occur.

    The MLP is asked: at a position that has the right token and position, what earlier parts write is exchanged. The
    entries of tokens at positions where they never stand stay as they are.
    """
    running, names = reading.running, [name for name in step.of if name in reading.vectors]
    if not names or not running.paths or isinstance(running.blocks[part.layer], PostNormBlock):
        return step
    known = reading.codes(found.needed, part)
    fixed = {name: known[name] for name in step.of if name not in names}
    sizes = [known[name][1] for name in step.of]
    index, n = maps.joint(known, step.of)
    empty = (torch.bincount(index, minlength=n) == 0).nonzero()[:, 0]
    wanted = {name: (code, size) for name, code, size in zip(step.of, torch.unravel_index(empty, sizes), sizes)}
    there, _ = maps.joint(fixed, tuple(fixed))
    asked, _ = maps.joint({name: wanted[name] for name in fixed}, tuple(fixed))
    first = {cell: at for at, cell in reversed([*enumerate(there.expand(len(index)).tolist())])}
    at = torch.tensor([first.get(cell, -1) for cell in asked.expand(len(empty)).tolist()], dtype=torch.long)
    empty, at, met = empty[at >= 0], at[at >= 0], at >= 0
    stream = running.stream({}, part.layer, reads=False)[found.needed][at]
    for name in names:
        own = next(one for one in reading.matter if str(one) == name)
        new = reading.vectors[name][wanted[name][0][met]]
        new = new if own.head is None else new @ running.blocks[own.layer].attn.W_O[own.head].detach().float().cpu()
        stream = stream + new - running.written(own)[found.needed][at]
    low = reading.low(part)
    given = torch.cdist(running.mlp_of(part.layer, stream) @ low, found.vectors @ low).argmin(1)
    entries = torch.tensor(step.entries)
    entries[empty] = given
    return replace(step, entries=tuple(entries.tolist()))


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
