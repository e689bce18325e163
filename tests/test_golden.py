"""Nothing moves unnoticed: outputs are those of tests/golden/. `python tests/golden.py --show` prints what moved."""

import copy
import json
from collections.abc import Sequence
from importlib.resources import files

import golden
import pytest

from interp.programs.explanations.explanation import SHIPPED, Explanation

CASES = sorted(str(path.relative_to(golden.FOLDER).with_suffix("")) for path in golden.FOLDER.rglob("*.json"))
# All of the others is slow.
MEASURED = ("certificate", "head_metrics", "ablation", "found_anew")
SEARCHED = ("induction-exact@small", "modular-addition-fourier@small", "dot-exact@small", "lin-softmax-exact@small",
            "drawn-5@small", "drawn-6@small", "drawn-8@small", "capacity@small", "lookup")  # fmt: skip
QUICK = {
    "algorithmic/max-of-k-exact@small": (),
    "histogram/bos-softmax-exact@small": (),
    "memorization/theorem1@small": (),
    "programs/compiled@small": (),
    "count01/minimal@small": ("report", "head_metrics", "ablation"),
    "languages/one@small": ("report", "certificate", "ablation"),
    **{case: MEASURED for case in CASES if case.partition("/")[2] in SEARCHED},
    **dict.fromkeys(("training/count-space", "training/encoder", "training/vmap"), ()),
    "bounds": (),
    "evidence": [f"{name}.json.gz" for name in golden.EXACT],
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "parts"), [*QUICK.items(), *(pytest.param(case, (), marks=pytest.mark.slow) for case in CASES)]
)
def test_nothing_moved(case: str, parts: Sequence[str]) -> None:
    with golden.pinned():
        found = golden.moved(case, parts)
    assert found == []


def test_stored_sentences_are_those_of_shipped_explanations() -> None:
    known = json.loads((files("interp.programs.explanations") / SHIPPED).read_text(encoding="utf-8"))
    shipped = {Explanation.from_json(json.dumps(one)).sentence for one in known.values() if one["program"] is not None}
    assert shipped == {
        sentence for case in CASES if (sentence := (golden.stored(case).get("explanation") or {}).get("sentence"))
    }


def test_every_case_is_stored_and_nothing_else() -> None:
    assert set(golden.case_names()) == set(CASES)
    assert set(golden.stored("evidence")) == {path.name for path in (golden.FOLDER / "evidence").iterdir()}


def test_stored_failures_are_refusals_with_a_reason() -> None:
    """A mistake in the code that makes a case would be stored as its result."""
    failed = {
        case: one["error"]
        for case in CASES
        for one in golden.stored(case).values()
        if isinstance(one, dict) and "error" in one
    }
    assert failed
    assert {case: error for case, error in failed.items() if not error.startswith("UnsupportedError: ")} == {}


def test_a_changed_number_count_or_word_is_noticed() -> None:
    old = golden.stored("memorization/lookup")["certificate"]
    new = copy.deepcopy(old)
    new["worst_margin"] *= 1 + golden.RELATIVE / 2
    assert list(golden.differences(old, new)) == []
    new |= {"worst_margin": old["worst_margin"] * 1.001, "n_inputs": old["n_inputs"] + 1, "status": "refuted"}
    assert {path for path, *_ in golden.differences(old, new)} == {"worst_margin", "n_inputs", "status"}
    assert golden.same("Accuracy .9790 on 200 inputs", "Accuracy .9791 on 200 inputs")
    assert not golden.same("Accuracy .9790 on 200 inputs", "Accuracy .9793 on 200 inputs")
    assert not golden.same("Accuracy .9790 on 200 inputs", "Accuracy .9790 on 201 inputs")
