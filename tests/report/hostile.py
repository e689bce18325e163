"""A task whose name, tokens and answers are markup, to be shown as text wherever they stand."""

import torch

from interp.tasks import Batch, Task, register_task

HOSTILE = '</script><img/src=x/onerror="window.hacked=1">'


@register_task
class HostileTokens(Task):
    """Tokens whose names are markup: is the second token the first? </script><b>bold</b>"""

    name = "live-hostile"
    readout = "last"
    vocabulary = ("a", HOSTILE, "'\"&<b>")
    n_out = 2

    @property
    def answer_words(self) -> tuple[str, ...]:
        return ("<i>no</i>", HOSTILE)

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        tokens = torch.randint(0, 3, (n, 2), generator=torch.Generator().manual_seed(seed))
        return Batch(tokens, torch.full((n,), 2), (tokens[:, 0] == tokens[:, 1]).long())

    def classes(self, batch: Batch) -> torch.Tensor:
        return torch.stack([torch.full((len(batch.tokens),), -100), batch.labels], 1)
