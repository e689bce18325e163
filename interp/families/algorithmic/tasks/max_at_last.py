"""Maximum of K numbers, read at the last number (as in Gross et al. 2024, "Compact Proofs of Model Performance").

    3 1 4 1          the answer, read at the last number, is 4

The query token is a number; in task `max-of-k`, it is always '='.
"""

from torch import Tensor

from interp.families.algorithmic.tasks.max_of_k import Maximum
from interp.tasks.batch import Batch
from interp.tasks.registry import register_task


@register_task
class MaxAtLast(Maximum):
    """The largest of K numbers from 0 to v - 1; both splits draw numbers independently and uniformly."""

    name = "max-at-last"
    readout = "last"
    equals = False

    def features(self, batch: Batch) -> dict[str, Tensor]:
        """Return the features of max-of-k, and the number at the query (last)."""
        found = super().features(batch)
        return {"answer": found.pop("answer"), "last": batch.tokens[:, -1], **found}
