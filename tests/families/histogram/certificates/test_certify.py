"""Certificates of histogram models, against the model's own forward pass on every sequence.

Sequences that are tried: only one at which the model itself errs is a counterexample.
"""

from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from drawn_weights import draw_each
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
from interp.certificates import Certificate, certificate
from interp.errors import InterpError, UnsupportedError
from interp.families.histogram import Histogram
from interp.families.histogram.certificates import certify
from interp.families.histogram.certificates import certify as histogram
from interp.families.histogram.certificates.tables import TAKES, rounding_bound, tables_of
from interp.families.histogram.constructions.models import VARIANTS, histogram_spec
from interp.families.histogram.theory.ranges import MixingKind
from interp.models.architecture.task_model import TaskModel

KINDS: tuple[MixingKind, ...] = ("lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax")
ALL_VARIANTS = [(kind, variant) for kind, variants in VARIANTS.items() for variant in variants]


def random_model(kind: MixingKind, T: int, L: int, p: int, seed: int, noise: float, zero_class: bool) -> TaskModel:
    """An exact construction with noise (where one fits p), else weights of unit size."""
    generator = torch.Generator().manual_seed(seed)
    task = Histogram(T=T, L=L, bos=kind.startswith("bos"), zero_class=zero_class)
    if noise < 10 and T >= 2:
        weights = interp.build(f"histogram/{kind}-exact", T=T, L=L, p=max(p, T), zero_class=zero_class)
    else:
        weights = interp.build(histogram_spec(kind, task, 3, p, "float64"), seed=seed)
    with torch.no_grad():
        for parameter in weights.parameters():
            size = noise if noise < 10 else 1.0
            draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_((parameter if noise < 10 else 0.0) + size * draw)
    return weights


def brute_force(model: TaskModel) -> tuple[int, int]:
    """Wrong and all (sequence, position) pairs, by the model's own forward pass."""
    batch = next(model.task.inputs(chunk=model.task.n_inputs))
    real = batch.labels >= 0
    wrong = (model.predict(batch.tokens) != batch.labels) & real
    return int(wrong.sum()), int(real.sum())


def agree(model: TaskModel, found: Certificate) -> None:
    wrong, pairs = brute_force(model)
    if found.status == "certified":
        assert wrong == 0
    if found.status == "refuted":
        assert wrong > 0
        assert_wrong(model, found)
    if isinstance(found.accuracy, float):
        assert found.accuracy == pytest.approx(1 - wrong / pairs, abs=1e-12)
        assert found.n_errors == wrong
    else:
        low, high = found.accuracy
        assert low - 1e-12 <= 1 - wrong / pairs <= high + 1e-12
    table = found.tables["classes"]
    assert float(table["inputs"].sum()) == pairs
    assert (table[["right", "wrong", "close", "tied", "undecided"]].sum(axis=1) == table["inputs"]).all()


def assert_wrong(model: TaskModel, found: Certificate) -> None:
    """The counterexample that the certificate prints is one."""
    sequence, rest = found.counterexample.split(": ", 1)
    tokens = torch.tensor([model.task.parse(sequence)])
    position = int(rest.split("position ")[1].split()[0])
    batch = model.task.batch(tokens)
    assert model.predict(tokens)[0, position] != batch.labels[0, position]
    assert found.worst_margin < 0


CASES = [(2, 3), (3, 4), (4, 3), (3, 1), (1, 3), (2, 6)]


