"""A compact proof: all inputs of a product of token sets at once, for models of one attention head that add things up.

One layer, one head with a softmax, read at a position where every input has the same token: the query never changes,
so each token at each place has a weight w and says a difference of two outputs, d. Times the sum of weights, which is
positive, the margin over another answer is a sum of w d over places. In a product of sets it is smallest where every
place holds its worst token, whatever the others hold (Gross et al. 2024, "Compact Proofs of Model Performance", whose
models read at the last number and so range over queries, too). Where that is not positive, places are fixed one by one,
until all inputs of a part are right, or all wrong.

The least margin itself is a minimum of sum(w d) / sum(w): where sum(w (d - m)) >= 0 at the worst tokens for some m, no
margin is below m. Dinkelbach (1967): the worst tokens for one m have a margin that is a better m.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.architecture.task_model import TaskModel
from interp.certificates.arithmetic import ROUNDOFF, Arithmetic, Tracked, exact, exp_error, gamma
from interp.certificates.base import Certificate, Status, register_method
from interp.certificates.budgets import Budget
from interp.certificates.count_rounding import difference_error, projected
from interp.certificates.probes import Probes
from interp.certificates.scope import anything
from interp.errors import InterpError, UnsupportedError
from interp.tasks.products import Product, declared, products_of, read_at, unchecked, undeclared
from interp.threads import one_thread

TAKES = {
    **anything("task", "origin", "dtype", "d_model", "embedding", "readout_bias", "direction", "readout_at"),
    **anything("layers.d_head", "layers.scale", "layers.norm_eps", "max_length"),
    **anything("layers.bias.q", "layers.bias.k", "layers.bias.v", "layers.bias.o"),
    "layers": (1,), "layers.n_heads": (1,), "layers.norm": ("pre",), "positions": ("learned",),
}  # fmt: skip
"""One head whose scores and values are of a token and its place alone, and whose output is read by a linear map."""

U = 2 * ROUNDOFF[torch.float64]
TINY = float(np.finfo(float).tiny)
ROUNDS = 60
NUMBERS = 1 << 21
"""Sums that are looked at together."""
SUMS_A_SECOND = 1e8
CHECKED = 64
"""Wrong inputs on which the model itself is run before it is called refuted."""
PROBED = 200


def refusal(model: TaskModel) -> str | None:
    """Why products do not decide this model's answers, or None. TAKES says the rest."""
    if (reason := undeclared(model.task)) is not None:
        return reason
    if model.spec.readout_at == "all" or model.spec.decision != "argmax":
        return "products are certified for models that are read at one token, by an argmax"
    if model.spec.layers[0].n_heads != 1:
        return f"{model.spec.layers[0].n_heads} heads each have their own sum of weights, so margins are not sums"
    try:
        products = declared(model.task)
        read_at(model.task, products, model.spec.readout_at)
    except UnsupportedError as error:
        return str(error)
    if (held := model.spec.max_length) is not None and held < (length := len(products[0].places)):
        return f"it has {held} positions, and rows of the task {length} tokens"
    return None


@dataclass(frozen=True)
class Said:
    """What each token at each place is asked and says: its score and the outputs if it were all that is seen, with
    bounds of their errors. seen: places that the reading position sees. need: what rounding does to a margin."""

    score: Float[np.ndarray, "places tokens"]
    score_error: Float[np.ndarray, "places tokens"]
    output: Float[np.ndarray, "places tokens n_out"]
    output_error: Float[np.ndarray, "places tokens n_out"]
    seen: int
    need: float


