"""Models as other libraries save them, against those libraries' own logits."""

import json
import re
import warnings
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_weights import hooked
from safetensors.torch import load_file, save_file
from saved_models import SHAPES, Encoder, Nano

import interp
from interp.errors import CheckpointError, InterpError
from interp.models.architecture.state_dicts import read_tensors
from interp.models.architecture.stock import read_config, stock_model
from interp.models.readers import read
from interp.models.readers.base import Conversion
from interp.models.readers.models import tokens_of
from interp.models.readers.original import compared

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 7, "n_positions": 12}
WIDE = {
    "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 20, "vocab_size": 7,
    "max_position_embeddings": 32,
}  # fmt: skip
GROUPED = WIDE | {"num_key_value_heads": 2}
FOLDERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2, tied": ("GPT2Config", "GPT2LMHeadModel", SMALL),
    "gpt2, relu, wide, untied": ("GPT2Config", "GPT2LMHeadModel", SMALL | {"activation_function": "relu", "n_inner":
        24, "tie_word_embeddings": False}),
    "gpt2 without score scaling": ("GPT2Config", "GPT2LMHeadModel", SMALL | {"scale_attn_weights": False}),
    "gpt2, one label per sequence": ("GPT2Config", "GPT2ForSequenceClassification", SMALL | {"num_labels": 3}),
    "gpt2, one label per token": ("GPT2Config", "GPT2ForTokenClassification", SMALL | {"num_labels": 3}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", GROUPED),
    "llama, tied": ("LlamaConfig", "LlamaForCausalLM", GROUPED | {"attention_bias": True, "tie_word_embeddings":
        True}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", GROUPED | {"head_dim": 8}),
    "gpt_neox, parallel": ("GPTNeoXConfig", "GPTNeoXForCausalLM", WIDE | {"hidden_size": 32}),
    "gpt_neox, in sequence": ("GPTNeoXConfig", "GPTNeoXForCausalLM", WIDE | {"use_parallel_residual": False,
        "rotary_pct": 1.0}),
}  # fmt: skip


def original(name: str) -> Any:
    """The other library's model with weights that no initialization leaves at zero."""
    config, kind, fields = FOLDERS[name]
    torch.manual_seed(0)
    made = getattr(transformers, kind)(getattr(transformers, config)(pad_token_id=0, **fields)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return made


def heads_on_hidden(made: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Its logits at every position, whatever it pools."""
    base = made.base_model
    head = getattr(made, "score", None) or getattr(made, "classifier", None) or made.get_output_embeddings()
    return lambda tokens: head(base(tokens).last_hidden_state)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_has_the_same_logits(name: str, tmp_path: Path) -> None:
    made = original(name)
    made.save_pretrained(tmp_path)
    reading = read(tmp_path)
    model = stock_model(read_config(reading.fields), reading.tensors)
    assert compared(model, heads_on_hidden(made)).difference < 1e-5
    assert compared(model, reading.original()).difference < 1e-5
    moved = dict(reading.tensors)
    moved["embed.W_E"] = moved["embed.W_E"] + 0.01 * torch.randn_like(moved["embed.W_E"])
    with pytest.raises(CheckpointError, match="differs from the original: on tokens"):
        compared(stock_model(read_config(reading.fields), moved), reading.original())


@pytest.mark.parametrize("dtype", [None, "float64"])
def test_rounding_in_the_original_refuses_no_conversion(dtype: str | None) -> None:
    """A mean of 30 in the position embedding vanishes in the first norm, with two digits of float32."""
    made = original("gpt2, tied")
    made.transformer.wpe.weight.data += 30
    model = interp.load(made, task=Majority(), tokens={"a": 0, "b": 1, "c": 2}, dtype=dtype)
    found = interp.check_conversion(made, model)
    assert found.difference < 1e-12 < 1e-5 < found.rounding
    assert interp.check_conversion(lambda rows: made(rows).logits, model).precision == "float32"
    made.transformer.h[1].mlp.c_proj.weight.data *= 1.02
    with pytest.raises(CheckpointError, match="float32 alone changes them by"):
        interp.check_conversion(lambda rows: made(rows).logits, model)
    with pytest.raises(CheckpointError, match="; bfloat16 may round as much: give the forward pass in float32"):
        interp.check_conversion(lambda rows: made(rows).logits.bfloat16(), model)


def test_frequencies_rounded_with_the_weights_are_named() -> None:
    """transformers keeps them in float32 if it loads a model in half precision."""
    made = original("llama")
    for parameter in made.parameters():
        parameter.data = parameter.data.bfloat16().float() * 3
    ids = {"a": 0, "b": 1, "c": 2}
    with pytest.raises(CheckpointError, match=r"buffer model\.rotary_emb\.inv_freq was rounded to bfloat16, too"):
        interp.load(made.to(torch.bfloat16), task=Majority(), tokens=ids)


@pytest.mark.parametrize(("activation", "name"), [(torch.tanh, "tanh"), (torch.nn.GELU("tanh"), r"GELU\(.*'tanh'\)")])
def test_an_activation_that_is_not_supported_is_named(activation: Any, name: str) -> None:
    made = Encoder(True, "relu", True)
    for layer in made.encoder.layers:
        layer.activation = activation
    with pytest.raises(CheckpointError, match=f"activation {name} is not supported, only relu and gelu"):
        interp.load(made, task=Majority(), tokens={"a": 0, "b": 1, "c": 2})


def test_a_pad_that_is_a_token_of_the_task_is_said() -> None:
    made = original("gpt2, one label per sequence")
    with pytest.warns(UserWarning, match=r"pad_token_id is 0, the token 'a': if its .* before the 'a' at a row's end"):
        interp.load(made, task=Majority(), tokens={"a": 0, "b": 1, "c": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = interp.load(made, task=Majority(), tokens={"a": 3, "b": 1, "c": 2})
    assert interp.check_conversion(lambda rows: made(rows).logits, model).same  # one answer a row
    with pytest.raises(CheckpointError, match="the converted model differs from forward"):
        interp.check_conversion(lambda rows: made(rows).logits.flip(0), model)


def test_a_model_without_an_output_layer_is_said_to_be_tied(tmp_path: Path) -> None:
    """GPT-2's config says tied whatever head the model had."""
    made, ids, said = original("gpt2, tied"), {"a": 0, "b": 1, "c": 2}, "no output layer: the embedding is taken for it"
    made.transformer.save_pretrained(tmp_path / "bare")
    made.save_pretrained(tmp_path / "whole")
    for bare in (made.transformer, tmp_path / "bare"):
        with pytest.warns(UserWarning, match=said):
            interp.load(bare, task=Majority(), tokens=ids)
    with pytest.warns(UserWarning, match=said):
        interp.load(made.transformer.state_dict(), task=Majority(), tokens=ids, config={"n_heads": 2})
    for whole in (made, tmp_path / "whole"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            interp.load(whole, task=Majority(), tokens=ids)


def test_float64_weights_without_biases_stay_float64() -> None:
    nano = Nano(n_layer=1, n_head=2, n_embd=8, block_size=10, vocab_size=6, bias=False).double()
    reading = read(nano.state_dict(), {"n_heads": 2, "act_fn": "gelu"})
    assert {tensor.dtype for tensor in reading.tensors.values()} == {torch.float64}
    assert compared(stock_model(read_config(reading.fields), reading.tensors), nano).difference < 1e-14


def test_the_model_itself_may_be_given() -> None:
    made = original("qwen2")
    reading = read(made)
    assert compared(stock_model(read_config(reading.fields), reading.tensors), heads_on_hidden(made)).difference < 1e-5


def test_pytorch_model_bin_is_read(tmp_path: Path) -> None:
    made = original("gpt2, tied")
    made.config.save_pretrained(tmp_path)
    torch.save(made.state_dict(), tmp_path / "pytorch_model.bin")
    assert read(tmp_path).format == "Hugging Face GPT-2"


ABC = {"a": 4, "b": 0, "c": 2}
REFUSED = {
    "scale_attn_by_inverse_layer_idx": (True, "is not supported"),
    "n_head": (3, "3 heads do not divide a width of 16"), "n_embd": (-1, "must be a positive integer"),
    "n_layer": (3, "lacks the tensor transformer.h.2.ln_1.weight"), "vocab_size": (8, "has shape"),
    "activation_function": ("mish", "unknown activation"), "model_type": ("t5", "no reader knows"),
}  # fmt: skip


@pytest.mark.parametrize("field", REFUSED)
def test_what_cannot_be_expressed_is_one_sentence(field: str, tmp_path: Path) -> None:
    original("gpt2, tied").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    value, words = REFUSED[field]
    (tmp_path / "config.json").write_text(json.dumps(config | {field: value}))
    with pytest.raises(InterpError, match=words) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)


def test_scaled_rotary_positions_and_short_windows_are_refused(tmp_path: Path) -> None:
    original("llama").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    scaled = config | {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}
    (tmp_path / "config.json").write_text(json.dumps(scaled))
    with pytest.raises(InterpError, match="rope_type = linear"):
        read(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "mistral", "sliding_window": 4}))
    with pytest.raises(InterpError, match="sliding_window = 4"):
        read(tmp_path)
    assert read(tmp_path, {"n_ctx": 4}).fields["n_ctx"] == 4
    model: Any = interp.load(tmp_path, task=Majority(), tokens=ABC, outputs=ABC, config={"n_ctx": 4})
    assert model(torch.tensor([[0, 1, 2, 0]])).shape[:2] == (1, 4)
    for rows in (torch.tensor([[0, 1, 2, 0, 1]]), Majority().sample(1).tokens):
        with pytest.raises(InterpError, match=r"length \d: this model needs at most 4"):
            model(rows)


@pytest.mark.parametrize("bias", [False, True])
def test_a_nanogpt_checkpoint_has_the_same_logits(bias: bool, tmp_path: Path) -> None:
    args = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 10, "vocab_size": 6, "bias": bias}
    torch.manual_seed(1)
    nano = Nano(**args)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in nano.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    saved = {"model": {f"_orig_mod.{name}": tensor for name, tensor in nano.state_dict().items()}, "iter_num": 3}
    torch.save(saved | {"model_args": args | {"dropout": 0.0}, "optimizer": {"state": {}}}, tmp_path / "ckpt.pt")
    reading = read(tmp_path / "ckpt.pt")
    assert reading.format == "nanoGPT checkpoint"
    assert "which were not read" not in " ".join(reading.notes)
    torch.save(saved | {"model_args": args | {"activation": "relu", "rotary": False}}, tmp_path / "other.pt")
    assert "nanoGPT does not have activation, rotary, which were not read" in " ".join(
        read(tmp_path / "other.pt").notes
    )
    assert compared(stock_model(read_config(reading.fields), reading.tensors), nano).difference < 1e-5
    torch.save(nano.state_dict(), tmp_path / "bare.pt")  # as minGPT and many scripts save
    with pytest.raises(InterpError, match="number of heads"):
        read(tmp_path / "bare.pt")
    bare = read(tmp_path / "bare.pt", {"n_heads": 2, "act_fn": "gelu"})
    assert compared(stock_model(read_config(bare.fields), bare.tensors), nano).difference < 1e-5


