"""The running model with parts replaced: what the decompiler asks, again and again.

What is described stays replaced (`after`): later parts are seen as they are on what the described ones give. A run
starts at the first layer that a further replacement touches. A replacement in the last layer needs no attention at
all: only the read positions are computed. So a long row costs one full pass, and then next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from interp.measures.interchange import UNDECIDED
from interp.measures.runs import Edit, Part, hooks_of, parts_of, read_out, reads_of
from interp.models.architecture.answers import decide
from interp.models.architecture.blocks import DescribedAttention, PostNormBlock
from interp.models.architecture.reduced import counted_at
from interp.models.lens.forward import AttentionForward
from interp.models.subject import Subject, norm_follows_attention
from interp.programs.language import TIED, Program, largest, sums_at
from interp.support.cached import cached_method
from interp.tasks import Batch
from interp.tasks.batch import Reads

CHUNK = 2**26
"""Numbers in the attention patterns of one layer that are held at once."""

OF_HEADS = tuple(f"{kind}_{name}" for kind in "Wb" for name in "QKVO" if kind + name != "bO")
"""The weights of attention that each head has of its own."""

Edits = Mapping[Part, Tensor]
"""New values of parts, (rows, length, d): hook_z of a head, or hook_mlp_out."""


@dataclass(frozen=True, eq=False)
class Running:
    """A model on one batch of inputs."""

    subject: Subject
    batch: Batch
    reads: Reads
    counts: Float[Tensor, "rows length"] | None = None
    """How often each position's token occurs, where equal tokens of a row are held once; see `of`."""
    replaced: Edits = field(default_factory=dict)
    """Parts that are replaced in each run."""
    earlier: Running | None = None
    """The same before the last of these were replaced: what runs before them is known from there."""
    moved: Moved | None = None
    """The answers that must stay, where some rows take a variable from another row."""
    outputs: Tensor | None = None
    """What the model gives at the reads, if that is known without a run."""

    @classmethod
    def of(cls, subject: Subject, batch: Batch) -> Running:
        """Run these inputs; where a model depends on counts alone, with each token of a row once.

        Equal tokens then have equal scores and values, so a head's output at the read position is the same with ln c
        added to the score of a token that occurs c times.
        """
        reads = reads_of(subject, batch)
        if not (subject.count_space and softmax(subject.model.blocks[-1]) and subject.read_at != "all"):
            return cls(subject, batch, reads)
        return cls(subject, *subject.shared("counted rows", batch, lambda: _counted(subject, batch, reads)))

    def after(self, edits: Edits) -> Running:
        """The same with more parts replaced."""
        new = {part: value for part, value in edits.items() if self.replaced.get(part) is not value}
        return replace(self, replaced={**self.replaced, **new}, earlier=self, outputs=None) if new else self

    @property
    def original(self) -> Running:
        """The same without replacements."""
        return self if self.earlier is None else self.earlier.original

    @cached_property
    def _last(self) -> Edits:
        """The replacements that are not made earlier."""
        known = {} if self.earlier is None else self.earlier.replaced
        return {part: value for part, value in self.replaced.items() if known.get(part) is not value}

    @cached_property
    def _first(self) -> tuple[int, int]:
        """When the first of the last replacements is made, before all if nothing is known earlier; see `stage`."""
        return (-1, -1) if self.earlier is None else min(stage(part.hook) for part in self._last)

    def _at(self, name: str) -> Tensor:
        """An activation; at the stage of the last replacements, as it is without them."""
        if self.earlier is not None and stage(name) <= self._first:
            return self.earlier._at(name)
        return self._seen[name]

    @cached_property
    def _log_counts(self) -> Float[Tensor, "rows length"]:
        assert self.counts is not None
        return self.counts.log()

    def _with_counts(self, here: slice) -> list[tuple[str | Callable[..., Any], Callable[..., Any]]]:
        """The hooks that count equal tokens; after the last token of a row, there are none."""
        if self.counts is None:
            return []
        shift = self._log_counts[here, None, None, :].to(self.subject.model.cfg.device)
        hook = lambda scores, hook: (scores + shift.to(scores)).masked_fill(torch.isnan(scores), -torch.inf)  # noqa: E731
        return [(f"blocks.{layer}.attn.hook_attn_scores", hook) for layer in range(len(self.blocks))]

    def _put(self, edits: Edits, here: slice) -> list[tuple[str | Callable[..., Any], Callable[..., Any]]]:
        """The hooks that replace parts."""
        return [*hooks_of(Edit(part, value[here]) for part, value in edits.items())]

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """All heads and MLPs in the order in which they run."""
        return tuple(parts_of(self.subject))

    @cached_property
    def by_name(self) -> dict[str, Part]:
        """The same, by name."""
        return {str(part): part for part in self.parts}

    @property
    def blocks(self) -> Any:
        return self.subject.model.blocks

    @cached_property
    def mask(self) -> Bool[Tensor, "rows length"]:
        """The positions that are no padding."""
        return self.batch.attention_mask

    @cached_property
    def weights(self) -> Float[Tensor, "rows length"]:
        """How often each position counts; 0 for padding."""
        return (self.mask if self.counts is None else self.counts).double()

    @cached_property
    def _seen(self) -> dict[str, Tensor]:
        """Residual streams, values of parts, values and scores of heads, from one run in chunks: see `_at`."""
        cfg, seen = self.subject.model.cfg, dict[str, list[Tensor]]()
        last = cfg.n_layers - 1

        def keep(name: str) -> Any:
            def hook(activation: Tensor, hook: Any) -> None:
                kept = activation.detach()
                if name.endswith("scores") and name.startswith(f"blocks.{last}."):
                    kept = kept[rows, :, positions].cpu()  # reads heads keys: other queries do not reach an answer
                seen.setdefault(name, []).append(kept.cpu())

            return hook

        inner = (f"blocks.{layer}.{name}" for layer in range(len(self.blocks)) for name in STAGES)
        names = ["hook_embed", "hook_pos_embed", *inner]
        names = [name for name in names if name in self.subject.model.hook_dict and stage(name) > self._first]
        for here, rows, positions in self._chunks():
            # Replaced values are kept, and scores without counts.
            hooks = [*self._put(self.replaced, here), *((name, keep(name)) for name in names), *self._with_counts(here)]
            with torch.no_grad(), self.subject.model.hooks(fwd_hooks=[*hooks]):
                out = self.subject(self.batch.tokens[here])
            seen.setdefault("out", []).append(out[rows, positions].cpu())
        return {name: _by_heads(name, torch.cat(pieces)) for name, pieces in seen.items()}

    def _chunks(self) -> Iterator[tuple[slice, Int[Tensor, "reads"], Int[Tensor, "reads"]]]:
        """The rows that are run at once, with the rows (of these) and positions of their reads."""
        n, length = self.batch.tokens.shape
        size = max(1, CHUNK // (self.subject.model.cfg.n_heads * length**2))
        for start in range(0, n, size):
            inside = (self.reads.rows >= start) & (self.reads.rows < start + size)
            yield slice(start, min(n, start + size)), self.reads.rows[inside] - start, self.reads.positions[inside]

    def value(self, part: Part) -> Float[Tensor, "rows length d"]:
        """The value of a part in the model: hook_z of a head, hook_mlp_out."""
        return self._value(part).float()

    def _value(self, part: Part) -> Float[Tensor, "rows length d"]:
        """The same in the model's number format."""
        replaced = self.replaced.get(part)
        return part.get(self._at(part.hook)) if replaced is None else replaced.to(self.subject.model.cfg.dtype)

    def v(self, part: Part) -> Float[Tensor, "rows length d_head"]:
        """What a head reads at each position."""
        v = self._at(f"blocks.{part.layer}.attn.hook_v")
        heads = len(self.blocks[part.layer].attn.W_O)
        return v[:, :, (part.head or 0) * v.shape[2] // heads].float()

    def scores(self, part: Part) -> tuple[Tensor, Tensor, Float[Tensor, "queries keys"]]:
        """Rows, positions and scores of a head's queries. In the last layer, the reads' alone."""
        name = f"blocks.{part.layer}.attn.hook_attn_scores"
        if part.layer == len(self.blocks) - 1:
            return self.reads.rows, self.reads.positions, self._at(name)[:, part.head].float()
        rows, positions = self.mask.nonzero(as_tuple=True)
        return rows, positions, self._at(name)[rows, part.head, positions].float()

    @cached_property
    def logits(self) -> Float[Tensor, "reads n_out"]:
        if self.earlier is not None and self._first[0] == len(self.blocks) - 1:
            return self.earlier.logits_with(self._last)
        return self._seen["out"] if self.outputs is None else self.outputs

    @cached_property
    def answers(self) -> Int[Tensor, "reads"]:
        """The answers that must stay, as indices of `words`: the model's, without replacements, or with a variable of
        another row."""
        return self.decided(self.original.logits) if self.moved is None else self.moved.answers

    @cached_property
    def sets(self) -> Int[Tensor, "sets"]:
        """Where answers are sets of outputs, those that the model gives to these inputs; see tasks.sets."""
        return decide(self.original.logits, self.subject.decision).unique()

    @property
    def words(self) -> tuple[str, ...]:
        """The answers: all of the task, but of sets those that the model gives to these inputs."""
        task = self.subject.task
        return tuple(map(task.word, self.original.sets.tolist())) if self.has_sets else tuple(task.answer_words)

    @property
    def has_sets(self) -> bool:
        """Whether an answer is a set of outputs."""
        return self.subject.decision.kind == "set"

    def decided(self, outputs: Float[Tensor, "reads n_out"]) -> Int[Tensor, "reads"]:
        """The answers that outputs give, as indices of `words`; -1 for sets that are none of them."""
        answers = decide(outputs, self.subject.decision)
        if not self.has_sets:
            return answers
        sets = self.original.sets
        at = torch.searchsorted(sets, answers).clamp(max=len(sets) - 1)
        return at.where(sets[at] == answers, -1)

    def undecided(self, outputs: Float[Tensor, "reads n_out"]) -> Bool[Tensor, "reads"]:
        """Whether the two best answers are equal up to rounding; of sets, whether the set is the answer to no input."""
        decision = self.subject.decision
        if decision.kind != "argmax":
            return self.decided(outputs) < 0
        return largest(outputs if decision.among is None else outputs[:, list(decision.among)], TIED) == UNDECIDED

    def of_words(self, answers: Int[Tensor, "*tried reads"], words: Sequence[str]) -> Int[Tensor, "*tried reads"]:
        """Answers as indices of `words`, from indices of a program's words; -2 for words that are none of them, and for
        answers that are UNDECIDED as before."""
        if not self.has_sets:
            return answers
        known = {word: at for at, word in enumerate(self.words)}
        found = torch.tensor([known.get(word, -2) for word in words])[answers.clamp(min=0)]
        return found.where(answers >= 0, answers)

    def sums_of(self, program: Program) -> Float[Tensor, "reads answers"]:
        """The sums of a program's answer at the reads."""
        return sums_at(program.answer, program.run(self.batch.tokens, self.weights), self.reads)

    def given_by(self, program: Program) -> Int[Tensor, "reads"]:
        """A program's answers at the reads, as those of the model; UNDECIDED where several have the largest sum."""
        return self.of_words(largest(self.sums_of(program)), program.answers)

    # ------------------------------------------------------------ with replacements

    @torch.no_grad()
    def logits_with(self, edits: Edits) -> Float[Tensor, "reads n_out"]:
        """The outputs at the reads with parts replaced."""
        if not edits:
            return self.logits
        first, last = min(part.layer for part in edits), len(self.blocks) - 1
        edits = {**{part: value for part, value in self.replaced.items() if part.layer >= first}, **edits}
        if self._plain and first == last:
            return read_out(self.subject, self._after_layer(first, edits, None)[:, 0])
        if self._plain and self._read_once(last):
            entering = torch.cat([stream for *_, stream in self._streams(edits, first, last)])
            return read_out(self.subject, self._after_last(entering, edits)[:, 0])
        after = self._streams(edits, first, last + 1)
        return torch.cat([read_out(self.subject, stream[rows, at]) for rows, at, stream in after])

    def _streams(
        self, edits: Edits, first: int, end: int
    ) -> Iterator[tuple[Int[Tensor, "reads"], Int[Tensor, "reads"], Float[Tensor, "rows length d_model"]]]:
        """The residual stream before layer `end` with parts replaced, of the first layer on; in chunks, each with the
        rows and positions of its reads."""
        model = self.subject.model
        for here, rows, positions in self._chunks():
            hooks = [*self._with_counts(here), *self._put(edits, here)]
            with model.hooks(fwd_hooks=hooks), self.subject.masked(self.batch[here]):
                if self._plain:
                    stream = self._after_layer(first, edits, here)
                else:
                    stream = self._at(f"blocks.{first}.hook_resid_pre")[here].to(model.cfg.device)
                for block in self.blocks[first + self._plain : end]:
                    stream = block(stream, attention_mask=self._padding(here))
            yield rows, positions, stream

    def _padding(self, here: slice) -> Int[Tensor, "rows length"] | None:
        """The attention mask of a block on some rows; None if it needs none."""
        model = self.subject.model
        bidirectional = model.cfg.attention_dir != "causal" and self.subject.padding == "mask"
        return None if not bidirectional or bool(self.mask[here].all()) else self.mask[here].int().to(model.cfg.device)

    @property
    def _plain(self) -> bool:
        """Whether each block adds its attention, then its MLP, with at most one norm before or after each."""
        cfg = self.subject.model.cfg
        return not any(
            getattr(cfg, name, False) for name in ("parallel_attn_mlp", "use_normalization_before_and_after")
        )

    def _after_layer(self, layer: int, edits: Edits, here: slice | None) -> Float[Tensor, "rows length d_model"]:
        """The residual stream after a plain layer with parts of it replaced, for some rows (None: at the reads, as rows
        of one position). What its heads give is known, so its attention does not run."""
        before, device = f"blocks.{layer}.hook_resid_pre", self.subject.model.cfg.device
        stream = self._at_read(before)[:, None] if here is None else self._at(before)[here]
        stream = stream.to(device) + self._attention_with(layer, edits, here)
        return self._after_mlp(layer, stream, edits, here)

    def _after_last(
        self, stream: Float[Tensor, "rows length d_model"], edits: Edits
    ) -> Float[Tensor, "reads 1 d_model"]:
        """The residual stream after the last layer at the reads, if this one enters it; see `_read_once`."""
        layer = len(self.blocks) - 1
        z = torch.stack([self.reads.pick(edits[head]).to(stream) if head in edits else
                         self._z_at_reads(head, "qkv", stream) for head in self._heads(layer)], 1)  # fmt: skip
        stream = self.reads.pick(stream)[:, None] + self._heads_write(layer, z[:, None])
        return self._after_mlp(layer, stream, edits, None)

    def _after_mlp(
        self, layer: int, stream: Float[Tensor, "rows length d_model"], edits: Edits, here: slice | None
    ) -> Float[Tensor, "rows length d_model"]:
        """The same with what the layer's MLP adds, and the norms between; see `_after_layer`."""
        block, value = self.blocks[layer], edits.get(Part(layer))
        post = isinstance(block, PostNormBlock)
        stream = block.ln1(stream) if post else stream
        if Part(layer) not in self.parts:
            return stream
        if value is None:
            out = block.mlp(stream if post or not hasattr(block, "ln2") else block.ln2(stream))
        else:
            out = (self.reads.pick(value)[:, None] if here is None else value[here]).to(stream)
        return block.ln2(stream + out) if post else stream + out

    def _attention_with(self, layer: int, edits: Edits, here: slice | None) -> Float[Tensor, "rows length d_model"]:
        """What a layer's attention adds with heads replaced; see `_after_layer`."""
        device = self.subject.model.cfg.device
        changed = {part: value for part, value in edits.items() if part.layer == layer and part.head is not None
                   and value is not self.replaced.get(part)}  # fmt: skip
        if here is not None and not changed:
            return self._at(f"blocks.{layer}.hook_attn_out")[here].to(device)
        if here is None:
            z = self._z_read(layer).clone()
            for part, value in changed.items():
                z[:, :, part.head] = self.reads.pick(value).to(z)[:, None]
        else:
            dtype = self.blocks[layer].attn.W_O.dtype
            heads = self._heads(layer)
            z = torch.stack([changed.get(part, self._value(part))[here].to(device, dtype) for part in heads], 2)
        return self._heads_write(layer, z)

    def _heads_write(
        self, layer: int, z: Float[Tensor, "rows length heads d_head"]
    ) -> Float[Tensor, "rows length d_model"]:
        """What a layer's heads add together.

        It is one product over all heads: adding what one head changes would leave a rounding error, which decides ties.
        """
        attn = self.blocks[layer].attn
        return functional.linear(z.flatten(2), attn.W_O.flatten(0, 1).T, attn.b_O)

    def _heads(self, layer: int) -> list[Part]:
        """The heads of a layer."""
        return [part for part in self.parts if part.layer == layer and part.head is not None]

    @cached_method
    def _z_read(self, layer: int) -> Float[Tensor, "reads 1 heads d_head"]:
        """The values of a layer's heads at the reads."""
        z = torch.stack([self.reads.pick(self._value(part)) for part in self._heads(layer)], 1)
        return z[:, None].to(self.subject.model.cfg.device)

    # ------------------------------------------------------------ direct paths

    def written(self, part: Part) -> Float[Tensor, "rows length d_model"]:
        """What a part adds to the residual stream."""
        return self.writes(part, self.value(part))

    def writes(self, part: Part, value: Float[Tensor, "*points d"]) -> Float[Tensor, "*points d_model"]:
        """What a part adds to the residual stream with these values, or with such a difference of values."""
        if part.head is None:
            return value
        return value.contiguous() @ self.blocks[part.layer].attn.W_O[part.head].detach().to(value)

    @cached_property
    def embedded(self) -> dict[str, Float[Tensor, "rows length d_model"]]:
        """What "token" and "position" add to the residual stream, if they add something."""
        if self.earlier is not None:
            return self.original.embedded
        added = {name: self._seen.get(hook) for name, hook in (("token", "hook_embed"), ("position", "hook_pos_embed"))}
        shape = (*self.batch.tokens.shape, -1)
        return {name: one.float().expand(shape) for name, one in added.items() if one is not None and bool(one.any())}

    @property
    def paths(self) -> bool:
        """Whether direct paths can be followed: each block adds its attention, then its MLP (norms before or after)."""
        cfg, blocks = self.subject.model.cfg, self.blocks
        after = norm_follows_attention(self.subject.model) and not all(isinstance(b, PostNormBlock) for b in blocks)
        return not after and not getattr(cfg, "parallel_attn_mlp", False)

    def before(self, layer: int) -> Float[Tensor, "rows length d_model"]:
        """The residual stream before a layer."""
        return self._at(f"blocks.{layer}.hook_resid_pre")

    def between(self, layer: int) -> Float[Tensor, "rows length d_model"]:
        """The residual stream between a layer's attention and its MLP, before any norm."""
        return self.before(layer) + self._at(f"blocks.{layer}.hook_attn_out")

    @torch.no_grad()
    def stream(self, change: Mapping[str, Tensor], layer: int | None, reads: bool, attention: bool = False) -> Tensor:
        """The residual stream that an MLP reads (None: that the readout reads), with all parts as they were.

        change: what is added to what "token", "position" and parts write; it takes direct paths alone. reads: at the
        reads only, as the change is. attention: the stream that the layer's attention reads instead.
        """

        def at(name: str) -> Tensor:
            return self._at_read(name) if reads else self._at(name)

        def added(part: Part) -> Tensor | float:
            return change.get(str(part), 0.0)

        stream = at("blocks.0.hook_resid_pre").float()
        for name in ("token", "position"):
            stream = stream + change.get(name, 0.0)
        for here, block in enumerate(self.blocks):
            if attention and here == layer:
                return stream
            post = isinstance(block, PostNormBlock)
            last = here == len(self.blocks) - 1
            out = self._attention_with(here, {}, None)[:, 0] if reads and last else at(f"blocks.{here}.hook_attn_out")
            for part in self.parts:
                out = out + added(part) if part.layer == here and part.head is not None else out
            stream = stream + out
            stream = block.ln1(stream) if post else stream
            if here == layer:
                return stream
            if Part(here) in self.parts:
                value = self._value(Part(here))
                stream = stream + (self.reads.pick(value) if reads else value) + added(Part(here))
                stream = block.ln2(stream) if post else stream
        return stream

    @cached_method
    def _at_read(self, name: str) -> Tensor:
        """An activation at the reads."""
        return self.reads.pick(self._at(name))

    def read_out(self, change: Mapping[str, Tensor]) -> Int[Tensor, "reads"]:
        """The answers with changes at the reads, which reach the readout by direct paths alone."""
        return self.read(self.stream(change, None, reads=True))

    def read(self, stream: Float[Tensor, "points d_model"]) -> Int[Tensor, "points"]:
        """The answers that are read of the last residual stream."""
        cfg = self.subject.model.cfg
        return self.decided(read_out(self.subject, stream.to(cfg.device, cfg.dtype)))

    def mlp_on(self, layer: int, change: Mapping[str, Tensor]) -> Float[Tensor, "rows length d_model"]:
        """The output of an MLP with changes that reach it by direct paths alone."""
        return self.mlp_of(layer, self.stream(change, layer, reads=False))

    def mlp_of(self, layer: int, stream: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """The output of an MLP on a residual stream."""
        block, cfg = self.blocks[layer], self.subject.model.cfg
        with torch.no_grad():
            stream = stream.to(cfg.device, cfg.dtype)
            before = not isinstance(block, PostNormBlock) and hasattr(block, "ln2")
            return block.mlp(block.ln2(stream) if before else stream).float().cpu()

    @torch.no_grad()
    def head_on(
        self, head: Part, sides: Sequence[str], change: Mapping[str, Tensor]
    ) -> Float[Tensor, "rows length d_head"]:
        """The output of a head of which some sides, of "q", "k" and "v", read changes that take direct paths alone.

        Of a last layer that is read at one position of each row, it is computed only there.
        """
        changed = self.stream(change, head.layer, reads=False, attention=True)
        if not self._read_once(head.layer):
            return self._in_head(head, "z", sides, changed).float().cpu()
        new = self.value(head).clone()
        new[self.reads.rows, self.reads.positions] = self._z_at_reads(head, sides, changed).float().cpu()
        return new

    def _read_once(self, layer: int) -> bool:
        """Whether what a layer's heads give is read at one position of each row, and they may run there alone."""
        last, described = layer == len(self.blocks) - 1, isinstance(self.blocks[layer].attn, DescribedAttention)
        return last and described and self.subject.read_at != "all" and self._heads_apart(layer)

    def _z_at_reads(self, head: Part, sides: Sequence[str], changed: Tensor) -> Float[Tensor, "reads d_head"]:
        """What a head of the last layer gives at the reads if some sides read a changed residual stream."""
        entered = self._normed(head.layer, changed)
        q, k, v = (self._side(head, side, entered) if side in sides else self._own_side(head, side) for side in "qkv")
        added = None if self.counts is None else self._log_counts.to(k)
        at, mask = self.reads.positions.to(k.device), self._padding(slice(0, len(k)))
        pattern = self.blocks[head.layer].attn.pattern_at(
            q.expand(-1, k.shape[1], -1, -1), k, at, None if mask is None else mask.bool(), added
        )
        return (pattern @ v[:, :, 0])[:, 0]

    def _side(self, head: Part, side: str, entered: Tensor) -> Float[Tensor, "rows length 1 d_head"]:
        """The queries (at the reads alone), keys or values of a head."""
        attn, name = self.blocks[head.layer].attn, side.upper()
        (entered,) = attn._entering((entered,), 0)
        entered = self.reads.pick(entered)[:, None] if side == "q" else entered
        weights, bias = (getattr(attn, f"{kind}_{name}")[head.head] for kind in "Wb")
        return functional.linear(entered, weights.T.contiguous(), bias)[:, :, None]  # a transposed matrix is slow

    @cached_method
    def _own_side(self, head: Part, side: str) -> Float[Tensor, "rows length 1 d_head"]:
        """The same on the model's own residual stream."""
        return self._side(head, side, self._last_normed)

    @cached_property
    def _last_normed(self) -> Float[Tensor, "rows length d_model"]:
        """What the last layer's attention reads."""
        layer = len(self.blocks) - 1
        return self._normed(layer, self.before(layer))

    def _normed(self, layer: int, stream: Tensor) -> Float[Tensor, "rows length d_model"]:
        """What a layer's attention reads of a residual stream."""
        block, cfg = self.blocks[layer], self.subject.model.cfg
        stream = stream.to(cfg.device, cfg.dtype)
        return stream if isinstance(block, PostNormBlock) or not hasattr(block, "ln1") else block.ln1(stream)

    @torch.no_grad()
    def scores_of_keys(self, head: Part, moved: Callable[[Tensor], Tensor]) -> Float[Tensor, "queries keys"]:
        """The scores of a head's queries, as `scores` has them, on keys in another order; moved: what reorders the
        positions (rows, length, ...) of a value."""
        if self.counts is not None:
            q, k = self._own_side(head, "q"), moved(self._own_side(head, "k"))
            return self.blocks[head.layer].attn.calculate_attention_scores(q, k)[:, 0, 0].float().cpu()
        keys = moved(self._in_head(head, "k"))[:, :, None]
        rows, positions, _ = self.scores(head)
        return self._in_head(head, "attn_scores", keys=keys)[rows, positions].float().cpu()

    @torch.no_grad()
    def _in_head(
        self, head: Part, what: str, sides: Sequence[str] = "", changed: Tensor | None = None,
        keys: Tensor | None = None,
    ) -> Float[Tensor, "rows length d"]:  # fmt: skip
        """What a head computes if some sides read a changed residual stream; keys: what takes the place of its keys."""
        block, cfg, pieces = self.blocks[head.layer], self.subject.model.cfg, list[Tensor]()
        place, before = f"blocks.{head.layer}.attn.hook_", self._at(f"blocks.{head.layer}.hook_resid_pre")
        of_kind = {side: self._at(f"{place}v").shape[2] for side in "qkv"} | {"q": cfg.n_heads}
        at, weights = (head.head or 0) * (of_kind["k"] if what == "k" else cfg.n_heads) // cfg.n_heads, {}
        if self._heads_apart(head.layer):
            tensors = chain(block.attn.named_parameters(), block.attn.named_buffers())
            weights = {name: tensor[at : at + 1] for name, tensor in tensors if name in OF_HEADS}
            of_kind, at = dict.fromkeys("qkv", 1), 0

        def stop(value: Tensor, hook: Any) -> None:
            raise _Reached(value[:, at] if what == "attn_scores" else value[:, :, at])

        for here, _, _ in self._chunks():
            entered = self._normed(head.layer, before[here])
            other = entered if changed is None else self._normed(head.layer, changed[here])
            inputs = {side: other if side in sides else entered for side in "qkv"}
            if cfg.use_split_qkv_input or cfg.use_attn_in:
                inputs = {side: stream[:, :, None].expand(-1, -1, of_kind[side], -1) for side, stream in inputs.items()}
            hooks: list[Any] = [(place + what, stop), *self._with_counts(here)]
            if keys is not None:
                hooks.append((f"{place}k", lambda value, hook, here=here: keys[here].to(value).expand_as(value)))
            with self.subject.model.hooks(fwd_hooks=hooks), self.subject.masked(self.batch[here]):
                try:
                    functional_call(block.attn, weights, (*inputs.values(),), {"attention_mask": self._padding(here)})
                except _Reached as reached:
                    pieces.append(reached.value)
        return torch.cat(pieces)

    def _heads_apart(self, layer: int) -> bool:
        """Whether a head of a layer may run without the others: each has queries, keys and values, and only these."""
        attn, value_heads = self.blocks[layer].attn, self._at(f"blocks.{layer}.attn.hook_v").shape[2]
        return (
            isinstance(attn, AttentionForward) and value_heads == self.subject.model.cfg.n_heads
            and not attn.sloped and not hasattr(attn, "W_mix")
        )  # fmt: skip

    def neurons(self, layer: int) -> Float[Tensor, "rows length d_mlp"]:
        """The activations of an MLP's neurons (hook_post), as its output weights read them."""
        neurons: list[Tensor] = []
        hooks: Any = [(f"blocks.{layer}.mlp.hook_post", lambda acts, hook: neurons.append(acts.float().cpu()))]
        with self.subject.model.hooks(fwd_hooks=hooks):
            self.mlp_of(layer, self.stream({}, layer, reads=False))
        return neurons[0]

    def answers_with(self, edits: Edits) -> Int[Tensor, "reads"]:
        return self.decided(self.logits_with(edits))

    def kept(self, edits: Edits) -> Kept:
        """How many of the answers stay with parts replaced: of all, or of rows as they are, if these are fewer."""
        answers, first = self.answers_with(edits), len(self.reads) if self.moved is None else self.moved.first
        sizes = {len(answers), first}
        return min((Kept.of(answers[:n], self.answers[:n]) for n in sizes), key=lambda kept: kept.share)


@dataclass(frozen=True, eq=False)
class Moved:
    """The answers where some rows take a variable from another row; first: how many reads, the first ones, are of rows
    as they are."""

    answers: Int[Tensor, "reads"]
    first: int


def _counted(subject: Subject, batch: Batch, reads: Reads) -> tuple[Batch, Reads, Tensor]:
    """Rows in which each token that the read position sees stands once, with their reads and counts."""
    spec, d_vocab = subject.task_model.spec, len(subject.task.vocabulary)
    rows = counted_at(spec, d_vocab, batch.tokens, reads.positions, batch.attention_mask)
    return tokens_once(rows.query, rows.counts.float(), batch.labels, reads.classes)


def tokens_once(
    here: Int[Tensor, "rows"], counts: Float[Tensor, "rows d_vocab"], labels: Int[Tensor, "rows"],
    classes: Int[Tensor, "rows"],
) -> tuple[Batch, Reads, Float[Tensor, "rows length"]]:  # fmt: skip
    """The same of rows with these counts of each token up to the read position; here: the token there, put last."""
    rows = torch.arange(len(counts))
    order = torch.arange(counts.shape[1]).expand_as(counts).clone()
    order[rows, here] = counts.shape[1]  # last, so that it sees all others
    order = order.masked_fill(counts == 0, counts.shape[1] + 1).argsort(dim=1, stable=True)
    lengths = (counts > 0).sum(1)
    tokens, counts = order[:, : int(lengths.max())], counts.gather(1, order)[:, : int(lengths.max())]
    return Batch(tokens, lengths, labels), Reads(rows, lengths - 1, classes), counts


def _by_heads(name: str, seen: Tensor) -> Tensor:
    """The same numbers, those of a head side by side in memory: heads are asked for one by one."""
    return seen.movedim(2, 0).contiguous().movedim(0, 2) if name.endswith((".hook_z", ".hook_v")) else seen


class _Reached(Exception):
    """Stops attention once it has computed what is asked for."""

    def __init__(self, value: Tensor):
        self.value = value


STAGES = ("hook_resid_pre", "attn.hook_v", "attn.hook_attn_scores", "attn.hook_z", "hook_attn_out", "hook_mlp_out")
"""What a block computes, in this order."""


def stage(name: str) -> tuple[int, int]:
    """When a hook runs: its layer, -1 for embeddings, and its place in STAGES."""
    layer, _, rest = name.removeprefix("blocks.").partition(".")
    return (int(layer), STAGES.index(rest)) if layer.isdecimal() else (-1, 0)


def softmax(block: Any) -> bool:
    """Whether a block's pattern is the softmax of its scores."""
    spec = getattr(block.attn, "layer", None)
    return hasattr(block.attn, "hook_attn_scores") and getattr(spec, "normalizer", "softmax") == "softmax"


def scaled(block: Any) -> bool:
    """Whether a block's scores are multiplied by the logarithm of the number of tokens."""
    return getattr(getattr(block.attn, "layer", None), "log_length", "none") == "current"


FREQUENT = 0.01
"""An answer is frequent if it is at least this share of the model's answers, or if none is given more often."""


@dataclass(frozen=True)
class Kept:
    """The share of answers that stay: of all, and of the frequent answer of which fewest stay."""

    share: float
    least: float
    n: int

    @classmethod
    def of(cls, new: Int[Tensor, "reads"], old: Int[Tensor, "reads"]) -> Kept:
        n, same = (torch.bincount(answers).tolist() for answers in (old, old[new == old]))
        frequent = min(FREQUENT * len(old), max(n))
        least = min(s / m for m, s in zip_longest(n, same, fillvalue=0) if m >= frequent)
        return cls(sum(same) / len(old), least, len(old))

    @property
    def both(self) -> float:
        return min(self.share, self.least)
