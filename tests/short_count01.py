"""Count01 with sentences and data sets so short that whole models are trained on them in no time."""

import torch

import interp
from interp.families.count01 import Count01


class Short(Count01):
    """Count01 with short sentences and small data sets."""

    name = "count01-short"
    boxes = {split: type(box)((0, 6), (0, 6), (0, 6)) for split, box in Count01.boxes.items()}  # noqa: RUF012
    sizes = {"train": 60, "validation": 20, "test": 20}  # noqa: RUF012


interp.register_task(Short)


def sentences(task: Count01, n: int, seed: int) -> interp.Batch:
    """n sentences in which 0, 1 and 2 stand 1 to 15 times each: run whole, the task's own cost a hundred times more."""
    return task.sentences(torch.randint(1, 16, (n, 3), generator=torch.Generator().manual_seed(seed)))
