"""Named variables: is each there, and is it used?"""

from typing import Literal

from interp.measures.variables import probe, sites
from interp.populations import Population
from interp.report import Report
from interp.sections._shared import reasons
from interp.sections.base import Study, section

MOST_LAYERS, MOST_WIDTH = 12, 1024


def needs(study: Study) -> str | None:
    """Require a model small enough to probe at every layer."""
    cfg = study.model.cfg
    if cfg.n_layers > MOST_LAYERS or cfg.d_model > MOST_WIDTH:
        return f"{cfg.n_layers} layers of width {cfg.d_model} are too many sites to probe"
    return None


def population(study: Study) -> Population:
    some = study.data()[slice(0, 2)]
    fits = len(sites(study.subject, some)) * max(1, len(study.task.features(some)))
    return study.population("variables", fits=fits, most=1_000)


@section("variables", title="Variables", order=750, block="where", needs=needs)
def make(study: Study, report: Report) -> None:
    """Show probe and interchange accuracy of each feature, by layer and position."""
    inputs = study.once(population)
    found = probe(study.subject, inputs=inputs.batch)
    table = found.to_frame()
    if table.empty:
        report.heading("Variables", "No feature of the task has few enough values for a probe on so few inputs.")
        return
    report.heading(
        "Variables",
        f"Measured {inputs.measured}. Two questions for each variable of the task. Is it there? A linear probe tries "
        "to read it from the residual stream, on held-out inputs. Is it used? One site gets its value on another "
        "input (interchange): either the whole vector, or only the directions that the probe reads. The model should "
        "then answer as if this variable alone had changed." + reasons(found.reasons),
    )
    quantities: tuple[Literal["probe", "along_probe"], ...] = ("probe", "along_probe")
    for quantity in quantities:
        if table[quantity].notna().any():
            report.add_figure(
                f"variables_{quantity}",
                found.plot(quantity),
                "Accuracy of the linear probe."
                if quantity == "probe"
                else "Interchange of the directions that the probe reads: among pairs of inputs whose answer should "
                "change, the share that gets the expected answer.",
            )
    report.add_table(
        "variables",
        table,
        "chance: share of the most frequent value. probe: accuracy of a logistic regression on held-out inputs "
        "(cross-validated); fitted: its accuracy on the inputs it was fitted on. interchange: of the whole vector; "
        "along_probe: of the directions that the probe reads; both on the same pairs, whose answer should change.",
        max_rows=60,
    )
