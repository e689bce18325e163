"""Each bound of a proof by places against every input: the reals lie within, and so does a machine that rounds badly.

The number format of the proofs is made so coarse (unit roundoff 2^-16) that a rounding which is left out shows.
"""

import functools
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from rounded_forward import Machine, forward
from small_adders import stock

from interp.certificates import arithmetic, certify
from interp.certificates.places_forms import Forms
from interp.certificates.places_model import OneLayer
from interp.certificates.places_ranges import Cells, Routes
from interp.certificates.places_search import Proof, ReadProof
from interp.certificates.places_sets import Bounds, Sight, _weights, margins
from interp.families.algorithmic import Addition
from interp.models.subject import Subject
from interp.tasks.automata import declared

COARSE = 2.0**-16
TASK = Addition(base=2, digits=2, plus="0", equals="0")
(PATHS,) = declared(TASK)
ROWS = torch.cat(list(PATHS.every())).numpy()
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
    was, arithmetic.ROUNDOFF[torch.float32] = arithmetic.ROUNDOFF[torch.float32], COARSE
    try:
        proof = Proof.of(certify.converted_subject(Subject.external(model, TASK, outputs=words)), PATHS)
        return next(read for read in proof.reads if read.at == AT)
    finally:
        arithmetic.ROUNDOFF[torch.float32] = was


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(arithmetic.ROUNDOFF, torch.float32, COARSE)
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
        cells = one.routes.all_inputs(read.after)
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
    model: Any = read.proof.model
    out = model(tokens)[:, AT].detach().double().numpy()
    assert np.abs(forward(read.proof.net, ROWS, AT, REALS)["logits"] - out).max() < 1e-5 * (1 + np.abs(out).max())


def test_scores_and_their_rounding(shape: str) -> None:
    read = read_proof(shape)
    net, seen = read.proof.net, read.own.scores.value.shape[2]
    places = np.arange(seen)
    at = (slice(None), ROWS[:, [AT]], places, ROWS[:, :seen])  # heads, rows, places
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


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("outputs", "right"), [(1, 0), (1, 1), (2, 1), (4, 0), (4, 2)])
def test_margins_of_random_forms(outputs: int, right: int) -> None:
    rng = np.random.default_rng(outputs + right)
    n, k, many = 3, 2, 200
    net = Mock(spec=OneLayer, read=torch.from_numpy(rng.normal(size=(n, outputs))),
               b_read=torch.from_numpy(rng.normal(size=outputs)), dtype=torch.float64)  # fmt: skip
    x = Forms(rng.normal(size=(n, many)) * 2, rng.normal(size=(n, k, many)) * 0.3, rng.uniform(0, 0.1, (n, many)),
              rng.uniform(0, 0.1, (n, many)))  # fmt: skip
    filled = rng.uniform(0, 1, (k, many))
    bounds = margins(net, x, filled, right)
    read, bias = net.read.numpy(), net.b_read.numpy()[:, None]

    def lead(share: np.ndarray, off: float) -> np.ndarray:
        """The margin at a corner of each form, and with an error of each logit's own."""
        t, end, slip = (rng.choice([-1.0, 1.0], size=size) for size in ((k, many), (n, many), (2, n, many)))
        value = x.center + (x.slopes * t * share).sum(1) + x.rest * end
        logits = [read.T @ (value + off * x.error * one) + bias for one in slip]
        if outputs == 1:
            return logits[0][0] * (2 * right - 1)
        return logits[0][right] - np.delete(logits[0], right, 0).max(0)

    real = np.array([lead(filled, 0.0) for _ in range(400)])
    own = np.array([lead(np.ones_like(filled), 1.0) for _ in range(2000)])
    width, own_width = bounds.high - bounds.low, bounds.own_high - bounds.own_low
    assert (bounds.low <= real.min(0)).all()
    assert (real.max(0) <= bounds.high).all()
    assert (bounds.own_low <= own.min(0)).all()
    assert (own.max(0) <= bounds.own_high).all()
    assert ((real.min(0) - bounds.low) / width).min() < 1e-9  # some corner is met
    assert ((bounds.high - real.max(0)) / width).min() < 1e-9
    assert ((own.min(0) - bounds.own_low) / own_width).min() < 0.02
    assert ((bounds.own_high - own.max(0)) / own_width).min() < 0.02


def test_what_is_right_or_wrong_is_so_in_the_reals_and_as_run() -> None:
    low, own_low = np.array([[1.0, 1, 0, 1, -2, -2, -np.inf], [0.5, 0, 0.5, -1, -3, -2, -np.inf]])
    high, own_high = np.array([[2.0, 2, 2, 2, -1, -1, np.inf], [2.5, 2, 2, 2, -0.5, 0, np.inf]])
    bounds = Bounds(low, high, own_low, own_high)
    assert bounds.right.tolist() == [True, False, False, False, False, False, False]
    assert bounds.wrong.tolist() == [False, False, False, False, True, False, False]
    assert bounds.rounding.tolist()[:6] == [0.5, 1, 0, 2, 1, 1]
    both = Bounds.joined([(np.array([1]), bounds_at(bounds, 0)), (np.array([0]), bounds_at(bounds, 4))], 2)
    assert (both.low.tolist(), both.high.tolist()) == ([-2, 1], [-1, 2])
    assert (both.own_low.tolist(), both.own_high.tolist()) == ([-3, 0.5], [-0.5, 2.5])


def bounds_at(bounds: Bounds, index: int) -> Bounds:
    return Bounds(*(part[[index]] for part in (bounds.low, bounds.high, bounds.own_low, bounds.own_high)))


def test_a_place_that_hardly_counts_leaves_no_bound_of_sums() -> None:
    """Weights within e^-400 of the largest at some place, or nothing is said but the whole range."""
    routes = Routes.of(PATHS, AT, 0)
    usable = np.zeros((PATHS.length, TASK.d_vocab), dtype=bool)
    for place, (_, tokens, _) in enumerate(routes.steps):
        usable[place, tokens] = True
    zero = np.zeros(usable.shape)
    for lightest, slack in ((-399.0, False), (-401.0, True)):
        score = np.full(usable.shape, lightest)
        score[tuple(np.argwhere(usable)[0])] = 0.0
        alone = usable[np.argwhere(usable)[0][0]].sum() == 1
        weight, found, _ = _weights([score, zero, zero], usable, routes, 2.0**-24)
        assert (found == 1.0) == (slack and not alone)
        assert weight.max() == 1
        assert (weight[~usable] == 0).all()
    _, found, slip = _weights([zero, zero + 0.2, zero + 0.3], usable, routes, 2.0**-24)
    assert found == 1.0  # a tenth off or more
    assert slip == pytest.approx(np.expm1(0.3) / 2 / (1 - np.expm1(0.3)), rel=1e-4)
    _, found, slip = _weights([zero, zero + 0.02, zero + 0.6], usable, routes, 2.0**-24)
    assert found == pytest.approx(3 * np.expm1(0.02), rel=1e-6)
    assert slip == np.inf
