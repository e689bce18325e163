"""Every quantity: its source, run as Python, gives what its tensors give; and some values by hand."""

import json
from typing import Any

import pytest
import torch

import interp
from interp.programs.explanations.bench import Setting, View
from interp.programs.explanations.kinds import NOTHING
from interp.programs.explanations.quantities import Quantity, candidates
from interp.programs.explanations.rule import Rule

BITS = Setting(("0", "1", "[CLS]", "[EOS]", "[PAD]"), ("[CLS]", "[EOS]", "[PAD]"), False, ("no", "yes"))
NUMBERS = Setting(("0", "1", "2", "3", "="), ("=",), True, ("0", "1", "2", "3"))
BRACKETS = Setting(("(", ")", "[", "]", "[BOS]"), ("[BOS]",), True, ("no", "yes"))
SIGNED = Setting(("-1", "0", "1", "="), ("=",), True, ("0", "1"))
DIGITS = Setting(("0", "1", "2", "+"), ("+",), True, ("0", "1", "2"), fixed=(2, 5))
EVEN_ONES = (("0", "1"), ((0, 1), (1, 0)))
FEW_LETTERS = Setting(("a", "b", "c"), (), False, ("a", "b", "c"))


def rows_of(setting: Setting, n: int = 40) -> interp.Batch:
    """Random rows of several lengths, with marks at the ends where the setting has them."""
    generator = torch.Generator().manual_seed(3)
    content = [setting.vocabulary.index(token) for token in setting.content]
    rows, lengths = [], []
    for _ in range(n):
        inner = [
            content[int(k)]
            for k in torch.randint(
                len(content), (int(torch.randint(1, 9, (), generator=generator)),), generator=generator
            )
        ]
        first = [setting.vocabulary.index(t) for t in ("[CLS]", "[BOS]") if t in setting.marks]
        last = [setting.vocabulary.index(t) for t in ("[EOS]", "=") if t in setting.marks]
        rows.append([*first, *inner, *last])
        lengths.append(len(rows[-1]))
    width = max(lengths)
    tokens = torch.zeros(n, width, dtype=torch.long)
    for at, row in enumerate(rows):
        tokens[at] = torch.tensor([*row, *[len(setting.vocabulary) - 1] * (width - len(row))])
    return interp.Batch(tokens, torch.tensor(lengths), torch.zeros(n, dtype=torch.long))


def by_source(quantity: Quantity, batch: interp.Batch, row: int, position: int) -> Any:
    """The value that the source of a program computes."""
    names: dict[str, Any] = {}
    exec(Rule(quantity.setting, "same", (quantity,)).source, names)
    tokens = [quantity.setting.vocabulary[t] for t in batch.tokens[row, : batch.lengths[row]].tolist()]
    return names["answer"](tokens, position)


@pytest.mark.parametrize(
    "setting", [BITS, NUMBERS, BRACKETS, FEW_LETTERS], ids=["bits", "numbers", "brackets", "letters"]
)
@pytest.mark.thinned(4)
def test_source_and_tensors_agree_at_every_position(setting: Setting) -> None:
    batch = rows_of(setting)
    view = View.of(setting, batch)
    found = candidates(setting)
    assert len(found) > 10
    for quantity in found:
        values = quantity.values(view)
        for row in range(0, len(batch), 4):
            for position in range(int(batch.lengths[row])):
                wanted = by_source(quantity, batch, row, position)
                got = quantity.spoken(int(values[row, position]))
                assert got == wanted, (quantity.to_json(), batch.tokens[row].tolist(), position)


@pytest.mark.parametrize(("setting", "kind", "arguments", "rows"), [
    (BITS, "state", EVEN_ONES, rows_of(BITS)),
    (BRACKETS, "state", (("(",), ((0,),)), rows_of(BRACKETS)),  # other letters have no arrow
    *((DIGITS, "sum digit", (3, *orders, (2, 5)), None)
      for orders in (("least", "least"), ("most", "most"), ("most", "least"))),
])  # fmt: skip
def test_source_and_tensors_agree_on_steps(
    setting: Setting, kind: str, arguments: tuple[Any, ...], rows: interp.Batch | None
) -> None:
    if rows is None:
        digits = torch.randint(3, (30, 8), generator=torch.Generator().manual_seed(5))
        digits[:, [2, 5]] = 3
        rows = interp.Batch(digits, torch.full((30,), 8), torch.zeros(30, dtype=torch.long))
    quantity = Quantity(setting, kind, arguments)
    values = quantity.values(View.of(setting, rows))
    assert len(values.unique()) > 1
    for row in range(len(rows)):
        for position in range(int(rows.lengths[row])):
            assert int(values[row, position]) == by_source(quantity, rows, row, position), (row, position)
    assert Quantity.from_json(setting, json.loads(json.dumps(quantity.to_json()))) == quantity


@pytest.mark.parametrize(("setting", "kind", "arguments", "text", "position", "value"), [
    (BITS, "own count", (), "[CLS] 1 1 0 1 [EOS]", 1, 3), (BITS, "mirrored", (), "[CLS] 1 0 0 1 [EOS]", 0, 0),
    (BITS, "mirrored", (), "[CLS] 1 0 1 1 [EOS]", 0, 1), (BITS, "mirror pair", (1,), "[CLS] 1 0 1 1 [EOS]", 0, 1),
    (BITS, "remainder", ("1", 2), "[CLS] 1 1 0 1 [EOS]", 0, 1),
    (BRACKETS, "lowest", ("(", ")"), "[BOS] ( ) ) (", 4, -1),
    (BRACKETS, "difference", ("(", ")"), "[BOS] ( ( )", 3, 1), (BRACKETS, "nesting", (), "[BOS] ( [ ]", 3, 1),
    (BRACKETS, "nesting", (), "[BOS] ( [ )", 3, NOTHING), (NUMBERS, "extreme", ("largest", 1), "2 3 1 =", 3, 3),
    (NUMBERS, "extreme", ("largest", 2), "2 3 1 =", 3, 2), (NUMBERS, "sum modulo", (4,), "2 3 1 =", 3, 2),
    (SIGNED, "sum", (), "-1 1 -1 =", 3, -1), (BITS, "state", EVEN_ONES, "[CLS] 1 0 1 1 [EOS]", 0, 1),
    (DIGITS, "sum digit", (3, "least", "least", (2, 5)), "1 2 + 2 1 + 0 1", 5, 0),  # 7 + 5 = 12: 0 1 1
    (DIGITS, "sum digit", (3, "least", "least", (2, 5)), "1 2 + 2 1 + 0 1", 7, 1),
    (DIGITS, "sum digit", (3, "most", "least", (2, 5)), "2 1 + 1 2 + 0 1", 6, 1),
    (DIGITS, "sum digit", (3, "most", "most", (2, 5)), "2 1 + 1 2 + 1 1", 7, 0),
])  # fmt: skip
def test_values_by_hand(
    setting: Setting, kind: str, arguments: tuple[Any, ...], text: str, position: int, value: int
) -> None:
    tokens = torch.tensor([[setting.vocabulary.index(token) for token in text.split()]])
    view = View.of(setting, interp.Batch(tokens, torch.tensor([tokens.shape[1]]), torch.zeros(1, dtype=torch.long)))
    assert int(Quantity(setting, kind, arguments).values(view)[0, position]) == value


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(interp.InterpError, match="kind of quantity"):
        Quantity(BITS, "__import__", ())