class Majority(interp.Task):
    """Eight letters: which of a, b, c is most frequent (the first of equals)?"""

    name, vocabulary, readout, n_out = "readers_majority", ("a", "b", "c"), "last", 3
    answer_words = ("a", "b", "c")

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        return self.batch(torch.randint(3, (n, 8), generator=torch.Generator().manual_seed(seed)))

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        counts = torch.stack([(tokens == i).sum(1) for i in range(3)], 1)
        return interp.Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), counts.argmax(1))


def test_ids_come_from_a_vocabulary_with_all_tokens() -> None:
    """But for padding, which a model may not have. Other ids than the file's must be given."""

    class Padded(Majority):
        name, vocabulary, pad = "readers_padded", ("a", "b", "c", "_"), "_"

    whole = {"<pad>": 0, "c": 1, "a": 2, "d": 3, "b": 4}
    assert tokens_of(Conversion("GPT-2", {}, {}), Majority()) is None
    for task in (Majority(), Padded()):
        assert tokens_of(Conversion("GPT-2", {}, {}, vocabulary=whole), task) == {"a": 2, "b": 4, "c": 1}
    for part in ({"c": 1, "a": 2, "_": 0}, {"x": 0}):
        with pytest.raises(InterpError, match=r"the vocabulary of the file \('.* lacks '[ab]' of task .*pass tokens="):
            tokens_of(Conversion("GPT-2", {}, {}, vocabulary=part), Padded())


