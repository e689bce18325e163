"""Outputs of heads at the read positions, and each head's contribution to the logits.

Zsámboki et al. 2025, section 5.1. A head's output O_i is hook_z; its contribution to the logit of token t is
O_i w_{i,t} with w = W_O W_U.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.architecture.reduced import counted_at, heads_from_counts
from interp.errors import InterpError, UnsupportedError
from interp.measures.components import readout_map
from interp.measures.runs import Reads, at_reads, reads_of
from interp.measures.subject import Model, Subject, final_scale, no_sum
from interp.measures.subsets import check_groups
from interp.tasks import IGNORED, Batch, Task


@dataclass(frozen=True)
class HeadOutputs:
    """Outputs of heads at the read positions.

    z: hook_z of each head. contributions: of each head to each logit. bias: the readout's bias. skip: the sum of all
    other contributions to the logits (skip connection, projection bias, heads of other layers, MLPs). labels: right
    output indices.
    """

    z: Float[Tensor, "rows heads d_head"]
    contributions: Float[Tensor, "rows heads n_out"]
    bias: Float[Tensor, "n_out"]
    skip: Float[Tensor, "rows n_out"]
    labels: Int[Tensor, "rows"]

    @property
    def n_heads(self) -> int:
        return self.z.shape[1]

    def logits(self, group: Sequence[int], with_skip: bool = False) -> Float[Tensor, "rows n_out"]:
        """Compute z_{t,H}, the logits with all heads outside the group zeroed (section 5.1). The group may be empty.

        Raises InterpError for repeated or unknown heads, and for logits that are not finite.
        """
        if len(group):
            check_groups([group], self.n_heads)
        out = self.contributions[:, list(group)].sum(1) + self.bias
        out = out + self.skip if with_skip else out
        if not bool(out.isfinite().all()):
            raise InterpError(f"the logits of heads {[*group]} are not finite everywhere, so they give no answers")
        return out


@torch.no_grad()
def head_outputs(model: Model, batch: Batch, *, read: int | None = None, layer: int | None = None) -> HeadOutputs:
    """Compute head outputs on a batch of the model's task, in float64, with one row per read position.

    read: take only the read with this number in each row (in Count01, 0 is '=' and 1 the answer token before [EOS]).
    layer: the layer of the heads (default: all layers; head h of layer l has number l * n_heads + h).

    With a final norm, contributions are computed at the scale of the full run; those of earlier layers are direct
    effects (Elhage et al. 2021). A model with one output s (sigmoid) gets the logits 0 and s. If the spec's symmetry
    allows it, outputs are computed in count space, which is a thousand times faster and equal up to rounding. Raises
    UnsupportedError if logits are not a sum over heads, and InterpError for outputs that are not finite.
    """
    subject = Subject.of(model)
    if layer is not None:
        layer = check_layer(subject, layer)
    if (reason := no_sum(subject.model)) is not None:
        raise UnsupportedError(reason)
    if subject.decision.kind == "indicator":
        raise UnsupportedError(
            "the answer depends on |s| and a tolerance, not on the largest logit, so single heads have no answer"
        )
    if read is None:
        where = reads_of(subject, batch)
    else:
        where = Reads(torch.arange(len(batch)), *read_positions(subject.task, batch, read))
    key = ("heads", layer, *where.rows.tolist(), *where.positions.tolist())
    return subject.once(lambda batch: _head_outputs(subject, batch, where, layer), batch, key)


def _head_outputs(subject: Subject, batch: Batch, where: Reads, layer: int | None) -> HeadOutputs:
    if subject.count_space and subject.read_at != "all":
        z = _from_counts(subject, batch, where.positions)
        check_finite(z)
        found = decompose(subject, batch, where.positions, where.classes, z)
    else:
        found = _from_hooks(subject, batch, where, layer)
    return two_logits(found) if found.bias.shape[0] == 1 else found


def check_layer(subject: Subject, layer: int) -> int:
    """Convert a layer that may be negative to its index. Raises InterpError if it does not exist."""
    n_layers = subject.model.cfg.n_layers
    if not -n_layers <= layer < n_layers:
        raise InterpError(f"layer {layer} does not exist: the model has layers 0 to {n_layers - 1}")
    return layer % n_layers


def two_logits(found: HeadOutputs) -> HeadOutputs:
    """Replace one output s by the logits (0, s), which give the same decision, s > 0."""
    pad = torch.nn.functional.pad
    return HeadOutputs(
        found.z, pad(found.contributions, (1, 0)), pad(found.bias, (1, 0)), pad(found.skip, (1, 0)), found.labels
    )


_LARGEST = 2**30  # most bytes of one table of contributions


def _from_hooks(subject: Subject, batch: Batch, where: Reads, layer: int | None) -> HeadOutputs:
    """Compute head outputs of any model by hooks, mapped through W_O and the readout at the run's own final scale."""
    model = subject.model
    layers = range(model.cfg.n_layers) if layer is None else [layer]
    weights = torch.cat([model.blocks[i].attn.W_O.detach().double().cpu() for i in layers])
    n_out = subject.columns(model.unembed.b_U).shape[0]
    if 8 * len(where) * len(weights) * n_out > _LARGEST:
        raise UnsupportedError(
            f"{len(where)} reads x {len(weights)} heads x {n_out} outputs do not fit in memory; use fewer inputs, "
            "or one layer"
        )
    final, norm = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post", final_scale(model)
    names = [f"blocks.{i}.attn.hook_z" for i in layers]
    seen = at_reads(subject, batch, [*names, final, *norm], where)
    z = torch.cat([seen[name] for name in names], 1)
    check_finite(z)
    scale = seen[norm[0]] if norm else torch.ones(len(where), 1, dtype=torch.float64)
    columns, bias = readout_map(subject)
    contributions = torch.einsum("bhk,hkt->bht", z, weights @ columns) / scale[:, None]
    skip = seen[final] @ columns / scale - contributions.sum(1)
    return HeadOutputs(z, contributions, bias, skip, where.classes)


