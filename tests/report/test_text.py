"""Tables for the terminal: text, JSON and CSV."""

import io
import json
import sys

import numpy as np
import pandas as pd

from interp.support.figures.cells import format_table

FRAME = pd.DataFrame(
    {
        "heads": [(0,), (1, 12)], "s_acc": [0.98765432109, np.nan], "w": [np.inf, 1.0], "right": [True, False],
        "n": [1, 2],
    }
)  # fmt: skip


def test_table():
    lines = format_table(FRAME).splitlines()
    assert lines[0].split() == ["heads", "s_acc", "w", "right", "n"]
    assert lines[2].split() == ["(0,)", "0.9877", "inf", "yes", "1"]
    assert lines[3].split() == ["(1,", "12)", "–", "1.0000", "no", "2"]


def test_json_has_lists_nulls_and_every_digit():
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(format_table(FRAME, "json"), parse_constant=refuse) == [
        {"heads": [0], "s_acc": 0.98765432109, "w": "inf", "right": True, "n": 1},
        {"heads": [1, 12], "s_acc": None, "w": 1.0, "right": False, "n": 2},
    ]


def test_json_of_odd_values():
    frame = pd.DataFrame({"a": [np.int64(3), np.float32(0.5), np.bool_(True), pd.NaT, None]}, dtype=object)
    assert [row["a"] for row in json.loads(format_table(frame, "json"))] == [3, 0.5, True, None, None]


def test_csv_reads_back():
    back = pd.read_csv(io.StringIO(format_table(FRAME, "csv")))
    assert back["s_acc"][0] == 0.98765432109
    assert back["heads"].tolist() == ["(0,)", "(1, 12)"]


def test_a_name_cannot_steer_the_terminal_or_rich():
    text = format_table(pd.DataFrame({"[red]a": ["\x1b[31m[bold]x\n"]}))
    assert "\x1b" not in text
    assert "[red]a" in text
    assert r"\x1b[31m[bold]x\n" in text


def test_a_narrow_terminal_folds_cells(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    text = format_table(pd.DataFrame({"a": ["word " * 20], "b": [1]}))
    assert max(map(len, text.splitlines())) <= 30
    assert text.count("word") == 20
