"""The zoo: names to models and back."""

import importlib
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import interp
import interp.models.listing as listing
import interp.models.zoo as zoo
from interp.errors import CheckpointError, InterpError, SpecError, UnsupportedError
from interp.families.count01 import Count01
from interp.models.architecture.parameters import initialize
from interp.models.architecture.task_model import TaskModel
from interp.models.constructions import registered_constructions
from interp.models.spec import Construction, Layer, ModelSpec, TaskRef
from interp.tasks import make_task, registered_tasks

SPEC = ModelSpec(task=TaskRef(name="count01"), d_model=3, layers=(Layer(n_heads=2, d_head=2),), readout_at="=")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder models/ with count01/small (seeds 0, 2, 10), found from a folder below its parent."""
    folder = tmp_path / "models" / "count01" / "small"
    folder.mkdir(parents=True)
    (folder / "model.toml").write_text(SPEC.to_toml() + '\n[zoo]\ndefault = "seed-2"\nsummary = "small"\n')
    for seed in (0, 2, 10):
        model = zoo.build(SPEC, seed=seed)
        model.summary = {"accuracy": 0.5 + seed / 100}
        zoo.save(model, folder / f"seed-{seed}.safetensors")
    work = tmp_path / "work" / "deeper"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.delenv("INTERP_MODELS", raising=False)
    monkeypatch.setattr("interp.models.model_files.shipped_root", lambda: tmp_path / "shipped")
    return tmp_path / "models"


def same(model: interp.TaskModel, other: interp.TaskModel) -> bool:
    pairs = zip(model.named_parameters(), other.named_parameters(), strict=True)
    return all(a == b and x.equal(y) and x.dtype == y.dtype for (a, x), (b, y) in pairs)


# ---------------------------------------------------------------- build


def test_build_random_models() -> None:
    one, again, other = zoo.build(SPEC, seed=3), zoo.build(SPEC, seed=3), zoo.build(SPEC, seed=4)
    assert same(one, again)
    assert not same(one, other)
    assert one.seed == 3
    drawn = initialize(SPEC, make_task("count01"), 3)
    assert all(drawn[name].equal(parameter) for name, parameter in one.named_parameters())
    assert zoo.build(SPEC, dtype="float64").W_E.dtype == torch.float64


def test_build_exact_models() -> None:
    model = zoo.build("count01/minimal", N=9)
    assert model.W_E.flatten().tolist() == [0, 9, 10, 0, 1, 81, 81, 0]
    assert dict(model.spec.origin.arguments)["N"] == 9
    assert same(zoo.build(model.spec), model)
    assert same(zoo.build(model.spec, seed=5), model)
    batch = Count01().sample(20)
    assert model.predict(batch.tokens).equal(batch.labels)


def test_build_from_toml_and_from_the_name_of_a_trained_model(models: Path) -> None:
    file = models / "count01/small/model.toml"
    for name in (file, str(file), "count01/small", file.parent):
        model = zoo.build(name, seed=7)
        assert model.spec == SPEC
        assert same(model, zoo.build(SPEC, seed=7))


def test_a_spec_that_claims_a_construction_is_held_to_it() -> None:
    exact = zoo.build("count01/minimal").spec
    with pytest.raises(InterpError, match="d_model is 1, not 2"):
        zoo.build(exact.replace(d_model=2))
    with pytest.raises(InterpError, match="dtype"):
        zoo.build(exact.replace(dtype="float32"))
    with pytest.raises(InterpError, match="count01/minimul"):
        zoo.build(exact.replace(origin=Construction(name="count01/minimul")))
    with pytest.raises(InterpError, match="N = 7"):
        zoo.build(exact.replace(origin=Construction(name="count01/minimal", arguments=(("N", 7),))))


@pytest.mark.parametrize(("arguments", "word"), [
    (("count01/minimal", {"M": 3}), "known: N, n_max"), (("count01/minimal", {"variant": "big"}), "no variants"),
    (("count01/minimal", {"N": 2}), "N = 2"), (("count01/minimal", {"dtype": "int8"}), "int8"),
    ((SPEC, {"N": 3}), "N"), ((SPEC, {"variant": "x"}), "variant"),
    (("count01/minmal", {}), "did you mean 'count01/minimal'"), (("none.toml", {}), "no such file: none.toml"),
    ((SPEC.replace(max_length=5), {}), "max_length"), ((SPEC.replace(readout_at="+"), {}), "readout_at"),
    ((SPEC.replace(positions="spiral", direction="bidirectional"), {}), "spiral"),
    ((SPEC.replace(task=TaskRef(name="count")), {}), "did you mean 'count01'"),
])  # fmt: skip
def test_build_refuses_in_one_sentence(arguments: tuple[Any, dict[str, Any]], word: str) -> None:
    with pytest.raises(InterpError) as error:
        zoo.build(arguments[0], **arguments[1])
    assert word in str(error.value)
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- load and save


def test_names_of_checkpoints(models: Path) -> None:
    assert zoo.load("count01/small").seed == 2
    assert zoo.load("count01/small/seed-10").seed == 10
    assert zoo.load(models / "count01/small").seed == 2
    assert zoo.load(str(models / "count01/small/seed-0.safetensors")).seed == 0
    found = zoo.load("count01/small")
    assert same(found, zoo.build(SPEC, seed=2))
    assert found.summary == {"accuracy": 0.52}
    assert zoo.load("count01/small", dtype="float64").W_E.double().equal(found.W_E.double())
    assert same(zoo.load("count01/minimal"), zoo.build("count01/minimal"))


def test_the_environment_comes_before_the_working_directory(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, second = models.parent / "mine", models.parent / "second"
    shutil.copytree(models / "count01/small", mine / "count01/small")
    shutil.copytree(models / "count01/small", second / "count01/other")
    toml = mine / "count01/small/model.toml"
    toml.write_text(toml.read_text().replace("seed-2", "seed-10"))
    monkeypatch.setenv("INTERP_MODELS", f"{mine}:{second}")
    assert zoo.find_checkpoint("count01/small") == mine / "count01/small/seed-10.safetensors"
    assert zoo.find_checkpoint("count01/other") == second / "count01/other/seed-2.safetensors"
    table = listing.list_models().set_index("name")
    assert table.loc["count01/small", "path"] == str(mine / "count01/small")


def test_shipped_models_are_found_from_any_folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a models/ of another layout too; an own model of the same name comes first, and says so."""
    shutil.copytree(models / "count01/small", models.parent / "shipped/count01/small")
    shutil.copytree(models / "count01/small", models.parent / "shipped/count01/extra")
    assert zoo.load("count01/small").seed == 2  # equal to the shipped one: nothing to say
    assert zoo.load("count01/extra").seed == 2
    zoo.save(zoo.build(SPEC, seed=7), models / "count01/small/seed-2.safetensors")
    with pytest.warns(UserWarning, match="count01/small in .*models hides the model of this name"):
        assert zoo.load("count01/small").seed == 7
    foreign = models.parent / "work/models/bert"
    foreign.mkdir(parents=True)
    (foreign / "weights.pt").write_bytes(b"x")
    with pytest.warns(UserWarning, match="hides"):  # the folder of another layout is passed over
        assert zoo.load("count01/small").seed == 7
    shutil.rmtree(models)
    assert zoo.load("count01/small").seed == 2
    assert set(listing.list_models().query("kind == 'trained'")["name"]) == {"count01/small", "count01/extra"}


