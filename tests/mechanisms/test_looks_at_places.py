"""Heads that look by position: each pattern is planted, and only its own words may be said of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import interp
from interp.explanations.parts import CLOSE
from interp.measures.runs import Part
from interp.measures.subject import Subject
from interp.mechanisms.base import mechanisms
from interp.mechanisms.bench import Bench
from interp.populations import sample

HEAD = Part(0, 0)
PLACES = {"everywhere", "itself", "offset", "mirror", "partner", "ends", "by position"}


def bench(name: str, n: int = 60) -> Bench:
    subject = Subject.of(interp.load(name))
    return Bench(subject, sample(subject.task, n))


def close(made: Bench, pattern: Tensor) -> dict[str, float]:
    """What is said of a head with this pattern, of all that is at least CLOSE to it; "by position" left out."""
    made.activation("blocks.0.attn.hook_pattern")[:, 0] = pattern.float()
    said = [one for name in PLACES - {"by position"} for one in mechanisms("pattern")[name](made, HEAD)]
    return {one.words: one.fit for one in said if one.fit >= CLOSE and "graded" not in one.mechanism}


def even(holds: Tensor, visible: Tensor) -> Tensor:
    """Equal weights for what is held; for all that is visible where nothing is."""
    holds = torch.where((holds & visible).any(-1, keepdim=True), holds & visible, visible).float()
    return holds / holds.sum(-1, keepdim=True).clamp(min=1)


def test_each_of_these_mechanisms_is_discovered() -> None:
    assert set(mechanisms("pattern")) >= PLACES


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (0, "looks at the current position"),
        (-1, "looks at the previous token"),
        (-2, "looks at the token 2 positions back"),
        (-3, "looks at the token 3 positions back"),
    ],
)
def test_planted_offsets_are_told_apart(step: int, words: str) -> None:
    made = bench("algorithmic/induction")
    place = torch.arange(made.visible.shape[1])
    holds = (place[None, :] - place[:, None] == step).expand_as(made.visible)
    assert close(made, even(holds, made.visible)) == {words: 1.0}


def test_even_attention_is_said_to_be_even() -> None:
    made = bench("algorithmic/induction")
    assert list(close(made, even(made.visible, made.visible))) == ["looks evenly at everything it sees"]


def test_a_random_pattern_is_none_of_these() -> None:
    made = bench("algorithmic/induction")
    scores = torch.randn(made.visible.shape, generator=torch.Generator().manual_seed(0)) * 4
    pattern = scores.masked_fill(~made.visible, -torch.inf).softmax(-1).nan_to_num()
    assert close(made, pattern) == {}


def test_the_mirror_place_is_seen_without_a_causal_mask() -> None:
    made = bench("languages/palindrome")
    content, place = made.view.content, torch.arange(made.visible.shape[1])
    ends = torch.stack([content.long().argmax(1), place[-1] - content.flip(1).long().argmax(1)])
    holds = place[None, :, None] + place[None, None, :] == ends.sum(0)[:, None, None]
    holds = holds & content[:, :, None] & content[:, None, :]
    (before, _) = mechanisms("pattern")["mirror"](made, HEAD)
    made.activation("blocks.0.attn.hook_pattern")[:, 0] = even(holds, made.visible)
    (planted, _) = mechanisms("pattern")["mirror"](made, HEAD)
    assert planted.words == "looks at the mirror position"
    assert planted.fit == 1.0
    assert before.fit < CLOSE


def test_a_causal_model_has_no_mirror_and_no_places_behind() -> None:
    made = bench("algorithmic/induction")
    assert list(mechanisms("pattern")["mirror"](made, HEAD)) == []
    assert not [one for one in mechanisms("pattern")["offset"](made, HEAD) if "behind" in one.words]


def test_partners_need_brackets() -> None:
    assert list(mechanisms("pattern")["partner"](bench("algorithmic/induction"), HEAD)) == []
    said = [one.words for one in mechanisms("pattern")["partner"](bench("algorithmic/brackets"), HEAD)]
    assert said[0] == "looks at the bracket that the current one closes"


def test_a_pattern_that_no_token_changes_is_fixed() -> None:
    made = bench("algorithmic/induction")
    weights = torch.rand(made.visible.shape[1:], generator=torch.Generator().manual_seed(1)) * made.visible[0]
    made.activation("blocks.0.attn.hook_pattern")[:, 0] = weights / weights.sum(-1, keepdim=True)
    (one,) = mechanisms("pattern")["by position"](made, HEAD)
    assert one.words == "looks by a fixed pattern, whatever the tokens"
    assert one.fit > 1 - 1e-6
