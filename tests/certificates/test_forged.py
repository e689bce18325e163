"""Evidence forged by hand: false claims in true form, each of which a checker might believe for a reason of its own."""

import copy
import gzip
import json
import os
import sys
from itertools import product

import attacks
import edits
import pytest
import torch
import vandals
from drawn_weights import set_to_zero

import interp
from interp.models.architecture.sequence import sequence_inputs, sequence_logits

check = attacks.check


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
    return attacks.evidence_of(model, "inputs", {"read": read, "errors": []}, rows, margin, form)


def one_layer(**more):
    plain = {"task": {"name": "kgram"}, "d_model": 2, "layers": [{"d_head": 2}], "readout_at": "last",
             "readout_bias": False, "dtype": "float64"}  # fmt: skip
    return interp.TaskModel(interp.ModelSpec.from_dict(plain | more), seed=0, dtype="float64")


def test_an_average_of_normalized_rows_is_not_decided_by_counts():
    """With a layer norm before attention the value of a 1 depends on where it stands: no string stands for others."""
    layer = {"d_head": 2, "norm": "pre"}
    plain = {"task": {"name": "parity"}, "d_model": 4, "layers": [layer], "direction": "bidirectional",
             "positions": "fraction", "readout": "scalar", "decision": "sigmoid", "readout_at": "[CLS]",
             "readout_bias": False, "dtype": "float64"}  # fmt: skip
    model = interp.TaskModel(interp.ModelSpec.from_dict(plain), seed=0, dtype="float64")
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
    assert "overflow" in refused(table_of(model, [[[0, 1], [[1, [0]]]]], "float32", read=None))


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


@pytest.mark.parametrize("domain", [
    {"counted": [1, 2, 2]}, {"counted": [1, 2, 4]}, {"marks": [0]}, {"marks": [0, 0, 4]}, {"answers": [6, 5]},
    {"answers": [5, 5]}, {"read": 0}, {"read": True}, {"box": [[151, 200], [151, 200], [200, 0]]},
    {"box": [[151, 200.0], [151, 200], [0, 200]]}, {"counted": [2, 1, 3]}, {"marks": [0, 4, 7]},
])  # fmt: skip
def test_what_count01_counts_is_not_the_files_to_say(minimal, domain):
    forged = copy.deepcopy(minimal)
    forged["claim"]["domain"] |= domain
    refused(forged)


NONSENSE = (-1, 7, 10**400, 0.5, "", "=", "0x1p+0", [], [0], {"a": 1}, {"": True}, {"qk": True})
SPEC_FIELDS = sorted(set(check.weights.SPEC) - {"origin", "n_out"})  # where it comes from; its own shape
LAYER_FIELDS = sorted(check.weights.LAYER)


@pytest.mark.parametrize("name", [*SPEC_FIELDS, *LAYER_FIELDS])
@pytest.mark.thinned(3)
def test_no_field_holds_nonsense_where_nothing_reads_it(minimal, name):
    """A reader of the spec sees no value that the model does not have, wherever it changes nothing."""
    (layer,) = minimal["spec"]["layers"]
    fitting = {"readout_at": ["="], "log_length": [7], "scale": [0.5], "norm_eps": [0.5], "n_heads": [7]}
    for value in NONSENSE:
        if value not in fitting.get(name, []):
            more = {"layers": [{**layer, name: value}]} if name in LAYER_FIELDS else {name: value}
            refused(changed(minimal, spec={**minimal["spec"], **more}))


@pytest.mark.parametrize("name", ["\ud800", "embed W_E", "W\u00e9", ""])
def test_tensors_have_plain_names(minimal, name):
    weights = dict(minimal["weights"])
    weights[name] = weights.pop("embed.W_E")
    assert "not a tensor's name" in refused({**minimal, "weights": weights})


def test_a_number_that_no_float_holds_is_refused(minimal):
    assert "is cut when it is read" in refused(changed(minimal, claim__margin="0x1.8p-1075"))


