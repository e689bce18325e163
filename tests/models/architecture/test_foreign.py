"""State dicts of stock HookedTransformers, with our spec beside them."""

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_weights import draw, hooked
from safetensors.torch import save_file
from torch import Tensor

import interp.models.zoo as zoo
from interp.errors import CheckpointError, InterpError
from interp.families.count01 import Count01
from interp.models.architecture import header
from interp.models.architecture.foreign import read_state_dict
from interp.models.lens import HookedTransformer
from interp.models.spec import Bias, Layer, ModelSpec, TaskRef

ALL = Bias(q=True, k=True, v=True, o=True)
SPEC = ModelSpec(
    task=TaskRef(name="count01"), d_model=6, layers=(Layer(n_heads=2, d_head=3, bias=ALL),), readout_at="=",
    dtype="float64",
)  # fmt: skip


def stock(**changes: Any) -> HookedTransformer:
    """A stock model of the library, random in every parameter, without positions."""
    fields = {
        "n_layers": 1, "d_model": 6, "d_head": 3, "n_heads": 2, "n_ctx": 40, "d_vocab": 8, "attn_only": True,
        "normalization_type": None, "dtype": torch.float64,
    }  # fmt: skip
    model = hooked(**(fields | changes))
    draw(model, 0)
    with torch.no_grad():
        model.pos_embed.W_pos.zero_()
    return model


def put(folder: Path, tensors: Any, spec: ModelSpec | None = SPEC, suffix: str = ".pt") -> Path:
    path = folder / f"own{suffix}"
    if suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    if spec is not None:
        path.with_suffix(".toml").write_text(spec.to_toml())
    return path


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors"])
def test_logits_are_those_of_the_stock_model(tmp_path: Path, suffix: str) -> None:
    own = stock()
    state = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    # What TransformerLens 3 puts beside the parameters, and 4 does not.
    state |= {"blocks.0.attn.mask": torch.ones(2, 2).bool(), "blocks.0.attn.IGNORE": torch.tensor(-torch.inf)}
    model = zoo.load(put(tmp_path, state, suffix=suffix))
    batch = Count01().sentences(torch.tensor([[3, 4, 2], [1, 0, 5]]))
    assert (model(batch.tokens) - own(batch.tokens)).abs().max() < 1e-12
    assert model.seed == 0


def test_the_spec_may_be_json_or_given(tmp_path: Path) -> None:
    path = put(tmp_path, stock().state_dict(), spec=None)
    with pytest.raises(CheckpointError, match=r"own\.toml.*own\.json"):
        read_state_dict(path)
    assert read_state_dict(path, SPEC).spec == SPEC
    path.with_suffix(".json").write_text(json.dumps(SPEC.to_dict()))
    assert read_state_dict(path).spec == SPEC
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text(SPEC.to_toml())
    assert zoo.load(path, spec=elsewhere).spec == SPEC
    for text in ("{", "[1]", '{"d_model": 3}', "[" * 100_000):
        path.with_suffix(".json").write_text(text)
        with pytest.raises(InterpError, match=r"own\.json"):
            read_state_dict(path)


def test_constants_are_accepted_with_their_value_only(tmp_path: Path) -> None:
    """Identity values and outputs, identity keys, no biases: as a stock model has them, exactly."""
    whole = Layer(n_heads=2, d_head=6, query_key="full", value_output="identity")
    spec = SPEC.replace(layers=(whole,), readout_bias=False)
    own = stock(d_head=6)
    with torch.no_grad():
        for name in ("W_K", "W_V", "W_O"):
            getattr(own.blocks[0].attn, name).copy_(torch.eye(6))
        for name in ("b_Q", "b_K", "b_V", "b_O"):
            getattr(own.blocks[0].attn, name).zero_()
        own.unembed.b_U.zero_()
    state = own.state_dict()
    model = zoo.load(put(tmp_path, state, spec))
    tokens = Count01().sample(3).tokens[:, :40]
    own_logits = own.unembed(own.run_with_cache(tokens)[1]["blocks.0.hook_resid_post"])
    # The stock model divides scores by sqrt(d_head), the spec's default.
    assert (model(tokens) - own_logits).abs().max() < 1e-12
    for name in ("attn.W_K", "attn.W_V", "attn.W_O", "attn.b_Q", "attn.b_K", "attn.b_V", "attn.b_O"):
        name = f"blocks.0.{name}"
        wrong = state | {name: state[name] + 1e-12}
        with pytest.raises(CheckpointError, match=name):
            read_state_dict(put(tmp_path, wrong, spec))
        absent = {key: tensor for key, tensor in state.items() if key != name}
        assert name not in read_state_dict(put(tmp_path, absent, spec)).tensors
    with pytest.raises(CheckpointError, match=r"unembed\.b_U"):
        read_state_dict(put(tmp_path, state | {"unembed.b_U": torch.ones(8, dtype=torch.float64)}, spec))


