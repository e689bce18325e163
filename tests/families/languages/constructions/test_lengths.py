"""How long strings may be: exactness up to the stated lengths, refusal beyond them, and bounded memory."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from shared.palindrome_orders import hard_strings

from interp.errors import InterpError
from interp.models.constructions import Construct, construct

LENGTHS = (10, 20, 50, 100, 200, 500, 1000, 2000)


def errors(made: Construct, symbols: torch.Tensor, dtype: str, rows: int = 256) -> int:
    """How many strings the model judges wrongly, a few rows at a time."""
    model = made.model(dtype=dtype)
    batch = made.task.of_symbols(symbols, torch.full((len(symbols),), symbols.shape[1]))
    parts = [batch[slice(at, at + rows)] for at in range(0, len(batch), rows)]
    return sum(int((model.predict(part.tokens) != part.labels).sum()) for part in parts)


def by_counts(length: int, counts: list[int], seed: int = 0) -> torch.Tensor:
    """One string for each number of ones, the ones in random places."""
    keys = torch.rand(len(counts), length, generator=torch.Generator().manual_seed(seed))
    return (keys.argsort(1).argsort(1) < torch.tensor(counts)[:, None]).long()


def telling(length: int) -> torch.Tensor:
    """Counts at both ends and in the middle, where the margins are smallest."""
    counts = [0, 1, 2, 3, length // 2, length // 2 + 1, length - 1, length]
    return by_counts(length, counts, seed=length)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["one", "first", "parity"])
@pytest.mark.thinned(7)
def test_right_at_lengths_to_2000(name: str, dtype: str, layer_norm: bool) -> None:
    made = construct(f"languages/{name}", layer_norm=layer_norm)
    for length in LENGTHS if not layer_norm else LENGTHS[:6]:
        assert errors(made, telling(length), dtype) == 0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["one", "first", "parity"])
@pytest.mark.thinned(2)
def test_right_for_every_number_of_ones_at_length_250(name: str, dtype: str) -> None:
    made = construct(f"languages/{name}")
    assert errors(made, by_counts(250, list(range(251)), seed=1), dtype) == 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["one", "first", "parity"])
def test_right_at_length_10000(name: str, dtype: str) -> None:
    made = construct(f"languages/{name}")
    assert made.weights.length_limit.in_dtype(getattr(torch, dtype)) == 10_000
    assert errors(made, by_counts(5000, [0, 1, 2501], seed=2), dtype) == 0
    assert errors(made, by_counts(10_000, [0, 1, 5000, 10_000], seed=3), dtype) == 0


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["one", "first", "parity"])
@pytest.mark.thinned(5)
def test_right_in_half_precision_to_the_stated_length(name: str, dtype: str, layer_norm: bool) -> None:
    made = construct(f"languages/{name}", layer_norm=layer_norm)
    longest = min(made.weights.length_limit.in_dtype(getattr(torch, dtype)), 130)
    for length in range(longest % 10 + 10, longest + 1, 10):
        assert errors(made, by_counts(length, list(range(length + 1)), seed=4), dtype) == 0


# ---------------------------------------------------------------- PALINDROME


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "dtype"),
    [("binary", d) for d in ("bfloat16", "float16", "float32", "float64")]
    + [("mirror", d) for d in ("bfloat16", "float16")],
)
def test_palindrome_is_right_at_every_stated_length(variant: str, dtype: str) -> None:
    made = construct("languages/palindrome", variant)
    longest = made.weights.length_limit.in_dtype(getattr(torch, dtype))
    assert {"binary": {"float32": 42, "float64": 95}}.get(variant, {}).get(dtype, longest) == longest
    for length in range(1, longest + 1):
        assert errors(made, hard_strings(length, 8, seed=length), dtype, rows=512) == 0


def test_binary_is_wrong_beyond_float64() -> None:
    made = construct("languages/palindrome", "binary", beyond="warn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert errors(made, hard_strings(110, 8), "float64") > 0


def near_palindromes(length: int, flips: list[int]) -> torch.Tensor:
    """A random palindrome, and it with one symbol flipped at each of these places."""
    bits = torch.randint(0, 2, (length,), generator=torch.Generator().manual_seed(length))
    place = torch.arange(length)
    palindrome = bits[torch.minimum(place, length - 1 - place)]
    return torch.stack([palindrome, *(palindrome ^ (place == flip).long() for flip in flips)])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_mirror_is_right_to_length_1000(dtype: str) -> None:
    made = construct("languages/palindrome", "mirror")
    for length in (33, 100, 101, 333, 1000):
        assert errors(made, near_palindromes(length, [0, length // 3, length // 2 - 1, length - 2]), dtype) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "longest"), [("float64", 10_000), ("float32", 4_000)])
def test_mirror_is_right_at_its_stated_length(dtype: str, longest: int) -> None:
    made = construct("languages/palindrome", "mirror")
    assert made.weights.length_limit.in_dtype(getattr(torch, dtype)) == longest
    assert errors(made, near_palindromes(longest, [0, longest // 3, longest // 2 - 1, longest - 1]), dtype) == 0


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("variant", "dtype", "longest"),
    [("binary", "float64", 95), ("binary", "float32", 42), ("mirror", "float32", 4000), ("mirror", "float64", 10_000)],
)
def test_a_length_beyond_the_number_format_is_refused(variant: str, dtype: str, longest: int) -> None:
    made = construct("languages/palindrome", variant)
    tokens = made.task.encode(["0" * (longest + 1)]).tokens
    with pytest.raises(InterpError, match=f"length {longest + 1}.* up to length {longest} in {dtype}"):
        made.model(dtype=dtype).predict(tokens)


def test_beyond_warn_warns_once_and_answers() -> None:
    made = construct("languages/palindrome", "binary", beyond="warn")
    model, tokens = made.model(dtype="float32"), made.task.encode(["0" * 43, "01" * 21]).tokens
    with pytest.warns(UserWarning, match="length 43") as caught:
        assert model.predict(tokens).tolist() == [True, False]
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(made.task.encode(["0" * 42]).tokens)


@pytest.mark.parametrize(
    ("name", "variant", "sizes", "message"),
    [
        ("one", None, {"beyond": "ignore"}, "unknown value of beyond"),
        ("one", None, {"eps": 1e-5}, "layer_norm = True"),
        ("one", None, {"layer_norm": True, "eps": -1.0}, "eps = -1.0"),
        ("one", None, {"output_scale": 0.0}, "output_scale = 0.0"),
        ("first", None, {"c": -1.0}, "c = -1.0"),
        ("parity", None, {"c": float("inf")}, "c = inf"),
        ("palindrome", "binary", {"layer_norm": True}, "variant='mirror'"),
        ("palindrome", "binary", {"tolerance": -1e-7}, "tolerance"),
        ("palindrome", "mirror", {"c": 0.5}, "variant='binary'"),
        ("palindrome", "mirror", {"tolerance": 0.1, "layer_norm": True}, "exclude"),
        ("palindrome", "unary", {}, "unknown variant"),
    ],
)
def test_arguments_that_make_no_sense(name: str, variant: str | None, sizes: dict, message: str) -> None:
    with pytest.raises(InterpError, match=message):
        construct(f"languages/{name}", variant, **sizes)


def test_rows_that_are_no_input_are_refused() -> None:
    made = construct("languages/palindrome")
    model, tokens = made.model(), made.task.encode(["0110"]).tokens
    with pytest.raises(InterpError, match=r"\[EOS\]"):
        model.predict(tokens[:, :-1])
    with pytest.raises(InterpError, match="at least one symbol"):
        model.predict(tokens[:, [0, -1]])
    with pytest.raises(InterpError, match="token ids run"):
        model(tokens + 3)
    with pytest.raises(InterpError, match="dtype"):
        made.model(dtype="float8")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="Linux says the peak of one process")
def test_memory_stays_below_2_gb_at_length_10000() -> None:
    """In a process of its own, with padding, in float64: the peak of everything that was ever resident in it.

    getrusage would also count the process that started it.
    """
    code = """
import torch
from interp.models.constructions import construct
made = construct("languages/parity")
batch = made.task.strings(2, 10_000, 9_000, seed=1)
assert torch.equal(made.model().predict(batch.tokens), batch.labels)
print(1024 * int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 2e9
