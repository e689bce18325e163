"""Models from elsewhere: a state dict and a TransformerLens config, with other ids, other norms, other lengths."""

import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w
import torch
from drawn_weights import draw, hooked
from torch import Tensor

import interp
from interp.errors import CheckpointError, InterpError, SpecError, UnsupportedError
from interp.models.architecture.plain import describe
from interp.models.architecture.stock import _scale, refusal, stock_model, to_task_model
from interp.models.lens import HookedTransformer
from interp.models.subject import Subject


class Largest(interp.Task):
    """Which of the digits 0 to 3 is the largest? Read at the end."""

    name = "largest-elsewhere"
    readout = "last"
    vocabulary = ("0", "1", "2", "3", "=")
    n_out = 4

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        digits = torch.randint(0, 4, (n, 5), generator=torch.Generator().manual_seed(seed))
        tokens = torch.cat([digits, torch.full((n, 1), 4)], 1)
        return interp.Batch(tokens, torch.full((n,), 6), digits.amax(1))


class Starts(Largest):
    """Does the row hold a 3? Read at the first position of rows that are padded."""

    name = "starts-elsewhere"
    readout = "first"
    vocabulary = ("0", "1", "2", "3", "_")
    pad = "_"
    n_out = 2

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, 4, (n, 6), generator=generator)
        lengths = torch.randint(2, 7, (n,), generator=generator)
        tokens[torch.arange(6) >= lengths[:, None]] = 4
        return interp.Batch(tokens, lengths, (tokens == 3).any(1).long())


TOKENS = {"0": 7, "1": 2, "2": 5, "3": 0, "=": 9}
OUTPUTS = {"0": 3, "1": 1, "2": 0, "3": 2}
BASE = {"n_layers": 2, "d_model": 8, "d_head": 4, "n_heads": 2, "n_ctx": 9, "d_vocab": 10, "act_fn": "relu"}


def made(**changes: Any) -> tuple[dict[str, Any], HookedTransformer]:
    """A config and a random model of it."""
    fields = {**BASE, "normalization_type": "LN", "dtype": torch.float64, **changes}
    model = hooked(**fields)
    draw(model, 3)
    return {**plain(model.cfg), "dtype": str(fields["dtype"])}, model


def plain(cfg: Any) -> dict[str, Any]:
    """The fields of a config, as JSON can write them."""
    return {k: v for k, v in cfg.to_dict().items() if v is None or isinstance(v, str | int | float | list)}


