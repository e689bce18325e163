"""Shorter names for what only the panel's own script can see: variables, parameters and functions, not properties.

One name becomes one short name everywhere, so that scopes need no thought: two variables that were different stay so.
A name is left alone where it is not seen to be declared, and where the language or the browser may mean it (all that
begin with a capital).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from string import ascii_letters

from interp.report.live.minify import Token

_LANGUAGE = """
async await break case catch class const constructor continue debugger default delete do else export extends false
finally for from function get if import in instanceof let new null of return set static super switch this throw true
try typeof undefined var void while with yield arguments eval
"""
_WINDOW = """
document window location history navigator performance screen name status event parent top self length origin close
open stop print focus blur find alert scroll URL CSS Node Text Image Option Range
"""
_WORDS, _BROWSER = frozenset(_LANGUAGE.split()), frozenset(_WINDOW.split())
_BLOCK = frozenset({"", ")", "=>", "else", "try", "finally", "do", ";", "}", "{", "catch"})
"""Before a brace that holds statements; after anything else it holds properties, or names that are taken from some."""
_CLOSING = frozenset({")", "]", "}"})
_PATTERN = frozenset({"(", "[", "{", ",", ":", "..."})
"""Before a name that a list of parameters, or of what is taken apart, declares."""


def shorten(program: list[Token]) -> list[Token]:
    """The same program with shorter names."""
    roles = _roles(program)
    uses = Counter(token.text for token, role in zip(program, roles) if role)
    declared = _declared(program, roles) - _WORDS - _BROWSER
    known = {token.text for token in program} | _WORDS | _BROWSER
    fresh = (name for name in _names() if name not in known)
    renamed = [name for name, _ in uses.most_common() if name in declared and len(name) > 2 and name[0].islower()]
    chosen = dict(zip(renamed, fresh))

    def shorter(token: Token, role: str) -> Token:
        name = chosen.get(token.text, token.text) if role else token.text
        return token._replace(text=f"{token.text}:{name}" if role == "shorthand" and name != token.text else name)

    return [shorter(token, role) for token, role in zip(program, roles)]


def _names() -> Iterator[str]:
    """a, b, ..., aa, ab, ..."""
    return ("".join(letters) for size in (1, 2) for letters in product(ascii_letters, repeat=size))


def _roles(program: list[Token]) -> list[str]:
    """Of each token: "variable", "shorthand" (a property and a variable at once), or "" for what stays."""
    roles = []
    inside = [""]  # what is open: "block", "object", "class", "(", "[" or "${"
    last, is_class = "", False
    for token, after in zip(program, [*program[1:], Token("mark", "", "")]):
        kind, text, role = token.kind, token.text, ""
        if kind == "word" and last not in (".", "?."):
            is_key = inside[-1] == "object" and last in ("{", ",")
            is_class = is_class or (text == "class" and not is_key)
            if text not in _WORDS and inside[-1] != "class":
                role = "variable" if not is_key else "shorthand" if after.text in (",", "}", "=") else ""
        elif kind == "template" or (kind == "mark" and text in _CLOSING):
            if text[0] in _CLOSING:
                inside.pop()
            if text.endswith("${"):
                inside.append("${")
        elif kind == "mark" and text == "{":
            inside.append("class" if is_class else "block" if last in _BLOCK else "object")
            is_class = False
        elif kind == "mark" and text in ("(", "["):
            inside.append(text)
        roles.append(role)
        last = text if kind in ("word", "mark") else "value"
    return roles


def _declared(program: list[Token], roles: list[str]) -> set[str]:
    """Names that the program declares: after const, let, function and class, as parameters, or taken from an object."""
    closing = _partners(program)
    opening = {end: start for start, end in closing.items()}
    found = {token.text for token, role in zip(program, roles) if role == "shorthand"}

    def take(start: int) -> None:
        """The names in the brackets that open here."""
        for place in range(start + 1, closing[start]):
            if roles[place] and program[place - 1].text in _PATTERN:
                found.add(program[place].text)

    for place, token in enumerate(program[:-1]):
        text, after = token.text, program[place + 1].text
        if token.kind == "word" and text in ("const", "let", "function", "class", "catch"):
            if after in ("(", "[", "{") and place + 1 in closing:
                take(place + 1)
            found.add(after)
        is_method = token.kind == "word" and not roles[place] and text not in _WORDS - {"constructor", "get", "set"}
        if is_method and after == "(" and program[closing[place + 1] + 1].text == "{":
            take(place + 1)
        if text == "function":
            take(place + 2 if after != "(" else place + 1)
        if text == "=>" and place - 1 in opening:
            take(opening[place - 1])
        if after == "=>" and roles[place]:
            found.add(text)
        if text == "," and roles[place + 1] == "variable" and program[place + 2].text == "=":
            found.add(after)  # const a = 1, b = 2
    return found


def _partners(program: list[Token]) -> dict[int, int]:
    """Where each bracket that opens is closed."""
    found: dict[int, int] = {}
    stack: list[int] = []
    for place, token in enumerate(program):
        if token.kind == "template":
            if token.text[0] == "}":
                stack.pop()
            if token.text.endswith("${"):
                stack.append(place)
        elif token.kind == "mark" and token.text in ("(", "[", "{"):
            stack.append(place)
        elif token.kind == "mark" and token.text in _CLOSING:
            found[stack.pop()] = place
    return found
