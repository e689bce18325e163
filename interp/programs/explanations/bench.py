"""Where a rule is measured: the task's tokens and marks, the inputs, the model's answers, and the steps of a search."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import UnsupportedError
from interp.measures.runs import reads_of
from interp.models.architecture.answers import decide
from interp.models.subject import Subject
from interp.tasks import Batch
from interp.tasks.batch import Reads, concatenate
from interp.tasks.populations import Population

MOST_FIXED = 64
MOST_MEMBERS = 10
"""Largest number of outputs if answers are sets."""
ALLOWED = 0.04
"""How much lower than the overall share the share may be for the most frequent answer, or for all other answers."""
STEPS_PER_SECOND = 20
"""Nominal steps of a search per second, about those of one core on a small model; nothing is timed."""
SEARCHED, SEARCHED_CELLS = 50_000, 2_000_000
"""Largest number of answers, and of input tokens, for fitting rules."""
FEWEST_SEARCHED = 1_000


@dataclass(frozen=True)
class Setting:
    """The tokens of a task as a program sees them.

    vocabulary: all tokens, in the order of their ids. marks: padding, and tokens without information, because they are
    at the same place in every input ([BOS], '=') or no answer sees them. causal: whether attention is causal. answers:
    one word per output index. fixed: positions with the same token in every input, if all inputs have the same length
    of at most MOST_FIXED tokens.
    """

    vocabulary: tuple[str, ...]
    marks: tuple[str, ...]
    causal: bool
    answers: tuple[str, ...]
    fixed: tuple[int, ...] = ()

    @classmethod
    def of(cls, subject: Subject, batch: Batch) -> Setting:
        """Return the setting of a model's task, with the marks found in these inputs."""
        task = subject.task
        causal = subject.model.cfg.attention_dir == "causal"
        marks = subject.shared("marks", batch, lambda: _marks(subject, batch))
        return cls(tuple(task.vocabulary), marks, causal, answer_words(subject), _fixed(batch))

    @property
    def content(self) -> tuple[str, ...]:
        """The tokens that are not marks."""
        return tuple(token for token in self.vocabulary if token not in self.marks)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The values of the content tokens; empty unless all of them are whole numbers."""
        values = {token: int(token) for token in self.content if token.removeprefix("-").isdecimal()}
        return values if len(values) == len(self.content) else {}


def answer_words(subject: Subject) -> tuple[str, ...]:
    """Return one word per answer index; for sets, the words of their members.

    Raises UnsupportedError for sets of more than MOST_MEMBERS outputs.
    """
    words = tuple(subject.task.answer_words)
    if subject.decision.kind != "set":
        return words
    if len(words) > MOST_MEMBERS:
        raise UnsupportedError(f"answers are sets of {len(words)} outputs; at most {MOST_MEMBERS} can be explained")
    return tuple(
        " ".join(word for bit, word in enumerate(words) if number >> bit & 1) or "nothing"
        for number in range(1 << len(words))
    )


def _fixed(batch: Batch) -> tuple[int, ...]:
    tokens = batch.tokens
    if tokens.shape[1] > MOST_FIXED or len(batch.lengths.unique()) > 1 or len(tokens) < 2:
        return ()
    return tuple((tokens == tokens[0]).all(0).nonzero()[:, 0].tolist())


def _marks(subject: Subject, batch: Batch) -> tuple[str, ...]:
    """Return padding, tokens that no answer sees, and tokens that every row has at the same place and nowhere else.

    A place is a position counted from the start or from the end, or the read position.
    """
    tokens, mask, task = batch.tokens, batch.attention_mask, subject.task
    rows = torch.arange(len(tokens))
    few = rows[:100]  # which already differ at most places
    shortest = int(batch.lengths.min())
    places = [torch.full((len(tokens),), at) for at in range(shortest)]
    places += [batch.lengths - 1 - at for at in range(shortest)]
    if subject.read_at != "all":
        places.append(reads_of(subject, batch).positions)
    marks = set() if task.pad_id is None else {task.pad_id}
    for place in places:
        token = int(tokens[0, place[0]])
        if token in marks:
            continue
        everywhere = bool((tokens[few, place[few]] == token).all() and (tokens[rows, place] == token).all())
        if everywhere and tokens.shape[1] > 1 and int(((tokens == token) & mask).sum()) == len(tokens):
            marks.add(token)
    seen = mask
    if subject.model.cfg.attention_dir == "causal":  # tokens after the last read position have no effect
        last = torch.where(reads_of(subject, batch).mask(batch), torch.arange(tokens.shape[1]), -1).amax(1)
        seen = mask & (torch.arange(tokens.shape[1]) <= last[:, None])
    unseen = set(range(len(task.vocabulary))) - set(tokens[seen].bincount().nonzero()[:, 0].tolist())
    return tuple(word for number, word in enumerate(task.vocabulary) if number in marks | unseen)


@dataclass(frozen=True)
class View:
    """Inputs from which quantities are computed: token ids, and masks of tokens and content."""

    setting: Setting
    tokens: Int[Tensor, "rows length"]
    mask: Bool[Tensor, "rows length"]

    @classmethod
    def of(cls, setting: Setting, batch: Batch) -> View:
        return cls(setting, batch.tokens, batch.attention_mask)

    @cached_property
    def content(self) -> Bool[Tensor, "rows length"]:
        """Mask of the tokens that are not marks."""
        marks = torch.tensor([token in self.setting.marks for token in self.setting.vocabulary])
        return self.mask & ~marks[self.tokens]

    @cached_property
    def values(self) -> Int[Tensor, "rows length"]:
        """The numeric value of each content token; 0 at marks."""
        numbers = torch.tensor([self.setting.numbers.get(token, 0) for token in self.setting.vocabulary])
        return torch.where(self.content, numbers[self.tokens], 0)

    def mixed(self) -> View:
        """Return the same with each content token from another row, for each position by itself; marks stay."""
        tokens, random = self.tokens.clone(), torch.Generator().manual_seed(0)
        for at in range(tokens.shape[1]):
            rows = self.content[:, at].nonzero()[:, 0]
            tokens[rows, at] = tokens[rows[torch.randperm(len(rows), generator=random)], at]
        return View(self.setting, tokens, self.mask)

    @property
    def place(self) -> Int[Tensor, "length"]:
        return torch.arange(self.tokens.shape[1])

    def is_token(self, token: str) -> Int[Tensor, "rows length"]:
        """Return 1 at the positions of a token, otherwise 0."""
        return ((self.tokens == self.setting.vocabulary.index(token)) & self.mask).long()

    def total(self, each: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """Sum over the positions that each position sees."""
        return self.seen(each.cumsum(1))

    def seen(self, running: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """Return what each position sees of a value that is computed from left to right: its last one if not causal."""
        return running if self.setting.causal else running[:, -1:].expand_as(running)


class OutOfSteps(Exception):
    """A search has used its steps; the caller continues with the results so far."""


@dataclass
class Steps:
    """How many steps a search may still take. They are counted, not timed, so a limit means the same everywhere.

    told: called at each step, to show progress.
    """

    left: float = math.inf
    told: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Take a step. Raises OutOfSteps if there is none left."""
        self.told()
        self.left -= 1
        if self.left < 0:
            raise OutOfSteps


