"""TransformerBridges are loaded as what they run, and a module in memory is compared with what it became."""

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from lens_configs import First, random_weights
from torch import Tensor, nn

import interp
from interp.errors import CheckpointError, InterpError, UnsupportedError
from interp.models.readers.models import inspect

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
SMALL = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_head": 8, "d_mlp": 24, "act_fn": "relu", "n_ctx": 16,
         "d_vocab": 6, "normalization_type": "RMS", "positional_embedding_type": "standard", "seed": 0}  # fmt: skip
ROTARY = {"positional_embedding_type": "rotary", "rotary_dim": 8}
BRIDGES: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({}, ""), "gated": ({"gated_mlp": True, "act_fn": "silu"}, ""),
    "gated, attention only beside": ({"attn_only": True}, ""), "grouped": ({"n_key_value_heads": 1}, ""),
    "as many groups as heads": ({"n_key_value_heads": 2}, ""), "rotary by default": (ROTARY, "rotary_adjacent_pairs"),
    "rotary, adjacent pairs": (ROTARY | {"rotary_adjacent_pairs": True}, ""),
    "rotary in part": (ROTARY | {"rotary_dim": 4, "rotary_base": 50, "n_key_value_heads": 1}, "rotary_adjacent_pairs"),
    "no scale in the config": ({"use_attn_scale": False}, "use_attn_scale"),
    "own scale": ({"attn_scale": 3.0}, ""),
    "query-key norm in the config": ({"use_qk_norm": True}, "use_qk_norm"),
    "parallel in the config": ({"parallel_attn_mlp": True}, "parallel_attn_mlp"),
    "by layer in the config": ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    "both sides in the config": ({"use_normalization_before_and_after": True}, "use_normalization_before_and_after"),
    "window in the config": (
        {"use_local_attn": True, "window_size": 2, "attn_types": ["local", "local"]}, "use_local_attn"),
    "bidirectional": ({"attention_dir": "bidirectional", "normalization_type": "LN"}, ""),
    "folded": ({"normalization_type": "LNPre"}, ""),
    "folded RMS": ({"normalization_type": "RMSPre"}, ""),
    "without norms": ({"normalization_type": None, "act_fn": "gelu_new"}, ""),
    "epsilon": ({"eps": 0.1}, ""),
    "capped": ({"output_logits_soft_cap": 1.0, "attn_scores_soft_cap": 0.5}, "soft_cap"),
    "final RMS": ({"normalization_type": "LN", "final_rms": True}, "final_rms"),
}  # fmt: skip
"""Configs, and the field that a note or a refusal names."""


def native(**fields: Any) -> Any:
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    return random_weights(TransformerBridge.boot_native(TransformerBridgeConfig(**{**SMALL, **fields})))


@pytest.mark.parametrize("name", BRIDGES)
@pytest.mark.thinned(6)
def test_a_native_bridge_is_loaded_as_it_runs(name: str) -> None:
    fields, word = BRIDGES[name]
    bridge = native(**fields)
    rows = First().sample(16).tokens
    if word in ("soft_cap", "final_rms") and find_spec("transformer_lens.HookedTransformer") is None:
        with pytest.raises(UnsupportedError, match=word):
            interp.load(bridge, task=First())
        return
    model: Any = interp.load(bridge, task=First())
    right = bridge(rows).detach()
    assert (model(rows) - right).abs().max() < 1e-5 * right.abs().max().clamp_min(1)
    assert word in ("soft_cap", "final_rms") or (word in "".join(model.notes) and bool(word) == bool(model.notes))


def test_a_bridge_with_a_part_of_its_own_is_refused() -> None:
    bridge = native(eps=0.25)
    hook = bridge.blocks[0].mlp.register_forward_hook(lambda module, given, out: 2 * out)
    with pytest.raises(UnsupportedError, match=r"eps = 0\.25, .*cannot be converted: logits differ"):
        interp.load(bridge, task=First())
    hook.remove()


def test_a_bridge_around_another_librarys_model_is_loaded() -> None:
    transformers = pytest.importorskip("transformers")
    from transformer_lens.model_bridge import TransformerBridge

    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=6, n_positions=16, bos_token_id=0,
                                     eos_token_id=0)  # fmt: skip
    theirs = random_weights(transformers.GPT2LMHeadModel(config))
    rows = First().sample(16).tokens
    right = theirs(rows).logits.detach()
    bridge = boot(TransformerBridge, theirs)
    model: Any = interp.load(bridge, task=First())
    assert (model(rows) - right).abs().max() < 1e-5
    assert model.notes == ()
    bridge.enable_compatibility_mode()
    with pytest.raises(InterpError, match="has processed weights; give the bridge before enable_compatibility_mode"):
        interp.load(bridge, task=First())


def boot(kind: Any, theirs: Any) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:  # the library reads the config from a folder
        theirs.save_pretrained(folder)
        return kind.boot_transformers(folder, hf_model=theirs, device="cpu")


# ---------------------------------------------------------------- modules in memory


