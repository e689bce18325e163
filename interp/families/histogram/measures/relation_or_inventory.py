"""How does a histogram model count: by relation, by inventory, or both? A verdict from interventions.

Let t be the token at position l ("own token"), A_lm the attention, v_m the value at position m, and v the mean value of
the alphabet. The mixed token of position l is exactly

    x' = e_t  +  [ a_BOS v_BOS + (sum_m A_lm) v ]  +  [ sum_m A_lm (v_m - v) ]
         own     weights: total attention               contents: the attended tokens

**Relation-based** counting (Behrens et al. 2024, section 5.1): attention compares tokens, and the count is encoded in
the total attention, along a direction shared by all tokens. **Inventory-based** counting: the readout knows every token
and extracts the amount of the own token from the mixture. So the weights carry the count in a relation, and the
contents carry it in an inventory. Two interventions separate them:

- conflict: the contents are taken from a random position with the same own token. The answer is regressed on both
  counts: the slopes are 1 and 0 for a relation, 0 and 1 for an inventory.
- removal: without contents (set to zero) or without weights (set to the mean for the own token), how much information
  about the count is left?

The exchanged parts are activations of the model itself, at positions with the same token; only their combination is
new to the readout. If total attention is constant (linear mixing, softmax without BOS), the weights cannot carry the
count. For this reason, the paper argues that these models need an inventory.

A third test ablates, for each token, the few neurons that respond most to its count. With an inventory of one neuron
per token, the model fails on that token only. This is evidence, not part of the verdict, because an inventory may also
be distributed over many neurons.
"""

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError
from interp.families.histogram.measures.counting import Counting, CountingModel, CountingRun, cell_means, flat_sample
from interp.models.architecture.ties import first_largest, leveled
from interp.support import words

Verdict = Literal["relation-based", "inventory-based", "mixed", "does not count"]
CLEAR = 0.7
"""Least share of one part in the answer's dependence on the two counts for a clear verdict.

The weights have a share of 1 in all relation-based constructions and 0 in inventories, except for small low-coherence
frames with raw scores, whose mean is not small: 0.05 at T = 32, L = 10, d = 8, and 0.26 at T = 6, L = 4, d = 3.
"""
COUNTS = 0.5
"""Least balanced accuracy of a model for a verdict on its mechanism."""
ROUNDING = 9
"""Number of decimals of a regression's slopes; the rest is rounding error."""


@dataclass(frozen=True)
class Mechanism:
    """The verdict and its evidence.

    accuracy: of the intact model, averaged over the counts. by_weights, by_contents: slopes of the regression, the
    increase of the answer if the count in this part increases by one. explained: share of the answers' variance
    explained by both counts. without_contents, without_weights: squared correlation of answer and count without this
    part. neurons: number of ablated neurons per token. own_loss, other_loss: accuracy lost on that token and on the
    other tokens, averaged over tokens.
    """

    verdict: Verdict
    accuracy: float
    by_weights: float
    by_contents: float
    explained: float
    without_contents: float
    without_weights: float
    neurons: int
    own_loss: float
    other_loss: float
    positions: int

    @property
    def relation(self) -> float:
        """The share of the weights: 0 if the answer follows only the contents, 1 if it follows only the weights."""
        weights, contents = max(self.by_weights, 0.0), max(self.by_contents, 0.0)
        return weights / (weights + contents) if weights + contents > 0 else float("nan")

    @property
    def specificity(self) -> float:
        """How specific a token's neurons are: 1 if ablation affects only that token, 0 if it affects all equally."""
        total = abs(self.own_loss) + abs(self.other_loss)
        return (self.own_loss - self.other_loss) / total if total > 0 else 0.0

    def to_frame(self) -> pd.DataFrame:
        """Return one row with all numbers."""
        return pd.DataFrame([{**asdict(self), "relation": self.relation, "specificity": self.specificity}])

    def __str__(self) -> str:
        if self.verdict == "does not count":
            right = words.share(self.accuracy, 3)
            return f"It does not count well enough to study how: accuracy {right}, averaged over the counts."
        how = "is partly relation-based and partly inventory-based" if self.verdict == "mixed" else f"is {self.verdict}"
        weights, contents = (words.number(round(by, ROUNDING), 2) for by in (self.by_weights, self.by_contents))
        text = (
            f"The counting {how}: when weights and contents of the mixture stand for different counts, the answer "
            f"follows the weights by {weights} and the contents by {contents}."
        )
        neurons = "neuron that tells" if self.neurons == 1 else f"{self.neurons} neurons that tell"
        mine, theirs = words.number(self.own_loss, 2), words.number(self.other_loss, 2)
        silenced = f"{text} Silencing the {neurons} most about a token costs"
        if mine == theirs:
            return f"{silenced} every token the same, {mine} of accuracy."
        return f"{silenced} that token {mine} of accuracy, the others {theirs}."


