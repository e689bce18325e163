"""Products of token sets against every input, run one by one."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_weights import draw, set_to_zero

import interp
from interp.certificates import certificate, check, method_for, products
from interp.certificates.products import Shares, certify_products, count, token_tables
from interp.errors import InterpError, UnsupportedError
from interp.families.algorithmic import MaxOfK
from interp.families.algorithmic.tasks.numbers import EqualsTask
from interp.models.spec import Bias, Layer, ModelSpec, TaskRef, Training
from interp.support.resources import Budget
from interp.tasks.structure import ProductOfSets, check_products, declared_products

NAME = "every product of token sets"


class Smallest(EqualsTask):
    """The smallest of three numbers below four, read behind a word after '='."""

    name = "products-test-smallest"
    terms, base, readout = 3, 4, "?"

    def __init__(self, data_seed: int = 0, **parameters: Any) -> None:
        super().__init__(data_seed, **parameters)
        self.vocabulary = (*map(str, range(self.base)), "=", "?")

    def answer(self, numbers: torch.Tensor) -> torch.Tensor:
        return numbers[:, :3].amin(1)

    def of_numbers(self, numbers: torch.Tensor) -> interp.Batch:
        return self.batch(torch.cat([numbers, torch.tensor([[4, 5]]).expand(len(numbers), -1)], 1))

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        return interp.Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), self.answer(tokens))

    def check_input(self, tokens: torch.Tensor) -> None: ...

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        return self.of_numbers(torch.randint(0, 4, (n, 3), generator=self.generator(split, seed)))

    def products(self) -> Iterator[ProductOfSets]:
        for m, at in product(range(4), range(3)):
            if m < 3 or not at:
                yield ProductOfSets((*(range(m + 1, 4),) * at, (m,), *(range(m, 4),) * (2 - at), (4,), (5,)), m)


def spec_of(K: int = 3, v: int = 4, **fields: object) -> ModelSpec:
    task = TaskRef(name="max-of-k", parameters={"K": K, "v": v})
    given = {"task": task, "d_model": 5, "layers": (Layer(d_head=3),), "readout_at": "=", "dtype": "float64"}
    return ModelSpec(**{**given, **fields})


PLACED = {"positions": "learned", "max_length": 4}
SPECS = {
    "plain": spec_of(),
    "placed": spec_of(**PLACED),
    "biases and a norm": spec_of(
        layers=(Layer(d_head=3, norm="pre", bias=Bias(q=True, k=True, v=True, o=True)),), readout_at="last", **PLACED
    ),
    "both directions, two numbers": spec_of(2, 6, direction="bidirectional", positions="learned", max_length=7),
    "float32": spec_of(dtype="float32", **PLACED),
    "outputs that are no answers": spec_of(n_out=7, **PLACED),
}


def drawn(spec: ModelSpec, seed: int, task: Any = None, size: float = 1.0) -> interp.TaskModel:
    model = interp.TaskModel(spec, task, seed=0)
    draw(model, seed, size, torch.float64)
    return model


def truth(model: interp.TaskModel) -> tuple[interp.Batch, torch.Tensor]:
    """Every input and its margin, by the model in float64."""
    batch = next(iter(model.task.inputs(10**6)))
    double = interp.TaskModel(model.spec, model.task, dict(model.named_parameters()), dtype="float64")
    out = double(batch.tokens)[torch.arange(len(batch)), double.answer_positions(batch.tokens)].detach()
    right = out.gather(1, batch.labels[:, None])[:, 0]
    return batch, right - out.scatter(1, batch.labels[:, None], -torch.inf).amax(1)


def agrees(found: interp.Certificate, model: interp.TaskModel) -> None:
    batch, margin = truth(model)
    assert found.n_inputs == len(batch)
    assert found.n_errors == int((margin < 0).sum())
    assert found.worst_margin <= float(margin.min()) + 1e-12
    assert found.worst_margin == pytest.approx(float(margin.min()), abs=1e-9)
    assert found.status == (
        "refuted" if found.n_errors else "certified" if margin.min() > found.rounding else "undecided"
    )
    for answer, inputs, right, wrong, least in found.tables["answers"].itertuples(index=False):
        mine = margin[batch.labels == int(answer)]
        assert (inputs, right, wrong) == (len(mine), int((mine > 0).sum()), int((mine < 0).sum()))
        assert least == pytest.approx(float(mine.min()), abs=1e-9)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.thinned(5)
def test_errors_and_least_margins_are_those_of_every_input(name: str, seed: int) -> None:
    model = drawn(SPECS[name], seed, size=(0.5, 1.0, 2.0, 1.0)[seed])
    assert method_for(model).name == NAME
    agrees(interp.certify(model), model)


@pytest.mark.slow
def test_a_trained_model_and_a_damaged_one() -> None:
    recipe = Training(epochs=12, samples_per_epoch=4096, batch_size=64, learning_rate=1e-2, data="fresh", init="torch")
    (model,) = interp.train(spec_of(3, 5, d_model=16, layers=(Layer(d_head=16),), dtype="float32", origin=recipe,
                                    **PLACED), seeds=(0,), progress=False)  # fmt: skip
    found = interp.certify(model)
    agrees(found, model)
    assert found.accuracy > 0.9
    with torch.no_grad():
        model.unembed.W_U[3, 2] += 1.0
        model.pos_embed.W_pos[1] *= 2
    agrees(interp.certify(model), model)


def test_another_task_of_the_same_shape(tmp_path: Path) -> None:
    task = Smallest()
    for direction, seed in product(("causal", "bidirectional"), range(2)):
        model = drawn(
            ModelSpec(task=task.ref, d_model=4, layers=(Layer(d_head=4),), readout_at="?", dtype="float64",
                      direction=direction, positions="learned", max_length=5), seed, task,
        )  # fmt: skip
        assert method_for(model).name == NAME
        found = interp.certify(model)
        agrees(found, model)
    said = check.check(check.read(str(found.evidence(tmp_path / "proof.json"))))[1]
    assert said.startswith("agrees with the table of labels")
    assert "in each of its 64 inputs" in said
    assert f"but exactly {found.n_errors} of 64 answers, which differ" in said


def test_only_bidirectional_models_see_later_places() -> None:
    class Early(Smallest):
        name, readout = "products-test-early", "="

        def batch(self, tokens: torch.Tensor) -> interp.Batch:
            return interp.Batch(tokens, torch.full((len(tokens),), 5), tokens[:, 0])

        def classes(self, batch: interp.Batch) -> torch.Tensor:
            return torch.full_like(batch.tokens, -100).index_copy(1, torch.tensor([1]), batch.labels[:, None])

        def of_numbers(self, numbers: torch.Tensor) -> interp.Batch:
            marks = torch.tensor([[4, 5]]).expand(len(numbers), -1)
            return self.batch(torch.cat([numbers[:, :1], marks[:, :1], numbers[:, 1:], marks[:, 1:]], 1))

        def products(self) -> Iterator[ProductOfSets]:
            return (ProductOfSets(((m,), (4,), range(4), range(4), (5,)), m) for m in range(4))

    for direction in ("causal", "bidirectional"):
        model = drawn(
            ModelSpec(task=Early().ref, d_model=4, layers=(Layer(d_head=4),), readout_at="=", dtype="float64",
                      direction=direction, positions="learned", max_length=5), 3, Early(),
        )  # fmt: skip
        agrees(interp.certify(model), model)


def test_ties_are_neither_right_nor_wrong() -> None:
    """Outputs 0 and 1 are equal and above the others: of 64 inputs 8 are tied, the other 56 are wrong."""
    model = interp.TaskModel(spec_of(d_model=4, layers=(Layer(d_head=4),)))
    with torch.no_grad():
        set_to_zero(model.unembed)
        model.unembed.b_U[:2] = 1.0
    found = certify_products(model)
    assert found.n_errors is None
    assert "without them [0, 0.125]" in str(found)
    low, high = found.accuracy
    assert low <= 1 / 64 <= high, "as run, ties go to the first output, which is right once"
    assert found.worst_margin <= -1


@pytest.mark.slow
def test_an_exact_model_beyond_enumeration() -> None:
    found = interp.certify(interp.build("algorithmic/max-of-k-exact", K=12, v=16))
    assert (found.status, found.n_inputs, found.n_errors) == ("certified", 16**12, 0)
    assert found.on_trust[0].startswith("labels: compared on")
    with pytest.raises(InterpError, match="seconds = -1"):
        interp.certify(interp.build("algorithmic/max-of-k-exact"), seconds=-1)


def test_what_the_budget_leaves_open_widens_the_accuracy() -> None:
    model = drawn(SPECS["placed"], 0)
    whole, cut = certify_products(model), certify_products(model, seconds=0)
    low, high = cut.accuracy
    assert low <= whole.accuracy <= high
    assert low < high
    assert cut.n_errors is None
    assert cut.confidence == 0.999
    assert high - low < 0.1, "random inputs say more than nothing"
    assert "from 4,096 answers to random inputs, as run; without them [" in str(cut)
    assert cut.status == whole.status == "refuted"


def test_bounds_hold_whatever_rounding_did() -> None:
    """Slips as large as the numbers: the least margin is lower by at least as much, and less is counted."""
    model = drawn(SPECS["placed"], 1)
    tables = token_tables(model, 3, 4, 4)
    for size in (1e-9, 1e-3, 1.0):
        blurred = replace(tables, output_error=tables.output_error + size, score_error=tables.score_error + size)
        for part in declared_products(model.task):
            sharp, blunt = Shares.of(tables, part), Shares.of(blurred, part)
            with np.errstate(all="ignore"):
                assert (blunt.least()[0] <= sharp.least()[0] - size).all()
            every = np.ones(3, dtype=bool)
            some, all_ = count(blunt, every, Budget(1e9, 1.0)), count(sharp, every, Budget(1e9, 1.0))
            assert all(one <= other for one, other in zip(some, all_, strict=True))
        assert sum(some) <= part.n_inputs


def test_inputs_of_the_smallest_margins_are_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordered by lower bounds, also where unequal errors order the upper ones otherwise."""
    model, slips = drawn(SPECS["placed"], 0), np.random.default_rng(0)

    def blurred(*given: Any) -> Any:
        tables = token_tables(*given)
        return replace(tables, output_error=tables.output_error + slips.random(tables.output_error.shape))

    monkeypatch.setattr(products, "token_tables", blurred)
    for most, probed in ((6, 6), (12, 10), (200, 10)):  # of ten products
        monkeypatch.setattr(products, "PROBED", most)
        (probes,) = certify_products(model).probes
        assert len(probes.low) == probed
    assert (probes.low.diff() >= 0).all()
    assert (probes.high.diff() < 0).any(), "the case tells the orders apart"