def test_linear_mixing_has_no_queries_and_keys(tmp_path: Path) -> None:
    spec = SPEC.replace(
        layers=(Layer(n_heads=2, d_head=3, mixing="linear", normalizer="none", bias=Bias(v=True, o=True)),),
        direction="bidirectional", max_length=5, readout_at="all",
    )  # fmt: skip
    state = stock().state_dict() | {"blocks.0.attn.W_mix": torch.ones(2, 5, 5, dtype=torch.float64)}
    with pytest.raises(CheckpointError, match="W_Q"):
        read_state_dict(put(tmp_path, state, spec))
    for name in ("W_Q", "W_K", "b_Q", "b_K"):
        state[f"blocks.0.attn.{name}"] = torch.zeros_like(state[f"blocks.0.attn.{name}"])
    assert "blocks.0.attn.W_mix" in read_state_dict(put(tmp_path, state, spec)).tensors


def test_positions(tmp_path: Path) -> None:
    """Zeros are no positions; anything else must be what the spec says."""
    state = stock().state_dict()
    table = state["pos_embed.W_pos"] + 1
    without = {name: tensor for name, tensor in state.items() if name != "pos_embed.W_pos"}
    assert "pos_embed.W_pos" not in read_state_dict(put(tmp_path, without)).tensors
    with pytest.raises(CheckpointError, match=r"pos_embed\.W_pos"):
        read_state_dict(put(tmp_path, state | {"pos_embed.W_pos": table}))
    learned = SPEC.replace(positions="learned", max_length=40)
    assert (
        read_state_dict(put(tmp_path, state | {"pos_embed.W_pos": table}, learned))
        .tensors["pos_embed.W_pos"]
        .equal(table)
    )
    with pytest.raises(CheckpointError, match="missing"):
        read_state_dict(put(tmp_path, without, learned))
    with pytest.raises(CheckpointError, match=r"pos_embed\.W_pos"):
        read_state_dict(put(tmp_path, state, SPEC.replace(positions="sinusoidal")))


def changed(name: str, change: Callable[[Tensor], Any]) -> dict[str, Any]:
    state = stock().state_dict()
    return state | {name: change(state[name])}


@pytest.mark.parametrize(("content", "word"), [
    (lambda: changed("embed.W_E", lambda t: t[:7]), "(7, 6)"),
    (lambda: changed("embed.W_E", lambda t: t.float()), "float32"),
    (lambda: changed("embed.W_E", lambda t: t * torch.nan), "not finite"),
    (lambda: changed("embed.W_E", lambda t: t.tolist()), "'embed.W_E'"),
    (lambda: changed("embed.W_E", lambda t: t.to_sparse()), "'embed.W_E'"),
    (lambda: stock().state_dict() | {"ln_final.w": torch.ones(6)}, "ln_final.w"),
    (lambda: stock().state_dict() | {1: torch.ones(6)}, "1"), (lambda: {}, "dict"),
    (lambda: [torch.ones(1)], "list"), (lambda: torch.nn.Linear(2, 2), "without running code"),
    (lambda: {"cfg": stock().cfg}, "without running code"),
])  # fmt: skip
def test_what_is_not_exactly_this_model_is_refused(tmp_path: Path, content: Callable[[], Any], word: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch about sparse tensors
        path = put(tmp_path, content())
        with pytest.raises(CheckpointError) as error:
            read_state_dict(path)
    assert word in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return os.mkdir, (str(tmp_path / "ran"),)

    path = put(tmp_path, {"embed.W_E": Evil()})
    whole, code, cut = path.read_bytes(), "without running code", "not a whole file"
    for data, words in ((whole, code), (whole[:100], cut), (b"", cut), (b"nonsense", code)):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=words):
            read_state_dict(path)
    assert not (tmp_path / "ran").exists()


def test_a_file_too_big_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header, "MAX_BYTES", 1000)
    with pytest.raises(CheckpointError, match="bytes"):
        read_state_dict(put(tmp_path, stock().state_dict()))


def test_a_config_of_the_library_is_no_spec(tmp_path: Path) -> None:
    """Beside a state dict it names no task, and one that torch saved is not read: both say what to write."""
    path = put(tmp_path, stock().state_dict(), spec=None)
    path.with_suffix(".json").write_text(json.dumps({"n_layers": 1, "d_model": 6, "d_head": 3, "n_heads": 2}))
    with pytest.raises(InterpError, match=r"own\.json is a TransformerLens config.*task=\.\.\., config='own\.json'"):
        zoo.load(path)
    with pytest.raises(InterpError, match=r"give a JSON or TOML file, a dict or a config object"):
        zoo.load(path, task="count01", config=tmp_path / "cfg.pt")
