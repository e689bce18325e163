"""Count01 with sentences and data sets so short that whole models are trained on them in no time."""

from __future__ import annotations

import interp
from interp.families.count01 import Count01


class Short(Count01):
    """Count01 with short sentences and small data sets."""

    name = "count01-short"
    boxes = {split: type(box)((0, 6), (0, 6), (0, 6)) for split, box in Count01.boxes.items()}  # noqa: RUF012
    sizes = {"train": 60, "validation": 20, "test": 20}  # noqa: RUF012


interp.register_task(Short)
