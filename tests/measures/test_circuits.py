"""Circuits, composition and spectra against dense products and TransformerLens's own."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from closeness import close
from standins import NAMES, padding_hooks, standin

import interp
from interp.errors import InterpError, UnsupportedError
from interp.measures import circuits, embeddings
from interp.measures.attention import attention_by_position, attention_by_token
from interp.measures.runs import Part
from interp.models.lens import HookedTransformer, HookedTransformerConfig, quiet_construction
from interp.models.spec import MLP, Training
from interp.models.subject import Subject


def test_one_layer_without_positions_is_the_exact_circuit() -> None:
    model = interp.load("count01/minimal")
    for mine, exact, columns in (
        (circuits.token_circuits(model, "QK"), circuits.qk_circuit(model), ["query", "key", "score"]),
        (circuits.token_circuits(model, "OV"), circuits.ov_circuit(model), ["source", "token", "logit"]),
    ):
        assert mine.iloc[:, 2].to_list() == exact[columns[0]].to_list()
        assert mine.iloc[:, 3].to_list() == exact[columns[1]].to_list()
        np.testing.assert_allclose(mine["value"], exact[columns[2]], rtol=1e-9, atol=1e-9)


def small(**layer: object) -> interp.TaskModel:
    """Random weights of order one, gains and biases of norms included."""
    layers = (interp.Layer(n_heads=2, d_head=3, **layer),)
    spec = interp.ModelSpec(task="count01", d_model=5, layers=layers, dtype="float64")
    model, generator = interp.build(spec), torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


@pytest.mark.skipif(find_spec("transformer_lens.HookedTransformer") is None, reason="TransformerLens 4 has fewer parts")
@pytest.mark.parametrize(("changes", "which", "reason"), [
    ({"use_qk_norm": True, "normalization_type": "RMS"}, ("QK",), "queries and keys are normalized"),
    ({"clip_qkv": 0.5}, ("QK", "OV"), "are clipped"),
    ({"post_embedding_ln": True}, ("QK", "OV"), "a norm follows the embedding"),
])  # fmt: skip
def test_circuits_that_are_no_tables_of_tokens_are_refused(changes, which, reason) -> None:
    fields = {**standin("balance").model.cfg.to_dict(), **changes}
    with quiet_construction():
        own = HookedTransformer(HookedTransformerConfig.from_dict(fields))
    for one in which:
        with pytest.raises(UnsupportedError, match=reason):
            circuits.token_circuits(Subject.external(own, standin("balance").task), one)


def test_scores_are_scaled_as_the_model_scales_them() -> None:
    model = small(scale=0.3)
    _, cache = model.run_with_cache(torch.arange(8)[None])  # every token once
    seen = cache["blocks.0.attn.hook_attn_scores"][0].detach()
    table = torch.tensor(circuits.token_circuits(model)["value"].to_list(), dtype=torch.float64).reshape(2, 8, 8)
    causal = torch.ones(8, 8).tril().bool()
    close(table[:, causal], seen[:, causal], atol=1e-12)


def test_the_norm_s_gain_and_centering_are_folded_in() -> None:
    """(x - mean) gain W for every x: what the norm does but for its scale and bias."""
    model = small(norm="pre")
    attn, gain = model.blocks[0].attn, model.blocks[0].ln1.w.detach()
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = circuits.factors(Subject.of(model), Part(0, 1))
    for mine, weight in zip(found, (attn.W_Q[1], attn.W_K[1], attn.W_V[1])):
        close(x @ mine, ((x - x.mean(1, keepdim=True)) * gain) @ weight.detach(), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_singular_values_are_those_of_the_matrices(name) -> None:
    subject = standin(name)
    found = circuits.singular_values(subject)
    for (layer, head, circuit), part in found.to_frame().groupby(["layer", "head", "circuit"]):
        q, k, v, o = circuits.factors(subject, Part(layer, head))
        dense = q @ k.T if circuit == "QK" else v @ o
        close(part["value"], torch.linalg.svdvals(dense)[: len(part)].numpy(), atol=1e-8)
        left, right = found.vectors[f"head {layer}.{head} {circuit}"]
        close(left @ torch.tensor(part["value"].to_numpy()).diag() @ right.T, dense, atol=1e-8)
        close(left.T @ left, torch.eye(len(part)), atol=1e-8)


def test_composition_is_transformer_lens_s_without_norms() -> None:
    """Where no norm is folded in, the scores are those of all_composition_scores."""
    with quiet_construction():
        torch.manual_seed(0)
        model = HookedTransformer(HookedTransformerConfig(
            n_layers=2, d_model=12, n_heads=3, d_head=4, n_ctx=7, d_vocab=6, d_vocab_out=3, attn_only=True,
            normalization_type=None))  # fmt: skip
    model.requires_grad_(False)
    for parameter in model.parameters():  # TransformerLens 4 leaves some at zero
        parameter.normal_(std=0.3)
    subject = Subject.external(model, standin("recall").task)
    table = circuits.composition_scores(subject).to_frame().set_index(["writer", "reader"])
    for kind in "QKV":
        theirs = model.all_composition_scores(kind)
        for (writer, reader), row in table.iterrows():
            (a, b), (c, d) = (map(int, word.split()[1].split(".")) for word in (writer, reader))
            assert row[kind] == pytest.approx(float(theirs[a, b, c, d]), rel=1e-4)
    with pytest.raises(UnsupportedError, match="heads of one layer do not compose"):
        circuits.composition_scores(standin("balance"))


@pytest.mark.parametrize("name", NAMES)
def test_mean_patterns_by_loops(name) -> None:
    subject = standin(name)
    batch = subject.task.sample(7, seed=3)
    patterns = {}
    keep = (lambda n: n.endswith("hook_pattern"), lambda p, hook: patterns.update({hook.layer(): p.double()}))
    subject.model.run_with_hooks(batch.tokens, fwd_hooks=[*padding_hooks(subject.model, batch), keep])
    by_position, by_token = attention_by_position(subject, batch), attention_by_token(subject, batch)
    words = subject.task.vocabulary
    for layer, head, query, key in ((0, 0, 2, 1), (subject.model.cfg.n_layers - 1, 1, 1, 0)):
        rows = [r for r in range(7) if batch.lengths[r] > max(query, key)]
        wanted = np.mean([float(patterns[layer][r, head, query, key]) for r in rows])
        cell = by_position.query(f"layer == {layer} and head == {head} and query == '{query}' and key == '{key}'")
        assert cell["value"].item() == pytest.approx(wanted, abs=1e-7)
        a, b = words[0], words[1]
        sums = [
            sum(float(patterns[layer][r, head, q, k]) for k in range(int(batch.lengths[r])) if batch.tokens[r, k] == 1)
            for r in range(7)
            for q in range(int(batch.lengths[r]))
            if batch.tokens[r, q] == 0
        ]
        cell = by_token.query(f"layer == {layer} and head == {head} and query == '{a}' and key == '{b}'")
        assert cell["value"].item() == pytest.approx(np.mean(sums), abs=1e-7)


def test_waves_have_one_frequency() -> None:
    angle = 2 * np.pi * 3 * torch.arange(11, dtype=torch.float64) / 11
    power = embeddings.fourier_power(torch.stack([angle.cos() + 5, angle.sin(), torch.ones(11)], 1))
    np.testing.assert_allclose(power[2, :2], 1.0)
    assert not power[:, 2].any()
    even = embeddings.fourier_power(
        torch.tensor([[1.0], [-1.0], [1.0], [-1.0]], dtype=torch.float64) + torch.eye(4)[:, :1]
    )
    assert even.sum() == pytest.approx(1.0)


def test_waves_in_outputs_are_the_diagonal_of_their_transform() -> None:
    """All p^3 outputs of modular addition: power at k (a + b - c), each pair's mean aside (Nanda et al. 2023)."""
    for p in (7, 6):
        layers = (interp.Layer(n_heads=2, d_head=3, mlp=MLP(d_mlp=5)),)
        task = interp.models.spec.TaskRef(name="modular-addition", parameters={"p": p})
        spec = interp.ModelSpec(task=task, d_model=4, layers=layers, readout_at="=", origin=Training(init="torch"))
        model = interp.TaskModel(spec, seed=3, dtype="float64")
        (batch,) = model.task.inputs(chunk=p * p)
        with torch.no_grad():
            logits = model(batch.tokens)[:, -1].view(p, p, p)
        x = np.arange(p)
        total = float((logits - logits.mean(-1, keepdim=True)).square().sum())
        for k, power in enumerate(embeddings.output_spectra(model, batch)["power"], 1):
            angle = 2 * np.pi * k * (x[:, None, None] + x[:, None] - x) / p
            waves = {np.cos(angle).tobytes(): np.cos(angle)} | ({} if 2 * k == p else {b"": np.sin(angle)})
            share = sum((wave * logits.numpy()).sum() ** 2 / (wave**2).sum() for wave in waves.values()) / total
            assert power == pytest.approx(share, rel=1e-9)
    with pytest.raises(UnsupportedError, match="are not tokens on which addition acts"):
        embeddings.output_spectra(interp.build("count01/minimal"), interp.build("count01/minimal").task.sample(4))


