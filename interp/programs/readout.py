"""How the answer follows from the variables: a table, the sum that the model makes, limits of a sum, or fitted sums."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.measures.subject import no_sum
from interp.programs import maps
from interp.programs.language import Answer, Linear, Step, Table, applied, linear
from interp.programs.read_own import own_weight
from interp.programs.read_waves import as_cosines
from interp.programs.reading import Reading, matrix
from interp.programs.words import same_word

ANSWER = 0.998
"""Share of the model's answers that a table of the readout must give."""


def readout(reading: Reading) -> tuple[Answer, list[Step]] | None:
    """The answer as a table over a few variables, as the sum that the model makes, or as a fitted sum.

    It reads only what reaches the readout by a direct path that matters, and leaves none of these out: first paths that
    cannot carry the values of other positions, so that parts that stand in for each other are all read; then those that
    cannot carry the mean.
    """
    tried = [reading.edges(None, shuffled=True)] if reading.strict else []
    found = []
    for sources in (*tried, reading.edges(None)):
        if (one := over(reading, sources)) is not None:
            if (share := gives(reading, *one)) >= ANSWER:
                return one
            found.append((share, one))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def gives(reading: Reading, answer: Answer, more: Sequence[Step]) -> float:
    """The share of the model's answers that a readout gives."""
    made, reads = dict(reading.made), reading.running.reads
    for step in more:
        made[step.name] = applied(step, made, reading.seen)
    classes = linear(answer, made)[reads.rows, reads.positions].argmax(-1)
    return float((classes == reading.running.answers).double().mean())


def over(reading: Reading, sources: Sequence[str] | None) -> tuple[Answer, list[Step]] | None:
    """The answer over what some sources write (None: not known which); it leaves none of them out."""
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
            given = (reading.made[name][mask] @ torch.tensor(same, dtype=torch.float64)).argmax(1)
            if float((given == target).double().mean()) >= ANSWER:
                return Linear("answer", (name,), (same,), (0.0,) * len(words), words), []
    if (direct := model_sum(reading, sources, mask, words)) is not None:
        cosines = as_cosines(reading, direct[0], mask, ANSWER)
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
    reading: Reading, sources: Sequence[str] | None, mask: Tensor, words: tuple[str, ...]
) -> tuple[Linear, list[Step]] | None:
    """The logits as the model adds them up, where it has no norm before the readout and a linear one."""
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
    total = sum(reading.made[name][mask] @ one for name, one in weights.items())
    bias = (logits - total).mean(0)
    if kind == "sigmoid":
        weights = {name: torch.cat([torch.zeros_like(one), one], 1) for name, one in weights.items()}
        bias = torch.cat([torch.zeros(1).double(), bias])
    step = Linear("answer", tuple(weights), tuple(map(matrix, weights.values())), tuple(bias.tolist()), words)
    given = linear(step, reading.made)[mask].argmax(1)
    return (step, []) if float((given == running.answers).double().mean()) >= 0.99 else None
