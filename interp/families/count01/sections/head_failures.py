"""What successful and failed heads attend to (Zsámboki et al. 2025, section 5.3)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from interp.measures.attention_ratios import attention_shares
from interp.measures.head_types import head_types
from interp.measures.heads import HeadOutputs
from interp.report import Report
from interp.report.sections import _shared as shared
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.support import words
from interp.support.figures.theme import token_colors

MOST = 0.9
"""Least share of attention for a sentence that a head attends to one kind of token."""


def needs(study: Study) -> str | None:
    """Require several heads that separate or fail."""
    if (reason := shared.needs_two_answers(study)) is not None:
        return reason
    if not study.task.counted:
        return f"task {study.task.name} declares no tokens that are counted"
    if study.model.cfg.n_heads < 2:
        return "the model has only one head"
    if study.model.cfg.n_layers > 1:
        return "heads of several layers do not share one input"
    return None if study.once(divided) else "the weights are raw scores (no softmax), so there are no shares"


@section("head_failures", title="Why heads fail", order=315, block="where", needs=needs)
def make(study: Study, report: Report) -> None:
    """Show the shares of attention by token, with one bar per head, and how much the outputs vary."""
    table = study.once(shares)
    heads = study.once(shared.singles).set_index("head")["category"]
    groups = [group for group in ("successful", "mixed", "failed") if (heads == group).any()]
    at = study.subject.read_at
    sentences = [sentence(table, group, study.task.counted, at) for group in groups]
    report.heading(
        "Why heads fail" if "failed" in groups else "Where heads look",
        f"Each head divides its attention from '{at}' among the tokens that it sees. It can only distinguish answers "
        f"by its attention to {words.joined(map(repr, study.task.counted))}.\n\n" + " ".join(sentences),
    )
    drawn = table.assign(
        name=[f"0.{head}" for head in table["head"]], key=lambda frame: frame["token"].map("to '{}'".format)
    )
    drawn["place"] = drawn["head"].map(study.once(shared.by_category).index)
    others = [token for token in study.task.vocabulary if token in set(table["token"]) - set(study.task.counted)]
    report.add_figure(
        "head_shares",
        draw.bars(
            drawn.sort_values("place", kind="stable"), "name", "share", "key", x_title="head",
            y_title="share of attention", stacked=True,
            colors={f"to '{token}'": color for token, color in token_colors(study.task.counted, others).items()},
        ),
        f"Mean share of the attention of '{at}' that goes to all tokens of a kind together, over the test inputs; "
        f"heads sorted by s-acc: {words.joined(f'{int((heads == group).sum())} {group}' for group in groups)}.",
    )  # fmt: skip
    wide = table.pivot(index="head", columns="token", values="share")[list(dict.fromkeys(table["token"]))]
    wide.columns = [f"to '{token}'" for token in wide.columns]
    spread = pd.Series(spreads(study.once(shared.outputs, "test")), name="spread")
    full = pd.DataFrame({"category": heads}).join(wide).join(spread).reset_index()
    report.add_table(
        "head_shares",
        full.sort_values("head", key=lambda column: column.map(study.once(shared.by_category).index)),
        "The same as numbers. spread: root mean square distance of a head's output from its mean.",
        {"spread": ".3g"},
    )
    for category in groups:
        its = table[table["head"].isin(heads[heads == category].index) & table["token"].isin(study.task.counted)]
        report.add_fact(f"{category} share to counted", float(its.groupby("head")["share"].sum().mean()))


def divided(study: Study) -> bool:
    """Return whether a softmax normalizes the attention."""
    if study.subject.count_space:
        return True
    rows = study.once(shared.rows, "test")
    read = study.subject.read_mask(rows).any(1).nonzero()[:8, 0]
    return bool(head_types(study.subject, rows[read], "read")["entropy"].notna().all())


def shares(study: Study) -> pd.DataFrame:
    """Return the shares of attention on the test rows, with each head's category."""
    table = attention_shares(study.subject, study.once(shared.rows, "test"))
    return table.merge(study.once(shared.singles)[["head", "category"]], on="head")


def spreads(found: HeadOutputs) -> np.ndarray:
    """Return the root mean square distance of each head's output from its mean."""
    z = found.z.double()
    return (z - z.mean(0)).square().sum(-1).mean(0).sqrt().numpy()


def sentence(table: pd.DataFrame, category: str, counted: Sequence[str], at: str) -> str:
    """Return a sentence on what the heads of a category attend to most. table: head, category, token, share."""
    mine = table[table["category"] == category]
    n = mine["head"].nunique()
    who = f"The {category} head gives" if n == 1 else f"The {n} {category} heads each give"
    least, most = ("", "") if n == 1 else ("at least ", "at most ")
    low_of, high_of = (words.share, words.number) if n == 1 else (words.at_least, words.number_at_most)
    wide = mine.pivot(index="head", columns="token", values="share").reindex(columns=list(dict.fromkeys(mine["token"])))
    here = [token for token in counted if token in wide]
    together = wide[here].sum(axis=1)
    tokens = words.joined(map(repr, here))
    if together.min() >= MOST:
        means = words.joined(words.share(float(wide[token].mean()), 3) for token in here)
        mean = "" if n == 1 else "on average "
        share = low_of(float(together.min()), 3)
        return f"{who} {least}{share} of the attention to {tokens} ({mean}{means})."
    others = wide.drop(columns=here)
    first = str(others.mean().idxmax()) if len(others.columns) else ""
    if first and others[first].min() >= MOST:
        share = low_of(float(others[first].min()), 3)
        left = words.joined(high_of(float(wide[token].max()), 2) for token in here)
        itself = " itself" if first == at else ""
        return f"{who} {least}{share} of the attention to '{first}'{itself}; {tokens} get {most}{left}."
    low, high = (words.share(float(value), 3) for value in (together.min(), together.max()))
    return f"{who} {low if n == 1 else f'{low} to {high}'} of the attention to {tokens} together."
