"""Evidence forged by hand: false claims in true form, each of which a checker might believe for a reason of its own."""

from __future__ import annotations

import copy
import gzip
import json
import sys
from pathlib import Path

import edits
import pytest
import torch

import interp
from interp.architecture.task_model import TaskModel
from interp.spec import ModelSpec

sys.path.insert(0, str(Path(__file__).parent))
import attacks
import vandals

check = attacks.check
sys.path.pop(0)


def refused(evidence) -> str:
    with pytest.raises(check.Fault) as fault:
        check.check(evidence)
    assert not str(fault.value).startswith("the claim says"), "only the sentence was wrong"
    return str(fault.value)


@pytest.fixture(scope="module")
def minimal(tmp_path_factory):
    path = tmp_path_factory.mktemp("forged") / "proof.json"
    return json.loads(interp.certify("count01/minimal").evidence(path).read_text())


def changed(evidence, **values):
    """Its name and hash mended, so that nothing but the claim is wrong."""
    found = edits.changed(evidence, **values)
    vandals.mend_name(found)
    vandals.mend_hash(found)
    return found


def table_of(model, rows, form="reals", margin=2.0**-40, read=None):
    evidence = attacks.evidence_of(model, "inputs", {"read": read, "errors": []}, rows, margin, form)
    return evidence


def one_layer(**more):
    plain = {"task": {"name": "kgram"}, "d_model": 2, "layers": [{"d_head": 2}], "readout_at": "last",
             "readout_bias": False, "dtype": "float64"}  # fmt: skip
    return TaskModel(ModelSpec.from_dict(plain | more), seed=0, dtype="float64")


def test_an_average_of_normalized_rows_is_not_decided_by_counts():
    """With a layer norm before attention the value of a 1 depends on where it stands: no string stands for others."""
    layer = {"d_head": 2, "norm": "pre"}
    plain = {"task": {"name": "parity"}, "d_model": 4, "layers": [layer], "direction": "bidirectional",
             "positions": "fraction", "readout": "scalar", "decision": "sigmoid", "readout_at": "[CLS]",
             "readout_bias": False, "dtype": "float64"}  # fmt: skip
    model = TaskModel(ModelSpec.from_dict(plain), seed=0, dtype="float64")
    with torch.no_grad():
        model.blocks[0].attn.W_Q.zero_()
        for parameter in (model.embed.W_E, model.blocks[0].attn.W_V, model.blocks[0].attn.W_O, model.unembed.W_U):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    outs = model(model.task.enumerate(4).tokens)[:, 0, 0]
    ones = model.task.enumerate(4).tokens[:, 1:].eq(1).sum(1)
    assert any(outs[ones == n].std() > 1e-6 for n in (1, 2, 3))
    domain = {"longest": 4, "by": "average", "errors": []}
    assert "not linear" in refused(attacks.evidence_of(model, "strings", domain, [], 1e-9, "reals"))


@pytest.mark.parametrize("name", ["parity: right on every string of 1 to 64 symbols", "a\nholds: b", "", 5, "\ud800"])
def test_a_name_that_reads_like_a_claim_is_no_name(minimal, name):
    assert "letters" in refused(changed(minimal, spec__task__name=name))


@pytest.mark.parametrize("size", [3.3e38, 2e39, 1e300])
def test_weights_that_overflow_where_the_reals_do_not(size):
    """Zero times such a weight is 0, and nan where it is no float32 number."""
    model = one_layer()
    with torch.no_grad():
        model.embed.W_E[:, 1] = 0
        model.unembed.W_U[1] = size
    rows = [[[0, 1], [[1, [int(model(torch.tensor([[0, 1]]))[0, 1].argmax())]]]]]
    refused(table_of(model, rows, "float32"))
    refused(changed(table_of(model, rows), claim__margin="0x1p+900"))


