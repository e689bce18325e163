"""A section has the number that its measure gives by default: all of docs/measures_and_reports.md, for five models."""

import re
from pathlib import Path

import pandas as pd
import pytest
from standins import standin

import interp
from interp.models.subject import Subject

PAGE = Path(__file__).parents[2] / "docs" / "measures_and_reports.md"
SECTIONS = ["accuracy", "components", "heads", "attention", "patching", "variables", "circuits", "explanation"]


def study(name: str) -> Subject:
    return standin(name) if name in ("recall", "ends", "balance") else Subject.of(interp.load(name))


def same(theirs: pd.DataFrame, ours: pd.DataFrame, key: str | list[str], columns: list[str]) -> None:
    """Compare columns of two tables, row by row of a key."""
    theirs, ours = (
        table.astype(dict.fromkeys([key] if isinstance(key, str) else key, str)) for table in (theirs, ours)
    )
    both = theirs.merge(ours, on=key, suffixes=("_report", "_measure"))
    assert len(both) == len(theirs) > 0
    assert {f"{name}_measure" for name in columns} & {*both.columns}
    for column in [name for name in columns if f"{name}_report" in both]:  # a report leaves out columns without numbers
        report, measure = (both[f"{column}_{side}"].to_numpy(float) for side in ("report", "measure"))
        assert report == pytest.approx(measure, abs=1e-5, nan_ok=True), column


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recall", "ends", "balance", "languages/parity", "algorithmic/max-of-k"])
def test_a_section_and_its_measure_give_the_same_number(name: str) -> None:
    model = study(name)
    known = set(interp.analyze(model, sections=["question"]).sections.query("status == 'applies'")["section"])
    wanted = known if name == "balance" else known - {"explanation"}  # a search takes longer than all the rest
    report = interp.analyze(model, sections=[one for one in SECTIONS if one in wanted])
    tables = report.tables
    if "certificate" in tables:
        assert interp.certify(model).status == report.facts["certificate"]
    else:
        same(tables["accuracy"], interp.accuracy(model).to_frame(), "exact", ["accuracy", "low", "high", "rows"])
    if "components" in tables:
        found = interp.direct_logit_attribution(model).to_frame()
        same(tables["components"], found, "component", ["effect", "spread", "negative"])
    heads = tables["heads"]
    for mode in ("mean", "zero", "resample"):
        found = interp.ablate(model, heads["part"].tolist(), mode=mode).to_frame()
        found["part"] = [parts[0] if parts else "none" for parts in found["parts"]]
        renamed = heads.rename(columns={f"{what}_{mode}": what for what in ("accuracy", "loss")})
        same(renamed[["part", "accuracy", "loss"]], found, "part", ["accuracy", "loss"])
    if "attention_at_reads" in tables:
        found = interp.head_types(model, at="read").to_frame()
        found["part"] = [f"head {layer}.{head}" for layer, head in zip(found["layer"], found["head"])]
        same(tables["attention_at_reads"], found, "part", ["self", "entropy", "previous_token"])
    if "patching" in tables:
        found = interp.activation_patching(model).parts.rename(columns={"site": "part"})
        same(tables["patching"], found, "part", ["recovered", "flipped"])
    if "variables" in tables:
        found = interp.probe(model).to_frame()
        columns = ["probe", "half", "fitted", "interchange", "along_probe"]
        same(tables["variables"], found, ["feature", "layer", "position"], columns)
    if "circuits_composition" in tables:
        found = interp.composition_scores(model).to_frame()
        same(tables["circuits_composition"], found, ["writer", "reader"], ["Q", "K", "V"])
    values = interp.singular_values(model).to_frame().query("index == 0 and circuit == 'OV'")
    found = pd.DataFrame({"head": [f"{a}.{b}" for a, b in zip(values["layer"], values["head"])]})
    same(tables["circuits"], found.assign(OV_largest=values["value"].to_numpy()), "head", ["OV_largest"])
    if "explanation" in wanted:
        assert interp.explain(model).level == report.facts["explanation_level"]


def test_the_page_names_sections_and_calls_that_exist() -> None:
    """And every row of its table is a call that the test above makes."""
    text = PAGE.read_text("utf-8")
    assert all(hasattr(interp, name) for name in re.findall(r"`interp\.(\w+)", text))
    rows = re.findall(r"^\| `interp\.(\w+).*? \| (\w+)", text, re.MULTILINE)
    assert {section for _, section in rows} <= {*SECTIONS}
    tested = Path(__file__).read_text("utf-8")
    assert len(rows) == 10
    assert all(f"interp.{name}(" in tested for name, _ in rows)
    assert len(re.findall(r"^\| [^|`]+ \| `interp", text, re.MULTILINE)) == 23