def test_the_clone_knows_its_models_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INTERP_MODELS", raising=False)
    assert zoo.load("count01/paper").spec.task.name == "count01"


def test_a_file_in_the_working_directory_comes_first(models: Path) -> None:
    Path("count01").mkdir()
    zoo.save(zoo.build(SPEC, seed=99), "x.safetensors").rename("count01/minimal")
    assert zoo.find_checkpoint("count01/minimal") == Path("count01/minimal")
    assert zoo.load("count01/minimal").seed == 99


def test_the_default_is_seed_0_unless_the_toml_says_otherwise(models: Path) -> None:
    toml = models / "count01/small/model.toml"
    toml.write_text(SPEC.to_toml())
    assert zoo.load("count01/small").seed == 0
    for bad in ('"../../secret"', '".."', "3", '"a/b"'):
        toml.write_text(SPEC.to_toml() + f"\n[zoo]\ndefault = {bad}\n")
        with pytest.raises(InterpError, match="default"):
            zoo.load("count01/small")
    toml.write_text("zoo = 3\n" + SPEC.to_toml())
    with pytest.raises(InterpError, match="zoo"):
        zoo.load("count01/small")
    toml.write_text(SPEC.to_toml() + '\n[zoo]\ndefault = "seed-5"\n')
    with pytest.raises(CheckpointError, match=r"seed-5\.safetensors"):
        zoo.load("count01/small")


@pytest.mark.parametrize(("name", "word"), [
    ("count01/smal", "did you mean 'count01/small'"),
    ("count01/small/seed-1", "did you mean 'count01/small/seed-10' or"),
    ("small", "did you mean 'count01/small'"), ("xyz", "`interp models` lists all"),
    ("../models/count01/small", "no model"), ("count01/../count01/small", "no model"),
    ("count01/small/..", "no model"), ("count01//small", "no model"), ("/etc/passwd/x", "no model"),
    ("count01/.hidden", "no model"), ("", "no model"), ("gone.safetensors", "no such file: gone.safetensors"),
    ("gone.pt", "no such file: gone.pt"),
])  # fmt: skip
def test_unknown_names_say_what_was_tried(models: Path, name: str, word: str) -> None:
    with pytest.raises(InterpError) as error:
        zoo.load(name)
    assert word in str(error.value)
    assert "\n" not in str(error.value)
    if not name.startswith("gone"):
        assert str(models) in str(error.value)
        assert "INTERP_MODELS" in str(error.value)


