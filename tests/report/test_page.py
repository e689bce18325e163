import html
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest

from interp.errors import InterpError
from interp.report import Report, render
from interp.report.page import Named
from interp.support import figures

HOSTILE = """</script><script>alert(1)</script><img src="http://evil.example/x" onerror=alert(2)>{{7*7}}'"&"""


class Tags(HTMLParser):
    """All elements of a page with their attributes, and the text outside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags[-1:] and self.tags[-1][0] not in ("script", "style"):
            self.words.append(data)

    def count(self, tag):
        return sum(name == tag for name, _ in self.tags)


def small_report(word="heads"):
    report = Report(word, word, {word: word})
    report.verdict = word
    report.heading(word, word)
    report.add_table("t", pd.DataFrame({word: [word, (word, 1)]}), word)
    frame = pd.DataFrame({word: [1.0, 2.0], "y": [1.0, 2.0], "who": [word, "b"]})
    figure = figures.lines(frame, word, "y", color="who")
    figure.update_layout(title=word)
    report.add_figure("f", figure, word)
    other = Report(word, word, {word: word})
    other.verdict = word
    other.add_figure(word, figure, word)
    report.attach(other, word)
    return report


def test_hostile_words_change_no_tag():
    tame, hostile = Tags(small_report().html()), Tags(small_report(HOSTILE).html())
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in tame.tags]
    assert [list(attributes) for _, attributes in hostile.tags] == [list(attributes) for _, attributes in tame.tags]
    # Title, subtitle, verdict, metadata, section, text, contents, cells and captions all show it as it is.
    assert "".join(hostile.words).count(HOSTILE) >= 15


def test_every_id_is_given_once_and_every_link_leads_to_one():
    report = small_report(HOSTILE)
    report.heading(HOSTILE)
    tags = Tags(report.html()).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for tag, attributes in tags if tag == "a"]
    assert len(links) == 3 + 3 + 3  # contents; an anchor for each section, table and figure
    assert all(link[0] == "#" and link[1:] in ids for link in links)


def test_an_unknown_name_is_told_from_those_that_are_known():
    with pytest.raises(InterpError, match=r"unknown figure 'patchin'.*known: patching, heads.*did you mean 'patching'"):
        Named("figure", {"patching": 1, "heads": 2})["patchin"]
    with pytest.raises(InterpError, match=r"unknown figure 'patchin'.*known: none"):
        Named("figure")["patchin"]


@pytest.mark.slow
def test_the_page_is_small_and_holds_plotly_once(report):
    text = report.html()
    assert len(text.encode()) < 3_000_000
    assert text.count("H4sI") == 1  # the first bytes of gzip in base64
    assert Tags(text).count("script") == len(report.figures) + len(report.tables) + 3  # settings, plotly, own


def test_nothing_is_loaded_from_anywhere(report):
    text = report.html()
    for _, attributes in Tags(text).tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert name not in attributes or (attributes[name] or "").startswith("#")
    assert not re.search(r"url\(|@import", text)
    assert not re.search(r"https?://", text)
    policy = next(a["content"] for _, a in Tags(text).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    script_sources = policy.split(";")[1].split()
    assert "'unsafe-inline'" not in script_sources
    assert "'unsafe-eval'" not in script_sources


def test_the_policy_has_the_hashes_of_both_scripts(report):
    import base64
    import gzip
    import hashlib

    text = report.html()
    own = text.rsplit("<script>", 1)[1].split("</script>", 1)[0]
    packed = re.search(r'<script type="text/plain" id="plotly">([^<]*)</script>', text).group(1)
    plotly = gzip.decompress(base64.b64decode(packed)).decode()
    for source in (own, plotly):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"&#39;sha256-{digest}&#39;" in text


def test_equal_reports_give_equal_pages(monkeypatch):
    first = small_report().html()
    render._plotly.cache_clear()
    monkeypatch.setattr("time.time", lambda: 1e9)  # another run, at another time
    assert small_report().html() == first


def test_text_and_tables_can_be_read_without_scripts():
    words = "".join(Tags(small_report().html()).words)
    assert "The figures need JavaScript" in words
    assert "(heads, 1)" in words


def test_a_page_without_figures_carries_no_plotly():
    report = Report("t")
    report.add_text("one\n\ntwo")
    text = report.html()
    assert len(text) < 30_000
    assert "<p>one</p>\n<p>two</p>" in text


def test_a_long_table_says_what_it_leaves_out():
    report = Report("t")
    report.add_table("long", pd.DataFrame({"n": range(50)}), "Numbers.", max_rows=3)
    text = report.html()
    assert "The first 3 of 50 rows." in text
    seen, rest = text.split('<tbody class="rest" hidden>')
    assert (seen.count("<tr>"), rest.count("<tr>")) == (4, 47)  # the rest is there, and shown on request
    assert len(report.tables["long"]) == 50


def test_a_table_is_the_one_that_was_added():
    frame = pd.DataFrame({"n": [1]})
    report = Report("t")
    report.add_table("n", frame, "")
    frame["n"] = 2
    assert report.tables["n"]["n"].tolist() == [1]


def test_a_column_left_off_the_page_may_have_a_format():
    report = Report("title")
    report.add_table("parts", pd.DataFrame({"part": ["a", "b"], "kept": [None, None]}), "Parts", {"kept": ".2f"})
    assert "kept" in report.tables["parts"]
    assert "kept" not in report.html().split("<table")[1].split("</thead")[0]
    with pytest.raises(InterpError, match="unknown column"):
        report.add_table("more", pd.DataFrame({"part": ["a"]}), "More", {"share": ".2f"})


def test_keys_are_refused_when_taken():
    report = small_report()
    with pytest.raises(InterpError, match="already has a table 't'"):
        report.add_table("t", pd.DataFrame({"a": [1]}), "")
    with pytest.raises(InterpError, match="already has a figure 'f'"):
        report.add_figure("f", go.Figure(), "")
    report.add_table("f", pd.DataFrame({"a": [1]}), "a table may share a figure's key")


def test_a_format_that_does_not_fit_is_refused():
    report = Report("t")
    with pytest.raises(InterpError, match=r"format '\.3q' does not fit the column 'a'"):
        report.add_table("t", pd.DataFrame({"a": [1]}), "", formats={"a": ".3q"})
    assert not report.items
    assert not report.tables


def test_attach_prefixes_keys_and_keeps_the_order():
    whole, part = Report("all"), Report("seed-1", "sub", {"seed": "1"})
    whole.heading("Comparison")
    part.verdict = "right"
    part.heading("Heads")
    part.add_table("heads", pd.DataFrame({"a": [1]}), "caption")
    whole.attach(part, "seed-1")
    assert list(whole.tables) == ["seed-1/heads"]
    words = [word.strip() for word in Tags(whole.html()).words if word.strip()]
    start = words.index("Comparison", words.index("Contents") + 2)
    assert [word for word in words[start:] if word != "#"][:7] == [
        "Comparison", "seed-1", "sub", "right", "seed", "1", "Heads",
    ]  # fmt: skip
    with pytest.raises(InterpError, match="already has a table 'seed-1/heads'"):
        whole.attach(part, "seed-1")
    with pytest.raises(InterpError, match="cannot be attached to itself"):
        whole.attach(whole, "again")


def test_save_writes_the_page(tmp_path):
    path = small_report().save(tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == small_report().html()
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_saved_page_takes_the_place_of_the_old_one_in_one_step(tmp_path):
    path, old = tmp_path / "report.html", tmp_path / "still-open.html"
    path.write_text("old")
    os.link(path, old)
    Report("t").save(path)
    assert old.read_text() == "old"  # not written into, as a reader of the old page would notice
    assert "<title>t</title>" in path.read_text()


def test_save_refuses_places_it_cannot_write_to(tmp_path):
    report = Report("t")
    with pytest.raises(InterpError, match=r"the folder .*missing does not exist"):
        report.save(tmp_path / "missing" / "report.html")
    with pytest.raises(InterpError, match="it is a folder"):
        report.save(tmp_path)
    if Path("/proc").is_dir():  # a folder that takes no files, not even root's
        with pytest.raises(InterpError, match=r"cannot write /proc/report\.html"):
            report.save("/proc/report.html")


def test_a_failed_save_leaves_the_old_page_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InterpError, match="No space left on device"):
        Report("t").save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_notebook_gets_one_frame():
    report = small_report(HOSTILE)
    cell = Tags(report._repr_html_())
    assert [tag for tag, _ in cell.tags] == ["iframe"]
    attributes = cell.tags[0][1]
    assert attributes["srcdoc"] == report.html()
    assert "allow-same-origin" not in attributes["sandbox"]
    assert "box-sizing:border-box" in attributes["style"]  # else the cell scrolls sideways
    assert html.escape(HOSTILE) in report._repr_html_()


def test_headings_have_no_gaps():
    whole, part = Report("all"), Report("seed-1")
    whole.heading("Comparison")
    part.heading("Heads")
    assert re.findall("<h([1-6])", part.html()) == ["1", "2"]  # title, section
    whole.attach(part, "seed-1")
    assert re.findall("<h([1-6])", whole.html()) == ["1", "2", "2", "3"]


def test_a_word_is_explained_where_it_first_stands():
    report = Report("t")
    report.heading("One", "s-acc and s-acc; s-accx and not-s-acc.")
    report.add_text("s-acc once more, and <b>l-acc</b>")
    report.heading("Two", "s-acc")
    text = report.html()
    assert text.count('popovertarget="note-s-acc"') == 2  # once a section
    assert text.count('<div popover id="note-s-acc"') == 1
    assert "&lt;b&gt;<button" in text
    assert "note-ROC" not in text


def test_a_table_travels_as_csv_that_ends_no_script():
    report = Report("t")
    report.add_table("t", pd.DataFrame({"a": ["</script><b>", "1,5"]}), "")
    block = re.search(r'<script type="application/json" id="table-t-csv">(.*?)</script>', report.html()).group(1)
    assert json.loads(block) == 'a\n</script><b>\n"1,5"\n'


def test_the_first_screen_names_the_subject_of_each_sentence(frames):
    report = Report("t")
    report.mark = "refuted"
    report.say("It is wrong.", "proof")
    report.say("By heads.", "how", ["nowhere", "pairs"])
    report.say("Add.", "task")
    report.add_figure("pairs", figures.heads_heatmap(frames["groups"], "s_acc"), "Pairs.")
    said = report.html().split('<section class="verdict"')[1].split("</section>")[0]
    labels = re.findall(r'<p class="label">(.*?)</p>', said)
    assert labels == ["The task", "How", "Is it proved?"]
    assert said.index("Proved wrong; a counterexample") > said.index("By heads.")
    assert re.findall(r'data-source="(.*?)"', said) == ["figure-pairs-data"]
    assert 'aria-hidden="true"' in said
    whole = Report("both")
    whole.attach(report, prefix="a")
    said = whole.html().split('<section class="verdict"')[1].split("</section>")[0]
    assert re.findall(r'data-source="(.*?)"', said) == ["figure-a-pairs-data"]
    assert "Proved wrong; a counterexample" in said


def test_a_verdict_that_is_one_text_has_no_labels():
    report = Report("t")
    report.verdict = "All is well."
    assert '<p class="label">' not in report.html()


def test_blocks_in_order_with_tables_folded_below_figures(frames):
    report = Report("t")
    report.block = "proof"
    report.heading("Certificate", "It is said.")
    report.add_table("facts", pd.DataFrame({"n": range(20)}), "Twenty.")
    report.block = "where"
    report.heading("Empty")
    report.heading("Pairs")
    report.add_table("before", pd.DataFrame({"a": [1], "b": [2]}), "Numbers.")
    report.add_figure("pairs", figures.heads_heatmap(frames["groups"], "s_acc"), "Pairs.")
    report.add_figure("again", figures.heads_heatmap(frames["groups"], "l_acc"), "Pairs again.")
    report.say("Found here.", "where")
    report.say("It is said.", "proof")
    text = report.html()
    assert re.findall(r'<h2 class="block-title" id="(.*?)"', text) == ["block-where", "block-proof"]
    where, proof = text.split('id="block-where"')[1].split('id="block-proof"')
    assert text.count("Found here.") == text.count("It is said.") == 1  # on the first screen, and nowhere else
    assert "Empty" not in text
    assert where.index("figure-pairs") < where.index("1 more figure<") < where.index("Table of 1 row: a, b")
    assert "<details>" not in proof  # without a figure, a table is shown
    assert proof.index('<tbody class="rest" hidden>') < proof.index(">19<")
    contents = text.split("<nav")[1].split("</nav>")[0]
    assert '<span class="holds">2 figures, 1 table</span>' in contents


def test_sections_of_words_alone_share_a_row():
    report = Report("t")
    report.block = "where"
    for title in ("One", "Two", "Three"):
        report.heading(title, "Words.")
    assert re.findall(r'<section class="card( wide)?"', report.html()) == ["", "", ""]


def test_a_folded_figure_leaves_its_caption(frames):
    report = Report("t")
    report.block = "where"
    report.heading("High and wide")
    high = figures.heads_heatmap(frames["groups"], "s_acc")
    high.update_layout(height=900, meta={"min_width": 900})
    report.add_figure("high", high, "What it shows.")
    assert (
        report.html().split('id="section-high-and-wide"')[1].split("<details>")[0].count("<p>What it shows.</p>") == 1
    )
