"""Test a hypothesis about a model: causal scrubbing of all variables, and interchange interventions on each one.

Causal scrubbing (Chan et al. 2022) resamples everything that the hypothesis declares irrelevant: 100% of the loss is
recovered if this does not increase the loss, and 0% if the loss is as high as with shuffled labels. For interchange
interventions (Geiger et al. 2021), see measures.scrubbing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import torch

from interp.errors import InterpError, check_size, of_type
from interp.measures.hypothesis import Hypothesis, Place, Units, Values
from interp.measures.interchange import Interchange
from interp.measures.results import Figure, Result, draw
from interp.measures.runs import ScoreWithLoss, check_reads, operations
from interp.measures.scrubbing import HypothesisAnswers, Scrubber, interchange
from interp.models.architecture.answers import correct, losses
from interp.models.subject import Model, Subject, check_finite
from interp.support.words import share
from interp.tasks import Batch
from interp.tasks.populations import Population, choose, population_of, sample
from interp.tasks.sets import set_word

SECONDS = 15.0
"""Time limit for one run over all inputs, in seconds."""
WORK = 3e10
"""Largest number of operations for running all draws, which takes a few seconds."""
ALL_DRAWS = 1 << 17
"""Largest number of runs for which all combinations of donors, and all pairs of inputs, are run."""
PAIRS = 1 << 13
"""Number of interchanged pairs per variable that change the answer, and that do not, if there are too many to run
all."""
SIZE = 1 << 28
"""Largest memory for the values of all places, in bytes."""


@dataclass(frozen=True, eq=False, repr=False)
class HypothesisTest(Result):
    """The scores of a hypothesis about a model.

    Attributes:
        model, scrubbed, shuffled: accuracy and loss (nats) of the model, of the scrubbed model, and of the model's
            outputs with the labels of other inputs. scrubbed.interval: 95%; the accuracy itself if `exact`.
        agreement: share of the model's own answers, right or wrong, that the hypothesis computes from its variables.
        population: the inputs that were run.
        alone: share of the inputs with a value of their own at every place, of which only the rest of the model is
            resampled.
        interchange: one row per variable that has a place. Columns variable, places, values (their number), alone
            (share of the inputs with a unique value, which resampling leaves unchanged); changes, changes_n,
            changes_low, changes_high: interchange intervention accuracy on the pairs whose answer changes (see
            evaluate_hypothesis), with their number and 95% interval; stays, ...: the same where it stays; reason (why
            no answer is tested that changes).
        by_answer: accuracy by right answer; columns answer, reads, model, scrubbed.
    """

    hypothesis: Hypothesis
    model: ScoreWithLoss
    scrubbed: ScoreWithLoss
    shuffled: ScoreWithLoss
    agreement: float
    population: Population
    alone: float
    interchange: pd.DataFrame
    by_answer: pd.DataFrame

    @property
    def exact(self) -> bool:
        """Whether all combinations of donors were run."""
        return self.scrubbed.exact

    @property
    def loss_recovered(self) -> float:
        """1 if the scrubbed model's loss equals the model's, 0 if it equals the loss with shuffled labels.

        NaN if shuffling the labels does not change the loss, or there is no loss.
        """
        return _recovered(self.model.loss, self.scrubbed.loss, self.shuffled.loss)

    def plot(self) -> Figure:
        """Draw the accuracy of the model, of the scrubbed model, and with shuffled labels."""
        return draw.bars(self.to_frame(), "what", "accuracy", x_title="what is run", y_title="accuracy")

    def to_frame(self) -> pd.DataFrame:
        """Return three rows, model, scrubbed and shuffled labels, with columns what, accuracy, loss."""
        return ScoreWithLoss.table({"model": self.model, "scrubbed": self.scrubbed, "shuffled labels": self.shuffled})

    def __str__(self) -> str:
        interval = "" if self.exact else f", 95% interval {share(self.scrubbed.low)} to {share(self.scrubbed.high)}"
        lost = self.loss_recovered
        drawn = "" if self.exact else " in these draws"
        recovered = "" if lost != lost else f" and {lost:.1%} of the loss is recovered{drawn}"
        lines = [
            f"Scrubbed: accuracy {share(self.scrubbed.accuracy)}{interval} (the model "
            f"{share(self.model.accuracy)}, shuffled labels {share(self.shuffled.accuracy)}){recovered}, "
            f"{'every draw' if self.exact else 'random draws'} {self.population.on}."
        ]
        if self.alone:
            lines[0] += (
                f" But {_which(self.alone)} a value at each place that no other input has: there, only the rest of the "
                "model is resampled, and nothing is tested of what these values stand for."
            )
        for row in self.interchange.itertuples():
            if not row.changes_n + row.stays_n:
                lines.append(f"{row.variable}: {row.reason}.")
                continue
            to = "pairs whose answer changes to one that the model did not give"
            changes = f"{share(row.changes)} on {row.changes_n:,} {to}" if row.changes_n else ""
            on = f"{row.stays_n:,} whose" if row.changes_n else f"{row.stays_n:,} pairs whose"
            stays = f"{share(row.stays)} on {on} answer stays" if row.stays_n else ""
            said = ", ".join(filter(None, (changes, stays)))
            never = "" if row.changes_n else " (by the hypothesis, no answer changes)"
            free = f"; {_which(row.alone)} a value that no other input has" if row.alone else ""
            lines.append(f"{row.variable} ({row.places}): interchange intervention accuracy {said}{never}{free}.")
        return "\n".join(lines)


def _which(alone: float) -> str:
    return "each input has" if alone == 1 else f"{share(alone)} of the inputs have"


def evaluate_hypothesis(
    model: Model, hypothesis: Any, inputs: Batch | None = None, *, pairs: int = PAIRS, seed: int = 0
) -> HypothesisTest:
    """Test a hypothesis by causal scrubbing, and by interchanging each of its variables.

    Args:
        model: any model with a task: one of interp's, or your own from `interp.load`.
        hypothesis: the variables, their places, and the variables that each is computed from.
        inputs: the inputs to measure on (default: every input of the task if that takes seconds, otherwise a sample).
        pairs: number of interchanged pairs per variable whose answer changes, and whose answer stays, if there are too
            many to run all. It changes where the hypothesis answers otherwise than without the interchange, and also
            otherwise than the model does then: if nothing had an effect, no such pair would be right.
        seed: for the random draws.

    Returns:
        The scores: exact if there are few enough inputs to run all combinations, otherwise with 95% intervals.

    Raises InterpError for places, features or values that do not fit the model and the task.

    Example:

        >>> model = interp.build("languages/parity")
        >>> both = interp.Hypothesis([interp.Variable("answer", at=["head 1.0", "head 1.1"])])
        >>> found = interp.evaluate_hypothesis(model, both, model.task.enumerate_up_to(4))
        >>> found.exact, found.scrubbed.accuracy
        (True, 1.0)
    """
    subject = Subject.of(model)
    check_finite(subject)
    check_size("pairs", pairs)
    if not isinstance(hypothesis, Hypothesis):
        raise InterpError(f"{of_type(hypothesis)} is not a hypothesis: interp.Hypothesis([interp.Variable(...)])")
    places = {variable.name: [Place.of(subject, place) for place in variable.at] for variable in hypothesis.variables}
    _check_places(hypothesis, places)
    if inputs is not None:
        subject.check(inputs)
    population = _inputs(subject, places) if inputs is None else population_of(inputs)
    check_reads(subject, population.batch)
    units = Units.of(subject, population.batch)
    values = Values(subject, hypothesis, places, units)
    scrubber = Scrubber(values)
    program = HypothesisAnswers(values, scrubber.logits)
    scrub = _scrub(scrubber, seed)
    whole = scrubber.score(scrubber.logits)
    shuffled = _shuffled(scrubber)
    return HypothesisTest(
        hypothesis,
        whole,
        scrub.score,
        shuffled,
        float((program.answers == program.model).double().mean()),
        population,
        scrubber.alone,
        _interchanges(scrubber, program, pairs, seed),
        _by_answer(scrubber, scrub),
    )


# ---------------------------------------------------------------- places and inputs


def _check_places(hypothesis: Hypothesis, places: dict[str, list[Place]]) -> None:
    """Raise InterpError unless each place has a single variable, or each of its variables has its own directions."""
    if not any(places.values()):
        raise InterpError("no variable of the hypothesis has a place, so there is nothing to test in the model")
    taken: dict[tuple[object, object], tuple[str, Place]] = {}
    for name, of_variable in places.items():
        if of_variable and any(place.each for place in of_variable) != all(place.each for place in of_variable):
            raise InterpError(f"variable {name} has one place at all positions and another at a single position")
        for place in of_variable:
            key = (place.what, place.position)
            if key in taken:
                other, before = taken[key]
                if other == name or place.basis is None or before.basis is None:
                    raise InterpError(
                        f"{place} is the place of {other} and of {name}: give each its own directions "
                        "(Place(what, basis=...)), or combine both into one variable"
                    )
            taken[key] = (name, place)


def _inputs(subject: Subject, places: dict[str, list[Place]]) -> Population:
    """Choose every input if a run fits a budget and the values of all places fit into memory, otherwise a sample."""
    population = choose(subject.task, partial(operations, subject), fixed=False, seconds=SECONDS)
    length = population.batch.tokens.shape[1]
    numbers = sum((length if p.each else 1) * p.width(subject) for of_variable in places.values() for p in of_variable)
    most = SIZE // (4 * numbers * (length if subject.read_at == "all" else 1))
    return population if population.n <= most else sample(subject.task, max(1, most))


# ---------------------------------------------------------------- scores


@dataclass(frozen=True)
class _Scrub:
    """Accuracy and loss of the scrubbed model, overall and per right class."""

    score: ScoreWithLoss
    by_class: dict[int, float]


def _scrub(scrubber: Scrubber, seed: int) -> _Scrub:
    """Run all combinations of donors if they are few, otherwise one draw per unit."""
    subject, classes = scrubber.subject, scrubber.units.classes
    runs = scrubber.all_draws()
    if runs is not None and runs <= _most_runs(scrubber):
        return _every_draw(scrubber)
    outputs = scrubber.scrubbed(torch.arange(len(classes)), seed)
    score = scrubber.score(outputs)
    right = correct(outputs, classes, subject.decision)
    by_class = {int(c): float(right[classes == c].double().mean()) for c in classes.unique()}
    return _Scrub(score, by_class)


def _most_runs(scrubber: Scrubber) -> int:
    """Return how many runs take about WORK operations, so that the choice does not depend on the machine."""
    model, length = scrubber.subject.model, scrubber.units.batch.tokens.shape[1]
    cfg = model.cfg
    weights = sum(parameter.numel() for name, parameter in model.named_parameters() if "embed.W_" not in name)
    row = length * (2 * weights + cfg.n_layers * cfg.n_heads * length * (4 * cfg.d_head + 20))
    return min(ALL_DRAWS, max(8, int(WORK / row)))


def _every_draw(scrubber: Scrubber) -> _Scrub:
    subject, classes = scrubber.subject, scrubber.units.classes
    right: dict[int, float] = {int(c): 0.0 for c in classes.unique()}
    loss = 0.0
    for outputs, chances in scrubber.every_draw():
        for c, chance in chances:
            wanted = torch.full((len(outputs),), c)
            right[c] += chance * float(correct(outputs, wanted, subject.decision).sum())
            lost = losses(outputs, wanted, subject.decision)
            loss += float("nan") if lost is None else chance * float(lost.sum())
    shares = classes.bincount() / len(classes)
    accuracy = min(1.0, sum(right.values()))
    if abs(accuracy - 1) < 1e-9:
        accuracy = 1.0  # the sum of the probabilities has rounding errors
    by_class = {c: min(1.0, value / float(shares[c])) for c, value in right.items()}
    n, rows = len(classes), len(scrubber.units.rows.unique())
    return _Scrub(ScoreWithLoss(n, n * accuracy, rows, exact=True, total_loss=n * loss), by_class)


def _shuffled(scrubber: Scrubber) -> ScoreWithLoss:
    """Return the exact score of the model's outputs with the labels of random inputs."""
    classes = scrubber.units.classes
    right = loss = 0.0
    for c, number in zip(*classes.unique(return_counts=True)):
        score = scrubber.score(scrubber.logits, torch.full_like(classes, int(c)))
        right += float(number) / len(classes) * score.right
        loss += float(number) / len(classes) * score.total_loss
    return ScoreWithLoss(len(classes), right, score.rows, exact=True, total_loss=loss)


