"""count01/minimal against its claim: every count triple of a cube, by the counts' own formula in plain numpy."""

import inspect
from math import e, exp

import numpy as np
import pytest
import torch
from cases import COUNT01
from closeness import close
from numpy_forward import forward

from interp.errors import InterpError
from interp.families.count01 import Count01
from interp.families.count01.constructions import largest_n2, margin, minimal, threshold
from interp.models.constructions import construct, registered_constructions

TASK = Count01()
FOUR, FIVE, EOS = 5, 6, 7


def weights(N: int) -> dict[str, np.ndarray]:
    """The weights at any N, whatever the range of n2: as the paper prints them, corrected."""
    made = construct("count01/minimal", N=max(N, 8)).weights.tensors
    W = {name: tensor.numpy().copy() for name, tensor in made.items()}
    W["embed.W_E"][:, 0] = [0, N, N + 1, 0, 1, N**2, N**2, 0]
    a = (e * (N + 1) + N) / (1 + e)
    W["unembed.b_U"][5:] = [-a - 1, a + 1, -12 * (N + 1)]
    return W


def logits_at_equals(W: dict[str, np.ndarray], n0: np.ndarray, n1: np.ndarray, n2: np.ndarray) -> np.ndarray:
    """Logits (..., 8) at '=': one [BOS], one '=' and so many of each count, the softmax weighted by multiplicity."""
    x = W["embed.W_E"][:, 0]
    q, k, v, o = (W[f"blocks.0.attn.W_{name}"].item() for name in "QKVO")
    scores = (x[4] * q) * (x * k)
    share = np.exp(scores - scores[[0, 1, 2, 3, 4]].max())
    numbers = {0: 1, 1: n0, 2: n1, 3: n2, 4: 1}
    total = sum(number * share[token] for token, number in numbers.items())
    y = sum(number * share[token] * x[token] * v * o for token, number in numbers.items()) / total
    return (x[4] + y)[..., None] * W["unembed.W_U"][0] + W["unembed.b_U"]


def errors_in_the_cube(N: int, high: int = 200) -> int:
    """Wrong answers over n0, n1, n2 in 0..high, one plane of n0 at a time."""
    W, wrong = weights(N), 0
    n1, n2 = np.meshgrid(np.arange(high + 1), np.arange(high + 1), indexing="ij")
    for n0 in range(high + 1):
        answers = logits_at_equals(W, np.full_like(n1, n0), n1, n2).argmax(-1)
        wrong += int((answers != np.where(n1 > n0, FOUR, FIVE)).sum())
    return wrong


# ---------------------------------------------------------------- the claim


def test_the_formula_of_this_file_is_the_forward_pass() -> None:
    made = construct("count01/minimal")
    for counts in ((0, 0, 0), (3, 4, 2), (1, 0, 0), (5, 5, 5), (0, 1, 9)):
        body = [symbol for symbol, number in zip((1, 2, 3), counts) for _ in range(number)]
        full, _ = forward(made.spec, made.weights.tensors, [0, *body, 4])
        close(logits_at_equals(weights(8), *(np.array(number) for number in counts)), full[-1], atol=1e-12)


def test_its_weights_are_the_construction_s() -> None:
    for N in (8, 9, 12):
        made = construct("count01/minimal", N=N).weights.tensors
        assert all((weights(N)[name] == tensor.numpy()).all() for name, tensor in made.items())


@pytest.mark.parametrize(("N", "wrong"), [(8, 0), (9, 0), (7, 20_000), (12, 0)])
@pytest.mark.thinned(4)
def test_every_triple_of_the_cube(N: int, wrong: int) -> None:
    """8,120,601 inputs. N = 7 is forced here: the construction refuses it for 200 2s, and rightly."""
    assert errors_in_the_cube(N) == wrong


@pytest.mark.parametrize(("body", "answer"), COUNT01.items())
def test_cases_by_the_model(body: str, answer: str) -> None:
    model = construct("count01/minimal").model()
    tokens = torch.tensor([TASK.parse(f"[BOS]{body}={answer}[EOS]")])
    assert TASK.vocabulary[int(model.predict(tokens))] == answer
    assert int(model(tokens)[0, -2].argmax()) == EOS


