"""Every shipped checkpoint loads, is what its folder's spec says, and every shipped spec can be built."""

import inspect
import re
from pathlib import Path

import pandas as pd
import pytest

import interp
from interp.models.architecture.task_model import model_problems
from interp.models.constructions import registered_constructions
from interp.tasks import make_task

ROOT = Path(__file__).resolve().parent.parent
SPECS = sorted((ROOT / "models").glob("*/*/model.toml"))
README = (ROOT / "models" / "README.md").read_text("utf-8")
CHECKPOINTS = sorted((ROOT / "models").glob("*/*/*.safetensors"))


def name(path: Path) -> str:
    return f"{path.parent.parent.name}/{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", SPECS, ids=name)
def test_the_spec_can_be_built(path: Path) -> None:
    spec = interp.ModelSpec.from_toml(path)
    assert model_problems(spec, make_task(spec.task)) == []


@pytest.mark.parametrize("path", CHECKPOINTS, ids=name)
@pytest.mark.thinned(3)
def test_the_checkpoint_is_one_of_its_spec_and_answers(path: Path) -> None:
    model = interp.load(path)
    assert model.spec == interp.ModelSpec.from_toml(path.parent / "model.toml")
    assert path.stem == f"seed-{model.seed}"
    batch = model.task.sample(50, model.task.splits[-1], seed=1)
    right = model.predict(batch.tokens) == batch.labels
    assert float(right.double().mean()) > 0.5
    assert path.stat().st_size < 1_000_000


def test_models_readme_names_every_trained_model_and_its_command() -> None:
    for folder in {path.parent for path in CHECKPOINTS}:
        assert f"`{folder.parent.name}/{folder.name}`" in README
        assert f"models/{folder.parent.name}/{folder.name}/model.toml" in README


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", re.findall(r"^\| (count01/\S+) \| (\d+) \| ([\d.]+) \|$", README, re.MULTILINE), ids=lambda r: r[0]
)
def test_the_accuracies_of_models_readme_are_the_certificates(row: tuple[str, str, str]) -> None:
    name, errors, accuracy = row
    found = interp.certify(name)
    assert (found.n_errors, f"{found.accuracy:.6f}") == (int(errors), accuracy)


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    re.findall(r"^\| (histogram/\S+) \| ([\d.]+) \| (\w+) \| ([\d.]+) to ([\d.]+) \|", README, re.MULTILINE),
    ids=lambda row: row[0],
)
def test_readme_histogram_rows_agree_with_quick_certificates(row: tuple[str, ...]) -> None:
    """The intervals there are narrower (they took ten seconds and samples); what is sound without must meet them."""
    name, last, status, low, high = row
    model = interp.load(name)
    found = interp.certify(model, seconds=0, samples=0)
    sound = found.accuracy if isinstance(found.accuracy, tuple) else (found.accuracy, found.accuracy)
    assert found.status == status
    assert sound[0] <= float(high)
    assert sound[1] >= float(low)
    assert f"{model.summary['accuracy']:.4f}" == last


def test_models_readme_has_a_row_for_every_histogram_checkpoint() -> None:
    shipped = {name(path) for path in CHECKPOINTS if path.parent.parent.name == "histogram"}
    assert shipped == set(re.findall(r"^\| (histogram/\S+/seed-\d+) \|", README, re.MULTILINE))


def test_readme_histogram_rows_are_those_of_certificates() -> None:
    """Intervals are rounded outward, and say 1 of nothing that is refuted."""
    table = pd.read_csv(ROOT / "models" / "certificates.csv", keep_default_na=False, dtype=str)
    table = table.set_index(table["name"] + "/" + table["variant"])
    pattern = r"^\| (histogram/\S+/seed-\d+) \| [\d.]+ \| (\w+) \| ([^|]*) \|([^|]*)\|$"
    for checkpoint, status, accuracy, counts in re.findall(pattern, README, re.MULTILINE):
        row, said = table.loc[checkpoint], [float(number) for number in accuracy.split(" to ")]
        low, high = float(row["accuracy low"]), float(row["accuracy high"])
        assert (row["status"], row["wrong counts"]) == (status, counts.strip())
        assert low - 1.01e-4 < said[0] <= low <= high <= said[-1] < high + 1.01e-4
        assert (said[-1] == 1) == (status == "certified")


def test_certificates_have_a_row_per_checkpoint_and_exact_model() -> None:
    table = pd.read_csv(ROOT / "models" / "certificates.csv", keep_default_na=False)
    trained = table[table["kind"] == "trained"]
    assert set(trained["name"] + "/" + trained["variant"]) == {name(path) for path in CHECKPOINTS}
    exact = table[table["kind"] == "exact"]
    expected = {
        (name, variant)
        for name, entry in registered_constructions().items()
        if inspect.Parameter.empty not in entry.sizes.values()  # some need a table of the user's
        and not name.startswith("programs/")  # made from a user's program
        for variant in [v for v in entry.variants if v != "auto"] or [""]
    }
    assert set(zip(exact["name"], exact["variant"])) == expected
    assert set(exact["status"]) == {"certified"}
    holds = table["evidence"].str.startswith(("holds: ", "agrees with "))
    assert (holds | table["evidence"].str.startswith("none: ")).all()
    for column in ("evidence_sha256", "weights_sha256"):
        assert (table[column].str.fullmatch("[0-9a-f]{64}") == holds).all()
    assert f"{holds.sum()} of the {len(table)} rows have evidence that holds" in README
    assert not (table["status"] == "no method").any()


@pytest.mark.parametrize(
    ("model", "length", "errors", "yes"),
    [("palindrome-learned", 8, (33, 10), (49, 26)), ("parity-learned", 10, (1, 1), (513, 513))],
)
def test_readme_rows_of_learned_recognizers_hold_on_all_strings(model, length, errors, yes) -> None:
    """Counted here over all strings of the trained length, not sampled."""
    for seed in range(2):
        found = interp.load(f"languages/{model}/seed-{seed}")
        batch = found.task.enumerate_up_to(length)
        batch = batch[batch.lengths == batch.lengths.max()]
        said = found.predict(batch.tokens)
        assert len(said) == 2**length
        assert int((said != batch.labels).sum()) == errors[seed]
        assert int(said.sum()) == yes[seed]
    words = " ".join(README.split())
    assert f"`{model}` {errors[0]} / {errors[1]} of the {2**length:,}" in words
