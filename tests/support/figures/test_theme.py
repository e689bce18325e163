import json
from importlib.resources import files
from itertools import combinations

import numpy as np
import plotly.graph_objects as go
import pytest
from live_model import javascript, needs_node

from interp.support.figures import theme


def luminance(color):
    """Relative luminance of WCAG 2."""
    channels = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.03928, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def seen_by(color, deficiency):
    """The color as a dichromat sees it (Machado, Oliveira and Fernandes 2009, severity 1), in linear RGB."""
    matrix = {
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    }[deficiency]
    channels = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.clip(np.array(matrix) @ channels**2.2, 0, 1) ** (1 / 2.2)


def test_text_can_be_read_on_both_pages():
    assert contrast(theme.INK, theme.PAPER) > 12
    assert contrast(theme.DARK[theme.INK], theme.DARK[theme.PAPER]) > 12
    assert contrast(theme.GREY, theme.PAPER) > 4
    assert contrast(theme.DARK[theme.GREY], theme.DARK[theme.PAPER]) > 4


@pytest.mark.parametrize("color", [theme.BLUE, theme.VERMILLION, theme.GREEN])
def test_main_colors_stand_out_on_both_pages(color):
    assert contrast(color, theme.PAPER) > 3
    assert contrast(theme.DARK[color], theme.DARK[theme.PAPER]) > 5


@pytest.mark.parametrize("deficiency", ["protan", "deutan"])
@pytest.mark.parametrize("dark", [False, True])
def test_the_classes_differ_for_color_blind_readers(deficiency, dark):
    colors = [theme.DARK[color] if dark else color for color in theme.TOKEN_COLORS.values()]
    for a, b in combinations(colors, 2):
        assert np.abs(seen_by(a, deficiency) - seen_by(b, deficiency)).max() > 0.2


def test_scales_order_by_lightness():
    steps = [luminance(color) for color in theme.SEQUENTIAL]
    assert steps == sorted(steps)
    arms = [luminance(color) for color in theme.DIVERGING]
    assert arms[0] < arms[1] < arms[2] > arms[3] > arms[4]
    dark = [luminance(theme.DARK[color]) for color in theme.DIVERGING]
    assert dark[0] > dark[1] > dark[2] < dark[3] < dark[4]


def test_faded_colors_are_read_by_every_plotly():
    """plotly 6 refuses "#0072B280" with a traceback; the form with commas is read by all of them."""
    assert theme.fade("#0072B2", 0.5) == "rgba(0, 114, 178, 0.5)"
    go.Scatter(marker_color=theme.fade(theme.BLUE, 1), fillcolor=theme.fade(theme.BLUE, 0.15))


def test_faded_colors_become_their_partners_on_a_dark_page():
    needs_node()
    page = files("interp.report").joinpath("page.js").read_text("utf-8")
    code = page[page.index("  const hex =") : page.index("  function render(")]
    given = [theme.BLUE, theme.fade(theme.BLUE, 0.15), theme.fade("#123456", 0.5), "rgb(0, 114, 178)", {"a": [1, None]}]
    settings = f"const settings = {{dark: {json.dumps(theme.DARK)}}};"
    shown = javascript(f"{settings}\n{code}\nreturn given.map(themed);", given)
    assert shown == [theme.DARK[theme.BLUE], theme.fade(theme.DARK[theme.BLUE], 0.15), *given[2:]]


def test_plain_text_is_no_markup():
    assert theme.plain("<s> & </s>") == "&lt;s&gt; &amp; &lt;/s&gt;"


def test_the_template_is_the_same_each_time():
    first, second = (json.dumps(theme.template().to_plotly_json(), sort_keys=True) for _ in range(2))
    assert first == second


def test_a_figure_names_its_axes():
    figure = theme.figure(go.Scatter(x=[1], y=[2]), x="time <s>", y="loss", height=300)
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("time &lt;s&gt;", "loss")
    assert figure.layout.height == 300


def test_a_color_scale_goes_from_0_to_1():
    assert theme.scale("abc") == [[0, "a"], [0.5, "b"], [1, "c"]]


def test_tokens_have_the_colors_of_the_live_panel():
    colors = theme.token_colors(["0", "1", "2"], ["[BOS]", "="])
    assert [colors[token] for token in ("0", "1", "2")] == list(theme.COUNTED_COLORS[:3])  # --token-0 and so on
    assert colors["[BOS]"] == theme.COLORS[3]  # as counts_panel.js: 6 - 3 for odd places among the tokens, else 6
    assert colors["="] == theme.COLORS[6]