@torch.no_grad()
def said_by(model: TaskModel, at: int, query: int, length: int) -> Said:
    """Tables of one model that reads token `query` at position `at` of rows of this length."""
    parts, layer = dict(model.named_parameters()), model.spec.layers[0]
    seen = at + 1 if model.spec.direction == "causal" else length
    tokens = parts["embed.W_E"].double()
    numbers = Arithmetic(ROUNDOFF[torch.float64])

    def rows(numbers: Arithmetic) -> Tracked:
        """Every token at every place that is seen, and at last the query."""
        if "pos_embed.W_pos" not in parts:
            return exact(torch.cat([tokens.repeat(seen, 1), tokens[query : query + 1]]))
        places = parts["pos_embed.W_pos"].double()
        row = torch.cat([places[:seen].repeat_interleave(len(tokens), 0), places[at : at + 1]])
        return numbers.add(exact(torch.cat([tokens.repeat(seen, 1), tokens[query : query + 1]])), exact(row))

    x = rows(numbers)
    q, k, v = (projected(numbers, model, x, name) for name in "QKV")
    scores = numbers.scores(q[:, -1:], k[:, :-1], layer.factor(model.spec.d_model))
    told = numbers.linear(v[0, :-1], parts["blocks.0.attn.W_O"][0], parts.get("blocks.0.attn.b_O"))
    stream = numbers.add(told, Tracked(*(part[-1:].expand_as(told.value) for part in (x.value, x.error))))
    out = numbers.linear(stream, parts["unembed.W_U"], parts.get("unembed.b_U"))
    own = Arithmetic(ROUNDOFF.get(parts["embed.W_E"].dtype, 1.0))
    need = difference_error(model, rows(own), -1, torch.arange(seen * len(tokens)), seen, parts["embed.W_E"].dtype)
    shape = (seen, len(tokens))
    score, score_error = (part[0, 0].view(shape).numpy() for part in (scores.value, scores.error))
    output, output_error = (part.view(*shape, -1).numpy() for part in (out.value, out.error))
    return Said(score, score_error, output, output_error, seen, need)


