"""Entries of a table for combinations of values that never occur: the model is asked for them.

At inputs as they are, they decide nothing; with a variable from another input, they do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.programs import maps
from interp.programs.reading import Reading
from interp.programs.steps import Table


def fill_unmet_cells(
    reading: Reading, step: Table, codes: maps.Codes, mask: Bool[Tensor, "rows length"], layer: int | None,
    given: Callable[[Float[Tensor, "cells d_model"]], Int[Tensor, "cells"]], met: Bool[Tensor, "points"] | None = None,
) -> Table:  # fmt: skip
    """The table of an MLP's layer or of the readout (None), with entries for combinations that never occur.

    At a position that has the right token and position, what earlier parts write is exchanged. The entries of tokens at
    positions where they never stand stay as they are. codes: of the variables, at the positions of the mask. given: the
    entries that residual streams give; -1 for none. met: of these positions, those to which the entries are fitted.
    """
    running, names = reading.running, [name for name in step.of if name in reading.vectors]
    if not names or not running.paths:
        return step
    fixed = {name: codes[name] for name in step.of if name not in names}
    sizes = [codes[name][1] for name in step.of]
    index, n = maps.joint(codes, step.of)
    empty = (torch.bincount(index if met is None else index[met], minlength=n) == 0).nonzero()[:, 0]
    wanted = {name: (code, size) for name, code, size in zip(step.of, torch.unravel_index(empty, sizes), sizes)}
    there, _ = maps.joint(fixed, tuple(fixed))
    needed, _ = maps.joint({name: wanted[name] for name in fixed}, tuple(fixed))
    first = {cell: at for at, cell in reversed([*enumerate(there.expand(len(index)).tolist())])}
    at = torch.tensor([first.get(cell, -1) for cell in needed.expand(len(empty)).tolist()], dtype=torch.long)
    empty, at, here = empty[at >= 0], at[at >= 0], at >= 0
    if not len(empty):
        return step
    stream = running.stream({}, layer, reads=False)[mask][at]
    for name in names:
        part, new = running.by_name[name], reading.vectors[name][wanted[name][0][here]]
        stream = stream + running.writes(part, new) - running.written(part)[mask][at]
    entries, computed = torch.tensor(step.entries), given(stream)
    entries[empty[computed >= 0]] = computed[computed >= 0]
    return replace(step, entries=tuple(entries.tolist()))
