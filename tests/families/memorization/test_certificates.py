"""Certificates of memorization models against a forward in exact decimals and a table counted by hand."""

from dataclasses import replace
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from drawn_weights import set_to_zero

import interp
from interp.certificates import method_for
from interp.certificates.certificate import registered_methods
from interp.errors import InterpError, UnsupportedError
from interp.families.memorization import bigram, kgram, lookup, table
from interp.families.memorization.certificates import certify_table, last_logits_with_bound
from interp.families.memorization.constructions.models import memorization_spec

LOOKUP = lookup(N=6, M=6, noise=0.05)


def precise(model: interp.TaskModel, tokens: list[int]) -> list[mpmath.mpf]:
    """Logits at the last token in 50 digits, written out number by number."""
    W = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
    d, n = model.cfg.d_model, len(tokens)
    m = lambda array: mpmath.matrix(array.tolist())  # noqa: E731
    stream = [m(W["embed.W_E"][t][None]) for t in tokens]
    seen = [stream[j] + m(W["blocks.0.attn.W_pos"][j][None]) for j in range(n)]
    out = stream[-1].copy()
    for head in range(model.cfg.n_heads):
        query = seen[-1] * m(W["blocks.0.attn.W_Q"][head])
        scores = [(query * key.T)[0] / mpmath.sqrt(d) for key in seen]
        raised = [mpmath.exp(s) for s in scores]
        mixed = sum((r / sum(raised) * x for r, x in zip(raised, seen)), mpmath.zeros(1, d))
        out += mixed * m(W["blocks.0.attn.W_O"][head])
    if "blocks.0.mlp.W_in" in W:
        hidden = out * m(W["blocks.0.mlp.W_in"]) + m(W["blocks.0.mlp.b_in"][None])
        hidden = hidden.apply(lambda x: max(x, 0))
        out = out + hidden * m(W["blocks.0.mlp.W_out"]) + m(W["blocks.0.mlp.b_out"][None])
    return list(out * m(W["unembed.W_U"]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["attention", "mlp"])
def test_the_bound_holds_the_model_and_the_truth(dtype: str, kind: str) -> None:
    mpmath.mp.dps = 50
    spec = memorization_spec(LOOKUP, 3, 4 if kind == "attention" else 1, d_mlp=0 if kind == "attention" else 7)
    model = interp.build(spec.replace(dtype=dtype, origin=interp.models.spec.Training(init="torch")), seed=2)
    tokens = LOOKUP.all_contexts().tokens
    value, bound = last_logits_with_bound(model, tokens)
    own = model(tokens)[:, -1].detach().double()
    truth = np.array([[float(x) for x in precise(model, row)] for row in tokens.tolist()])
    assert (np.abs(value.numpy() - truth) <= bound.numpy()).all()
    assert (np.abs(own.numpy() - truth) <= bound.numpy()).all()
    assert bound.max() < (1e-3 if dtype == "float32" else 1e-12)


def test_errors_are_counted_and_shown() -> None:
    model = interp.build("memorization/theorem1", table=LOOKUP, d_model=2)
    found = interp.certify(model)
    logits = model(LOOKUP.all_contexts().tokens)[:, -1].detach().numpy()
    wrong = [c for c, row, pi in zip(LOOKUP.contexts, logits, LOOKUP.conditional) if row.argmax() != pi.argmax()]
    assert found.status == "refuted"
    assert found.n_errors == len(wrong) > 0
    assert tuple(LOOKUP.parse(found.counterexample)) in wrong
    assert found.accuracy == pytest.approx(1 - len(wrong) / 36)
    q = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    kl = float(LOOKUP.prior @ (LOOKUP.conditional * np.log(LOOKUP.conditional / q)).sum(1))
    row = found.tables["divergence"].iloc[0]
    assert row["kl"] == pytest.approx(kl, abs=1e-10)
    assert row["cross_entropy"] == pytest.approx(float(-LOOKUP.prior @ (LOOKUP.conditional * np.log(q)).sum(1)))
    assert list(found.tables["contexts"]["right"]) == [tuple(c) not in wrong for c in LOOKUP.contexts]


def test_a_margin_may_lose_the_bounds_of_two_logits() -> None:
    model = interp.build(memorization_spec(LOOKUP, 3, 1, dtype="float32"), seed=2)
    found, bound = interp.certify(model), last_logits_with_bound(model, LOOKUP.all_contexts().tokens)[1]
    row = found.tables["contexts"]["margin"].to_numpy().argmin()
    assert found.rounding == pytest.approx(2 * float(bound[row].max()))


def test_a_model_that_is_right_everywhere() -> None:
    model = interp.build("memorization/theorem1", table=kgram(N=4, M=4, k=2, concentration=1.0), d_model=3)
    found = interp.certify(model, max_kl=1e-6)
    assert (found.status, found.accuracy, found.n_errors, found.n_inputs) == ("certified", 1.0, 0, 16)
    assert found.worst_margin > found.rounding > 0
    with torch.no_grad():
        model.unembed.W_U *= 1.1  # the same answers, a worse distribution
    assert interp.certify(model).status == "certified"
    worse = interp.certify(model, max_kl=1e-6)
    assert (worse.status, worse.n_errors) == ("refuted", 0)
    assert "at most 1e-06 nats" in worse.notes[-1]


def test_contexts_that_never_occur_do_not_count() -> None:
    rows = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])
    model = interp.build("memorization/theorem1", table=table(rows, [0.5, 0.5, 0.0]), d_model=1)
    with torch.no_grad():
        model.embed.W_E[2] *= -1
    found = interp.certify(model)
    assert (found.status, found.n_inputs) == ("certified", 2)
    with torch.no_grad():
        model.embed.W_E[1] *= -1
    assert (interp.certify(model).counterexample, interp.certify(model).accuracy) == ("1", 0.5)


