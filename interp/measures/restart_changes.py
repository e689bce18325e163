"""Changes that restart a run at the same place, as one batch: each later layer, at the positions that they reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.measures.runs import Edit

if TYPE_CHECKING:
    from interp.measures.restart import Run

Change = Sequence[Edit]
"""Edits that are made together in one run; none leave the run as it is."""
Columns = Int[Tensor, "_columns"]
"""Positions, in order."""

PRE, PROJECTED, MIXED, MID, NEURONS = range(5)
STAGES = {
    "hook_resid_pre": PRE,
    "attn.hook_q": PROJECTED,
    "attn.hook_k": PROJECTED,
    "attn.hook_v": PROJECTED,
    "attn.hook_pattern": PROJECTED,
    "attn.hook_z": MIXED,
    "hook_resid_mid": MID,
    "mlp.hook_post": NEURONS,
    "hook_mlp_out": NEURONS,
}
"""The stage of its block from which a run restarts if an activation changes."""


@dataclass(frozen=True, order=True)
class Start:
    """Where changes start: layer, stage, and the positions that they change."""

    layer: int
    stage: int
    columns: tuple[int, ...]


class Restarted:
    """A batch of changes of one run.

    wanted: names of activations to note, for all positions; layers after the last one then do not run. noted: these by
    name, (changes, rows, length, ...), but for those that no change reaches.
    """

    def __init__(self, run: Run, changes: Sequence[Change], wanted: Sequence[str] = ()) -> None:
        self.run, self.n, self.wanted = run, len(changes), wanted
        self.edits: dict[str, list[tuple[int, Edit]]] = {}
        for number, change in enumerate(changes):
            for edit in change:
                self.edits.setdefault(edit.hook, []).append((number, edit))
        run.need(name for name in self.edits if STAGES.get(name.split(".", 2)[-1]) == NEURONS)
        self.noted: dict[str, Tensor] = {}
        self.end = max((place for name in wanted if (place := run.place(name)) is not None), default=None)

    def stream(self, start: Start) -> tuple[Float[Tensor, "changes rows columns d_model"], Columns]:
        """Return the last residual stream at the positions that change, and these; without `wanted`, at reads only."""
        run = self.run
        columns = torch.tensor(start.columns, dtype=torch.long, device=run.device)
        reached = torch.tensor(run.reached(start.columns), dtype=torch.long, device=run.device)
        x = None
        for layer in range(start.layer, run.n_layers):
            stage = start.stage if layer == start.layer else PRE
            if self.end is not None and self.end < (layer, PRE):
                break
            asking = self._read(columns if stage > PROJECTED else reached, layer + 1)
            if not len(asking):
                return self._unchanged(run.last, asking), asking
            mid = self._after_attention(layer, stage, x, columns, asking)
            x, columns = self._after_mlp(layer, stage, mid, asking), asking
        if x is None:
            columns = self._read(columns, run.n_layers)
            x = self._unchanged(run.last, columns).clone()
        return self._edited(run.last, x, columns), columns

    def _read(self, columns: Columns, after: int) -> Int[Tensor, "_columns"]:
        """Of some positions after a layer, return those that are read: all before the last layer."""
        if after < self.run.n_layers or self.end is not None:
            return columns
        return columns[torch.isin(columns, self.run.read)]

    # ------------------------------------------------------------ one layer

    def _after_attention(
        self, layer: int, stage: int, x: Tensor | None, columns: Columns, asking: Columns
    ) -> Float[Tensor, "changes rows asking d_model"]:
        """Return the stream between attention and MLP at the positions `asking`.

        x: the stream before the layer at `columns`, the positions that change; None in the first layer.
        """
        run, at = self.run, f"blocks.{layer}."
        pre, z_hook = at + "hook_resid_pre", at + "attn.hook_z"
        if stage == PRE:
            x = self._edited(pre, self._unchanged(pre, columns).clone() if x is None else x, columns)
        if stage <= PROJECTED:
            z = self._edited(z_hook, self._mixed(layer, x, columns, asking), asking)
            before = self._unchanged(pre, asking) if x is None else _merged(run.seen[pre], x, columns, asking)
            mid = before + run.blocks[layer].written(z.flatten(0, 1)).unflatten(0, (self.n, -1))
        else:
            mid = _pick(run.after_attention(layer), asking).expand(self.n, -1, -1, -1).clone()
            if stage == MIXED:
                mid += self._added_by_heads(layer, asking)
        return self._edited(at + "hook_resid_mid", mid, asking)

    def _mixed(
        self, layer: int, x: Tensor | None, columns: Columns, asking: Columns
    ) -> Float[Tensor, "changes rows asking heads d_head"]:
        """Return what heads make at the positions `asking`.

        x: the stream at `columns`, the positions that change; None: only queries, keys, values or patterns change.
        """
        run, block, at = self.run, self.run.blocks[layer], f"blocks.{layer}.attn."
        hooks = [f"{at}hook_{name}" for name in "qkv"]
        own = columns[torch.isin(columns, asking)]  # in the last layer, only reads ask
        if x is None:
            q, k, v = (self._unchanged(hook, where).clone() for hook, where in zip(hooks, (own, columns, columns)))
        elif len(own) == len(columns):
            q, k, v = (one.unflatten(0, (self.n, -1)) for one in block.project(x.flatten(0, 1), columns))
        else:
            (q,) = block.project(x[:, :, torch.isin(columns, own)].flatten(0, 1), own, "q")
            q, k, v = (one.unflatten(0, (self.n, -1)) for one in (q, *block.project(x.flatten(0, 1), columns, "kv")))
        q = self._edited(hooks[0], q, own)
        k, v = (self._edited(hook, one, columns) for hook, one in zip(hooks[1:], (k, v)))
        q = block.placed(_merged(run.seen[hooks[0]], q, own, asking).flatten(0, 1), "q", asking)
        k = block.placed(k.flatten(0, 1), "k", columns).unflatten(0, (self.n, -1))
        k = _merged(run.keys(layer), k, columns, run.every).flatten(0, 1)
        v = _merged(run.seen[hooks[2]], v, columns, run.every).flatten(0, 1)
        pattern = at + "hook_pattern"

        def edit(found: Tensor) -> None:
            self._edited(pattern, found.unflatten(0, (self.n, -1)), asking)

        return block.mix(q, k, v, asking, edit if pattern in self.edits else None).unflatten(0, (self.n, -1))

    def _added_by_heads(self, layer: int, asking: Columns) -> Float[Tensor, "changes rows asking d_model"]:
        """Return what edited outputs of heads add to the stream."""
        hook, W_O = f"blocks.{layer}.attn.hook_z", self.run.blocks[layer].W_O
        before = self._unchanged(hook, asking)
        change = self._edited(hook, before.clone(), asking) - before
        added = change.new_zeros(*change.shape[:3], W_O.shape[2])
        heads: dict[int, set[int]] = {}
        for number, edit in self.edits[hook]:
            head = getattr(edit.place, "head", None)
            heads.setdefault(number, set()).update(range(len(W_O)) if head is None else [head])
        for number, some in heads.items():
            added[number] = change[number][:, :, [*some]].flatten(2) @ W_O[[*some]].flatten(0, 1)
        return added

    def _after_mlp(
        self, layer: int, stage: int, mid: Float[Tensor, "changes rows asking d_model"], asking: Columns
    ) -> Float[Tensor, "changes rows asking d_model"]:
        """Return the stream after the layer."""
        block, out_hook, post = self.run.blocks[layer], f"blocks.{layer}.hook_mlp_out", f"blocks.{layer}.mlp.hook_post"
        if block.mlp is None:
            return mid
        if stage == NEURONS and post not in self.edits:
            out = self._unchanged(out_hook, asking).clone()
        else:
            neurons = self._unchanged(post, asking).clone() if stage == NEURONS else block.neurons(mid)
            out = block.mlp_written(self._edited(post, neurons, asking))
        return mid + self._edited(out_hook, out, asking)

    # ------------------------------------------------------------ values

    def _unchanged(self, name: str, at: Columns) -> Tensor:
        """Return an activation of the unchanged run at some positions, once for each change (without a copy)."""
        value = self.run.seen[name]
        return _pick(value, at).expand(self.n, *[-1] * value.ndim)

    def _edited(self, name: str, value: Float[Tensor, "changes rows columns *d"], at: Columns) -> Tensor:
        """Make the edits of an activation, given at the positions `at`, in place."""
        for number, edit in self.edits.get(name, ()):
            _cut(edit, at, self.run.length, value.ndim - 1).apply(value[number])
        if name in self.wanted:
            self.noted[name] = _merged(self.run.seen[name], value, at, self.run.every)
        return value


def _pick(value: Float[Tensor, "rows length *d"], at: Columns) -> Float[Tensor, "rows columns *d"]:
    return value if len(at) == value.shape[1] else value[:, at]


def _merged(
    unchanged: Float[Tensor, "rows length *d"],
    value: Float[Tensor, "changes rows columns *d"],
    at: Columns,
    to: Columns,
) -> Float[Tensor, "changes rows wanted *d"]:
    """Return an activation at the positions `to`: the changed value at `at`, the unchanged one elsewhere."""
    if torch.equal(at, to):
        return value
    out = _pick(unchanged, to).expand(len(value), *[-1] * unchanged.ndim).clone()
    if len(at):
        index = torch.searchsorted(at, to).clamp(max=len(at) - 1)
        inside = at[index] == to
        out[:, :, inside] = value[:, :, index[inside]]
    return out


def _cut(edit: Edit, at: Columns, length: int, axes: int) -> Edit:
    """Return an edit at some positions only. axes: of its hook's activation."""
    if len(at) == length:
        return edit
    value, mask = edit.value, edit.at
    axis = value.ndim + 1 - (axes if isinstance(edit.place, str) else 3) if isinstance(value, Tensor) else -1
    if isinstance(value, Tensor) and axis >= 0 and value.shape[axis] == length:
        value = value.index_select(axis, at.to(value.device))
    return replace(edit, value=value, at=None if mask is None else mask[:, at.to(mask.device)])