def test_a_task_without_parameters_has_none(minimal):
    assert "has the parameters" in refused(changed(minimal, spec__task__parameters={"tie": "4"}))


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


# ---------------------------------------------------------------- what a format does beside the inputs themselves


def in_float32_alone(model, tokens):
    with torch.no_grad():
        return attacks.in_float32(model)(tokens)


def test_what_an_average_does_not_look_at_may_overflow():
    """0 times an infinite key is not a number, and an average of layer 1 never asks for a key."""
    model = interp.build("languages/one")
    with torch.no_grad():
        model.blocks[0].attn.W_K.fill_(2.0**126)
        for component in range(3):
            model.embed.W_E[:, component] *= 4
            model.blocks[0].attn.W_V[:, component] /= 4
            model.blocks[0].mlp.W_in[component] /= 4
    assert in_float32_alone(model, model.task.enumerate(3).tokens)[:, 0].isnan().all()
    domain = {"longest": 3, "by": "average", "errors": []}
    assert "overflow" in refused(attacks.evidence_of(model, "strings", domain, [], 0.02, "float32"))


def test_what_stands_later_in_a_row_may_overflow():
    """A causal query does not see it, and 0 times its infinite value is not a number."""
    model = one_layer(readout_at="all")
    with torch.no_grad():
        model.blocks[0].attn.W_Q.zero_()
        model.blocks[0].attn.W_V.copy_(torch.tensor([[[1.0, 0.0], [0.0, 2.0**100]]]))
        model.embed.W_E.copy_(torch.tensor([1.0, 0.0]).expand(10, 2))
        model.embed.W_E[9, 1] = 2.0**60
        model.unembed.W_U.zero_()[0, 0] = 1
    assert in_float32_alone(model, torch.tensor([[0, 9]])).isnan().any()
    assert "overflow" in refused(table_of(model, [[[0, 9], [[0, [0]]]]], "float32", 0.1))


def test_a_normalized_row_may_overflow_before_it_is_read():
    model = one_layer(d_model=32, final_norm="layer_norm")
    with torch.no_grad():
        set_to_zero(model)
        model.embed.W_E[:, 0] = 32
        model.ln_final.w[0] = 2.0**126
        model.unembed.W_U[0, :2] = torch.tensor([2.0**-42, -(2.0**-42)])
    assert in_float32_alone(model, torch.tensor([[0, 9]])).isinf().any()
    assert "overflow" in refused(table_of(model, [[[0, 9], [[1, [0]]]]], "float32", 1.0))


COUNTED = {"counted": [1, 2, 3], "marks": [0, 4], "read": 4, "answers": [5, 6]}


def counter(**layer):
    """Outputs 5 and 6 are plus and minus (n1 - n0 - 1/2) / n in component 3; component 2 marks [EOS]."""
    spec = {"task": {"name": "count01"}, "d_model": 4, "layers": [{"d_head": 4, "scale": 1.0, **layer}],
            "readout_at": "=", "dtype": "float64"}  # fmt: skip
    model = interp.TaskModel(interp.ModelSpec.from_dict(spec), seed=0, dtype="float64")
    with torch.no_grad():
        set_to_zero(model)
        model.embed.W_E[[1, 2, 4], 0] = torch.tensor([-1.0, 1.0, -0.5], dtype=torch.float64)
        model.embed.W_E[:, 1] = 1
        model.embed.W_E[7, 2] = 1
        model.unembed.b_U[[0, 1, 2, 3, 4, 7]] = -9
    return model


def of_counts(model, margin):
    domain = {"box": [[1, 3], [1, 3], [0, 2]], **COUNTED, "errors": []}
    return attacks.evidence_of(model, "counts", domain, [[3, 0], None, None], margin, "float32")


def sentences(model):
    counts = torch.cartesian_prod(torch.arange(1, 4), torch.arange(1, 4), torch.arange(3))
    return model.task.sentences(counts), torch.where(counts[:, 1] > counts[:, 0], 5, 6)


