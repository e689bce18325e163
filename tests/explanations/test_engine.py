"""interp.explain on models whose mechanism is known, and on models without one."""

from __future__ import annotations

import pytest
import torch

import interp
from interp.explanations import Explanation


@pytest.mark.parametrize(
    ("name", "sizes", "words", "most"),
    [
        ("algorithmic/max-of-k-exact", {"K": 3, "v": 8}, "The answer is the largest number.", 2),
        ("histogram/dot-exact", {"T": 6, "L": 5}, "The answer is how often the current token occurs.", 0),
        pytest.param(
            "languages/first", {},
            'The answer is "a member" if the first token is 1, otherwise "not a member".', 3, marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_exact_constructions_are_explained(name: str, sizes: dict[str, int], words: str, most: int) -> None:
    found = interp.explain(interp.build(name, **sizes), seconds=600.0)
    assert found.program is not None
    assert found.agreement is not None
    assert found.program.words == words
    assert found.constants <= most
    assert found.agreement.changed == 0
    assert Explanation.from_json(found.to_json()) == found


@pytest.mark.slow
def test_the_function_gives_the_answers_of_the_model() -> None:
    model = interp.build("histogram/dot-exact", T=6, L=5)
    found = interp.explain(model, seconds=600.0)
    batch = model.task.sample(50, seed=4)
    for row, answers in zip(batch.tokens.tolist(), model.predict(batch.tokens).tolist()):
        tokens = [model.task.vocabulary[t] for t in row]
        assert [found.answer(tokens, at) for at in range(len(tokens))] == [str(a) for a in answers]


@pytest.mark.parametrize("seed", range(3))
def test_an_untrained_model_has_no_explanation(seed: int) -> None:
    spec = interp.load("languages/parity-learned").spec
    found = interp.explain(interp.build(spec, seed=seed), seconds=600.0)
    assert not found.found
    assert not found.parts
    assert found.sentence.startswith("No explanation found: the model ")


def test_a_broken_model_has_no_explanation() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0), dtype=parameter.dtype)
            )
    assert not interp.explain(model, seconds=600.0).found


def test_a_model_of_one_answer_is_said_to_give_one_answer() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    found = interp.explain(model, seconds=600.0)
    assert found.sentence.startswith("No explanation found: the model answers 0 to every input")


def test_a_share_out_of_range_is_refused() -> None:
    with pytest.raises(interp.InterpError, match=r"share = 1.5 must be from 0.5 to 1"):
        interp.explain("algorithmic/max-of-k-exact", share=1.5)
