"""Figures for Count01: logits of heads and model (Figure 1), and the inputs with wrong answers."""

from collections.abc import Sequence
from itertools import product

import pandas as pd
import plotly.graph_objects as go

from interp.support.figures import theme
from interp.support.figures.drawing import Plot, compact, filled, head_name, panels
from interp.support.figures.theme import plain


def logit_distributions(frame: pd.DataFrame, order: Sequence[int] = ()) -> go.Figure:
    """Draw the logits of each head and of the model, by current token and true next token (Figure 1).

    A box spans the middle half of the inputs; its whiskers reach from the 5th to the 95th percentile.

    Args:
        order: the order of the heads (default: by number).
        frame: one row per input, head and token: `head` (an int or "model"), `current` ('=', '4' or '5'), `next` (the
            true next token), `token` (of the logit), `logit`.
    """
    theme.check_rows(frame, "logit_distributions")
    rank = {token: position for position, token in enumerate(["=", "4", "5", "[EOS]"])}
    contexts = sorted(
        set(zip(frame["current"], frame["next"])), key=lambda pair: [(rank.get(t, len(rank)), str(t)) for t in pair]
    )
    titles = [f"after '{current}', when '{following}' follows" for current, following in contexts]
    heads = sorted(frame["head"].unique(), key=lambda head: (isinstance(head, str), head))
    heads.sort(key=lambda head: list(order).index(head) if head in order else len(order))
    # The model's logits are sums over heads, so they get their own axis; otherwise the heads' boxes would be tiny.
    groups = [group for group in ([h for h in heads if h != "model"], [h for h in heads if h == "model"]) if group]
    layout, places = panels(
        [title if first else "" for title in titles for first in (True, False)[: len(groups)]],
        n_across=len(groups),
        panel_height=190,
        widths=[max(2.0, float(len(group))) for group in groups],
        left=True,
    )
    columns = ["current", "next", "token", "head"]
    summary = frame.groupby(columns)["logit"].quantile([0.05, 0.25, 0.5, 0.75, 0.95]).unstack()
    tokens = sorted(frame["token"].unique(), key=lambda token: (rank.get(token, len(rank)), str(token)))
    names = {"type": "category", "categoryarray": [head_name(head) for head in heads], "categoryorder": "array"}
    zero = {"zeroline": True, "zerolinecolor": theme.GREY, "zerolinewidth": 1}
    plots: list[Plot] = []
    for (row, column), (context, group) in zip(places, product(contexts, groups)):
        here, boxes = summary.loc[context], []
        for token, spare in zip(tokens, theme.COLORS):
            quantiles = here[here.index.get_level_values("token") == token].droplevel("token").reindex(group).dropna()
            low, first, middle, third, high = (compact(quantiles[q]) for q in quantiles.columns)
            color = theme.TOKEN_COLORS.get(str(token), spare)
            box = go.Box(x=[head_name(head) for head in quantiles.index], lowerfence=low, upperfence=high)
            box.update(q1=first, median=middle, q3=third, name=f"logit of '{plain(token)}'", offsetgroup=str(token))
            box.update(marker_color=color, line_width=1.5, fillcolor=theme.fade(color, 0.3))
            boxes.append(box.update(legendgroup=str(token), showlegend=not plots))
        titled = (row, column) == (len(contexts), 1) and groups[0] != ["model"]
        across = names | ({"title": {"text": "head"}} if titled else {})
        plots.append(Plot(boxes, across, zero | ({"title": {"text": "logit"}} if column == 1 else {})))
    size = {"min_height": layout["height"]} | ({"min_width": 130 + 36 * len(heads)} if len(heads) > 6 else {})
    return filled(layout, plots, boxmode="group", boxgap=0.25, boxgroupgap=0.1, meta=size)


