"""Three models as somebody else would have trained and saved them, with their tasks, for the tests of every measure.

    recall   2 layers, attention only, final layer norm, causal; 3 outputs, read at the last position
    ends     3 layers, bidirectional, MLPs, rows padded on the right; 2 outputs, read at the first position
    balance  1 layer with an MLP, no layer norm, causal; 3 outputs, read at every position

Each is a stock HookedTransformer: a state dict and a TransformerLens config as JSON in tests/standins/. No output is a
token. `python tests/standins.py` trains them again (a minute).
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from interp.models.lens import HookedTransformer, HookedTransformerConfig, quiet_construction
from interp.models.subject import Subject
from interp.tasks import Batch, Task

FOLDER = Path(__file__).parent / "standins"


class Recall(Task):
    """Three pairs of a key (k, l, m) and a value (x, y, z), then one of the keys again: what was its value?"""

    name = "standin_recall"
    readout = "last"
    vocabulary = ("k", "l", "m", "x", "y", "z")
    n_out = 3

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        draw = torch.Generator().manual_seed(2 * seed + (self.check_split(split) == "test"))
        keys = torch.stack([torch.randperm(3, generator=draw) for _ in range(n)])
        values = torch.randint(3, (n, 3), generator=draw)
        asked = torch.randint(3, (n, 1), generator=draw)
        pairs = torch.stack([keys, values + 3], dim=2).flatten(1)
        return self.batch(torch.cat([pairs, keys.gather(1, asked)], dim=1))

    def batch(self, tokens: Tensor) -> Batch:
        found = (tokens[:, :6:2] == tokens[:, 6:]).int().argmax(1, keepdim=True)
        labels = (tokens[:, 1:6:2].gather(1, found) - 3)[:, 0]
        return Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), labels)


class Ends(Task):
    """[CLS] and 2 to 7 letters, padded on the right: are the first and the last letter the same?"""

    name = "standin_ends"
    readout = "[CLS]"
    vocabulary = ("[CLS]", "a", "b", "c", "[PAD]")
    pad = "[PAD]"
    n_out = 2

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        draw = torch.Generator().manual_seed(2 * seed + (self.check_split(split) == "test"))
        lengths = torch.randint(2, 8, (n,), generator=draw) + 1
        tokens = torch.randint(1, 4, (n, 8), generator=draw)
        same = torch.rand(n, generator=draw) < 0.5
        last = lengths - 1
        rows = torch.arange(n)
        tokens[rows, last] = torch.where(same, tokens[:, 1], tokens[rows, last])
        tokens[:, 0] = 0
        return self.batch(tokens.masked_fill(torch.arange(8) >= lengths[:, None], 4))

    def batch(self, tokens: Tensor) -> Batch:
        lengths = (tokens != 4).sum(1)
        labels = (tokens[:, 1] == tokens[torch.arange(len(tokens)), lengths - 1]).long()
        return Batch(tokens, lengths, labels)


class Balance(Task):
    """8 letters a and b: at each position, are there so far fewer a (0), as many (1), or more (2)?"""

    name = "standin_balance"
    vocabulary = ("a", "b")
    n_out = 3

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        draw = torch.Generator().manual_seed(2 * seed + (self.check_split(split) == "test"))
        return self.batch(torch.randint(2, (n, 8), generator=draw))

    def batch(self, tokens: Tensor) -> Batch:
        balance = (1 - 2 * tokens).cumsum(1)
        return Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), balance.sign() + 1)


TASKS: dict[str, Callable[[], Task]] = {"recall": Recall, "ends": Ends, "balance": Balance}

CONFIGS: dict[str, dict[str, Any]] = {
    "recall": {
        "n_layers": 2, "d_model": 32, "n_heads": 2, "d_head": 16, "n_ctx": 7, "d_vocab": 6, "d_vocab_out": 3,
        "attn_only": True, "normalization_type": "LN", "attention_dir": "causal",
    },
    "ends": {
        "n_layers": 3, "d_model": 24, "n_heads": 2, "d_head": 12, "d_mlp": 48, "act_fn": "gelu", "n_ctx": 8,
        "d_vocab": 5, "d_vocab_out": 2, "normalization_type": "LN", "attention_dir": "bidirectional",
    },
    "balance": {
        "n_layers": 1, "d_model": 16, "n_heads": 3, "d_head": 6, "d_mlp": 32, "act_fn": "relu", "n_ctx": 8,
        "d_vocab": 2, "d_vocab_out": 3, "normalization_type": None, "attention_dir": "causal",
    },
}  # fmt: skip
NAMES = tuple(CONFIGS)


def padding_hooks(model: HookedTransformer, batch: Batch) -> list[tuple[str, Any]]:
    """Hooks that hide padding from attention, as its trainer had them: stock bidirectional attention ignores a mask."""
    if bool(batch.attention_mask.all()):
        return []

    def hide(scores: Tensor, hook: Any) -> Tensor:
        return scores.masked_fill(~batch.attention_mask[:, None, None, :], -torch.inf)

    return [(f"blocks.{layer}.attn.hook_attn_scores", hide) for layer in range(model.cfg.n_layers)]


def empty(name: str) -> HookedTransformer:
    with quiet_construction():
        return HookedTransformer(HookedTransformerConfig(**CONFIGS[name]))


@functools.cache
def standin(name: str) -> Subject:
    """The trained model with its task."""
    model = empty(name)
    model.load_state_dict(load_file(FOLDER / f"{name}.safetensors"), strict=False)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return Subject.external(model, TASKS[name]())


def read_of(name: str, logits: Tensor) -> Tensor:
    """Outputs where the task reads them: (rows, n_out), or (rows, length, n_out)."""
    return {"recall": logits[:, -1], "ends": logits[:, 0], "balance": logits}[name]


def train(name: str, steps: int, learning_rate: float = 3e-3) -> tuple[HookedTransformer, float]:
    """Train from scratch; the model and its accuracy on 4,000 fresh inputs."""
    torch.manual_seed(0)
    model, task = empty(name), TASKS[name]()
    torch.manual_seed(0)
    model.init_weights()
    optimizer = torch.optim.AdamW(model.parameters(), learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps)
    for step in range(steps):
        batch = task.sample(256, "train", seed=step)
        logits = read_of(name, model.run_with_hooks(batch.tokens, fwd_hooks=padding_hooks(model, batch)))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch.labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    test = task.sample(4000, "test", seed=0)
    with torch.no_grad():
        logits = read_of(name, model.run_with_hooks(test.tokens, fwd_hooks=padding_hooks(model, test)))
    return model, float((logits.argmax(-1) == test.labels).double().mean())


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for which, steps in (("recall", 2500), ("ends", 1500), ("balance", 1500)):
        trained, accuracy = train(which, steps)
        kept = {
            key: value.detach() for key, value in trained.state_dict().items() if not key.endswith((".mask", ".IGNORE"))
        }
        save_file({key: value.contiguous() for key, value in kept.items()}, FOLDER / f"{which}.safetensors")
        (FOLDER / f"{which}.json").write_text(json.dumps(CONFIGS[which], indent=1) + "\n")
        print(f"{which}: accuracy {accuracy:.4f} on 4,000 fresh inputs")
