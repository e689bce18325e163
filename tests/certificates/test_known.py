"""Certificates that came with interp are read for just the weights that they are about."""

import json
from dataclasses import fields, replace
from typing import Any

import pandas as pd
import pytest
import torch

import interp
from interp.certificates import known as record
from interp.certificates.certificate import Certificate
from interp.certificates.known import NOT_KEPT, find_known, from_plain, key_of, to_plain
from interp.errors import UnsupportedError
from interp.report.sections.accuracy import ON_RECORD, certificate_sentence

NAME = "histogram/dot-exact"
SIZES: dict[str, Any] = {"T": 4, "L": 3}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Certificate:
    """The certificate of a small model, as if it had come with interp."""
    model = interp.build(NAME, **SIZES)
    made = interp.certify(model)
    monkeypatch.setattr(record, "_all", lambda: {key_of(model): to_plain(made)})
    return made


def test_the_same_weights_get_it_and_it_says_so(found: Certificate) -> None:
    read = find_known(interp.build(NAME, **SIZES))
    assert read is not None
    for one in fields(found):
        if one.name not in (*NOT_KEPT, "tables", "probed"):
            assert getattr(read, one.name) == getattr(found, one.name), one.name
    for name, table in found.tables.items():
        pd.testing.assert_frame_equal(read.tables[name], table.reset_index(drop=True), check_dtype=False)
    assert certificate_sentence(read) == f"{certificate_sentence(found)} {ON_RECORD}"
    assert read.probed > 0
    assert read.source is not None
    assert (read.source.method, read.source.options) == (found.source.method, found.source.options)


def test_other_weights_sizes_and_formats_do_not(found: Certificate) -> None:
    changed = interp.build(NAME, **SIZES)
    with torch.no_grad():
        next(changed.parameters()).view(-1)[0] += 1e-6
    assert find_known(changed) is None
    assert find_known(interp.build(NAME, T=5, L=3)) is None
    assert find_known(interp.build(NAME, **SIZES, dtype="float32")) is None


def test_another_precision_does_not(found: Certificate) -> None:
    model = interp.build(NAME, **SIZES)
    with torch.autocast("cpu"):
        assert find_known(model) is None
    assert find_known(model) is not None


@pytest.mark.slow
def test_every_shipped_certificate_is_read() -> None:
    """Also those of models whose strings have more symbols than a 64-bit number has digits."""
    table = interp.list_models()
    models = [interp.load(name) for name, seeds in zip(table["name"], table["seeds"]) if seeds]
    read = {key_of(model): find_known(model) for model in models}
    assert all(read[key].probed > 0 for key in record._all())


def test_a_hooked_model_is_refused(found: Certificate) -> None:
    model = interp.build(NAME, **SIZES)
    model.add_perma_hook("blocks.0.attn.hook_z", lambda value, hook: value * 0)
    with pytest.raises(UnsupportedError, match="there is a hook at"):
        find_known(model)


def test_a_report_reads_it(found: Certificate) -> None:
    report = interp.analyze(interp.build(NAME, **SIZES), sections=["accuracy"], inputs=50)
    assert ON_RECORD in report.html()
    assert report.facts["certificate"] == "certified"


def test_tables_keep_their_numbers() -> None:
    """Also those that are not finite, which JSON has no word for."""
    table = pd.DataFrame(
        {"n": [1, 2], "bound": [0.1, float("inf")], "margin": [float("nan"), -1e-300], "at": ["a", None]}
    )
    made = replace(interp.certify(interp.build(NAME, **SIZES)), tables={"t": table})
    read = from_plain(json.loads(json.dumps(to_plain(made)))).tables["t"]
    pd.testing.assert_frame_equal(read, table)


def test_what_is_read_is_no_longer_about_a_model_in_memory(found: Certificate) -> None:
    assert from_plain(to_plain(replace(found, on_record=True))).source is None
