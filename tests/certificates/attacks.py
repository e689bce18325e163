"""Attacks on the checker's arithmetic: random models, and bounds that are a little too good to be true.

    python tests/certificates/attacks.py --count 1000 --seed 0

The truth is every input of a small domain, run by the model itself in float64. Evidence that claims a margin above the
true one, even by 1e-9 of the scale, or other errors, must be refused, and evidence that claims less and cuts the domain
into single inputs must hold: a checker that refuses everything would pass the first test. The rounding that the checker
allows for must cover what float32 does.
"""

import argparse
import random
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import torch
import vandals
from attack_models import drawn, evidence_of, in_float32
from attack_places import places
from bare_checker import check

import interp
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import ModelSpec


def of_a_stranger(evidence: dict[str, Any]) -> dict[str, Any]:
    """The same of a task that the checker does not know: then labels are the file's."""
    spec = {**evidence["spec"], "task": {"name": f"strange-{evidence['spec']['task']['name']}"}}
    vandals.mend_name(made := {**evidence, "spec": spec})
    return made


def fault_of(evidence: dict[str, Any]) -> str:
    """What the checker says against it, but for the sentence; empty if nothing."""
    try:
        check.check(of_a_stranger(evidence) if evidence["claim"]["kind"] == "inputs" else evidence)
    except check.Fault as fault:
        return "" if str(fault).startswith("the claim says") else str(fault)
    raise AssertionError("the sentence '?' was accepted")


def probe(model: TaskModel, kind: str, domain: Any, parts: Any, truth: float, scale: float, tight: bool = True) -> None:
    """A margin above the truth is refused; one a little below it holds, where the parts are single inputs (tight)."""
    slip = 1e-9 * scale
    if not np.isfinite(truth) or truth <= 4 * slip:
        return
    assert fault_of(evidence_of(model, kind, domain, parts, truth + slip, "reals")), f"{kind}: more than {truth}"
    if "errors" in domain:
        other = {**domain, "errors": domain["errors"][1:] if domain["errors"] else [[0, 1]]}
        assert fault_of(evidence_of(model, kind, other, parts, truth / 2, "reals")), f"{kind}: other errors"
    said = fault_of(evidence_of(model, kind, domain, parts, truth - slip if tight else 2 * slip, "reals"))
    if any(words in said for words in ("is not above 0", "are too wide", "is wanted")):
        raise check.Fault(said)  # softmax weights that vanish beside others, or nearly: less than the truth is proved
    assert not said or not tight, f"{kind}: {said}"


def covers(model: TaskModel, kind: str, domain: Any, parts: Any, truth: float, moved: float) -> None:
    """What float32 does is less than what the checker allows for: then a claim about it is refused."""
    for margin in (truth * 0.999, moved * 0.999):
        if margin > 0:
            said = fault_of(evidence_of(model, kind, domain, parts, min(margin, truth * 0.999), "float32"))
            assert said or margin > moved, f"{kind}: {margin} in float32, which moves by {moved}"


