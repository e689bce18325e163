"""An explanation as a causal abstraction, judged by a peer: the package causal-abstraction-eval.

Méloux, Pimentel, Portet & Peyrard 2026 (arXiv:2607.00267) compare a system M with a high-level model E by a map tau:
an intervention on E must give what the same intervention on M gives, carried over by tau. Their causal abstraction
error (CAE) is the share of cases in which it does not; 0 is best. Faithful: what has no place in E is also overwritten
with noise, which must change nothing.

Here M is the model on rows of tokens, with the output of each head and MLP as a variable; E has the row, the variable
of each part of the explanation's program, and the answer. A value of a part is that of all positions of a row. tau
takes a part's output on a row to the value of the program's variable on that row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from shared.judged_by_hooks import Examined, parts_of, put_at
from torch import Tensor

from interp.errors import InterpError
from interp.programs.explanations import Explanation

try:
    import causal_abstraction as peer
    from causal_abstraction import engine
except ImportError:
    raise InterpError("this study needs the extra `judge`: pip install 'interp[judge]'") from None

engine.tqdm = lambda rows, **_: rows  # no progress bars
ROW, ANSWER = "row", "answer"


@dataclass(frozen=True)
class Errors:
    """The peer's errors: with interventions from E down to M, and from M up to E; faithful, and not."""

    down: float
    up: float
    down_unfaithful: float
    up_unfaithful: float


