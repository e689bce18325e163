"""Exact weights from proofs: the registry of constructions. Each registers a name, default sizes and variants.

A registered function takes sizes (and a variant, if it has several) and returns a Construct: the spec, whose origin
records the name and the arguments; the task; and the weights with their proof. Each proof has one file in its family,
which contains both the argument and the weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from interp.errors import InterpError, check_one_of, cut, quoted
from interp.models.architecture.limits import LengthLimit
from interp.models.spec import Construction, ModelSpec, Scalar
from interp.tasks import Task
from interp.tasks.registry import load_plug_ins


@dataclass(frozen=True)
class ConstructedWeights:
    """Exact weights of one model.

    tensors:    parameters by name, float64.
    directions: named residual-stream directions, (d,) each, or (n, d) for a named family such as one per token.
    claim:      one sentence: what the model does, and on which inputs.
    margin:     the smallest margin over all inputs in the claim. For argmax readouts, this is the lead of the right
                logit (inf with a single class).
    variant:    the variant, if the construction has several.
    notes:      sources, errata and limits, one sentence each.
    numbers:    chosen scales and quantities from the proof by name, such as kappa, alpha or gap.
    value:      a function from an input's symbols to the component along direction `s` at the read position; None if
                the proof gives only its sign or a bound.
    length_limit: the length up to which a proof for all lengths is valid in finite precision; None if unlimited.
    """

    tensors: dict[str, Tensor]
    directions: dict[str, Tensor]
    claim: str
    margin: float
    variant: str = ""
    notes: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    value: Callable[[Sequence[int]], float] | None = field(default=None, compare=False)
    length_limit: LengthLimit | None = None


if TYPE_CHECKING:
    from interp.models.architecture.task_model import TaskModel


@dataclass(frozen=True)
class Construct:
    """What a registered construction returns."""

    spec: ModelSpec
    task: Task
    weights: ConstructedWeights

    @classmethod
    def of(
        cls, name: str, task: Task, weights: ConstructedWeights, arguments: Mapping[str, Scalar], variant: str = "",
        **settings: Any,
    ) -> Construct:  # fmt: skip
        """Return weights with their spec, in float64, which has the other settings and records name and arguments."""
        origin = Construction(name=name, variant=variant, arguments=tuple(arguments.items()))
        return cls(ModelSpec(task=task.ref, dtype="float64", origin=origin, **settings), task, weights)

    def model(
        self, *, seed: int = 0, device: str | torch.device = "cpu", dtype: torch.dtype | str | None = None
    ) -> TaskModel:
        """Return the task model with these weights. It applies the length limit of its number format."""
        from interp.models.architecture.task_model import TaskModel  # loads transformer_lens, which takes seconds

        model = TaskModel(self.spec, self.task, self.weights.tensors, seed=seed, device=device, dtype=dtype)
        model.length_limit = self.weights.length_limit
        return model


@dataclass(frozen=True)
class Entry:
    """One registered construction: `<family>/<name>`, its function, its variants, and a one-line summary."""

    name: str
    make: Callable[..., Construct]
    variants: tuple[str, ...]
    summary: str

    @property
    def sizes(self) -> dict[str, Any]:
        """Arguments except `variant`, with their defaults."""
        parameters = inspect.signature(self.make).parameters
        return {name: p.default for name, p in parameters.items() if name != "variant"}


_ENTRIES: dict[str, Entry] = {}
F = TypeVar("F", bound=Callable[..., Construct])


def register_construction(name: str, variants: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Decorator: register a construction as `<family>/<name>`. Raises InterpError if the name is taken."""

    def add(make: F) -> F:
        if name in (_ENTRIES if make.__module__.startswith("interp.") else registered_constructions()):
            raise InterpError(f"a construction named {name!r} is already registered")
        summary = (inspect.getdoc(make) or "").split("\n", 1)[0]
        _ENTRIES[name] = Entry(name, make, variants, summary)
        return make

    return add


def registered_constructions() -> dict[str, Entry]:
    """Return all registered constructions, sorted by name."""
    _load_own()
    return dict(sorted(_ENTRIES.items()))


@cache
def _load_own() -> None:
    """Import the files that register constructions; a trained model needs none of them."""
    load_plug_ins("constructions")


def construct(name: str, variant: str | None = None, **sizes: Any) -> Construct:
    """Build the weights of a registered construction.

    Raises InterpError for an unknown name, variant or size, and for sizes at which the proof does not apply.
    """
    known = registered_constructions()
    entry = known[check_one_of("construction", name, known)]
    for size in sizes:
        check_one_of(f"size of {name}", size, entry.sizes)
    if missing := [
        size for size, value in entry.sizes.items() if value is inspect.Parameter.empty and size not in sizes
    ]:
        raise InterpError(
            f"{name} needs {', '.join(missing)}, which {'has' if len(missing) == 1 else 'have'} no default"
        )
    if variant and variant not in entry.variants:
        if not entry.variants:
            raise InterpError(f"{name} has no variants, so variant = {variant!r} does not apply")
        check_one_of(f"variant of {name}", variant, entry.variants)
    for size, value in sizes.items():
        if (problem := _type_problem(entry, size, value)) is not None:
            raise InterpError(f"{name}: {problem}")
    try:
        return entry.make(**({"variant": variant} if variant else {}), **sizes)
    except InterpError:
        raise
    except (TypeError, ValueError, ArithmeticError, MemoryError, RuntimeError) as error:
        arguments = ", ".join(f"{size} = {quoted(value)}" for size, value in sizes.items())
        raise InterpError(cut(f"{name} cannot be built with {arguments or 'these sizes'}: {error}")) from None


def _type_problem(entry: Entry, size: str, value: Any) -> str | None:
    """Return a sentence if the argument has the wrong type or is out of bounds, else None."""
    default = entry.sizes[size]
    if default is None or default is inspect.Parameter.empty:
        annotation = inspect.signature(entry.make).parameters[size].annotation
        if isinstance(value, float | str) and "int" in str(annotation):
            return f"{size} = {quoted(value)} must be an integer"
    elif isinstance(default, bool) != isinstance(value, bool) or not isinstance(value, _ACCEPTED[type(default)]):
        return f"{size} = {quoted(value)} must be {_SPOKEN[type(default)]}"
    if type(value) is int and value < 1 and size in _AT_LEAST_ONE:
        return f"{size} = {value} must be at least 1"
    return None


_AT_LEAST_ONE = ("T", "L", "N", "K", "p", "v", "d_model", "d_head", "n_heads", "rank", "length")
_ACCEPTED: dict[type, Any] = {bool: bool, int: int, float: int | float, str: str}
_SPOKEN: dict[type, str] = {bool: "true or false", int: "an integer", float: "a number", str: "a word"}