def judged(out: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Signed margins of rows of outputs, the least size of one, and the scale."""
    rows = np.arange(len(out))
    rest = out.copy()
    rest[rows, classes] = -np.inf
    margin = out[rows, classes] - rest.max(1)
    return margin, float(np.abs(margin).min()), 1 + float(np.abs(out).max())


def moves(one: np.ndarray, other: np.ndarray) -> float:
    """The largest change of a difference of two outputs."""
    change = one - other
    return float((change.max(-1) - change.min(-1)).max())


# ---------------------------------------------------------------- one model of each kind


def counts(rng: random.Random) -> None:
    heads, d = rng.choice([(1, 1), (1, 3), (2, 3), (4, 2)])
    layer = {"n_heads": heads, "d_head": d, "scale": rng.choice([1.0, 0.5, "inv_sqrt_d_head"])}
    layer |= {"norm": "pre", "bias": {"o": True}} if rng.random() < 0.4 else {}
    spec = ModelSpec.from_dict({"task": {"name": "count01"}, "d_model": rng.choice([2, 4]), "layers": [layer],
                                "readout_at": "=", "dtype": "float64"})  # fmt: skip
    model = drawn(spec, rng, rng.choice([0.3, 1.0, 2.0]))
    box = [sorted((rng.randrange(12), rng.randrange(12))) for _ in range(3)]
    n = torch.tensor(list(product(*(range(low, high + 1) for low, high in box))))
    batch = model.task.sentences(n)
    places = (batch.tokens == 4).int().argmax(1)
    with torch.no_grad():
        both = [m(batch.tokens)[torch.arange(len(n)), places].double().numpy() for m in (model, in_float32(model))]
    out, rounded = both
    margin, least, scale = judged(out, np.where(n[:, 1] > n[:, 0], 5, 6))
    wrong = Counter((n[:, 1] - n[:, 0])[torch.from_numpy(margin <= 0)].tolist())
    rivals = {tuple(row): int(o.argmax()) for row, o, m in zip(n.tolist(), out, margin) if m <= 0}
    (a, b), (c, d), _ = box
    parts = singles([(*row, row[1] - row[0]) for row in n.tolist()], rivals)
    known = {"counted": [1, 2, 3], "marks": [0, 4], "read": 4, "answers": [5, 6]}
    domain = {"box": box, **known, "errors": [[z, wrong[z]] for z in sorted(wrong)]}
    probe(model, "counts", domain, parts, least, scale)
    covers(model, "counts", domain, parts, least, moves(out, rounded))
    if not wrong:  # whole zones of one answer: never more than their truth
        cut = [[3, 0], None, None] if c - b <= 0 < d - a else [None]
        probe(model, "counts", domain, cut, least, scale, tight=False)


def singles(inputs: list[tuple[int, ...]], rivals: dict[tuple[int, ...], int]) -> list[Any]:
    """Cuts of a zone that holds these inputs (n0, n1, n2, n1 - n0) to single ones, right and wrong."""
    for axis in (3, 0, 1, 2):
        values = sorted({x[axis] for x in inputs})
        if len(values) > 1:
            at = 0 if axis == 3 and values[0] <= 0 < values[-1] else values[0]
            halves = [x for x in inputs if x[axis] <= at], [x for x in inputs if x[axis] > at]
            return [[axis, at], *singles(halves[0], rivals), *singles(halves[1], rivals)]
    return [rivals.get(inputs[0][:3])]


def maxima(rng: random.Random) -> None:
    K, v = rng.choice([1, 2, 3]), rng.choice([2, 3, 5])
    layer = {"d_head": rng.choice([1, 3]), "bias": rng.choice([{}, {"o": True}, {"v": True, "q": True}])}
    plain = {"task": {"name": "max-of-k", "parameters": {"K": K, "v": v}}, "d_model": 3, "layers": [layer],
             "readout_at": "=", "dtype": "float64"}  # fmt: skip
    placed = {"positions": "learned", "max_length": K + 1}
    model = drawn(ModelSpec.from_dict(plain | (placed if rng.random() < 0.5 else {})), rng, rng.choice([0.3, 1.0]))
    rows = torch.tensor(list(product(range(v), repeat=K)))
    tokens = torch.cat([rows, torch.full((len(rows), 1), v)], 1)
    with torch.no_grad():
        out, rounded = (m(tokens)[:, -1].double().numpy() for m in (model, in_float32(model)))
    largest = rows.amax(1).numpy()
    margin, least, scale = judged(out, largest)
    wrong = Counter(largest[margin <= 0].tolist())
    domain = {"errors": [[m, wrong[m]] for m in sorted(wrong)]}
    probe(model, "maxima", domain, [], least, scale)
    covers(model, "maxima", domain, [], least, moves(out, rounded))


def sequences(rng: random.Random) -> None:
    """Exact models with noise: every part cut to single multisets, or not cut at all."""
    kind = rng.choice(["dot", "dot-softmax", "bos", "bos-softmax", "lin", "lin-softmax"])
    T, L = rng.choice([2, 3, 4]), rng.choice([2, 3])
    model = interp.build(f"histogram/{kind}-exact", T=T, L=L)
    noise, generator = rng.choice([0.0, 1e-6, 1e-4, 1e-3]), torch.Generator().manual_seed(rng.randrange(10**6))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * noise)
            parameter.copy_(parameter.float())
    every, bos = next(model.task.inputs(chunk=model.task.n_inputs)), int(model.task.bos)
    with torch.no_grad():
        out, rounded = (m(every.tokens)[:, bos:].double().flatten(0, 1).numpy() for m in (model, in_float32(model)))
    margin, least, scale = judged(out, model.task.classes(every)[:, bos:].flatten().numpy())
    if margin.min() <= 0:
        return
    linear, right = kind.startswith("lin"), [n - (not model.task.zero_class) for n in range(1, L + 1)]
    domain = {"counted": list(range(T)), "marks": [T] * bos, "length": L, "classes": right}
    for whole_domain in (True, False):
        parts: list[Any] = [None] * T
        if not linear:
            for token in range(T):
                others = [o for o in range(T) if o != token]
                rng.shuffle(others)
                singles: list[int | None] = [at for k in range(1, L + 1) for at in cut(L - k, others)]
                parts[token] = [None] * L if whole_domain else singles
        probe(model, "sequences", domain, parts, least, scale, tight=not linear and not whole_domain)
        covers(model, "sequences", domain, parts, least, moves(out, rounded))


def cut(left: int, others: list[int]) -> list[int | None]:
    """A part cut to single multisets, in the checker's order."""
    if left == 0 or len(others) <= 1:
        return [None]
    return [others[0], *(at for n in range(left + 1) for at in cut(left - n, others[1:]))]


def strings(rng: random.Random) -> None:
    name = rng.choice(["parity", "one", "first", "palindrome"])
    model = interp.build(f"languages/{name}")
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if not key.startswith("blocks.0.attn.W_Q"):
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(rng.randrange(10**6)))
                kept = parameter != 0 if rng.random() < 0.8 else torch.ones_like(parameter, dtype=torch.bool)
                parameter.add_(kept * (noise * rng.choice([0.0, 1e-3, 0.1])).double())
            parameter.copy_(parameter.float())
    longest, outs, labels, errors = rng.choice([1, 2, 4, 5]), [], [], []
    moved = 0.0
    for length in range(1, longest + 1):
        batch = model.task.enumerate(length)
        with torch.no_grad():
            out, rounded = (m(batch.tokens)[:, 0].double().numpy() for m in (model, in_float32(model)))
        outs.append(np.concatenate([0 * out, out], 1))
        moved = max(moved, float(np.abs(out - rounded).max()))
        labels.append(batch.labels.long().numpy())
        if n := int((judged(outs[-1], labels[-1])[0] <= 0).sum()):
            errors.append([length, n])
    _, least, scale = judged(np.concatenate(outs), np.concatenate(labels))
    for by in ("string", {"parity": "average", "one": "average", "first": "class"}.get(name)):
        if by is not None:
            domain = {"longest": longest, "by": by, "errors": errors}
            probe(model, "strings", domain, [], least, scale, tight=by != "average")
            covers(model, "strings", domain, [], least, moved)