class Numbers:
    """A number for each of several values; new values get new ones."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.values: list[Tensor] = []

    def of(self, value: Tensor) -> int:
        key = value.double().mul(1e4).round().numpy().tobytes()
        if key not in self.known:
            self.known[key] = len(self.values)
            self.values.append(value)
        return self.known[key]


class Abstraction:
    """The model, the program, and the map between them, as the peer wants them."""

    def __init__(self, found: Explanation, model: Examined) -> None:
        if found.program is None:
            raise InterpError("only a program of parts can be judged")
        self.found, self.program, self.model = found, found.program, model
        self.made = self.program.run(model.tokens)
        self.steps = {step.name: step for step in self.program.steps if getattr(step, "part", "")}
        self.parts = list(dict.fromkeys(step.part for step in self.steps.values()))  # type: ignore[attr-defined]
        self.names = {part: [n for n, s in self.steps.items() if s.part == part] for part in self.parts}  # type: ignore[attr-defined]
        copies = {one.part: one.like for one in found.parts if one.like}
        self.copies = {
            part: [c for c, like in copies.items() if like == part and c not in self.parts] for part in self.parts
        }
        self.other = [one.part for one in found.parts if one.part not in self.parts and one.part not in copies]
        self.numbers = {part: Numbers() for part in self.parts}
        self.classes = Numbers()
        n = len(model.tokens)
        self.labels = {part: [self.numbers[part].of(self.value(part, row)) for row in range(n)] for part in self.parts}
        self.rows = model.reads.nonzero()[:, 0]

    def value(self, part: str, row: int, made: dict[str, Tensor] | None = None) -> Tensor:
        """The value of a part's variables on a row, at all positions."""
        there = self.model.there[row]
        return torch.cat([(made or self.made)[name][0 if made else row][there] for name in self.names[part]], -1)

    def micro(self, part: str) -> np.ndarray:
        """The outputs of a part, and of those that are read as it, on all rows; flat."""
        return np.concatenate([self.output(one) for one in (part, *self.copies.get(part, ()))], 1)

    def output(self, part: str) -> np.ndarray:
        layer, _, head = part.split()[1].partition(".")
        place = f"blocks.{layer}.attn.hook_z" if head else f"blocks.{layer}.hook_mlp_out"
        value = self.model.cache[place]
        return (value[:, :, int(head)] if head else value).flatten(1).double().numpy()

    # ------------------------------------------------------------ the two models

    def high(self) -> Any:
        graph = peer.CausalGraph()
        n = len(self.model.tokens)
        graph.add_variable(ROW, lambda: None, [], distribution=dict.fromkeys(range(n), 1 / n))
        keys = {part: part.replace(" ", "_").replace(".", "_") for part in self.parts}
        for part in self.parts:
            read = [source for name in self.names[part] for source in self._sources(name, part)]
            parents = [keys[one] for one in dict.fromkeys(read)]
            labels = self.labels[part]
            graph.add_variable(
                keys[part], self._equation(part, dict(zip(parents, dict.fromkeys(read)))), [ROW, *parents],
                distribution={one: labels.count(one) / n for one in set(labels)},
            )  # fmt: skip
        graph.add_variable(ANSWER, self._answer({keys[part]: part for part in self.parts}), [ROW, *keys.values()])
        self.keys = keys
        return graph

    def _sources(self, name: str, part: str) -> list[str]:
        return [one for of in self.steps[name].of for one in parts_of(self.found, of, part) if one in self.parts]

    def _given(self, labels: dict[str, Any], parts: dict[str, str], row: int) -> dict[str, Tensor]:
        """Variables of parts with the values that labels stand for, on one row."""
        given: dict[str, Tensor] = {}
        for key, part in parts.items():
            value = self.numbers[part].values[int(labels[key])]
            at = 0
            for name in self.names[part]:
                width = self.made[name].shape[-1]
                whole = self.made[name][row : row + 1].clone()
                where = self.model.there[row].nonzero()[: len(value), 0]
                whole[0, where] = value[: len(where), at : at + width]
                given[name] = whole
                at += width
        return given

    def _equation(self, part: str, parts: dict[str, str]) -> Callable[..., int]:
        def equation(**labels: Any) -> int:
            row = int(labels[ROW])
            made = self.program.run(self.model.tokens[row : row + 1], given=self._given(labels, parts, row))
            return self.numbers[part].of(self.value(part, row, made))

        return equation

    def _answer(self, parts: dict[str, str]) -> Callable[..., int]:
        def equation(**labels: Any) -> int:
            row = int(labels[ROW])
            made = self.program.run(self.model.tokens[row : row + 1], given=self._given(labels, parts, row))
            return self.classes.of(self.program.answer.sums(made).argmax(-1)[0][self.model.reads[row]])

        return equation

    def low(self) -> Any:
        outer = self

        class Model(peer.LowLevelModel):  # type: ignore[misc]
            def forward_with_interventions(self, input_state: Any, interventions: dict[str, Any]) -> Any:
                rows = torch.tensor(np.asarray(interventions[ROW]).reshape(-1).astype(int))
                return peer.SystemState({ANSWER: np.array(outer.run(rows, interventions))[:, None].astype(float)})

        return Model()

    @torch.no_grad()
    def run(self, rows: Tensor, interventions: dict[str, Any]) -> list[int]:
        """The numbers of the model's answers on rows, with values of parts put in place."""
        hooks = []
        names = {key: (part, *self.copies[part]) for part, key in self.keys.items()}
        names |= {f"unused_{at}": (part,) for at, part in enumerate(self.other)}
        for key, parts in names.items():
            if key in interventions:
                hooks += self._put(parts, np.asarray(interventions[key], dtype=float), rows)
        logits = self.model.model.run_with_hooks(self.model.tokens[rows], return_type="logits", fwd_hooks=hooks)
        chosen = logits[..., : self.model.subject.task.n_out].argmax(-1)
        return [self.classes.of(chosen[at][self.model.reads[row]]) for at, row in enumerate(rows.tolist())]

    def _put(self, parts: Sequence[str], flat: np.ndarray, rows: Tensor) -> list[Any]:
        hooks, at = [], 0
        for part in parts:
            layer, _, head = part.split()[1].partition(".")
            value = self.model.cache[f"blocks.{layer}.attn.hook_z" if head else f"blocks.{layer}.hook_mlp_out"]
            shape = value[rows].shape
            own = value[rows][:, :, int(head)] if head else value[rows]
            width = own[0].numel()
            new = flat[:, at : at + width] if flat.shape[1] > 1 else np.broadcast_to(flat, (len(rows), width))
            tensor = torch.tensor(np.ascontiguousarray(new)).to(value.dtype).reshape(own.shape)
            if head:
                whole = torch.zeros(shape, dtype=value.dtype)
                whole[:, :, int(head)] = tensor
                tensor = whole
            hooks.append(put_at(part, tensor))
            at += width
        return hooks

    # ------------------------------------------------------------ the map

    def judged(self, n: int, seed: int = 0, noise: float = 0.1) -> Errors:
        """The peer's errors on n samples, with one intervention each."""
        high = self.high()
        micro = {key: self.micro(part) for part, key in self.keys.items()}
        micro[ROW] = np.arange(len(self.model.tokens), dtype=float)[:, None]
        labels = {key: np.array(self.labels[part]) for part, key in self.keys.items()}
        labels[ROW] = np.arange(len(self.model.tokens))
        unused = {f"unused_{at}": self.micro(part).shape[1] for at, part in enumerate(self.other)}
        schema = peer.MicroVariableSchema(
            [peer.Variable(key, shape=(value.shape[1],)) for key, value in micro.items()]
            + [peer.Variable(key, shape=(width,)) for key, width in unused.items()]
            + [peer.Variable(ANSWER, shape=(1,))]
        )
        cells = peer.CoarseGrainingMap(schema, {key: [key] for key in (*micro, ANSWER)})
        tau = observed(cells, micro, labels)
        config = peer.EvaluationConfig(
            metric="hard", seed=seed, phi_noise_std=noise, logging_level=logging.ERROR, phi_selection_prob=0.5
        )
        judge = peer.EvaluationEngine(high, self.low(), tau, cells, config)
        domain = [*self.keys.values()]
        tasks = [
            peer.StandardTasks.score(
                judge.builder, name=f"CAE_{way}{'' if faithful else '_nf'}", include_faithfulness=faithful,
                sampler=sampler(tau), intervention_domain=domain, score_vars=[ANSWER],
            )
            for faithful in (True, False)
            for way, sampler in (("down", peer.TopDownSampler), ("up", peer.BottomUpSampler))
        ]  # fmt: skip
        found = judge.run_tasks(tasks, n_samples=n, batch_size=1, max_interventions=1)
        return Errors(*(float(found[one.name].score) for one in tasks))


