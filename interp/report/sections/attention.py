"""What each head attends to, averaged over inputs: by position, and by token."""

import pandas as pd

from interp.measures.attention import attention_by_position, attention_by_token
from interp.measures.head_types import KINDS, head_types
from interp.measures.results import Figure
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections._shared import WEIGHT, weights
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.tasks import Batch

MOST_HEADS, LONGEST, MOST_TOKENS = 24, 24, 16
SHARES = (
    "Where heads attend from the position that is read: entropy (in nats; uniform: the entropy of equal attention to "
    "all visible positions), and the shares of"
)
SCORES = "Raw scores from the position that is read (without a softmax, these are not shares) for"


def needs(study: Study) -> str | None:
    """Require few enough heads to draw, and something to choose from."""
    if study.task.sample(2, study.task.splits[-1], seed=0).tokens.shape[1] == 1:
        return "each input is a single token, so heads have nothing else to attend to"
    n = study.model.cfg.n_layers * study.model.cfg.n_heads
    return f"the patterns of {n} heads are too many to draw" if n > MOST_HEADS else None


def _tables(subject: Subject, batch: Batch) -> tuple[pd.DataFrame | None, pd.DataFrame | None, pd.DataFrame | None]:
    """Return mean weights by position, by token, and from the read positions, each None if it is not shown."""
    reads = subject.read_at != "all"
    short, few = batch.tokens.shape[1] <= LONGEST, subject.task.d_vocab <= MOST_TOKENS
    return (
        attention_by_position(subject, batch) if short else None,
        attention_by_token(subject, batch, only_reads=reads) if few else None,
        head_types(subject, batch, "read").to_frame() if reads else None,
    )


@section("attention", title="Mean attention", order=400, block="where", needs=needs)
def make(study: Study, report: Report) -> None:
    """Show mean patterns by position (short inputs), by token (few tokens), and from the read positions."""
    subject, inputs = study.subject, study.population("attention", 3, most=5_000)
    report.heading("Mean attention", f"Averages {inputs.on}, without padding.")
    shape = {"layer": study.model.cfg.n_layers > 1}
    by_position, by_token, at_reads = _tables(subject, inputs.batch)
    if by_position is not None:
        report.add_figure(
            "attention_by_position",
            draw.circuit(
                _named(by_position, **shape).rename(columns={"query": "query position", "key": "key position"}),
                "query position",
                "key position",
                color_title=f"mean {weights(study)}",
                shares=weights(study) == WEIGHT,
            ),
            "Mean attention from each position (rows) to each position (columns), over the inputs that have both.",
        )
    if by_token is not None:
        at = "" if subject.read_at == "all" else ", where answers are read"
        seen = set(inputs.batch.tokens[inputs.batch.attention_mask].unique().tolist())
        table = by_token[by_token["key"].map(study.task.token_id).isin(seen)]
        only = table["query"].nunique() == 1
        source = f"'{table['query'].iloc[0]}'" if only else "a query token (rows)"
        report.add_figure(
            "attention_by_token",
            (_by_head if only else draw.circuit)(
                _named(table, **shape),
                color_title=f"{weights(study)} to all of a kind",
                shares=weights(study) == WEIGHT,
            ),
            f"Total attention from {source} to all tokens of one kind (columns){at}, mean over queries.",
        )
    if at_reads is not None:
        at_reads = at_reads.copy()
        at_reads.insert(0, "part", [f"head {a}.{b}" for a, b in zip(at_reads["layer"], at_reads["head"])])
        report.add_table(
            "attention_at_reads",
            at_reads.drop(columns=["layer", "head"]).dropna(axis=1, how="all"),
            f"{SHARES if at_reads['entropy'].notna().any() else SCORES} the position itself, the previous one, the "
            "first one, other positions with the same token, and positions after an earlier occurrence of the same "
            "token.",
            {kind: ".3f" for kind in KINDS if at_reads[kind].notna().any()},
        )


def _by_head(table: pd.DataFrame, color_title: str, shares: bool) -> Figure:
    """Draw the weights of one query token: a row for each head."""
    heads, keys = list(dict.fromkeys(table["head"])), list(dict.fromkeys(table["key"]))
    matrix = table.pivot(index="head", columns="key", values="value").loc[heads, keys]
    names = [f"head {head}" for head in heads]
    return draw.heatmap(
        matrix, keys, names, "key token", "head", color_title,
        center=None if shares else 0, ends=(0, 1) if shares else (), square=False, show_values=True, fixed=shares,
    )  # fmt: skip


def _named(table: pd.DataFrame, layer: bool) -> pd.DataFrame:
    names = [f"{a}.{b}" if layer else b for a, b in zip(table["layer"], table["head"])]
    return table.assign(head=names)
