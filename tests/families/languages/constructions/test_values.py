"""The values that the proofs state: s, its smallest size, what layer norm makes of it, and the errata's numbers."""

import itertools
import math
from fractions import Fraction

import pytest
import torch

from interp.families.languages.constructions.palindrome import largest_length, smallest_binary
from interp.families.languages.constructions.parity import smallest_value as smallest_parity
from interp.models.constructions import construct
from interp.tasks import Batch

torch64 = {"dtype": torch.float64}


def component(made, tokens: torch.Tensor, name: str) -> torch.Tensor:
    """A named component of the last residual stream at [CLS]."""
    last = f"blocks.{len(made.spec.layers) - 1}.hook_resid_post"
    _, cache = made.model().run_with_cache(tokens, names_filter=last)
    direction = made.weights.directions[name]
    return cache[last][:, 0] @ direction / (direction @ direction)


def ones(made, length: int, counts: list[int]) -> Batch:
    """One string for each number of ones, the ones spread from the right."""
    symbols = (torch.arange(length).flip(0) < torch.tensor(counts)[:, None]).long()
    return made.task.of_symbols(symbols, torch.full((len(counts),), length))


def test_one_has_its_value_on_every_string() -> None:
    made = construct("languages/one")
    batch = made.task.enumerate_up_to(10)
    k, n = (batch.tokens == 1).sum(1), batch.lengths
    torch.testing.assert_close(component(made, batch.tokens, "s"), ((k == 1).double() - 0.5) / n, atol=1e-15, rtol=0)
    assert made.weights.margin == 0.5 / 10_001


def test_first_has_its_value_on_every_string() -> None:
    made = construct("languages/first", c=0.7)
    batch = made.task.enumerate_up_to(10)
    weight = math.exp(0.7) / (math.exp(0.7) + batch.lengths.double() - 1)
    found = component(made, batch.tokens, "s")
    torch.testing.assert_close(found, weight * ((batch.tokens[:, 1] == 1).double() - 0.5), atol=1e-15, rtol=0)


def test_parity_has_its_value_on_every_string() -> None:
    made, c = construct("languages/parity"), 1 / math.sqrt(5)
    batch = made.task.enumerate_up_to(10)
    smallest = {}
    for row, n, s in zip(batch.tokens.tolist(), batch.lengths.tolist(), component(made, batch.tokens, "s").tolist()):
        k = row[:n].count(1)
        favor_odd = [math.exp(-c * math.cos(math.pi * i)) for i in range(n)]
        favor_even = [math.exp(c * math.cos(math.pi * i)) for i in range(n)]
        wanted = (favor_odd[k] / sum(favor_odd) - favor_even[k] / sum(favor_even)) / n
        assert s == pytest.approx(wanted, abs=1e-15)
        smallest[n - 1] = min(smallest.get(n - 1, 1), abs(s))
    assert smallest == pytest.approx({length: smallest_parity(length, c) for length in smallest}, abs=1e-15)


@pytest.mark.parametrize(("name", "power", "limit"), [("one", 1, 0.5), ("first", 1, 0.752), ("parity", 2, 0.839)])
def test_errata_limits_of_s_times_n(name: str, power: int, limit: float) -> None:
    made = construct(f"languages/{name}")
    batch = ones(made, 1500, [0, 1, 2, 3, 750, 751, 1500])
    scaled = component(made, batch.tokens, "s").abs() * 1501.0**power
    torch.testing.assert_close(scaled, torch.full_like(scaled, limit), atol=2e-3, rtol=0)


# ---------------------------------------------------------------- PALINDROME


def halves_as_numbers(word: tuple[int, ...]) -> Fraction:
    """s from the words of the proof: the left half minus the reversed right half, as binary numbers, over 2^n - 1."""
    marked = (0, *word, 0)
    n = len(marked)
    left = sum(marked[i] * 2**i for i in range(n) if 2 * i <= n - 1)
    right = sum(marked[i] * 2 ** (n - 1 - i) for i in range(n) if 2 * i >= n - 1)
    return Fraction(left - right, 2**n - 1)