def run_many(kind: MixingKind, seeds: range) -> set[str]:
    statuses = set()
    for seed in seeds:
        T, L = CASES[seed % len(CASES)]
        p = (1, 2, 5)[seed // 3 % 3]
        noise = (10.0, 1e-3, 0.03, 10.0, 0.3, 1e-13)[seed // 2 % 6]
        model = random_model(kind, T, L, p, seed, noise, bool(seed % 2))
        found = interp.certify(model, seconds=5, samples=0)
        agree(model, found)
        statuses.add(found.status)
    return statuses


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.thinned(3)
def test_agrees_with_brute_force_over_all_sequences(kind: MixingKind) -> None:
    assert {"certified", "refuted"} <= run_many(kind, range(6))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_brute_force_on_many_more(kind: MixingKind) -> None:
    assert {"certified", "refuted"} <= run_many(kind, range(1000, 1200))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.thinned(6)
def test_without_time_the_interval_is_sound(kind: MixingKind) -> None:
    undecided = 0
    for seed in range(6):
        model = random_model(kind, 3, 4, 6, seed, 0.1 if seed % 2 else 10.0, False)
        found = interp.certify(model, seconds=0, samples=0)
        agree(model, found)
        undecided += not isinstance(found.accuracy, float)
    assert undecided


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    size=st.sampled_from(CASES),
    p=st.integers(1, 6),
    seed=st.integers(0, 2**20),
    noise=st.sampled_from([1e-6, 1e-2, 0.05, 0.1, 10.0]),
    dtype=st.sampled_from(["float64", "float32"]),
    budget=st.sampled_from([0.0, 0.02, 2.0]),
)
def test_never_certified_where_a_sequence_is_wrong(
    kind: MixingKind, size: tuple[int, int], p: int, seed: int, noise: float, dtype: str, budget: float
) -> None:
    model = random_model(kind, *size, p, seed, noise, False).to(getattr(torch, dtype))
    agree(model, interp.certify(model, seconds=budget, samples=0))


@pytest.mark.parametrize(("kind", "variant"), ALL_VARIANTS)
@pytest.mark.thinned(5)
def test_constructions_are_certified_at_full_size(kind: str, variant: str) -> None:
    model = interp.build(f"histogram/{kind}-exact", variant=variant)
    found = interp.certify(model)
    assert (found.status, found.accuracy, found.n_errors, found.n_inputs) == ("certified", 1.0, 0, 32**10)
    assert found.rounding is not None
    assert 0 < found.rounding < found.worst_margin


def sorted_sequences(task: Histogram) -> interp.Batch:
    return task.of_sequences(torch.tensor([*combinations_with_replacement(range(task.T), task.L)]))


def multisets_of(model: TaskModel) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """All sorted sequences, their labels without [BOS], and the first hidden neuron at every position."""
    batch = sorted_sequences(model.task)
    _, cache = model.run_with_cache(batch.tokens)
    bos = int(model.task.bos)
    return batch.tokens[:, bos:], batch.labels[:, bos:], cache["unembed.hook_pre"][:, bos:].numpy()


@pytest.mark.parametrize(("kind", "variant"), [("dot", "counter-frame"), ("bos", "counter-frame")])
def test_one_wrong_multiset_refutes_the_model(kind: str, variant: str) -> None:
    """One hidden neuron: a threshold is moved between the lowest hidden value of count 2 and the next one."""
    model = interp.build(f"histogram/{kind}-exact", T=6, L=4, variant=variant)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():  # tell the multisets apart; the construction's gap forgives it
        model.embed.W_E[:6, :-1] += 0.01 * torch.randn(model.embed.W_E[:6, :-1].shape, generator=generator).double()
    tokens, labels, hidden = multisets_of(model)
    assert interp.certify(model).status == "certified"
    values = np.where(labels.numpy() == 2, hidden[:, :, 0], np.inf)
    row, _ = np.unravel_index(values.argmin(), values.shape)
    first, second = np.unique(np.sort(values[np.isfinite(values)]).round(9))[:2]
    threshold = (first + second) / 2
    weight, bias = model.unembed.W_out.detach()[0], model.unembed.b_out.detach()
    step = weight[1] - weight[0]
    old = float((bias[0] - bias[1]) / step)
    with torch.no_grad():  # the lines of counts 1 and 2 cross at the new threshold; the others move along
        model.unembed.b_out[1:] -= (threshold - old) * step
    wrong = model.predict(model.task.of_sequences(tokens).tokens)[:, int(model.task.bos) :] != labels
    assert int(wrong.any(1).sum()) == 1
    found = interp.certify(model)
    assert found.status == "refuted"
    sequence = model.task.parse(found.counterexample.split(":")[0])[int(model.task.bos) :]
    assert sorted(sequence) == sorted(tokens[row].tolist())
    agree(model, found)


@pytest.mark.parametrize("kind", KINDS)
def test_one_wrong_multiset_refutes_a_model_with_many_neurons(kind: MixingKind) -> None:
    """A detector: neurons that change sign add up to a spike at the mixed token of one multiset, mid-range."""
    variant = "bos-zero" if kind == "bos" else None  # with bos-sum other tokens do not show in the mixed token at all
    model = interp.build(f"histogram/{kind}-exact", T=4, L=4, variant=variant)
    generator = np.random.default_rng(5)
    task = model.task
    batch = next(task.inputs(chunk=task.n_inputs)) if kind.startswith("lin") else sorted_sequences(task)
    _, cache = model.run_with_cache(batch.tokens)
    bos = int(task.bos)
    mixed, labels = cache["unembed.hook_in"][:, bos:].detach(), batch.labels[:, bos:]
    row = next(i for i, tokens in enumerate(batch.tokens[:, bos:].tolist()) if sorted(tokens) == [0, 1, 2, 3])
    # Random directions tell this position apart from all others that are not its permutations.
    direction = torch.from_numpy(generator.normal(size=mixed.shape[-1]))
    score = mixed @ direction
    target = float(score[row, 0])
    apart = (score - target).abs()
    nearest = float(apart[apart > 1e-9].min())
    spike = direction[:, None].expand(-1, 3) / nearest
    offset = torch.tensor([-target / nearest + 1, -target / nearest, -target / nearest - 1], dtype=torch.float64)
    readout = model.unembed
    size = 3 * float(readout.W_out.detach().abs().max()) + 3 * float(readout.b_out.detach().abs().max())
    wide = interp.build(f"histogram/{kind}-exact", T=4, L=4, variant=variant, p=readout.W_in.shape[1] + 3)
    with torch.no_grad():
        wide.unembed.W_in[:, -3:], wide.unembed.b_in[-3:] = spike, offset
        wide.unembed.W_out[-3:, 2] = size * torch.tensor([1.0, -2.0, 1.0], dtype=torch.float64)
    predicted = wide.predict(batch.tokens)[:, bos:]
    assert {tuple(sorted(t)) for t in batch.tokens[:, bos:][(predicted != labels).any(1)].tolist()} == {(0, 1, 2, 3)}
    found = interp.certify(wide)
    assert found.status == "refuted"
    assert sorted(task.parse(found.counterexample.split(":")[0])[bos:]) == [0, 1, 2, 3]
    agree(wide, found)


@pytest.mark.slow
def test_nothing_is_certified_if_rounding_could_turn_an_answer() -> None:
    exact = interp.certify(interp.load("histogram/dot-softmax-exact", dtype="float64"), seconds=1)
    assert exact.status == "certified"
    model = interp.build("histogram/dot-softmax-exact", d_model=6)
    assert interp.certify(model).status == "certified"
    found = interp.certify(model.to(torch.float32), samples=0, seconds=1)
    assert (found.status, found.n_errors, found.counterexample) == ("undecided", 0, None)
    assert found.rounding is not None
    assert 0 < found.worst_margin < found.rounding
    assert any("do not exceed the rounding bound of float32" in note for note in found.notes)
    half = interp.certify(model.to(torch.bfloat16), samples=0, seconds=0.2)
    assert half.status != "certified"


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_bound_holds_and_is_no_wild_guess(kind: MixingKind) -> None:
    task = Histogram(T=8, L=6, bos=kind.startswith("bos"))
    model = interp.build(histogram_spec(kind, task, 5, 7, "float32"), seed=4)
    draw_each(model)
    tables = tables_of(model)
    bound = rounding_bound(model, tables, certify._highest(tables), torch.float32)
    rows = np.random.default_rng(0).integers(0, 8, (4000, 6))
    batch = task.of_sequences(torch.from_numpy(rows))
    bos = int(task.bos)
    single = model(batch.tokens).detach()[:, bos:].double()
    double = model.to(torch.float64)(batch.tokens).detach()[:, bos:]
    counts = batch.labels[:, bos:]
    slip = (single - double).numpy()
    right = np.take_along_axis(slip, (counts.numpy() - 1)[:, :, None], 2)
    error = np.abs(right - slip)
    allowed = bound[rows, counts.numpy() - 1]
    assert (error <= allowed).all()
    assert error.max() > allowed.max() / 5000


def test_refusals_say_why() -> None:
    task = Histogram()
    spec = histogram_spec("dot", task, 4, 2)
    with pytest.raises(UnsupportedError, match=r"equal tokens must have equal rows: positions are 'learned'"):
        interp.certify(interp.build(spec.replace(positions="learned", max_length=10)))
    with pytest.raises(UnsupportedError, match=r"number of layers = 2"):
        interp.certify(interp.build(spec.replace(layers=spec.layers * 2)))
    with pytest.raises(UnsupportedError, match=r"attention is causal"):
        interp.certify(interp.build(spec.replace(direction="causal")))
    with pytest.raises(UnsupportedError, match=r"needs a ReLU readout at all positions, not 'linear'"):
        interp.certify(interp.build(spec.replace(readout="linear", readout_width=None)))
    with pytest.raises(UnsupportedError, match=r"values and outputs to be the identity, not 'learned'"):
        interp.certify(
            interp.build(spec.replace(layers=(spec.layers[0].model_copy(update={"value_output": "learned"}),)))
        )
    with pytest.raises(InterpError, match=r"must not be negative"):
        interp.certify("histogram/dot-exact", seconds=-1)


@pytest.mark.parametrize("field", ["normalizer", "mixing"])
def test_a_new_way_to_attend_is_refused(field: str) -> None:
    spec = histogram_spec("dot", Histogram(), 4, 2)
    layer = spec.layers[0].model_copy(update={field: "sparse"})
    reason = certificate.refusal_of(spec.model_copy(update={"layers": (layer,)}), TAKES)
    assert reason is not None
    assert f"{field} = 'sparse'" in reason


@pytest.mark.slow
def test_a_verdict_does_not_depend_on_how_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is counted in steps: with a clock that runs away, the same parts are decided."""
    model = random_model("dot", 12, 6, 12, 1, 10.0, False)
    plain = interp.certify(model, seconds=0.01, samples=0)
    monkeypatch.setattr("time.perf_counter", map(float, range(10**9)).__next__)
    busy = interp.certify(model, seconds=0.01, samples=0)
    assert plain.tables["classes"].equals(busy.tables["classes"])
    assert 0 < plain.tables["classes"]["undecided"].sum() < plain.tables["classes"]["inputs"].sum()
    more = interp.certify(model, seconds=2, samples=0)
    assert more.tables["classes"]["undecided"].sum() < plain.tables["classes"]["undecided"].sum()


@pytest.mark.slow
def test_samples_narrow_what_the_time_leaves_open() -> None:
    model = random_model("dot", 12, 6, 12, 1, 10.0, False)
    sound = interp.certify(model, seconds=0, samples=0)
    narrow = interp.certify(model, seconds=0, samples=4000)
    full = interp.certify(model, seconds=60)
    assert isinstance(sound.accuracy, tuple)
    assert isinstance(narrow.accuracy, tuple)
    assert isinstance(full.accuracy, float)
    assert narrow.accuracy[1] - narrow.accuracy[0] < 0.1 < sound.accuracy[1] - sound.accuracy[0]
    assert narrow.accuracy[0] <= full.accuracy <= narrow.accuracy[1]
    assert any("99.9% confidence interval" in note for note in narrow.notes)
    assert (sound.confidence, narrow.confidence, full.confidence) == (None, 0.999, None)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_at_full_size_the_error_bounds_of_count_nine_hold(kind: MixingKind) -> None:
    """32^10 sequences are too many, but those in which a token occurs nine times can all be run.

    What the time leaves open depends on the machine, so the count is compared with what is proved: an enclosure.
    """
    model = random_model(kind, 32, 10, 32, 7, 0.03, True)
    table = interp.certify(model, seconds=5, samples=0).tables["counts"].set_index("count")
    pairs = [(t, o) for t in range(32) for o in range(32) if o != t]
    rows = torch.tensor([[o if m == place else t for m in range(10)] for t, o in pairs for place in range(10)])
    batch = model.task.of_sequences(rows)
    wrong = (model.predict(batch.tokens) != batch.labels) & (batch.labels == 9)
    proved, perhaps = table.loc[9, "wrong"], table.loc[9, "tied"] + table.loc[9, "undecided"]
    assert proved <= int(wrong.sum()) <= proved + perhaps
    assert proved > 0
    assert perhaps < table.loc[9, "inputs"] / 2
    assert table.loc[9, "inputs"] == len(rows) * 9


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_margin_must_exceed_rounding_of_model_and_proof(dtype: str) -> None:
    """In float64 both compute alike: the need is at least the proof's own slack, and the model's rounding beside it."""
    model = interp.build("histogram/dot-softmax-exact", T=5, L=4).to(getattr(torch, dtype))
    need, slack = certify._thresholds(model, tables_of(model))
    assert (slack > 0).all()
    assert (need > slack).all()


def test_wrong_tables_do_not_refute_a_right_model() -> None:
    model = interp.build("histogram/dot-exact", T=4, L=3)
    tables, slack = tables_of(model), np.zeros((4, 3, model.spec.n_out or 3))
    assert certify.check(model, tables, [0, 1, 1], 0, slack) is None
    tables.lead_bias[:] -= 1e6
    assert certify.check(model, tables, [0, 1, 1], 0, slack) is None


def test_an_answer_wrong_in_tables_and_model_is_a_counterexample() -> None:
    model = interp.build("histogram/dot-exact", T=4, L=3)
    model.unembed.b_out.data[0] -= 1e6  # never "once"
    found = certify.check(model, tables_of(model), [0, 1, 1], 0, np.zeros((4, 3, model.spec.n_out or 3)))
    assert "occurs once, right is 1, the model says 2" in found[1]


def test_the_first_of_equal_tokens_is_named() -> None:
    """Their answers are equal but for rounding, which differs between CPUs."""
    model = interp.build("histogram/dot-exact", T=4, L=3)
    model.unembed.b_out.data[1] -= 1e6  # never "twice"
    tables, slack = tables_of(model), np.zeros((4, 3, model.spec.n_out or 3))
    texts = {found[1] for at in (0, 2) if (found := certify.check(model, tables, [1, 0, 1], at, slack)) is not None}
    assert len(texts) == 1
    assert "at position 0 occurs 2 times" in texts.pop()


def test_suspects_do_not_crowd_out_known_errors() -> None:
    """A hundred right sequences with bounds far below the margin of the one that errs."""
    model = interp.build("histogram/dot-exact", T=4, L=3)
    model.unembed.b_out.data[0] -= 1e6
    tables, slack = tables_of(model), np.zeros((4, 3, model.spec.n_out or 3))
    part = histogram._bound_roots(tables, 0, slack, slack)
    part.ledger.candidates = [(-1e9, [0, 0, 0], 0)] * 100
    found = histogram._refute(model, tables, [part], slack, [(-1e6, [0, 1, 1], 0)])
    assert found[1].startswith("0 1 1: ")
    assert histogram._refute(model, tables, [part], slack, []) is None
