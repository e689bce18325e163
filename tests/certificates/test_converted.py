"""A stranger's model by a proof about its config and parameters, against the same weights as a task model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_weights import hooked

import interp
from interp.certificates.certify import CONVERTED
from interp.errors import UnsupportedError
from interp.families.algorithmic import Addition
from interp.families.count01.tasks import CountBox
from interp.models.lens import HookedTransformer
from interp.models.subject import Subject

BOX = CountBox((0, 4), (0, 4), (0, 3))


def stranger(n_ctx: int = 700, outputs: int = 8, **more: Any) -> HookedTransformer:
    """count01/minimal in a stock model: no positions, and a table of zeros for them."""
    ours = interp.build("count01/minimal", dtype="float64")
    fields = {"n_layers": 1, "d_model": 1, "n_heads": 1, "d_head": 1, "attn_only": True, "n_ctx": n_ctx, "d_vocab": 8,
              "d_vocab_out": outputs, "normalization_type": None, "use_attn_scale": False, "device": "cpu",
              "dtype": torch.float64}  # fmt: skip
    model = hooked(**fields | more)
    given = dict(ours.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.zero_()
            if name in given:
                parameter[..., : given[name].shape[-1]] = given[name]
    return model


@pytest.mark.slow
def test_a_proof_holds_for_a_strangers_weights() -> None:
    ours, theirs = interp.certify("count01/minimal"), interp.certify(Subject.external(stranger(), task="count01"))
    assert theirs.about == CONVERTED
    assert (theirs.status, theirs.n_inputs, theirs.accuracy) == ("certified", 502_500, 1.0)
    assert theirs.worst_margin == pytest.approx(ours.worst_margin)
    assert theirs.probed > 100


def test_options_are_those_of_the_proof_and_errors_are_counted() -> None:
    model = stranger()
    with torch.no_grad():
        model.unembed.b_U[5] += 0.02
    counts = BOX.counts()
    task: Any = interp.build("count01/minimal").task
    batch = task.sentences(counts)
    places = (batch.tokens == 4).int().argmax(1)
    wrong = int((model(batch.tokens)[range(len(counts)), places].argmax(-1) != batch.labels).sum())
    found = interp.certify(Subject.external(model, task="count01"), box=BOX)
    assert (found.status, found.n_errors, found.n_inputs) == ("refuted", wrong, 100)


def test_evidence_of_a_converted_model_is_its_weights(tmp_path: Path) -> None:
    found = interp.certify(Subject.external(stranger(), task="count01"), box=BOX)
    assert found.evidence(tmp_path / "proof.json").is_file()


def test_a_model_with_hooks_is_not_converted() -> None:
    model = stranger()
    model.blocks[0].attn.register_forward_hook(lambda module, given, out: out)
    with pytest.raises(
        UnsupportedError, match=r"count01 does not list its inputs .*; and no proof is about it: there is a hook at blo"
    ):
        interp.certify(Subject.external(model, task="count01"))


def test_a_model_that_runs_something_else_is_not_certified() -> None:
    model = stranger()
    kind: Any = type(model.unembed)
    model.unembed.__class__ = type("Twice", (kind,), {"forward": lambda self, x: kind.forward(self, x) * 2})
    with pytest.raises(UnsupportedError, match="no proof is about it: a spec cannot express this model: logits differ"):
        interp.certify(Subject.external(model, task="count01"))


def adder(seed: int, **fields: Any) -> HookedTransformer:
    """A decoder with large random weights, rotary positions, query-key norms and a gated MLP, as small adders have."""
    sizes = {"n_layers": 1, "d_model": 4, "n_heads": 1, "d_head": 4, "d_mlp": 6, "act_fn": "silu", "gated_mlp": True,
             "n_ctx": 33, "d_vocab": 10, "d_vocab_out": 10, "normalization_type": "RMS", "eps": 1e-6, "device": "cpu",
             "positional_embedding_type": "rotary", "rotary_dim": 4, "rotary_base": 3, "use_qk_norm": True}  # fmt: skip
    model = hooked(**sizes | fields)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.rand if name.endswith("norm.w") else torch.randn
            parameter.copy_(drawn(parameter.shape, generator=generator) * (8 if drawn is torch.rand else 3))
    return model


SHAPES: list[dict[str, Any]] = [
    {}, {"use_qk_norm": False}, {"rotary_base": 7}, {"rotary_adjacent_pairs": True}, {"normalization_type": "LN"},
    {"gated_mlp": False, "act_fn": "relu"}, {"d_model": 3}, {"d_model": 6}, {"n_heads": 2}, {"rotary_base": 10000},
    {"n_heads": 2, "n_key_value_heads": 1}, {"d_mlp": 12, "eps": 1e-5},
]  # fmt: skip


@pytest.mark.parametrize(
    ("index", "digits"), [(0, 5), *(pytest.param(i, 10, marks=pytest.mark.slow) for i in range(len(SHAPES)))]
)
def test_every_adder_of_others_gets_a_verdict(index: int, digits: int) -> None:
    """The libraries round angles differently in float32, and sharp heads enlarge that: no other model runs."""
    model = adder(index, **SHAPES[index])
    found = interp.certify(Subject.external(model, task=Addition(digits=digits, plus="0", equals="0")), seconds=0.2)
    assert (found.status, found.about) == ("refuted", CONVERTED)


def test_other_angles_than_those_of_the_config_are_refused() -> None:
    model = adder(0)
    model.blocks[0].attn.rotary_cos[:] = model.blocks[0].attn.rotary_cos.flip(0)
    with pytest.raises(UnsupportedError, match="no proof is about it: a spec cannot express this model: logits differ"):
        interp.certify(Subject.external(model, task=Addition(digits=10, plus="0", equals="0")))


@pytest.mark.slow
def test_rows_that_are_longer_than_its_positions_are_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"on this domain: inputs of task count01 have \d+ tokens; .* n_ctx is 90"
    ):
        interp.certify(Subject.external(stranger(n_ctx=90), task="count01"))


@pytest.mark.slow
def test_outputs_that_are_no_answers_compete_in_any_model(tmp_path: Path) -> None:
    """A ninth output, which is never right, is never the largest (certified) or always (wrong everywhere)."""
    task = interp.build("count01/minimal").task
    outputs = {word: i for i, word in enumerate(task.answer_words)}
    for bias, status, wrong in ((-100.0, "certified", 0), (100.0, "refuted", len(BOX))):
        model = stranger(outputs=9)
        with torch.no_grad():
            model.unembed.b_U[8] = bias
        loaded = interp.load(model, task="count01", outputs=outputs)
        saved = interp.load(interp.save(loaded, tmp_path / "copy.safetensors"))
        found = [interp.certify(Subject.external(model, task=task, outputs=outputs), box=BOX)]
        found += [interp.certify(one, box=BOX) for one in (loaded, saved)]
        assert {(one.status, one.n_errors, one.worst_margin, one.counterexample) for one in found} == {
            (status, wrong, found[0].worst_margin, found[0].counterexample)
        }
        batch = task.sample(20)
        assert bool((loaded.predict(batch.tokens) == (batch.labels if bias < 0 else -1)).all())


def test_an_older_checkpoint_without_some_outputs_is_refused(tmp_path: Path) -> None:
    model = interp.build("count01/minimal")
    model.summary = {"outputs_left_out": 2}
    path = interp.save(model, tmp_path / "old.safetensors")
    with pytest.raises(UnsupportedError, match="some of the original's outputs were left out of it"):
        interp.certify(path, box=BOX)