def test_a_mean_overflows_where_a_variance_does_not():
    model = one_layer(layers=[{"d_head": 2, "norm": "pre"}])
    with torch.no_grad():
        model.embed.W_E.fill_(2.0**125)
    rows = [[[0, 1], [[1, [0]]]]]
    assert "overflow" in refused(table_of(model, rows, "float32", read=None))


def test_huge_tensors_and_files_are_refused_before_they_are_made(minimal, tmp_path):
    bomb = tmp_path / "bomb.json.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        for _ in range(66):
            file.write(b" " * (1 << 20))
    with pytest.raises(check.Fault, match="more than"):
        check.read(str(bomb))
    name = next(iter(minimal["weights"]))
    forged = copy.deepcopy(minimal)
    forged["weights"][name]["shape"] = [1 << 24] * 1000
    assert "axes" in refused(forged)


@pytest.mark.parametrize(
    "domain",
    [
        {"counted": [1, 2, 2]}, {"counted": [1, 2, 4]}, {"marks": [0]}, {"marks": [0, 0, 4]}, {"answers": [6, 5]},
        {"answers": [5, 5]}, {"read": 0}, {"read": True}, {"box": [[151, 200], [151, 200], [200, 0]]},
        {"box": [[151, 200.0], [151, 200], [0, 200]]}, {"counted": [2, 1, 3]}, {"marks": [0, 4, 7]},
    ],
)  # fmt: skip
def test_what_count01_counts_is_not_the_files_to_say(minimal, domain):
    forged = copy.deepcopy(minimal)
    forged["claim"]["domain"] |= domain
    refused(forged)


def test_answers_are_read_where_the_spec_reads_them(minimal):
    for at in ("all", "first", "last", "5"):
        assert "Count01 has other" in refused(changed(minimal, spec__readout_at=at))
    model = one_layer()
    right = int(model(torch.tensor([[0, 1]]))[0, 0].argmax())
    for place, read in ((0, None), (0, 0), (1, 0), (1, 1.0), (1, True)):
        refused(table_of(model, [[[0, 1], [[place, [right]]]]], read=read))


def test_labels_are_some_outputs_and_not_all(tmp_path):
    model = one_layer()
    every = list(range(model.unembed.W_U.shape[1]))
    for answers in (every, [], [0, 0], [1, 0], [-1], [len(every)], [True], [0.0]):
        refused(table_of(model, [[[0, 1], [[1, answers]]]]))
    for rows in ([], [[[], [[0, [0]]]]], [[[0, 1], []]], [[[0, 99], [[1, [0]]]]], [[[0, -1], [[1, [0]]]]]):
        refused(table_of(model, rows))
    right = int(model(torch.tensor([[0, 1]]))[0, 1].argmax())
    row = [[0, 1], [[1, [right]]]]
    assert "twice" in refused(table_of(model, [row, row]))


def test_strings_of_a_class_must_be_alike():
    model = interp.build("languages/parity")  # i / n and (-1)^i tell positions apart
    for by in ("class", "nothing", 1):
        domain = {"longest": 3, "by": by, "errors": []}
        refused(attacks.evidence_of(model, "strings", domain, [], 1e-9, "reals"))
    for longest in (0, -1, 10**6, 3.0, True):
        domain = {"longest": longest, "by": "average", "errors": []}
        refused(attacks.evidence_of(model, "strings", domain, [], 1e-9, "reals"))


def test_parts_that_overlap_or_leave_a_hole(minimal):
    """The three parts are [cut, rest, rest]: a cut outside, an axis that is none, a zone without inputs."""
    cut, *rest = minimal["parts"]
    for parts in ([[3, 10**5], *rest], [[4, 0], *rest], [[-1, 0], *rest], [[3, 0.0], *rest], [cut, cut, *rest, None],
                  [None], [cut, None], [cut, None, None, None], [], [cut, 5, 6], [cut, True, None]):  # fmt: skip
        refused({**minimal, "parts": parts})