def test_a_classifier_is_read_where_its_library_reads_it(tmp_path: Path) -> None:
    """At a row's last token; of a folder, that a task reads elsewhere is said."""

    class First(Majority):
        name, readout = "readers_first", "first"

    original("gpt2, one label per sequence").save_pretrained(tmp_path)
    ids = {"a": 4, "b": 1, "c": 2}
    assert "classifier" not in repr(interp.load(tmp_path, task=Majority(), tokens=ids))
    with pytest.warns(UserWarning, match=r"head of a classifier .*task readers_first reads 'first'"):
        interp.load(tmp_path, task=First(), tokens=ids)


@pytest.mark.parametrize(
    ("first", "activation", "norm"), [(False, "relu", False), (True, "gelu", True), (False, "gelu", True)]
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.thinned(4)
def test_torchs_encoder_becomes_a_task_model(first: bool, activation: str, norm: bool, causal: bool) -> None:
    torch.manual_seed(2)
    made = Encoder(first, activation, norm).eval()
    ids = {"a": 4, "b": 0, "c": 2}
    model = interp.load(made, task=Majority(), tokens=ids, config={"causal": causal})
    tokens = Majority().sample(20).tokens
    mask = torch.triu(torch.ones(8, 8, dtype=torch.bool), 1) if causal else None
    with torch.no_grad():
        wanted = made(torch.tensor([4, 0, 2])[tokens], mask)
        torch.testing.assert_close(model(tokens), wanted, rtol=1e-5, atol=1e-5)
    ours = lambda rows: made(rows, mask)  # noqa: E731
    assert interp.check_conversion(ours, model).difference < 1e-5
    with pytest.raises(CheckpointError, match="forward returns"):
        interp.check_conversion(lambda rows: 1.01 * ours(rows), model)
    settings = {"n_heads": 2, "norm_first": first, "act_fn": activation, "causal": causal}
    with pytest.raises(CheckpointError, match="forward returns"):  # ids that are said again are believed
        interp.check_conversion(ours, model, tokens={"a": 0, "b": 1, "c": 2})
    with pytest.warns(UserWarning, match="are assumed: eps = 1e-05.*without a factor or a norm"):
        again = interp.load(made.state_dict(), task=Majority(), tokens=ids, config=settings)
    torch.testing.assert_close(again(tokens), model(tokens))  # type: ignore[operator]
    with pytest.raises(InterpError, match="number of heads"):
        interp.load(made.state_dict(), task=Majority(), tokens=ids)


def turned(state: dict[str, torch.Tensor], layout: str) -> dict[str, torch.Tensor]:
    """TransformerLens's tensors as older code lays them."""
    found = {}
    for name, tensor in state.items():
        kind = name.rsplit(".", 1)[-1]
        if kind in ("mask", "IGNORE"):
            continue
        if kind in ("W_E", "W_in", "W_out") or (layout == "easy" and kind in ("W_pos", "W_U")):
            tensor = tensor.T
        elif kind in ("W_Q", "W_K", "W_V"):
            tensor = tensor.transpose(1, 2)
        elif kind == "W_O":
            tensor = tensor.transpose(1, 2) if layout == "easy" else tensor.flatten(0, 1).T
        if not kind.startswith("b_") or layout == "easy" or kind in ("b_in", "b_out"):
            found[name] = tensor
    return found


@pytest.mark.parametrize("layout", ["left", "easy"])
def test_plain_tensors_of_older_code_are_turned(layout: str, tmp_path: Path) -> None:
    fields = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 3, "d_mlp": 20, "n_ctx": 9, "d_vocab": 5,
              "d_vocab_out": 4, "act_fn": "relu", "normalization_type": None}  # fmt: skip
    torch.manual_seed(3)
    own = hooked(**fields)
    state = {name: torch.randn_like(t) if "b_" not in name else 0 * t for name, t in own.named_parameters()}
    own.load_state_dict(state, strict=False)
    torch.save({"model": turned(state, layout), "config": {"act_type": "ReLU"}}, tmp_path / "old.pt")
    reading = read(tmp_path / "old.pt")
    assert compared(stock_model(read_config(reading.fields), reading.tensors), own).difference < 1e-5
    torch.save(turned(state, layout), tmp_path / "bare.pt")
    with pytest.raises(InterpError, match="'act_fn': 'relu'"):
        read(tmp_path / "bare.pt")
    assert read(tmp_path / "bare.pt", {"act_fn": "relu"}).fields["n_heads"] == 2