def _recovered(model: float, scrubbed: float, shuffled: float) -> float:
    lost = shuffled - model
    return (shuffled - scrubbed) / lost if lost > 1e-12 else float("nan")


def _interchanges(scrubber: Scrubber, program: HypothesisAnswers, pairs: int, seed: int) -> pd.DataFrame:
    rows = []
    most = _most_runs(scrubber)
    for variable in scrubber.hypothesis.variables:
        if not scrubber.places[variable.name]:
            continue
        result = interchange(scrubber, program, variable, most, pairs, seed)
        row = {
            "variable": variable.name,
            "places": ", ".join(map(str, scrubber.places[variable.name])),
            "values": len(scrubber.values.known[variable.name].unique()),
            "alone": scrubber.groups[variable.name].alone,
        }
        reason, shown = (result, Interchange.none()) if isinstance(result, str) else ("", result)
        if not reason and not shown.changes.n:
            reason = f"by the hypothesis, no pair of inputs with another {variable.name} must have another answer"
        rows.append({**row, **shown.row(), "reason": reason})
    return pd.DataFrame(rows)


def _by_answer(scrubber: Scrubber, scrub: _Scrub) -> pd.DataFrame:
    subject, classes = scrubber.subject, scrubber.units.classes
    words, sets = subject.task.answer_words, subject.decision.kind == "set"
    right = correct(scrubber.logits, classes, subject.decision)
    rows = [
        (
            set_word(c, words) if sets else words[c] if c < len(words) else str(c),
            int((classes == c).sum()),
            float(right[classes == c].double().mean()),
            scrubbed,
        )
        for c, scrubbed in scrub.by_class.items()
    ]
    return pd.DataFrame(rows, columns=["answer", "reads", "model", "scrubbed"])
