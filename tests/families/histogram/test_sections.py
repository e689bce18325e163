"""The report on histogram models: every section, the verdict in words, models of any size."""

import re

import pytest

import interp
from interp.families.histogram.sections.answers import drawn

MODELS = ("lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax")
COUNTING = [
    "accuracy",
    *(f"counting_{part}" for part in ["answers", "attention", "embeddings", "logits", "mechanism", "neurons"]),
]
"""The sections that are tested here; the whole report is asked for once, with its page."""


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.thinned(3)
def test_report_of_each_model(tmp_path, name):
    model = interp.build(f"histogram/{name}-exact", T=5, L=4, zero_class=name == "bos")
    whole = name == "bos"  # the whole report, and its page
    probed = [] if name in ("dot", "bos") else ["counting_probes"]  # raw scores have no fixed sum
    report = interp.analyze(model, **{"out": tmp_path / "report.html"} if whole else {"sections": COUNTING + probed})
    inventory = name in ("lin", "lin-softmax", "dot-softmax")
    assert "inputs of the domain (all 5^4 sequences, every position)." in report.verdict
    kind = f"The counting is {'inventory' if inventory else 'relation'}-based"
    assert any(kind in one.text for one in report.said)  # of a whole report, below the first screen
    assert report.tables["certificate"].set_index("property").loc["status", "value"] == "certified"
    expected = {"confusion", "accuracy_by_count", "accuracy_by_distinct", "conflict", "hidden_by_count",
                "attention_blocks", "attention_by_relation", "overlaps", "cosine_distribution",
                "logits_by_count"}  # fmt: skip
    assert expected <= {*report.figures, *report.in_words}
    assert ("score_distribution" in {**report.figures, **report.in_words}) == (not name.startswith("lin"))
    assert ("probe_three" in {**report.figures, **report.in_words}) == bool(probed)
    wide = report.tables["answers_two_tokens"]
    assert wide.drop(columns="token").to_numpy().tolist() == [[1, 2, 3, 4]] * 3
    assert not whole or (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_an_interval_is_said_in_words(monkeypatch):
    monkeypatch.setattr("interp.certificates.known._all", dict)  # it came with an exact certificate
    report = interp.analyze("histogram/dot-softmax")
    low, high = re.search(
        r"\(all 32\^10 .*\); its accuracy is in the range ([\d.]+) to ([\d.]+\d), from a sample \(confidence 99.9%\)\.",
        report.verdict,
    ).groups()
    assert 0 < float(low) <= float(high) < 1
    rows = report.tables["certificate"].set_index("property")["value"]
    assert rows["accuracy"] == f"{low} to {high}"
    assert set(report.tables["counts"]["count"]) == set(range(1, 11))


def test_the_sampling_of_the_sequences_is_stated():
    published, paper, uniform = (drawn(T, 4, sampler)
                                 for T, sampler in ((5, "published"), (5, "paper"), (3, "paper")))  # fmt: skip
    assert "The published sampler, which this task uses" in published
    assert paper.startswith("sequences in which every count from 1 to 4 is equally frequent")
    assert "published" not in paper
    assert uniform == "sequences of uniform tokens."


@pytest.mark.slow
def test_an_unusual_histogram_model_gets_the_general_report():
    spec = interp.build("histogram/dot-exact", T=5, L=4).spec
    plain = spec.replace(readout="linear", readout_width=None, origin=None, dtype="float32")
    report = interp.analyze(interp.build(plain))
    assert "mechanism" not in report.tables
    assert "\n\nAccuracy " in report.verdict
