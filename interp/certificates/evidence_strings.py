"""Evidence of certificates of strings by counts and seen positions: a bound for every length. The rest is run again."""

from __future__ import annotations

from typing import Any

import torch

from interp.architecture.task_model import TaskModel
from interp.certificates.base import Certificate
from interp.certificates.evidence import Finding, register_evidence, smallest, stated
from interp.certificates.language_strings import seen_positions
from interp.errors import InterpError


@register_evidence("strings by counts and seen positions")
def strings_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """The smallest margin of each length; the positions that layer 2 tells apart."""
    if certificate.status != "certified":
        raise InterpError(f"evidence of strings is for a certified model, this one is {certificate.status}")
    table = certificate.tables["lengths"]
    longest = int(table["length"].max())
    seen = (torch.nonzero(seen_positions(model, longest))[:, 0] + 1).tolist()
    bounds = [stated(margin) for margin in table["smallest_margin"]]
    said = f"{model.task.name}: right on every string of 1 to {longest} symbols, {2 ** (longest + 1) - 2} strings"
    return Finding("strings", {"longest": longest, "seen": seen}, bounds, smallest(bounds), said)
