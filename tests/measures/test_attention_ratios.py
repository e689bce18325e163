"""Shares of attention by token against a softmax written out, and by running the rows."""

import numpy as np
import pytest
import torch
from closeness import close
from standins import standin

import interp
from interp.errors import InterpError
from interp.families.count01 import Count01
from interp.measures.attention_ratios import attention_shares, token_ratios
from interp.models.spec import Layer, ModelSpec, TaskRef
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


@pytest.mark.parametrize("name", ["recall", "balance"])
def test_ratios_where_answers_are_read_at_the_last_or_all(name: str) -> None:
    subject = standin(name)
    batch, tokens = subject.task.sample(30, seed=1), ("a", "b", "b") if name == "balance" else ("x", "y", "z")
    last = f"blocks.{subject.model.cfg.n_layers - 1}.attn.hook_pattern"
    seen = subject.model.run_with_cache(batch.tokens)[1][last].detach()
    queries = range(8) if name == "balance" else [6]
    means = []
    for token in tokens:
        here = batch.tokens == subject.task.token_id(token)
        weights = [seen[:, :, query, : query + 1].transpose(0, 1)[:, here[:, : query + 1]] for query in queries]
        means.append(torch.cat(weights, 1).mean(1))
    found = interp.attention_ratios(subject, batch, tokens=tokens)
    close(found["w01"], means[0] / means[1], atol=1e-4)
    close(found["w02"], means[0] / means[2], atol=1e-4)


@pytest.mark.parametrize("positions", ["learned", "none"])
def test_ratios_of_scores_where_they_are_constant_else_of_means(positions: str) -> None:
    """Without positions two tokens have one ratio in every row; with them it is the mean over all of a token."""
    of_length = {"positions": positions, "max_length": 8 if positions == "learned" else None}
    layer = Layer(n_heads=2, d_head=3, norm="pre", bias={"q": True})
    spec = ModelSpec(task=TaskRef(name="count01"), d_model=6, layers=(layer,), readout_at="=", **of_length)
    own = interp.TaskModel(spec, seed=0, dtype="float64")
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.copy_(torch.arange(1.0, parameter.numel() + 1).mul(1.7).sin().view(parameter.shape))
    rows = [own.task.parse(row) for row in ("[BOS] 0 1 2 1 0 =", "[BOS] 2 1 0 0 0 =")]
    batch = own.task.batch(torch.tensor(rows))
    own.hook_dict["blocks.0.hook_resid_post"].add_hook(lambda value, hook: value)  # no count space
    found = token_ratios(own, batch=batch)
    seen = own.run_with_cache(batch.tokens)[1]["blocks.0.attn.hook_pattern"][:, :, -1]
    used = slice(None) if positions == "learned" else slice(0, 1)
    for head in range(2):
        zero, one, two = (seen[used, head][batch.tokens[used] == own.task.token_id(x)].mean() for x in "012")
        assert found["w01"][head] == pytest.approx(float(zero / one), rel=1e-6)
        assert found["w02"][head] == pytest.approx(float(zero / two), rel=1e-6)


def test_too_few_given_tokens_are_counted(model) -> None:
    with pytest.raises(InterpError, match=r"attention ratios need three tokens, but tokens= has 2"):
        interp.attention_ratios(model, tokens=("0", "1"))
