"""Neurons silenced by hand, and their responses by loops."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from standins import padding_hooks, read_of, standin

import interp
from interp.errors import InterpError, UnsupportedError
from interp.measures.runs import Neuron
from interp.measures.survey import neurons_that_matter, response
from interp.models.lens import HookedTransformer, HookedTransformerConfig, quiet_construction
from interp.models.subject import Subject


@pytest.mark.parametrize("name", [pytest.param("ends", marks=pytest.mark.slow), "balance"])
def test_each_neuron_by_hand(name) -> None:
    subject = standin(name)
    model, batch, reference = subject.model, subject.task.sample(60, seed=1), subject.task.sample(1000, "train")
    hidden, theirs = padding_hooks(model, batch), padding_hooks(model, reference)
    lengths = torch.cat([batch.lengths, reference.lengths]).unique()

    def at(rows: interp.Batch, hooks: list[Any], hook: str, index: int) -> torch.Tensor:
        with model.hooks(fwd_hooks=hooks):
            return model.run_with_cache(rows.tokens)[1][hook][..., index]

    def reads(rows: interp.Batch) -> torch.Tensor:
        found = torch.zeros_like(rows.attention_mask)
        found[:, {"recall": -1, "ends": 0, "balance": slice(None)}[name]] = True
        return found & rows.attention_mask

    for row in neurons_that_matter(subject, batch, 6).itertuples():
        hook = f"blocks.{row.layer}.mlp.hook_post"
        mine, other = at(batch, hidden, hook, row.index), at(reference, theirs, hook, row.index).double()
        if len(lengths) == 1:
            mean = other.mean(0).float().expand_as(mine)
        else:
            read, rest = reads(reference), reference.attention_mask & ~reads(reference)
            mean = torch.where(reads(batch), other[read].mean(), other[rest if rest.any() else read].mean()).float()
        mine = mine[reads(batch)]

        def put(act: torch.Tensor, hook: object, index: int = row.index, mean: torch.Tensor = mean) -> torch.Tensor:
            act = act.clone()
            act[:, :, index] = mean
            return act

        logits = read_of(name, model.run_with_hooks(batch.tokens, fwd_hooks=[*hidden, (hook, put)]))
        wanted = torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch.labels.flatten())
        assert row.loss == pytest.approx(float(wanted), rel=1e-4)
        assert row.loss == interp.ablate(subject, f"neuron {row.neuron}", inputs=batch)["loss"][1], "one definition"
        assert row.active == pytest.approx(float((mine > 0).double().mean()))
        assert row.mean == pytest.approx(float(mine.double().mean()), rel=1e-5, abs=1e-7)
        assert row.spread == pytest.approx(float(((mine.double() - mine.double().mean()) ** 2).mean().sqrt()), rel=1e-5)


def test_readout_neurons_and_none() -> None:
    model = interp.load("histogram/dot")
    table = neurons_that_matter(model, model.task.sample(40), 3)
    assert table["neuron"].str.startswith("readout.").all()
    assert (table["accuracy"] <= table.attrs["accuracy"] + 0.05).all()
    with pytest.raises(UnsupportedError, match="neither an MLP nor a readout with neurons"):
        neurons_that_matter(standin("recall"), standin("recall").task.sample(5))


def test_response_is_a_mean_by_feature() -> None:
    subject = standin("balance")
    batch = subject.task.sample(50, seed=1)
    table = response(subject, batch, Neuron(0, 3), ("answer",))
    _, cache = subject.model.run_with_cache(batch.tokens)
    act = cache["blocks.0.mlp.hook_post"][..., 3]
    for row in table.itertuples():
        mine = act[batch.labels == row.answer].double()
        assert (row.activation, row.reads) == (pytest.approx(float(mine.mean()), rel=1e-5), len(mine))
        assert row.spread == pytest.approx(float(((mine - mine.mean()) ** 2).mean().sqrt()), rel=1e-5)
    with pytest.raises(InterpError, match="unknown feature of task standin_balance 'parity'; known: answer"):
        response(subject, batch, Neuron(0, 3), ("parity",))


@pytest.mark.skipif(find_spec("transformer_lens.HookedTransformer") is None, reason="TransformerLens 4 has no experts")
def test_neurons_of_experts_are_refused() -> None:
    subject = standin("balance")
    more = {"num_experts": 2, "experts_per_token": 1, "gated_mlp": True, "act_fn": "silu"}
    with quiet_construction():
        own = HookedTransformer(HookedTransformerConfig.from_dict({**subject.model.cfg.to_dict(), **more}))
    with pytest.raises(UnsupportedError, match="choose among experts"):
        neurons_that_matter(Subject.external(own, subject.task), subject.task.sample(5))
