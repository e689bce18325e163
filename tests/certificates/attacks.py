"""Attacks on the checker's arithmetic: random models, and bounds that are a little too good to be true.

    python tests/certificates/attacks.py --count 1000 --seed 0

The truth is every input of a small domain, run by the model itself in float64. Evidence that claims a margin above the
true one, even by 1e-9 of the scale, must be refused, and evidence that claims less and cuts the domain into single
inputs must hold: a checker that refuses everything would pass the first test. The rounding that the checker allows for
must cover what float32 does.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
from interp.architecture.task_model import TaskModel
from interp.certificates.evidence import weights_sha256
from interp.spec import ModelSpec

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("bare_checker", ROOT / "interp" / "certificates" / "check.py")
assert _spec is not None
assert _spec.loader is not None
check = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check)


def drawn(spec: ModelSpec, rng: random.Random, size: float) -> TaskModel:
    """A model with random float32 weights, in float64; sometimes with zeros, ties and extreme scores."""
    model = TaskModel(spec, seed=rng.randrange(10**6), dtype="float64")
    generator = torch.Generator().manual_seed(rng.randrange(10**6))
    extreme = rng.choice([0.0, 1.0, 1.0, 4.0])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * size
            if "W_Q" in name:
                values = values * extreme
            if rng.random() < 0.1:
                values = values.round()
            parameter.copy_(values.float().double())
    return model


def in_float32(model: TaskModel) -> TaskModel:
    return TaskModel(model.spec, tensors={n: p.detach().float() for n, p in model.named_parameters()}, dtype="float32")


def evidence_of(model: TaskModel, kind: str, domain: Any, parts: Any, margin: float, form: str) -> dict[str, Any]:
    weights = {name: {"shape": list(p.shape), "values": [x.hex() for x in p.detach().double().flatten().tolist()]}
               for name, p in model.named_parameters()}  # fmt: skip
    claim = {"kind": kind, "domain": domain, "format": form, "margin": margin.hex(), "sentence": "?"}
    return {"evidence": 1, "model": model.spec.id, "spec": model.spec.to_dict(), "weights": weights,
            "weights_sha256": weights_sha256(model), "claim": claim, "parts": parts}  # fmt: skip


def fault_of(evidence: dict[str, Any]) -> str:
    """What the checker says against it, but for the sentence; empty if nothing."""
    try:
        check.check(evidence)
    except check.Fault as fault:
        return "" if str(fault).startswith("the claim says") else str(fault)
    raise AssertionError("the sentence '?' was accepted")


def expect(evidence: dict[str, Any], refused: bool) -> None:
    said = fault_of(evidence)
    if refused != bool(said):
        raise AssertionError(f"{'accepted' if refused else 'refused'}: {evidence['claim']}: {said}")


# ---------------------------------------------------------------- one model of each kind


def counts(rng: random.Random) -> None:
    heads, d = rng.choice([(1, 1), (1, 3), (2, 3), (4, 2)]), 0
    heads, d = heads
    layer = {"n_heads": heads, "d_head": d, "scale": rng.choice([1.0, 0.5, "inv_sqrt_d_head"])}
    layer |= {"norm": "pre", "bias": {"o": True}} if rng.random() < 0.4 else {}
    spec = ModelSpec.from_dict({"task": {"name": "count01"}, "d_model": rng.choice([2, 4]), "layers": [layer],
                                "readout_at": "=", "dtype": "float64"})  # fmt: skip
    model = drawn(spec, rng, rng.choice([0.3, 1.0, 2.0]))
    sides = [sorted((rng.randrange(12), rng.randrange(12))) for _ in range(3)]
    n = torch.tensor(list(product(*(range(low, high + 1) for low, high in sides))))
    batch = model.task.sentences(n)
    places = (batch.tokens == 4).int().argmax(1)
    with torch.no_grad():
        out = model(batch.tokens)[torch.arange(len(n)), places].numpy()
    right = np.where(n[:, 1] > n[:, 0], 5, 6)
    # Zones whose answer is one: the true margin of the whole zone, for and against every rival.
    low, high = [s[0] for s in sides], [s[1] for s in sides]
    for answer in (5, 6):
        here = right == answer
        if not here.any():
            continue
        d0, d1 = (1, 99) if answer == 5 else (-99, 0)
        zone = check.Zone((*low, max(d0, low[1] - high[0])), (*high, min(d1, high[1] - low[0])))
        asked = check.asked_by(checker_model(model), 4, 8, 8, 40, check.FORMATS["float32"])
        for j in range(8):
            if j == answer:
                continue
            for first, second in ((answer, j), (j, answer)):
                truth = float((out[here, first] - out[here, second]).min())
                offset = asked.base[first].lo - asked.base[second].hi
                bound = check.least(zone, offset, check.heads_of(asked, (first, second))) - asked.slack
                assert bound / check.ONE <= truth + 1e-9 * (1 + abs(truth)), (bound / check.ONE, truth)
                if zone.low[:3] == zone.high[:3]:
                    assert bound / check.ONE >= truth - 1e-7 * (1 + abs(truth)), (bound / check.ONE, truth)
    with torch.no_grad():
        rounded = in_float32(model)(batch.tokens)[torch.arange(len(n)), places].double().numpy()
    moved = np.abs((rounded - out)[:, :, None] - (rounded - out)[:, None]).max()
    assert moved <= asked.rounding / check.ONE, (moved, asked.rounding / check.ONE)


def checker_model(model: TaskModel) -> Any:
    evidence = evidence_of(model, "counts", {}, [], 1.0, "reals")
    return check.Model(evidence["spec"], evidence["weights"], evidence["model"], evidence["weights_sha256"])


def maxima(rng: random.Random) -> None:
    K, v = rng.choice([1, 2, 3]), rng.choice([2, 3, 5])
    layer = {"d_head": rng.choice([1, 3]), "bias": rng.choice([{}, {"o": True}, {"v": True, "q": True}])}
    spec = ModelSpec.from_dict({"task": {"name": "max-of-k", "parameters": {"K": K, "v": v}}, "d_model": 3,
                                "layers": [layer], "readout_at": "=", "dtype": "float64"})  # fmt: skip
    model = drawn(spec, rng, rng.choice([0.3, 1.0]))
    rows = torch.tensor(list(product(range(v), repeat=K)))
    tokens = torch.cat([rows, torch.full((len(rows), 1), v)], 1)
    with torch.no_grad():
        out = model(tokens)[:, -1].numpy()
    asked = check.asked_by(checker_model(model), v, v + 1, v, K + 1, check.FORMATS["float32"])
    scale = 1 + np.abs(out).max()
    for m in range(v):
        here, mine = rows.amax(1).numpy() == m, out[:, m].copy()
        rivals = np.delete(out, m, 1)
        worst = float((mine[:, None] - rivals)[here].min())
        singles, picks = [], check.combinations_with_replacement(range(m + 1), K - 1)
        for pick in picks:
            at = int((rows.sort(1).values == torch.tensor(sorted((*pick, m)))).all(1).nonzero()[0])
            gap = float(mine[at] - rivals[at].max())
            rival = int(np.delete(np.arange(v), m)[rivals[at].argmax()])
            singles.append((gap, rival))
        for extra in (1e-9, -1e-9):
            said = [stated(gap - extra * scale) if gap > 0 else [rival, stated(-gap - extra * scale)]
                    for gap, rival in singles]  # fmt: skip
            attempts = [said] if extra > 0 else [stated(worst + 1e-9 * scale), said]
            for part in attempts:
                try:
                    check.one_maximum(asked, K, v, m, part)
                except check.Fault:
                    assert extra < 0, "true bounds of single multisets were refused"
                else:
                    assert extra > 0, "a bound above the truth was accepted"
    with torch.no_grad():
        moved = in_float32(model)(tokens)[:, -1].double().numpy() - out
    moved = np.abs(moved[:, :, None] - moved[:, None]).max()
    assert moved <= asked.rounding / check.ONE, (moved, asked.rounding / check.ONE)


def sequences(rng: random.Random) -> None:
    T, L, zero = rng.choice([1, 2, 3, 4]), rng.choice([1, 2, 3, 4]), rng.random() < 0.5
    zero = zero or L == 1  # two outputs at least
    mixing, softmax = rng.choice(["dot", "linear"]), rng.random() < 0.5
    bos, d = mixing == "dot" and rng.random() < 0.5, rng.choice([2, 3])
    layer = {"d_head": d, "mixing": mixing, "normalizer": "softmax" if softmax else "none", "value_output": "identity",
             "scale": rng.choice([1.0, "inv_sqrt_d_model"])}  # fmt: skip
    plain = {"task": {"name": "histogram", "parameters": {"T": T, "L": L, "bos": bos, "zero_class": zero}},
             "d_model": d, "layers": [layer], "direction": "bidirectional", "readout": "relu_mlp",
             "readout_width": rng.choice([1, 3, 6]), "dtype": "float64"}  # fmt: skip
    spec = ModelSpec.from_dict(plain | ({"max_length": L} if mixing == "linear" else {}))
    model = drawn(spec, rng, rng.choice([0.3, 1.0]))
    with torch.no_grad():  # make count c's output the largest on the whole domain, by a random distance
        every = model.task.all_sequences()
        out, classes = model(every.tokens)[:, int(bos) :], model.task.classes(every)[:, int(bos) :]
        # All classes get the readout of one: then only biases decide, and margins are those of nearly equal outputs.
        model.unembed.W_out.copy_(model.unembed.W_out[:, :1] + 0.02 * model.unembed.W_out)
        out = model(every.tokens)[:, int(bos) :]
        one_hot = torch.nn.functional.one_hot(classes, out.shape[-1]).bool()
    margins = out.masked_fill(one_hot, -np.inf).amax(-1)
    margins = (out[one_hot].reshape(margins.shape) - margins).numpy()
    counts_ = (classes + (0 if zero else 1)).numpy()
    tokens = every.tokens[:, int(bos) :].numpy()
    shared_evidence = evidence_of(model, "sequences", {}, [], 1.0, "reals")
    real = checker_model(model)
    jobs: list[Any] = []

    def spread(function: Any, *lists: Any) -> list[Any]:
        jobs.append(function.args[0])
        raise check.Fault("enough")

    try:
        check.sequences(real, {}, [None] * T, check.FORMATS["float32"], spread)
    except check.Fault as fault:
        if str(fault) != "enough":
            return  # weights that cannot be told from 0
    shared = jobs[0]
    worst = 0
    for t in range(T):
        try:
            around = shared.around(t)
        except check.Fault:
            continue
        truth: dict[tuple[int, int], float] = {}
        for row, place in zip(*np.nonzero(tokens == t)):
            key = (int(place) if mixing == "linear" else 0, int(counts_[row, place]))
            truth[key] = min(truth.get(key, np.inf), float(margins[row, place]))
        settled(around, truth, mixing, rng)
        worst = max(worst, shared.rounding(t))
    with torch.no_grad():
        moved = (in_float32(model)(every.tokens)[:, int(bos) :].double() - out).numpy()
    moved = np.abs(moved[..., :, None] - moved[..., None, :]).max()
    assert moved <= worst / check.ONE, (moved, worst / check.ONE)
    assert shared_evidence["model"] == spec.id


def settled(around: Any, truth: dict[tuple[int, int], float], mixing: str, rng: random.Random) -> None:
    """Roots, or parts cut to single multisets: a bound above the truth is refused."""
    order = [o for o in range(around.T) if o != around.t]
    rng.shuffle(order)
    scale = 1 + max(abs(v) for v in truth.values())
    # The checker keeps 128 bits of weights: where one is 2^-48 of another, or slots are bounded apart, it may refuse.
    loose = mixing == "linear" or (around.softmax and min(around.weights) < max(around.weights) >> 48)
    chosen = rng.choice(list(truth))
    for extra, whole_domain in ((1e-9, True), (1e-9, False), (-1e-7, False)):
        said = {key: stated(value + extra * scale if key == chosen else value - scale) for key, value in truth.items()}
        try:
            if mixing == "linear":
                L = around.L
                bounds = [said[place, k] for place in range(L) for k in around.counts]
                check.slots(around, bounds)
            else:
                bounds = []
                for k in around.counts:
                    bounds += [said[0, k]] if whole_domain else cut(around, said[0, k], around.L - k, len(order))
                check.multisets(around, order, bounds)
        except check.Fault:
            assert extra > 0 or loose, "a true bound on single multisets was refused"
        else:
            assert extra < 0, ("a bound above the truth was accepted", chosen, truth[chosen])


def stated(value: float) -> str:
    return float(np.float32(value)).hex() if abs(value) < 1e-30 else float(np.round(value * 2**40) / 2**40).hex()


def cut(around: Any, bound: str, left: int, others: int) -> list[Any]:
    """A part cut to single multisets, in the checker's order."""
    if left == 0 or others <= 1:
        return [bound]
    return [0] + [item for n in range(left + 1) for item in cut(around, bound, left - n, others - 1)]