def test_where_the_token_that_is_read_varies_every_input_is_run() -> None:
    class Loud(Smallest):
        name, readout = "products-test-loud", "last"

        def of_numbers(self, numbers: torch.Tensor) -> interp.Batch:
            return self.batch(numbers)

        def products(self) -> Iterator[ProductOfSets]:
            return (replace(part, places=part.places[:3]) for part in super().products())

    layer = Layer(d_head=4)
    spec = ModelSpec(task=Loud().ref, d_model=4, layers=(layer,), readout_at="last", positions="learned", max_length=5)
    model = drawn(spec, 0, Loud())
    assert "several tokens where the model is read" in (certificate.registered_methods()[NAME].refusal(model) or "")
    assert method_for(model).name == "every input, as run"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"layers": (Layer(n_heads=2, d_head=3),)}, "n_heads = 2"),
        ({"layers": (Layer(d_head=3), Layer(d_head=3))}, "number of layers"),
        ({"layers": (Layer(d_head=3, mlp={"d_mlp": 4}),)}, "d_mlp"),
        ({"layers": (Layer(d_head=3, norm="post"),)}, "norm = 'post'"),
        ({"layers": (Layer(d_head=3, normalizer="none"),)}, "normalizer = 'none'"),
        ({"final_norm": "layer_norm"}, "final_norm"),
        ({"positions": "sinusoidal"}, "positions = 'sinusoidal'"),
        ({"positions": "learned", "max_length": 3}, "it has 3 positions, and rows of the task 4 tokens"),
    ],
)
def test_models_that_it_does_not_understand(changes: dict[str, Any], sentence: str) -> None:
    why = certificate.registered_methods()[NAME].refusal(interp.TaskModel(spec_of(**changes)))
    assert sentence in (why or "")


