"""Evidence that the package writes, checked by the checker alone: a bare Python process that cannot import anything."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import interp
from interp.certificates import check
from interp.certificates.base import Certificate, Source
from interp.certificates.evidence import weights_sha256
from interp.certificates.evidence_maxima import maxima_evidence
from interp.errors import InterpError, UnsupportedError

CHECKER = Path(check.__file__)


def run_checker(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The file alone, isolated from site-packages, the environment and the folder it lies in."""
    command = [sys.executable, "-I", "-S", str(CHECKER), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def minimal(tmp_path_factory):
    path = tmp_path_factory.mktemp("evidence") / "minimal.json"
    interp.certify("count01/minimal").evidence(path)
    return path


def faulty(evidence, **changes):
    """The sentence with which changed evidence is refused."""
    changed = copy.deepcopy(evidence)
    for name, value in changes.items():
        owner, keys = changed, name.split("__")
        for key in keys[:-1]:
            owner = owner[key]
        owner[keys[-1]] = value
    with pytest.raises(check.Fault) as fault:
        check.check(changed)
    return str(fault.value)


def test_holds_on_a_bare_python(minimal):
    """502,500 inputs in two parts; the weights' hash is the one that the package computes by itself."""
    digest = weights_sha256(interp.build("count01/minimal"))
    found = run_checker(minimal, "--weights-sha256", digest)
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith(
        "holds: count01: at '=' the right answer has the largest output on every one of 502500"
    )
    assert digest in found.stdout
    other = run_checker(minimal, "--weights-sha256", "0" * 64)
    assert other.returncode == 1
    assert "DOES NOT HOLD" in other.stdout


def test_checkpoint_is_compared(tmp_path):
    """A trained model's exact set of errors, and the file whose numbers these are."""
    file = Path("models/count01/paper/seed-0.safetensors")
    path = tmp_path / "paper.json.gz"
    interp.certify(file, dtype="float64").evidence(path)
    found = run_checker(path, "--checkpoint", file)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "but exactly 9849, on which it has not (n1 - n0 = 1: 9849 of 9849)" in found.stdout
    assert "as run in float64" in found.stdout
    assert run_checker(path, "--checkpoint", file.with_name("seed-1.safetensors")).returncode == 1


def test_refusals(tmp_path, minimal):
    with pytest.raises(InterpError, match=r"\.json"):
        interp.certify("count01/minimal").evidence(tmp_path / "proof.txt")
    with pytest.raises(InterpError, match="question"):
        interp.certify("count01/minimal", question="end").evidence(tmp_path / "proof.json")
    with pytest.raises(UnsupportedError, match="has no evidence"):
        interp.certify("languages/palindrome", longest=3).evidence(tmp_path / "proof.json")
    evidence = json.loads(minimal.read_text())
    assert "multiple" in faulty(evidence, claim__margin="0x1p-300")
    assert "left out" in faulty(evidence, parts=evidence["parts"][:-1])
    assert "more parts" in faulty(evidence, parts=[*evidence["parts"], "0x1p-20"])
    assert "at least, not" in faulty(evidence, parts=[evidence["parts"][0], "0x1p-10", evidence["parts"][2]])


@pytest.mark.parametrize("name", ["dot", "dot-softmax", "bos", "bos-softmax", "lin", "lin-softmax"])
def test_histogram_models_hold(tmp_path, name):
    """All 32^10 sequences, in this process: see test_check_attacks for bounds against brute force."""
    path = tmp_path / "proof.json.gz"
    interp.certify(f"histogram/{name}-exact").evidence(path)
    model, said, rounding = check.check(check.read(str(path)))
    assert model.parameters.get("T", 32) == 32
    assert said.startswith(
        "histogram: every position has its largest output at how often its token occurs, in all 32^10"
    )
    assert said.endswith("over the reals and as run in float64")
    assert 0 < rounding < 1e-9
    evidence = check.read(str(path))
    part = evidence["parts"][3]
    for bounds in (part["bounds"][1:], [*part["bounds"], part["bounds"][0]], ["0x1p+0", *part["bounds"][1:]]):
        changed = [*evidence["parts"][:3], {**part, "bounds": bounds}, *evidence["parts"][4:]]
        faulty(evidence, parts=changed)


@pytest.mark.parametrize("name", ["parity", "one", "first"])
def test_strings_hold(tmp_path, name):
    path = tmp_path / "proof.json"
    interp.certify(f"languages/{name}", longest=9).evidence(path)
    evidence = json.loads(path.read_text())
    _, said, _ = check.check(evidence)
    assert said.startswith(f"{name}: right on every string of 1 to 9 symbols, 1022 strings")
    assert "as run in float64" in said
    faulty(evidence, claim__domain__longest=10)
    faulty(evidence, parts=[*evidence["parts"][:-1], (2 * float.fromhex(evidence["parts"][-1])).hex()])
    other = {"parity": "one", "one": "parity", "first": "parity"}[name]
    faulty(evidence, spec__task__name=other)


def test_contexts_hold(tmp_path):
    """A look-up table, all contexts right in float32; a noisy table with its exact errors."""
    interp.certify("models/memorization/lookup/seed-0.safetensors").evidence(tmp_path / "lookup.json.gz")
    model, said, _ = check.check(check.read(str(tmp_path / "lookup.json.gz")))
    assert said.startswith("lookup: the largest output is a right one for all 400 = 20^2 contexts")
    assert said.endswith("as run in float32")
    assert model.sha256 == weights_sha256(interp.load("models/memorization/lookup/seed-0.safetensors"))
    interp.certify("models/memorization/kgram/seed-0.safetensors", dtype="float64").evidence(tmp_path / "k.json")
    evidence = json.loads((tmp_path / "k.json").read_text())
    assert "but exactly 22" in check.check(evidence)[1]
    faulty(evidence, claim__domain__errors=evidence["claim"]["domain"]["errors"][1:])
    faulty(evidence, parts=evidence["parts"][1:])


def test_trained_max_of_k_errs_on_85_of_16_million(tmp_path):
    """One part for each maximum: a compact proof. The errors are those that an enumeration of the small ones finds."""
    model = interp.load("models/algorithmic/max-of-k/seed-0.safetensors", dtype="float64")
    path = tmp_path / "proof.json"
    given = Certificate(
        model.spec.id, "refuted", 1 - 85 / 64**4, 64**4, -14.0, "0 0 0 0 =", "every multiset", "all", 0.0,
        rounding=1e-6, n_errors=85, source=Source(model, "every multiset", {}),
    )  # fmt: skip
    found = maxima_evidence(model, given, {})
    assert found.domain["errors"] == [[0, 1], [1, 15], [2, 65], [4, 4]]
    numbers = torch.cartesian_prod(*[torch.arange(6)] * 4)
    wrong = model.predict(model.task.of_numbers(numbers).tokens) != numbers.amax(1)
    largest = numbers.amax(1)[wrong]
    assert [[int(m), int((largest == m).sum())] for m in largest.unique()] == found.domain["errors"]
    given.evidence(path)
    done = run_checker(path)
    assert done.returncode == 0, done.stdout
    assert "for all 64^4 inputs but exactly 85" in done.stdout
