"""Read a file that may be hostile: bound sizes, refuse repeated keys, and check the type and range of every number."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import zlib
from typing import Any

MAX_BYTES = 64 << 20
HEX = re.compile(r"-?0x[01](\.[0-9a-f]{1,13})?p[+-][0-9]{1,4}")
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Fault(Exception):
    """A step of the check that fails."""


def need(condition: object, sentence: str) -> None:
    if not condition:
        raise Fault(sentence)


def read(path: str) -> dict[str, Any]:
    """Return the JSON object of a file, plain or gzipped, with every key once."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if data[:2] == b"\x1f\x8b":
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_BYTES + 1)
        need(len(data) <= MAX_BYTES, f"the file holds more than {MAX_BYTES} bytes")
        content = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_constant, parse_float=_float)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise Fault(f"the file cannot be read: {type(error).__name__}: {str(error)[:200]}") from None
    need(type(content) is dict, "the file holds no JSON object")
    return dict(content)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    need(len(entries) == len(pairs), f"a key occurs twice among {sorted(key for key, _ in pairs)[:20]}")
    return entries


def _constant(name: str) -> None:
    raise Fault(f"{name} is not a finite number")


def _float(text: str) -> float:
    need(math.isfinite(number := float(text)), f"{text[:40]} is not a finite number")
    return number


def fields(value: Any, names: str, what: str) -> list[Any]:
    """Return the values of an object with exactly these fields."""
    wanted = names.split()
    need(type(value) is dict and sorted(value) == sorted(wanted), f"{what} must be an object with {', '.join(wanted)}")
    return [value[name] for name in wanted]


def whole(value: Any, low: int, high: int, what: str) -> int:
    need(type(value) is int and low <= value <= high, f"{what} = {value!r:.60} must be a whole number {low}..{high}")
    return int(value)


def listed(value: Any, what: str, length: int | None = None) -> list[Any]:
    right = type(value) is list and (length is None or len(value) == length)
    need(right, f"{what} must be a list" + ("" if length is None else f" of {length}"))
    return list(value)


def wholes(value: Any, low: int, high: int, what: str, length: int | None = None) -> list[int]:
    return [whole(item, low, high, what) for item in listed(value, what, length)]


def hexadecimal(value: Any, what: str) -> float:
    """Return a number written as a hexadecimal float."""
    need(type(value) is str and HEX.fullmatch(value), f"{what} = {value!r:.40} is not a hexadecimal number")
    need(int(value.rpartition("p")[2]) >= -1022, f"{what} = {value} is cut when it is read")
    try:
        number = float.fromhex(value)
    except OverflowError:
        raise Fault(f"{what} = {value} is not finite") from None
    need(math.isfinite(number), f"{what} = {value} is not finite")
    return number