def observed(cells: Any, micro: dict[str, np.ndarray], labels: dict[str, np.ndarray]) -> Any:
    """tau: what was observed on rows. A label is realized by a row that has it, drawn at random."""

    class Observed(peer.Subspace):  # type: ignore[misc]
        def __init__(self, points: np.ndarray) -> None:
            super().__init__(points.shape[1])
            self.points = points

        def contains(self, x: np.ndarray) -> np.ndarray:
            return (np.abs(self.points - np.asarray(x).reshape(1, -1)).max(1) < 1e-9).any()  # type: ignore[no-any-return]

        def sample(self, shape: tuple[int, ...], rng: Any = None) -> np.ndarray:
            return self.points[rng.integers(len(self.points), size=shape[0])]

        def volume(self) -> float:
            return 1.0

        def loss(self, x: np.ndarray) -> np.ndarray:
            return np.abs(self.points - np.asarray(x).reshape(1, -1)).max(1).min()  # type: ignore[no-any-return]

        def centroid(self) -> np.ndarray:
            return self.points.mean(0)  # type: ignore[no-any-return]

    class Tau(peer.ValueMap):  # type: ignore[misc]
        def abstract(self, name: str, value: np.ndarray) -> Any:
            if name == ANSWER:
                return int(np.asarray(value).reshape(-1)[0])
            near = np.abs(micro[name] - np.asarray(value).reshape(1, -1)).max(1)
            return int(labels[name][near.argmin()]) if near.min() < 1e-6 else peer.UNMAPPED

    specs = {
        key: {int(one): Observed(points[labels[key] == one]) for one in np.unique(labels[key])}
        for key, points in micro.items()
    }
    return Tau(cells, specs)
