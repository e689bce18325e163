"""Every exact language model against a numpy forward of its parameters, one string at a time, and exhaustively."""

import pytest
import torch
from cases import LANGUAGES
from numpy_forward import forward

from interp.models.architecture.formulas import position_formula
from interp.models.constructions import Construct, construct

CASES = [
    ("one", None, {}),
    ("one", None, {"layer_norm": True, "eps": 1e-5, "output_scale": 3.0}),
    ("first", None, {}), ("first", None, {"c": 2.0, "output_scale": 0.5}),
    ("first", None, {"layer_norm": True, "eps": 1e-5}), ("parity", None, {}), ("parity", None, {"layer_norm": True}),
    ("palindrome", "binary", {}), ("palindrome", "binary", {"tolerance": 1e-4}), ("palindrome", "mirror", {}),
    ("palindrome", "mirror", {"tolerance": 1e-2}), ("palindrome", "mirror", {"layer_norm": True}),
]  # fmt: skip
IDS = [f"{name}-{variant}-{'-'.join(sizes)}" for name, variant, sizes in CASES]


def numpy_forward(made: Construct, tokens: list[int]) -> float:
    """The logit at [CLS] (position 0) of one string without padding, in float64."""
    at, n = torch.arange(len(tokens), dtype=torch.float64)[None], torch.tensor([[float(len(tokens))]]).double()
    codes = position_formula(made.spec.positions)(at, n, made.spec.d_model)[0]
    return float(forward(made.spec, {**made.weights.tensors, "pos_embed.W_pos": codes}, tokens)[0][0, 0])


@pytest.mark.parametrize(("name", "variant", "sizes"), CASES, ids=IDS)
def test_logits_equal_a_numpy_forward(name: str, variant: str | None, sizes: dict) -> None:
    made = construct(f"languages/{name}", variant, **sizes)
    batch = made.task.strings(40, 13, 1, seed=1)  # ragged: the model masks and numbers each row by its own length
    wanted = torch.tensor(
        [numpy_forward(made, row[:n].tolist()) for row, n in zip(batch.tokens, batch.lengths.tolist())],
        dtype=torch.float64,
    )
    for dtype, atol in ((torch.float64, 1e-12), (torch.float32, 2e-5)):
        with torch.no_grad():
            found = made.model(dtype=dtype)(batch.tokens)[:, 0, 0]
        torch.testing.assert_close(found.double(), wanted, atol=atol, rtol=0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "variant", "sizes"), CASES, ids=IDS)
@pytest.mark.thinned(9)
def test_right_on_every_string_up_to_length_12(name: str, variant: str | None, sizes: dict, dtype: str) -> None:
    made = construct(f"languages/{name}", variant, **sizes)
    model, batch = made.model(dtype=dtype), made.task.enumerate_up_to(12)
    assert torch.equal(model.predict(batch.tokens), batch.labels)


@pytest.mark.parametrize(("name", "variant", "sizes"), CASES, ids=IDS)
def test_right_on_the_table_of_cases(name: str, variant: str | None, sizes: dict) -> None:
    if "tolerance" in sizes:
        return  # a fixed tolerance ends the proof at a length of its own
    made = construct(f"languages/{name}", variant, **sizes)
    batch = made.task.encode(list(LANGUAGES[name]))
    assert made.model().predict(batch.tokens).tolist() == list(LANGUAGES[name].values())


@pytest.mark.parametrize(("name", "variant", "sizes"), CASES, ids=IDS)
def test_no_row_is_ever_zero_over_zero(name: str, variant: str | None, sizes: dict) -> None:
    made = construct(f"languages/{name}", variant, **sizes)
    _, cache = made.model().run_with_cache(made.task.enumerate_up_to(5).tokens)
    assert all(torch.isfinite(value).all() for key, value in cache.items() if "attn_scores" not in key)


@pytest.mark.parametrize(("name", "variant", "sizes"), CASES, ids=IDS)
def test_padding_changes_nothing(name: str, variant: str | None, sizes: dict) -> None:
    made = construct(f"languages/{name}", variant, **sizes)
    model, tokens = made.model(), made.task.strings(20, 9, seed=2).tokens
    padded = torch.nn.functional.pad(tokens, (0, 6), value=made.task.pad_id)
    with torch.no_grad():
        torch.testing.assert_close(model(padded)[:, 0], model(tokens)[:, 0], atol=1e-14, rtol=1e-12)


def test_watched_and_fused_attention_agree() -> None:
    made = construct("languages/parity")
    model, tokens = made.model(), made.task.strings(20, 30, 3, seed=3).tokens
    with torch.no_grad():
        cached, _ = model.run_with_cache(tokens)
        torch.testing.assert_close(model(tokens)[:, 0], cached[:, 0], atol=1e-14, rtol=1e-12)
