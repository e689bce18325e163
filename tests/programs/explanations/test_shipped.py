"""Explanations that come with interp are for the weights that they name, and say what holds of them."""

import json

import pytest
import torch

import interp
from interp.models.subject import Subject
from interp.programs.explanations import Explanation
from interp.programs.explanations.explanation import _known, shipped, weights_hash


def test_a_zoo_model_has_its_explanation() -> None:
    assert shipped(Subject.of(interp.load("algorithmic/max-of-k"))).level == "explained"


def test_other_weights_have_none() -> None:
    model = interp.load("algorithmic/max-of-k")
    before = weights_hash(Subject.of(model))
    with torch.no_grad():
        next(model.parameters())[0, 0] += 1e-3
    subject = Subject.of(model)
    assert weights_hash(subject) != before
    assert shipped(subject) is None


def test_hooks_on_a_model_hide_its_explanation() -> None:
    model = interp.load("algorithmic/max-of-k")
    model.add_hook("blocks.0.hook_resid_post", lambda activation, hook: activation * 2)
    assert shipped(Subject.of(model)) is None
    model.reset_hooks()
    assert shipped(Subject.of(model)) is not None


SLOW = ("algorithmic/brackets", "algorithmic/induction", "languages/first-learned", "languages/parity")
"""Models that take more than half a minute."""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({data["model"] for data in _known().values()} - {*SLOW}))
def test_explained_anew_the_same_is_found(name: str) -> None:
    model = interp.load(name)
    known = shipped(Subject.of(model))
    found = interp.explain(model)
    assert (found.level, found.found) == (known.level, known.found)
    assert not found.found or found.constants == known.constants


def test_every_shipped_program_has_its_population() -> None:
    """A program or rule comes with the share of answers that it gives, and each level with what it promises."""
    assert _known()
    for key, data in _known().items():
        found = Explanation.from_json(json.dumps(data))
        assert key.count(":") >= 1
        assert found.found == (found.agreement is not None), found.model
        compile(found.source if found.found else "", found.model, "exec")
        if found.agreement is not None:
            assert found.agreement.share >= 0.99, found.model
        if found.level == "explained":
            assert found.program is not None
            assert found.agreement.least >= 0.99, found.model
        if found.level == "none":
            assert found.sentence.startswith("No explanation found: "), found.model
