"""QK and OV of a recognizer's heads between named components of the residual stream."""

from __future__ import annotations

import pandas as pd
import torch

from interp.architecture.formulas import position_codes
from interp.architecture.task_model import TaskModel
from interp.measures import languages as measures
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section
from interp.spec import PLAIN_POSITIONS


@section("string_components", title="What the heads read and write", order=530, needs=shared.needs_recognizer)
def make(study: Study, report: Report) -> None:
    """Components of the proof for exact models, else token embeddings and position codes."""
    model = study.subject.task_model
    exact = shared.is_exact(study)
    table = measures.components_read(model, None if exact else _named_inputs(model))
    report.section(
        "What the heads read and write",
        "QK: which component of the asking row meets which of the row it looks at, with its coefficient in the score. "
        "OV: which component is moved, and where it is written. "
        + ("Components are those of the proof." if exact else
           "Components are the token embeddings and position codes; after a layer norm rows are mixtures of more."),
    )  # fmt: skip
    table = table[table["coefficient"].abs() > 1e-3 * table["coefficient"].abs().max()]
    if table.empty:
        report.add_text("No head reads or writes any of them.")
        return
    if not exact:
        for circuit in ("QK", "OV"):
            part = table[table["circuit"] == circuit]
            names = list(dict.fromkeys([*part["source"], *part["target"]]))
            index = pd.MultiIndex.from_product([range(len(model.spec.layers)), range(model.spec.layers[0].n_heads),
                                                names, names], names=["layer", "head", "source", "target"])  # fmt: skip
            full = part.set_index(["layer", "head", "source", "target"])["coefficient"].reindex(index, fill_value=0.0)
            cells = full.reset_index()
            cells["head"] = cells["layer"].astype(str) + "." + cells["head"].astype(str)
            report.add_figure(
                f"components_{circuit}",
                draw.circuit(cells, "source", "target", "coefficient", "score" if circuit == "QK" else "coefficient"),
                f"{circuit} of each head (layer.head): "
                + ("rows ask, columns are looked at." if circuit == "QK" else "rows are read, columns written."),
            )
    report.add_table("string_components", table, "Every coefficient that is not negligible.", max_rows=30)


def _named_inputs(model: TaskModel) -> dict[str, torch.Tensor]:
    """Embeddings of the symbols and marks, and the position codes where these are few."""
    task, spec = model.task, model.spec
    named = {
        token: model.embed.W_E[at].detach().double().cpu()
        for at, token in enumerate(task.vocabulary)
        if token != task.pad
    }
    if spec.positions not in PLAIN_POSITIONS:
        table, _ = position_codes(spec.positions, 8, spec.d_model)
        codes = [code for code in table if code.abs().max() > 0]
        if len(codes) <= 4:
            named |= {f"{spec.positions} code {at}".removesuffix(" 0"): code for at, code in enumerate(codes)}
    return named
