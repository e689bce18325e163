"""Tied outputs are an error in every certificate: a model without a readout is never right."""

from typing import Any

import pytest
import torch
from drawn_weights import draw, hooked

import interp
from interp.models.architecture.answers import Decision, right_in_run, said_in_run, surely_wrong
from interp.tasks import make_task


def without_readout(name: str, **sizes: Any) -> interp.TaskModel:
    """All outputs are 0, so that all answers are tied."""
    model = interp.build(name, **sizes)
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            if part.startswith("unembed"):
                parameter.zero_()
    return model


MODELS: dict[str, tuple[str, dict[str, Any], str]] = {
    "as run": ("algorithmic/induction-exact", {"v": 5, "length": 8, "shortest": 2, "longest": 3}, "refuted"),
    "products": ("algorithmic/max-of-k-exact", {"K": 3, "v": 4}, "refuted"),
    "classes of strings": ("languages/parity", {}, "refuted"),
    "histograms": ("histogram/dot-exact", {"T": 4, "L": 3, "d_model": 4, "p": 1}, "undecided"),
    "counts": ("count01/minimal", {"N": 12, "n_max": 300}, "refuted"),
    "strings": ("languages/palindrome", {"variant": "binary"}, "refuted"),
}
"""Status: undecided where a proof cannot tell a tie from rounding."""


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.thinned(3)
def test_no_method_counts_a_tie_as_right(kind: str) -> None:
    name, sizes, status = MODELS[kind]
    found = interp.certify(without_readout(name, **sizes))
    assert found.status == status
    assert (found.accuracy if isinstance(found.accuracy, float) else found.accuracy[0]) == 0
    assert (found.counterexample is not None) == (status == "refuted")
    assert "right by less than" not in " ".join(found.notes)


def test_a_counterexample_names_a_tie() -> None:
    found = interp.certify(without_readout("algorithmic/modular-addition-fourier", p=13, frequencies="1 3 4"))
    assert (found.status, found.n_errors) == ("refuted", 169)
    assert found.counterexample == "0 0 =: the answer at position 2 is 0 (a tie), right is 0"


def test_right_is_above_all_others() -> None:
    out = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [torch.inf, 0.0]])
    zero = torch.zeros(4, dtype=torch.long)
    assert right_in_run(out, zero, Decision()).tolist() == [True, False, False, False]
    task = make_task("max-of-k")
    assert [said_in_run(task, row, 0, Decision()) for row in out[:3]] == ["0", "0 (a tie)", "1"]
    margin, slack = torch.tensor([-1.0, -1.0, 0.0, 0.0, -torch.inf]), torch.tensor([0.5, 2.0, 0.0, 0.5, torch.inf])
    assert surely_wrong(margin, slack).tolist() == [True, False, True, False, False]


def test_weights_that_are_not_finite_are_refused_at_once() -> None:
    model = hooked(
        n_layers=1, d_model=4, n_ctx=5, d_head=4, n_heads=1, d_vocab=65, d_vocab_out=64, attn_only=True,
        normalization_type=None, device="cpu",
    )  # fmt: skip
    draw(model, 0)
    loaded = interp.load(model, task="max-of-k")
    loaded.unembed.b_U.data[0] = model.unembed.b_U.data[0] = -torch.inf
    with pytest.raises(interp.InterpError, match=r"^unembed\.b_U has values that are not finite"):
        interp.load(model, task="max-of-k")
    for look in (interp.certify, interp.analyze):
        with pytest.raises(interp.InterpError, match=r"^1 of the 64 weights of unembed\.b_U is not finite"):
            look(loaded)
