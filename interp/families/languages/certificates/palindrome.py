"""Certify PALINDROME on all strings of a length, by a proof's inequality in exact arithmetic and a rounding bound.

There are 2^length strings and every symbol matters, so no symmetry reduces their number. Instead, the proof's
inequality is checked for each length, for a model whose weights equal the construction's to the last bit:

binary: the weights p_i = 2^i / (2^n - 1) are compared as fractions. From i = 1 on, each exceeds the sum of the smaller
ones by exactly p_1. So a non-palindrome has |s| >= p_1 = 2/(2^n - 1), and the slack is p_0 for palindromes and at most
p_0 - p_1 = -p_0 for others. The rounding bound adds up the bounds of three strings in which its parts are largest: all
ones, ones on the left only, and ones on the right only.

mirror: the pattern of layer 1 depends only on positions. The attention that leaks past the mirror image, including
rounding, must stay below 1/4; then matched positions give exact zeros. The slack times n is 11/16 for palindromes and
at most 11/16 - 2 (3/4 - leak) for others.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pandas as pd
import torch

from interp.certificates import rounding
from interp.certificates.certificate import Certificate, Stratum, fields, register_method
from interp.certificates.probes import Probes
from interp.certificates.rounding import ROUNDOFF, Arithmetic, Tracked, forward_with_bound
from interp.errors import check_size
from interp.families.languages.certificates.strings import TAKES as STRING_TAKES
from interp.families.languages.certificates.strings import make_certificate, string_probes
from interp.families.languages.tasks.palindrome import Palindrome
from interp.models.architecture.task_model import TaskModel
from interp.models.constructions import construct
from interp.models.spec import Construction
from interp.support.resources import one_thread
from interp.tasks.structure import STRINGS

MOST = 128
"""Default longest length; `longest` can ask for more."""

TAKES = {**STRING_TAKES, "layers": (1, 2)}
"""Loose on purpose: refusal() compares every field with the construction's."""

PROBED = 24
"""Number of palindromes, of strings one symbol away from one, and of random strings that are run, per probed length."""


def refusal(model: TaskModel) -> str | None:
    """Return the reason why the proof does not apply to a model, or None."""
    if type(model.task) is not Palindrome:
        return f"task {model.task.name} is not PALINDROME"
    origin = model.spec.origin
    if not isinstance(origin, Construction):
        return "it is not an exact model of PALINDROME"
    if model.spec.decision != "sigmoid":
        return "it decides by a fixed tolerance, which the proof does not cover; see the construction's largest_length"
    if (reason := rounding.refusal(model)) is not None:
        return reason
    arguments = dict(origin.arguments)
    if arguments.get("c"):
        return "the proof is for base 2 (c = 0)"
    proved = construct(origin.name, origin.variant or None, **arguments)
    known = {field.path + field.where: field.value for field in fields(proved.spec)}
    for field in fields(model.spec):
        if field.path not in ("task", "dtype") and field.value != known.get(field.path + field.where):
            return f"{field.where} = {field.value!r} differs from the construction's"
    for name, parameter in model.named_parameters():
        if not torch.equal(parameter.detach().cpu(), proved.weights.tensors[name].to(parameter.dtype)):
            return f"{name} differs from the construction's"
    return None


