"""Small changes to nested dictionaries, such as evidence that a test forges."""

import copy
from typing import Any


def changed(evidence: dict[str, Any], **values: Any) -> dict[str, Any]:
    """A copy in which claim__domain__errors=[] has replaced evidence["claim"]["domain"]["errors"]."""
    found = copy.deepcopy(evidence)
    for name, value in values.items():
        owner, keys = found, name.split("__")
        for key in keys[:-1]:
            owner = owner[key]
        owner[keys[-1]] = value
    return found
