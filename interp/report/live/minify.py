"""The panel's JavaScript without what only readers need: comments, indentation, spaces and line ends between tokens.

No name is changed here, so that the engine reads as its files do; of a page's script, names.py shortens what only the
script itself can see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<gap>//[^\n]*|/\*.*?\*/|\s+)|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"""|(?P<word>[A-Za-z_$][\w$]*)|(?P<number>\d[\w.]*)|(?P<mark>\+\+|--|=>|\.\.\.|\?\.(?!\d)|.)""",
    re.DOTALL,
)
_REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_TEMPLATE = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*(`|\$\{)", re.DOTALL)
_BEFORE_REGEX = {"", "return", *"(,=:[!&|?{};"}
_OPEN, _CLOSED = set("{([,;:?=<&|*.") | {"=>", "...", "?."}, set("})],;:?.=&|*") | {"?."}
"""After the first and before the second a line goes on, so that its end may go."""


class Token(NamedTuple):
    """A piece of a program: "word", "number", "mark", "string" (regular expressions too), or "template": from ` or }
    to the next ` or ${; and the gap before it: "", a space or an end of line."""

    kind: str
    text: str
    gap: str


def minify(text: str) -> str:
    """The same program in fewer characters. Raises ValueError where a template string has no end."""
    return join(tokens(text))


def tokens(text: str) -> Iterator[Token]:
    """The program's tokens in their order. Raises ValueError where a template string has no end."""
    last, place, gap = "", 0, ""
    open_braces: list[bool] = []  # for each: does a template go on where it closes?
    while place < len(text):
        if text[place] == "`" or (text[place] == "}" and open_braces and open_braces[-1]):
            if text[place] == "}":
                open_braces.pop()
            match = _TEMPLATE.match(text, place + 1)
            if match is None:
                raise ValueError("a template string has no end")
            found = Token("template", text[place : match.end()], gap)
            if match[1] == "${":
                open_braces.append(True)
        elif last in _BEFORE_REGEX and text[place] == "/" and text[place + 1] not in "/*":
            match = _REGEX.match(text, place)
            assert match is not None
            found = Token("string", match[0], gap)
        else:
            match = _TOKEN.match(text, place)
            assert match is not None
            assert match.lastgroup is not None
            found = Token(match.lastgroup, match[0], gap)
        place = match.end()
        if found.kind == "gap":
            gap = "\n" if "\n" in gap + found.text else " "
            continue
        if found.text == "{":
            open_braces.append(False)
        elif found.text == "}" and found.kind == "mark" and open_braces:
            open_braces.pop()
        yield found
        # After "${" an expression begins, as after an opening parenthesis.
        last, gap = "(" if found.kind == "template" and found.text.endswith("${") else found.text, ""
    if any(open_braces):
        raise ValueError("a template string has no end")


def join(program: Iterator[Token] | list[Token]) -> str:
    """The tokens as text, with the spaces and ends of lines that they need."""
    found: list[str] = []
    last = ""
    for token in program:
        found += [_between(last, token), token.text]
        last = token.text
    return "".join(found) + "\n"


def _between(last: str, token: Token) -> str:
    """What stands between two tokens: an end of line, a space or nothing."""
    if not token.gap or not last:
        return ""
    inside = last.endswith("${") or (token.kind == "template" and token.text[0] == "}")
    if token.gap == "\n" and not inside and last not in _OPEN and token.text not in _CLOSED:
        return "\n"
    joins = re.compile(r"[\w$]")
    words = joins.match(last[-1]) and joins.match(token.text[0])
    signs = last[-1] == token.text[0] and token.text[0] in "+-/"
    return " " if words or signs else ""
