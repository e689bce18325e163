"""The exact classics: right on every input, with the margins that their proofs state; forward passes in numpy."""

import math

import numpy as np
import pytest
import torch
from closeness import close
from numpy_forward import softmax

import interp
from interp.families.algorithmic import Induction
from interp.families.algorithmic.constructions.induction import margin
from interp.models.constructions import construct


def numpy_logits(tensors: dict[str, torch.Tensor], tokens: np.ndarray) -> np.ndarray:
    """A causal transformer without norms and scaling, at every position: (rows, length, n_out)."""
    p = {name: tensor.numpy() for name, tensor in tensors.items()}
    x = p["embed.W_E"][tokens]
    if "pos_embed.W_pos" in p:
        x = x + p["pos_embed.W_pos"][: tokens.shape[1]]
    hidden = np.triu(np.full((tokens.shape[1],) * 2, -np.inf), 1)
    for index in range(2):
        if f"blocks.{index}.attn.W_Q" not in p:
            break
        q, k, v = (np.einsum("bld,hde->bhle", x, p[f"blocks.{index}.attn.W_{name}"]) for name in "QKV")
        q = q + p.get(f"blocks.{index}.attn.b_Q", np.zeros((q.shape[1], 1)))[:, None]
        mixed = softmax(q @ k.swapaxes(2, 3) + hidden) @ v
        x = x + np.einsum("bhle,hed->bld", mixed, p[f"blocks.{index}.attn.W_O"])
        if f"blocks.{index}.mlp.W_in" in p:
            hid = np.maximum(x @ p[f"blocks.{index}.mlp.W_in"] + p[f"blocks.{index}.mlp.b_in"], 0)
            x = x + hid @ p[f"blocks.{index}.mlp.W_out"] + p[f"blocks.{index}.mlp.b_out"]
    return x @ p["unembed.W_U"] + p.get("unembed.b_U", 0)


