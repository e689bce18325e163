"""Shares of attention by token against a softmax written out, and by running the rows."""

import numpy as np
import pytest
import torch

import interp
from interp.families.count01 import Count01
from interp.measures.attention_ratios import attention_shares
from interp.models.subject import Subject


@pytest.fixture(scope="module")
def model() -> interp.TaskModel:
    return interp.load("count01/paper")


def test_shares_are_those_of_the_pattern(model) -> None:
    counts = torch.tensor([[3, 4, 1], [1, 7, 2]])
    batch = Count01().sentences(counts)
    table = attention_shares(model, batch)
    _, cache = model.run_with_cache(batch.tokens)
    vocabulary = Count01().vocabulary
    for head, token in ((0, "="), (3, "0"), (10, "1"), (15, "[BOS]")):
        wanted = []
        for row in range(2):
            place = int((batch.tokens[row] == vocabulary.index("=")).nonzero()[0, 0])
            weights = cache["blocks.0.attn.hook_pattern"][row, head, place].numpy()
            wanted.append(weights[batch.tokens[row].numpy() == vocabulary.index(token)].sum())
        found = table[(table["head"] == head) & (table["token"] == token)].iloc[0]
        assert found["share"] == pytest.approx(np.mean(wanted), rel=1e-4)
        assert found["least"] == pytest.approx(min(wanted), rel=1e-4)
    assert table.groupby("head")["share"].sum().to_numpy() == pytest.approx(1)


def test_running_the_rows_says_the_same(model) -> None:
    batch = Count01().sentences(torch.tensor([[3, 4, 1], [1, 7, 2]]))
    exact = attention_shares(model, batch)
    hooked = Subject.of(model)
    model.hook_dict["blocks.0.hook_resid_post"].add_hook(lambda value, hook: value)  # somebody's hook: no count space
    try:
        run = attention_shares(hooked, batch)
    finally:
        model.reset_hooks()
    both = exact.merge(run, on=["head", "token"], suffixes=("", "_run"))
    assert len(both) == len(exact)
    assert both["share"].to_numpy() == pytest.approx(both["share_run"].to_numpy(), abs=1e-5)