def check_finite(z: Float[Tensor, "rows heads d_head"]) -> None:
    """Raise InterpError if a head's output is NaN or infinite, which argmax and rank would hide."""
    if bad := int((~torch.isfinite(z)).sum()):
        head = int((~torch.isfinite(z)).any(-1).any(0).int().argmax())
        raise InterpError(
            f"{bad} of {z.numel()} head outputs are not finite numbers, the first in head {head}; "
            "look for NaN in the weights"
        )


def read_positions(task: Task, batch: Batch, read: int) -> tuple[Int[Tensor, "rows"], Int[Tensor, "rows"]]:
    """Return the position and right output of read number `read` in each row, or raise InterpError if it is missing."""
    classes = task.classes(batch)
    order = (classes != IGNORED).cumsum(1)
    here = (order == read + 1) & (classes != IGNORED)
    if not here.any(1).all():
        fewest = int(order[:, -1].min())
        raise InterpError(f"read = {read}: some rows of task {task.name} are read at only {fewest} positions")
    positions = here.int().argmax(1)
    return positions, classes.gather(1, positions[:, None])[:, 0].long()


def _from_counts(subject: Subject, batch: Batch, positions: Tensor) -> Float[Tensor, "rows heads d_head"]:
    model = subject.task_model
    rows = counted_at(model.spec, subject.task.d_vocab, batch.tokens, positions, batch.attention_mask)
    return heads_from_counts(model.token_tables(), rows.stacked(torch.float64))[0]


def decompose(
    model: Model, batch: Batch, positions: Tensor, labels: Tensor, z: Float[Tensor, "rows heads d_head"]
) -> HeadOutputs:
    """Split the logits at the answer, in count space, into contributions of heads, the readout's bias, and the rest."""
    subject = Subject.of(model)
    if (reason := subject.no_decomposition()) is not None:
        raise UnsupportedError(reason)
    part = subject.model.blocks[0].attn
    unembed = subject.columns(subject.model.unembed.W_U.detach().double())
    bias = subject.columns(subject.model.unembed.b_U.detach().double())
    contributions = torch.einsum("bhk,hkd,dt->bht", z, part.W_O.detach().double(), unembed)
    asked = batch.tokens[torch.arange(len(batch)), positions]
    rest = subject.model.embed.W_E.detach().double().cpu()[asked] + part.b_O.detach().double()
    return HeadOutputs(z, contributions, bias, rest @ unembed, labels)
