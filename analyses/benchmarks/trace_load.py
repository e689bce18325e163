"""Through which rooms does a load go, and a certificate, an explanation and a report after it?

Every call of a function of interp is followed. A room is a file of interp. A stay is an unbroken run of calls into one
room, rooms are the different ones, returns are stays in a room that was left before, and climbs are steps to a room
on a higher floor than the one before: the floors are those of the import contracts, cli at the top, errors at the
bottom. Imports, class bodies, comprehensions and lambdas are no calls, and the stand-in for TransformerLens 4 counts as
the library that it stands for: not at all. Only the first 10^6 calls of each are followed.

    python analyses/benchmarks/trace_load.py [--rooms] [MODEL]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import interp

ROOT = Path(interp.__file__).parent
FLOORS = ("cli", "families", "report", "programs", "certificates", "measures", "training", "models", "tasks", "support")
MOST = 10**6


def room_of(frame: FrameType) -> str | None:
    """The room of a call, as a path below interp/, or None for code that is not interp's or no function."""
    code = frame.f_code
    if code.co_name.startswith("<") or not code.co_filename.startswith(str(ROOT)) or "__module__" in code.co_names[:2]:
        return None
    room = str(Path(code.co_filename).relative_to(ROOT).with_suffix(""))
    return None if room.startswith("models/lens/v4/") else room


def floor_of(room: str) -> int:
    """The number of floors below a room; interp/__init__ is the top."""
    first = room.split("/")[0]
    if first == "errors":
        return 0
    return len(FLOORS) - FLOORS.index(first) if first in FLOORS else len(FLOORS) + 1


def stays_of(work: Callable[[], Any]) -> tuple[list[str], Any]:
    """The rooms that a piece of work goes through, in order, without repeats, and its result."""
    found: list[str] = []
    calls = 0

    def follow(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if event != "call" or calls >= MOST or (room := room_of(frame)) is None:
            return
        calls += 1
        if not found or found[-1] != room:
            found.append(room)

    sys.setprofile(follow)
    try:
        made = work()
    finally:
        sys.setprofile(None)
    return found, made


def counts_of(stays: list[str]) -> dict[str, int]:
    climbs = sum(floor_of(after) > floor_of(before) for before, after in pairwise(stays))
    rooms = len(set(stays))
    return {"stays": len(stays), "rooms": rooms, "climbs": climbs, "returns": len(stays) - rooms}


def main(arguments: list[str] | None = None) -> dict[str, dict[str, int]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", default="count01/paper", help="a name or path")
    parser.add_argument("--rooms", action="store_true", help="print the stays of load in order")
    parser.add_argument("--smoke", action="store_true", help="only load, as the test does")
    given = parser.parse_args(arguments)
    interp.load(given.model)  # imports and caches first
    stays, model = stays_of(lambda: interp.load(given.model))
    found = {"load": counts_of(stays)}
    works: dict[str, Callable[[], Any]] = {
        "certify": lambda: interp.certify(model),
        "explain": lambda: interp.explain(model, seconds=5),
        "analyze": lambda: interp.analyze(model, sections=["accuracy"], inputs=200),
    }
    for name, work in {} if given.smoke else works.items():
        found[name] = counts_of(stays_of(work)[0])
    for name, counts in found.items():
        print(f"{name:8}", "  ".join(f"{count:>7,} {what}" for what, count in counts.items()))
    if given.rooms:
        for room in stays:
            print("  " * (len(FLOORS) + 1 - floor_of(room)) + room)
        print(Counter(stays).most_common(5))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
