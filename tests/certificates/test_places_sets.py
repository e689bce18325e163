"""Each bound of a proof by places against every input: the reals lie within, and so does a machine that rounds badly.

The number format of the proofs is made so coarse (unit roundoff 2^-16) that a rounding which is left out shows.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from rounded_forward import Machine, forward
from small_adders import stock

from interp.certificates.arithmetic import ROUNDOFF
from interp.certificates.places import Proof, ReadProof
from interp.certificates.places_ranges import Cells
from interp.certificates.places_sets import Sight
from interp.measures.subject import Subject
from interp.tasks import Addition
from interp.tasks.automata import declared

COARSE = 2.0**-16
TASK = Addition(base=2, digits=2, plus="0", equals="0")
(PATHS,) = declared(TASK)
ROWS = torch.cat(list(PATHS.rows())).numpy()
STATES = PATHS.walk(torch.from_numpy(ROWS))
AT = sorted(PATHS.reads)[1]
SHAPES: dict[str, dict[str, Any]] = {
    "rms, gelu": {"normalization_type": "RMS", "act_fn": "gelu", "n_heads": 1},
    "layer norm, silu, alibi": {"normalization_type": "LN", "act_fn": "silu", "positional_embedding_type": "alibi"},
    "gated, query-key norm": {"normalization_type": "RMS", "act_fn": "gelu_new", "gated_mlp": True,
                              "use_qk_norm": True},
    "rotary, two heads": {"normalization_type": None, "act_fn": "relu", "positional_embedding_type": "rotary",
                          "n_heads": 2},
    "attention alone": {"attn_only": True, "normalization_type": "LNPre", "n_heads": 2},
}  # fmt: skip
PLAIN = {"attn_only": False, "gated_mlp": False, "use_qk_norm": False, "positional_embedding_type": "standard",
         "n_heads": 1, "d_model": 4, "d_head": 2, "d_mlp": 3, "d_vocab_out": TASK.n_out}  # fmt: skip
USED = {"rms, gelu": (0.1, 0.05, 0.02), "layer norm, silu, alibi": (0.05, 0.017, 1e-4),
        "gated, query-key norm": (0.05, 0.035, 0.02), "rotary, two heads": (0.35, 0.13, 0.05),
        "attention alone": (0.06, 0.009, 0.0025)}  # fmt: skip
"""Which share of its bound the rounding of scores, stream and margins comes to at least: no bound is idle."""


@functools.cache
def read_proof(name: str) -> ReadProof:
    """The proof's bounds at one position of a small random model, for the coarse format."""
    rng = np.random.default_rng(list(SHAPES).index(name))
    model = stock(rng, TASK, TASK.length, **(PLAIN | SHAPES[name]))
    words = {word: at for at, word in enumerate(TASK.answer_words)}
    was, ROUNDOFF[torch.float32] = ROUNDOFF[torch.float32], COARSE
    try:
        proof = Proof.of(Subject.of(model, TASK, outputs=words), PATHS)
        return next(read for read in proof.reads if read.at == AT)
    finally:
        ROUNDOFF[torch.float32] = was


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(ROUNDOFF, torch.float32, COARSE)
    return request.param


MACHINES = [Machine(COARSE, 1), Machine(COARSE, -1), *(Machine(COARSE, 0, seed) for seed in range(4))]
REALS = Machine(0.0)


def inside(cells: Cells, index: int, token: int) -> np.ndarray:
    """Which rows lie in a cell."""
    found = ROWS[:, AT] == token
    for cut, states in cells.states.items():
        found &= STATES[:, cut] == states[index]
    for place, tokens in cells.tokens.items():
        found &= ROWS[:, PATHS.order[place]] == tokens[index]
    return found


def some_sets(read: ReadProof) -> list[tuple[Sight, Cells]]:
    """All inputs, parted once, twice and at every place that matters."""
    found = []
    for one in read.sights():
        cells = one.routes.whole(read.after)
        for place in [None, *read.order]:
            cells = cells if place is None else one.routes.split(cells, place)
            found.append((one, cells))
    return found


