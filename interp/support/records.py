"""Frozen records, as files hold them: their base class, the scalars in them, and the reference to a task.

This module imports neither torch nor pandas, so that a sweep can read ten thousand specs per second.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    field_serializer,
    field_validator,
)

from interp.errors import SpecError, first_few, one_of, quoted, short

Scalar: TypeAlias = StrictBool | StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)] | StrictStr
Natural: TypeAlias = Annotated[StrictInt, Field(ge=0, lt=2**58)]


class FrozenRecord(BaseModel):
    """Base of all spec classes: immutable, without unknown fields. One SpecError reports all problems."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def __init__(self, /, **data: Any) -> None:  # a file may have a field named "self"
        try:
            self.__pydantic_validator__.validate_python(data, self_instance=self)
        except ValidationError as error:
            raise SpecError(_sentences(type(self), error)) from None
        except RecursionError:
            raise SpecError([f"{type(self).__name__}: tables are nested too deeply"]) from None


def _sentences(kind: type[BaseModel], error: ValidationError) -> list[str]:
    """Convert Pydantic's errors to sentences that name the field, its value and the expected values."""
    sentences = []
    known = [f.alias or name for name, f in kind.model_fields.items()]
    errors = error.errors()
    if len(strange := [item["loc"][-1] for item in errors if item["type"] == "extra_forbidden"]) > 3:
        sentences.append(f"unknown fields {first_few(strange)}; known: {first_few(known, 8)}")
        errors = [item for item in errors if item["type"] != "extra_forbidden"]
    for item in errors:
        where = ".".join(short(part) for part in item["loc"]) or kind.__name__
        inner = item.get("ctx", {}).get("error")
        if isinstance(inner, SpecError):
            sentences += [f"{where}: {problem}" for problem in inner.problems]
        elif item["type"] == "extra_forbidden":
            sentences.append(one_of("field", where, known))
        elif item["type"] == "missing":
            sentences.append(f"{where} is missing")
        else:
            message = item["msg"].removeprefix("Value error, ")
            sentences.append(f"{where} = {quoted(item['input'])}: {message[0].lower()}{message[1:]}")
    return sentences


def from_plain(kind: Any, data: Any, name: str = "") -> Any:
    """Make a value of a type, such as a dataclass, from plain data, with lists for tuples. name: of what it is an
    entry. Raises ValueError, in one sentence, for data of other types."""
    try:
        return _adapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([name] * bool(name) + [short(part) for part in first["loc"]]) or kind.__name__
        raise ValueError(f"{where} = {quoted(first['input'])}: {first['msg']}") from None


_adapter = cache(TypeAdapter[Any])


def sorted_pairs(value: Any) -> tuple[tuple[str, Any], ...]:
    """Sort a table, or pairs of names and values, by name."""
    try:
        pairs = dict(value)
    except (TypeError, ValueError):
        raise ValueError("must be a table of names and values") from None
    if not all(isinstance(name, str) for name in pairs):
        raise ValueError("the names must be strings")
    return tuple(sorted(pairs.items()))


class TaskRef(FrozenRecord):
    """A reference to a task: its name, parameters, the seed of its fixed data set, and the hash of its table, if any.

    Example:

        >>> interp.models.spec.TaskRef(name="histogram", parameters={"T": 16}).parameters
        (('T', 16),)
        >>> str(interp.models.spec.TaskRef(name="histogram", parameters={"T": 16}))
        'histogram with T = 16'
    """

    name: StrictStr
    parameters: tuple[tuple[str, Scalar], ...] = ()
    data_seed: Natural = 0
    table_sha256: StrictStr | None = None

    _sorted = field_validator("parameters", mode="before")(lambda value: sorted_pairs(value))
    _as_mapping = field_serializer("parameters")(lambda self, value: dict(value))

    def __str__(self) -> str:
        facts = [f"{name} = {value}" for name, value in self.parameters]
        facts += [f"data seed {self.data_seed}"] * (self.data_seed != 0)
        facts += [f"a table of SHA-256 {self.table_sha256}"] * (self.table_sha256 is not None)
        return self.name + (f" with {', '.join(facts)}" if facts else "")