# ---------------------------------------------------------------- names and wrappers, as training libraries save them


def nano() -> Nano:
    torch.manual_seed(4)
    return Nano(n_layer=2, n_head=2, n_embd=8, block_size=10, vocab_size=6, bias=True)


WRAPPERS: dict[str, Callable[[dict[str, torch.Tensor]], dict[str, Any]]] = {
    "model.": lambda state: {f"model.{name}": t for name, t in state.items()},
    "net. in a DistributedDataParallel": lambda state: {f"module.net.{name}": t for name, t in state.items()},
    "gpt. in a compiled module": lambda state: {f"_orig_mod.gpt.{name}": t for name, t in state.items()},
    "FSDP": lambda state: {"_fsdp_wrapped_module." + name.replace(".attn.", "._fsdp_wrapped_module.attn."): t for
        name, t in state.items()},
    "Lightning": lambda state: {"epoch": 3, "pytorch-lightning_version": "2.5", "state_dict": {f"model.{name}": t for
        name, t in state.items()}, "hyper_parameters": {"n_head": 2, "act_fn": "gelu"}, "callbacks": {}},
}  # fmt: skip


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_of_training_libraries_are_taken_off(wrapper: str, tmp_path: Path) -> None:
    torch.save(WRAPPERS[wrapper](nano().state_dict()), tmp_path / "x.ckpt")
    reading = read(tmp_path / "x.ckpt", None if wrapper == "Lightning" else {"n_heads": 2, "act_fn": "gelu"})
    assert compared(stock_model(read_config(reading.fields), reading.tensors), nano()).same


