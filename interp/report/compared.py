"""The page of a comparison: shares of algorithms, a drawing of each, variables put into other models, the models."""

from __future__ import annotations

import json

from interp.programs.explanations import Explanation
from interp.programs.explanations.findings import svg
from interp.programs.many.compare import ComparedModels, Grade
from interp.report.page import Report
from interp.report.sections.explanation import card
from interp.support.words import counted

DRAWN = 8
"""Most algorithms that are drawn, the most frequent ones."""
GRADE_WORDS: dict[Grade, str] = {
    "steps": "made by the same steps with the same graded weights",
    "shape": "made by the same steps, up to thresholds and graded weights",
    "answers": "with the same answers on 99% of the common inputs",
}


def comparison_page(found: ComparedModels) -> Report:
    """Return the page of a comparison, which the command `interp compare --page` writes."""
    shares, models = found.to_frame("algorithms"), found.to_frame("models")
    task = found.rows[0]["task"]
    report = Report("Which algorithm did each model learn?", f"{counted(len(models), 'model')} of task {task}")
    report.verdict = found.title
    report.heading("Algorithms", f"Models of one algorithm have programs {GRADE_WORDS[found.grade]}.")
    columns = ["algorithm", "models", "share", "low", "high", "accuracy", "least", "constants"]
    report.add_table(
        "algorithms", shares[columns],
        "One row for each algorithm: its share of the models with Wilson's 95% interval (low, high), the mean and the "
        'least accuracy of its models, and the median number of constants. "none": no program of the parts was found.',
    )  # fmt: skip
    report.add_figure("accuracy", found.plot(), "Each model, by the algorithm that it learned.")
    for row in shares[shares["algorithm"] != "none"].head(DRAWN).itertuples():
        first = next(record for record, name in zip(found.rows, found.algorithms) if name == row.algorithm)
        explanation = Explanation.from_json(json.dumps(first["explanation"]))
        report.heading(f"Algorithm {row.algorithm}", f"As {first['model']} computes it.")
        report.add_text(card(explanation))
        report.add_drawing(svg(explanation.parts), f"The parts of {first['model']} that are used.")
    if len(tests := found.to_frame("transplants")):
        report.heading(
            "Variables of one model in another",
            "The target runs with the value that the source's variable has on another input. The shares say how often "
            "it answers as its own program then does, where that answer changes and where it stays.",
        )
        report.add_table("transplants", tests, "One row for each variable that two programs share, and direction.")
    report.heading("Models")
    report.add_table("models", models, "One row for each model.", max_rows=1000)
    return report
