"""Every figure of whole reports, clicked: a point that names a head or an input loads it, and heads are marked."""

import json
import re
from pathlib import Path

import pytest
from browser import Page, find_browser
from report.clicking import click, draw, heard, hover, listen, spots
from report.shipped_reports import CLICKED, whole

pytestmark = [
    pytest.mark.skipif(find_browser() is None, reason="no Chromium: figures are not clicked"),
    pytest.mark.slow,
]

PLAIN = "\n".join(
    [
        "components_by_answer patching_stream circuits_composition",
        "variables_.* embeddings_.* circuits_singular singular_values expressed attention_singular_values",
        "groups_by_size intervention_w0. accuracy_by_distinct attention_blocks attention_by_relation overlaps spectrum",
        "cosine_distribution score_distribution neuron.* hidden_by_count margins cross_entropy_by_length",
        "automaton_.* smallest_logit sensitivity attention_by_position frontier .*kinds.* response.*",
    ]
).split()
"""Figures whose points stand for neither a head nor an input: averages, tokens, layers, directions. What of them is a
head's is clicked all the same."""


@pytest.mark.parametrize("name", CLICKED)
def test_every_clicked_figure_names_what_is_under_the_pointer(page: Page, tmp_path: Path, name: str) -> None:
    page.size(1280, 1400)
    page.errors.clear()
    page.open(whole(name).save(tmp_path / "page.html"))
    listen(page)
    found = []
    for number in range(page.run("document.querySelectorAll('figure .plot').length")):
        plot = f"document.querySelectorAll('figure .plot')[{number}]"
        draw(page, plot)
        key = re.sub("^figure-|-data$", "", page.run(f"{plot}.dataset.source"))
        aims = page.run(f"{plot}.data.map(({{meta, ids}}) => Object.keys(meta || {{}}).concat(ids ? ['ids'] : []))")
        said, words = [], ""
        for spot in [spot for spot in spots(page, plot) if aims[spot["curve"]]][-3:] or spots(page, plot)[-1:]:
            for _ in range(
                8 if aims[spot["curve"]] else 1
            ):  # marks are drawn figure by figure, and a click amid it is lost
                words = hover(page, plot, spot["x"], spot["y"]) or words
                click(page, spot["x"], spot["y"])
                said += (news := heard(page))
                if news or not aims[spot["curve"]]:
                    break
                page.run("new Promise((done) => setTimeout(done, 500))")
        found.append((key, "; ".join(said), words))
    for line in found:
        print("{:26} | click {:50.50} | hover {:60.60}".format(*line))
    assert page.errors == []
    assert page.run("document.querySelector('section.live').dataset.selfTest") == "ok"
    dead = [key for key, said, _ in found if not said and not re.fullmatch("|".join(PLAIN), key)]
    assert not dead
    assert not [key for key, _, words in found if not words]


def test_a_marked_head_is_marked_in_every_figure_that_has_it(page: Page, tmp_path: Path) -> None:
    page.size(1280, 1400)
    page.open(whole("count01/paper").save(tmp_path / "page.html"), "#live=counts:170,175,20;head:0.5")
    marked = (
        "({data, layout}) => (layout.shapes || []).length > 0"
        " || data.some((trace) => trace.opacity === 0.2 || (trace.selectedpoints || []).length > 0)"
    )
    kinds = "({data}) => data.map(({meta}) => meta && (meta.head || meta.heads)).filter(Boolean)"
    tried = 0
    for number in range(page.run("document.querySelectorAll('figure .plot').length")):
        plot = f"document.querySelectorAll('figure .plot')[{number}]"
        draw(page, plot)
        heads = page.run(f"({kinds})({plot})")
        if set(heads) & {"x", "y", "id", "5", "0.5"}:
            assert page.run(f"({marked})({plot})"), page.run(f"{plot}.dataset.source")
            tried += 1
    assert tried >= 12
    page.run(f"document.querySelector('.live').scrollIntoView(); {json.dumps(0)}")
    assert page.run("document.querySelectorAll('.live-marked').length") == 1