def test_a_token_that_is_not_counted_may_overflow():
    """[EOS] fills up rows behind '=', where nobody looks at it."""
    model = counter()
    attn = model.blocks[0].attn
    with torch.no_grad():
        attn.W_V[0, 0, 0], attn.W_O[0, 0, 3] = 2.0**10, 2.0**-10
        model.unembed.W_U[3, 5:7] = torch.tensor([1.0, -1.0])
        check.check({**(plain := of_counts(model, 1e-3)), "claim": said_right(plain)})
        model.embed.W_E[7, 0] = 2.0**120
    batch, labels = sentences(model)
    assert not (attacks.in_float32(model).predict(batch.tokens) == labels).any()
    assert "overflow" in refused(of_counts(model, 1e-3))


def said_right(evidence):
    """Its claim with the sentence that the checker asks for."""
    with pytest.raises(check.Fault) as fault:
        check.check(evidence)
    return {**evidence["claim"], "sentence": str(fault.value).split("the checked sentence is ")[1].strip("'")}


def test_a_value_may_vanish_beside_a_token_that_is_not_counted():
    """A forward on counts takes weights relative to the largest score of all tokens; e^-50 times 2^-100 is 0."""
    model = counter(value_output="identity")
    attn = model.blocks[0].attn
    with torch.no_grad():
        attn.W_Q[0, 1, 0], attn.W_K[0, 2, 0] = 50, 1
        model.embed.W_E[[1, 2, 4], 0] *= 2.0**-100
        model.embed.W_E[4, 0] = 0
        model.embed.W_E[0, 0] = -(2.0**-101)
        model.unembed.W_U[0, 5:7] = torch.tensor([1.0, -1.0])
        model.unembed.b_U *= 2.0**-100
    batch, labels = sentences(model)
    places = (batch.tokens == 4).int().argmax(1)
    assert (in_float32_alone(model, batch.tokens)[range(27), places].argmax(1) == labels).all()
    assert (attacks.in_float32(model).predict(batch.tokens) != labels).any()
    assert "rounding" in refused(of_counts(model, 2.0**-105))


# ---------------------------------------------------------------- files, lines and words


def killed(items):
    os._exit(9)


def test_a_process_that_is_killed_proves_nothing(minimal, monkeypatch):
    assert check.check(minimal, 2)[1] == minimal["claim"]["sentence"]
    monkeypatch.setattr(check.verdict, "_do", killed)
    with pytest.raises(check.Fault, match="nothing was proved"):
        check.check(minimal, 2)


def test_no_line_of_a_hostile_file_says_that_something_holds(minimal, tmp_path, capsys, monkeypatch):
    path = tmp_path / "proof.json"
    lie = "x\nholds: everything\r\u2028holds: \x1b[2K"
    for forged in (changed(minimal, spec__positions=lie), {**minimal, lie: 1},
                   {**minimal, "weights": {**minimal["weights"], lie: {"shape": [1], "values": [0]}}},
                   {**minimal, "weights": {**minimal["weights"], lie: {}}}):  # fmt: skip
        path.write_text(json.dumps(forged))
        monkeypatch.setattr(sys, "argv", ["check", str(path)])
        assert check.main() == 1
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith("DOES NOT HOLD")
        assert "\x1b" not in line


def test_a_torn_gzip_is_refused_in_a_sentence(minimal, tmp_path):
    data = gzip.compress(json.dumps(minimal).encode())
    for at in range(12, len(data), 40):
        (tmp_path / "torn.json.gz").write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        with pytest.raises(check.Fault):
            check.check(check.read(str(tmp_path / "torn.json.gz")))


