"""The smallest d_model of histogram models: published and corrected bounds, and the smallest verified constructions.

These are bounds for the designs of Behrens et al. (2024), appendices A and B, not for the architecture. A trained model
may need less.
"""

import math
from typing import get_args

import pandas as pd

from interp.errors import InterpError, one_of
from interp.families.histogram.theory.frame_search import Criterion, best_slack, frames_at_hand
from interp.families.histogram.theory.frames import one_sided_bound, simplex_dimension, squared_bound
from interp.families.histogram.theory.ranges import MixingKind

ALIASES = {"lin+sftm": "lin-softmax", "dot+sftm": "dot-softmax", "bos+sftm": "bos-softmax"}


def feasibility(model: str, T: int = 32, L: int = 10) -> pd.DataFrame:
    """Return the smallest d_model for p = 1 and p = T hidden neurons, one row each.

    Columns:
    printed    the published bound, or d >= T of section 5.1 if that is smaller.
    corrected  the same argument with its mistakes corrected (strict inequality, squares, merged counter).
    necessary  no embedding of a smaller width satisfies the true condition of the design (one-sided Welch bound; NA if
               no such condition is known).
    verified   the smallest d_model at which a construction of this package is right on all sequences, without a new
               search, and `variant`, its name.
    *_source   section, equation and erratum, or another source of the number.
    Integers are nullable; NA means that no construction or formula exists.

    `model` is lin, lin-softmax, dot, dot-softmax, bos or bos-softmax, or the paper's name with +sftm.
    Raises InterpError for another model, T < 2 or L < 2 (a single position has nothing to count).
    """
    name = ALIASES.get(model, model)
    if name not in get_args(MixingKind):
        raise InterpError(one_of("histogram model", model, (*get_args(MixingKind), *ALIASES)))
    if T < 2 or L < 2:
        raise InterpError(f"feasibility needs T >= 2 tokens and a length L >= 2, got T={T}, L={L}")
    rows = {"lin": _linear, "dot": _scores, "bos": _scores, "bos-softmax": _bos_softmax, "dot-softmax": _dot_softmax}
    designs = rows[name.replace("lin-softmax", "lin")](T, L)
    widths = ["printed", "corrected", "necessary", "verified"]
    columns = ["p", *widths, "variant", "printed_source", "corrected_source", "verified_source"]
    table = pd.DataFrame([{"model": name, "T": T, "L": L, **dict(zip(columns, row, strict=True))} for row in designs])
    table[widths] = table[widths].astype("Int64").clip(upper=T)
    return table


def _symmetric(T: int, L: int) -> float:
    """eq. 50 before rounding: the d at which the Welch bound equals 1/(2L - 3)."""
    return T * (2 * L - 3) ** 2 / (T - 1 + (2 * L - 3) ** 2)


def _next_integer(bound: float) -> int:
    """Return the smallest integer above x."""
    return math.floor(bound + 1e-9) + 1


def _smallest_frame(criterion: Criterion, T: int, L: int) -> int:
    """Return the smallest width of a stored or algebraic frame that satisfies the criterion."""
    return min(f.shape[1] for f in frames_at_hand(criterion, T, T) if best_slack(f, criterion, L) > 0)


def _best_one_sided(T: int, L: int, extra: int, frame_name: str) -> tuple[int, str, str]:
    """The narrowest of orthonormal vectors, simplices and frames: width (`extra` more below T), variant, reason."""
    simplex, frame = simplex_dimension(T, L), _smallest_frame("one-sided", T, L)
    if min(simplex, frame) + extra >= T:
        return T, "orthogonal" if extra else "uniform", "orthonormal embeddings"
    if frame < simplex:
        return frame + extra, frame_name, "a frame with (L-1) max c - (L-2) min c < 1"
    return simplex + extra, "simplex", f"{T // max(L, 2)} simplices of at least {max(L, 2)} points, erratum 14"


_Row = tuple[str, int | None, int | None, int | None, int | None, str, str, str, str]
"""p; the widths that are printed, corrected, necessary and verified (T is always enough); variant; and sources."""


def _nothing(p: str, why: str) -> _Row:
    return p, None, None, None, None, "", why, why, ""


def _linear(T: int, L: int) -> list[_Row]:
    verified, variant, reason = _best_one_sided(T, L, 0, "frame")
    printed, corrected = math.ceil(_symmetric(T, L) - 1e-9), _next_integer(_symmetric(T, L))
    return [
        _nothing("1", "linear mixing compares no tokens: inventory-based counting needs p = T"),
        ("T", printed, corrected, one_sided_bound(T, L), verified, variant,
         "B.2.1, eq. 50", "eq. 49 is strict: floor + 1, erratum 12", reason),
    ]  # fmt: skip


def _scores(T: int, L: int) -> list[_Row]:
    verified, variant, reason = _best_one_sided(T, L, 1, "counter-frame")
    inventory = _smallest_frame("squared", T, L)
    reads = inventory < min(verified, T)
    printed, corrected = math.ceil(_symmetric(T, L) - 1e-9) + 1, _next_integer(_symmetric(T, L)) + 1
    squared, least = math.ceil(T * (2 * L - 3) / (T - 1 + (2 * L - 3)) - 1e-9), _next_integer(T * (L - 1) / (T + L - 2))
    return [
        ("1", printed, corrected, one_sided_bound(T, L) + 1, verified, variant,
         "B.2.2, section 5.2", "eq. 49 is strict: floor + 1, erratum 12; any alpha, erratum 15", reason),
        ("T", squared, least, squared_bound(T, L), min(verified, inventory), "frame" if reads else variant,
         "B.2.3, eq. 72", "squares are never negative: M < 1/sqrt(L-1), erratum 16",
         "a frame with (L-1) max c^2 - (L-2) min c^2 < 1, erratum 16" if reads else reason),
    ]  # fmt: skip


def _bos_softmax(T: int, L: int) -> list[_Row]:
    bits, small = T.bit_length(), T <= 3
    why = "orthonormal embeddings" if small else "points on the full circle and a counter, errata 20 and 25"
    sources = "B.3.1, eq. 93", "the counter is the BOS coordinate itself, erratum 20", why
    return [(p, bits + 2, bits + 1, 3, 3, "orthogonal" if small else "circle", *sources) for p in ("1", "T")]


def _dot_softmax(T: int, L: int) -> list[_Row]:
    verified = _smallest_frame("softmax", T, L)
    return [
        _nothing("1", "softmax without BOS leaves no counting direction: inventory-based counting needs p = T"),
        ("T", T.bit_length() + 2, None, None, verified, "frame" if verified < T else "orthogonal",
         "section 5.2; B.3.2 says two fewer",
         "the binary code with large kappa fails, the true bound depends on L and is not known: errata 26 and 27",
         "a frame tuned with kappa, erratum 26" if verified < T else "orthonormal embeddings"),
    ]  # fmt: skip