@pytest.mark.parametrize("length", [1, 2, 5, 8, 11])
def test_binary_has_its_value_on_every_string(length: int) -> None:
    made = construct("languages/palindrome", "binary")
    batch = made.task.enumerate(length)
    exact = [halves_as_numbers(word) for word in itertools.product((0, 1), repeat=length)]
    wanted = torch.tensor([float(s) for s in exact], **torch64)
    torch.testing.assert_close(component(made, batch.tokens, "s"), wanted, atol=1e-15, rtol=0)
    assert [s == 0 for s in exact] == batch.labels.tolist()
    nonzero = [abs(s) for s in exact if s]
    if nonzero:
        assert float(min(nonzero)) == pytest.approx(smallest_binary(length), rel=1e-12)
    slack = component(made, batch.tokens, "slack")
    torch.testing.assert_close(slack, 1 / (2 ** (length + 2) - 1) - wanted.abs(), atol=1e-15, rtol=0)


def test_mirror_is_exactly_zero_on_palindromes_only() -> None:
    made = construct("languages/palindrome", "mirror")
    for length in (1, 2, 3, 7, 12):
        batch = made.task.enumerate(length)
        s = component(made, batch.tokens, "s")
        assert (s[batch.labels] == 0).all()
        assert (s[~batch.labels] >= 11 / 8 / (length + 2) - 1e-15).all()


def test_mirror_attention_leaks_at_most_a_sixteenth() -> None:
    made = construct("languages/palindrome", "mirror")
    for length in (1, 2, 11, 150):
        _, cache = made.model().run_with_cache(made.task.strings(1, length).tokens)
        assert cache["blocks.0.attn.hook_pattern"][0, 0].flip(1).diagonal().min() >= 15 / 16


def test_a_fixed_tolerance_accepts_just_what_the_errata_predict() -> None:
    """Erratum 36: with base 2 and 1e-7 the limit is length 22, in float32 and in float64."""
    assert largest_length(1e-7) == 22
    made = construct("languages/palindrome", "binary", tolerance=1e-7)
    for dtype in ("float32", "float64"):
        model = made.model(dtype=dtype)
        for length, right in ((22, True), (23, False)):
            word = "1" + "0" * (length - 1)  # one wrong pair, next to the ends
            tokens = made.task.encode([word, "0" * length]).tokens
            assert model.predict(tokens).tolist() == [not right, True]


# ---------------------------------------------------------------- layer norm


@pytest.mark.parametrize(("name", "variant", "d", "bits"), [
    ("first", None, 12, 0.1195),
    ("parity", None, 20, 0.0598),
    ("one", None, 14, None),
    ("palindrome", "mirror", 20, None),
])  # fmt: skip
def test_layer_norm_without_eps_gives_one_logit(name: str, variant: str | None, d: int, bits: float | None) -> None:
    """Erratum 38: |logit| = sqrt(d/2) for every string and every n, in float64."""
    made = construct(f"languages/{name}", variant, layer_norm=True)
    assert made.spec.d_model == d
    model = made.model()
    for batch in (made.task.enumerate_up_to(8), made.task.strings(10, 300, seed=1)):
        with torch.no_grad():
            logits = model(batch.tokens)[:, 0, 0]
        sign = torch.where(batch.labels, 1.0, -1.0).double()
        torch.testing.assert_close(logits, sign * math.sqrt(d / 2), atol=1e-9, rtol=0)
    assert made.weights.margin == pytest.approx(math.sqrt(d / 2))
    if bits is not None:
        assert math.log2(1 + math.exp(-math.sqrt(d / 2))) == pytest.approx(bits, abs=5e-5)


def test_output_scale_takes_the_cross_entropy_to_zero() -> None:
    for scale, most in ((1.0, 0.1), (5.0, 1e-5), (20.0, 1e-20)):
        made = construct("languages/first", layer_norm=True, output_scale=scale)
        batch = made.task.enumerate(9)
        with torch.no_grad():
            logits = made.model()(batch.tokens)[:, 0, 0]
        loss = torch.nn.functional.softplus(torch.where(batch.labels, -logits, logits)).max()
        assert 0 < loss < most


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("name", "length", "bits", "slack"),
    [("first", 1000, 0.56, 0.02), ("parity", 100, 0.93, 0.01), ("parity", 1000, 0.9993, 2e-4)],
)
def test_errata_cross_entropy_with_eps(name: str, length: int, bits: float, slack: float) -> None:
    made = construct(f"languages/{name}", layer_norm=True, eps=1e-5)
    batch = made.task.strings(40, length, seed=1)
    with torch.no_grad():
        logits = made.model()(batch.tokens)[:, 0, 0]
    loss = torch.nn.functional.softplus(torch.where(batch.labels, -logits, logits)).mean() / math.log(2)
    assert float(loss) == pytest.approx(bits, abs=slack)