class Tutorial(nn.Module):
    """torch's encoder after an embedding times sqrt(d_model), as in a well-known tutorial."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.embedding = nn.Embedding(6, 16)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), 2, enable_nested_tensor=False
        )
        self.head = nn.Linear(16, 6)
        self.register_buffer("pos", torch.randn(1, 8, 16, generator=torch.Generator().manual_seed(2)))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens) * self.factor + self.pos[:, : tokens.shape[1]]))


def test_a_module_in_memory_is_run_and_compared() -> None:
    """Tensors do not show that the embedding is scaled; the module that was given does."""
    module = random_weights(Tutorial(1.0)).train()
    model: Any = interp.load(module, task=First())
    rows = First().sample(8).tokens
    assert module.training
    torch.testing.assert_close(model(rows), module.eval()(rows).detach(), rtol=1e-4, atol=1e-4)
    assert model.notes == ()
    with pytest.raises(CheckpointError, match="differs from the original: on tokens"):
        interp.load(random_weights(Tutorial(math.sqrt(16))), task=First())


def test_a_module_that_cannot_be_run_is_loaded_and_said() -> None:
    class Needs(Tutorial):
        def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(tokens)

    with pytest.warns(UserWarning, match="not compared with its original: TypeError: .*lengths"):
        model: Any = interp.load(random_weights(Needs(1.0)), task=First())
    assert "embedding.weight is assumed to be the embedding" in repr(model)


class At(Tutorial):
    """The outputs of one position: a fixed one, or the first of token 3 (the first of all, if there is none)."""

    def __init__(self, at: int | None) -> None:
        super().__init__(1.0)
        self.at = at

    def forward(self, tokens: Tensor) -> Tensor:
        at = (tokens == 3).long().argmax(1) if self.at is None else self.at
        return super().forward(tokens)[torch.arange(len(tokens)), at]


class ReadAtFirst(First):
    name, readout = "first-letter-at-first", "first"


class ReadAtD(First):
    name, readout = "first-letter-at-d", "d"

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        tokens = super().sample(n, split, seed).tokens
        tokens[torch.arange(n), torch.arange(n) % 7] = 3
        return self.batch(tokens)


class ReadEverywhere(First):
    name, readout = "first-letter-everywhere", "all"

    def batch(self, tokens: Tensor) -> interp.Batch:
        return interp.Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), tokens[:, :1].expand_as(tokens))


READERS: dict[int | None, interp.Task] = {-1: First(), 0: ReadAtFirst(), None: ReadAtD()}


@pytest.mark.parametrize("at", READERS)
def test_logits_of_one_position_are_compared_there(at: int | None) -> None:
    """Where the task reads; an original that answers elsewhere is refused."""
    module: Any = random_weights(At(at))
    for read, task in READERS.items():
        if read == at:
            model: Any = interp.load(module, task=task)
            assert model.notes == ()
        else:
            with pytest.raises(CheckpointError, match=f"of position .*but task {task.name} reads position"):
                interp.load(module, task=task)
    everywhere: Any = interp.load(module, task=ReadEverywhere())
    assert everywhere.notes == ("The original has one output for each row, so only this one was compared.",)
    with pytest.warns(UserWarning, match="assumed"):
        interp.load(module.state_dict(), task=READERS[0 if at != 0 else -1], config={"n_heads": 2})


def test_the_mean_over_positions_is_no_position() -> None:
    class Mean(Tutorial):
        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens).mean(1)

    for task in (First(), ReadEverywhere()):
        with pytest.raises(CheckpointError, match="one output for each row, and it is that of no position"):
            interp.load(random_weights(Mean(1.0)), task=task)


class Ragged(First):
    """Rows of four to eight letters, filled up with f."""

    name, pad = "first-letter-of-ragged", "f"

    def batch(self, tokens: Tensor) -> interp.Batch:
        return interp.Batch(tokens, (tokens != 5).sum(1), tokens[:, 0])

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        tokens = torch.randint(5, (n, 8), generator=torch.Generator().manual_seed(seed))
        return self.batch(tokens.where(torch.arange(8) < 4 + torch.arange(n)[:, None] % 5, 5))


class Masked(Tutorial):
    def forward(self, tokens: Tensor) -> Tensor:
        stream = self.embedding(tokens) + self.pos[:, : tokens.shape[1]]
        return self.head(self.encoder(stream, src_key_padding_mask=tokens == 5))


def test_a_module_that_answers_otherwise_on_padded_rows_is_said() -> None:
    """Without a mask, its tokens attend to padding; or it answers at the end of a row, where padding is."""
    quiet: Any = interp.load(random_weights(Masked(1.0)), task=Ragged())
    assert quiet.notes == ()
    for module in (Tutorial(1.0), At(-1)):
        with pytest.warns(UserWarning, match=r"rows with padding \(f\), the module answers otherwise .*is masked, and"):
            interp.load(random_weights(module), task=Ragged())
    without: Any = interp.load(random_weights(Tutorial(1.0)), task=Ragged(), tokens=dict(zip("abcde", range(5))))
    assert without.notes == ()


def test_an_original_with_other_outputs_is_not_compared() -> None:
    class Fewer(Tutorial):
        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens)[:, -1, :4]

    with pytest.warns(UserWarning, match=r"not compared with its original: .* have shape \(4, 1, 4\)"):
        interp.load(random_weights(Fewer(1.0)), task=First())


def test_an_original_that_needs_float32_is_compared_in_it(tmp_path: Path) -> None:
    """With reorder_and_upcast_attn, transformers' GPT-2 cannot run in float64."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=6, n_positions=16, bos_token_id=0,
                                     eos_token_id=0, reorder_and_upcast_attn=True)  # fmt: skip
    theirs = random_weights(transformers.GPT2LMHeadModel(config))
    rows = First().sample(16).tokens
    right = theirs(rows).logits.detach()
    theirs.save_pretrained(tmp_path)
    for source in (theirs, tmp_path):
        model: Any = interp.load(source, task=First())
        assert (model(rows) - right).abs().max() < 1e-5
        said = dict(inspect(source).rows)["compared with the original"]
        assert f"in float{32 if source is tmp_path else 64}" in said  # transformers runs the folder's with its own code


def test_settings_of_other_formats_are_refused_in_one_sentence() -> None:
    with pytest.raises(InterpError, match="this is read as native TransformerBridge: unknown setting 'eps'"):
        interp.load(native(), task=First(), config={"eps": 1.0})
