"""The checker of evidence on its own: its numbers, what it refuses, and that the standard library is all it needs."""

from __future__ import annotations

import ast
import random
import sys
from fractions import Fraction
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import attacks
import vandals

check = attacks.check
sys.path.pop(0)


def fraction(x: int) -> Fraction:
    return Fraction(x, check.ONE)


def test_imports_the_standard_library_only():
    tree = ast.parse(Path(check.__file__).read_text())
    names = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    names |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= sys.stdlib_module_names


def test_exponentials_are_enclosed():
    """Against Taylor's series in fractions, whose next term bounds the rest."""
    for x in (Fraction(0), Fraction(-1, 10**9), Fraction(-1, 3), Fraction(-7), Fraction(-100), Fraction(-191)):
        whole = -int(-x * check.ONE)
        low, high = check.exp_between(whole)
        term = total = Fraction(1)
        n = 0
        while term > Fraction(1, 2**420) or n < 400:
            n += 1
            term = term * Fraction(-whole, check.ONE) / n
            term = Fraction(int(term * 2**900), 2**900)
            total += term
        truth = 1 / total  # e^x = 1 / e^-x; the series is right to 2^-400 of itself
        assert fraction(low) <= truth * (1 + Fraction(1, 2**380))
        assert fraction(high) >= truth * (1 - Fraction(1, 2**380))
        assert high - low <= 2**40
    assert check.exp_between(-200 * check.ONE) == (0, 1)


def test_sums_and_layer_norms_hold_the_truth():
    rng, reals = random.Random(0), check.FORMATS["reals"]
    for _ in range(50):
        xs = [rng.gauss(0, 1) for _ in range(5)]
        ws = [rng.choice([0.0, rng.gauss(0, 2)]) for _ in range(5)]
        nums = [check.exact(check.fixed(x)) for x in xs]
        found = check.dot(nums, [check.fixed(w) for w in ws], check.fixed(0.25), reals)
        truth = sum(Fraction(x) * Fraction(w) for x, w in zip(xs, ws)) + Fraction(1, 4)
        assert fraction(found.lo) <= truth <= fraction(found.hi)
        assert found.hi - found.lo <= 1
        assert found.err == 0
        mean = sum(map(Fraction, xs)) / 5
        variance = sum((Fraction(x) - mean) ** 2 for x in xs) / 5 + Fraction(1e-5)
        one, none = [check.ONE] * 5, [0] * 5
        for x, y in zip(xs, check.layer_norm(nums, one, none, check.fixed(1e-5), reals)):
            centered = Fraction(x) - mean  # y^2 variance = centered^2, with the sign of centered
            low, high = sorted([fraction(y.lo), fraction(y.hi)])
            if low > 0:
                assert low**2 * variance <= centered**2 <= high**2 * variance
            else:
                assert centered <= 0
                assert high**2 * variance <= centered**2 <= low**2 * variance


@pytest.mark.parametrize("seed", range(4))
def test_no_bound_above_the_truth_is_accepted(seed):
    """Random models against every input; `python tests/certificates/attacks.py --count 1000` for more."""
    done = attacks.run(24, seed)
    assert sum(done.values()) == 24
    assert done["refused as a whole"] < 8


def test_no_vandal_gets_away(tmp_path):
    """`python tests/certificates/vandals.py --count 1000` for more."""
    verdicts, escaped = vandals.run(80, 0, tmp_path)
    assert not escaped
    assert sum(n for (_, verdict), n in verdicts.items() if verdict == "refused") > 60


def test_hostile_files_are_refused_in_a_sentence(tmp_path):
    path = tmp_path / "proof.json"
    for text, said in (
        ("", "cannot be read"), ("[" * 10**6, "cannot be read"), ('{"a":1,"a":1}', "occurs twice"), ("NaN", "finite"),
        ('{"a":1e999}', "finite"), ("[]", "no JSON object"), ("{}", "must be an object with"), ("9" * 10**4, "read"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(check.Fault, match=said):
            check.check(check.read(str(path)))
    path.write_bytes(b"\x1f\x8b" + b"x" * 20)
    with pytest.raises(check.Fault, match="cannot be read"):
        check.read(str(path))
    with pytest.raises(check.Fault, match="cannot be read"):
        check.read(str(tmp_path / "none.json"))
