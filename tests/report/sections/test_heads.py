"""Heads and MLPs of strangers' models in one table."""

import pandas as pd
import pytest
from report.sections.standin_report import one_section
from standins import NAMES

from interp.report.sections.heads import describe_attention


@pytest.mark.parametrize("name", [*NAMES, "languages/palindrome-learned"])
@pytest.mark.thinned(2)
def test_every_part_has_its_row(name) -> None:
    study, report = one_section(name, "heads")
    table = report.tables["heads"]
    cfg = study.model.cfg
    assert len(table) == cfg.n_layers * (cfg.n_heads + (not cfg.attn_only))
    assert ("layer" in table) == (cfg.n_layers > 1)
    lowest = table.set_index("part")["accuracy_mean"]
    assert lowest.min() == report.facts["accuracy_without_it"]
    named = report.facts["most_needed_part"]
    assert named == "none" or any(part in named for part in table["part"])
    assert (named == "none") or lowest.idxmin() in named or "such as" in named
    assert set(report.figures) == {"heads_ablated", "heads_look"}


@pytest.mark.parametrize(("entropy", "says"), [(0.5, "as shares)"), (float("nan"), "Without a softmax")])
def test_what_a_head_gives_is_called_a_share_where_it_is_one(entropy, says) -> None:
    assert says in describe_attention(pd.DataFrame({"entropy": [entropy, float("nan")]}))


@pytest.mark.parametrize(
    "name", [pytest.param("histogram/dot-exact", marks=pytest.mark.slow), "algorithmic/max-of-k-exact"]
)
def test_a_model_of_one_part_has_a_paragraph_on_it(name: str) -> None:
    _, report = one_section(name, "heads")
    (said,) = (one.text for one in report.said if one.about == "where")
    assert said.startswith("Measured on ")
    assert "The only part is head 0.0." in said
    assert report.html().split('id="block-where"')[1].count("The only part is head 0.0.") == 1
