"""Measures of several models of one spec at once, such as the seeds of a sweep.

They share inputs, right answers and where answers are read; in count space, the heads of all of them are one product of
stacked tables (heads.outputs_of_each). Elsewhere, models run one after the other: mapped over an axis of models
(torch.func.vmap), the same hooked pass takes as long, because PyTorch has no batching rule for fused attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import pandas as pd

from interp.errors import InterpError
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Model, Subject

Models: TypeAlias = Model | Sequence[Model]
"""A model, or several of one spec."""


def subjects_of(model: Models) -> list[Subject]:
    """Return the subjects of one model, or of several. Raises InterpError unless several are of one spec."""
    if not isinstance(model, Sequence):
        return [Subject.of(model)]
    subjects = [Subject.of(member) for member in model]
    if not subjects:
        raise InterpError("the list of models is empty; give at least one")
    specs = [subject.model.spec.id if isinstance(subject.model, TaskModel) else subject.name for subject in subjects]
    if other := next((spec for spec in specs if spec != specs[0]), None):
        raise InterpError(f"models of one call must have one spec, but there are {specs[0]} and {other}")
    if any(not isinstance(subject.model, TaskModel) for subject in subjects):
        raise InterpError("a list of models needs models with a spec; measure others one by one")
    return subjects


def by_seed(model: Models, subjects: Sequence[Subject], tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the table of one model, or those of several as one, with a first column seed.

    Where two have the same seed, as models of other libraries, whose seed is not known, each has its place in the list.
    """
    if not isinstance(model, Sequence):
        return tables[0]
    seeds = [subject.task_model.seed for subject in subjects]
    if len(set(seeds)) < len(seeds):
        seeds = list(range(len(seeds)))
    joined = pd.concat([table.assign(seed=seed) for seed, table in zip(seeds, tables)], ignore_index=True)
    return joined[["seed", *(name for name in joined if name != "seed")]]


def mean_over_seeds(table: pd.DataFrame, measured: Sequence[str]) -> pd.DataFrame:
    """Return the means of measured columns over seeds, for equal values of the others; one model's table as it is."""
    if "seed" not in table:
        return table
    fixed = [name for name in table if name not in ("seed", *measured)]
    return table.groupby(fixed, sort=False, dropna=False, as_index=False)[list(measured)].mean()