def mechanism(model: Counting, n: int = 2000, seed: int = 0) -> Mechanism:
    """Measure which part carries the count, on n sampled sequences; see the module's docstring.

    Raises UnsupportedError for models that are not histogram models, and InterpError for a length or alphabet of 1.
    """
    counter = CountingModel.of(model)
    task = counter.task
    if task.L < 2 or task.T < 2:
        raise InterpError("with sequences of one token or an alphabet of one there is nothing to count")
    # The published sampler gives all sequences of length two the same counts, and does not exist for T < L.
    run = counter.run(task.sample(n, seed=seed) if 3 <= task.L <= task.T else flat_sample(task, n, seed))
    labels, own = run.labels[run.read], run.tokens[run.read]
    parts = decompose(counter, run)
    donors = others_of_the_token(own, seed)
    conflict = counter.counts(parts.own + parts.weights + parts.contents[donors])
    by_weights, by_contents, explained = slopes(conflict, labels, labels[donors])
    accuracy = balanced_accuracy(counter.counts(parts.mixed), labels)
    usual = torch.stack([parts.weights[own == t].mean(0) for t in range(task.T)])[own]
    neurons = max(1, round(counter.W_in.shape[1] / task.T))
    own_loss, other_loss = silence_by_token(counter, parts, own, labels, neurons)
    return Mechanism(
        verdict=_verdict(accuracy, by_weights, by_contents),
        accuracy=accuracy,
        by_weights=by_weights,
        by_contents=by_contents,
        explained=explained,
        without_contents=squared_correlation(counter.counts(parts.own + parts.weights), labels),
        without_weights=squared_correlation(counter.counts(parts.own + usual + parts.contents), labels),
        neurons=neurons,
        own_loss=own_loss,
        other_loss=other_loss,
        positions=len(labels),
    )


def _verdict(accuracy: float, by_weights: float, by_contents: float) -> Verdict:
    if accuracy < COUNTS or max(by_weights, by_contents) <= 0:
        return "does not count"
    relation = max(by_weights, 0.0) / (max(by_weights, 0.0) + max(by_contents, 0.0))
    return "relation-based" if relation >= CLEAR else "inventory-based" if relation <= 1 - CLEAR else "mixed"


@dataclass(frozen=True)
class Parts:
    """The three parts of the mixed tokens at read positions; their sum is x'."""

    own: Float[Tensor, "positions d_model"]
    weights: Float[Tensor, "positions d_model"]
    contents: Float[Tensor, "positions d_model"]

    @property
    def mixed(self) -> Float[Tensor, "positions d_model"]:
        return self.own + self.weights + self.contents


def decompose(counter: CountingModel, run: CountingRun) -> Parts:
    """Split x' at every read position into the parts of the module's docstring."""
    tokens = run.labels >= 0
    total = (run.pattern * tokens[:, None, :]).sum(-1)[run.read]
    weights = total[:, None] * counter.value[: counter.task.T].mean(0)
    if counter.task.bos:
        weights = weights + run.pattern[..., 0][run.read][:, None] * counter.value[-1]
    own = counter.embedding[run.tokens[run.read]]
    return Parts(own, weights, run.mixed[run.read] - own - weights)


