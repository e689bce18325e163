"""Evidence that the package writes, checked by the checker alone: a bare Python process that cannot import anything."""

import concurrent.futures
import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from edits import changed, written
from majority import Majority

import interp
from interp.certificates import check, evidence_parts
from interp.certificates.certificate import Certificate, MadeBy
from interp.certificates.check import verdict
from interp.certificates.evidence import model_sha256, write_evidence
from interp.errors import InterpError, UnsupportedError
from interp.families.count01.tasks import CountBox
from interp.families.languages.certificates import evidence as evidence_strings

CHECKER = Path(check.__file__).parent


def run_checker(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The folder alone, isolated from site-packages, the environment and the folder it lies in."""
    command = [sys.executable, "-I", "-S", str(CHECKER), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def minimal(tmp_path_factory):
    path = tmp_path_factory.mktemp("evidence") / "minimal.json"
    interp.certify("count01/minimal").evidence(path)
    return path


def faulty(evidence, **changes):
    """The sentence with which changed evidence is refused."""
    with pytest.raises(check.Fault) as fault:
        check.check(changed(evidence, **changes))
    return str(fault.value)


@pytest.mark.slow
def test_holds_on_a_bare_python(minimal):
    """502,500 inputs in two parts; the weights' hash is the one that the package computes by itself."""
    digest = model_sha256(interp.build("count01/minimal"))
    found = run_checker(minimal, "--sha256", digest)
    assert found.returncode == 0, found.stdout + found.stderr
    first, last = found.stdout.splitlines()
    assert first.startswith("kind: counts; over the reals: nothing is assumed; in float64: the premise about formats")
    assert last.startswith(
        "holds: count01: at token 4, which sees [0, 4] and n0, n1, n2 times [1, 2, 3], the largest output is 5 where "
        "n1 > n0, else 6, on every one of 502500 inputs"
    )
    assert last.endswith(f"of SHA-256 {digest}")
    other = run_checker(minimal, "--sha256", "0" * 64)
    assert other.returncode == 1
    assert "DOES NOT HOLD" in other.stdout


def test_no_more_processes_are_started_than_there_are_cores(minimal, monkeypatch):
    """A number with a zero too many starts no thousands of processes."""
    asked = []

    def pool(many, **rest):
        asked.append(many)
        return concurrent.futures.ThreadPoolExecutor(many, **rest)

    monkeypatch.setattr(verdict.concurrent.futures, "ProcessPoolExecutor", pool)
    monkeypatch.setattr(verdict.os, "cpu_count", lambda: 2)
    check.check(json.loads(minimal.read_text()), processes=10**5)
    assert asked == [2]


@pytest.mark.slow
def test_checkpoint_is_compared(tmp_path):
    """A trained model's exact set of errors, and the file whose numbers these are."""
    file = Path("models/count01/paper/seed-0.safetensors")
    path = tmp_path / "paper.json.gz"
    interp.certify(interp.load(file, dtype="float64")).evidence(path)
    found = run_checker(path, "--checkpoint", file)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "but exactly 9849, on which it is not (n1 - n0 = 1: 9849 of 9849)" in found.stdout
    assert "as run in float64" in found.stdout
    assert run_checker(path, "--checkpoint", file.with_name("seed-1.safetensors")).returncode == 1


@pytest.mark.slow
def test_refusals(tmp_path, minimal):
    with pytest.raises(InterpError, match=r"\.json"):
        interp.certify("count01/minimal").evidence(tmp_path / "proof.txt")
    with pytest.raises(InterpError, match="question"):
        interp.certify("count01/minimal", question="end").evidence(tmp_path / "proof.json")
    spec = interp.ModelSpec.from_dict({"task": {"name": "histogram", "parameters": {"T": 2, "L": 2}}, "d_model": 2,
                                "layers": [{"d_head": 2}], "positions": "sinusoidal"})  # fmt: skip
    waves = interp.TaskModel(spec, seed=0)
    with pytest.raises(UnsupportedError, match="the checker cannot read it: positions = 'sinusoidal'"):
        interp.certify(waves).evidence(tmp_path / "proof.json")
    assert list(tmp_path.iterdir()) == []
    evidence = json.loads(minimal.read_text())
    assert "multiple" in faulty(evidence, claim__margin="0x1p-300")
    assert "left out" in faulty(evidence, parts=evidence["parts"][:-1])
    assert "more parts" in faulty(evidence, parts=[*evidence["parts"], None])
    assert "exceeds" in faulty(evidence, parts=[evidence["parts"][0], 3, evidence["parts"][2]])
    assert "exceeds" in faulty(evidence, claim__margin="0x1p-10")


def test_evidence_that_the_checker_would_refuse_is_not_kept(tmp_path):
    """Attention weights of e^-50 and less: the certificate holds, but the checker's bounds are too coarse for it."""
    model = interp.build("count01/minimal")
    model.blocks[0].attn.W_K.data *= 50
    found = interp.certify(model, box=CountBox((0, 4), (0, 4), (0, 3)))
    with pytest.raises(UnsupportedError, match="the checker's bounds are too coarse: the bound on an attention weight"):
        found.evidence(tmp_path / "proof.json")
    assert list(tmp_path.iterdir()) == []


def test_a_palindrome_s_mirror_image_is_found_by_sines(tmp_path):
    """The position code of sines and a logarithm is enclosed; test_check tries every other code."""
    model = interp.build("languages/palindrome", variant="mirror")
    evidence = written(interp.certify(model, longest=4), tmp_path)
    assert check.check(evidence)[1].startswith("palindrome: right on every string of 1 to 4 symbols, 30 strings")
    assert evidence["claim"]["format"] == "float64"
    assert "margin" in faulty(evidence, claim__margin=(float.fromhex(evidence["claim"]["margin"]) * 1.01).hex())


SLOW_LIN = [pytest.param(name, marks=pytest.mark.slow) for name in ("lin", "lin-softmax")]


@pytest.mark.parametrize("name", ["dot", "dot-softmax", "bos", "bos-softmax", *SLOW_LIN])
@pytest.mark.thinned(4)
def test_histogram_models_hold(tmp_path, name):
    """All 32^10 sequences, in this process: see test_check_attacks for bounds against brute force."""
    path = tmp_path / "proof.json.gz"
    interp.certify(f"histogram/{name}-exact").evidence(path)
    model, said, rounding = check.check(check.read(str(path)))
    assert model.parameters.get("T", 32) == 32
    assert said.startswith(
        "histogram: in all 32^10 sequences of 10 tokens among 0..31, "
        + "each after token 32, " * name.startswith("bos")
    )
    assert said.endswith("at least, and the answers are the same as run in float64")
    assert 0 < rounding < 1e-9
    evidence = check.read(str(path))
    faulty(evidence, claim__margin=(2 * float.fromhex(evidence["claim"]["margin"])).hex())
    if (part := evidence["parts"][3]) is None:
        return
    for cuts in (part[1:], [*part, None], [3, *part[1:]], [0 if part[0] is None else None, *part[1:]], [32, *part]):
        faulty(evidence, parts=[*evidence["parts"][:3], cuts, *evidence["parts"][4:]])


@pytest.mark.parametrize("changes", [{"query_key": "full"}, {"bias": {"q": True, "k": True}}, {"bias": {"k": True}}])
@pytest.mark.parametrize("normalizer", ["softmax", "none"])
@pytest.mark.thinned(2)
def test_evidence_of_biased_scores_holds(tmp_path, changes, normalizer):
    """A histogram of one class apart from the others: two tokens of one place each are always seen once."""
    layer = {"d_head": 2, "value_output": "identity", "normalizer": normalizer, **changes}
    spec = {"task": {"name": "histogram", "parameters": {"T": 2, "L": 1, "zero_class": True}}, "d_model": 2,
            "layers": [layer], "direction": "bidirectional", "readout": "relu_mlp", "readout_width": 2,
            "dtype": "float64"}  # fmt: skip
    model = interp.build(interp.ModelSpec.from_dict(spec), seed=0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "attn.b_" in name:
                parameter += 1
        model.unembed.b_out[1] += 10
    evidence = written(interp.certify(model), tmp_path)
    assert check.check(evidence)[1].startswith("histogram: in all 2^1 sequences of 1 tokens among 0..1, every token")
    faulty(evidence, claim__margin=(1.01 * interp.certify(model).worst_margin).hex())


def test_rows_of_a_model_of_todays_parts_have_no_evidence(tmp_path):
    """So few pairs are run one by one, and the checker knows an RMS norm in a proof by places alone."""
    layer = {"d_head": 2, "norm": "pre", "norm_kind": "rms"}
    task = {"name": "addition", "parameters": {"base": 2, "digits": 1}}
    model = interp.build(interp.ModelSpec.from_dict({"task": task, "d_model": 2, "layers": [layer]}), seed=0)
    with pytest.raises(UnsupportedError, match="the checker supports its parts only by places"):
        interp.certify(model).evidence(tmp_path / "proof.json")
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_one_output_has_no_evidence(tmp_path):
    model = interp.build("histogram/dot-exact", T=3, L=1)
    with pytest.raises(InterpError, match="a model of one output has no margin"):
        interp.certify(model).evidence(tmp_path / "proof.json")


def test_evidence_of_maxima_read_at_the_last_token_holds(tmp_path):
    exact = interp.build("algorithmic/max-of-k-exact", K=3, v=4)
    spec = exact.spec.model_copy(update={"readout_at": "last", "origin": None})
    model = interp.TaskModel(spec, tensors=dict(exact.named_parameters()))
    assert check.check(written(interp.certify(model), tmp_path))[1].startswith(
        "max-of-k: at '=' the largest of 3 numbers below 4"
    )


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["parity", "one", "first"])
def test_strings_hold(tmp_path, name):
    evidence = written(interp.certify(f"languages/{name}", longest=5), tmp_path)
    _, said, _ = check.check(evidence)
    assert said.startswith(f"{name}: right on every string of 1 to 5 symbols, 62 strings")
    assert "as run in float64" in said
    faulty(evidence, claim__domain__longest=6)
    faulty(evidence, claim__margin=(2 * float.fromhex(evidence["claim"]["margin"])).hex())
    other = {"parity": "one", "one": "parity", "first": "parity"}[name]
    faulty(evidence, spec__task__name=other)


def test_averages_of_strings_hold_with_three_layers(tmp_path):
    """A third layer adds nothing; every layer but the last runs at every position."""
    exact = interp.build("languages/parity")
    tensors, layers = dict(exact.named_parameters()), exact.spec.layers
    nulls = {name.replace("blocks.1.", "blocks.2."): torch.zeros_like(tensor)
             for name, tensor in tensors.items() if "blocks.1." in name}  # fmt: skip
    spec = exact.spec.model_copy(update={"layers": (*layers, layers[1]), "origin": None})
    evidence = written(interp.certify(interp.TaskModel(spec, tensors=tensors | nulls), longest=4), tmp_path)
    evidence["claim"]["domain"]["by"] = "average"  # instead of each string by itself
    assert check.check(evidence)[1].startswith("parity: right on every string of 1 to 4 symbols")


@pytest.mark.slow
def test_contexts_hold(tmp_path):
    """A look-up table, all contexts right in float32; a noisy table with its exact errors."""
    interp.certify("models/memorization/lookup/seed-0.safetensors").evidence(tmp_path / "lookup.json.gz")
    model, said, _ = check.check(check.read(str(tmp_path / "lookup.json.gz")))
    assert said.startswith("agrees with the table of labels of SHA-256")
    assert "that came with this file, named lookup: in each of its 400 inputs, rows without padding, by the" in said
    assert said.endswith("as run in float32")
    assert model.sha256 == model_sha256(interp.load("models/memorization/lookup/seed-0.safetensors"))
    interp.certify(interp.load("models/memorization/kgram/seed-0.safetensors", dtype="float64")).evidence(
        tmp_path / "k.json"
    )
    evidence = json.loads((tmp_path / "k.json").read_text())
    assert "but exactly 22" in check.check(evidence)[1]
    faulty(evidence, claim__domain__errors=evidence["claim"]["domain"]["errors"][1:])
    faulty(evidence, parts=evidence["parts"][1:])


ERRORS = [(0, 1), (1, 15), (2, 65), (4, 4)]


@pytest.mark.slow
def test_trained_max_of_k_errs_on_85_of_16_million(tmp_path):
    """A compact proof. The errors are those that an enumeration of the small numbers finds."""
    model = interp.load("models/algorithmic/max-of-k/seed-0.safetensors", dtype="float64")
    path = tmp_path / "proof.json"
    given = Certificate(
        model.spec.id, "refuted", 1 - 85 / 64**4, 64**4, -14.0, "0 0 0 0 =", "every multiset", "all", 0.0,
        rounding=1e-7, n_errors=85, source=MadeBy(model, "every multiset", {}, write_evidence),
    )  # fmt: skip
    numbers = torch.cartesian_prod(*[torch.arange(6)] * 4)
    wrong = model.predict(model.task.of_numbers(numbers).tokens) != numbers.amax(1)
    largest = numbers.amax(1)[wrong]
    assert [(int(m), int((largest == m).sum())) for m in largest.unique()] == ERRORS
    given.evidence(path)
    done = run_checker(path)
    assert done.returncode == 0, done.stdout
    assert "for all 64^4 inputs but exactly 85" in done.stdout
    faulty(json.loads(path.read_text()), claim__domain__errors=[[0, 1], [1, 15], [2, 65]])
    with pytest.raises(InterpError, match="counts 84 errors, its evidence 85"):
        replace(given, n_errors=84).evidence(path)


@pytest.mark.slow
def test_learned_recognizers_hold_with_their_errors(tmp_path):
    """Layer norm, biases and neurons; the strings that are wrong are counted by their length."""
    model = interp.load("models/languages/parity-learned/seed-0.safetensors", dtype="float64")
    found = interp.certify(model, longest=6)
    evidence = written(found, tmp_path)
    _, said, _ = check.check(evidence)
    errors = evidence["claim"]["domain"]["errors"]
    table = found.tables["lengths"]
    assert errors == [[n, w] for n, w in zip(table["length"], table["wrong"]) if w]
    assert f"but exactly {found.n_errors}, on which it errs" in said
    faulty(evidence, claim__domain__errors=errors[1:])
    for by in ("string", "average"):  # the same claim in another way, or none
        changed = copy.deepcopy(evidence)
        changed["claim"]["domain"]["by"] = by
        if by == "string":
            assert check.check(changed)[1] == said
        else:
            assert "alike" in faulty(changed)


@pytest.mark.slow
def test_too_many_strings_to_check_singly_end_earlier(tmp_path, monkeypatch):
    model = interp.load("languages/palindrome-learned/seed-0", dtype="float64")
    certificate = interp.certify(model, longest=4)
    monkeypatch.setattr(evidence_strings, "MOST_WORK", evidence_parts.work(model, 16, 5))
    found = check.check(written(certificate, tmp_path))[1]
    assert found.startswith("palindrome: right on every string of 1 to 3 symbols, 14 strings, rows without padding but")
    monkeypatch.setattr(evidence_strings, "MOST_WORK", 0)
    one = check.check(written(certificate, tmp_path))[1]
    assert one.startswith("palindrome: right on every string of 1 to 1 symbols, 2 strings, rows without padding but")


@pytest.mark.slow
def test_refuted_models_show_an_input_on_which_they_err(tmp_path):
    model = interp.load("models/histogram/dot/seed-0.safetensors", dtype="float64")
    evidence = written(interp.certify(model, seconds=0.05), tmp_path)
    tokens, reads = evidence["parts"][0]
    assert (
        "answers are wrong in 1 chosen inputs, rows without padding, and nothing is said of any other"
        in (check.check(evidence)[1])
    )
    said = model.predict(torch.tensor([tokens]))[0].tolist()
    wrong = [place for place, (right,) in reads if said[place] != right]  # classes are counts, less 0
    assert evidence["claim"]["domain"]["errors"] == [[0, place] for place in wrong]
    assert wrong


class Listed(Majority):
    """The same of four letters, all of whose inputs it lists."""

    name, counted, n_inputs = "own-listed", (), 16

    def inputs(self, chunk: int = 4096) -> Iterator[interp.Batch]:
        rows = torch.tensor([[3, *word, 4] for word in product((0, 1), repeat=4)])
        for part in rows.split(chunk):
            yield self.batch(part)


@pytest.mark.parametrize("task", [Majority(), Listed()], ids=["counts", "inputs"])
def test_a_task_of_a_users_own(tmp_path, task):
    """A box of counts, and a table of all inputs: the labels travel along as a rule, or as a table with its hash."""
    layer = {"d_head": 4, "mlp": {"d_mlp": 5}} if isinstance(task, Listed) else {"d_head": 4}
    plain = {"task": {"name": task.name}, "d_model": 4, "layers": [layer], "readout_at": "?", "dtype": "float64"}
    model = interp.TaskModel(interp.ModelSpec.from_dict(plain), task, seed=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)
    found = interp.certify(model)
    evidence = written(found, tmp_path)
    _, said, _ = check.check(evidence)
    assert evidence["claim"]["kind"] == ("inputs" if isinstance(task, Listed) else "counts")
    assert f"exactly {found.n_errors}" in said
    faulty(evidence, claim__domain__errors=[])
    other = copy.deepcopy(evidence)
    if isinstance(task, Listed):  # another label is another table
        other["parts"][5][1][0][1] = [1 - other["parts"][5][1][0][1][0]]
    else:  # the other letter is counted first
        other["claim"]["domain"]["counted"] = [0, 1, 2]
    with pytest.raises(check.Fault):
        check.check(other)


def test_too_many_inputs_and_none_known_to_be_wrong_are_refused(tmp_path):
    model = interp.load("models/algorithmic/brackets/seed-0.safetensors")
    given = Certificate(model.spec.id, "certified", 1.0, 131070, 1.0, None, "every input, as run", "all", 0.0,
                        source=MadeBy(model, "every input, as run", {}, write_evidence))  # fmt: skip
    with pytest.raises(UnsupportedError, match="too many for the checker"):
        given.evidence(tmp_path / "proof.json")


def test_an_unknown_number_format_leaves_a_claim_about_the_reals(tmp_path):
    """It was a KeyError."""
    task = Listed()
    plain = {"task": {"name": task.name}, "d_model": 4, "layers": [{"d_head": 4}], "readout_at": "?"}
    model = interp.TaskModel(interp.ModelSpec.from_dict(plain), task, seed=3, dtype="float16")
    evidence = written(interp.certify(model), tmp_path)
    _, said, _ = check.check(evidence)
    assert evidence["claim"]["format"] == "reals"
    assert "the same as run" not in said
