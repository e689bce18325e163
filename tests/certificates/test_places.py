"""Certificates by places and states: right adders on all 10^20 pairs, wrong ones with exact numbers, refusals."""

import copy
import math

import numpy as np
import pytest
import torch
from small_adders import adder, compare, exact, truth

import interp
from interp.certificates import certificate, places_search, probes
from interp.certificates.certify import CONVERTED, converted_subject
from interp.certificates.places import certify_places
from interp.certificates.places_search import Proof
from interp.certificates.places_sets import Bounds, Sight
from interp.certificates.probes import Mismatch
from interp.errors import InterpError, UnsupportedError
from interp.families.algorithmic import Addition, ModularAddition
from interp.models.architecture.stock import refusal
from interp.models.lens import HookedTransformer, config, config_fields, quiet_construction
from interp.models.subject import Subject
from interp.tasks.automata import declared

PAIRS = 10**8


def without_nines(digits: int) -> int:
    """Pairs of numbers in whose sum no digit is 9, counted by Python with the carry as the state."""
    ways = {0: 1}
    for _ in range(digits):
        after = dict.fromkeys((0, 1), 0)
        for carry, many in ways.items():
            for a in range(10):
                for b in range(10):
                    if (a + b + carry) % 10 != 9:
                        after[(a + b + carry) // 10] += many
        ways = after
    return sum(ways.values())


def certified(model: HookedTransformer, task: Addition, **options: float) -> interp.Certificate:
    words = {word: at for at, word in enumerate(task.answer_words)}
    return certify_places(converted_subject(Subject.external(model, task, outputs=words)), **options)


def test_a_right_adder_is_certified() -> None:
    task = Addition(digits=4)
    found = interp.certify(Subject.external(exact(task), task=task))
    assert found.status == "certified"
    assert found.n_inputs == PAIRS
    assert (found.accuracy, found.n_errors, found.n_answers) == (1.0, 0, 5 * PAIRS)
    assert 0.5 < found.worst_margin <= 0.8 + 1e-9  # by construction 1 - 2 * 0.1
    assert found.rounding < found.worst_margin
    assert "certified on 100,000,000 inputs" in str(found)
    assert found.tables["answers"]["right"].tolist() == [PAIRS] * 5


@pytest.mark.slow
def test_a_right_adder_is_certified_on_all_pairs_of_ten_digits() -> None:
    task = Addition(plus="0", equals="0")
    found = interp.certify(Subject.external(exact(task), task=task))
    assert "certified on 100,000,000,000,000,000,000 inputs (every input of task addition with" in str(found)
    assert found.n_errors == 0


@pytest.mark.parametrize("digits", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_wrong_pairs_are_counted_exactly(digits: int) -> None:
    task = Addition(digits=digits)
    model = exact(task)
    with torch.no_grad():
        model.unembed.b_U[9] = -1e4  # it never says 9
    found = certified(model, task)
    assert found.status == "refuted"
    wrong = 100**digits - without_nines(digits)
    assert found.tables["inputs"].iloc[0].tolist() == [100**digits, wrong, wrong]
    assert found.n_errors == sum(found.tables["answers"]["wrong"])
    assert f"inputs with a wrong answer: {wrong:,} of" in str(found)
    assert "right is 9" in str(found.counterexample)


@pytest.mark.slow
def test_a_model_that_is_read_by_another_name_is_the_same() -> None:
    """Other ids of tokens, more outputs than answers: one that is larger is a wrong answer."""
    task = Addition(digits=3)
    model = exact(task)
    turned = copy.deepcopy(model)
    order = torch.tensor([*range(9, -1, -1), 11, 10])
    with torch.no_grad():
        turned.embed.W_E.copy_(model.embed.W_E[order])
    ids = {word: int((order == at).nonzero()) for at, word in enumerate(task.vocabulary)}
    words = {word: at for at, word in enumerate(task.answer_words)}
    subject = Subject.external(turned, task, tokens=ids, outputs=words)
    assert certify_places(converted_subject(subject)).status == "certified"
    assert certify_places(converted_subject(Subject.external(turned, task, outputs=words))).status == "refuted"


@pytest.mark.slow
def test_an_output_that_is_not_an_answer_counts_if_largest() -> None:
    task = Addition(digits=3, base=5)
    old = exact(task)
    kept = ("n_layers", "d_model", "n_heads", "d_head", "n_ctx", "d_vocab", "d_mlp", "act_fn", "attn_scale")
    wider = config(**{name: getattr(old.cfg, name) for name in kept}, d_vocab_out=6, normalization_type=None)
    with quiet_construction():
        model = HookedTransformer(wider, move_to_device=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.zero_()
            source = dict(old.named_parameters())[name]
            parameter[tuple(map(slice, source.shape))] = source
        model.unembed.b_U[5] = -1e4
    found = certified(model, task)
    assert found.status == "certified"
    assert "the largest of all 6 outputs of the model, including 1 besides" in str(found)
    with torch.no_grad():
        model.unembed.b_U[5] = 1e4
    found = certified(model, task)
    assert found.status == "refuted"
    assert "an output that the task does not name" in str(found.counterexample)


@pytest.mark.slow
def test_what_is_left_open_is_an_interval() -> None:
    task = Addition(digits=4)
    found = certified(exact(task), task, seconds=0)
    assert found.status == "undecided"
    low, high = found.accuracy
    assert 0.99 < low < 1 == high  # from 2,048 random inputs, all of them right
    assert found.confidence == 0.999
    assert "are undecided" in str(found)


@pytest.mark.slow
def test_random_inputs_within_rounding_narrow_nothing(monkeypatch) -> None:
    """What is right as run may be wrong in exact arithmetic, which the proof is about, too."""
    task = Addition(digits=4)
    assert certified(exact(task), task, seconds=0).accuracy[0] > 0.99

    def nothing_known(read, rows, right) -> Bounds:
        ends = np.full(len(rows), 1e9)
        return Bounds(-ends, ends, -ends, ends)

    monkeypatch.setattr(places_search.ReadProof, "points", nothing_known)
    low, high = certified(exact(task), task, seconds=0).accuracy
    assert low < 0.5 < high == 1  # what is proved


def test_inputs_of_few_states_hold_long_chains_of_carries() -> None:
    """Six places in a row that add up to nine and carry on: about 1 of 200,000 random sums."""
    task = Addition(digits=10)
    (paths,) = declared(task)
    rows = paths.repeating(400)
    assert bool((paths.walk(rows) >= 0).all())
    first, second, _ = (rows[:, list(places)] for places in task.digit_places.tolist())
    nines = "".join("9" if total == 9 else "c" if total > 9 else "." for total in (first + second).flatten().tolist())
    assert sum("c999999" in nines[start : start + 10] for start in range(0, 4000, 10)) > 1


def test_a_small_budget_of_memory_cuts_a_batch_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Addition(base=3, digits=4)
    model = exact(task)
    (paths,) = declared(task)
    words = {word: at for at, word in enumerate(task.answer_words)}
    proof = Proof.of(converted_subject(Subject.external(model, task, outputs=words)), paths)
    rows, sizes = paths.draw(500), []
    right = proof.right(proof.reads[2].at)[paths.walk(rows)[:, proof.reads[2].after]]
    whole = proof.reads[2].points(rows, right)
    stream_of = Sight.stream_of
    monkeypatch.setattr(Sight, "stream_of", lambda one, cells: (sizes.append(len(cells)), stream_of(one, cells))[1])
    monkeypatch.setattr("interp.support.resources.MEMORY", 5e5)
    parts = proof.reads[2].points(rows, right)
    assert max(sizes) < 100
    np.testing.assert_allclose(parts.low, whole.low, rtol=1e-9)
    np.testing.assert_allclose(parts.own_high, whole.own_high, rtol=1e-9)


@pytest.mark.slow
def test_a_wrong_adder_is_refuted_before_any_set_is_parted() -> None:
    task = Addition()
    model = exact(task)
    with torch.no_grad():
        model.unembed.b_U[9] = -1e4
    found = certified(model, task, seconds=0)
    assert found.status == "refuted"
    assert "right is 9" in str(found.counterexample)


@pytest.mark.slow
def test_a_search_keeps_little_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parents wait undivided, and of a batch only the cells with the smallest margins are kept, not the batch."""
    monkeypatch.setattr(places_search, "CELLS", 1024)
    task = Addition(base=3, digits=10)
    model = exact(task, sharp=1.5)
    words = {word: at for at, word in enumerate(task.answer_words)}
    subject = Subject.external(model, task, outputs=words)
    (paths,) = declared(task)
    read = Proof.of(converted_subject(subject), paths).reads[5]
    steps = [cost for _, (cost, _) in zip(range(100), read.explore())]
    assert len(steps) == 100
    assert max(steps) <= 1024 * next(read.sights()).cost
    kept = {id(whole): whole.nbytes for _, (_, cells) in read.tally.nearest
            for part in (*cells.states.values(), *cells.tokens.values())
            for whole in [part if part.base is None else part.base]}  # fmt: skip
    assert len(read.tally.nearest) == places_search.TRIED
    assert sum(kept.values()) < 64 * places_search.TRIED * 8


@pytest.mark.slow
def test_tokens_at_hand_may_weigh_nothing() -> None:
    """The construction looks away from the token that is read: some other place holds the weight."""
    model = interp.build("algorithmic/addition-exact", digits=2)
    found = certify_places(model)
    assert found.status == "certified"
    assert found.worst_margin == pytest.approx(0.9, abs=1e-4)  # 1 - 1 / base - 2 e
    with torch.no_grad():
        model.unembed.W_U[:, 5] = model.unembed.W_U[:, 4]
        model.unembed.b_U[5] = model.unembed.b_U[4]
    found = certify_places(model)
    assert found.status != "certified"


@pytest.mark.parametrize("entry", [0, 6, 20])
def test_tokens_that_weigh_nothing_beside_others_may_be_all(entry: int) -> None:
    """Scores of -12,000 where another token would score 0: of an input without that token they are the whole mean."""
    model = adder(2, 3)
    with torch.no_grad():
        model.embed.W_E.view(-1)[entry] -= 1000
    subject = Subject.of(interp.TaskModel(model.spec.replace(dtype="float64")))
    subject.model.load_state_dict(model.state_dict())
    compare(subject, certify_places(subject.task_model), truth(subject))


def test_margins_within_rounding_are_not_certified() -> None:
    """Two outputs nearer to each other than float32 can tell: not right by proof, though right over the reals."""
    task = Addition(digits=2, base=3)
    model = exact(task)
    with torch.no_grad():
        model.unembed.W_U.mul_(1e-6)
        model.unembed.b_U.mul_(1e-6).add_(1000.0)
    assert certified(model, task).status != "certified"


@pytest.mark.parametrize("terms", [4, 24])
def test_the_largest_of_many_numbers(terms: int) -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=terms, v=10)
    found = certify_places(model)
    assert found.status == "certified"
    assert found.n_inputs == 10**terms
    with torch.no_grad():
        model.unembed.W_U[:, 7] = model.unembed.W_U[:, 6]
    found = certify_places(model)
    assert found.status != "certified"
    assert found.tables["answers"]["right"].sum() <= 10**terms - (8**terms - 7**terms)  # 7 the largest


@pytest.mark.parametrize("name", ["brackets", "parity"])
def test_strings_of_forty_symbols(name: str) -> None:
    """A recognizer that says yes to every string is wrong on all that are no members, and on no other."""
    task = interp.models.spec.TaskRef(name=name, parameters=(("length", 40), ("shortest", 40)))
    spec = interp.ModelSpec(
        task=task, d_model=4, direction="bidirectional", layers=(interp.Layer(d_head=2, mlp={"d_mlp": 3}),),
        positions="sinusoidal", readout="scalar", readout_at="[CLS]", decision="sigmoid",
    )  # fmt: skip
    model = interp.build(spec)
    with torch.no_grad():
        model.unembed.b_U.fill_(100.0)
    found = certify_places(model)
    members = math.comb(40, 20) // 21 if name == "brackets" else 2**39
    assert found.status == "refuted"
    assert found.n_errors == 2**40 - members
    assert found.tables["inputs"].iloc[0].tolist() == [2**40, 2**40 - members, 2**40 - members]


def recognizer(name: str, length: int, shift: float) -> interp.TaskModel:
    """Says yes where |x - shift| < 1/2: x is the sum of all symbols, or the first one alone (task first)."""
    task = interp.models.spec.TaskRef(name=name, parameters=(("length", length), ("shortest", length)))
    spec = interp.ModelSpec(
        task=task, d_model=5, direction="bidirectional", positions="learned", max_length=length + 2,
        layers=(interp.Layer(d_head=1, scale=1.0, mlp=interp.models.spec.MLP(d_mlp=2)),), readout="scalar",
        readout_at="[CLS]", decision="sigmoid",
    )  # fmt: skip
    model = interp.build(spec)
    n = length + model.task.n_marks
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        less = -1.0 if name == "brackets" else 0.0
        symbols = [(1.0, 0), (less, 1)] if name == "brackets" else [(0.0, 0), (1.0, 1)]
        for value, token in symbols:
            model.embed.W_E[token, 0] = value
        attn, mlp = model.blocks[0].attn, model.blocks[0].mlp
        attn.W_V[:, 0] = 1.0
        attn.W_O[0, 0, 1] = float(n)
        if name == "first":
            model.embed.W_E[model.task.token_id("[CLS]"), 4] = 60.0
            model.pos_embed.W_pos[1, 2] = 1.0
            attn.W_Q[0, 4], attn.W_K[0, 2] = 1.0, 1.0
            attn.W_O[0, 0, 1] = 1.0
        mlp.W_in[1], mlp.b_in[:] = torch.tensor([[1.0, -1.0], [-shift, shift]])
        mlp.W_out[:, 3] = -1.0
        model.unembed.W_U[3] = 1.0
        model.unembed.b_U.fill_(0.5)
    return model


@pytest.mark.parametrize("name", ["one", "first"])
def test_right_recognizers_of_forty_symbols(name: str) -> None:
    model = recognizer(name, 40, 1.0)
    found = certify_places(model)
    assert found.status == "certified"
    assert found.n_inputs == 2**40
    with torch.no_grad():
        model.unembed.b_U.fill_(1.5)  # 0 and 2 will do, too
    found = certify_places(model)
    assert found.status == "refuted"
    wrong = 1 + math.comb(40, 2) if name == "one" else 2**39
    assert found.tables["inputs"].iloc[0].tolist() == [2**40, wrong, wrong]


def test_brackets_of_forty_symbols_by_their_numbers_alone() -> None:
    """As many of each: right on every member, wrong where a string dips below zero and comes back."""
    model = recognizer("brackets", 40, 0.0)
    found = certify_places(model, seconds=2)
    assert found.status == "refuted"
    members, alike = math.comb(40, 20) // 21, math.comb(40, 20)
    least, most = found.tables["inputs"].iloc[0][["wrong at least", "wrong at most"]]
    assert least <= alike - members <= most <= 2**40 - members
    text = str(found.counterexample).split(": the answer")[0]
    row = torch.tensor([model.task.parse(text)])
    assert model(row)[0, 0, 0].item() > 0
    assert text.count("(") == text.count(")") == 20


def test_what_does_not_hold_is_refused_in_a_sentence() -> None:
    task = Addition(digits=2)
    layer = interp.Layer(d_head=2)
    method = certificate.registered_methods()["every path of an automaton, by places and states"]
    long = Addition(digits=4).ref
    two = interp.build(interp.ModelSpec(task=long, d_model=4, layers=(layer, layer), readout_at="all"))
    assert "number of layers = 2" in (method.refusal(two) or "")
    raw = layer.model_copy(update={"normalizer": "none"})
    unnormalized = interp.build(interp.ModelSpec(task=long, d_model=4, layers=(raw,), readout_at="all"))
    assert "normalizer = 'none'" in (method.refusal(unnormalized) or "")
    other = interp.build(interp.ModelSpec(task=ModularAddition().ref, d_model=4, layers=(layer,), readout_at="="))
    assert "declares no automata" in (method.refusal(other) or "")
    model = exact(task)
    with pytest.raises(InterpError, match="must not be negative"):
        certified(model, task, seconds=-1)
    model.cfg.attn_scores_soft_cap = 30.0
    with pytest.raises(UnsupportedError, match=r"attn_scores_soft_cap = 30\.0, which a spec does not"):
        certified(model, task)


SWITCHES = {
    "use_local_attn", "parallel_attn_mlp", "use_logn_attn", "use_dynamic_ntk_rope", "use_NTK_by_parts_rope",
    "use_yarn_rope", "scale_attn_by_inverse_layer_idx", "post_embedding_ln", "use_normalization_before_and_after",
    "use_attention_sinks", "num_experts", "clip_qkv",
}  # fmt: skip


@pytest.mark.parametrize("switch", sorted(SWITCHES & {*config_fields()}))
def test_a_switch_that_no_spec_expresses_is_refused(switch: str) -> None:
    """The settings of such a variant (its window, its factors) are taken, since they do nothing without the switch;
    and so is a switch that does nothing here: one of rotary positions without these, one of layers with one."""
    model = exact(Addition(digits=2))
    model.cfg.window_size = 3
    if "rope" in switch:
        setattr(model.cfg, switch, 4)
        assert refusal(model) is None
        model.cfg.positional_embedding_type = "rotary"
        setattr(model.cfg, switch, False)
    if "layer_idx" in switch:
        model.cfg.n_layers = 2
    assert refusal(model) is None
    setattr(model.cfg, switch, 4)
    assert str(refusal(model)).startswith(f"it has {switch} = ")


@pytest.mark.slow
def test_a_model_that_is_not_what_its_weights_say_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Addition(digits=2)
    model = converted_subject(
        Subject.external(exact(task), task, outputs={word: at for at, word in enumerate(task.answer_words)})
    )
    assert np.isfinite(certify_places(model).worst_margin)
    plain = model.blocks[0].mlp.forward
    monkeypatch.setattr(model.blocks[0].mlp, "forward", lambda x: plain(x) * 1.5)
    with pytest.raises(Mismatch, match="proof and model disagree"):
        probes.compare(model, certify_places(model).probes)


def test_a_task_under_the_name_of_another_is_refused() -> None:
    class Mine(Addition):
        pass

    with pytest.raises(UnsupportedError, match="the given task has"):
        interp.certify(Subject.external(exact(Addition(digits=10)), task=Mine(digits=10)))


@pytest.mark.slow
def test_a_stranger_s_proof_is_not_about_a_fresh_model() -> None:
    task = Addition(base=3, digits=7)
    found = interp.certify(Subject.external(exact(task), task=task))
    assert found.status == "certified"
    assert found.about == CONVERTED