@dataclass(frozen=True)
class Bench:
    """A model and the inputs on which it is tested.

    steps: runs raise OutOfSteps when these are used.
    """

    subject: Subject
    population: Population
    steps: Steps = field(default_factory=Steps)

    @cached_property
    def setting(self) -> Setting:
        return Setting.of(self.subject, self.population.batch)

    @cached_property
    def view(self) -> View:
        return View.of(self.setting, self.population.batch)

    @cached_property
    def where(self) -> Reads:
        return reads_of(self.subject, self.population.batch)

    @cached_property
    def logits(self) -> Float[Tensor, "reads n_out"]:
        return self.subject.logits(self.population.batch)

    @cached_property
    def answers(self) -> Int[Tensor, "reads"]:
        """The model's answers, as output indices."""
        return decide(self.logits, self.subject.decision)

    @cached_property
    def right(self) -> Bool[Tensor, "reads"]:
        return self.subject.right_of(self.logits, self.population.batch)


def least_share(same: Bool[Tensor, "reads"], answers: Int[Tensor, "reads"]) -> float:
    """Return the share of equal answers, or a smaller number if rare or frequent answers often differ.

    It is the minimum of three: the share among all answers, and ALLOWED plus the share among the most frequent answer
    and among all other answers. Otherwise, always giving the most frequent answer could reach a high share.
    """
    if not len(answers):
        return 0.0
    most = answers == answers.bincount().argmax()
    sides = [float(side.double().mean()) + ALLOWED for side in (same[most], same[~most]) if len(side)]
    return min(float(same.double().mean()), *sides)


