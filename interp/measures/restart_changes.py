"""Changes that restart a run at the same place, as one batch: each later layer, at the positions that they reach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.measures.restart_blocks import RunBlock, added_to_scores, unknown
from interp.measures.runs import Edit, activations, reads_of, stream_hook
from interp.models.subject import Subject
from interp.tasks import Batch
from interp.tasks.batch import Reads

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

KEPT = ("hook_resid_pre", "attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_z", "hook_resid_mid")
"""Activations of each block that a run keeps; the others follow if a change needs them."""


@dataclass(frozen=True, order=True)
class Start:
    """Where changes start: layer, stage, and the positions that they change."""

    layer: int
    stage: int
    columns: tuple[int, ...]


class Unchanged:
    """A run of a model on one batch, as it is: its outputs at the reads, and activations that restarts need.

    Arguments and attributes: see restart.Run.
    """

    @torch.no_grad()
    def __init__(
        self,
        subject: Subject,
        batch: Batch,
        where: Reads | None = None,
        names: Iterable[str] = (),
        general: bool = False,
    ) -> None:
        self.subject, self.batch = subject, batch
        self.where = reads_of(subject, batch) if where is None else where
        cfg = subject.model.cfg
        self.n_layers, self.rows, self.length, self.width = cfg.n_layers, *batch.tokens.shape, cfg.d_model
        self.causal, self.last = cfg.attention_dir == "causal", stream_hook(subject, cfg.n_layers)
        self.restarts = not general and unknown(subject) is None
        known = subject.model.hook_dict
        needed = [f"blocks.{i}.{name}" for i in range(self.n_layers) for name in KEPT] if self.restarts else []
        out, self.seen = activations(subject, batch, [*names, *(name for name in needed if name in known), self.last])
        self.logits = self.where.pick(out)
        if self.restarts:
            added, self.device = added_to_scores(subject, batch), out.device
            self.blocks = [RunBlock(subject, index, batch, added) for index in range(self.n_layers)]
            self.every = torch.arange(self.length, device=self.device)
            self.read = self.where.positions.to(self.device).unique()
            self._keys = dict[int, Tensor]()

    def place(self, hook: str) -> tuple[int, int] | None:
        """Return the layer and stage of a hook point, or None if only whole runs know it."""
        if not self.restarts or hook not in self.subject.model.hook_dict:
            return None
        if hook == self.last:
            return self.n_layers, PRE
        _, layer, name = [*hook.split(".", 2), "", ""][:3]
        if name not in STAGES or (STAGES[name] == NEURONS and self.blocks[int(layer)].mlp is None):
            return None
        return int(layer), STAGES[name]

    def reached(self, columns: Sequence[int]) -> range:
        """Return the positions that a change at these positions reaches in later layers."""
        return range(columns[0] if self.causal else 0, self.length) if len(columns) else range(0)

    def need(self, names: Iterable[str]) -> None:
        """Run the model for activations that were not kept."""
        if missing := [name for name in dict.fromkeys(names) if name not in self.seen]:
            self.seen |= activations(self.subject, self.batch, missing)[1]

    def keys(self, layer: int) -> Float[Tensor, "rows length heads d_head"]:
        """Return the unchanged keys of a layer as scores see them."""
        if layer not in self._keys:
            self._keys[layer] = self.blocks[layer].placed(self.seen[f"blocks.{layer}.attn.hook_k"], "k", self.every)
        return self._keys[layer]

    def after_attention(self, layer: int) -> Float[Tensor, "rows length d_model"]:
        """Return the unchanged stream between attention and MLP; without an MLP, it is the one after the block."""
        after = self.last if layer == self.n_layers - 1 else f"blocks.{layer + 1}.hook_resid_pre"
        return self.seen.get(f"blocks.{layer}.hook_resid_mid", self.seen[after])


class Restarted:
    """A batch of changes of one run.

    wanted: names of activations to note, for all positions; layers after the last one then do not run. noted: these by
    name, (changes, rows, length, ...), but for those that no change reaches.
    """

    def __init__(self, run: Unchanged, changes: Sequence[Change], wanted: Sequence[str] = ()) -> None:
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
                self._add_heads(mid, layer, asking)
        return self._edited(at + "hook_resid_mid", mid, asking)

    def _mixed(
        self, layer: int, x: Tensor | None, columns: Columns, asking: Columns
    ) -> Float[Tensor, "changes rows asking heads d_head"]:
        """Return what heads make at the positions `asking`.

        x: the stream at `columns`, the positions that change; None: only queries, keys, values or patterns change.
        """
        run, block, at = self.run, self.run.blocks[layer], f"blocks.{layer}.attn."
        hooks = [f"{at}hook_{name}" for name in "qkv"]
        querying = columns[torch.isin(columns, asking)]  # in the last layer, only reads ask
        if x is None:
            q, k, v = (self._unchanged(hook, where).clone() for hook, where in zip(hooks, (querying, columns, columns)))
        elif len(querying) == len(columns):
            q, k, v = (tensor.unflatten(0, (self.n, -1)) for tensor in block.project(x.flatten(0, 1), columns))
        else:
            (q,) = block.project(x[:, :, torch.isin(columns, querying)].flatten(0, 1), querying, "q")
            q, k, v = (
                tensor.unflatten(0, (self.n, -1)) for tensor in (q, *block.project(x.flatten(0, 1), columns, "kv"))
            )
        q = self._edited(hooks[0], q, querying)
        k, v = (self._edited(hook, tensor, columns) for hook, tensor in zip(hooks[1:], (k, v)))
        q = block.placed(_merged(run.seen[hooks[0]], q, querying, asking).flatten(0, 1), "q", asking)
        k = block.placed(k.flatten(0, 1), "k", columns).unflatten(0, (self.n, -1))
        k = _merged(run.keys(layer), k, columns, run.every).flatten(0, 1)
        v = _merged(run.seen[hooks[2]], v, columns, run.every).flatten(0, 1)
        pattern = at + "hook_pattern"

        def edit(weights: Tensor) -> None:
            self._edited(pattern, weights.unflatten(0, (self.n, -1)), asking)

        return block.mix(q, k, v, asking, edit if pattern in self.edits else None).unflatten(0, (self.n, -1))

    def _add_heads(self, mid: Float[Tensor, "changes rows asking d_model"], layer: int, asking: Columns) -> None:
        """Add to the stream what edits of heads' outputs change in it."""
        hook, W_O = f"blocks.{layer}.attn.hook_z", self.run.blocks[layer].W_O
        before = self._unchanged(hook, asking)
        z = self._edited(hook, before.clone(), asking)
        heads: dict[int, set[int]] = {}
        for number, edit in self.edits[hook]:
            head = getattr(edit.place, "head", None)
            heads.setdefault(number, set()).update(range(len(W_O)) if head is None else [head])
        for number, edited in heads.items():
            change = z[number][:, :, [*edited]] - before[number][:, :, [*edited]]
            mid[number] += change.flatten(2) @ W_O[[*edited]].flatten(0, 1)

    def _after_mlp(
        self, layer: int, stage: int, mid: Float[Tensor, "changes rows asking d_model"], asking: Columns
    ) -> Float[Tensor, "changes rows asking d_model"]:
        """Return the stream after the layer."""
        block, out_hook, post = self.run.blocks[layer], f"blocks.{layer}.hook_mlp_out", f"blocks.{layer}.mlp.hook_post"
        if block.mlp is None:
            return mid
        if stage == NEURONS and post not in self.edits:
            out = self._unchanged(out_hook, asking).clone()
        elif stage != NEURONS and post not in self.edits and post not in self.wanted:
            out = block.through_mlp(mid)
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
