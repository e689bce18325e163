"""Compact proofs for one-head models: certify all inputs in a product of token sets at once.

The model has one layer and one softmax head, and its read position has the same token in every input. So the query is
fixed, and each token at each place has a weight w and contributes a difference d between two outputs. The margin over
another answer, times the positive sum of weights, is the sum of w d over places. Over a product of sets it is smallest
when every place has its worst token, independently of the other places (Gross et al. 2024, "Compact Proofs of Model
Performance"; their models read at the last number, so they also range over queries). If the smallest sum is not
positive, places are fixed one by one until all inputs of a part are right, or all are wrong.

The smallest margin is the minimum of sum(w d) / sum(w). If sum(w (d - m)) >= 0 for the worst tokens at m, no margin is
below m. The margin of the worst tokens at m is the next, better m (Dinkelbach 1967).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.certificates.arithmetic import ROUNDOFF, Arithmetic, Tracked, exp_error, gamma
from interp.certificates.certificate import (
    Certificate,
    Progress,
    SampledShare,
    Status,
    Stratum,
    anything,
    register_method,
)
from interp.certificates.places_model import one_layer
from interp.certificates.places_model import token_tables as position_tables
from interp.certificates.probes import Probes
from interp.certificates.rounding import difference_error
from interp.errors import UnsupportedError
from interp.models.architecture.answers import margins, right_in_run, said_in_run
from interp.models.architecture.task_model import TaskModel
from interp.support.resources import Budget, one_thread
from interp.tasks.structure import ProductOfSets, check_products, declared_products, read_at

TAKES = {
    **anything("task", "origin", "dtype", "d_model", "embedding", "readout_bias", "direction", "readout_at"),
    **anything("layers.d_head", "layers.scale", "layers.norm_eps", "max_length", "n_out"),
    **anything("layers.bias.q", "layers.bias.k", "layers.bias.v", "layers.bias.o"),
    "layers": (1,), "layers.n_heads": (1,), "layers.norm": ("pre",), "positions": ("learned",),
}  # fmt: skip
"""One head whose scores and values depend only on a token and its place, and a linear readout."""

U = 2 * ROUNDOFF[torch.float64]
TINY = float(np.finfo(float).tiny)
ROUNDS = 60
NUMBERS = 1 << 21
"""Number of sums processed per batch."""
SUMS_A_SECOND = 1e8
ONE_INPUT = 1e5
"""Steps for an input by itself."""
FEW = 1 << 14
"""Products with at most this many inputs that are not all decided are evaluated input by input."""
SECONDS = 60
"""Default budget, in seconds of one core."""
CHECKED = 64
"""Number of presumably wrong inputs on which the model itself is run."""
PROBED = 200
DRAWN = 4096
"""Number of random inputs that are run if some inputs are undecided."""


def refusal(model: TaskModel) -> str | None:
    """Return the reason why this method does not apply to a model, or None; TAKES lists the supported spec fields."""
    if model.spec.readout_at == "all":
        return "products are certified for models that are read at one token"
    try:
        products = declared_products(model.task)
        read_at(model.task, products, model.spec.readout_at)
    except UnsupportedError as error:
        return str(error)
    if (held := model.spec.max_length) is not None and held < (length := len(products[0].places)):
        return f"it has {held} positions, and rows of the task {length} tokens"
    return None


@dataclass(frozen=True)
class PlaceTables:
    """Score and output of each token at each place, with bounds on their errors.

    output: the model's output if the head attends to this token only. seen: number of places that the read position
    sees. need: bound on the effect of rounding on a margin.
    """

    score: Float[np.ndarray, "places tokens"]
    score_error: Float[np.ndarray, "places tokens"]
    output: Float[np.ndarray, "places tokens n_out"]
    output_error: Float[np.ndarray, "places tokens n_out"]
    seen: int
    need: float


@torch.no_grad()
def token_tables(model: TaskModel, at: int, query: int, length: int) -> PlaceTables:
    """Return the tables of a model that is read at position `at`, where token `query` is, in rows of this length."""
    net, dtype = one_layer(model, length), model.embed.W_E.dtype
    seen = at + 1 if net.causal else length
    numbers, own_numbers = Arithmetic(ROUNDOFF[torch.float64]), Arithmetic(ROUNDOFF.get(dtype, 1.0))
    tables = position_tables(net, ROUNDOFF[torch.float64], at, seen)
    score, score_error = (part[0, query].numpy() for part in (tables.scores.value, tables.scores.error))
    written = numbers.linear(tables.values[0], net.write[0], net.b_write)
    out = numbers.linear(numbers.add(written, tables.stream[query]), net.read, net.b_read)
    rows = net.rows(own_numbers, seen)
    flat, tokens = Tracked(rows.value.flatten(0, 1), rows.error.flatten(0, 1)), rows.value.shape[1]
    need = difference_error(model, flat, at * tokens + query, torch.arange(seen * tokens), seen, dtype)
    return PlaceTables(score, score_error, out.value.numpy(), out.error.numpy(), seen, need)


@dataclass(frozen=True)
class Shares:
    """Bounds for one product of token sets, per place and token.

    light, heavy: bounds on the token's weight, up to a common factor. low, high: bounds on the weight times the right
    output minus each other one. The bounds include the rounding of their sums, so a sum of bounds is a bound.
    """

    light: list[Float[np.ndarray, "tokens 1"]]
    heavy: list[Float[np.ndarray, "tokens 1"]]
    low: list[Float[np.ndarray, "tokens rivals"]]
    high: list[Float[np.ndarray, "tokens rivals"]]

    @classmethod
    def of(cls, tables: PlaceTables, product: ProductOfSets) -> Shares:
        shares = cls([], [], [], [])
        places = [np.array(tokens) for tokens in product.places[: tables.seen]]
        top = max(float(tables.score[place, ids].max()) for place, ids in enumerate(places))
        rivals = np.delete(np.arange(tables.output.shape[2]), product.right)
        sums = 4 * gamma(len(places) + 8, U)
        for place, ids in enumerate(places):
            below, out = tables.score[place, ids] - top, tables.output[place, ids]
            slip = tables.output_error[place, ids]
            weight = np.exp(below)[:, None]
            relative = np.expm1(tables.score_error[place, ids] + U * np.abs(below)) + 2 * exp_error(U, 1) + sums
            off = weight * relative[:, None] + TINY  # in case of underflow
            lead = out[:, [product.right]] - out[:, rivals]
            lead_off = slip[:, [product.right]] + slip[:, rivals] + (U + sums) * np.abs(lead)
            share, share_off = weight * lead, off * np.abs(lead) + (weight + off) * lead_off + TINY
            shares.light.append(weight - off)
            shares.heavy.append(weight + off)
            shares.low.append(share - share_off)
            shares.high.append(share + share_off)
        return shares

    def less(self, margin: Float[np.ndarray, "rivals"]) -> list[Float[np.ndarray, "tokens rivals"]]:
        """Return lower bounds on each token's term in the sum of weight times (difference - margin)."""
        return [low - margin * np.where(margin < 0, light, heavy)
                for low, light, heavy in zip(self.low, self.light, self.heavy)]  # fmt: skip

    def least(self) -> tuple[Float[np.ndarray, "rivals"], list[int]]:
        """Return a lower bound on the margin over each rival, and an input (indices) with nearly that margin."""
        margin = np.full(self.low[0].shape[1], np.inf)
        chosen = worst = [low.argmin(0) for low in self.low]
        for _ in range(ROUNDS):
            bound = self._margins(worst)[0]
            better = bound < margin
            if not better.any():
                break
            margin = np.where(better, bound, margin)
            chosen = [np.where(better, new, old) for new, old in zip(worst, chosen)]
            worst = [part.argmin(0) for part in self.less(margin)]
        nearest = int(margin.argmin())
        for step in range(ROUNDS):  # lower the margin slightly until it is a bound for all tokens
            holds = np.sum([part.min(0) for part in self.less(margin)], axis=0) >= 0
            if holds.all():
                break
            margin = np.where(holds, margin, margin - 2.0 ** (step - 56) * np.abs(margin) - TINY)
        return np.where(holds, margin, -np.inf), [int(ids[nearest]) for ids in chosen]

    def margin(self, tokens: list[int]) -> tuple[float, float]:
        """Return lower and upper bounds on the margin of one input."""
        rivals = np.arange(self.low[0].shape[1])
        low, high = self._margins([np.full(len(rivals), token) for token in tokens])
        return float(low.min()), float(high.min())

    def _margins(self, tokens: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on the margin over each rival. tokens: per place, one token for each rival."""
        rivals = np.arange(self.low[0].shape[1])
        low, high = (np.sum([part[ids, rivals] for part, ids in zip(parts, tokens)], axis=0)
                     for parts in (self.low, self.high))  # fmt: skip
        light, heavy = (np.sum([part[ids, 0] for part, ids in zip(parts, tokens)], axis=0)
                        for parts in (self.light, self.heavy))  # fmt: skip
        bounds = np.where(low < 0, low / light, low / heavy), np.where(high < 0, high / heavy, high / light)
        known = (light > 0) & np.isfinite(bounds[0]) & np.isfinite(bounds[1])
        return np.where(known, bounds[0], -np.inf), np.where(known, bounds[1], np.inf)


def count(shares: Shares, rivals: Bool[np.ndarray, "others"], budget: Budget) -> tuple[int, int]:
    """Count the inputs that are proved right and proved wrong, in exact arithmetic, until the budget is used up.

    rivals: mask of the other answers that can exceed the right one.
    """
    n_right = n_wrong = 0
    order = sorted(range(len(shares.low)), key=lambda place: -len(shares.low[place]))
    tables = [np.stack([part[place][:, rivals] for part in (shares.low, shares.high)], 1) for place in order]
    rest, sizes = [np.zeros((2, int(rivals.sum())))], [1]
    for table in reversed(tables):  # smallest low and largest high that the remaining places can add
        rest.append(rest[-1] + np.stack([table[:, 0].min(0), table[:, 1].max(0)]))
        sizes.append(sizes[-1] * len(table))
    stack = [(0, np.zeros((1, *rest[0].shape)))]
    while stack and not budget.is_over():
        place, sums = stack.pop()
        budget.steps -= sums.size
        left = len(tables) - place
        whole = sums + rest[left]
        right, wrong = (whole[:, 0] > 0).all(1), (whole[:, 1] <= 0).any(1)
        n_right += int(right.sum()) * sizes[left]
        n_wrong += int(wrong.sum()) * sizes[left]
        if left:
            table, open_ = tables[place], sums[~(right | wrong)]
            step = max(1, NUMBERS // table.size)
            for start in range(0, len(open_), step):
                children = open_[start : start + step, None] + table
                stack.append((place + 1, children.reshape(-1, *rest[0].shape)))
    return n_right, n_wrong


def one_by_one(tables: PlaceTables, product: ProductOfSets, budget: Budget) -> tuple[int, int, float]:
    """Count a product's right and wrong inputs, each with a scale of its own, and bound their margins from below.

    In a product's common scale, small weights are lost in rounding if one token has a much larger score.
    """
    ends = []
    for tokens in itertools.product(*product.places[: tables.seen]):
        if budget.is_over():
            return 0, 0, -math.inf
        budget.steps -= ONE_INPUT
        alone = replace(product, places=tuple((token,) for token in tokens))
        ends.append(Shares.of(tables, alone).margin([0] * len(tokens)))
    low, high = np.array(ends).T
    return int((low > 0).sum()), int((high <= 0).sum()), float(low.min())


Near = tuple[float, float, Tensor, ProductOfSets]
"""Lower and upper bound on a margin, its input, and the input's product."""


@register_method("every product of token sets", ("products",), refusal, TAKES)
@one_thread()
def certify_products(
    model: TaskModel, seconds: float | int | None = None, progress: Progress | None = None
) -> Certificate:
    """Certify every input of a task whose inputs are products of token sets, with one answer each.

    Bounds are computed in float64, including rounding. The model is certified in its own number format if the smallest
    margin exceeds the possible effect of rounding there. seconds: limit for counting errors (see resources.py for the
    default, SECONDS); if inputs remain undecided, the accuracy is an interval, narrowed by random inputs. The
    certificate's table "answers" has one row per answer: inputs, right, wrong, and margin, a lower bound over these
    inputs. Raises InterpError for a negative limit, and UnsupportedError if the products are not the task's inputs.
    """
    task = model.task
    budget = Budget(seconds, SUMS_A_SECOND, SECONDS if seconds is None else seconds)
    products = declared_products(task)
    trust = check_products(task, products)
    at, length = read_at(task, products, model.spec.readout_at), len(products[0].places)
    tables = token_tables(model, at, products[0].places[at][0], length)
    rows: list[tuple[int, int, int, int, float]] = []
    nearest: list[Near] = []
    done = 0
    with np.errstate(all="ignore"):  # bounds that are not finite decide nothing
        for product in products:
            shares = Shares.of(tables, product)
            bounds, tokens = shares.least()
            (right, wrong), n, least = (1, 0), product.n_inputs, float(bounds.min())
            if not (bounds > 0).all():
                right, wrong = count(shares, ~(bounds > 0), budget)
                seen = math.prod(map(len, product.places[: tables.seen]))
                n //= seen
                if right + wrong < seen <= FEW:
                    alone = one_by_one(tables, product, budget)
                    right, wrong, least = max((right, wrong, least), alone, key=lambda tally: tally[0] + tally[1])
            rows.append((product.right, product.n_inputs, right * n, wrong * n, least))
            tokens = [*tokens, *[0] * (length - tables.seen)]
            row = torch.tensor([ids[token] for ids, token in zip(product.places, tokens)])
            nearest.append((*shares.margin(tokens[: tables.seen]), row, product))
            done += product.n_inputs
            if progress is not None:
                progress(done, task.n_inputs or done)
    nearest.sort(key=lambda near: near[0])
    return replace(_conclude(model, tables.need, products, rows, nearest, budget), on_trust=trust)


def _conclude(
    model: TaskModel, need: float, products: list[ProductOfSets], rows: list[tuple[int, int, int, int, float]],
    nearest: list[Near], budget: Budget,
) -> Certificate:  # fmt: skip
    task = model.task
    frame = pd.DataFrame(rows, columns=["answer", "inputs", "right", "wrong", "margin"]).astype({"right": object})
    total, right, wrong = (sum(numbers) for numbers in list(zip(*rows))[1:4])
    strata, tried = _strata(model, need, products, rows)
    worst, false = float(frame["margin"].min()), _counterexample(model, nearest) or tried
    status: Status = "refuted" if false else "certified" if worst > need else "undecided"
    dtype = str(model.embed.W_E.dtype).removeprefix("torch.")
    notes: tuple[str, ...] = (f"{len(products):,} products of token sets hold all {total:,} inputs",)
    if status != "certified" and worst <= need:
        notes += (f"counted in exact arithmetic; {dtype} may differ on inputs with a margin below {need:.3g}",)
    if right + wrong < total:
        why = f", or the search ended before them: {budget.ended}" if budget.ended else ""
        notes += (f"{total - right - wrong:,} inputs are undecided: their margins are within rounding of 0{why}",)
    share = SampledShare.of(strata)
    by_answer = frame.groupby("answer", sort=True).agg(
        inputs=("inputs", "sum"), right=("right", "sum"), wrong=("wrong", "sum"), margin=("margin", "min")
    )  # fmt: skip
    by_answer.index = pd.Index([task.answer_words[int(index)] for index in by_answer.index], name="answer")
    return Certificate(
        model=model.spec.id,
        status=status,
        accuracy=share.accuracy,
        confidence=share.confidence,
        n_inputs=total,
        worst_margin=worst,
        counterexample=false,
        method="every product of token sets, place by place, float64",
        domain=f"every input of task {task.name}",
        rounding=need,
        n_errors=wrong if right + wrong == total else None,
        notes=notes + share.notes,
        tables={"answers": by_answer.reset_index()},
        probes=tuple(_probes(model, need, nearest)),
    )


def _strata(
    model: TaskModel, need: float, products: list[ProductOfSets], rows: list[tuple[int, int, int, int, float]]
) -> tuple[list[Stratum], str | None]:
    """Return two strata, the products that are decided and the others, with DRAWN random inputs of the latter.

    The second value describes the first of these inputs that the model gets wrong, or is None.
    """
    is_open = [right + wrong < n for _, n, right, wrong, _ in rows]
    open_ = [product for product, left in zip(products, is_open) if left]
    strata = []
    for kind in (False, True):
        numbers = [(n, right, wrong) for (_, n, right, wrong, _), left in zip(rows, is_open) if left == kind]
        strata.append(Stratum(*map(sum, zip(*numbers, (0, 0, 0)))))
    if not open_:
        return strata, None
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([float(product.n_inputs) for product in open_], dtype=torch.float64)
    many = torch.multinomial(sizes / sizes.sum(), DRAWN, replacement=True, generator=generator)
    drawn = [(product, _random(product, n, generator)) for product, n in zip(open_, many.bincount().tolist())]
    answers = torch.cat([torch.full((len(part),), product.right) for product, part in drawn])
    tokens = torch.cat([part for _, part in drawn])
    out = torch.cat(
        [model.read(model.task.batch(part).tokens.to(model.cfg.device)).cpu() for part in tokens.split(512)]
    )
    right = right_in_run(out, answers, model.spec)
    margin = margins(out.double(), answers, model.spec)
    strata[1].drawn, strata[1].drawn_right = DRAWN, int((margin > need).sum())
    strata[1].drawn_open = int((~(margin.abs() > need)).sum())
    if bool(right.all()):
        return strata, None
    at = int((~right).int().argmax())
    return strata, _describe_error(model, tokens[at], out[at], int(answers[at]))


def _random(product: ProductOfSets, n: int, generator: torch.Generator) -> Int[Tensor, "n length"]:
    """Return n independent inputs of a product."""
    columns = [torch.tensor(ids)[torch.randint(len(ids), (n,), generator=generator)] for ids in product.places]
    return torch.stack(columns, 1)


def _describe_error(model: TaskModel, row: Int[Tensor, "length"], out: Float[Tensor, "n_out"], right: int) -> str:
    """Describe an input with a wrong answer."""
    task, answer = model.task, said_in_run(model.task, out, right, model.spec)
    return f"{task.format(row)}: the answer is {answer}, right is {task.answer_words[right]}"


def _counterexample(model: TaskModel, nearest: list[Near]) -> str | None:
    """Describe the first of the smallest-margin inputs that the model itself gets wrong, or None."""
    for _, high, row, product in nearest[:CHECKED]:
        if high > 0:
            continue
        out = model.read(model.task.batch(row[None]).tokens.to(model.cfg.device))[0].cpu()
        if not bool(right_in_run(out, torch.tensor(product.right), model.spec)):
            return _describe_error(model, row, out, product.right)
    return None


def _probes(model: TaskModel, need: float, nearest: list[Near]) -> Iterator[Probes]:
    """Yield the nearest inputs found: those of the products with the smallest margins, and a sample of the others."""
    some = nearest[: PROBED // 2] + nearest[PROBED // 2 :: max(1, 2 * len(nearest) // PROBED)]
    lows, highs, rows, products = zip(*some)
    right = torch.zeros(len(some), model.cfg.d_vocab_out, dtype=torch.bool)
    right[range(len(some)), [product.right for product in products]] = True
    low, high = (torch.tensor(values, dtype=torch.float64) for values in (lows, highs))
    yield Probes(model.task.batch(torch.stack(rows)), right, low, high, torch.full_like(low, need))
