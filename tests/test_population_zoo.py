"""Numbers of six sections of a report, for every model of the zoo, again by plain hooks: see plain_numbers.py."""

import pytest
import torch
from plain_numbers import Plain

import interp
from interp.errors import UnsupportedError
from interp.measures.variables import MOST_PAIRS, pairs_of
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections import Study, accuracy, circuits, components, embeddings, faithfulness, fill
from interp.report.sections import _shared as shared
from interp.tasks.populations import InputsAsked

pytestmark = pytest.mark.slow

INPUTS, FEW = 80, 12
LONG = 100  # tokens of a row; of longer ones few are taken
NAMES = [str(name) for name in interp.list_models()["name"]]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_a_report_are_those_of_plain_hooks(name: str) -> None:
    try:
        model = interp.load(name)
    except interp.InterpError as error:
        pytest.skip(str(error))
    inputs = FEW if model.task.sample(1).tokens.shape[1] > LONG else INPUTS
    study, plain = Study(Subject.of(model), asked=InputsAsked(inputs=inputs)), Plain(model)
    batch = study.once(accuracy.population).batch
    assert accuracy.measure_accuracy(study).accuracy == pytest.approx(plain.accuracy(batch))
    compared = []
    for section, check in CHECKS.items():
        report = Report(name)
        try:
            fill(study, report, [section])
        except UnsupportedError:  # the section does not apply, and says why
            continue
        if report.tables:
            check(study, plain, report)
            compared.append(section)
    assert "heads" in compared


def close(plain: Plain, batch: object) -> float:
    """What rounding of one answer near a tie may change."""
    return 1.5 / len(plain.reads(batch).rows)  # type: ignore[arg-type]


def check_heads(study: Study, plain: Plain, report: Report) -> None:
    tested = study.once(shared.parts_population)
    table = study.once(shared.surveyed).set_index("part")
    assert set(table.index) == plain.parts()
    batch, train = tested.batch, shared.reference(study, tested).batch
    near = close(plain, batch)
    assert study.once(shared.surveyed).attrs["accuracy"] == pytest.approx(plain.accuracy(batch))
    means = plain.means(list(table.index), batch, train)
    for part, row in table.iterrows():
        assert row["accuracy_zero"] == pytest.approx(plain.accuracy(batch, [plain.put(str(part), 0.0)]), abs=near), part
        assert row["accuracy_mean"] == pytest.approx(plain.accuracy(batch, [means[str(part)]]), abs=near), part


def check_components(study: Study, plain: Plain, report: Report) -> None:
    batch, table = study.once(components.population).batch, report.tables["components"].set_index("component")["effect"]
    difference = plain.difference(plain.outputs(batch), plain.reads(batch).classes)
    near = 1e-4 * float(difference.abs().mean() + table.abs().max())
    assert report.facts["mean_difference"] == pytest.approx(float(difference.mean()), abs=near)
    assert table.sum() == pytest.approx(float(difference.mean()), abs=near)
    for part, effect in plain.effects(sorted(plain.parts()), batch).items():
        assert table[part] == pytest.approx(effect, abs=near), part


def check_patching(study: Study, plain: Plain, report: Report) -> None:
    pairs, table = study.task.corrupt(study.once(circuits.population).batch, 0), report.tables["patching"]
    clean, corrupted, recovered = plain.patched(list(table["part"]), pairs.clean, pairs.corrupted)
    found = study.once(circuits.patched)
    assert (found.clean, found.corrupted) == pytest.approx((clean, corrupted), rel=1e-4, abs=1e-4)
    assert table["recovered"].to_list() == pytest.approx(list(recovered.values()), rel=1e-3, abs=1e-3)


def check_circuit(study: Study, plain: Plain, report: Report) -> None:
    tested = study.once(faithfulness.population)
    batch, train = tested.batch, shared.reference(study, tested).batch
    heads = sorted(part for part in plain.parts() if part.startswith("head"))
    table, means = report.tables["circuit"].set_index("what")["accuracy"], plain.means(heads, batch, train)
    near = close(plain, batch)
    assert table["model"] == pytest.approx(plain.accuracy(batch))
    assert table["nothing"] == pytest.approx(plain.accuracy(batch, list(means.values())), abs=near)
    kept = study.once(shared.surveyed).query("kind == 'head'")
    by = "loss_mean" if kept["loss_mean"].notna().all() else "accuracy_mean"
    order = kept.sort_values(by, ascending=by == "accuracy_mean", kind="stable")["part"]
    silenced = [means[head] for head in order[report.facts["circuit_heads"] :]]
    assert table["circuit"] == pytest.approx(plain.accuracy(batch, silenced), abs=near)
    if len(report.tables.get("circuit_minimality", ())):
        for row in report.tables["circuit_minimality"].itertuples():
            without = plain.accuracy(batch, [*silenced, means[row.part]])
            assert row.accuracy_without == pytest.approx(without, abs=near), row.part


def check_variables(study: Study, plain: Plain, report: Report) -> None:
    """Values, chance, and the interchange of whole vectors; which pairs of inputs there are is the measure's choice."""
    batch = study.once(embeddings.population).batch
    where, layers = plain.reads(batch), plain.model.cfg.n_layers
    found = {
        name: (value[where.rows, where.positions] if value.ndim == 2 else value[where.rows]).long()
        for name, value in study.task.features(batch).items()
    }
    table = report.tables["variables"]
    for (name, values), rows in table.groupby(["feature", "values"]):
        numbers = found[str(name)].unique(return_counts=True)[1]
        assert values == len(numbers)
        assert rows["chance"].to_list() == pytest.approx([int(numbers.max()) / len(where.rows)] * len(rows))
    known = {name: value for name, value in found.items() if name in set(table["feature"])}
    before = plain.answers(plain.outputs(batch))
    for row in table[table["pairs"] > 0].itertuples():
        base, source, wanted = pairs_of(study.subject, batch, row.feature, known, MOST_PAIRS, 0)
        point = f"blocks.{layers - 1}.hook_resid_post" if row.layer == layers else f"blocks.{row.layer}.hook_resid_pre"
        places = where.positions if row.position == "read" else torch.full_like(where.positions, int(row.position))
        given = plain.cached(batch, [point])[point][where.rows[source], places[source]]
        after = plain.answers(plain.moved(batch, base, point, places[base], given))
        good = (after == wanted) & (before[base] != wanted)
        assert row.pairs == len(base)
        assert row.interchange == pytest.approx(float(good.double().mean()), abs=1.5 / len(base)), (row.feature, point)


CHECKS = {
    "heads": check_heads,
    "components": check_components,
    "patching": check_patching,
    "variables": check_variables,
    "faithfulness": check_circuit,
}