def others_of_the_token(own: Int[Tensor, "positions"], seed: int) -> Int[Tensor, "positions"]:
    """Permute positions randomly within each own token."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(own), generator=generator)
    donors = torch.empty_like(own)
    donors[own.argsort(stable=True)] = shuffled[own[shuffled].argsort(stable=True)]
    return donors


def slopes(
    answers: Int[Tensor, "positions"], first: Int[Tensor, "positions"], second: Int[Tensor, "positions"]
) -> tuple[float, float, float]:
    """Regress the answers on two counts and a constant; return both slopes and the share of variance explained."""
    counts = torch.stack([first, second], 1).double()
    counts = counts - counts.mean(0)
    target = answers.double() - answers.double().mean()
    slope = torch.linalg.lstsq(counts, target[:, None], driver="gelsd").solution[:, 0]
    spread = float((target**2).sum())
    rest = float(((target - counts @ slope) ** 2).sum())
    return float(slope[0]), float(slope[1]), 1 - rest / spread if spread > 0 else 0.0


def silence_by_token(
    counter: CountingModel, parts: Parts, own: Int[Tensor, "positions"], labels: Int[Tensor, "positions"], neurons: int
) -> tuple[float, float]:
    """Zero the neurons that respond most to a token's count; return the mean accuracy lost on it and on others."""
    hidden = counter.hidden(parts.mixed)
    logits = hidden @ counter.W_out + counter.b_out
    right = (counter.count_of_class(logits.argmax(-1)) == labels).double()
    response = count_response(counter, hidden, own, labels)
    mine, theirs = [], []
    for token in range(counter.task.T):
        here = own == token
        if not here.any() or here.all():
            continue
        silent = response[token].topk(min(neurons, response.shape[1])).indices
        without = logits - hidden[:, silent] @ counter.W_out[silent]
        lost = right - (counter.count_of_class(without.argmax(-1)) == labels).double()
        mine.append(lost[here].mean())
        theirs.append(lost[~here].mean())
    return float(torch.stack(mine).mean()), float(torch.stack(theirs).mean())


def count_response(
    counter: CountingModel, hidden: Float[Tensor, "positions p"], own: Int[Tensor, "positions"],
    labels: Int[Tensor, "positions"],
) -> Float[Tensor, "T p"]:  # fmt: skip
    """Measure the response of each neuron to the count of each token.

    This is the standard deviation of the neuron's mean activation over the counts of a token, times the norm of its
    output weights (minus their mean over the classes, which has no effect on the answer).
    """
    means, seen = cell_means(counter, hidden, own, labels)
    known = seen[..., None] > 0
    number = known.sum(1).clamp(min=1)
    center = (means * known).sum(1) / number
    spread = (((means - center[:, None]) ** 2 * known).sum(1) / number).sqrt()
    written = counter.W_out - counter.W_out.mean(1, keepdim=True)
    return spread * written.norm(dim=1)


def balanced_accuracy(answers: Int[Tensor, "positions"], labels: Int[Tensor, "positions"]) -> float:
    """Return the share of right answers, averaged over the counts that occur."""
    return float(torch.stack([(answers[labels == k] == k).double().mean() for k in labels.unique()]).mean())


def squared_correlation(answers: Int[Tensor, "positions"], labels: Int[Tensor, "positions"]) -> float:
    """Return the squared correlation of answers and counts; 0 if all answers are the same."""
    pair = torch.stack([answers.double(), labels.double()])
    centered = pair - pair.mean(1, keepdim=True)
    spread = float((centered[0] ** 2).sum() * (centered[1] ** 2).sum())
    return float((centered[0] * centered[1]).sum()) ** 2 / spread if spread > 0 else 0.0


# ---------------------------------------------------------------- neurons


def neuron_selectivity(model: Counting, n: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Measure which tokens' counts each neuron responds to (`count_response`): one row per neuron, largest first.

    Columns: neuron; response (summed over tokens); tokens, the effective number of tokens, (sum r)^2 / sum r^2, which
    is 1 for a response to a single token and T for equal responses to all; favorite, the token with the largest
    response; share, the favorite's part of the sum. A neuron without any response has NaN for tokens and share.
    """
    counter = CountingModel.of(model)
    run = counter.run(flat_sample(counter.task, n, seed))
    hidden = counter.hidden(run.mixed[run.read])
    response = count_response(counter, hidden, run.tokens[run.read], run.labels[run.read])
    total = response.sum(0)
    live = total > 1e-9 * total.max().clamp(min=1e-300)
    shares = torch.where(live, response / total.clamp(min=1e-300), torch.nan)
    favorites = first_largest(response.T)
    frame = pd.DataFrame(
        {
            "neuron": np.arange(response.shape[1]),
            "response": total.numpy(),
            "tokens": (1 / (shares**2).sum(0)).numpy(),
            "favorite": np.where(live, np.array(counter.task.vocabulary)[favorites], "none"),
            "share": shares.gather(0, favorites[None])[0].numpy(),
        }
    )
    return frame.iloc[leveled(total).argsort(descending=True, stable=True).numpy()].reset_index(drop=True)


def tokens_per_neuron(selectivity: pd.DataFrame) -> float:
    """Return the neurons' mean effective number of tokens, weighted by response."""
    live = selectivity.dropna(subset=["tokens"])
    return float(np.average(live["tokens"], weights=live["response"])) if len(live) else float("nan")
