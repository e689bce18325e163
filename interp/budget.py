"""Limits on requests: a budget for estimated memory, and the allowed values of sizes and seeds."""

import os

from interp.errors import InterpError, quoted, short

DEFAULT_GB = 4.0
SEED_LIMIT = 2**58
"""Seeds must be smaller: samplers multiply them by 16, and generators take 64 bits."""


def gigabytes() -> float:
    """Return the budget: the environment variable INTERP_MAX_GB, or 4. Raises InterpError if it is not a number."""
    given = os.environ.get("INTERP_MAX_GB", "")
    try:
        found = float(given or DEFAULT_GB)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e6:
        raise InterpError(f"INTERP_MAX_GB = {short(given)} must be a number of gigabytes above 0")
    return found


def need(what: str, n_bytes: float) -> None:
    """Raise InterpError if `what` would take more bytes than the budget."""
    if n_bytes > gigabytes() * 1e9:
        size = f"{n_bytes / 1e9:,.1f}" if n_bytes < 1e15 else f"{float(min(n_bytes, 1e300)) / 1e9:.1e}"
        raise InterpError(
            f"{what} would take {size} GB, more than the budget of {gigabytes():g} GB; "
            "the environment variable INTERP_MAX_GB raises it"
        )


def most(count: int) -> int:
    """Scale a limit for 1 GB to the budget."""
    return max(1, int(count * gigabytes()))


def check_size(name: str, value: object, least: int = 1) -> int:
    """Return value. Raises InterpError unless it is an integer from `least` to 2^58 - 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InterpError(f"{name} = {quoted(value)} must be an integer of at least {least}")
    if value >= SEED_LIMIT:
        raise InterpError(f"{name} = {quoted(value)} must be below 2^58")
    return value


def check_seed(seed: object) -> None:
    """Raise InterpError unless seed is an integer from 0 to 2^58 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < SEED_LIMIT:
        raise InterpError(f"seed = {quoted(seed)} must be an integer from 0 to 2^58 - 1")
