"""The live panel generates what torch generates, token by token, edited or not; and it shows that in a page."""

from pathlib import Path
from typing import Any

import pytest
import torch
from browser import Page, find_browser
from live_model import javascript, needs_node
from saved_models import SHAPES

import interp
from interp.measures.accuracy import generate
from interp.models.subject import Subject
from interp.report.sections.live_payload import payload

pytestmark = pytest.mark.filterwarnings("ignore")

RUN = """
const model = makeModel(given.payload), truth = makeTruth(given.payload);
model.sliders = [];
return given.rows.map((tokens) => generated(model, given.payload, truth, { tokens, off: given.off, ratios: null }));
"""


def sums(error: float) -> Any:
    """nanoGPT's adder with weaker second MLP: it errs on some sums."""
    model = SHAPES["nanogpt"].subject("nanogpt")
    with torch.no_grad():
        model.blocks[1].mlp.W_out *= 1 - error
    return model


@pytest.mark.parametrize("name", ["nanogpt", pytest.param("llama", marks=pytest.mark.slow), "addition"])
def test_the_page_generates_what_torch_does(name: str) -> None:
    needs_node()
    model: Any = {
        "nanogpt": lambda: sums(0.8),
        "llama": lambda: SHAPES["llama"].subject("llama"),
        "addition": lambda: interp.build("algorithmic/addition-exact", digits=2),
    }[name]()
    if name == "addition":
        with torch.no_grad():
            model.unembed.b_U[7] -= 1e6
    subject, task = Subject.of(model), model.task
    batch = task.sample(60, seed=2)
    wanted = generate(subject, batch)
    rows = [row[:length].tolist() for row, length in zip(batch.tokens, batch.lengths.tolist())]
    found = javascript(RUN, {"payload": payload(subject), "rows": rows, "off": []})
    for row, (said, tokens, right) in enumerate(zip(found, wanted.tokens.tolist(), wanted.exact.tolist())):
        made = [token for token in tokens if token != -100]
        assert said["made"] == made
        if said["right"] is not None:
            assert (said["made"] == said["right"]) == right, row
    if name == "nanogpt":
        assert 0 < sum(wanted.exact.tolist()) < 60
        assert all(said["right"] is not None for said in found)
        asked = javascript(RUN, {"payload": payload(subject), "rows": [[3, 10, 9, 11], [3, 10]], "off": ["0.mlp"]})
        assert task.format(torch.tensor(asked[0]["right"])) == "12$"  # a question without its answer
        assert asked[0]["made"] != asked[0]["before"]
        assert asked[1] is None


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason="no Chromium: no page is opened")
@pytest.mark.parametrize("name", ["nanogpt", "qwen3", "gpt_neox"])
def test_a_strangers_model_runs_in_the_page(page: Page, name: str, tmp_path: Path) -> None:
    path = interp.live(SHAPES[name].subject(name)).save(tmp_path / "page.html")
    page.open(path)
    shown(page, name)


def shown(page: Page, name: str) -> None:
    assert page.run("document.querySelector('.live').dataset.selfTest") == "ok"
    assert page.run("Boolean(document.querySelector('.live-generated'))") == (name == "nanogpt")
    if name == "nanogpt":
        words = page.run("document.querySelector('.live-generated .live-decision').textContent")
        assert words.endswith("$, which is right.")
