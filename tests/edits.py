"""Evidence as it is written, and small changes to it and to other nested dictionaries."""

import copy
import json
from pathlib import Path
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


def written(certificate: Any, folder: Path) -> dict[str, Any]:
    """The evidence of a certificate, which is written to a file and read again."""
    return json.loads(certificate.evidence(folder / "proof.json").read_text())