def strings(rng: random.Random) -> None:
    name = rng.choice(["parity", "one", "first"])
    model = interp.build(f"languages/{name}")
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if not key.startswith("blocks.0.attn.W_Q"):
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(rng.randrange(10**6)))
                kept = parameter != 0 if rng.random() < 0.8 else torch.ones_like(parameter, dtype=torch.bool)
                parameter.add_(kept * (noise * rng.choice([0.0, 1e-3, 0.1])).double())
    longest, margins = rng.choice([1, 2, 4, 6]), []
    for length in range(1, longest + 1):
        batch = model.task.enumerate(length)
        with torch.no_grad():
            out = model(batch.tokens)[:, 0, 0]
        margins.append(float(torch.where(batch.labels, out, -out).min()))
    if min(margins) <= 0:
        return
    seen = [1] if name == "first" else []
    at = rng.randrange(longest)
    for extra in (1e-9, -1.0):
        parts = [stated(m * 1e-6) for m in margins]
        parts[at] = stated(margins[at] * (1 + extra * (1 - 1e-6))) if extra > 0 else stated(margins[at] * 1e-6)
        domain = {"longest": longest, "seen": seen}
        evidence = evidence_of(model, "strings", domain, parts, min(margins) * 2e-7, "reals")
        if extra > 0 and margins[at] > 1e-6:
            expect(evidence, refused=True)


