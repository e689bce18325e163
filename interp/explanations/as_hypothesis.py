"""An explanation as a hypothesis: each explained part is a variable that holds the quantities of its output."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError
from interp.explanations.findings import PartRole
from interp.explanations.picture import in_order
from interp.measures.hypothesis import Hypothesis, Variable
from interp.mechanisms.quantities import Quantity
from interp.mechanisms.setting import Setting, View

FAR = 1 << 12
"""Larger than any value of a quantity, so that two values can be packed into one number."""


def as_hypothesis(setting: Setting, parts: Sequence[PartRole], model: str) -> Hypothesis:
    """Return the explained parts as variables for interp.evaluate_hypothesis. setting: the setting of the program.

    Raises InterpError if no part was explained.
    """
    explained = [one for one in parts if one.status == "explained" and one.quantities]
    if not explained:
        raise InterpError(f"no part of {model} was explained, so there is no hypothesis to test")
    last = max(in_order(one)[0] for one in parts)
    variables = []
    for one in explained:
        of = [Quantity.from_json(setting, list(data)) for data in one.quantities]
        place = one.part if in_order(one)[0] == last else f"{one.part} @ each"
        words = " and ".join(quantity.words for quantity in of)
        variables.append(Variable(f"{words} ({one.part})", at=place, function=Carried(setting, of)))
    return Hypothesis(variables)


class Carried:
    """Pack the values of quantities into one number per position."""

    def __init__(self, setting: Setting, of: list[Quantity]):
        self.setting, self.of = setting, of

    def __call__(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        tokens = tokens.cpu()
        view = View(self.setting, tokens, torch.ones_like(tokens, dtype=torch.bool))  # padding counts as a mark
        found = torch.zeros_like(tokens)
        for one in self.of:
            found = found * FAR + one.values(view)
        return found