def margin(out: np.ndarray, right: np.ndarray) -> np.ndarray:
    rows = np.arange(len(out))
    others = out.copy()
    others[rows, right] = -np.inf
    return out[rows, right] - others.max(1)


def test_the_reference_is_the_model(shape: str) -> None:
    read, tokens = read_proof(shape), torch.from_numpy(ROWS)
    model: Any = read.proof.subject.model
    out = model(tokens)[:, AT].detach().double().numpy()
    assert np.abs(forward(read.proof.net, ROWS, AT, REALS)["logits"] - out).max() < 1e-5 * (1 + np.abs(out).max())


def test_scores_and_their_rounding(shape: str) -> None:
    read = read_proof(shape)
    net, seen = read.proof.net, read.own.scores.value.shape[2]
    places = np.arange(seen)
    asked = ROWS[:, [AT]]
    at = (slice(None), asked, places, ROWS[:, :seen])  # heads, rows, places
    true = forward(net, ROWS, AT, REALS)["scores"].swapaxes(0, 1)
    assert np.abs(read.real.scores.value.numpy()[at] - true).max() <= read.real.scores.error.numpy()[at].max() < 1e-10
    off = np.max([np.abs(forward(net, ROWS, AT, machine)["scores"].swapaxes(0, 1) - true) for machine in MACHINES], 0)
    error = read.own.scores.error.numpy()[at]
    assert (off <= error).all()
    assert (off / error).max() > USED[shape][0]


def test_the_stream_behind_attention(shape: str) -> None:
    """Over each set: along random directions, too, so that parts which move together count once."""
    read = read_proof(shape)
    net = read.proof.net
    true = forward(net, ROWS, AT, REALS)["stream"]
    run = np.stack([forward(net, ROWS, AT, machine)["stream"] for machine in MACHINES])
    turns = np.concatenate([np.eye(true.shape[1]), np.random.default_rng(0).normal(size=(8, true.shape[1]))])
    filled_most = used_most = 0.0
    for one, cells in some_sets(read):
        forms, filled = one.stream_of(cells)
        center = turns @ forms.center
        slopes, rest = np.abs(np.einsum("tn,nkc->tkc", turns, forms.slopes)), np.abs(turns) @ forms.rest
        real = (slopes * filled).sum(1) + rest
        own = slopes.sum(1) + rest + np.abs(turns) @ forms.error
        for index in range(len(cells)):
            rows = inside(cells, index, one.token)
            off = np.abs(true[rows] @ turns.T - center[:, index])
            assert (off <= real[:, index]).all()
            moved = np.abs(run[:, rows] @ turns.T - center[:, index])
            assert (moved <= own[:, index]).all()
            filled_most = max(filled_most, float((off / real[:, index]).max()))
            if rows.sum() == 1 and real[:, index].max() < 1e-6:  # one input: all else is rounding
                used_most = max(used_most, float((moved / own[:, index]).max()))
    assert filled_most > 0.9
    assert used_most > USED[shape][1]


def test_margins_of_every_set(shape: str) -> None:
    read = read_proof(shape)
    net, right_of = read.proof.net, read.proof.right(AT)
    right = right_of[STATES[:, read.after]]
    true = margin(forward(net, ROWS, AT, REALS)["logits"], right)
    run = np.stack([margin(forward(net, ROWS, AT, machine)["logits"], right) for machine in MACHINES])
    used_most = 0.0
    for one, cells in some_sets(read):
        bounds = one.bounds(cells, right_of[cells.states[read.after]])
        for index in range(len(cells)):
            rows = inside(cells, index, one.token)
            assert (true[rows] >= bounds.low[index]).all()
            assert (true[rows] <= bounds.high[index]).all()
            assert (run[:, rows] >= bounds.own_low[index]).all()
            assert (run[:, rows] <= bounds.own_high[index]).all()
            if rows.sum() == 1:
                reach = bounds.high[index] - bounds.own_low[index], bounds.own_high[index] - bounds.low[index]
                used_most = max(used_most, float((true[rows] - run[:, rows]).max() / reach[0]),
                                float((run[:, rows] - true[rows]).max() / reach[1]))  # fmt: skip
    assert used_most > USED[shape][2]
