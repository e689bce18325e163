"""The report on recognizers of formal languages: every section, the verdict in words, exact and learned models."""

import pytest

import interp
from interp.families.languages import Dyck1, One
from interp.families.languages.constructions.learned import learned_spec
from interp.families.languages.sections import is_exact
from interp.models.subject import Subject
from interp.report.sections.base import Study

COMMON = {"accuracy_by_length", "cross_entropy_by_length", "errors_by_length", "smallest_logit",
          "attention_from_answer", "attention_by_symbol", "sensitivity"}  # fmt: skip
STRINGS = ["accuracy", *(f"string_{part}" for part in ["attention", "components", "lengths", "sensitivity"])]
"""The sections that are tested here; the whole report is asked for once, with its page."""


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param("first", None, marks=pytest.mark.slow),
        ("one", None),
        pytest.param("palindrome", "binary", marks=pytest.mark.slow),
        pytest.param("palindrome", "mirror", marks=pytest.mark.slow),
    ],
)
def test_report_of_exact_models(tmp_path, name, variant):
    model = interp.build(f"languages/{name}", variant=variant)
    whole, value = name == "first", [] if variant == "mirror" else ["string_value"]
    report = interp.analyze(model, **{"out": tmp_path / "report.html"} if whole else {"sections": STRINGS + value})
    assert "Proved right on all of the " in report.verdict
    assert "(every string of 1 to " in report.verdict
    assert {*report.figures, *report.in_words} >= COMMON | {"margins"}
    assert ("value_against_proof" in {**report.figures, **report.in_words}) == bool(value)
    certificate = report.tables["certificate"]
    assert dict(zip(certificate["property"], certificate["value"]))["status"] == "certified"
    curve = report.tables["by_length"]
    assert set(curve["dtype"]) == {"float64", "float32", "float16", "bfloat16"}
    within = curve[(curve["dtype"] == "float64") & (curve["length"] <= 60)]
    assert within[["false_accepts", "false_rejects"]].to_numpy().sum() == 0
    steep = report.tables["sensitivity"]
    if name == "one":
        assert steep["max_change_times_n"].tolist() == pytest.approx([1.0] * len(steep))
    words = set(report.tables["string_components"]["source"]) | set(report.tables["string_components"]["target"])
    assert words <= set(interp.models.constructions.construct(f"languages/{name}", variant).weights.directions)
    assert not whole or (tmp_path / "report.html").stat().st_size > 10_000


def test_only_a_construction_is_exact():
    trained = interp.build(learned_spec(One(length=6), "first"))
    for model, exact in ((interp.build("languages/one"), True), (trained, False)):
        assert is_exact(Study(Subject.of(model))) is exact


@pytest.mark.slow
def test_report_of_a_wrong_model_names_both_kinds_of_errors():
    """A palindrome model far beyond what its number format can hold."""
    model = interp.build("languages/palindrome", dtype="float32")
    report = interp.analyze(model, sections=["accuracy", "string_lengths"])
    assert "false accept" in report.verdict
    late = report.tables["by_length"].query("dtype == 'float32' and length == 400").iloc[0]
    assert late["accuracy"] < 0.9


@pytest.mark.slow
def test_reports_of_learned_models_side_by_side():
    specs = [learned_spec(One(length=12), "first", log_length="current"), learned_spec(Dyck1(length=8), "fraction")]
    models = [interp.build(spec, seed=1) for spec in specs]
    report = interp.analyze(models)
    table = report.tables["comparison"]
    assert table["exact"].tolist() == [True, True]  # every string up to a length
    assert all(0 < value < 1 for value in table["accuracy"])
    assert len([key for key in (*report.figures, *report.in_words) if key.endswith("components_QK")]) == 2
    assert not any(key.endswith("value_against_proof") for key in report.figures)
    assert table["accuracy"][0] == interp.certify(models[0]).accuracy


@pytest.mark.slow
def test_a_model_without_a_scalar_gets_the_general_report():
    plain = learned_spec(One(length=6), "first").replace(
        readout="linear", decision="argmax", n_out=2, readout_at="[CLS]", origin=None
    )
    report = interp.analyze(interp.build(plain))
    assert "by_length" not in report.tables
    assert "\n\nAccuracy " in report.verdict