def test_a_module_that_holds_a_model_is_read() -> None:
    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = original("gpt2, tied")

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.gpt(tokens).logits

    reading = read(Wrapped())
    assert reading.format == "Hugging Face GPT-2"
    assert compared(stock_model(read_config(reading.fields), reading.tensors), Wrapped()).same


def test_a_bare_gpt2_state_dict_is_read_in_its_own_order() -> None:
    made = original("gpt2, relu, wide, untied")
    reading = read(made.state_dict(), {"n_heads": 2, "act_fn": "relu"})
    assert reading.format == "GPT-2 state dict"
    assert compared(stock_model(read_config(reading.fields), reading.tensors), made).same


SETTINGS = {
    "normalization_type": ("RMS", "normalization_type = RMS is not supported, only normalization_type = LN"),
    "load_in_4bit": (True, "TransformerLens rejects this config: name 'Params4bit' is not defined"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_does_not_fit_is_one_sentence(name: str) -> None:
    """Norms with biases are no RMS norms; TransformerLens fails on some of its own settings."""
    (value, said), state = SETTINGS[name], original("gpt2, tied").state_dict()
    with pytest.raises(InterpError, match=said):
        interp.load(state, task=Majority(), tokens={"a": 0, "b": 1, "c": 2}, config={"n_heads": 2, name: value})


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_weights_in_parts_are_read(name: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    made = original("llama")
    made.config.save_pretrained(tmp_path)
    state, stem, suffix = made.state_dict(), *name.split(".")
    parts = {f"{stem}-0000{i}-of-00002.{suffix}": list(state)[i::2] for i in range(2)}
    for part, names in parts.items():
        (save_file if suffix == "safetensors" else torch.save)({n: state[n] for n in names}, tmp_path / part)
    index = {"weight_map": {n: part for part, names in parts.items() for n in names}}
    (tmp_path / f"{name}.index.json").write_text(json.dumps(index))
    assert read(tmp_path).tensors["embed.W_E"].equal(state["model.embed_tokens.weight"])


def test_attn_blocks_are_blocks() -> None:
    own = read_tensors(SHAPES["induction"].path("induction"))
    renamed = {name.replace("blocks.", "attn_blocks."): tensor for name, tensor in own.items()}
    given = SHAPES["induction"].load.get("config")
    for name, tensor in read(renamed, given).tensors.items():
        assert tensor.equal(read(own, given).tensors[name])


class Settings:
    """What an unpickler would have to import."""


def test_an_unreadable_pickle_names_the_class(tmp_path: Path) -> None:
    torch.save({"model": nano().state_dict(), "config": Settings()}, tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=rf"it contains {__name__}\.Settings, .*state_dict\(\), path\)$"):
        read(tmp_path / "x.pt")
    texts = "x.pt cannot be read without running code: torch.save did not write it"
    for text in (b'{"n_heads": 2}', b"hello\n"):
        (tmp_path / "x.pt").write_bytes(text)
        with pytest.raises(CheckpointError, match=f"{texts}$"):
            read(tmp_path / "x.pt")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_was_cut_off_is_said_not_to_be_whole(zipped: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(nano().state_dict(), path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    for length in (0, 4, len(content) // 2, len(content) - 100):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"x\.pt is not a whole file of torch\.save: its end is missing"):
            read(path)


def test_a_file_with_a_wrong_checksum_is_said_to_be_damaged(tmp_path: Path) -> None:
    path, state = tmp_path / "x.pt", nano().state_dict()
    torch.save(state, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        read_tensors(path)
    content, weights = path.read_bytes(), state["transformer.wte.weight"].numpy().tobytes()
    assert content.count(weights) == 1
    path.write_bytes(content.replace(weights, bytes(len(weights))))
    with pytest.warns(UserWarning, match=r"x\.pt may be damaged: the checksum of .*/data/\d+ is wrong"):
        assert not read_tensors(path)["transformer.wte.weight"].any()


def test_arrays_are_not_taken_for_tensors() -> None:
    arrays = {name: tensor.numpy() for name, tensor in nano().state_dict().items()}
    with pytest.raises(
        CheckpointError, match=r"contains numpy arrays \(.*\); expected tensors, which torch\.from_numpy"
    ):
        read(arrays)


def test_an_unknown_setting_is_said_with_the_format() -> None:
    with pytest.raises(InterpError, match=r"^this is read as nanoGPT or minGPT: unknown setting 'heads'; known: "):
        read(nano().state_dict(), {"heads": 2})


def test_what_was_assumed_is_said(tmp_path: Path) -> None:
    given: dict[str, Any] = {"task": Majority(), "tokens": {"a": 4, "b": 0, "c": 2}}
    with pytest.warns(UserWarning, match=r"are assumed: act_fn = 'gelu_new', eps = 1e-05, .*check_conversion"):
        interp.load(nano().state_dict(), config={"n_heads": 2}, **given)
    with pytest.raises(CheckpointError, match="differs from the original"):
        interp.load(nano(), config={"n_heads": 2}, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interp.load(nano(), config={"n_heads": 2, "act_fn": "gelu"}, **given)
    half = {name: tensor.half() for name, tensor in nano().state_dict().items()}
    with pytest.warns(UserWarning, match="saved in float16 are converted to float32"):
        interp.load(half, config={"n_heads": 2, "act_fn": "gelu"}, **given)
    original("llama").half().save_pretrained(tmp_path)
    folder: Any = interp.load(tmp_path, **given)
    assert folder.notes == ("Weights saved in float16 are converted to float32.",)  # compared with its library's


def without(state: Mapping[str, Any], *endings: str) -> dict[str, Any]:
    return {name: tensor for name, tensor in state.items() if not name.endswith(endings)}


def test_a_bias_that_some_layers_lack_is_refused(tmp_path: Path) -> None:
    """Under TransformerLens's names, GPT-2's and torch's, and in a folder whose library would fill in a zero."""
    lens = read(nano().state_dict(), {"n_heads": 2})
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False)
    parts = {"embed": torch.nn.Embedding(3, 8), "encoder": encoder, "head": torch.nn.Linear(8, 3)}
    states = [
        (lens.tensors, "blocks.1.attn.b_Q", lens.fields),
        (nano().state_dict(), "transformer.h.0.mlp.c_fc.bias", {"n_heads": 2}),
        (torch.nn.ModuleDict(parts).state_dict(), "encoder.layers.1.self_attn.in_proj_bias", {"n_heads": 2}),
    ]
    for state, name, config in states:
        with pytest.raises(CheckpointError, match=f"lacks biases that it has in other layers: {name}$"):
            read(without(state, name), config)
    original("gpt2, tied").save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    save_file(without(state, "h.1.attn.c_proj.bias"), tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"in other layers: transformer\.h\.1\.attn\.c_proj\.bias$"):
        read(tmp_path)


def test_biases_that_no_layer_has_are_said_to_be_zero(tmp_path: Path) -> None:
    given: dict[str, Any] = {"task": Majority(), "tokens": {"a": 4, "b": 0, "c": 2}}
    state = without(nano().state_dict(), "mlp.c_fc.bias", "mlp.c_proj.bias")
    said = r"There are no biases mlp\.c_fc\.bias, mlp\.c_proj\.bias: they are taken as 0\."
    with pytest.warns(UserWarning, match=said):
        model = interp.load(state, config={"n_heads": 2}, **given)
    assert re.search(said, repr(model))
    original("gpt2, tied").save_pretrained(tmp_path)
    state = without(load_file(tmp_path / "model.safetensors"), "mlp.c_fc.bias")
    save_file(state, tmp_path / "model.safetensors")
    with pytest.warns(UserWarning, match=r"no biases mlp\.c_fc\.bias.*: the file lacks tensors of transformers' model"):
        interp.load(tmp_path, **given)


def test_the_order_of_token_ids_is_said_if_assumed() -> None:
    class Letters(Majority):
        vocabulary = tuple("abcdef")

    said = r"Token ids are assumed to be in the task's order \(a, b, c, \.\.\.\); pass tokens= if they are not\."
    state, given = nano().state_dict(), {"n_heads": 2, "act_fn": "gelu"}
    with pytest.warns(UserWarning, match=said):
        model: Any = interp.load(state, task=Letters(), config=given)
    assert re.search(said, repr(model))
    named: Any = interp.load(state, task=Letters(), config=given, tokens={word: i for i, word in enumerate("abcdef")})
    assert "Token ids" not in repr(named)


LIKE_GPT2: dict[str, dict[str, Any]] = {
    "act_fn": {"act_fn": "relu"}, "eps": {"eps": 0.1}, "normalization_type": {"normalization_type": "RMS"},
    "attn_scale": {"attn_scale": 8.0}, "parallel_attn_mlp": {"parallel_attn_mlp": True},
    "output_logits_soft_cap": {"output_logits_soft_cap": 0.5}, "attention_dir": {"attention_dir": "bidirectional"},
    "scale_attn_by_inverse_layer_idx": {"scale_attn_by_inverse_layer_idx": True},
}  # fmt: skip
"""What relatives of nanoGPT do differently, under its names of tensors."""


def as_mingpt(model: Any) -> dict[str, torch.Tensor]:
    """The tensors of a HookedTransformer under minGPT's names, which are nanoGPT's."""
    found = {"wte.weight": model.W_E, "wpe.weight": model.W_pos, "lm_head.weight": model.W_U.T}
    norms = {"ln_f": model.ln_final}
    for index, block in enumerate(model.blocks):
        at, attn = f"h.{index}", block.attn
        norms |= {f"{at}.ln_1": block.ln1, f"{at}.ln_2": block.ln2}
        joined = [getattr(attn, f"W_{name}").transpose(1, 2).flatten(0, 1) for name in "QKV"]
        found |= {f"{at}.attn.c_attn.weight": torch.cat(joined), f"{at}.attn.c_proj.weight": attn.W_O.flatten(0, 1).T,
                  f"{at}.mlp.c_fc.weight": block.mlp.W_in.T, f"{at}.mlp.c_proj.weight": block.mlp.W_out.T}  # fmt: skip
    for name, norm in norms.items():
        found |= {f"{name}.weight": norm.w} | ({f"{name}.bias": norm.b} if hasattr(norm, "b") else {})
    return {f"transformer.{name}".replace("transformer.lm_head", "lm_head"): t.detach() for name, t in found.items()}


@pytest.mark.skipif(find_spec("transformer_lens.HookedTransformer") is None, reason="TransformerLens 3's originals")
@pytest.mark.parametrize("name", LIKE_GPT2)
@pytest.mark.thinned(3)
def test_relatives_of_gpt2_are_right_once_told(name: str) -> None:
    """Alone, what differs is in the warning by name; a setting of the reader makes it right."""

    sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 12, "n_ctx": 8, "d_vocab": 5}
    torch.manual_seed(5)
    made = hooked(**{**sizes, "act_fn": "gelu_new", **LIKE_GPT2[name]}).eval()
    for key, parameter in made.named_parameters():
        parameter.data = torch.randn(parameter.shape) * (0 if ".b_" in key else 0.6)
    given: dict[str, Any] = {"task": Majority(), "tokens": {"a": 4, "b": 0, "c": 2}}
    with pytest.warns(UserWarning, match=f"are assumed: .*{name} = "):
        alone: Any = interp.load(as_mingpt(made), config={"n_heads": 2}, **given)
    rows = Majority().sample(20).tokens
    wanted = made(torch.tensor([4, 0, 2])[rows])[..., [4, 0, 2, 1, 3]]
    assert (alone(rows) - wanted).abs().max() > 1e-3
    told: Any = interp.load(as_mingpt(made), config={"n_heads": 2, **LIKE_GPT2[name]}, **given)
    torch.testing.assert_close(told(rows), wanted, rtol=1e-4, atol=1e-4)
    assert f" {name} = " not in repr(told)


def test_a_checkpoint_of_ours_may_be_given_its_task(tmp_path: Path) -> None:
    path = interp.save(interp.build("count01/minimal"), tmp_path / "mine.safetensors")
    assert interp.load(path, task="count01").task.name == "count01"
    with pytest.raises(InterpError, match="is a model of task count01, not histogram"):
        interp.load(path, task="histogram")
    with pytest.raises(InterpError, match="already has the ids"):
        interp.load(path, task="count01", tokens={"0": 3})