def error_by_difference(
    frame: pd.DataFrame, margin: int = 4, tokens: Sequence[str] = ("0", "1", "2"), answers: tuple[str, str] = ("4", "5")
) -> go.Figure:
    """Draw the share of wrong answers by the difference of two counts, near the boundary between the classes.

    Args:
        frame: one row per difference: `difference` (the count of the second token minus that of the first),
            `errors`, `inputs` (numbers of inputs).
        margin: how many differences to show on either side of the errors and of 0.
        tokens: the counted tokens.
        answers: the right answer if the difference is positive, and the right answer otherwise.
    """
    theme.check_rows(frame, "error_by_difference")
    wrong = frame.loc[frame["errors"] > 0, "difference"]
    low, high = min([0, *wrong]) - margin, max([0, *wrong]) + margin
    near = frame[frame["difference"].between(low, high)].sort_values("difference")
    drawn = theme.figure(y="share of wrong answers", height=360, barmode="overlay", showlegend=True)
    drawn.update_xaxes(title_text=f"how many more '{plain(tokens[1])}' than '{plain(tokens[0])}'")
    more, otherwise = answers
    for answer, part in ((otherwise, near[near["difference"] <= 0]), (more, near[near["difference"] > 0])):
        texts = [f"{errors:,} of {inputs:,} inputs" for errors, inputs in zip(part["errors"], part["inputs"])]
        shares = part["errors"] / part["inputs"].where(part["inputs"] > 0)
        bar = go.Bar(x=compact(part["difference"]), y=compact(shares), name=f"the answer is '{plain(answer)}'")
        color = theme.TOKEN_COLORS["4" if answer == more else "5"]
        bar.update(marker_color=color, customdata=texts, ids=[f"difference:{d}" for d in part["difference"]])
        drawn.add_trace(bar.update(hovertemplate="difference %{x}: %{y:.3%}<br>%{customdata}<extra></extra>"))
    if wrong.empty:
        sentence = f"no errors on {int(frame['inputs'].sum()):,} inputs"
        drawn.add_annotation(text=sentence, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font_size=15)
        drawn.update_yaxes(range=[0, 0.01])
    drawn.update_yaxes(tickformat="~%", rangemode="tozero")
    return drawn.update_xaxes(tickformat="d", range=[low - 0.6, high + 0.6], dtick=1 if high - low <= 24 else None)


def error_frontier(frame: pd.DataFrame, tokens: Sequence[str] = ("0", "1", "2")) -> go.Figure:
    """Draw the range of differences of two counts in which a model errs, by the count of the third token.

    Args:
        tokens: the counted tokens; a difference is the count of the second minus that of the first.
        frame: one row per count of the third token: this count (the first column), `min_difference`, `max_difference`
            (of the inputs answered wrongly; NaN if there are none).
    """
    theme.check_rows(frame, "error_frontier")
    zero, one, two = (plain(token) for token in tokens)
    noise = frame.columns[0]
    frame = frame.sort_values(noise)
    drawn = theme.figure(height=360).update_xaxes(title_text=f"number of '{two}' tokens")
    drawn.update_yaxes(
        title_text=f"number of '{one}' minus number of '{zero}' at wrong answers",
        zeroline=True,
        zerolinecolor=theme.GREY,
    )
    if frame[["min_difference", "max_difference"]].isna().all(axis=None):
        drawn.add_annotation(text="no errors", x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font_size=15)
        return drawn.update_xaxes(range=[frame[noise].min(), frame[noise].max()]).update_yaxes(range=[-5, 5])
    # One bar per count, because an area would also cover counts without errors.
    low, high = frame["min_difference"], frame["max_difference"]
    span = go.Bar(x=compact(frame[noise]), base=compact(low - 0.5), y=compact(high - low + 1), width=1, name="errors")
    texts = [f"from {a:.0f} to {b:.0f}" if a == a else "no errors" for a, b in zip(low, high)]
    span.update(customdata=texts, hovertemplate=f"%{{x}} '{two}': %{{customdata}}<extra></extra>")
    span.update(ids=["" if b != b else f"difference:{b:.0f},{n}" for b, n in zip(high, frame[noise])])
    drawn.add_trace(span.update(marker={"color": theme.fade(theme.VERMILLION, 0.75), "line": {"width": 0}}))
    reach = [min(0.0, float(low.min())), max(0.0, float(high.max()))]
    drawn.update_yaxes(rangemode="tozero", dtick=1 if reach[1] - reach[0] <= 10 else None, tickformat="d")
    return drawn.update_layout(bargap=0)
