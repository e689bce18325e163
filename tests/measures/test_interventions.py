"""Interventions: from counts and by hooks the same; attention ratios and circuits against the cached pattern."""

import numpy as np
import pytest
import torch
from hooked_heads import from_cache
from short_count01 import sentences

import interp
from interp.errors import InterpError, UnsupportedError
from interp.measures import attention_ratios, circuits
from interp.models.lens import HookedTransformer, HookedTransformerConfig, quiet_construction
from interp.models.subject import Subject, no_sum


@pytest.fixture(scope="module")
def model() -> interp.TaskModel:
    return interp.load("count01/paper/seed-1", dtype="float64")


@pytest.fixture(scope="module")
def batch(model: interp.TaskModel) -> interp.Batch:
    return sentences(model.task, 10, seed=3)


def test_ratios_are_those_of_the_pattern_in_every_input(model, batch) -> None:
    table = attention_ratios.token_ratios(model)
    _, cache = model.run_with_cache(batch.tokens)
    row, at = 0, int((batch.tokens[0] == 4).int().argmax())
    weights = cache["pattern", 0][row, :, at].detach()
    first = [int((batch.tokens[row] == token).int().argmax()) for token in (1, 2, 3)]
    assert all(int(batch.tokens[row, p]) == t for p, t in zip(first, (1, 2, 3)))
    np.testing.assert_allclose(table["w01"], (weights[:, first[0]] / weights[:, first[1]]).numpy(), rtol=1e-8)
    np.testing.assert_allclose(table["w02"], (weights[:, first[0]] / weights[:, first[2]]).numpy(), rtol=1e-8)


def test_circuits_are_the_scores_and_the_direct_logits(model, batch) -> None:
    scores, direct = circuits.qk_circuit(model), circuits.ov_circuit(model)
    _, cache = model.run_with_cache(batch.tokens[:1])
    at = int((batch.tokens[0] == 4).int().argmax())
    head = 3
    mine = scores[(scores["head"] == head) & (scores["query"] == "=") & (scores["key"] == "[BOS]")]["score"].item()
    assert mine == pytest.approx(float(cache["attn_scores", 0][0, head, at, 0]))
    logits = (cache["v", 0][0, 0, head] @ model.W_O[0, head] @ model.W_U).detach().numpy()
    table = direct[(direct["head"] == head) & (direct["source"] == "[BOS]")]
    np.testing.assert_allclose(table["logit"], logits, rtol=1e-9)
    assert table["token"].to_list() == list(model.task.vocabulary)


def from_counts(model: interp.TaskModel, batch: interp.Batch, w01: float, w02: float) -> torch.Tensor:
    subject = Subject.of(model)
    weights = attention_ratios.token_weights(subject, w01, w02, attention_ratios.attended(subject, None))
    return attention_ratios._from_rows(
        circuits.circuit_tables(subject), attention_ratios._rows(subject, batch).stacked(torch.float64), weights
    )


@pytest.mark.parametrize(("w01", "w02"), [(2.0, 5.0), (1.0, float("inf")), (0.01, 3.0)])
@pytest.mark.thinned(2)
def test_counts_and_hooks_give_the_same_reweighted_outputs(model, batch, w01, w02) -> None:
    positions = (batch.tokens == 4).int().argmax(1)
    hook = attention_ratios.attention_hook(model, batch, w01, w02)
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_pattern", hook)]):
        hooked = from_cache(model, batch, positions)
    torch.testing.assert_close(from_counts(model, batch, w01, w02), hooked, rtol=1e-10, atol=1e-11)


def test_the_hooked_pattern_has_the_ratios_and_sums_to_one(model, batch) -> None:
    hook = attention_ratios.attention_hook(model, batch, 4.0, 8.0)
    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_pattern", hook)]):
        _, cache = model.run_with_cache(batch.tokens)
    at = (batch.tokens == 4).int().argmax(1)
    weights = cache["pattern", 0][torch.arange(10), :, at]
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    zero, one = (weights[0, 0, batch.tokens[0] == token].max() for token in (1, 2))
    assert float(zero / one) == pytest.approx(4.0)
    assert float(weights[0, :, 0].abs().max()) == 0.0  # [BOS] gets nothing


