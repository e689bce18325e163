"""Methods whose results stay with their object. functools.cache would keep the object itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def cached_method(
    method: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate[Any, Arguments], Result]:
    """Compute what a method returns once for each of its arguments, as cached_property does without any."""

    @wraps(method)
    def known(self: Any, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        results, key = vars(self).setdefault(f"results of {method.__name__}", {}), (arguments, *named.items())
        if key not in results:
            results[key] = method(self, *arguments, **named)
        return results[key]

    return known