def contexts(rng: random.Random) -> None:
    kind = rng.choice(["bigram", "kgram"])
    parameters = {"N": rng.choice([2, 3, 5]), "M": rng.choice([2, 4])}
    width = rng.choice([2, 3])
    plain = {"task": {"name": kind, "parameters": parameters}, "d_model": width, "positions": "learned",
             "positions_enter": rng.choice(["attention", "residual"]), "max_length": 1 if kind == "bigram" else 2,
             "readout_bias": rng.random() < 0.5, "readout_at": "last",
             "layers": [{"n_heads": rng.choice([1, 3]), "d_head": width, "scale": "inv_sqrt_d_model",
                         **rng.choice([{}, {"query_key": "full", "value_output": "full"}]),
                         **rng.choice([{}, {"mlp": {"d_mlp": 3}}])}]}  # fmt: skip
    model = drawn(ModelSpec.from_dict(plain), rng, rng.choice([0.3, 1.0, 3.0]))
    task = model.task
    tokens = torch.tensor(task.contexts)
    with torch.no_grad():
        out = model(tokens)[:, -1].numpy()
        moved = in_float32(model)(tokens)[:, -1].double().numpy() - out
    moved = np.abs(moved[:, :, None] - moved[:, None]).max()
    parts, least, scale = [], np.inf, 1 + np.abs(out).max()
    for context, logits in zip(task.contexts, out):
        ranked = np.argsort(logits)
        margin = float(logits[ranked[-1]] - logits[ranked[-2]])
        parts.append([list(context), [int(ranked[-1])], stated(margin - 1e-9 * scale)])
        least = min(least, margin)
    if least < 1e-6 * scale:
        return
    domain = {"order": task.order, "outputs": task.n_out, "tokens": task.d_vocab, "errors": []}
    evidence = evidence_of(model, "contexts", domain, parts, least / 2, "reals")
    expect(evidence, refused=False)
    part = rng.choice(parts)
    part[2] = stated(float.fromhex(part[2]) + 3e-9 * scale)
    expect(evidence, refused=True)
    part[2] = stated(least / 2)
    evidence["claim"]["format"] = "float32"
    said = fault_of(evidence)
    assert moved < least / 2 or "rounding" in said or "margin" in said, (moved, least)


KINDS = (counts, maxima, sequences, strings, contexts, sequences)


def run(count: int, seed: int) -> dict[str, int]:
    """So many random models, the kinds in turn; how many of each."""
    done = {**{attack.__name__: 0 for attack in KINDS}, "refused as a whole": 0}
    for number in range(count):
        attack = KINDS[number % len(KINDS)]
        try:
            attack(random.Random(seed * 10**6 + number))
        except AssertionError as error:
            raise AssertionError(f"{attack.__name__}, number {number} of seed {seed}: {error}") from error
        except check.Fault:  # such as weights that vanish beside others
            done["refused as a whole"] += 1
            continue
        done[attack.__name__] += 1
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(run(given.count, given.seed), "random models, no bound above the truth was accepted")


if __name__ == "__main__":
    main()
