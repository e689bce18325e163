"""The logit lens: what the model would answer if it stopped after each layer or sublayer (nostalgebraist 2020).

The residual stream after the embedding, after each attention and after each MLP goes through the final norm, with the
scale of that stream, and the readout. The last row is the model's own output.
"""

from dataclasses import dataclass
from typing import Literal

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.architecture.answers import correct, decide, losses
from interp.errors import InterpError, one_of
from interp.measures.results import Figure, Inputs, Result, as_batch, batch_of
from interp.measures.runs import activations, has_mlp, pieces, read_out, reads_of, stream_hook
from interp.measures.subject import Model, Subject
from interp.words import counted


@dataclass(frozen=True, eq=False, repr=False)
class LogitLens(Result):
    """logits[stage, read, output]: outputs after each stage, in the order of the task's answers.

    stages: their names. positions: the position of each read. table: one row per stage (and position, if all are read);
    columns stage, position, agrees (share of the reads whose answer is the model's final one), accuracy and loss (NaN
    where the task has no answer).
    """

    logits: Float[Tensor, "stages reads n_out"]
    stages: tuple[str, ...]
    table: pd.DataFrame

    @property
    def title(self) -> str:
        return f"Logit lens: the outputs after each part of the model, {counted(self.logits.shape[1], 'read')}"

    def to_frame(self) -> pd.DataFrame:
        return self.table

    def plot(self) -> Figure:
        """Draw accuracy and agreement by stage, or, with several positions, agreement by stage and position."""
        from interp.report import figures as draw

        if self.table["position"].nunique() > 1:
            grid = self.table.pivot(index="stage", columns="position", values="agrees").loc[list(self.stages)]
            return draw.heatmap(grid.to_numpy(), list(grid.columns), list(self.stages), "position", "after",
                                "share with the final answer", ends=(0.0, 1.0), square=False)  # fmt: skip
        names = {"accuracy": "right answer", "agrees": "the model's final answer"}
        long = self.table.rename(columns=names).melt(["stage"], list(names.values()), "which", "share").dropna()
        return draw.bars(long, "stage", "share", "which", x_title="after", y_title="share of the reads")


@torch.no_grad()
def logit_lens(model: Model, inputs: Inputs | None = None, at: Literal["read", "all"] = "read") -> LogitLens:
    """Read the answer out of the residual stream after the embedding, each attention and each MLP.

    For any number of layers and classes, and any norm and readout. inputs: a batch, text or tokens (default: the task's
    test inputs). at: the "read" positions, where the task has answers, or "all" positions of inputs of one length.
    Logits are in float64, (stages, reads, n_out). Source: nostalgebraist 2020, "interpreting GPT: the logit lens".

    Example:

        >>> model = interp.load("algorithmic/max-of-k")
        >>> found = interp.logit_lens(model, "3 1 4 1 =")
        >>> found.to_frame()[["stage", "accuracy"]].values.tolist()
        [['embedding', 0.0], ['layer 0', 1.0]]
    """
    subject = Subject.of(model)
    if at not in ("read", "all"):
        raise InterpError(one_of("at", at, ("read", "all")))
    batch = batch_of(subject, inputs) if at == "read" or inputs is None else as_batch(subject, inputs, labeled=False)
    if at == "all" and bool((batch.lengths != batch.lengths[0]).any()):
        raise InterpError("at='all' needs inputs of one length")
    cfg = subject.model.cfg
    hooks = {"embedding": stream_hook(subject, 0)}
    for layer, block in enumerate(subject.model.blocks):
        middle = f"blocks.{layer}.hook_resid_mid"
        if has_mlp(block) and middle in subject.model.hook_dict:
            hooks[f"attention {layer}"] = middle
        hooks[f"layer {layer}"] = f"blocks.{layer}.hook_resid_post"
    found: dict[str, list[Tensor]] = {name: [] for name in hooks}
    classes, positions = [], []
    for _, piece in pieces(subject, batch, (len(hooks) + 1) * cfg.d_model):
        _, seen = activations(subject, piece, list(hooks.values()))
        if at == "read":
            where = reads_of(subject, piece)
            rows, places = where.rows, where.positions
            classes.append(where.classes)
        else:
            rows, places = piece.attention_mask.cpu().nonzero(as_tuple=True)
        positions.append(places)
        for name, hook in hooks.items():
            stream = seen[hook][rows.to(cfg.device), places.to(cfg.device)]
            found[name].append(read_out(subject, stream).double().cpu())
    logits = torch.stack([torch.cat(parts) for parts in found.values()])
    place, right = torch.cat(positions), torch.cat(classes) if classes else None
    if not len(place):
        raise InterpError("there is no read in these inputs")
    answers = [decide(one, subject.decision) for one in logits]
    groups = place.unique().tolist() if at == "all" else ["read"]
    rows_ = []
    for stage, out, said in zip(hooks, logits, answers):
        agrees = (said == answers[-1]).double()
        for group in groups:
            here = torch.ones_like(place, dtype=torch.bool) if group == "read" else place == group
            scores = (float("nan"), float("nan"))
            if right is not None:
                lost = losses(out[here], right[here], subject.decision)
                scores = (
                    float(correct(out[here], right[here], subject.decision).double().mean()),
                    float("nan") if lost is None else float(lost.mean()),
                )
            rows_.append((stage, group, float(agrees[here].mean()), *scores))
    table = pd.DataFrame(rows_, columns=["stage", "position", "agrees", "accuracy", "loss"])
    return LogitLens(logits, tuple(hooks), table)
