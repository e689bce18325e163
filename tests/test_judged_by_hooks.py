"""Claims that are false of a compiled model are found by analyses/shared/judged_by_hooks.py, and true ones hold."""

from dataclasses import replace

import pytest
import torch
from shared.judged_by_hooks import Claim, examine, low_end, verdict
from shared.outside_programs import PROGRAMS

import interp
from interp.models.subject import Subject
from interp.programs.explanations import Explanation
from interp.programs.explanations.findings import ReadsLess
from interp.programs.steps import Head, Table


@pytest.fixture(scope="module")
def known() -> tuple[Subject, Explanation, torch.Tensor]:
    model = interp.compile(PROGRAMS["bigram"](), decoys=1, dead=8, rotate=1)
    tokens = torch.cat([batch.tokens for batch in model.task.inputs()])[::7]
    return Subject.of(model), interp.explain(model), tokens


def false(found: Explanation, subject: Subject, tokens: torch.Tensor) -> set[tuple[str, str]]:
    claims: list[Claim] = examine(found, subject, tokens)
    assert (verdict(found, claims) == "misleading") == any(one.holds is False for one in claims)
    return {(one.part, one.kind) for one in claims if one.holds is False}


def with_step(found: Explanation, step: Head | Table) -> Explanation:
    assert found.program is not None
    steps = tuple(step if one.name == step.name else one for one in found.program.steps)
    return replace(found, program=replace(found.program, steps=steps))


@pytest.mark.slow
def test_true_claims_hold(known: tuple[Subject, Explanation, torch.Tensor]) -> None:
    subject, found, tokens = known
    assert not false(found, subject, tokens)


def test_an_input_too_many_is_found(known: tuple[Subject, Explanation, torch.Tensor]) -> None:
    subject, found, tokens = known
    table = found.program.step("MLP 0")
    assert isinstance(table, Table)
    entries = tuple(entry for entry in table.entries for _ in range(found.program.length))
    more = replace(table, of=(*table.of, "position"), entries=entries)
    wider = with_step(found, more)
    assert false(wider, subject, tokens) == {("MLP 0", "reads (in)")}
    rare = replace(wider, less=(ReadsLess("MLP 0", "in", ("position",), 1.0),))
    assert not false(rare, subject, tokens)
    head = replace(found, less=(ReadsLess("MLP 0", "in", ("head 0.0",), 1.0),))
    assert false(head, subject, tokens) == {("MLP 0", "reads for next to no answer (in)")}


def test_an_input_too_few_and_other_attention_are_found(known: tuple[Subject, Explanation, torch.Tensor]) -> None:
    subject, found, tokens = known
    head = found.program.step("head 0.0")
    assert isinstance(head, Head)
    even = replace(head, query="", key="", scores=((0.0,),))
    said = false(with_step(found, even), subject, tokens)
    assert {("head 0.0", "reads nothing else"), ("head 0.0", "attention"), ("", "answers")} <= said
    assert ("head 0.0", "interchange (changes)") in said


def test_a_used_part_that_is_said_not_to_be_is_found(known: tuple[Subject, Explanation, torch.Tensor]) -> None:
    subject, found, tokens = known
    parts = tuple(replace(one, status="not used") if one.part == "head 0.0" else one for one in found.parts)
    assert any(kind == "not used" for _, kind in false(replace(found, parts=parts), subject, tokens))


def test_the_lower_end_is_wilsons() -> None:
    assert abs(low_end(0.8966, 29) - 0.7361) < 1e-3  # 26 of 29: 0.7361 to 0.9642
