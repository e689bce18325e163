"""Attacks on the checker's proofs by places and states: random small decoders, and margins a little above the truth.

The truth is every row of a small adder's task, run by the model itself in float64. Whatever output leads on all rows
that have a token where it is read and a state of the automaton, no larger lead than its own may be proved, in any order
of cuts and along any coordinates; and a smaller one must be, along the values' own.
"""

import importlib
import random
from typing import Any

import numpy as np
import torch
from attack_models import drawn, evidence_of
from bare_checker import check

from interp.families.algorithmic import Addition
from interp.models.spec import ModelSpec

by_places = importlib.import_module("bare_check.places")
FORMS: tuple[dict[str, Any], ...] = (
    {}, {"plus": "0", "equals": "0"}, {"lead": "0"}, {"order": "most", "equals": ""}, {"plus": "", "lead": "["},
)  # fmt: skip


def decoder_spec(rng: random.Random, task: Addition) -> ModelSpec:
    """Every field that the checker's decoder knows, at random."""
    width, gated = rng.choice([2, 4]), rng.random() < 0.4
    layer: dict[str, Any] = {"n_heads": rng.choice([1, 2]), "d_head": width}
    layer["scale"] = rng.choice([1.0, 0.5, "inv_sqrt_d_head", "inv_sqrt_d_model"])
    layer["bias"] = {name: True for name in "qkvo" if rng.random() < 0.3}
    layer |= {"norm": "pre", "norm_kind": "rms", "norm_eps": rng.choice([1e-5, 0.5])} if rng.random() < 0.6 else {}
    layer["query_key_norm"] = rng.random() < 0.3
    if (act := rng.choice([None, "relu", "gelu", "silu"])) is not None:
        layer["mlp"] = {"d_mlp": 3, "activation": act} | ({"gated": True, "bias": False} if gated else {})
    spec = {"task": {"name": "addition", "parameters": dict(task.ref.parameters)}, "d_model": rng.choice([2, 4]),
            "layers": [layer], "positions": rng.choice(["none", "learned", "rotary"]), "dtype": "float64",
            "readout_bias": rng.random() < 0.5, "final_norm": rng.choice(["none", "rms_norm"])}  # fmt: skip
    if spec["positions"] == "learned":
        spec["max_length"] = task.length
    if spec["positions"] == "rotary":
        spec |= {"positions_enter": "attention", "rotary_base": rng.choice([1.5, 3.0, 100.0]),
                 "rotary_pairs": rng.choice(["halves", "adjacent"]), "rotary_dim": rng.choice([2, width])}  # fmt: skip
    if task.n_out == task.d_vocab and rng.random() < 0.4:
        spec |= {"tied_embeddings": True, "readout_bias": False}
    return ModelSpec.from_dict(spec)


def places(rng: random.Random) -> None:
    base = rng.choice([2, 2, 3])
    task = Addition(base=base, digits=rng.choice([1, 2]) if base == 2 else 1, **rng.choice(FORMS))
    model = drawn(decoder_spec(rng, task), rng, rng.choice([0.03, 0.3, 1.0]))
    with torch.no_grad():
        for name, gain in model.named_parameters():
            if name.endswith(".w"):
                gain.copy_((gain + 1).float())
    evidence = evidence_of(model, "places", {}, [], 1e-9, "reals")
    mine = check.Model(*(evidence[name] for name in ("spec", "weights", "model", "weights_sha256")), check.REALS)
    rows = by_places.addition(mine)
    tokens, classes = (torch.cat(parts) for parts in zip(*((b.tokens, task.classes(b)) for b in task.inputs())))
    with torch.no_grad():
        out = model(tokens).double().numpy()
    paths = [walked(rows, row) for row in tokens.tolist()]
    assert set(rows.reads) == set((classes >= 0).any(0).nonzero()[:, 0].tolist()), "read elsewhere than the task is"
    for at, (after, answer) in rows.reads.items():
        groups: dict[tuple[int, int], list[int]] = {}
        for number, path in enumerate(paths):
            assert answer(path[after]) == classes[number, at], "another sum than the task's"
            groups.setdefault((int(tokens[number, at]), path[after]), []).append(number)
        (token, state), chosen = rng.choice(sorted(groups.items()))
        probe_places(rng, mine, rows, (at, token, state), out[chosen, at], 1 + float(np.abs(out).max()))


def walked(rows: Any, tokens: list[int]) -> list[int]:
    """The automaton's states on a row; there is one way to read it."""
    path = [0]
    for place, position in enumerate(rows.order):
        (then,) = [then for state, token, then in rows.steps[place] if (state, token) == (path[-1], tokens[position])]
        path.append(then)
    return path


def probe_places(rng: random.Random, mine: Any, rows: Any, asked: tuple[int, int, int], out: Any, scale: float) -> None:
    """One set of rows: the output that leads on all of them, by how much, and what can be proved."""
    leads = [(out[:, j] - np.delete(out, j, 1).max(1)).min() for j in range(out.shape[1])]
    right, least = int(np.argmax(leads)), float(max(leads))
    if least <= 1e-6 * scale:
        return
    at, token, state = asked
    decoder = mine.as_decoder()
    bases = [coordinates(rng, decoder.width) for _ in range(decoder.heads)]
    order = [place for place, position in enumerate(rows.order) if position < at]
    rng.shuffle(order)

    def holds(margin: float) -> bool:
        sight = by_places.PlaceTerms(decoder, rows, at, token, [[float(x).hex() for x in base.flat] for base in bases])
        states = {0: 0, rows.reads[at][0]: state}
        try:
            sight.prove(states, {}, sight.nothing, order, right, round(margin * 2.0**64))
        except check.Fault:
            return False
        return True

    assert not holds(least + 1e-9 * scale), f"places: more than {least} at {asked}"
    if least > 2e-3 * scale and all((base == np.eye(decoder.width)).all() for base in bases):
        assert holds(least - 1e-3 * scale), f"places: not {least} less a thousandth at {asked}"


def coordinates(rng: random.Random, width: int) -> Any:
    """The values' own, any, or nearly the same ones."""
    noise = np.random.default_rng(rng.randrange(10**6)).uniform(-1, 1, (width, width))
    return rng.choice([np.eye(width), np.eye(width), noise, np.ones((width, width)) + np.eye(width) * 1e-6])
