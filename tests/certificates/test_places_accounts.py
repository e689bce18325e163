"""What a proof by places counts: sets that were looked at, inputs that were decided, and wrong ones between bounds."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch

from interp.certificates import places_search
from interp.certificates.places import Sets, _wrong_inputs
from interp.certificates.places_ranges import TokenPattern
from interp.certificates.places_search import Proof, ReadProof, ReadTally
from interp.families.algorithmic import Addition
from interp.models.architecture.answers import Decision, margins
from interp.tasks.automata import declared

(PATHS,) = declared(Addition(base=3, digits=2))  # 81 inputs


def read_of(tally: ReadTally, steps: list[tuple[float, int]] | None = None) -> ReadProof:
    return Mock(spec=ReadProof, tally=tally, explore=lambda: iter(steps or []))


def test_what_is_open_has_no_margin() -> None:
    done = ReadTally(81, at=0, right=80, wrong=1, worst=-0.5)
    assert (done.open, done.margin) == (0, -0.5)
    part = ReadTally(81, at=0, right=70, wrong=1, worst=0.5)
    assert (part.open, part.margin) == (10, -np.inf)
    part.finished = True  # all sets were looked at, and some are too near to tell
    assert part.margin == 0.5


@pytest.mark.parametrize(("reads", "wrong_after", "taken"), [
    (1, None, 10),  # 10 sets of 100 each are the steps of .01 s
    (2, None, 6),  # half of them for this read, and the step that goes beyond
    (5, None, 3),
    (1, 2, 3),  # known to be wrong at the second: a twentieth of all steps is left for counting
])  # fmt: skip
def test_each_read_may_use_its_share(reads: int, wrong_after: int | None, taken: int) -> None:
    budget, tally = Sets(0.01), ReadTally(10**6, at=0)
    assert budget.steps == 0.01 * places_search.OPERATIONS_A_SECOND
    budget.steps, budget.to_count = 1000, 50
    seen = []
    for decided in budget.spend(read_of(tally, [(100, 7)] * 50), reads):
        seen.append(decided)
        tally.wrong += len(seen) == wrong_after
    assert seen == [7] * taken
    assert budget.only_counts == (wrong_after is not None)
    assert budget.steps == (50 - 100 if wrong_after else 1000 - 100 * taken)


def proof_of(*tallies: ReadTally) -> Proof:
    return Mock(spec=Proof, paths=PATHS, reads=[read_of(tally) for tally in tallies])


def test_inputs_with_a_wrong_answer_lie_between() -> None:
    """One read: its own numbers. Several: the sets that are known to be wrong, united, and what is open."""
    assert _wrong_inputs([proof_of(ReadTally(81, at=0, right=71, wrong=4))]) == (4, 10)
    first = ReadTally(81, at=0, right=54, wrong=27, patterns=[TokenPattern({}, {2: 1})])
    same, other = (
        ReadTally(81, at=1, right=54, wrong=27, patterns=[TokenPattern({}, tokens)]) for tokens in ({2: 1}, {5: 1})
    )
    assert _wrong_inputs([proof_of(first, same)]) == (27, 27)
    assert _wrong_inputs([proof_of(first, other)]) == (45, 45)  # 27 + 27 - 9
    unknown = ReadTally(81, at=1, right=50, wrong=30, patterns=None)
    assert _wrong_inputs([proof_of(first, unknown)]) == (30, 58)  # the larger number; both together and one open
    assert _wrong_inputs([proof_of(ReadTally(81, at=0, right=1, wrong=60, patterns=None), unknown)]) == (60, 81)
    assert _wrong_inputs([proof_of(first, same), proof_of(ReadTally(81, at=0, right=71, wrong=4))]) == (31, 37)


def test_a_margin_is_the_right_output_less_the_best_other_one() -> None:
    out, one = torch.tensor([[1.0, 3.0, 2.0], [5.0, 1.0, 5.0]]), torch.tensor([[2.0], [-3.0]])
    assert margins(out, torch.tensor([1, 0]), Decision()).tolist() == [1.0, 0.0]
    assert margins(out, torch.tensor([0, 1]), Decision()).tolist() == [-2.0, -4.0]
    assert margins(one, torch.tensor([1, 1]), Decision("sigmoid")).tolist() == [2.0, -3.0]
    assert margins(one, torch.tensor([0, 0]), Decision("sigmoid")).tolist() == [-2.0, 3.0]
