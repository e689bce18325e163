"""An explanation as a hypothesis: each explained part is a variable that carries its quantities at its place."""

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
"""No quantity is larger: two of them make one number."""


def as_hypothesis(setting: Setting, parts: Sequence[PartRole], model: str) -> Hypothesis:
    """The variables of an explanation's parts, for interp.test_hypothesis. setting: of its program.

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
    """The values of quantities as one number for each position of rows of tokens."""

    def __init__(self, setting: Setting, of: list[Quantity]):
        self.setting, self.of = setting, of

    def __call__(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        tokens = tokens.cpu()
        view = View(self.setting, tokens, torch.ones_like(tokens, dtype=torch.bool))  # padding is a mark
        found = torch.zeros_like(tokens)
        for one in self.of:
            found = found * FAR + one.values(view)
        return found
