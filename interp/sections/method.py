"""On which inputs the numbers of a report were measured."""

import pandas as pd

from interp import words
from interp.report import Report
from interp.sections.base import Study, all_sections, section


@section("method", title="Inputs of each section", order=990, block="method")
def make(study: Study, report: Report) -> None:
    """Show the population of each section that chose one."""
    table = inputs_of(study)
    if table.empty:
        return
    sampled = sum(not inputs.exact for inputs in study.populations.values())
    report.heading(
        "Inputs of each section",
        f"{sentence(sampled, len(table))} Sections that are not in the table name their inputs themselves, or read "
        "weights alone.",
    )
    report.add_table(
        "inputs",
        table,
        "The inputs on which each section measured; interval: half the widest 95% interval of a share.",
        {"interval": lambda margin: words.at_most(margin, 3)},
    )


def sentence(sampled: int, sections: int) -> str:
    """Say how many sections measured on a sample, and what that means for their shares."""
    if not sampled:
        return "These sections used all inputs, so there is no sampling error."
    if sampled == sections:
        return "These sections used a data set or a seeded sample, so their shares have 95% intervals."
    one = sampled == 1
    return (
        f"{words.counted(sampled, 'section')} of {sections} used a data set or a seeded sample, so "
        f"{'its' if one else 'their'} shares have 95% intervals; the {'others' if sections - sampled > 1 else 'other'} "
        "used all inputs."
    )


def inputs_of(study: Study) -> pd.DataFrame:
    """Return a table of sections and their inputs."""
    titles = {one.name: one.title for one in all_sections()}
    rows = [
        (titles.get(name, name), inputs.on.removeprefix("on "), inputs.margin)
        for name, inputs in study.populations.items()
    ]
    return pd.DataFrame(rows, columns=["section", "inputs", "interval"])
