"""Specs: complete problems, stable ids, text round trips."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from interp.errors import InterpError, SpecError
from interp.models.spec import MLP, Bias, Construction, Layer, ModelSpec, TaskRef, Training

ROOT = Path(__file__).resolve().parent.parent.parent
COUNT01 = ModelSpec(
    task=TaskRef(name="count01"),
    d_model=32,
    layers=(Layer(n_heads=16, d_head=2, scale=1.0, norm="pre", bias=Bias(o=True)),),
    readout_at="=",
    origin=Training(init_std=0.02, learning_rate=2e-4, schedule="cosine"),
)
HISTOGRAM = ModelSpec(
    task=TaskRef(name="histogram", parameters=(("T", 32), ("L", 10))), d_model=8, direction="bidirectional",
    layers=(Layer(d_head=8, mixing="linear", normalizer="none", value_output="identity"),),
    max_length=10, readout="relu_mlp", readout_width=16,
)  # fmt: skip
LANGUAGE = ModelSpec(
    task=TaskRef(name="first"), d_model=16, direction="bidirectional",
    layers=(Layer(n_heads=2, d_head=8, mlp=MLP(d_mlp=64), norm="post", log_length="current"),) * 2,
    positions="sinusoidal", readout="scalar", readout_at="[CLS]", decision="sigmoid", dtype="float64",
)  # fmt: skip
MEMORIZATION = ModelSpec(
    task=TaskRef(name="bigram", data_seed=3, table_sha256="ab" * 32),
    d_model=4,
    layers=(Layer(n_heads=5, d_head=4, query_key="full", value_output="full", scale="inv_sqrt_d_model"),),
    positions="learned", positions_enter="attention", max_length=3, readout_at="last", readout_bias=False,
)  # fmt: skip
FAMILIES = {"count01": COUNT01, "histogram": HISTOGRAM, "language": LANGUAGE, "memorization": MEMORIZATION}


# ---------------------------------------------------------------- identity


@pytest.mark.parametrize(
    ("family", "pinned"),
    [
        # Shipped ids must never move: not by a new field, not by a changed default.
        ("count01", "count01-d32-h16-4ab466eb8b"), ("histogram", "histogram-d8-h1-6368579e9c"),
        ("language", "first-d16-h2-a0cffaaf82"), ("memorization", "bigram-d4-h5-1ad8c48e3d"),
    ],
)  # fmt: skip
def test_ids_are_pinned(family: str, pinned: str) -> None:
    assert FAMILIES[family].id == pinned


def test_the_shipped_model_is_this_one() -> None:
    assert ModelSpec.from_toml(ROOT / "models/count01/paper/model.toml") == COUNT01


def test_what_is_written_out_but_default_moves_no_id() -> None:
    written = ModelSpec(
        schema=1, task={"name": "count01", "parameters": {}, "data_seed": 0}, d_model=32, direction="causal",
        embedding="learned",
        layers=[
            {"n_heads": 16, "d_head": 2, "scale": 1.0, "norm": "pre", "norm_eps": 1e-5, "mixing": "dot",
             "bias": {"q": False, "k": False, "v": False, "o": True}, "mlp": None},
        ],
        positions="none", readout_at="=", n_out=None, dtype="float32",
        origin={"kind": "training", "init_std": 0.02, "learning_rate": 2e-4, "schedule": "cosine", "epochs": 100},
    )  # fmt: skip
    assert written == COUNT01
    assert written.id == COUNT01.id


def test_each_field_moves_the_id() -> None:
    other = [
        COUNT01.replace(task=TaskRef(name="count01", data_seed=1)), COUNT01.replace(d_model=33),
        COUNT01.replace(direction="bidirectional"), COUNT01.replace(embedding="frozen"),
        COUNT01.replace(layers=COUNT01.layers * 2),
        COUNT01.replace(layers=(COUNT01.layers[0].model_copy(update={"norm_eps": 1e-6}),)),
        COUNT01.replace(readout_at="all"), COUNT01.replace(readout_bias=False), COUNT01.replace(n_out=9),
        COUNT01.replace(dtype="float64"), COUNT01.replace(origin=None), COUNT01.replace(origin=Training()),
        COUNT01.replace(origin=Construction(name="count01/minimal")),
        COUNT01.replace(origin=Construction(name="count01/minimal", arguments=(("N", 8),))),
    ]  # fmt: skip
    ids = [spec.id for spec in (COUNT01, *other)]
    assert len(set(ids)) == len(ids)


def test_the_order_of_parameters_is_no_difference() -> None:
    one = TaskRef(name="histogram", parameters={"T": 3, "L": 4})  # type: ignore[arg-type]
    two = TaskRef(name="histogram", parameters=(("L", 4), ("T", 3)))
    assert one == two


def test_a_true_is_not_a_one() -> None:
    """Scalars keep their type through text, so that ids cannot collide."""
    flags = [HISTOGRAM.replace(task=TaskRef(name="t", parameters=(("x", value),))) for value in (True, 1, 1.0, "1")]
    assert len({spec.id for spec in flags}) == 4
    for spec in flags:
        again = ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
        assert type(again.task.parameters[0][1]) is type(spec.task.parameters[0][1])


# ---------------------------------------------------------------- text


@pytest.mark.parametrize("family", FAMILIES)
def test_toml_and_json_round_trips(family: str, tmp_path: Path) -> None:
    spec = FAMILIES[family]
    path = tmp_path / "model.toml"
    path.write_text(spec.to_toml() + '\n[zoo]\ndefault = "seed-0"\n')
    assert ModelSpec.from_toml(path) == spec
    assert ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert spec.problems() == []


# Plain data, so that specs are built inside the test: the checks of types draw random items, which strategies may not.
def table(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


scalars = st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
parameters = st.dictionaries(st.text("abcXYZ_", min_size=1, max_size=4), scalars, max_size=3).map(
    lambda d: tuple(d.items())
)
sizes = st.integers(1, 9)
layers = table(
    n_heads=sizes, d_head=sizes, mixing=st.sampled_from(["dot", "linear"]),
    normalizer=st.sampled_from(["softmax", "none"]),
    scale=st.floats(1e-6, 1e6) | st.sampled_from(["inv_sqrt_d_head", "inv_sqrt_d_model"]),
    log_length=sizes | st.sampled_from(["none", "current"]),
    query_key=st.sampled_from(["learned", "full"]),
    value_output=st.sampled_from(["learned", "full", "identity"]),
    bias=table(q=st.booleans(), k=st.booleans(), v=st.booleans(), o=st.booleans()),
    mlp=st.none() | table(d_mlp=sizes, activation=st.sampled_from(["relu", "silu"]), gated=st.booleans()),
    norm=st.sampled_from(["none", "pre", "post"]), norm_eps=st.floats(0, 1),
    norm_kind=st.sampled_from(["layer", "rms"]), key_value_heads=st.none() | sizes, query_key_norm=st.booleans(),
)  # fmt: skip
origins = (
    st.none()
    | table(kind=st.just("construction"), name=st.text(max_size=5), variant=st.text(max_size=3), arguments=parameters)
    | table(
        kind=st.just("training"), epochs=st.integers(0, 9), data=st.sampled_from(["fixed", "fresh"]),
        samples_per_epoch=st.none() | sizes, learning_rate=st.floats(1e-9, 1),
        betas=st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)), init=st.sampled_from(["normal", "torch"]),
    )
)  # fmt: skip
specs = table(
    task=table(name=st.text(max_size=5), parameters=parameters, data_seed=st.integers(0, 9)),
    d_model=sizes,
    layers=st.lists(layers, max_size=3).map(tuple),
    positions=st.sampled_from(["none", "learned", "sinusoidal", "fraction", "rotary", "alibi"]),
    positions_enter=st.sampled_from(["residual", "attention"]), rotary_dim=st.none() | sizes,
    rotary_base=st.floats(1, 1e6), tied_embeddings=st.booleans(), max_length=st.none() | sizes,
    readout=st.sampled_from(["linear", "relu_mlp", "scalar"]), readout_width=st.none() | sizes,
    readout_bias=st.booleans(), decision=st.sampled_from(["argmax", "sigmoid", "indicator"]),
    tolerance=st.none() | st.floats(1e-6, 1), n_out=st.none() | sizes, origin=origins,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(specs)
def test_any_spec_survives_text(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]) -> None:
    """Even one that cannot be built: text is read without judging combinations, and problems() always answers."""
    spec, path = ModelSpec(**data), tmp_path_factory.mktemp("spec") / "model.toml"
    path.write_text(spec.to_toml(), encoding="utf-8")
    for again in (ModelSpec.from_toml(path), ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict())))):
        assert again == spec
        assert again.id == spec.id
    assert all(isinstance(problem, str) and "\n" not in problem for problem in spec.problems())


# ---------------------------------------------------------------- what is refused


def sentences(call: Any) -> list[str]:
    with pytest.raises(SpecError) as error:
        call()
    assert all(problem.removeprefix(f"{str(error.value).split(': ')[0]}: ") in str(error.value)
               for problem in error.value.problems)  # fmt: skip
    return error.value.problems


def test_fields_are_checked_all_at_once() -> None:
    data = COUNT01.to_dict() | {"d_modle": 32, "direction": "sideways", "n_out": 0, "dtype": "int8"}
    data["layers"] = [{"n_heads": 2.5, "scale": -1.0, "norm": "LN"}]
    found = sentences(lambda: ModelSpec.from_dict(data))
    words = ["d_modle", "direction", "n_out", "dtype", "layers.0: n_heads", "layers.0: norm", "scale"]
    for word in words:
        assert any(word in problem for problem in found), (word, found)
    assert any("did you mean 'd_model'" in problem for problem in found)
    assert any("'sideways'" in problem for problem in found)
    assert any("layers.0: d_head is missing" in problem for problem in found)


def test_a_task_without_parameters_is_named_by_its_name() -> None:
    assert ModelSpec.from_dict(COUNT01.to_dict() | {"task": "count01"}).task == TaskRef(name="count01")


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ({}, "task"), ({"task": 5}, "task"), ({"schema": 2}, "schema 2"), ({"schema": "1"}, "schema '1'"),
        ({"origin": {"kind": "magic"}}, "magic"), ({"origin": {"name": "count01/minimal"}}, "origin"),
        ({"d_model": True}, "d_model"), ({"d_model": float("nan")}, "d_model"),
        ({"task": {"name": "count01", "parameters": {"T": [1]}}}, "parameters"),
        ({"task": {"name": "count01", "parameters": 3}}, "parameters"),
        ({"task": {"name": "count01", "parameters": [[1, 2], ["a", 3]]}}, "parameters"),
        ({"task": {"name": "count01", "parameters": {"a": float("nan")}}}, "parameters"),
        ({"origin": {"kind": "construction", "name": "x", "arguments": "ab"}}, "arguments"),
        ({"origin": {"kind": "training", "learning_rate": float("inf")}}, "learning_rate"),
        ({"layers": 3}, "layers"),
    ],
)  # fmt: skip
def test_data_that_is_no_spec(data: dict[str, Any], word: str) -> None:
    whole = data if data == {} else COUNT01.to_dict() | data
    assert any(word in problem for problem in sentences(lambda: ModelSpec.from_dict(whole)))


@pytest.mark.parametrize("text", [None, "d_model = ", "\x00", "[task]\nname = 3"])
def test_files_that_are_no_spec_name_themselves(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "bad.toml"
    if text is not None:
        path.write_text(text)
    for problem in sentences(lambda: ModelSpec.from_toml(path)):
        assert str(path) in problem


ONE = COUNT01.layers[0]
ROTARY = {"positions": "rotary", "positions_enter": "attention", "layers": (Layer(d_head=4),)}


def layer(**changes: Any) -> tuple[Layer, ...]:
    return (Layer(**{"d_head": 4, **changes}),)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": ()}, ["layers is empty"]),
        ({"layers": (ONE, ONE.model_copy(update={"n_heads": 3}))}, ["share n_heads"]),
        ({"layers": (ONE, ONE.model_copy(update={"norm": "none"}))}, ["share one norm"]),
        ({"layers": layer(query_key="full")}, ["d_head = d_model = 32, not 4"]),
        ({"layers": layer(value_output="identity", bias={"v": True})}, ["d_head = d_model", "neither a v nor an o"]),
        ({"layers": layer(mixing="linear")}, ["max_length", "bidirectional"]),
        (
            {"layers": layer(mixing="linear", bias={"q": True}), "direction": "bidirectional", "max_length": 4},
            ["queries"],
        ),
        ({"layers": layer(normalizer="none", log_length=12)}, ["log_length"]),
        ({"layers": layer(log_length="current")}, ["causal"]), ({"positions": "fraction"}, ["causal"]),
        ({"max_length": 4}, ["max_length"]), ({"positions": "learned"}, ["max_length"]),
        ({"positions_enter": "attention"}, ["positions_enter"]),
        ({"positions": "rotary"}, ["set positions_enter = 'attention'"]),
        ({**ROTARY, "rotary_dim": 3}, ["rotary_dim = 3 must be even and at most d_head = 4"]),
        ({**ROTARY, "rotary_dim": 6}, ["at most d_head = 4"]),
        ({**ROTARY, "layers": layer(d_head=32, query_key="full")}, ["learned queries and keys"]),
        ({"rotary_base": 5.0}, ["rotary_base"]),
        ({"positions": "alibi", "positions_enter": "attention", "direction": "bidirectional"}, ["causal"]),
        ({"layers": layer(norm_kind="rms", norm="none")}, ["norm_kind = 'rms'"]),
        ({"layers": layer(norm_kind="rms", norm="pre"), "final_norm": "layer_norm"}, ["norm_kind = 'rms'"]),
        ({"layers": (ONE, ONE.model_copy(update={"norm_kind": "rms"}))}, ["share norm_kind"]),
        ({"layers": layer(key_value_heads=2, n_heads=3)}, ["must divide n_heads = 3"]),
        ({"layers": layer(key_value_heads=4, n_heads=4)}, ["be smaller"]),
        ({"layers": layer(key_value_heads=1, n_heads=2, value_output="full", d_head=32)}, ["key_value_heads"]),
        ({"layers": layer(query_key_norm=True, query_key="full", d_head=32)}, ["query_key_norm"]),
        ({"tied_embeddings": True, "readout": "relu_mlp", "readout_width": 3}, ["tied_embeddings"]),
        ({"readout": "relu_mlp"}, ["readout_width"]),
        ({"readout_width": 3}, ["readout_width"]),
        ({"readout": "relu_mlp", "readout_width": 3, "readout_bias": False}, ["readout_bias"]),
        ({"readout": "scalar"}, ["decision = 'argmax'"]),
        ({"readout": "scalar", "decision": "sigmoid", "n_out": 2}, ["n_out = 2"]),
        ({"decision": "sigmoid"}, ["decision = 'sigmoid'"]),
        ({"readout": "scalar", "decision": "indicator"}, ["tolerance"]),
        ({"tolerance": 0.5}, ["tolerance"]),
        ({"origin": Training(betas=(0.9, 1.0))}, ["betas"]),
        ({"origin": Training(data="fresh")}, ["samples_per_epoch"]),
        ({"origin": Training(samples_per_epoch=5)}, ["samples_per_epoch"]),
        ({"max_length": 4, "tolerance": 0.5, "layers": layer(query_key="full")}, ["d_head", "max_length", "tolerance"]),
    ],
)  # fmt: skip
def test_problems_are_complete(changes: dict[str, Any], words: list[str]) -> None:
    spec = COUNT01.replace(**changes)
    found = spec.problems()
    assert len(found) == len(words), found
    for word, problem in zip(words, found, strict=True):
        assert word in problem
    assert sentences(spec.check) == found


def test_a_spec_is_frozen_and_replace_validates() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        COUNT01.d_model = 3  # type: ignore[misc]
    with pytest.raises(SpecError, match="d_model"):
        COUNT01.replace(d_model=0)
    assert COUNT01.replace(d_model=16).d_model == 16
    assert issubclass(SpecError, InterpError)


def test_a_spec_loads_neither_torch_nor_pandas() -> None:
    code = (
        "import sys, interp.models.spec; print([name for name in ('torch', 'pandas', 'numpy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


# ---------------------------------------------------------------- derived


@pytest.mark.parametrize(
    ("spec", "symmetry"),
    [
        (COUNT01, "counts"),
        (COUNT01.replace(layers=COUNT01.layers * 2), "none"),
        (COUNT01.replace(direction="bidirectional"), "distinct_tokens"),
        (COUNT01.replace(direction="bidirectional", layers=COUNT01.layers * 2), "distinct_tokens"),
        (COUNT01.replace(positions="sinusoidal"), "none"),
        (COUNT01.replace(positions="learned", max_length=9), "none"), (HISTOGRAM, "slots"),
        (HISTOGRAM.replace(layers=HISTOGRAM.layers * 2), "none"), (HISTOGRAM.replace(positions="learned"), "none"),
        (LANGUAGE, "none"), (LANGUAGE.replace(positions="fraction"), "position_codes"),
        (LANGUAGE.replace(positions="fraction", direction="causal"), "none"), (MEMORIZATION, "none"),
    ],
)  # fmt: skip
def test_symmetry(spec: ModelSpec, symmetry: str) -> None:
    assert spec.symmetry == symmetry


def test_capabilities() -> None:
    assert {name: (spec.additive_residual, spec.linear_readout) for name, spec in FAMILIES.items()} == {
        "count01": (True, True), "histogram": (True, False), "language": (False, True), "memorization": (True, True),
    }  # fmt: skip
    assert COUNT01.training.init_std == 0.02
    assert HISTOGRAM.training == Training()


def test_factor() -> None:
    assert Layer(d_head=4).factor(64) == 0.5
    assert Layer(d_head=4, scale="inv_sqrt_d_model").factor(64) == 0.125
    assert Layer(d_head=4, scale=3.0).factor(64) == 3.0


def test_a_beta_may_be_0() -> None:
    assert Training(betas=(0.0, 0.99)).problems() == []