def test_ties_are_undecided_and_equally_likely_tokens_right() -> None:
    even = table(np.array([[0.5, 0.5, 0.0], [0.1, 0.1, 0.8]]))
    model = interp.build(memorization_spec(even, 2, 1, dtype="float64").replace(task=bigram(N=2, M=3).ref))
    twin = interp.TaskModel(model.spec.replace(task=even.ref), even, dict(model.named_parameters()))
    set_to_zero(twin)
    tied = interp.certify(twin)
    assert tied.status == "undecided"
    assert tied.accuracy == (0.0, 1.0)
    assert not tied.tables["contexts"]["right"].any()  # at margin 0 nothing is right
    with torch.no_grad():
        twin.embed.W_E[:, 0] = torch.tensor([-1.0, 1.0])
        twin.unembed.W_U[0] = torch.tensor([0.0, 0.0, 1.0])  # the first two outputs are always tied
    assert interp.certify(twin).status == "certified"


def test_longer_inputs_are_all_run() -> None:
    task = kgram(N=3, M=3, k=2, seed=1)
    model = interp.build("memorization/corollary2", table=task, length=4, rank=2)
    found = interp.certify(model)
    assert found.n_inputs == 9 + 27 + 81
    assert found.status == "certified"
    assert interp.certify(model, longest=3).n_inputs == 9 + 27
    with torch.no_grad():  # now the last position looks at the first token, too
        model.blocks[0].attn.W_Q[:, 6, 3] = model.blocks[0].attn.W_Q[:, 6, 6]
    broken = interp.certify(model)
    assert broken.status == "refuted"
    assert len(task.parse(broken.counterexample)) == 4
    for tokens in product(range(3), repeat=4):
        if tokens == tuple(task.parse(broken.counterexample)):
            answer = int(model(torch.tensor([tokens]))[0, -1].argmax())
            assert answer != int(task.targets[task.context_index(torch.tensor([tokens]))])
    with pytest.raises(InterpError, match="longest = 9"):
        interp.certify(model, longest=9)


@pytest.mark.parametrize("change", [{"norm": "pre"}, {"normalizer": "none"}])
def test_refusals(change: dict[str, str]) -> None:
    spec = memorization_spec(LOOKUP, 3, 2)
    model = interp.build(spec.replace(layers=(spec.layers[0].model_copy(update=change),)))
    ((name, value),) = change.items()
    assert f"{name} = {value!r}" in (registered_methods()["every context of the table"].refusal(model) or "")
    assert method_for(model).name == "every input, as run"
    with pytest.raises(UnsupportedError, match="cannot be certified: occurrences of every token"):
        method_for(interp.build(interp.ModelSpec(task={"name": "histogram"}, d_model=2, layers=({"d_head": 2},))))


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"batch": "one label"}, "labels '7 7' [0-9]+, which is not a most likely next token of its table"),
    ({"prior": lambda task: task.table.prior * 3}, "sum"),
    ({"conditional": lambda task: task.table.conditional * 2}, "sum"),
    ({"contexts": lambda task: (task.table.contexts[0],) * len(task.table.contexts)}, "must all be different"),
])  # fmt: skip
def test_a_missing_table_and_foreign_labels_are_refused(changes: dict[str, Any], sentence: str) -> None:
    """One label of 400 was certified, because its margin was none of the smallest."""
    model = interp.load("memorization/lookup")
    kind = type(model.task)

    def batch(self: Any, tokens: torch.Tensor) -> interp.Batch:
        found = kind.batch(self, tokens)
        seven = (tokens == 7).all(1)
        return replace(found, labels=torch.where(seven, (found.labels + 1) % self.n_out, found.labels))

    members = {name: batch if name == "batch" else property(value) for name, value in changes.items()}
    model.task.__class__ = type("Other", (kind,), members)
    with pytest.raises(InterpError, match=sentence):
        certify_table(model)