def test_numbers_that_are_looked_at_more_the_larger_and_copied() -> None:
    exact = interp.build("algorithmic/max-of-k-exact", K=3, v=9)
    (head,) = circuits.number_circuits(exact).itertuples()
    assert (head.layer, head.head, head.grows, head.copied) == (0, 0, 1.0, 1.0)
    scores = circuits.qk_circuit(exact).query("query == '='").set_index("key")["score"]
    assert head.range == pytest.approx(scores["8"] - scores["0"])
    mixed = interp.TaskModel(exact.spec.replace(origin=Training(init="torch")), seed=0, dtype="float64")
    (head,) = circuits.number_circuits(mixed).itertuples()
    assert 0 < head.grows < 1
    assert head.copied < 1
    with pytest.raises(UnsupportedError, match="no eight numbers in order"):
        circuits.number_circuits(interp.build("count01/minimal"))


class Cycle(interp.Task):
    name = "standin_cycle"
    vocabulary = ("a", "b")
    n_out = 3
    cyclic = {"letters": ("a", "b")}  # noqa: RUF012

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        return standin("balance").task.sample(n, split, seed)


def test_spectra_of_a_task_with_a_cycle() -> None:
    subject = Subject(standin("balance").model, Cycle())
    assert embeddings.spectra(subject)["power"].to_list() == [pytest.approx(1.0)]
    neurons = embeddings.neuron_spectra(subject, subject.task.sample(40), "letters", 0)
    assert len(neurons) == 32
    assert set(neurons["power"].round(6)) <= {0.0, 1.0}
    batch = subject.task.sample(40)
    _, cache = subject.model.run_with_cache(batch.tokens)
    post = cache["blocks.0.mlp.hook_post"].double()
    for row in neurons.itertuples():  # half the difference of the two letters' means, over rows and all positions
        a, b = (float(post[batch.tokens[:, 0] == token][..., row.neuron].mean()) for token in (0, 1))
        assert row.size == pytest.approx(abs(a - b) / 2, rel=1e-5, abs=1e-9)
    with pytest.raises(UnsupportedError, match="declares no tokens on which addition acts"):
        embeddings.spectra(standin("recall"))


