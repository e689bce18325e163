"""The live model outside a page: payloads in, what its JavaScript computes out, run by node."""

import atexit
import functools
import json
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest

from interp.report.live import engine

LISTEN = """
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { code, given } = JSON.parse(line);
  let said;
  try { said = { value: new Function("given", code)(given) }; } catch (error) { said = { error: String(error.stack) }; }
  process.stdout.write(JSON.stringify(said) + "\\n");
});
"""

RUN = """
const plain = (data) => Array.from(data, String);
return given.map(({ payload, runs }) => {
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
});
"""  # noqa: E501


def needs_node() -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed: the live model's JavaScript is not compared with torch here")


def run(jobs: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """For each {payload, runs: [{tokens, off, ratios, result, replace}]} what the page would compute."""
    return list(javascript(RUN, jobs))


def javascript(code: str, given: Any) -> Any:
    """What `code`, the body of a function of `given`, returns where the page's functions are known."""
    process = _node()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"code": engine() + code, "given": given}) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert "error" not in answer, answer["error"][-2000:]
    return answer["value"]


@functools.cache
def _node() -> subprocess.Popen[str]:
    """One node for all tests of a process: to start it takes longer than most of what it is asked."""
    process = subprocess.Popen(["node", "-e", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @atexit.register
    def end() -> None:
        process.communicate()

    return process


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