SHAPES: dict[str, dict[str, Any]] = {
    "attention only": {"attn_only": True, "d_vocab_out": 4},
    "folded": {"d_mlp": 12, "normalization_type": "LNPre", "d_vocab_out": 6, "use_attn_scale": False},
    "no norm": {"d_mlp": 12, "normalization_type": None, "attention_dir": "bidirectional", "attn_scale": 3.0},
    "RMS": {"attn_only": True, "normalization_type": "RMS", "eps": 0.1, "use_qk_norm": True},
    "folded RMS": {"d_mlp": 12, "normalization_type": "RMSPre", "act_fn": "gelu_new", "n_key_value_heads": 2},
    "small decoder": {
        "d_mlp": 12, "normalization_type": "RMS", "act_fn": "silu", "gated_mlp": True, "n_heads": 4,
        "n_key_value_heads": 2, "positional_embedding_type": "rotary", "rotary_dim": 4, "rotary_base": 100,
    },
    "adjacent": {
        "d_mlp": 12, "act_fn": "gelu_pytorch_tanh", "positional_embedding_type": "rotary", "rotary_dim": 2,
        "rotary_adjacent_pairs": True, "n_key_value_heads": 1, "use_qk_norm": True,
    },
    "alibi": {"d_mlp": 12, "positional_embedding_type": "alibi"},
    "float32": {"d_mlp": 12, "act_fn": "gelu", "dtype": torch.float32, "eps": 1e-2},
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.thinned(2)
def test_a_state_dict_and_a_config_become_a_task_model(tmp_path: Path, shape: str) -> None:
    fields, own = made(**SHAPES[shape])
    torch.save(own.state_dict(), tmp_path / "theirs.pt")
    (tmp_path / "theirs.json").write_text(json.dumps(fields))
    model = interp.load(tmp_path / "theirs.pt", task=Largest(), config=tmp_path / "theirs.json", tokens=TOKENS,
                        outputs=OUTPUTS)  # fmt: skip
    assert isinstance(model, interp.TaskModel)
    batch = Largest().sample(50, seed=1)
    ids = torch.tensor([TOKENS[word] for word in Largest.vocabulary])
    columns = [OUTPUTS[word] for word in "0123"]
    columns += [column for column in range(own.cfg.d_vocab_out) if column not in columns]  # they compete, too
    wanted = own(ids[batch.tokens])[..., columns]
    error = (model(batch.tokens) - wanted).abs().max() / wanted.abs().max()
    assert error < (1e-5 if shape == "float32" else 1e-12)
    said = wanted[:, -1].argmax(-1)
    assert model.predict(batch.tokens).equal(said.where(said < 4, -1))
    assert Subject.of(model).logits(batch).shape == (50, len(columns))


def test_configs_of_every_kind(tmp_path: Path) -> None:
    fields, own = made(attn_only=True, d_vocab_out=4)
    (tmp_path / "c.toml").write_text(tomli_w.dumps({k: "none" if v is None else v for k, v in fields.items()}))
    (tmp_path / "c.json").write_text(json.dumps(fields))
    wanted = own(torch.tensor([[1, 2, 3]]))
    for source in (fields, tmp_path / "c.toml", str(tmp_path / "c.json"), own.cfg):
        model = interp.load(own.state_dict(), task=Largest(), config=source, tokens=TOKENS)
        assert model(torch.tensor([[3, 1, 2]])).shape == wanted.shape
    with pytest.raises(InterpError, match="leave out config="):
        interp.load(own, task=Largest(), config=fields, tokens=TOKENS)
    assert isinstance(interp.load(own, task=Largest(), tokens=TOKENS), interp.TaskModel)


def test_padding_is_masked_and_the_first_position_is_read() -> None:
    """Rows that differ in nothing but how far they are padded have equal answers."""
    fields, own = made(d_mlp=12, attention_dir="bidirectional", d_vocab=5, d_vocab_out=2, n_layers=3)
    given: dict[str, Any] = {"config": fields, "tokens": {word: i for i, word in enumerate(Starts.vocabulary)}}
    model = interp.load(own.state_dict(), task=Starts(), **given)
    assert isinstance(model, interp.TaskModel)
    batch = Starts().sample(40, seed=2)
    got = Subject.of(model).logits(batch)
    for row in range(40):
        alone = own(batch.tokens[row : row + 1, : batch.lengths[row]])[0, 0]
        torch.testing.assert_close(got[row], alone.detach(), rtol=1e-10, atol=1e-10)
    attending = interp.load(own.state_dict(), task=Starts(), **given, padding="attend")
    assert isinstance(attending, Subject)
    torch.testing.assert_close(attending.logits(batch), own(batch.tokens)[:, 0].detach())


@pytest.mark.skipif(find_spec("transformer_lens.HookedTransformer") is None, reason="TransformerLens 4 has fewer parts")
@pytest.mark.parametrize(("changes", "word"), [
    ({"positional_embedding_type": "shortformer"}, "shortformer"),
    ({"positional_embedding_type": "rotary", "rotary_dim": 4, "rotary_scaling_factor": 2.0}, "rotary_scaling_factor"),
    ({"positional_embedding_type": "rotary", "rotary_dim": 4, "use_yarn_rope": True}, "use_yarn_rope"),
    ({"d_mlp": 12, "act_fn": "gelu_fast"}, "gelu_fast"),
    ({"scale_attn_by_inverse_layer_idx": True}, "inverse_layer"),
    ({"attn_scores_soft_cap": 2.0}, "soft_cap"),
])  # fmt: skip
def test_what_no_spec_expresses_stays_under_study(changes: dict[str, Any], word: str) -> None:
    fields, own = made(**({"attn_only": "d_mlp" not in changes, "d_vocab_out": 4} | changes))
    assert word in (refusal(own) or "")
    with pytest.raises(UnsupportedError, match=f"cannot be written as plain data: .*{word}"):
        describe(own)
    subject = interp.load(own.state_dict(), task=Largest(), config=fields, tokens=TOKENS, outputs=OUTPUTS)
    assert isinstance(subject, Subject)
    batch = Largest().sample(20)
    ids = torch.tensor([TOKENS[word] for word in Largest.vocabulary])
    wanted = own(ids[batch.tokens])[:, -1, [OUTPUTS[word] for word in "0123"]]
    torch.testing.assert_close(subject.logits(batch), wanted.detach())


def test_a_replaced_norm_is_studied_and_the_model_is_unchanged() -> None:
    _, own = made(attn_only=True, d_vocab_out=4)
    own.ln_final = torch.nn.Identity()
    assert refusal(own) == "its ln_final was replaced by an Identity"
    subject = interp.load(own, task=Largest(), tokens=TOKENS, outputs=OUTPUTS, dtype="float32")
    assert isinstance(subject, Subject)
    assert (subject.model.W_E.dtype, own.W_E.dtype) == (torch.float32, torch.float64)
    as_it_is = interp.load(own, task=Largest(), tokens=TOKENS, outputs=OUTPUTS)
    assert isinstance(as_it_is, Subject)
    assert as_it_is.model is own  # where nothing is to be changed, nothing is copied


def test_a_hooked_model_attends_to_padding_in_plain_data_too() -> None:
    """TransformerLens has no mask of padding: the page's model must have none either."""
    _, own = made(attn_only=True, d_vocab_out=4, attention_dir="bidirectional")
    said = describe(own)
    assert (said["causal"], said["masks"], said["counts"]) == (False, False, False)


@pytest.mark.parametrize(("fields", "factor"), [
    ({}, 0.5), ({"attn_scale": 8.0}, 0.125), ({"use_attn_scale": False}, 1.0),
])  # fmt: skip
def test_scores_in_plain_data_have_the_config_s_factor(fields: dict[str, Any], factor: float) -> None:
    """Heads of four components: one over the square root of 4."""
    _, own = made(attn_only=True, d_vocab_out=4, d_head=4, **fields)
    assert [layer["scale"] for layer in describe(own)["layers"]] == [factor] * own.cfg.n_layers


def test_weights_keep_the_precision_that_they_have() -> None:
    _, own = made(attn_only=True, d_vocab_out=4, dtype=torch.float32)
    own.double()  # its config goes on saying float32
    with torch.no_grad():
        own.W_U.add_(1e-12)
    model = interp.load(own, task=Largest(), tokens=TOKENS)
    assert model.spec.dtype == "float64"
    assert model.W_U.sum() == own.W_U.sum()


def test_zero_positions_and_zero_biases_are_none() -> None:
    fields, own = made(attn_only=True, n_layers=1, d_vocab_out=4, normalization_type=None)
    state = own.state_dict()
    for name in ("pos_embed.W_pos", "blocks.0.attn.b_Q", "blocks.0.attn.b_V"):
        state[name] = torch.zeros_like(state[name])
    model = interp.load(state, task=Largest(), config=fields, tokens=TOKENS)
    assert isinstance(model, interp.TaskModel)
    assert (model.spec.positions, model.spec.max_length) == ("none", None)
    assert model.spec.layers[0].bias.model_dump() == {"q": False, "k": True, "v": False, "o": True}


def test_other_containers_of_weights(tmp_path: Path) -> None:
    fields, own = made(attn_only=True, d_vocab_out=4)
    state = own.state_dict()
    for number, content in enumerate(
        (
            {"model": state, "epoch": 3, "config": {"lr": 0.1}},
            {f"_orig_mod.{name}": value for name, value in state.items()},
            {f"module.{name}": value for name, value in state.items()},
        )
    ):
        torch.save(content, tmp_path / f"{number}.pt")
        model = interp.load(tmp_path / f"{number}.pt", task=Largest(), config=fields, tokens=TOKENS)
        assert isinstance(model, interp.TaskModel)


def test_weights_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    fields, own = made(attn_only=True, d_vocab_out=4)
    state = own.state_dict()
    cases: list[tuple[dict[str, Tensor], str]] = [
        ({name: value for name, value in state.items() if name != "ln_final.w"}, "missing ln_final.w"),
        ({**state, "extra.W": torch.zeros(2)}, "unexpected extra.W"),
        ({**state, "unembed.W_U": torch.zeros(8, 5)}, r"unembed.W_U has shape \(8, 5\)"),
        ({**state, "unembed.b_U": torch.full((4,), torch.nan)}, "unembed.b_U has values"),
        ({**state, "embed.W_E": torch.zeros(10, 8, dtype=torch.long)}, "embed.W_E has dtype"),
    ]
    for weights, words in cases:
        with pytest.raises(CheckpointError, match=words):
            interp.load(weights, task=Largest(), config=fields, tokens=TOKENS)
    missing = {f"blocks.{i}.attn.W_Q": state["blocks.0.attn.W_Q"] for i in range(2, 400)}
    with pytest.raises(CheckpointError) as error:
        interp.load({**state, **missing}, task=Largest(), config=fields, tokens=TOKENS)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(("change", "words"), [
    ({"n_layers": 0}, "n_layers"), ({"n_heads": 2.5}, "n_heads"), ({"d_model": "8"}, "d_model"),
    ({"dtype": "int8"}, "dtype"), ({"n_head": 2}, "did you mean 'n_heads'"),
    ({"attention_dir": "sideways", "attn_only": True}, "sideways"), ({"act_fn": "reloo"}, "reloo.*gelu_new"),
])  # fmt: skip
def test_bad_configs_are_refused_without_reprs(change: dict[str, Any], words: str) -> None:
    fields, own = made(**({"d_mlp": 12} if "act_fn" in change else {"attn_only": True}), d_vocab_out=4)
    with pytest.raises(InterpError, match=words) as error:
        interp.load(own.state_dict(), task=Largest(), config=fields | change, tokens=TOKENS)
    assert "<" not in str(error.value)


@pytest.mark.filterwarnings("ignore:Token ids are assumed")
def test_what_is_missing_is_said(tmp_path: Path) -> None:
    fields, own = made(attn_only=True, d_vocab_out=4)
    state = own.state_dict()
    for arguments, words in (
        ({"task": Largest()}, "needs the config"),
        ({"config": fields}, "needs its task"),
        ({"task": Largest(), "config": fields}, "10 tokens, task largest-elsewhere has 5"),
        ({"task": Largest(), "config": fields, "tokens": TOKENS, "outputs": {"0": 1}}, "outputs lacks 1, 2, 3"),
        ({"task": Largest(), "config": fields, "tokens": TOKENS | {"3": 7}}, "share an id"),
        (
            {"task": Largest(), "config": fields, "tokens": TOKENS, "outputs": dict.fromkeys("0123", 1)},
            "share an output",
        ),
        ({"task": Largest(), "config": 3}, "config must be"),
        ({"task": Largest(), "config": {"eps": 1e-5}}, "attention_dir"),
        ({"task": Largest(), "config": tmp_path / "none.json"}, "no such file"),
    ):
        with pytest.raises(InterpError, match=words):
            interp.load(state, **arguments)
    with pytest.raises(InterpError, match="expected a model, got a NoneType"):
        interp.load(None)
    with pytest.raises(InterpError, match="got an int"):
        interp.load(3, task=Largest(), config=fields)
    with pytest.raises(InterpError, match="got an int"):
        interp.load(3, task=Largest())
    with pytest.raises(SpecError, match="lacks n_layers"):
        stock_model({}, {})


def test_a_difference_in_outputs_refuses_the_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a config means that was not read shows in the outputs, and then the model stays the library's own."""
    _, own = made(attn_only=True, d_vocab_out=4)
    monkeypatch.setattr("interp.models.architecture.stock._scale", lambda cfg: 2.0)
    with pytest.raises(UnsupportedError, match="logits differ by at most"):
        to_task_model(own, Largest(), torch.tensor([TOKENS[word] for word in Largest.vocabulary]))


def test_a_native_bridge_is_converted() -> None:
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    fields = BASE | {"d_mlp": 16, "normalization_type": "LN", "positional_embedding_type": "standard"}
    bridge = TransformerBridge.boot_native(TransformerBridgeConfig(**fields))
    outputs = {word: TOKENS[word] for word in "0123"}
    model = interp.load(bridge, task=Largest(), tokens=TOKENS, outputs=outputs)
    assert isinstance(model, interp.TaskModel)
    ids = torch.tensor([TOKENS[word] for word in Largest.vocabulary])
    batch = Largest().sample(10)
    wanted = bridge(ids[batch.tokens])[..., ids[:4]]
    torch.testing.assert_close(Subject.of(model)(batch.tokens)[..., :4], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "size"), [("n_layers", 50), ("d_vocab", 2**30), ("n_ctx", 2**30)])
def test_a_config_of_a_much_larger_model_is_refused(name: str, size: int) -> None:
    """No memory is taken for what a config of a stranger claims: the weights have one matrix of 20 numbers."""
    fields = {"n_layers": 1, "d_model": 4, "n_heads": 1, "d_head": 4, "n_ctx": 6, "d_vocab": 5, "attn_only": True}
    with pytest.raises(CheckpointError, match=r"config is of a model with .* the weights have 1 tensors with 20"):
        stock_model({**fields, name: size}, {"embed.W_E": torch.zeros(5, 4)})


def test_the_scale_of_scores_is_the_root_of_d_head_or_as_given() -> None:
    root = [(True, said, "inv_sqrt_d_head") for said in (-1, 0, 3)]
    for used, said, scale in ((False, 3.0, 1.0), (True, 4.0, 0.25), *root):
        assert _scale(SimpleNamespace(use_attn_scale=used, attn_scale=said, d_head=9)) == scale
