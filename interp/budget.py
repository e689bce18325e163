"""How much one request may ask for: memory is estimated first and refused beyond, sizes and seeds have limits."""

from __future__ import annotations

import os

from interp.errors import InterpError, quoted, short

DEFAULT_GB = 1.0
SEED_LIMIT = 2**58
"""Seeds lie below it: samplers multiply them by 16, and generators take 64 bits."""


def gigabytes() -> float:
    """The budget: 1 GB, or what the environment variable INTERP_MAX_GB says. Raises InterpError for no number."""
    given = os.environ.get("INTERP_MAX_GB", "")
    try:
        found = float(given or DEFAULT_GB)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise InterpError(f"INTERP_MAX_GB = {short(given)} must be a number of gigabytes above 0")
    return found


def need(what: str, n_bytes: float) -> None:
    """Raise InterpError where `what` would take more bytes than the budget."""
    if n_bytes > gigabytes() * 1e9:
        size = f"{n_bytes / 1e9:,.1f}" if n_bytes < 1e15 else f"{float(min(n_bytes, 1e300)) / 1e9:.1e}"
        raise InterpError(
            f"{what} would take {size} GB, more than the budget of {gigabytes():g} GB; "
            "the environment variable INTERP_MAX_GB raises it"
        )


def most(count: int) -> int:
    """A limit on a count that goes with 1 GB, scaled to the budget."""
    return max(1, int(count * gigabytes()))


def check_size(name: str, value: object, least: int = 1) -> int:
    """value, or an InterpError that says it must be an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InterpError(f"{name} = {quoted(value)} must be an integer of at least {least}")
    if value >= SEED_LIMIT:
        raise InterpError(f"{name} = {quoted(value)} must be below 2^58")
    return value


def check_seed(seed: object) -> None:
    """Raise InterpError for anything that is not a seed."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < SEED_LIMIT:
        raise InterpError(f"seed = {quoted(seed)} must be an integer from 0 to 2^58 - 1")