def widened(population: Population, subject: Subject) -> Population:
    """Double a sample by adding inputs in which some tokens are changed at random.

    Otherwise, if a sampler makes non-members by one change to a member, membership could look like a parity. The sample
    is returned unchanged if the task is read at all positions, or if it refuses a changed row.
    """
    if population.exact or subject.read_at == "all":
        return population
    batch = population.batch
    tokens = _changed(batch, Setting.of(subject, batch), reads_of(subject, batch).positions)
    changed = as_inputs(subject, tokens)
    if (
        changed is None
        or changed.labels.shape[1:] != batch.labels.shape[1:]
        or changed.tokens.shape != batch.tokens.shape
    ):
        return population
    changed = replace(changed, labels=changed.labels.to(batch.labels.dtype))
    return replace(population, batch=concatenate([batch, changed], subject.task.pad_id))


def as_inputs(subject: Subject, tokens: Int[Tensor, "rows length"]) -> Batch | None:
    """These rows as a batch, or None: no task is bound to take rows that its sampler never draws."""
    try:
        subject.task.check_input(tokens)
        batch = subject.task.batch(tokens)
        reads_of(subject, batch)
        return batch
    except Exception:
        return None


def _changed(batch: Batch, setting: Setting, read_at: Tensor) -> Tensor:
    """Replace each content token of a row by a random one with probability .1, .3 or .6, drawn per row."""
    content = torch.tensor([setting.vocabulary.index(token) for token in setting.content])
    generator = torch.Generator().manual_seed(1)
    inside = torch.isin(batch.tokens, content) & batch.attention_mask
    if setting.causal:
        inside &= torch.arange(inside.shape[1]) < read_at[:, None]
    rate = torch.tensor([0.1, 0.3, 0.6])[torch.randint(3, (len(batch), 1), generator=generator)]
    chosen = inside & (torch.rand(batch.tokens.shape, generator=generator) < rate)
    other = content[torch.randint(len(content), batch.tokens.shape, generator=generator)]
    return torch.where(chosen, other, batch.tokens)


def to_search(bench: Bench) -> Bench:
    """Return a bench with the inputs for the search."""
    batch = bench.population.batch
    answers = max(1.0, len(bench.answers) / len(batch))
    return part_of(bench, int(min(SEARCHED / answers, max(FEWEST_SEARCHED, SEARCHED_CELLS // batch.tokens.shape[1]))))


def part_of(bench: Bench, n: int) -> Bench:
    """Return a bench with n of the inputs (or all). Up to a quarter of them are chosen to have rare answers."""
    batch = bench.population.batch
    if n >= len(batch):
        return bench
    generator = torch.Generator().manual_seed(2)
    common = bench.answers == bench.answers.bincount().argmax()
    rare = torch.zeros(len(batch), dtype=torch.bool).index_fill_(0, bench.where.rows[~common], True)
    first = rare.nonzero()[:, 0]
    first = first[torch.randperm(len(first), generator=generator)][: n // 4]
    rest = torch.ones(len(batch), dtype=torch.bool).index_fill_(0, first, False).nonzero()[:, 0]
    rest = rest[torch.randperm(len(rest), generator=generator)][: n - len(first)]
    rows = torch.cat([first, rest]).sort().values
    kind = "given" if bench.population.exact else bench.population.kind
    return replace(bench, population=replace(bench.population, kind=kind, batch=batch[rows]))
