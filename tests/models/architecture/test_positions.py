"""Position parts inside a model: where they enter, how long a row is, what limits its length."""

import pickle

import pytest
import torch
from torch import Tensor

import interp
from interp.errors import InterpError, SpecError
from interp.models.architecture import formulas, parameters
from interp.models.spec import Layer, ModelSpec, TaskRef
from interp.tasks import make_task

SPEC = ModelSpec(
    task=TaskRef(name="count01"), d_model=6, direction="bidirectional", layers=(Layer(d_head=6),), dtype="float64"
)
TOKENS = torch.tensor([[0, 1, 2, 3, 4], [0, 3, 1, 7, 7], [0, 7, 7, 7, 7]])
LENGTHS = (5, 3, 1)


def make(spec: ModelSpec) -> interp.TaskModel:
    generator = torch.Generator().manual_seed(2)
    shapes = parameters.parameter_shapes(spec, make_task(spec.task))
    weights = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    return interp.TaskModel(spec, tensors=weights)


def positions(spec: ModelSpec, tokens: Tensor = TOKENS, mask: Tensor | None = None) -> Tensor:
    _, cache = make(spec).run_with_cache(tokens, attention_mask=mask)
    return cache["hook_pos_embed"]


def test_none_is_zero_and_no_parameter() -> None:
    model = make(SPEC)
    assert (positions(SPEC) == 0).all()
    assert model.W_pos.shape == (0, 6)
    assert not [name for name, _ in model.named_parameters() if "pos" in name]
    assert model.state_dict().keys().isdisjoint({"pos_embed.W_pos"})


def test_a_bidirectional_model_without_positions_ignores_order() -> None:
    model = make(SPEC)
    order = torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(model(TOKENS[:1])[:, order], model(TOKENS[:1, order]), rtol=1e-12, atol=1e-12)


def test_learned_rows_stand_in_the_stream() -> None:
    spec = SPEC.replace(positions="learned", max_length=5)
    model = make(spec)
    assert positions(spec).equal(model.pos_embed.W_pos.expand(3, -1, -1))
    assert positions(spec, TOKENS[:, :2]).equal(model.pos_embed.W_pos[:2].expand(3, -1, -1))
    with pytest.raises(InterpError, match="at most 5"):
        model(torch.zeros(1, 6, dtype=torch.long))


def test_formulas_see_the_true_length_of_each_row() -> None:
    """From the mask that is given, from the padding, or the whole width."""
    spec = SPEC.replace(positions="fraction")
    for found in (positions(spec), positions(spec, mask=(TOKENS != 7).long())):
        for row, n in zip(found, LENGTHS, strict=True):
            torch.testing.assert_close(row[:n, 0], torch.arange(n) / torch.tensor(n, dtype=torch.float64))
            assert (row[:, 1:] == 0).all()
    whole = positions(spec, TOKENS.clamp(max=6))
    torch.testing.assert_close(whole[:, :, 0], torch.arange(5.0, dtype=torch.float64).expand(3, -1) / 5)


@pytest.mark.parametrize("name", ["sinusoidal", "first", "parity", "halves", "mirror", "mirror-doubled"])
def test_the_model_holds_the_formula(name: str) -> None:
    i = torch.arange(5, dtype=torch.float64).expand(1, -1)
    wanted = formulas.position_formula(name)(i, torch.tensor([[5.0]], dtype=torch.float64), 6)
    assert positions(SPEC.replace(positions=name), TOKENS[:1]).equal(wanted)


def test_formulas_are_rounded_once() -> None:
    """sin and cos of float32 angles are wrong in the fourth digit at position 10,000; ours are right to the last."""
    n = 10_000
    model = interp.TaskModel(SPEC.replace(positions="sinusoidal", dtype="float32"))
    found = model.pos_embed(torch.zeros(1, n, dtype=torch.long))[0]
    angles = torch.arange(n, dtype=torch.float64)
    assert found.dtype == torch.float32
    assert (found[:, 0].double() - angles.sin()).abs().max() < 1e-7


def test_positions_for_attention_alone_stay_out_of_the_stream() -> None:
    spec = SPEC.replace(positions="learned", positions_enter="attention", max_length=5, direction="causal")
    model = make(spec)
    tokens = TOKENS[:1]
    logits, cache = model.run_with_cache(tokens)
    assert (cache["hook_pos_embed"] == 0).all()
    assert cache["blocks.0.hook_resid_pre"].equal(model.embed(tokens))
    assert cache["blocks.0.attn.hook_pos"].equal(model.blocks[0].attn.W_pos)
    parts = cache.decompose_resid()
    torch.testing.assert_close(parts.sum(0), cache["blocks.0.hook_resid_post"], rtol=1e-12, atol=1e-12)
    off = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_pos", lambda value, hook: 0 * value)])
    assert (off - logits).abs().max() > 1e-3
    with torch.no_grad():
        model.blocks[0].attn.W_pos.zero_()
    assert model(tokens).equal(off)


@pytest.mark.parametrize(("name", "word"), [("fractoin", "did you mean 'fraction'"), ("", "known: none, learned")])
def test_unknown_formulas(name: str, word: str) -> None:
    with pytest.raises(SpecError) as error:
        interp.TaskModel(SPEC.replace(positions=name))
    assert word in str(error.value)


def test_a_formula_needs_room() -> None:
    with pytest.raises(SpecError, match="need 4 components"):
        interp.TaskModel(SPEC.replace(positions="halves", d_model=2, layers=(Layer(d_head=2),)))


@pytest.mark.parametrize("name", ["learned", "sinusoidal"])
def test_appended_tokens_keep_their_own_positions(name: str) -> None:
    """What generate asks for: the last tokens of a row, the others remembered."""
    model = make(SPEC.replace(positions=name, direction="causal", max_length=5 if name == "learned" else None))
    whole = model.pos_embed(TOKENS)
    assert model.pos_embed(TOKENS[:, 3:], 3).equal(whole[:, 3:])


def test_a_model_with_a_formula_is_pickled() -> None:
    model = interp.build("languages/parity")
    again = pickle.loads(pickle.dumps(model))
    tokens = model.task.encode(["0110", "1"]).tokens
    assert torch.equal(again(tokens), model(tokens))