def test_a_sentence_without_the_attended_tokens_has_output_zero(model) -> None:
    assert not from_counts(model, model.task.sentences(torch.tensor([[0, 0, 3]])), 1.0, float("inf")).any()


def test_a_clean_head_separates_perfectly_in_exact_arithmetic(model) -> None:
    """With w01 = 1 and no '2', z = (n0 v0 + n1 v1)/(n0 + n1): one line separates the answers wherever v0 != v1."""
    batch = model.task.sample(300, "train", seed=4)
    table = interp.reweight_attention(model, w01=1.0, train=batch, test=batch)
    assert table["s_acc"].mean() > 0.95
    far = interp.reweight_attention(model, w01=1e6, train=batch, test=batch)
    assert far["s_acc"].mean() < table["s_acc"].mean()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("mode", ["zero", "mean"])
def test_ablation_equals_a_hook_on_hook_z(model, mode) -> None:
    test, reference = sentences(model.task, 40, seed=8), sentences(model.task, 30, seed=9)
    table = interp.ablate_heads(model, [(3,), (0, 5)], mode=mode, inputs=test, reference=reference)
    means = from_cache(model, reference, (reference.tokens == 4).int().argmax(1)).mean(0)
    for group, accuracy in zip([(3,), (0, 5)], table["accuracy"][1:]):

        def silence(z: torch.Tensor, hook: object, group: tuple[int, ...] = group) -> torch.Tensor:
            changed = z.clone()
            changed[:, :, list(group)] = means[list(group)] if mode == "mean" else 0.0
            return changed

        with model.hooks(fwd_hooks=[("blocks.0.attn.hook_z", silence)]):
            answers = model.predict(test.tokens)
        assert accuracy == pytest.approx(float((answers == test.labels).double().mean()))
    assert table["accuracy"][0] == pytest.approx(float((model.predict(test.tokens) == test.labels).double().mean()))


def test_a_model_with_a_relu_readout_is_ablated_through_hooks() -> None:
    spec = interp.ModelSpec(
        task={"name": "count01"}, d_model=8, readout="relu_mlp", readout_width=4, readout_at="=",
        layers=[{"n_heads": 2, "d_head": 4}],
    )  # fmt: skip
    model = interp.build(spec, seed=1)
    table = interp.ablate_heads(model, "singles", inputs=sentences(model.task, 8, seed=0))
    assert table["heads"].to_list() == [(), ("0.0",), ("0.1",)]


@pytest.mark.parametrize(("arguments", "sentence"), [
    ({"w01": 0.0}, "w01 = 0.0 must be a ratio above 0"), ({"w01": -1.0}, "must be a ratio above 0"),
    ({"w01": float("nan")}, "must be a ratio above 0"), ({"w01": float("inf")}, "cannot both be inf"),
    ({"tokens": ("0", "1", "x")}, "unknown token of task count01 'x'"),
])  # fmt: skip
def test_bad_ratios_are_one_sentence(model, batch, arguments, sentence) -> None:
    with pytest.raises(InterpError, match=sentence):
        interp.reweight_attention(model, train=batch, test=batch, **arguments)


def test_bad_mode_and_models_without_circuits(model, batch) -> None:
    with pytest.raises(InterpError, match="unknown mode of ablation 'noise'"):
        interp.ablate_heads(model, mode="noise", inputs=batch)
    learned = interp.build(model.spec.replace(positions="learned", max_length=700))
    with pytest.raises(UnsupportedError, match="token-by-token circuits are exact only for one attention layer"):
        circuits.qk_circuit(learned)
    assert attention_ratios.token_ratios(learned, batch=batch).notna().all(axis=None)


