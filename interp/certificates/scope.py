"""The scope of a proof: which values of a spec's fields a method supports.

A method lists the fields that it supports, each with any value or with some values. A field that is not listed must
have its default value. So when a spec gains a field, every method refuses its new values until the method lists them. A
field without a default must be listed. Changes outside the spec (hooks, replaced modules, changed constants) are always
refused; see frozen.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from interp.spec import ModelSpec

ANY = object()
"""Marks a field that is supported with every value."""

Takes = Mapping[str, object]
"""Per field: ANY, or a tuple of the supported values. Nested fields are joined by dots."""

WHOLE = ("task", "origin")
"""Nested fields that are supported or refused as a whole: the task, and the origin of the weights."""

NO_DEFAULT = object()


@dataclass(frozen=True)
class Field:
    """One field of a spec. path: its name in Takes (layers.bias.q); where: its name in messages (layer 1: bias.q)."""

    path: str
    where: str
    value: object
    default: object


def anything(*paths: str) -> dict[str, object]:
    """Return Takes for fields that are supported with any value."""
    return dict.fromkeys(paths, ANY)


def fields(part: BaseModel, path: str = "", where: str = "") -> Iterator[Field]:
    """Yield every field of a spec, including nested fields; the value of `layers` is the number of layers."""
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
    """Return one sentence per field whose value a method does not support."""
    found = []
    for field in fields(spec):
        allowed = takes.get(field.path, ())
        if allowed is ANY or field.value == field.default or field.value in allowed:  # type: ignore[operator]
            continue
        known = [repr(value) for value in (*allowed, field.default) if value is not NO_DEFAULT]  # type: ignore[misc]
        about = f", only {' or '.join(dict.fromkeys(known))}" if known else ""
        found.append(f"the method does not support {field.where} = {field.value!r}{about}")
    return found


def refusal_of(spec: ModelSpec, takes: Takes) -> str | None:
    """Return a sentence for the first field that a method does not support, or None."""
    return next(iter(unknown(spec, takes)), None)
