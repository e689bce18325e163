"""Sequences that are tried: only one at which the model itself errs is a counterexample."""

from __future__ import annotations

import numpy as np

import interp
from interp.families.histogram.certificates import certify as histogram
from interp.families.histogram.certificates.certify import check
from interp.families.histogram.certificates.tables import tables_of


def test_wrong_tables_do_not_refute_a_right_model() -> None:
    model = interp.build("histogram/dot-exact", T=4, L=3)
    tables, slack = tables_of(model), np.zeros((4, 3, model.spec.n_out or 3))
    assert check(model, tables, [0, 1, 1], 0, slack) is None
    tables.lead_bias[:] -= 1e6
    assert check(model, tables, [0, 1, 1], 0, slack) is None


def test_an_answer_wrong_in_tables_and_model_is_a_counterexample() -> None:
    model = interp.build("histogram/dot-exact", T=4, L=3)
    model.unembed.b_out.data[0] -= 1e6  # never "once"
    found = check(model, tables_of(model), [0, 1, 1], 0, np.zeros((4, 3, model.spec.n_out or 3)))
    assert found is not None
    assert "occurs once, right is 1, the model says 2" in found.text


def test_the_first_of_equal_tokens_is_named() -> None:
    """Their answers are equal but for rounding, which differs between CPUs."""
    model = interp.build("histogram/dot-exact", T=4, L=3)
    model.unembed.b_out.data[1] -= 1e6  # never "twice"
    tables, slack = tables_of(model), np.zeros((4, 3, model.spec.n_out or 3))
    texts = {found.text for at in (0, 2) if (found := check(model, tables, [1, 0, 1], at, slack)) is not None}
    assert len(texts) == 1
    assert "at position 0 occurs 2 times" in texts.pop()


def test_suspects_do_not_crowd_out_known_errors() -> None:
    """A hundred right sequences with bounds far below the margin of the one that errs."""
    model = interp.build("histogram/dot-exact", T=4, L=3)
    model.unembed.b_out.data[0] -= 1e6
    tables, slack = tables_of(model), np.zeros((4, 3, model.spec.n_out or 3))
    part = histogram._root(tables, 0, slack, slack)
    part.ledger.candidates = [(-1e9, [0, 0, 0], 0)] * 100
    found = histogram._refute(model, tables, [part], slack, [(-1e6, [0, 1, 1], 0)])
    assert found is not None
    assert found.sequence == [0, 1, 1]
    assert histogram._refute(model, tables, [part], slack, []) is None
