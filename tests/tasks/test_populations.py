"""Populations: which inputs a number is about, how many there are by cost, and what a sentence says of them."""

from collections.abc import Callable, Iterator

import pytest
import torch
from standins import Balance, Recall

from interp import analyze, build
from interp.errors import InterpError, UnsupportedError
from interp.measures.results import batch_of
from interp.models.spec import Layer, ModelSpec, TaskRef
from interp.models.subject import Subject
from interp.report.sections.base import Study
from interp.tasks import Batch, Task, make_task, populations
from interp.tasks.batch import concatenate
from interp.tasks.populations import SIZES, SPEED, InputsAsked, Population, choose, everything, population_of, sample

STRINGS = make_task(TaskRef(name="max-of-k", parameters={"K": 3, "v": 8}))  # 512 inputs
COUNT01 = make_task("count01")


def costs(seconds: float) -> Callable[[int], float]:
    """Work that takes this many nominal seconds on each input of max-of-k or Recall, whatever its length."""
    return lambda length: seconds * SPEED


@pytest.mark.parametrize(
    ("seconds", "n"),
    [(0.0, 20_000), (5e-5, 20_000), (5.1e-5, 5_000), (2e-4, 5_000), (1e-3, 1_000), (2e-3, 200), (0.025, 200),
     (0.026, 200), (0.06, 200), (1e9, 200)],
)  # fmt: skip
def test_a_sample_is_as_large_as_its_operations_allow(seconds: float, n: int) -> None:
    found = choose(Recall(), costs(seconds))
    assert (found.kind, found.n, found.split, found.seed) == ("sample", n, "test", 0)
    assert found.batch.tokens.equal(Recall().sample(n, "test", 0).tokens)
    assert found.few == (n < 200)


def test_the_cost_depends_on_the_length_of_an_input() -> None:
    length = Recall().sample(1).tokens.shape[1]
    assert choose(Recall(), lambda tokens: SPEED / 1_000 * tokens / length).n == 1_000
    assert choose(Recall(), lambda tokens: SPEED / 1_000 * (tokens + 1) / length).n == 200


def test_a_user_sets_the_size_or_the_budget() -> None:
    assert choose(Recall(), costs(2e-3), InputsAsked(inputs=77)).n == 77
    assert choose(Recall(), costs(2e-3), InputsAsked.of(seconds=0.1)).n == 200
    assert choose(Recall(), costs(2e-3), InputsAsked(seconds=50.0)).n == 20_000
    assert choose(Recall(), costs(2e-4), most=1_000).n == 1_000


def test_a_domain_that_costs_little_is_used_whole() -> None:
    found = choose(STRINGS, costs(1 / 512))
    assert (found.kind, found.n, found.on) == ("exact", 512, "on all 512 inputs")
    assert len(torch.unique(found.batch.tokens, dim=0)) == 512
    assert found.score(0.25).interval == (0.25, 0.25)
    assert choose(STRINGS, costs(1 / 511)).kind == "sample"
    assert choose(STRINGS, costs(0), exact=False, most=1_000).kind == "sample"
    assert choose(STRINGS, costs(0), InputsAsked(inputs=512)).exact
    assert choose(STRINGS, costs(0), InputsAsked(inputs=511)).on == "on a sample of 511 inputs (split test, seed 0)"


def test_a_fixed_data_set_is_cut_only_by_cost_or_by_a_user() -> None:
    found = choose(COUNT01, costs(1 / 1_500))
    assert (found.kind, found.n, found.on) == ("dataset", 1_500, "on the 1,500 inputs of the test set")
    assert found.batch.tokens.equal(COUNT01.dataset("test").tokens)
    assert choose(COUNT01, costs(0), split="train").split == "train"
    few = choose(COUNT01, costs(0), InputsAsked(inputs=300))
    assert few.on == "on 300 of the 1,500 inputs (seed 0) of the test set"
    assert choose(COUNT01, costs(0), InputsAsked(inputs=9_000)).n == 1_500
    assert choose(COUNT01, costs(0), InputsAsked(inputs=300), fixed=False).kind == "sample"


class Lengths(Recall):
    """Has training inputs of 3 tokens and test inputs of 30."""

    name = "two-lengths"

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        batch = super().sample(n, split, seed)
        width = {"train": 3, "test": 30}[split]
        tokens = torch.zeros(n, width, dtype=torch.long)
        return Batch(tokens, torch.full((n,), width), batch.labels)


def test_inputs_too_long_for_the_budget_give_way_to_shorter() -> None:
    def cost(length: int) -> float:
        return SPEED / 1_000 * (length / 3) ** 2  # 100 times less on the short inputs

    found = choose(Lengths(), cost)
    assert (found.n, found.batch.tokens.shape[1], found.instead_of) == (1_000, 3, "test")
    assert found.on == "on a sample of 1,000 inputs (split train, shorter than those of test, seed 1)"
    kept = [
        choose(Lengths(), cost, split="test"),  # a split that is named
        choose(Lengths(), cost, InputsAsked(inputs=200)),  # a number that is asked for
        choose(Lengths(), cost, InputsAsked(seconds=20.0)),  # 200 long inputs fit the budget
    ]
    assert all(one.on == "on a sample of 200 inputs (split test, seed 0)" for one in kept)
    assert choose(Recall(), costs(1e9)).instead_of is None  # no split has shorter inputs