def test_a_checkpoint_of_another_architecture_is_no_witness(tmp_path):
    """The same tensors with another scale are another model, and the file says which it is."""
    file = tmp_path / "model.safetensors"
    model = interp.build("count01/minimal")
    interp.save(model, file)
    evidence = attacks.evidence_of(model, "inputs", {"read": 4, "errors": []}, [[[0, 2, 4], [[2, [5]]]]], 1e-9, "reals")
    check.compare_checkpoint(the_model(evidence), str(file))
    for values in ({"spec__layers": [{**evidence["spec"]["layers"][0], "scale": 0.5}]}, {"spec__direction": "causal"}):
        forged = changed(evidence, **values)
        with pytest.raises(check.Fault, match="what the evidence does not"):
            check.compare_checkpoint(the_model(forged), str(file))
    (tmp_path / "large.safetensors").write_bytes(file.read_bytes() + bytes(check.reading.MAX_BYTES))
    with pytest.raises(check.Fault, match="more than"):  # or its hash would be that of its beginning
        check.compare_checkpoint(the_model(evidence), str(tmp_path / "large.safetensors"))


def the_model(evidence):
    return check.Model(*(evidence[name] for name in ("spec", "weights", "model", "weights_sha256")), check.REALS)


@pytest.mark.parametrize("values", [{"spec__readout_at": ["="]}, {"spec__readout_at": None}, {"spec__tolerance": "1"}])
def test_fields_of_another_type_are_refused_in_a_sentence(minimal, values):
    refused(changed(minimal, **values))


def test_a_table_says_whose_answers_it_counts():
    """Answers of a table are the file's word, and may be few, or all outputs but one."""
    model = one_layer(readout_at="all")
    every = range(model.unembed.W_U.shape[1])
    worst = int(model(torch.tensor([[0, 1]]))[0, 1].argmin())
    evidence = table_of(model, [[[0, 1], [[1, [j for j in every if j != worst]]]]], margin=2.0**-60)
    said = said_right(evidence)["sentence"]
    assert f"by the 1 answers that it gives, up to {len(every) - 1} outputs for one" in said