def binary_margin(n: int) -> Fraction:
    """Return the smallest |slack| over all strings of n tokens, exact."""
    total = 2**n - 1
    weights = [Fraction(2**i, total) for i in range((n + 1) // 2)]
    below, least = Fraction(0), None
    for weight in weights[1:]:
        gap = weight - below
        least = gap if least is None else min(least, gap)
        below += weight
    return weights[0] if least is None else min(weights[0], least - weights[0])


def _binary(model: TaskModel, length: int) -> tuple[float, float]:
    """Return the exact margin and rounding bound for a length."""
    half = length // 2
    left = [1] * (length - half) + [0] * half
    symbols = torch.tensor([[1] * length, left, left[::-1]])
    assert isinstance(model.task, Palindrome)
    tokens = model.task.of_symbols(symbols, torch.tensor([length] * 3)).tokens
    _, bound = forward_with_bound(model, tokens, rounded_parameters=True)
    parts: Any = model
    return float(binary_margin(length + 2)) * float(parts.unembed.W_U.detach().double().abs().sum()), float(bound.sum())


@torch.no_grad()
def _mirror(model: TaskModel, length: int) -> tuple[float, float]:
    """Return the exact margin and rounding bound for a length; the margin is negative if the leak is too large."""
    assert isinstance(model.task, Palindrome)
    numbers = Arithmetic(ROUNDOFF[model.embed.W_E.dtype])
    tokens = model.task.of_symbols(torch.zeros(1, length, dtype=torch.long), torch.tensor([length])).tokens
    n = tokens.shape[1]
    weights = rounding.pattern(numbers, model, 0, rounding.embed(numbers, model, tokens))
    off = 1 - torch.eye(n, dtype=torch.float64).flip(1)
    # The leak, plus the possible error of a sum of n + 1 rounded terms near 1.
    leak = float((weights.size[0, 0] * off).sum(1).max()) + numbers.gamma(n + 8)
    if leak >= 0.24:  # below 1/4 by more than rounding can change the neurons' two sums
        return -leak, 0.0
    gap = 11 / 16
    margin = min(gap, 2 * (0.75 - leak) - gap) / n
    # The component that is read out: averages of at most n terms of size at most 1, each with error gamma(n + 8).
    parts: Any = model
    read = parts.unembed.W_U.detach().double()
    slip = torch.full_like(read.T, 4 * numbers.gamma(n + 16) * (1 + gap) + 4 * n * numbers.smallest)
    slack = Tracked((read != 0).double().T, torch.where(read.T == 0, 0.0, slip))
    return margin * float(read.abs().sum()), float(numbers.linear(slack, read, parts.unembed.b_U.detach()).error)


@register_method("proof of PALINDROME", STRINGS, refusal, TAKES)
@one_thread()
def certify_palindrome(model: TaskModel, longest: int = 0, progress: Any = None) -> Certificate:
    """Certify an exact PALINDROME model on every string of 1 to `longest` symbols, in its number format.

    longest: 0 means the largest length that can be proved in this format, at most MOST. A length is "undecided" if
    rounding could exceed the margin. The rounding bound covers any order of evaluation, so longer strings may be right
    in tests. The certificate's table "lengths": length, classes, smallest_margin, rounding, status. Raises InterpError
    for models with other weights than the construction's.
    """
    check_size("longest", longest, least=0)
    rows = []
    origin = model.spec.origin
    assert isinstance(origin, Construction)
    measure = _binary if origin.variant == "binary" else _mirror
    for length in range(1, (longest or MOST) + 1):
        margin, bound = measure(model, length)
        if length > 1 and longest == 0 and margin <= bound:
            break
        rows.append((length, 1, margin, bound, "certified" if margin > bound else "undecided"))
        if progress is not None:
            progress(length, longest or MOST)
    table = pd.DataFrame(rows, columns=["length", "classes", "smallest_margin", "rounding", "status"])
    probes = tuple(_probes(model, table))
    strata = [Stratum(2**length, 2**length * (status == "certified")) for length, *_, status in rows]
    return make_certificate(model, table, strata, None, f"proof of the {origin.variant} code, length by length", probes)


def _probes(model: TaskModel, table: pd.DataFrame) -> Iterator[Probes]:
    """Make palindromes, strings one symbol away from one, and random strings, at a few lengths from first to last."""
    task, last = model.task, len(table) - 1
    assert isinstance(task, Palindrome)
    for place in sorted({0, 1, 2, 7, last // 2, last} & set(range(last + 1))):
        length, margin, bound = (table[name].iloc[place] for name in ("length", "smallest_margin", "rounding"))
        generator = torch.Generator().manual_seed(int(length))
        strings = torch.randint(0, 2, (PROBED, int(length)), generator=generator)
        mirrored = torch.cat([strings[:, : (int(length) + 1) // 2], strings[:, : int(length) // 2].flip(1)], 1)
        missed = mirrored.clone()
        missed[torch.arange(PROBED), torch.randint(0, int(length), (PROBED,), generator=generator)] ^= 1
        rows = torch.cat([mirrored, missed, strings])
        least = torch.full((len(rows),), float(margin), dtype=torch.float64)
        high, slip = torch.full_like(least, torch.inf), torch.full_like(least, float(bound))
        yield string_probes(task, rows, least, high, slip)
