"""The live model outside a page: payloads in, what its JavaScript computes out, run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest

from interp.report.live import engine

RUN = """
const jobs = JSON.parse(require("fs").readFileSync(0, "utf8")), plain = (data) => Array.from(data, String);
process.stdout.write(JSON.stringify(jobs.map(({ payload, runs }) => {
  const model = makeModel(payload), truth = makeTruth(payload);
  model.sliders = payload.counts ? payload.counts.sliders : [];
  const tables = payload.arch.counts ? countTables(model) : null;
  return runs.map(({ tokens, off, ratios, result, replace }) => {
    const edits = editsOf(model, { off: off || [], ratios: ratios || null }, tokens);
    for (const [name, data] of Object.entries(replace || {})) edits.edit(name, data);
    const found = forward(model, tokens, edits, { result }), cache = {}, places = readPositions(model, tokens);
    for (const [name, { shape, data }] of Object.entries(found.cache)) cache[name] = { shape, data: plain(data) };
    const silent = tables && silenced(model, off || []);
    const counted = tables && !replace && places.map((place) => plain(countForward(tables, tokens[place], countsAt(model, tokens, place), silent, ratios && ratioWeights(model, ratios)).logits));
    return { logits: plain(found.logits), cache: result ? cache : null, places, counted, right: places.map((place) => truth(tokens, place)) };
  });
})));
"""  # noqa: E501


def needs_node() -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed: the live model's JavaScript is not compared with torch here")


def run(jobs: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """For each {payload, runs: [{tokens, off, ratios, result, replace}]} what the page would compute."""
    found = subprocess.run(
        ["node", "-e", engine() + RUN], input=json.dumps(jobs), capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr[-2000:]
    return list(json.loads(found.stdout))


def numbers(data: list[str], shape: tuple[int, ...] | list[int]) -> np.ndarray:
    """Numbers as JavaScript writes them."""
    return np.array([float(text.replace("Infinity", "inf")) for text in data]).reshape(shape)


def deviation(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference relative to the spread of the wanted values, which may be infinite where both are."""
    assert found.shape == wanted.shape
    finite = np.isfinite(wanted)
    assert (finite == np.isfinite(found)).all()
    if not finite.any():
        return 0.0
    spread = float(np.ptp(wanted[finite])) or max(1.0, float(np.abs(wanted[finite]).max()))
    return float(np.abs(found[finite] - wanted[finite]).max()) / spread