def margins(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    right = np.take_along_axis(logits, labels[..., None], -1)
    others = logits.copy()
    np.put_along_axis(others, labels[..., None], -np.inf, -1)
    return right[..., 0] - others.max(-1)


@pytest.mark.parametrize(("K", "v", "beta"), [(1, 5, 1.2), (2, 6, 1.1), (3, 5, 1.5), (4, 7, 8.0)])
def test_max_of_k_is_right_everywhere_with_the_proved_margin(K: int, v: int, beta: float) -> None:
    built = construct("algorithmic/max-of-k-exact", K=K, v=v, beta=beta)
    tokens = torch.cat([batch.tokens for batch in built.task.inputs()]).numpy()
    found = margins(numpy_logits(built.weights.tensors, tokens)[:, -1], tokens[:, :-1].max(1))
    assert len(found) == v**K
    assert found.min() == pytest.approx(math.tanh((beta - math.log(K)) / 2), abs=1e-12)
    assert built.weights.margin == pytest.approx(found.min(), abs=1e-12)
    worst = tokens[found.argmin(), :-1]
    assert sorted(worst) == [0] * (K - 1) + [1]


def test_max_of_k_at_the_published_size() -> None:
    model = interp.build("algorithmic/max-of-k-exact")
    batch = model.task.sample(500, seed=3)
    assert torch.equal(model.predict(batch.tokens), batch.labels)
    single = interp.build("algorithmic/max-of-k-exact", dtype="float32")
    assert torch.equal(single.predict(batch.tokens), batch.labels)


@pytest.mark.parametrize(("p", "frequencies"), [(3, "1"), (7, "2 3"), (15, "2 3 5"), (23, "3 5 11")])
def test_modular_addition_has_its_formula_s_logits_on_all_pairs(p: int, frequencies: str) -> None:
    built = construct("algorithmic/modular-addition-fourier", p=p, frequencies=frequencies)
    tokens = torch.cat([batch.tokens for batch in built.task.inputs()]).numpy()
    a, b, c = tokens[:, :1], tokens[:, 1:2], np.arange(p)
    formula = sum(
        np.abs(np.cos(np.pi * k * (a - b) / p)) * np.cos(2 * np.pi * k * (a + b - c) / p)
        for k in map(int, frequencies.split())
    )
    found = numpy_logits(built.weights.tensors, tokens)[:, -1]
    close(found, formula, atol=1e-12)
    lead = margins(found, (a + b)[:, 0] % p)
    assert lead.min() > 0
    assert built.weights.margin == pytest.approx(lead.min(), abs=1e-12)


@pytest.mark.slow
def test_modular_addition_at_the_published_size_in_either_format() -> None:
    for dtype in ("float64", "float32"):
        model = interp.build("algorithmic/modular-addition-fourier", dtype=dtype)
        assert all(torch.equal(model.predict(batch.tokens), batch.labels) for batch in model.task.inputs(6400))


@pytest.mark.parametrize(("v", "length", "shortest", "longest"), [(4, 6, 2, 4), (5, 9, 1, 5)])
def test_induction_continues_every_repeated_string(v: int, length: int, shortest: int, longest: int) -> None:
    sizes = {"v": v, "length": length, "shortest": shortest, "longest": longest}
    built = construct("algorithmic/induction-exact", **sizes, n_heads=3)
    assert (built.spec.max_length, built.spec.d_model) == (length + 1, (v + 1) + (length + 1) + (v + 1) + v)
    from itertools import permutations

    rows = []
    for period in range(shortest, longest + 1):
        for string in permutations(range(v), period):
            rows.append([v] + [string[i % period] for i in range(length)])
    batch = built.task.batch(torch.tensor(rows))
    logits = numpy_logits(built.weights.tensors, batch.tokens.numpy())
    read = (batch.labels >= 0).numpy()
    found = margins(logits, batch.labels.clamp(min=0).numpy())[read]
    assert found.min() >= built.weights.margin > 0
    assert found.min() < 1.5 * built.weights.margin + 0.05  # the bound is not far from the truth


def test_induction_at_its_default_size() -> None:
    model = interp.build("algorithmic/induction-exact")
    batch = model.task.sample(200, seed=1)
    assert torch.equal(model.predict(batch.tokens), batch.labels)
    _, cache = model.run_with_cache(batch.tokens[:3])
    for i in range(1, 17):
        assert (cache["pattern", 0][:, 0, i, i - 1] > 0.99).all()
    torch.testing.assert_close(cache["pattern", 0][:, 1, 10, :11], torch.full((3, 11), 1 / 11).double())


FORMATS: dict[str, dict[str, object]] = {
    "plain": {},
    "most first": {"order": "most"},
    "digits as marks": {"plus": "0", "equals": "0"},
    "a token in front": {"lead": "[BOS]"},
    "a digit in front": {"lead": "0", "order": "most"},
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("base", "digits", "beta"), [(2, 1, 16.0), (2, 5, 4.0), (3, 3, 4.0), (10, 2, 5.5)])
@pytest.mark.thinned(3)
def test_addition_is_right_on_every_pair_with_the_proved_margin(base: int, digits: int, beta: float, form: str) -> None:
    built = construct("algorithmic/addition-exact", base=base, digits=digits, beta=beta, **FORMATS[form])
    batches = list(built.task.inputs())
    tokens, labels = (torch.cat([getattr(b, name) for b in batches]).numpy() for name in ("tokens", "labels"))
    assert len(tokens) == base ** (2 * digits)
    read = labels >= 0
    found = margins(numpy_logits(built.weights.tensors, tokens)[:, read[0]], labels[:, read[0]])
    claimed = built.weights.margin
    assert claimed is not None
    assert found.min() >= claimed - 1e-9
    assert found.min() <= 1 - 1 / base + 2 * built.weights.numbers["error_of_the_sum"]


@pytest.mark.parametrize("digits", [10, 64, 1000])
@pytest.mark.thinned(3)
def test_addition_of_long_numbers_follows_all_carries(digits: int) -> None:
    model = interp.build("algorithmic/addition-exact", digits=digits)
    task, nines, zeros = model.task, torch.full((1, digits), 9), torch.zeros(1, digits, dtype=torch.long)
    one = zeros.clone()
    one[0, 0] = 1
    for first, second in ((nines, one), (one, nines), (nines, nines), (nines, zeros)):
        batch = task.of_numbers(first, second)
        assert torch.equal(model.predict(batch.tokens), batch.labels)
    batch = task.sample(20, seed=5)
    assert torch.equal(model.predict(batch.tokens), batch.labels)


@pytest.mark.parametrize(
    ("name", "sizes", "words"),
    [
        ("max-of-k-exact", {"beta": 1.0}, "above ln K"),
        ("max-of-k-exact", {"K": 2, "beta": 1.0}, "at least ln 3"),
        ("modular-addition-fourier", {"p": 10, "frequencies": "1"}, "even"),
        ("modular-addition-fourier", {"p": 9, "frequencies": "3"}, "prime to p"),
        ("modular-addition-fourier", {"p": 9, "frequencies": "5"}, "from 1 to 4"),
        ("modular-addition-fourier", {"p": 9, "frequencies": "1 1"}, "different"),
        ("modular-addition-fourier", {"p": 9, "frequencies": "x"}, "different"),
        ("induction-exact", {"beta": 1.0}, "no margin"),
        ("addition-exact", {"beta": 1.0}, "too small for base 10"),
        ("addition-exact", {"beta": 4.8}, "off by 0.326"),  # 3/8 - 1/20 is allowed
        ("addition-exact", {"beta": -3.0}, "too small for base 10"),
        ("addition-exact", {"plus": "7"}, "not a digit, or the digit '0'"),
        ("addition-exact", {"equals": ""}, "needs one token there"),
    ],
)
def test_sizes_without_a_proof_are_refused(name: str, sizes: dict[str, object], words: str) -> None:
    with pytest.raises(interp.InterpError, match=words):
        construct(f"algorithmic/{name}", **sizes)


def test_the_margin_of_addition_is_its_formula() -> None:
    """At beta = 6 the averages err enough to be seen: twice the error is taken off, not added."""
    weights = construct("algorithmic/addition-exact", digits=2, base=5, beta=6.0).weights
    error = weights.numbers["error_of_the_sum"]
    assert error > 1e-4
    assert weights.margin == pytest.approx(1 - 1 / 5 - 2 * error, abs=1e-12)


@pytest.mark.parametrize(("length", "shortest"), [(16, 3), (9, 3)])
def test_the_margin_of_induction_is_its_formula_s_least(length: int, shortest: int) -> None:
    beta, gamma, task = 3.0, 9.0, Induction(v=4, length=length, shortest=shortest, longest=shortest)
    a = math.exp(beta) / (math.exp(beta) + length)
    least = math.inf
    for r in range(1, length // shortest + 1):  # at most so many repeats of the shortest string fit
        b = (r + 1) / (math.exp(beta) + 1)
        weight = math.exp(gamma * (b - a))
        least = min(least, (r - (r + 1) * weight) / (r + (length + 1 - r) * weight))
    assert margin(task, beta, gamma, 1.0) == pytest.approx(least, abs=1e-12)
    assert margin(task, beta, gamma, 2.0) == pytest.approx(2 * least, abs=1e-12)
