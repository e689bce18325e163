"""The numbers of a report once more: stock hooks, a model's weights and its task's labels, and no measure of interp."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from interp.models.architecture.task_model import TaskModel
from interp.tasks import IGNORED, Batch

Hook = tuple[str, Callable[..., Any]]


class Reads(NamedTuple):
    """Where answers are read, and the right output index there."""

    rows: Tensor
    positions: Tensor
    classes: Tensor


@dataclass(frozen=True)
class Plain:
    """A model of the zoo, run with hooks."""

    model: TaskModel

    def reads(self, batch: Batch) -> Reads:
        task, at = self.model.task, self.model.spec.readout_at
        classes = task.classes(batch)
        if at == "all":
            rows, positions = (classes != IGNORED).nonzero(as_tuple=True)
            return Reads(rows, positions, classes[rows, positions])
        rows = torch.arange(len(batch))
        if at == "first":
            positions = torch.zeros_like(rows)
        elif at == "last":
            positions = batch.lengths - 1
        else:
            positions = (batch.tokens == task.vocabulary.index(at)).int().argmax(1)
        first = (classes != IGNORED).int().argmax(1)  # where the task asks elsewhere, a row's first class is meant
        there = classes[rows, positions]
        return Reads(rows, positions, torch.where(there == IGNORED, classes[rows, first], there))

    def outputs(self, batch: Batch, hooks: Sequence[Hook] = ()) -> Tensor:
        """Outputs at the reads, in float64."""
        where = self.reads(batch)
        with torch.no_grad():
            found = self.model.run_with_hooks(batch.tokens, fwd_hooks=list(hooks))
        return found[where.rows, where.positions].double()

    def moved(self, batch: Batch, reads: Tensor, point: str, places: Tensor, vectors: Tensor) -> Tensor:
        """Outputs at these reads where the stream of each one's row has another vector at a place."""
        where, each = self.reads(batch), torch.arange(len(reads))

        def hook(stream: Tensor, hook: object) -> Tensor:
            changed = stream.clone()
            changed[each, places] = vectors
            return changed

        with torch.no_grad():
            found = self.model.run_with_hooks(batch[where.rows[reads]].tokens, fwd_hooks=[(point, hook)])
        return found[each, where.positions[reads]].double()

    def bits(self, classes: Tensor, n: int) -> Tensor:
        return (classes[:, None] >> torch.arange(n)) & 1

    def answers(self, outputs: Tensor) -> Tensor:
        """Output indices; of a set, one bit for each output in it."""
        kind, s = self.model.spec.decision, outputs[:, 0]
        if kind == "sigmoid":
            return (s > 0).long()
        if kind == "indicator":
            return (s.abs() <= (self.model.spec.tolerance or 0.0)).long()
        if kind == "set":
            return ((outputs > 0) << torch.arange(outputs.shape[1])).sum(1)
        return outputs.argmax(1)

    def accuracy(self, batch: Batch, hooks: Sequence[Hook] = ()) -> float:
        return float((self.answers(self.outputs(batch, hooks)) == self.reads(batch).classes).double().mean())

    def margin(self, outputs: Tensor, clean: Tensor, rival: Callable[[Tensor], Tensor]) -> Tensor:
        """Output of the right answer minus that of another; of a single output, how far it is on the right side."""
        kind, rows = self.model.spec.decision, torch.arange(len(outputs))
        if kind == "argmax":
            return outputs[rows, clean] - rival(outputs)
        if kind == "set":
            return (outputs * (2 * self.bits(clean, outputs.shape[1]) - 1)).amin(1)
        s = outputs[:, 0]
        side = s if kind == "sigmoid" else (self.model.spec.tolerance or 0.0) - s.abs()
        return torch.where(clean == 1, side, -side)

    def best_wrong(self, outputs: Tensor, classes: Tensor) -> Tensor:
        return outputs.scatter(1, classes[:, None], -torch.inf).argmax(1)

    # ------------------------------------------------------------ parts

    def point(self, part: str) -> tuple[str, int | None]:
        """Hook point and head of "head 1.0" or "MLP 1"."""
        kind, number = part.split()
        if kind == "head":
            layer, head = number.split(".")
            return f"blocks.{layer}.attn.hook_z", int(head)
        return f"blocks.{number}.hook_mlp_out", None

    def parts(self) -> set[str]:
        layers = range(self.model.cfg.n_layers)
        heads = {f"head {i}.{h}" for i in layers for h in range(self.model.spec.layers[i].n_heads)}
        return heads | {f"MLP {i}" for i in layers if self.model.spec.layers[i].mlp}

    def cached(self, batch: Batch, names: Sequence[str]) -> dict[str, Tensor]:
        with torch.no_grad():
            return dict(self.model.run_with_cache(batch.tokens, names_filter=lambda name: name in names)[1])

    def put(self, part: str, value: Tensor | float) -> Hook:
        """A hook that gives a part this value, one number or (rows or 1, length, ...)."""
        name, head = self.point(part)

        def hook(activation: Tensor, hook: object) -> Tensor:
            changed = activation.clone()
            here = changed if head is None else changed[:, :, head]
            here[:] = value if isinstance(value, float) else value if head is None else value[:, :, head]
            return changed

        return name, hook

    def means(self, parts: Sequence[str], batch: Batch, reference: Batch) -> dict[str, Hook]:
        """Mean ablation: of each position where rows have one length, else of the reads and of all other tokens."""
        names = sorted({self.point(part)[0] for part in parts})
        seen = self.cached(reference, names)
        one_length = len(torch.cat([batch.lengths, reference.lengths]).unique()) == 1
        values = {}
        for name in names:
            if one_length:
                values[name] = seen[name].double().mean(0, keepdim=True).to(seen[name].dtype)
                continue
            read, here = (self.is_read(each) for each in (reference, batch))
            other = reference.attention_mask & ~read
            at_read = seen[name][read].double().mean(0)
            elsewhere = seen[name][other].double().mean(0) if bool(other.any()) else at_read
            where = here.reshape(*here.shape, *[1] * at_read.ndim)
            values[name] = torch.where(where, at_read, elsewhere).to(seen[name].dtype)
        return {part: self.put(part, values[self.point(part)[0]]) for part in parts}

    def is_read(self, batch: Batch) -> Tensor:
        where, found = self.reads(batch), torch.zeros(batch.tokens.shape, dtype=torch.bool)
        found[where.rows, where.positions] = True
        return found

    def difference(self, outputs: Tensor, classes: Tensor) -> Tensor:
        wrong = self.best_wrong(outputs, classes) if self.model.spec.decision == "argmax" else classes
        return self.margin(outputs, classes, lambda out: out[torch.arange(len(out)), wrong])

    def effects(self, parts: Sequence[str], batch: Batch) -> dict[str, float]:
        """What each part adds to the difference: its output times the gradient of the difference by the last stream.

        The final norm's scale is held where the run has it.
        """
        last = f"blocks.{self.model.cfg.n_layers - 1}.hook_resid_post"
        names = {self.point(part)[0] for part in parts}
        seen = self.cached(batch, [*names])
        kept: dict[str, Tensor] = {}

        def stop(stream: Tensor, hook: object) -> Tensor:
            kept["stream"] = stream.detach().clone().requires_grad_()
            return kept["stream"]

        hooks: list[Hook] = [(last, stop)]
        if "ln_final.hook_scale" in self.model.hook_dict:
            hooks.append(("ln_final.hook_scale", lambda scale, hook: scale.detach()))
        where = self.reads(batch)
        with torch.enable_grad():
            run = self.model.run_with_hooks(batch.tokens, fwd_hooks=hooks)[where.rows, where.positions].double()
            self.difference(run, where.classes).sum().backward()
        toward = kept["stream"].grad[where.rows, where.positions].double()
        found = {}
        for part in parts:
            name, head = self.point(part)
            written = seen[name][where.rows, where.positions].double()
            if head is not None:
                weight = self.model.blocks[int(name.split(".")[1])].attn.W_O[head].detach().double()
                written = written[:, head] @ weight
            found[part] = float((written * toward).sum(1).mean())
        return found

    # ------------------------------------------------------------ pairs

    def patched(self, parts: Sequence[str], clean: Batch, corrupted: Batch) -> tuple[float, float, dict[str, float]]:
        """Mean leaning to the clean answer in both runs, and the share of their difference that each part recovers."""
        mine, theirs = self.reads(clean), self.reads(corrupted)
        if self.model.spec.readout_at == "all":  # positions that are read in both
            place = {key: i for i, key in enumerate(zip(theirs.rows.tolist(), theirs.positions.tolist()))}
            keys = list(zip(mine.rows.tolist(), mine.positions.tolist()))
            pairs = [(i, place[key]) for i, key in enumerate(keys) if key in place]
        else:
            pairs = [(i, i) for i in range(len(clean))]
        pairs = [(i, j) for i, j in pairs if mine.classes[i] != theirs.classes[j]]
        here, there = (torch.tensor(side) for side in zip(*pairs))
        right, wrong = mine.classes[here], theirs.classes[there]
        rows = torch.arange(len(right))

        def leaning(outputs: Tensor) -> Tensor:
            if self.model.spec.decision == "set":
                change = self.bits(right, outputs.shape[1]) - self.bits(wrong, outputs.shape[1])
                return (outputs * change).sum(1)
            return self.margin(outputs, right, lambda out: out[rows, wrong])

        index = torch.arange(corrupted.tokens.shape[1]).expand(len(corrupted), -1)
        if self.model.spec.readout_at != "all":  # rows of several lengths lie upon each other where they are read
            index = index + (mine.positions - theirs.positions)[:, None]
        index = index.clamp(min=0).minimum(clean.lengths[:, None] - 1)
        every = torch.arange(len(clean))[:, None]
        seen = self.cached(clean, sorted({self.point(part)[0] for part in parts}))
        seen = {name: value[every, index] for name, value in seen.items()}
        before = leaning(self.outputs(corrupted)[there]).sum()
        whole = leaning(self.outputs(clean)[here]).sum()
        found = {}
        for part in parts:
            after = leaning(self.outputs(corrupted, [self.put(part, seen[self.point(part)[0]])])[there]).sum()
            found[part] = float((after - before) / (whole - before))
        return float(whole / len(right)), float(before / len(right)), found