class Listed(Recall):
    """Lists its inputs and does not say how many there are."""

    name = "listed-only"

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        every = torch.cartesian_prod(*[torch.arange(7)] * 3)
        for rows in every.split(chunk):
            yield Batch(rows, torch.full((len(rows),), 3), rows[:, 0])


def test_inputs_that_are_listed_are_counted_and_used_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert populations.total_of(Listed()) == 343
    assert populations.total_of(Recall()) is None
    monkeypatch.setattr("interp.tasks.domain.COUNTED", 342)
    assert populations.total_of(Listed()) is None


def test_fewer_than_200_are_said_to_be_few() -> None:
    assert sample(Balance(), 30).on == "on 30 inputs only (split test, seed 0)"
    assert sample(Balance(), 30).few
    assert not sample(Balance(), 200).few
    assert not everything(make_task(TaskRef(name="max-of-k", parameters={"K": 2, "v": 3}))).few
    assert population_of(Balance().sample(1)).on == "on the 1 input given"


def test_repetitions_stay_and_weights_are_the_sampler_s() -> None:
    task = make_task(TaskRef(name="bigram", parameters={"N": 6, "prior": "zipf"}))
    found = everything(task)
    assert found.weights.tolist() == pytest.approx(task.prior.tolist())
    drawn = sample(task, 4_000).batch.tokens[:, -1]
    assert (drawn.bincount(minlength=6) / 4_000).tolist() == pytest.approx(task.prior.tolist(), abs=0.03)
    assert everything(STRINGS).weights is None


class Crooked(Recall):
    name = "crooked-weights"

    def weights(self, batch: Batch) -> torch.Tensor:
        return -torch.ones(len(batch))


def test_weights_that_are_no_probabilities_are_refused() -> None:
    with pytest.raises(InterpError, match="task crooked-weights: weights"):
        populations.weights_of(Crooked(), Recall().sample(3))


def test_a_task_without_a_sampler_is_drawn_from_its_inputs() -> None:
    task = make_task(TaskRef(name="histogram", parameters={"T": 2, "L": 3}))
    found = sample(task, 5)
    assert (found.kind, found.n) == ("sample", 5)
    with pytest.raises(UnsupportedError, match="does not list its inputs"):
        everything(Recall())


def test_a_score_of_a_population_has_its_interval() -> None:
    population = sample(Recall(), 200)
    half = population.score(0.5)
    assert str(half) == "0.5000 (95% interval 0.4313 to 0.5687)"
    assert str(population.score(0.0)) == "0 (95% interval 0 to 0.0189)"
    assert population.score(torch.tensor([True, False])).accuracy == 0.5
    assert Population("exact", STRINGS.sample(2)).score(0.5).exact


@pytest.mark.parametrize("inputs", [0, -1, 1.5, "many", True])
def test_inputs_must_be_a_positive_integer(inputs: object) -> None:
    with pytest.raises(InterpError, match=r"inputs = .* must be a positive integer"):
        InputsAsked.of(inputs)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), "long", True])
def test_seconds_must_be_a_positive_number(seconds: object) -> None:
    with pytest.raises(InterpError, match=r"seconds = .* must be a number above 0"):
        InputsAsked.of(seconds=seconds)


def test_rows_of_several_widths_are_joined_with_padding() -> None:
    parity: Task = make_task("parity")
    parts = [parity.batch(parity.encode([text]).tokens) for text in ("1", "0110")]
    both = concatenate(parts, parity.pad_id)
    assert both.lengths.tolist() == [2, 5]
    assert both.tokens[0].tolist() == [*parts[0].tokens[0].tolist(), *[parity.pad_id] * 3]
    assert both.labels.tolist() == [True, False]
    assert SIZES[0] == 200


def test_a_split_is_a_models_own_only_if_somebody_says_so() -> None:
    """A model from elsewhere was not trained on interp's halves of the pairs; its numbers are on all of them."""
    ref = TaskRef(name="modular-addition", parameters={"p": 7, "share": 0.5})
    layer = Layer(n_heads=1, d_head=4)
    made = build(ModelSpec(task=ref, d_model=8, layers=(layer,), readout_at="="), seed=0)
    assert Study(Subject.of(made)).population("any").on == "on all 49 inputs"
    assert len(batch_of(Subject.of(made), None)) == 49
    recipe = made.spec.replace(origin=made.spec.training)
    seeded = TaskRef(name=ref.name, parameters=dict(ref.parameters), data_seed=3)
    for spec in (recipe, made.spec.replace(task=seeded)):
        study = Study(Subject.of(build(spec)))
        assert study.population("any").on.endswith("inputs of the test set")
        assert len(batch_of(study.subject, None)) < 49


@pytest.mark.slow
def test_reports_on_models_from_elsewhere_name_no_split() -> None:
    """The task's sampler drew the inputs; what that model was trained and tested on nobody knows."""
    made = build("count01/minimal")
    own = analyze(made, sections=["accuracy", "heads", "patching"], inputs=200)
    made.spec = made.spec.replace(origin=None)
    theirs = analyze(made, sections=["heads", "patching", "components"], inputs=200)
    text, other = (str([vars(item) for item in report.items]) for report in (own, theirs))
    assert "(split test, seed 0" in text
    assert "from the task's sampler, seed 0" in other
    for word in ("split", "test set", "training set"):
        assert word not in other, word
