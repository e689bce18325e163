"""Of which models does a proof speak? The fields of a spec that a method takes into account, and the rest.

A method says field by field what it knows: any value, or the values for which its argument holds. A field that it does
not name must hold its default, for a default is how models were before the field was there; so a new field of the spec
is refused by every method, wherever it is used, until the method names it. A field without a default must be named.
What the spec does not say (hooks, replaced parts, changed constants) is refused for all: see frozen.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from interp.spec import ModelSpec

ANY = object()
"""A field whose every value the method takes into account."""

Takes = Mapping[str, object]
"""By field: ANY, or a tuple of the values that the argument holds for. Fields inside others are joined by a dot."""

WHOLE = ("task", "origin")
"""Fields that are taken or refused as a whole: which task it is, and where the weights come from."""

NO_DEFAULT = object()


@dataclass(frozen=True)
class Field:
    """One field of a spec. path: as a method names it, layers.bias.q; where: as a reader finds it, layer 1: bias.q."""

    path: str
    where: str
    value: object
    default: object


def anything(*paths: str) -> dict[str, object]:
    """These fields with any value."""
    return dict.fromkeys(paths, ANY)


def fields(part: BaseModel, path: str = "", where: str = "") -> Iterator[Field]:
    """Every field of a spec, those of its layers and of what is inside these too; `layers` itself is their number."""
    for name, info in type(part).model_fields.items():
        value = getattr(part, name)
        default = NO_DEFAULT if info.is_required() else info.get_default(call_default_factory=True)
        if path + name == "layers":
            yield Field("layers", "number of layers", len(value), NO_DEFAULT)
            for index, layer in enumerate(value):
                yield from fields(layer, "layers.", f"layer {index}: ")
        elif isinstance(value, BaseModel) and path + name not in WHOLE:
            yield from fields(value, f"{path}{name}.", f"{where}{name}.")
        else:
            yield Field(path + name, where + name, value, default)


def unknown(spec: ModelSpec, takes: Takes) -> list[str]:
    """A sentence for every field whose value a method does not take into account; empty where it knows them all."""
    found = []
    for field in fields(spec):
        allowed = takes.get(field.path, ())
        if allowed is ANY or field.value == field.default or field.value in allowed:  # type: ignore[operator]
            continue
        known = [repr(value) for value in (*allowed, field.default) if value is not NO_DEFAULT]  # type: ignore[misc]
        about = f", only {' or '.join(dict.fromkeys(known))}" if known else ""
        found.append(f"its argument does not take {field.where} = {field.value!r} into account{about}")
    return found


def refusal_of(spec: ModelSpec, takes: Takes) -> str | None:
    """The first field that a method does not know, or None."""
    return next(iter(unknown(spec, takes)), None)
