"""The panel's JavaScript without what only readers need: comments, indentation, spaces and line ends between tokens.

No name is changed, so that the code of a page still reads as its files do, and an error names the same functions.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<space>\s+)|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"""|(?P<word>[A-Za-z_$][\w$]*|\d[\w.]*)|(?P<mark>\+\+|--|=>|.)""",
    re.DOTALL,
)
_REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_BEFORE_REGEX = {"", "return", *"(,=:[!&|?{};"}
_OPEN, _CLOSED = set("{([,;:?=<&|*.") | {"=>"}, set("})],;:?.=&|*")
"""After the first and before the second a line goes on, so that its end may go."""


def minify(text: str) -> str:
    """The same program in fewer characters. Raises ValueError where a template string has no end."""
    found: list[str] = []
    last, place, gap = "", 0, ""
    while place < len(text):
        if text[place] == "`":
            token, kind = text[place : _template_end(text, place)], "string"
        elif last in _BEFORE_REGEX and text[place] == "/" and text[place + 1] not in "/*":
            match = _REGEX.match(text, place)
            assert match is not None
            token, kind = match[0], "string"
        else:
            match = _TOKEN.match(text, place)
            assert match is not None
            assert match.lastgroup is not None
            token, kind = match[0], match.lastgroup
        place += len(token)
        if kind in ("comment", "space"):
            gap = "\n" if "\n" in gap + token else " "
            continue
        found.append(_between(last, gap, token))
        found.append(token)
        last, gap = token, ""
    return "".join(found) + "\n"


def _between(last: str, gap: str, token: str) -> str:
    """What stands between two tokens that had `gap` between them: an end of line, a space or nothing."""
    if not gap or not last:
        return ""
    if gap == "\n" and last not in _OPEN and token not in _CLOSED:
        return "\n"
    joins = re.compile(r"[\w$]")
    words = joins.match(last[-1]) and joins.match(token[0])
    signs = last[-1] == token[0] and token[0] in "+-/"
    return " " if words or signs else ""


def _template_end(text: str, start: int) -> int:
    """Where a template string that begins at `start` ends; what stands in its ${} may hold further ones."""
    place = start + 1
    while place < len(text):
        if text[place] == "\\":
            place += 2
        elif text[place] == "`":
            return place + 1
        elif text.startswith("${", place):
            depth, place = 1, place + 2
            while depth:
                if text[place] == "`":
                    place = _template_end(text, place)
                    continue
                depth += {"{": 1, "}": -1}.get(text[place], 0)
                place += 1
        else:
            place += 1
    raise ValueError("a template string has no end")