class Wrong(MaxOfK):
    """Products that are not the inputs, one way after the other."""

    name = "products-test-wrong"
    way = ""

    def products(self) -> Iterator[ProductOfSets]:
        every = list(super().products())
        first = every[3]
        yield from {
            "left out": every[1:],
            "twice": [every[3], *every[1:]],
            "empty": [ProductOfSets((range(0), *first.places[1:]), 0), *every],
            "label": [*every[:3], replace(first, right=first.right - 1), *every[4:]],
            "no input": [*(replace(e, places=(*e.places[:-1], (0,))) for e in every)],
            "token": [*every[:3], ProductOfSets(((99,), *first.places[1:]), first.right), *every[4:]],
        }[self.way]


@pytest.mark.parametrize(("way", "sentence"), [
    ("left out", "has 27 inputs, but its products make 26"), ("twice", "contain the same input"),
    ("empty", "is empty"), ("label", "otherwise than its products"), ("no input", "not an input"),
    ("token", "or an unknown one"),
])  # fmt: skip
def test_products_that_are_not_the_inputs_are_refused(way: str, sentence: str) -> None:
    task = Wrong(K=3, v=3)
    task.way = way
    with pytest.raises(UnsupportedError, match=sentence):
        check_products(task, declared_products(task))


def test_labels_of_too_many_inputs_are_a_stated_assumption(monkeypatch: pytest.MonkeyPatch) -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=3)
    assert interp.certify(model).on_trust == ()
    monkeypatch.setattr(ProductOfSets, "listed", 26)
    (trust,) = interp.certify(model).on_trust
    assert trust.startswith("labels: compared on 112 inputs; unchecked assumption: all other inputs of each product")
    assert products.PROBED > 100


def test_products_without_some_samples_are_refused() -> None:
    class Some(Smallest):
        """Those of numbers below three only."""

        name, n_inputs = "products-test-some", 27

        def products(self) -> Iterator[ProductOfSets]:
            for each in super().products():
                places = tuple([token for token in tokens if token != 3] for tokens in each.places)
                if all(places):
                    yield ProductOfSets(places, each.right)

    with pytest.raises(InterpError, match=r"samples .* but does not list it among its inputs"):
        check_products(Some(), declared_products(Some()))


def test_a_token_of_a_huge_score_leaves_nothing_open() -> None:
    """With a 0 in the input, the model attends to it alone and answers 7; all other inputs are as before."""
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=8)
    with torch.no_grad():
        model.embed.W_E[0, 0] = 1e6
    found = interp.certify(model)
    inputs = list(product(range(8), repeat=3))
    wrong = [row for row in inputs if 0 in row and 7 not in row]
    assert (found.status, found.n_errors) == ("refuted", len(wrong))
    assert found.accuracy == 1 - len(wrong) / len(inputs)
