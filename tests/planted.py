"""A stock model whose mechanism is planted, with its task: two heads copy a symbol each."""

from itertools import product

import torch
from drawn_weights import hooked, set_to_zero

from interp.models.lens import HookedTransformer
from interp.tasks import Batch, Task


class Pairing(Task):
    """Two symbols, then '=': which of the nine pairs is it?"""

    name = "planted_pairing"
    readout = "last"
    vocabulary = ("0", "1", "2", "=")
    n_out = 9

    def batch(self, tokens):
        return Batch(tokens, torch.full((len(tokens),), 3), 3 * tokens[:, 0] + tokens[:, 1])

    @property
    def n_inputs(self):
        return 9

    def inputs(self, chunk=4096):
        yield self.batch(torch.tensor([(a, b, 3) for a, b in product(range(3), repeat=2)]))

    def sample(self, n, split="test", seed=0):
        rows = torch.randint(9, (n,), generator=torch.Generator().manual_seed(seed))
        return next(self.inputs())[rows]

    def features(self, batch):
        return {"a": batch.tokens[:, 0], "b": batch.tokens[:, 1], "answer": batch.labels}


def planted() -> HookedTransformer:
    """Head 0 copies the first symbol to '=', head 1 the second: dimensions 0-3 tokens, 4-6 positions, 7-12 copies."""
    model = hooked(
        n_layers=1, d_model=13, n_ctx=3, d_head=4, n_heads=2, d_vocab=4, d_vocab_out=9, attn_only=True,
        normalization_type=None, dtype=torch.float64,
    )  # fmt: skip
    with torch.no_grad():
        set_to_zero(model)
        model.embed.W_E[:, :4] = torch.eye(4)
        model.pos_embed.W_pos[:, 4:7] = torch.eye(3)
        attn = model.blocks[0].attn
        for head in range(2):
            attn.W_Q[head, 6, 0] = 60.0
            attn.W_K[head, 4 + head, 0] = 2.0
            attn.W_V[head, :4] = torch.eye(4)
            attn.W_O[head, :3, 7 + 3 * head : 10 + 3 * head] = torch.eye(3)
        for c in range(9):
            model.unembed.W_U[7 + c // 3, c] = model.unembed.W_U[10 + c % 3, c] = 4.0
    return model
