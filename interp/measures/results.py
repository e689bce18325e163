"""What a public measure returns: a table, and the figure of it that a report shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import Tensor

from interp.views import view

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as Figure
else:
    Figure = Any  # plotly takes a second to load

SHOWN = 8
"""Number of rows that a notebook or a terminal shows."""


class Result:
    """A measure's result: a table (`to_frame`), its figure (`plot`), and a title that says what the rows are."""

    @property
    def title(self) -> str:
        raise NotImplementedError

    def to_frame(self) -> pd.DataFrame:
        raise NotImplementedError

    def plot(self) -> Figure:
        raise NotImplementedError

    def __getitem__(self, column: str) -> pd.Series:
        """Return a column of the table."""
        return self.to_frame()[column]

    def __len__(self) -> int:
        return len(self.to_frame())

    def __repr__(self) -> str:
        return f"{self.title}\n{self.to_frame().head(SHOWN).to_string(index=False)}{self._more}"

    def _repr_html_(self) -> str:
        from interp.report.cells import cells

        frame = self.to_frame().head(SHOWN)
        return view(self.title + self._more, cells(frame), list(frame.columns))

    @property
    def _more(self) -> str:
        n = len(self)
        return f"\n({SHOWN} of {n} rows; to_frame() has all, plot() draws them)" if n > SHOWN else ""


@dataclass(frozen=True, eq=False, repr=False)
class Tabular(Result):
    """A result that is one table."""

    table: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        return self.table


def tidy(values: Tensor, name: str, **axes: Sequence[Any]) -> pd.DataFrame:
    """Return one row per value: a column for each axis of the tensor, with these labels, and the value's, `name`."""
    index = pd.MultiIndex.from_product(axes.values(), names=list(axes))
    return index.to_frame(index=False).assign(**{name: values.flatten().numpy()})