def test_names_do_not_climb_out_of_the_folder(models: Path) -> None:
    """Even if there is something to find: models/../secret is a whole model."""
    shutil.copytree(models / "count01/small", models.parent / "secret")
    assert zoo.load(models / "../secret").seed == 2  # as a path one may
    for name in ("../secret", "../secret/seed-0", "count01/small/../seed-0"):
        for call in (zoo.load, zoo.build, zoo.find_checkpoint):
            with pytest.raises(InterpError, match="no model"):
                call(name)
    (models / "count01/small/model.toml").write_text(SPEC.to_toml() + '\n[zoo]\ndefault = "../../../secret/seed-2"\n')
    with pytest.raises(InterpError, match="default"):
        zoo.load("count01/small")


def test_without_any_models_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INTERP_MODELS", str(tmp_path / "nowhere"))
    monkeypatch.setattr("interp.models.model_files.shipped_root", lambda: tmp_path / "shipped")
    with pytest.raises(InterpError, match="nowhere"):
        zoo.load("count01/papers")
    assert set(listing.list_models()["kind"]) == {"exact"}


def test_save_and_load_keep_everything(tmp_path: Path) -> None:
    model = zoo.build(SPEC, seed=3)
    with torch.no_grad():
        model.embed.W_E += 1
    model.summary = {"epochs": 4}
    path = zoo.save(model, tmp_path / "mine.safetensors")
    found = zoo.load(path)
    assert same(found, model)
    assert (found.seed, found.spec, found.summary) == (3, SPEC, {"epochs": 4})
    assert zoo.save(found, tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_another_dtype_is_saved_only_if_nothing_is_lost(tmp_path: Path) -> None:
    model = zoo.build(SPEC, dtype="float64")
    path = zoo.save(model, tmp_path / "a.safetensors")
    assert zoo.load(path).W_E.dtype == torch.float32
    with torch.no_grad():
        model.embed.W_E += 1e-12
    with pytest.raises(InterpError, match="float64"):
        zoo.save(model, path)


@pytest.mark.parametrize("thing", [None, torch.nn.Linear(2, 2), SPEC])
def test_only_task_models_are_saved(tmp_path: Path, thing: Any) -> None:
    with pytest.raises(InterpError, match="task model"):
        zoo.save(thing, tmp_path / "x.safetensors")


def test_weights_of_a_proof_keep_its_length_limit(tmp_path: Path) -> None:
    """Only while they are the proof's: trained on from there, they have none."""
    exact = next(name for name in registered_constructions() if zoo.build(name).length_limit is not None)
    model = zoo.build(exact)
    path = zoo.save(model, tmp_path / "exact.safetensors")
    assert zoo.load(path).length_limit == model.length_limit
    with torch.no_grad():
        model.embed.W_E += 1
    assert zoo.load(zoo.save(model, path)).length_limit is None


# ---------------------------------------------------------------- lists


def test_list_models(models: Path) -> None:
    table = listing.list_models()
    assert isinstance(table, pd.DataFrame)
    assert table["name"].is_unique
    rows = table.set_index("name")
    small = rows.loc["count01/small"]
    assert (small["family"], small["task"], small["kind"], small["about"]) == ("count01", "count01", "trained", "small")
    assert small["seeds"] == (0, 2, 10)
    assert small["accuracy"] == 0.52
    assert small["parameters"] == sum(p.numel() for p in zoo.build(SPEC).parameters())
    minimal = rows.loc["count01/minimal"]
    assert (minimal["kind"], minimal["parameters"], minimal["task"]) == ("exact", 28, "count01")
    assert set(registered_constructions()) | {"count01/small"} == set(table["name"])
    assert "checkpoint" not in table
    states = rows["state"].to_dict()
    found = (states["count01/minimal"], states["count01/small"], states["memorization/theorem1"])
    assert found == ("proved", "measured", "")  # the last one is made of a table
    for path in (models / "count01/small").glob("*.safetensors"):
        path.unlink()
    assert listing.list_models().set_index("name").loc["count01/small", "state"] == ""  # nothing was measured


def test_a_folder_that_cannot_be_read_is_a_row_that_says_so(models: Path) -> None:
    for name, text in (
        ("broken", "d_model = "),
        ("wrong", SPEC.replace(d_model=3).to_toml() + "\n[zoo]\ndefault = 5\n"),
    ):
        shutil.copytree(models / "count01/small", models / f"count01/{name}")
        (models / f"count01/{name}/model.toml").write_text(text)
    (models / "count01/small/seed-0.safetensors").write_bytes(b"no")
    rows = listing.list_models().set_index("name")
    assert "not a readable TOML file" in rows.loc["count01/broken", "about"]
    assert "default" in rows.loc["count01/wrong", "about"]
    assert "seed-0.safetensors" in rows.loc["count01/small", "about"]


def test_list_tasks() -> None:
    table = listing.list_tasks().set_index("name")
    assert set(table.index) == set(registered_tasks())
    row = table.loc["count01"]
    assert (row["family"], row["tokens"], row["outputs"], row["readout"]) == ("count01", 8, 8, "=")
    assert row["splits"] == "train, validation, test"
    assert row["about"].startswith("Answer '4'")


def test_a_spec_with_problems_lists_them_all() -> None:
    with pytest.raises(SpecError) as error:
        zoo.build(SPEC.replace(max_length=5, tolerance=0.1))
    assert len(error.value.problems) == 2


def test_weights_that_are_not_shipped_say_how_to_train_them() -> None:
    with pytest.raises(InterpError, match=r"dyck1-learned are not shipped; train them with: interp train .*"):
        zoo.load("languages/dyck1-learned")


def test_a_loaded_model_knows_its_name_until_its_weights_change() -> None:
    model = zoo.load("count01/paper/seed-2")
    assert model.loaded_as == "count01/paper/seed-2"
    assert zoo.build("count01/paper").loaded_as == ""
    with torch.no_grad():
        model.blocks[0].attn.W_V[0, 0, 0] += 1
    assert model.loaded_as == ""


def test_a_model_made_in_inference_mode_is_as_any_other() -> None:
    with torch.inference_mode():
        model = zoo.load("count01/minimal")
        pair = "[BOS]1101=", "[BOS]0101="
        found = interp.activation_patching(model, *pair, method="both").parts
    assert model.loaded_as == "count01/minimal"
    assert interp.activation_patching(zoo.load("count01/minimal"), *pair, method="both").parts.equals(found)


def test_an_explanation_beside_a_state_dict_is_no_spec(tmp_path: Path) -> None:
    """An explanation, for example, names its task, too."""
    path = tmp_path / "mine.pt"
    torch.save({"embed.W_E": torch.zeros(2, 3)}, path)
    path.with_suffix(".json").write_text('{"schema": 2, "task": "count01", "level": "answers only"}')
    with pytest.raises(InterpError, match=r"mine\.pt has tensors such as embed\.W_E, which no reader knows"):
        zoo.load(path, task="count01")


def test_a_model_without_its_task_is_not_loaded() -> None:
    with pytest.raises(InterpError, match=r"already a model: load takes it with its task, load\(model, task=\.\.\.\)"):
        zoo.load(torch.nn.Linear(2, 2))


@pytest.mark.filterwarnings("ignore:embed.weight is assumed")
def test_an_encoder_that_attends_to_padding_is_refused() -> None:
    """A task model masks its task's padding: its numbers would be those of another model."""
    block = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    parts = {
        "embed": torch.nn.Embedding(4, 8),
        "encoder": torch.nn.TransformerEncoder(block, 1, enable_nested_tensor=False),
        "head": torch.nn.Linear(8, 1),
    }
    state, task = torch.nn.ModuleDict(parts).state_dict(), make_task("parity")
    given: dict[str, Any] = {"task": task, "tokens": dict(zip(task.vocabulary, range(4)))}
    with pytest.raises(UnsupportedError, match=r"'attend'.*never attends to it"):
        interp.load(state, config={"n_heads": 2, "causal": False}, padding="attend", **given)
    causal = interp.load(state, config={"n_heads": 2, "causal": True}, padding="attend", **given)
    assert isinstance(causal, TaskModel)
    with pytest.raises(InterpError, match="padding = 'skip' must be 'mask' or 'attend'"):
        interp.load(state, config={"n_heads": 2, "causal": False}, padding="skip", **given)  # type: ignore[arg-type]


def test_a_load_goes_through_few_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted as analyses/benchmarks/trace_load.py does; the walk was twice as long before one place decided."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "analyses" / "benchmarks"))
    trace = importlib.import_module("trace_load")
    zoo.load("count01/paper")
    stays, model = trace.stays_of(lambda: zoo.load("count01/paper"))
    found = trace.counts_of(stays)
    assert model.spec.task.name == "count01"
    assert stays[0] == "models/zoo"
    assert found["stays"] <= 45
    assert found["climbs"] <= 10
