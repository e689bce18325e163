"""The model under study, ours or a user's own: its task, and its tokens in the task's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp._lens import HookedTransformer
from interp.architecture.symmetric import count_space_refusal
from interp.architecture.task_model import TaskModel, find_positions
from interp.errors import InterpError, UnsupportedError, one_of
from interp.tasks import Batch, Task, make_task


@dataclass(frozen=True)
class Subject:
    """A HookedTransformer with a task. token_ids[t] is the model's own id of the task's token t (None: the same)."""

    model: HookedTransformer
    task: Task
    token_ids: Int[Tensor, "d_vocab"] | None = None

    @classmethod
    def of(cls, model: Model, task: Task | str | None = None, tokens: Mapping[str, int] | None = None) -> Subject:
        """A subject from a task model, or from any HookedTransformer with its task and its ids of the task's tokens.

        Raises InterpError when the task is missing or the vocabulary does not fit.
        """
        if isinstance(model, Subject):
            return model
        if not isinstance(model, HookedTransformer):
            raise InterpError(f"a {type(model).__name__} is no HookedTransformer; see interp.load and interp.build")
        if isinstance(model, TaskModel) and tokens is None:
            wanted = task if isinstance(task, str) or task is None else task.name
            if wanted not in (None, model.task.name):
                raise InterpError(f"{model.spec.id} is a model of task {model.task.name}, not {wanted}")
            return cls(model, model.task)
        if task is None:
            raise InterpError('a HookedTransformer of your own needs its task: task="count01", tokens={"0": 3, ...}')
        known = make_task(task) if isinstance(task, str) else task
        return cls(model, known, _token_ids(model, known, tokens))

    @property
    def task_model(self) -> TaskModel:
        """The model as one of ours. Raises UnsupportedError for a user's own."""
        if not isinstance(self.model, TaskModel):
            raise UnsupportedError("this question needs a model built from a spec, not a HookedTransformer of your own")
        return self.model

    @property
    def count_space(self) -> bool:
        """May outputs be computed from counts? Only from a spec that says so, with nobody's hooks in the way."""
        if not isinstance(self.model, TaskModel) or count_space_refusal(self.model.spec) is not None:
            return False
        return not any(hook.fwd_hooks for hook in self.model.hook_dict.values())

    def parameters(self) -> dict[str, Tensor]:
        """The model's parameters in float64."""
        return {name: parameter.detach().double().cpu() for name, parameter in self.model.named_parameters()}

    # ------------------------------------------------------------ running

    def inputs(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """The task's tokens in the model's own ids."""
        return tokens if self.token_ids is None else self.token_ids[tokens]

    def columns(self, outputs: Float[Tensor, "*rows n_model_out"]) -> Float[Tensor, "*rows n_out"]:
        """The model's outputs in the task's order."""
        return outputs if self.token_ids is None else outputs[..., self.token_ids]

    def answer_positions(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows"]:
        """Where the answer is read in each row."""
        at = self.model.spec.readout_at if isinstance(self.model, TaskModel) else self.task.readout
        if at == "all":
            raise UnsupportedError(f"task {self.task.name} is read at every position; this needs one answer a row")
        return find_positions(self.task, tokens, at)

    def run_with_cache(self, batch: Batch, **kwargs: Any) -> Any:
        return self.model.run_with_cache(self.inputs(batch.tokens).to(self.model.cfg.device), **kwargs)

    @torch.no_grad()
    def answer_logits(
        self, batch: Batch, fwd_hooks: Sequence[tuple[str, Any]] = (), chunk: int = 64
    ) -> Float[Tensor, "rows n_out"]:
        """Logits where the answer is read, in the task's order, optionally under hooks; whole sequences, in chunks."""
        positions, found = self.answer_positions(batch.tokens), []
        for start in range(0, len(batch), chunk):
            tokens = self.inputs(batch.tokens[start : start + chunk]).to(self.model.cfg.device)
            out = self.model.run_with_hooks(tokens, fwd_hooks=[*fwd_hooks])
            found.append(out[torch.arange(len(tokens)), positions[start : start + chunk]])
        return self.columns(torch.cat(found)).cpu()

    # ------------------------------------------------------------ structure

    def two_answers(self) -> tuple[int, int]:
        """The outputs of the task's two answers, the larger label's class first, for measures of a difference."""
        answers = sorted({int(label) for label in self.task.sample(200, self.task.splits[0], seed=0).labels})
        if len(answers) != 2:
            raise UnsupportedError(f"task {self.task.name} has {len(answers)} answers; this measure needs two")
        return answers[0], answers[1]

    def no_decomposition(self, layer: int = -1) -> str | None:
        """Why logits are not a sum over the heads of this layer plus a constant, or None where they are."""
        cfg = self.model.cfg
        if isinstance(self.model, TaskModel):
            if not self.model.spec.additive_residual:
                return "after post-layer-norm the logits are no sum over heads"
            if self.model.spec.final_norm != "none":
                return "behind a final layer norm the logits are no sum over heads"
            if not self.model.spec.linear_readout:
                return "behind a ReLU readout the logits are no sum over heads"
        elif cfg.normalization_type is not None:
            return f"behind a final layer norm ({cfg.normalization_type}) the logits are no sum over heads"
        if layer % cfg.n_layers != cfg.n_layers - 1 or not _attention_only(self.model.blocks[layer]):
            return (
                "what follows the heads (an MLP or a further layer) is not linear, so the logits are no sum over heads"
            )
        return None

    @torch.no_grad()
    def residual_before(self, batch: Batch, positions: Tensor, layer: int) -> Float[Tensor, "rows d_model"]:
        """The residual stream that the skip connection carries past a layer, where the answer is read."""
        rows = torch.arange(len(batch))
        if isinstance(self.model, TaskModel) and self.model.cfg.n_layers == 1 and self.model.spec.positions == "none":
            return self.model.embed.W_E.detach().double().cpu()[batch.tokens[rows, positions]]
        name = f"blocks.{layer % self.model.cfg.n_layers}.hook_resid_pre"
        found = []
        for start in range(0, len(batch), 64):
            part = batch[slice(start, start + 64)]
            _, cache = self.run_with_cache(part, names_filter=name)
            found.append(cache[name][torch.arange(len(part)), positions[start : start + 64]])
        return torch.cat(found).double().cpu()


Model: TypeAlias = "HookedTransformer | Subject"


def _attention_only(block: torch.nn.Module) -> bool:
    return not hasattr(block, "mlp")


def _token_ids(model: HookedTransformer, task: Task, tokens: Mapping[str, int] | None) -> Tensor | None:
    """The model's id of each token of the task, checked; None when the two vocabularies are the same."""
    if tokens is None:
        if model.cfg.d_vocab != task.d_vocab:
            raise InterpError(
                f"the model has {model.cfg.d_vocab} tokens, task {task.name} has {task.d_vocab}; "
                f"say which is which: tokens={{{task.vocabulary[0]!r}: 0, ...}}"
            )
        return None
    for token in tokens:
        if token not in task.vocabulary:
            raise InterpError(one_of(f"token of task {task.name}", token, task.vocabulary))
    if missing := [token for token in task.vocabulary if token not in tokens]:
        raise InterpError(f"tokens lacks {', '.join(missing)} of task {task.name}")
    ids = [tokens[token] for token in task.vocabulary]
    limit = min(model.cfg.d_vocab, model.cfg.d_vocab_out)
    for token, number in tokens.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < limit:
            raise InterpError(f"token {token!r} has id {number!r}; the model's ids are 0 to {limit - 1}")
    if len(set(ids)) < len(ids):
        raise InterpError(f"two tokens share an id: {dict(zip(task.vocabulary, ids))}")
    return torch.tensor(ids)