@dataclass(frozen=True)
class Shares:
    """One product, place by place: each token's weight (up to a factor) lies between light and heavy, and the weight
    times the difference of the right output and each other one between low and high. What sums of these lose to
    rounding is taken off and added here, token by token, so that a sum of bounds is a bound."""

    light: list[Float[np.ndarray, "tokens 1"]]
    heavy: list[Float[np.ndarray, "tokens 1"]]
    low: list[Float[np.ndarray, "tokens rivals"]]
    high: list[Float[np.ndarray, "tokens rivals"]]

    @classmethod
    def of(cls, said: Said, product: Product) -> Shares:
        found = cls([], [], [], [])
        places = [np.array(tokens) for tokens in product.places[: said.seen]]
        top = max(float(said.score[place, ids].max()) for place, ids in enumerate(places))
        rivals = np.delete(np.arange(said.output.shape[2]), product.right)
        sums = 4 * gamma(len(places) + 8, U)
        for place, ids in enumerate(places):
            below, out, slip = said.score[place, ids] - top, said.output[place, ids], said.output_error[place, ids]
            weight = np.exp(below)[:, None]
            relative = np.expm1(said.score_error[place, ids] + U * np.abs(below)) + 2 * exp_error(U, 1) + sums
            off = weight * relative[:, None] + TINY  # the least number, where it underflows
            lead = out[:, [product.right]] - out[:, rivals]
            lead_off = slip[:, [product.right]] + slip[:, rivals] + (U + sums) * np.abs(lead)
            share, share_off = weight * lead, off * np.abs(lead) + (weight + off) * lead_off + TINY
            found.light.append(weight - off)
            found.heavy.append(weight + off)
            found.low.append(share - share_off)
            found.high.append(share + share_off)
        return found

    def less(self, margin: Float[np.ndarray, "rivals"]) -> list[Float[np.ndarray, "tokens rivals"]]:
        """Bounds from below of what each token adds to sums of weight times (difference - margin)."""
        return [low - margin * np.where(margin < 0, light, heavy)
                for low, light, heavy in zip(self.low, self.light, self.heavy)]  # fmt: skip

    def least(self) -> tuple[Float[np.ndarray, "rivals"], list[int]]:
        """A bound from below of the margin over each rival, and tokens (places in their sets) with about the least."""
        margin = np.full(self.low[0].shape[1], np.inf)
        chosen = worst = [low.argmin(0) for low in self.low]
        for _ in range(ROUNDS):
            found = self._margins(worst)[0]
            better = found < margin
            if not better.any():
                break
            margin = np.where(better, found, margin)
            chosen = [np.where(better, new, old) for new, old in zip(worst, chosen)]
            worst = [part.argmin(0) for part in self.less(margin)]
        nearest = int(margin.argmin())
        for step in range(ROUNDS):  # what was found, less a little until it holds for all tokens
            holds = np.sum([part.min(0) for part in self.less(margin)], axis=0) >= 0
            if holds.all():
                break
            margin = np.where(holds, margin, margin - 2.0 ** (step - 56) * np.abs(margin) - TINY)
        return np.where(holds, margin, -np.inf), [int(ids[nearest]) for ids in chosen]

    def margin(self, tokens: list[int]) -> tuple[float, float]:
        """Bounds of the margin of one input."""
        rivals = np.arange(self.low[0].shape[1])
        low, high = self._margins([np.full(len(rivals), token) for token in tokens])
        return float(low.min()), float(high.min())

    def _margins(self, tokens: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the margin over each rival, of inputs for each."""
        rivals = np.arange(self.low[0].shape[1])
        low, high = (np.sum([part[ids, rivals] for part, ids in zip(parts, tokens)], axis=0)
                     for parts in (self.low, self.high))  # fmt: skip
        light, heavy = (np.sum([part[ids, 0] for part, ids in zip(parts, tokens)], axis=0)
                        for parts in (self.light, self.heavy))  # fmt: skip
        found = np.where(low < 0, low / light, low / heavy), np.where(high < 0, high / heavy, high / light)
        known = (light > 0) & np.isfinite(found[0]) & np.isfinite(found[1])
        return np.where(known, found[0], -np.inf), np.where(known, found[1], np.inf)


@dataclass
class Count:
    """Inputs of a product: surely right, surely wrong; the others are too near to tell, or were not looked at."""

    right: int = 0
    wrong: int = 0


def count(shares: Shares, rivals: Bool[np.ndarray, "others"], budget: Budget) -> Count:
    """How many inputs are right, and how many wrong, in the reals? As far as the budget goes.

    rivals: which other answers may exceed the right one at all.
    """
    found = Count()
    order = sorted(range(len(shares.low)), key=lambda place: -len(shares.low[place]))
    tables = [np.stack([part[place][:, rivals] for part in (shares.low, shares.high)], 1) for place in order]
    rest, sizes = [np.zeros((2, int(rivals.sum())))], [1]
    for table in reversed(tables):  # the least of low, and the largest of high, that the last places add
        rest.append(rest[-1] + np.stack([table[:, 0].min(0), table[:, 1].max(0)]))
        sizes.append(sizes[-1] * len(table))
    stack = [(0, np.zeros((1, *rest[0].shape)))]
    while stack and not budget.is_over():
        place, sums = stack.pop()
        budget.steps -= sums.size
        left = len(tables) - place
        whole = sums + rest[left]
        right, wrong = (whole[:, 0] > 0).all(1), (whole[:, 1] < 0).any(1)
        found.right += int(right.sum()) * sizes[left]
        found.wrong += int(wrong.sum()) * sizes[left]
        if left:
            table, open_ = tables[place], sums[~(right | wrong)]
            step = max(1, NUMBERS // table.size)
            for start in range(0, len(open_), step):
                children = open_[start : start + step, None] + table
                stack.append((place + 1, children.reshape(-1, *rest[0].shape)))
    return found


Near = tuple[float, float, Tensor, Product]
"""Bounds of a margin, its input, and the product that holds it."""


@register_method("every product of token sets", undeclared, refusal, TAKES)
@one_thread()
def certify_products(
    model: TaskModel, seconds: float | int = 60, progress: Callable[[int, int], None] | None = None
) -> Certificate:
    """Is the model right on every input of a task whose inputs are products of token sets, with one answer each?

    Evaluated in float64 with bounds of its rounding, certified in the model's own format where the least margin exceeds
    what rounding may do there. seconds: for counting the errors, see budgets.py; what is left open then makes accuracy
    an interval. tables: "answers" (answer, inputs, right,
    wrong, margin: no input with this answer has a smaller one). Raises InterpError for a negative budget,
    UnsupportedError where the products are not the task's inputs.
    """
    started, task = time.perf_counter(), model.task
    budget = Budget(seconds, SUMS_A_SECOND)
    if reason := refusal(model):
        raise InterpError(reason)
    products = products_of(task)
    at, length = read_at(task, products, model.spec.readout_at), len(products[0].places)
    said = said_by(model, at, products[0].places[at][0], length)
    rows: list[tuple[int, int, int, int, float]] = []
    nearest: list[Near] = []
    done = 0
    with np.errstate(all="ignore"):  # what is not finite decides nothing
        for product in products:
            shares = Shares.of(said, product)
            bounds, tokens = shares.least()
            here, n = Count(right=1), product.n_inputs
            if not (bounds > 0).all():
                here = count(shares, ~(bounds > 0), budget)
                n //= math.prod(map(len, product.places[: said.seen]))
            rows.append((product.right, product.n_inputs, here.right * n, here.wrong * n, float(bounds.min())))
            tokens = [*tokens, *[0] * (length - said.seen)]
            row = torch.tensor([ids[token] for ids, token in zip(product.places, tokens)])
            nearest.append((*shares.margin(tokens[: said.seen]), row, product))
            done += product.n_inputs
            if progress is not None:
                progress(done, task.n_inputs or done)
    nearest.sort(key=lambda near: near[0])
    return _conclude(model, said, products, rows, nearest, started, budget)


def _conclude(
    model: TaskModel, said: Said, products: list[Product], rows: list[tuple[int, int, int, int, float]],
    nearest: list[Near], started: float, budget: Budget,
) -> Certificate:  # fmt: skip
    task = model.task
    frame = pd.DataFrame(rows, columns=["answer", "inputs", "right", "wrong", "margin"]).astype({"right": object})
    total, right, wrong = (sum(numbers) for numbers in list(zip(*rows))[1:4])
    worst, false = float(frame["margin"].min()), _counterexample(model, nearest)
    status: Status = "refuted" if false else "certified" if worst > said.need else "undecided"
    dtype = str(model.embed.W_E.dtype).removeprefix("torch.")
    notes: tuple[str, ...] = (f"{len(products):,} products of token sets hold all {total:,} inputs",)
    if status != "certified" and worst <= said.need:
        notes += (f"counted over the reals; {dtype} may answer otherwise where a margin is below {said.need:.3g}",)
    if right + wrong < total:
        why = f", or were left when the search ended, since {budget.ended}" if budget.ended else ""
        notes += (f"{total - right - wrong:,} inputs are too near to tell{why}",)
    by_answer = frame.groupby("answer", sort=True).agg(
        inputs=("inputs", "sum"), right=("right", "sum"), wrong=("wrong", "sum"), margin=("margin", "min")
    )  # fmt: skip
    by_answer.index = pd.Index([task.answer_words[int(index)] for index in by_answer.index], name="answer")
    return Certificate(
        model=model.spec.id,
        status=status,
        accuracy=1 - wrong / total if right + wrong == total else (right / total, 1 - wrong / total),
        n_inputs=total,
        worst_margin=worst,
        counterexample=false,
        method="every product of token sets, place by place, float64",
        domain=f"every input of task {task.name}",
        seconds=time.perf_counter() - started,
        rounding=said.need,
        n_errors=wrong if right + wrong == total else None,
        notes=notes,
        on_trust=unchecked(task, products),
        tables={"answers": by_answer.reset_index()},
        probes=tuple(_probes(model, said, nearest)),
    )


def _counterexample(model: TaskModel, nearest: list[Near]) -> str | None:
    """The first of the inputs with the smallest margins that the model itself gets wrong."""
    task = model.task
    for _, high, row, product in nearest[:CHECKED]:
        if high >= 0:
            continue
        batch = task.batch(row[None])
        said = model.predict(batch.tokens.to(model.cfg.device)).cpu()
        if not torch.equal(said, batch.labels):
            answer = task.answer_words[int(model.read(batch.tokens.to(model.cfg.device)).argmax())]
            return f"{task.format(row)}: the answer is {answer}, right is {task.answer_words[product.right]}"
    return None


def _probes(model: TaskModel, said: Said, nearest: list[Near]) -> Iterator[Probes]:
    """The input with about the least margin of each product: of those with the smallest, and of others."""
    some = nearest[: PROBED // 2] + nearest[PROBED // 2 :: max(1, 2 * len(nearest) // PROBED)]
    lows, highs, rows, products = zip(*some)
    right = torch.zeros(len(some), len(model.task.answer_words), dtype=torch.bool)
    right[range(len(some)), [product.right for product in products]] = True
    low, high = (torch.tensor(values, dtype=torch.float64) for values in (lows, highs))
    yield Probes(model.task.batch(torch.stack(rows)), right, low, high, torch.full_like(low, said.need))