def inputs(rng: random.Random) -> None:
    """A model of any architecture: its outputs on a few inputs are the table's labels."""
    model = drawn(any_spec(rng), rng, rng.choice([0.3, 1.0]))
    spec, n = model.spec, model.spec.max_length or 5
    words = model.embed.W_E.shape[0] - 1
    tokens = torch.tensor([[rng.randrange(words) for _ in range(n)] for _ in range(4)]).unique(dim=0)
    with torch.no_grad():
        out, rounded = (m(tokens).double().numpy() for m in (model, in_float32(model)))
    places = range(n) if spec.readout_at == "all" else [n - 1]
    if spec.decision == "sigmoid":
        out, rounded = (np.concatenate([0 * o, o], 2) for o in (out, rounded))
    classes = np.array([[rng.choice([int(row[p].argmax()), int(row[p].argmax()), 0]) for p in places] for row in out])
    flat, moved = out[:, list(places)].reshape(-1, out.shape[2]), moves(out, rounded)
    margin, least, scale = judged(flat, classes.flatten())
    wrong = [[i // len(places), places[i % len(places)]] for i in np.flatnonzero(margin <= 0).tolist()]
    parts = [[row, [[p, [int(c)]] for p, c in zip(places, said)]] for row, said in zip(tokens.tolist(), classes)]
    domain = {"read": None, "errors": wrong}
    probe(model, "inputs", domain, parts, least, scale)
    covers(model, "inputs", domain, parts, least, moved)


def any_spec(rng: random.Random) -> ModelSpec:
    """Every field that the checker's forward pass knows, at random."""
    d, bidirectional, norm = rng.choice([2, 4]), rng.random() < 0.5, rng.choice(["none", "none", "pre", "post"])
    task = rng.choice(["kgram", "histogram", "parity"])
    layers = []
    for _ in range(rng.choice([1, 2])):
        layer: dict[str, Any] = {"n_heads": 2, "d_head": d, "norm": norm}
        layer["scale"] = rng.choice([0.7, "inv_sqrt_d_model", "inv_sqrt_d_head"])
        layer["query_key"] = rng.choice(["learned", "full"])
        layer["value_output"] = rng.choice(["learned", "full", "identity"])
        bias = {"learned": "qkvo", "full": "qo", "identity": "q"}[layer["value_output"]]
        bias = bias.replace("k", "") if layer["query_key"] == "full" else bias
        layer["bias"] = {name: True for name in bias if rng.random() < 0.5}
        if rng.random() < 0.5:
            layer["mlp"] = {"d_mlp": 3}
        if rng.random() < 0.3:
            layer["log_length"] = rng.choice([7, "current"]) if bidirectional else 7
        elif rng.random() < 0.3:
            layer["normalizer"] = "none"
        if bidirectional and "log_length" not in layer and rng.random() < 0.3:
            layer |= {"mixing": "linear", "bias": {k: v for k, v in layer["bias"].items() if k in "vo"}}
        layers.append(layer)
    spec: dict[str, Any] = {"task": {"name": task}, "d_model": d, "layers": layers, "dtype": "float64"}
    spec |= {"direction": "bidirectional" if bidirectional else "causal"}
    codes = ["none", "learned"]
    codes += [name for name, code in check.model.CODES.items() if bidirectional and len(code(0, 1)) <= d]
    spec["positions"] = rng.choice(codes)
    if spec["positions"] == "learned" and norm == "none" and rng.random() < 0.5:
        spec["positions_enter"] = "attention"
    if spec["positions"] == "learned" or any(layer.get("mixing") == "linear" for layer in layers):
        spec["max_length"] = 4
    if rng.random() < 0.3:
        spec["final_norm"] = "layer_norm"
    if task == "parity":
        return ModelSpec.from_dict(spec | {"readout": "scalar", "decision": "sigmoid", "readout_at": "last"})
    spec |= rng.choice([{"readout": "relu_mlp", "readout_width": 3}, {"readout_bias": False}, {}])
    return ModelSpec.from_dict(spec | {"readout_at": rng.choice(["all", "last"]) if task == "histogram" else "last"})


KINDS = (counts, maxima, sequences, strings, inputs, inputs, places, places)


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