def test_components_and_cosines() -> None:
    from sklearn.decomposition import PCA

    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, shares = embeddings.principal_components(x, 2)
    fitted = PCA(2).fit(x.numpy())
    close(np.abs(found), np.abs(fitted.transform(x.numpy())), atol=1e-10)
    close(shares[:2], fitted.explained_variance_ratio_, atol=1e-12)
    assert embeddings.cosines(x)[2, 5] == pytest.approx(float(torch.nn.functional.cosine_similarity(x[2], x[5], dim=0)))


def test_matrices_have_the_names_that_people_type() -> None:
    model = interp.load("algorithmic/addition")
    found = interp.singular_values(model, ["W_in", "W_out", "OV", "W_E", "W_U"]).to_frame()
    heads = [f"head 0.{head} OV" for head in range(model.cfg.n_heads)]
    assert list(dict.fromkeys(found["matrix"])) == ["MLP 0 in", "MLP 0 out", *heads, "embedding", "unembedding"]
    values = torch.linalg.svdvals(model.W_in[0].double())
    assert np.allclose(found.loc[found["matrix"] == "MLP 0 in", "value"], values.detach())
    with pytest.raises(InterpError, match=r"unknown matrix 'W_inn'; known: .*did you mean 'W_in'"):
        interp.singular_values(model, "W_inn")


def test_a_known_name_that_a_model_lacks_is_no_misspelling() -> None:
    """No hint "did you mean 'W_in'" for W_in."""
    with pytest.raises(InterpError, match="this model has no W_in: its matrices are ") as caught:
        interp.singular_values(interp.build("count01/minimal"), "W_in")
    assert "did you mean" not in str(caught.value)
