"""Named variables: is each there, and is it used?"""

from __future__ import annotations

import pandas as pd

from interp.measures.variables import variables
from interp.populations import Population
from interp.report import Report
from interp.report import figures as draw
from interp.sections.base import Study, section

MOST_LAYERS, MOST_WIDTH = 12, 1024


def needs(study: Study) -> str | None:
    """Require a model small enough to probe at every layer."""
    cfg = study.model.cfg
    if cfg.n_layers > MOST_LAYERS or cfg.d_model > MOST_WIDTH:
        return f"{cfg.n_layers} layers of width {cfg.d_model} are too many sites to probe"
    return None


def population(study: Study) -> Population:
    return study.population("variables", variables, most=1_000)


@section("variables", title="Variables", order=750, needs=needs)
def make(study: Study, report: Report) -> None:
    """Show probe and interchange accuracy of each feature, by layer and position."""
    inputs = study.once(population)
    table: pd.DataFrame = study.on_population("variables", inputs)
    if table.empty:
        report.section("Variables", "No feature of the task has few enough values for a probe on so few inputs.")
        return
    reasons = "".join(f" {reason}." for reason in table.attrs["reasons"].values())
    report.section(
        "Variables",
        f"Measured {inputs.measured}. Two questions for each variable of the task. Is it there? A linear probe tries "
        "to read it from the residual stream, on held-out inputs. Is it used? One site gets its value on another "
        "input (interchange): either the whole vector, or only the directions that the probe reads. The model should "
        "then answer as if this variable alone had changed." + reasons,
    )
    for quantity, title in (("probe", "probe accuracy"), ("along_probe", "interchange accuracy")):
        if table[quantity].isna().all():
            continue
        frame = table.dropna(subset=[quantity])
        sites = frame["position"].unique()
        matrix = frame.assign(
            site=["read" if p == "read" else f"position {p}" for p in frame["position"]] if len(sites) > 1 else "read"
        )
        matrix["row"] = matrix["feature"] + (", " + matrix["site"] if len(sites) > 1 else "")
        grid = matrix.pivot(index="row", columns="layer", values=quantity).loc[list(dict.fromkeys(matrix["row"]))]
        last = study.model.cfg.n_layers
        columns = [f"after layer {last - 1}" if layer == last else f"before layer {layer}" for layer in grid.columns]
        report.add_figure(
            f"variables_{quantity}",
            draw.heatmap(
                grid.to_numpy(), columns, list(grid.index), "residual stream", "variable", title, ends=(0.0, 1.0),
                square=False, show_values=grid.size <= 80,
            ),
            "Accuracy of the linear probe."
            if quantity == "probe"
            else "Interchange of the directions that the probe reads: among pairs of inputs whose answer should "
                "change, the share that gets the expected answer.",
        )  # fmt: skip
    report.add_table(
        "variables",
        table,
        "chance: share of the most frequent value. probe: accuracy of a logistic regression on held-out inputs "
        "(cross-validated); fitted: its accuracy on the inputs it was fitted on. interchange: of the whole vector; "
        "along_probe: of the directions that the probe reads; both on the same pairs, whose answer should change.",
        max_rows=60,
    )