@pytest.mark.parametrize("split", TASK.splits)
def test_samples_of_every_split(split: str) -> None:
    model, batch = construct("count01/minimal").model(), TASK.sample(200, split, seed=5)
    assert model.predict(batch.tokens).equal(batch.labels)
    assert (model(batch.tokens)[torch.arange(200), batch.lengths - 2].argmax(1) == EOS).all()


# ---------------------------------------------------------------- its ranges


@pytest.mark.parametrize(("N", "wanted"), [(7, 100), (8, 246), (9, 605), (10, 1497)])
def test_largest_n2(N: int, wanted: int) -> None:
    """The bound of the docstring, and both sides of it: the worst inputs are n1 = n0 + 1 at large counts."""
    assert largest_n2(N) == wanted
    n0 = np.arange(2000)
    for n2, right in ((wanted, True), (wanted + 1, False)):
        answers = logits_at_equals(weights(N), n0, n0 + 1, np.full_like(n0, n2)).argmax(-1)
        assert (answers == FOUR).all() == right


def test_the_end_is_right_from_3_on_and_wrong_at_2() -> None:
    for N, right in ((2, False), (3, True), (4, True), (8, True)):
        W = {name: torch.from_numpy(value) for name, value in weights(N).items()}
        spec = construct("count01/minimal").spec
        ends = []
        for body, answer in (("0", "5"), ("1", "4"), ("0120", "5"), ("1121", "4")):
            logits, _ = forward(spec, W, TASK.parse(f"[BOS]{body}={answer}[EOS]"))
            ends.append(logits[-2].argmax() == EOS)
        assert all(ends) == right, N


@pytest.mark.parametrize(
    ("N", "n_max"),
    [(8, 1), (8, 2), (8, 20), (9, 20), (12, 20), (4, largest_n2(4)), (5, largest_n2(5)), (6, largest_n2(6))],
)
def test_margin_is_the_smallest_distance(N: int, n_max: int) -> None:
    """By brute force over the cube: the lead over the other tokens, at 0; half that over the wrong answer."""
    n = np.arange(n_max + 1)
    n0, n1, n2 = np.meshgrid(n, n, n, indexing="ij")
    logits = logits_at_equals(weights(N), n0, n1, n2)
    ordered = np.sort(logits, -1)
    assert margin(N, n_max) == pytest.approx((ordered[..., -1] - ordered[..., -2]).min(), rel=1e-6, abs=1e-13)
    against = np.abs(logits[..., FOUR] - logits[..., FIVE])
    assert margin(N, n_max) == pytest.approx(against.min() / 2, rel=1e-6, abs=1e-13)


def test_the_margin_of_the_paper_s_size() -> None:
    assert 2 * margin(8, 200) == pytest.approx(2.7e-5, rel=0.02)  # errata: '4' against '5'
    assert construct("count01/minimal").weights.margin == margin(8, 200)


@pytest.mark.parametrize(("sizes", "word"), [
    ({"N": 7}, "at most 100 2s, not n_max = 200; the smallest N that is enough is 8"),
    ({"N": 8, "n_max": 247}, "at most 246"),
    ({"N": 2}, "N = 2"),
    ({"N": True}, "N = True"),
    ({"N": 31}, "N = 31 is too large"),
    ({"N": 26, "n_max": 200}, "too large"),
    ({"n_max": 0}, "n_max = 0"),
])  # fmt: skip
def test_what_would_be_wrong_is_refused(sizes: dict[str, int], word: str) -> None:
    with pytest.raises(InterpError) as error:
        inspect.unwrap(minimal)(**sizes)  # past the type checks of the tests, as a user would meet it
    assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_the_limits_are_reached() -> None:
    assert dict(minimal(N=8, n_max=246).spec.origin.arguments) == {"N": 8, "n_max": 246}
    assert minimal(N=7, n_max=100).weights.margin > 0
    assert threshold(8) == (e * 9 + 8) / (1 + e)
    assert largest_n2(7) == int((exp(8) / (1 + e) + e) / threshold(7) - 1 - e)


def test_it_is_registered_with_its_sizes() -> None:
    entry = registered_constructions()["count01/minimal"]
    assert entry.sizes == {"N": 8, "n_max": 200}
    assert entry.variants == ()
    assert "at most n_max" in entry.summary
    assert "200" in construct("count01/minimal").weights.claim