def test_ratios_of_a_strangers_model_without_positions_are_exact(model, batch) -> None:
    """The same weights in a stock HookedTransformer whose position table is zero."""
    with quiet_construction():
        stock = HookedTransformer(HookedTransformerConfig(
            n_layers=1, d_model=model.cfg.d_model, n_heads=16, d_head=model.cfg.d_head, n_ctx=batch.tokens.shape[1],
            d_vocab=model.cfg.d_vocab, attn_only=True, normalization_type=None, seed=0, dtype=torch.float64,
        ))  # fmt: skip
    torch.nn.init.zeros_(stock.pos_embed.W_pos)
    stock.requires_grad_(False)
    table = attention_ratios.token_ratios(Subject.external(stock, model.task), batch=batch)
    x = stock.embed.W_E
    q, k = (
        x @ getattr(stock.blocks[0].attn, f"W_{n}") + getattr(stock.blocks[0].attn, f"b_{n}")[:, None] for n in "QK"
    )
    scores = torch.einsum("hd,hkd->hk", q[:, 4], k) / stock.cfg.attn_scale
    ids = [model.task.token_id(token) for token in "012"]
    wanted = (scores[:, ids[:1]] - scores[:, ids]).exp()
    np.testing.assert_allclose(table[["w01", "w02"]].to_numpy(), wanted[:, 1:].numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "name",
    ["count01/paper", "count01/minimal", "recall", "ends", "balance", "languages/first", "languages/one",
     "languages/palindrome", "languages/parity", "languages/parity-learned", "memorization/bigram",
     "memorization/kgram", "memorization/lookup", "algorithmic/induction-exact", "algorithmic/max-of-k-exact",
     "algorithmic/modular-addition-fourier", "histogram/dot", "histogram/dot-exact", "histogram/bos-exact",
     "histogram/dot-softmax-p32-d32"],
)  # fmt: skip
@pytest.mark.thinned(7)
def test_attention_left_alone_gives_the_accuracy_of_predict(name) -> None:
    from standins import NAMES, standin

    subject = standin(name) if name in NAMES else Subject.of(interp.load(name))
    task = subject.task
    train, test = (task.sample(n, task.splits[-1], seed=n) for n in ((90, 60) if name != "count01/paper" else (40, 30)))
    table = interp.reweight_attention(subject, None, None, train=train, test=test)
    assert table["accuracy"].to_list() == [float(subject.right(test).double().mean())] * len(table)
    if no_sum(subject.model) is None and subject.decision.kind != "indicator":
        metrics = interp.head_metrics(subject, train=train, test=test, layer=-1)
        assert table["s_acc"].to_list() == metrics["s_acc"].to_list()


def test_reweighting_sets_only_the_positions_that_are_read() -> None:
    from standins import standin

    subject = standin("recall")
    batch = subject.task.sample(6, seed=1)
    hook = attention_ratios.attention_hook(subject, batch, 2.0, 4.0, ("x", "y", "z"))
    with subject.model.hooks(fwd_hooks=[("blocks.1.attn.hook_pattern", hook)]):
        _, cache = subject.model.run_with_cache(batch.tokens)
    _, clean = subject.model.run_with_cache(batch.tokens)
    pattern, untouched = cache["pattern", 1], clean["pattern", 1]
    torch.testing.assert_close(pattern[:, :, :-1], untouched[:, :, :-1])
    for row in range(6):
        wanted = torch.tensor([{3: 1.0, 4: 0.5, 5: 0.25}.get(int(t), 0.0) for t in batch.tokens[row]])
        torch.testing.assert_close(pattern[row, 0, -1], wanted / wanted.sum())
    with pytest.raises(InterpError, match="attention ratios need three tokens, but the task counts 0"):
        interp.reweight_attention(subject, test=batch, train=batch)
    table = interp.reweight_attention(
        subject, 1.0, 1.0, train=subject.task.sample(60), test=batch, tokens="xyz", layer=0
    ).to_frame()
    assert table["layer"].eq(0).all()