def test_what_cancels_before_a_product_need_not_cancel_after_it():
    """Token and position cancel in the stream; a forward that looks up their products with a matrix rounds both."""
    model = one_layer(d_model=64, layers=[{"d_head": 64}], positions="learned", max_length=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
        model.blocks[0].attn.W_Q.zero_()
        model.embed.W_E.copy_((model.embed.W_E[:1] * 1000).float())
        model.pos_embed.W_pos.copy_(-model.embed.W_E[:2])
        model.pos_embed.W_pos[:, 0] += 2.0**-10
        model.pos_embed.W_pos.copy_(model.pos_embed.W_pos.float())
    tokens = torch.tensor([[0, 0]])
    tensors = {name: p.detach()[None] for name, p in attacks.in_float32(model).named_parameters()}
    inputs = sequence_inputs(model.spec, model.task, tokens[None], torch.tensor([[[1]]]))
    run = sequence_logits(model.spec, tensors, inputs)[0, 0, 0].tolist()
    evidence = table_of(model, [], "float32")
    names = ("spec", "weights", "model", "weights_sha256")
    checked = check.Model(*(evidence[name] for name in names), check.FORMATS["float32"]).forward([0, 0], [1])[0]
    for x, mid, rad, err in zip(run, *checked):
        assert abs(x - mid / check.ONE) <= (rad + err) / check.ONE


# ---------------------------------------------------------------- whose word the labels are


KNOWN = {
    "histogram": lambda: interp.build("histogram/dot-exact", T=3, L=2),
    "max-of-k": lambda: interp.build("algorithmic/max-of-k-exact", K=2, v=3),
    "modular-addition": lambda: interp.build("algorithmic/modular-addition-fourier", p=3, frequencies="1"),
    "first": lambda: interp.build("languages/first"),
}


def rows_of_task(name):
    """Every input of a small domain with its right outputs, by hand."""
    if name == "histogram":
        return [[list(w), [[i, [w.count(t) - 1]] for i, t in enumerate(w)]] for w in product(range(3), repeat=2)]
    if name == "first":
        words = [list(w) for n in (1, 2, 3) for w in product((0, 1), repeat=n)]
        return [[[2, *w], [[0, [w[0]]]]] for w in words]
    answer = max if name == "max-of-k" else lambda w: sum(w) % 3
    return [[[*w, 3], [[2, [answer(w)]]]] for w in product(range(3), repeat=2)]


def whole_table(name, model=None, rows=None, errors=()):
    read = {"max-of-k": 3, "modular-addition": 3, "first": 2}.get(name)
    found = KNOWN[name]() if model is None else model
    evidence = table_of(found, rows_of_task(name) if rows is None else rows, margin=2.0**-30, read=read)
    evidence["claim"]["domain"]["errors"] = [list(pair) for pair in errors]
    return evidence


SENTENCES = {
    "histogram": "histogram: right at every position of all 3^2 sequences, 9 inputs, rows without padding",
    "max-of-k": "max-of-k: right for all 3^2 inputs, 9 inputs, rows without padding",
    "modular-addition": "modular-addition: right for all 3^2 inputs, 9 inputs, rows without padding",
    "first": "first: right on every string of 1 to 3 symbols, 14 inputs, rows without padding",
}


@pytest.mark.parametrize("name", KNOWN)
def test_labels_of_a_known_task_are_the_checkers(name):
    plain = whole_table(name)
    assert said_right(plain)["sentence"].startswith(SENTENCES[name])
    forged = copy.deepcopy(plain)  # another label, on which the model errs: the file may not say so
    answers = forged["parts"][0][1][0][1]
    answers[0] = 1 - answers[0]
    forged["claim"]["domain"]["errors"] = [[0, forged["parts"][0][1][0][0]]]
    assert "not what the file says" in refused(forged)
    several = copy.deepcopy(plain)
    several["parts"][0][1][0][1] = [0, 1]
    assert "not what the file says" in refused(several)


@pytest.mark.parametrize("name", KNOWN)
def test_a_part_of_a_known_domain_is_called_chosen(name):
    said = said_right(whole_table(name, rows=rows_of_task(name)[1:]))["sentence"]
    assert "right" not in said
    assert "answers are wrong in" in said
    assert "nothing is said of any other input" in said


def test_a_position_left_out_is_refused():
    rows = rows_of_task("histogram")
    rows[4] = [rows[4][0], rows[4][1][:1]]
    assert "not what the file says" in refused(whole_table("histogram", rows=rows))


@pytest.mark.parametrize(("name", "row"), [("histogram", [0]), ("histogram", [0, 1, 2]), ("max-of-k", [0, 3, 3]),
                                           ("max-of-k", [1, 3]), ("first", [2]), ("first", [2, 2, 0]),
                                           ("modular-addition", [3, 3, 3])])  # fmt: skip
def test_what_is_no_input_of_a_known_task_is_refused(name, row):
    rows = rows_of_task(name)
    rows[0] = [row, [[len(row) - 1 if name != "first" else 0, [0]]]]
    assert "row" in refused(whole_table(name, rows=rows))


def test_tokens_after_the_place_read_are_not_part_of_an_input():
    """A bidirectional model sees it: with one more token of the file's choice it would be called wrong, or right."""
    spec = {"task": {"name": "count01"}, "direction": "bidirectional", "readout_at": "="}
    model = one_layer(**spec)
    for tail, fault in (([], ""), ([5], "is not [BOS], symbols"), ([4, 1], "is not [BOS], symbols")):
        row = [0, 1, 2, 4, *tail]
        said = int(model(torch.tensor([row]))[0, 3].argmax())
        evidence = table_of(model, [[row, [[3, [6]]]]], read=4, margin=2.0**-60)
        evidence["claim"]["domain"]["errors"] = [] if said == 6 else [[0, 3]]
        with pytest.raises(check.Fault) as found:
            check.check(evidence)
        assert fault in str(found.value)
        assert fault or str(found.value).startswith("the claim says")


@pytest.mark.parametrize("name", ["Count01", "histograms", "Histogram", "count-01", "max-of-K", "parity2"])
def test_a_name_close_to_a_known_one_gets_the_weaker_sentence(minimal, name):
    """Count01 with the answers swapped held: "Count01: at token 4 ... the largest output is 6 where n1 > n0"."""
    said = said_right(changed(minimal, spec__task__name=name))["sentence"]
    assert said.startswith(f"agrees with the rule that came with this file, named {name}: ")
    table = attacks.of_a_stranger(whole_table("histogram"))
    table["spec"]["task"]["name"] = name
    vandals.mend_name(table)
    assert said_right(table)["sentence"].startswith("agrees with the table of labels of SHA-256 ")


def test_an_untrained_model_is_not_right_by_labels_of_its_own():
    """The attack: every label is what the model answers."""
    model = interp.TaskModel(KNOWN["histogram"]().spec, seed=5, dtype="float64")
    generator, rows = torch.Generator().manual_seed(5), rows_of_task("histogram")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        for tokens, reads in rows:
            said = model(torch.tensor([tokens]))[0].argmax(-1).tolist()
            for item in reads:
                item[1] = [said[item[0]]]
    assert "not what the file says" in refused(whole_table("histogram", model, rows))


@pytest.mark.parametrize("changes", [
    {"spec__layers__0__scale": 0.5}, {"spec__direction": "causal"}, {"spec__dtype": "float32"},
])  # fmt: skip
def test_one_hash_binds_spec_and_weights(minimal, changes):
    """PALINDROME with another scale held under the hash of the same tensors."""
    forged = copy.deepcopy(minimal)
    for path, value in changes.items():
        *outer, last = [int(part) if part.isdigit() else part for part in path.split("__")]
        owner = forged
        for part in outer:
            owner = owner[part]
        owner[last] = value
    vandals.mend_name(forged)
    assert the_model(forged).sha256 != the_model(minimal).sha256
    weights = copy.deepcopy(minimal)
    name = next(iter(weights["weights"]))
    weights["weights"][name]["values"][0] = (3.5).hex()
    vandals.mend_hash(weights)
    assert the_model(weights).sha256 != the_model(minimal).sha256


def test_the_last_line_stands_for_itself(minimal, tmp_path, capsys, monkeypatch):
    """Premise and kind first; last the sentence, whose word it is, and of which spec and weights it is true."""
    path = tmp_path / "proof.json"
    stranger = attacks.of_a_stranger(whole_table("first"))
    stranger["claim"] = said_right(stranger)
    for evidence, first in ((minimal, "holds: count01: at"), (stranger, "agrees with the table of labels of SHA-256 ")):
        path.write_text(json.dumps(evidence))
        monkeypatch.setattr(sys, "argv", ["check", str(path)])
        assert check.main() == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(f"kind: {evidence['claim']['kind']}; over the reals: nothing is assumed")
        assert lines[-1].startswith(first)
        assert lines[-1].endswith(f"of SHA-256 {the_model(evidence).sha256}")
    assert "in a number format: nothing is claimed, and rounding is not bounded" in lines[0]
    assert not any("below 0" in line for line in lines)


def test_a_task_has_a_name_and_four_fields_at_most():
    task = {"name": "lookup", "parameters": {}, "data_seed": 1, "table_sha256": "0" * 64}
    for given, said in ((task, "the model is called"), ({"name": "one"}, "the model is called"),
                        ({**task, "more": 1}, "must name a task"), ({"data_seed": 1}, "must name a task")):  # fmt: skip
        spec = {"task": given, "d_model": 2, "layers": [{"d_head": 2}]}
        with pytest.raises(check.Fault, match=said):
            check.weights.ModelWeights(spec, {}, "another name", "", None)
