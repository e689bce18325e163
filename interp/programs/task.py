"""The task of a program: its inputs are rows of tokens, and the right answers are those that the program gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError, check_size
from interp.models.spec import Scalar
from interp.programs.language import Program
from interp.programs.steps import NEVER, Head, Linear, Table
from interp.support import words
from interp.tasks import IGNORED, Batch, Task, register_task
from interp.tasks.batch import digits_of

FIRST = Head("first", "", "position", ((0.0, NEVER, NEVER),), "token")
SAME = Table("same", ("token", "first"), (1, 0, 0, 1), ("no", "yes"))
ENDS = Program(("a", "b"), 3, True, (FIRST, SAME),
               Linear("answer", ("same",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("no", "yes")))  # fmt: skip


@register_task
class ProgramTask(Task):
    """Give the answers of a program.

    program: its JSON. first, last: marks at the ends of each row ("" for none); between them are the content tokens,
    which are all others except padding. shortest: the smallest number of content tokens of a row (0: the same as the
    largest, which follows from the program's length). Rows of different lengths need a program with padding. The
    sampler draws lengths and tokens uniformly.
    """

    name = "program"
    family = "programs"
    readout = "last"
    defaults: ClassVar[Mapping[str, Scalar]] = {"program": ENDS.to_json(), "shortest": 0, "first": "", "last": ""}

    def __init__(self, data_seed: int = 0, **parameters: Scalar) -> None:
        super().__init__(data_seed, **parameters)
        self.program = program = Program.from_json(str(self.parameters["program"]))
        marks = [str(self.parameters[end]) for end in ("first", "last")]
        if unknown := [mark for mark in marks if mark and mark not in program.vocabulary]:
            raise InterpError(f"the mark {unknown[0]!r} is not a token of the program: {', '.join(program.vocabulary)}")
        if len(program.answers) < 2:
            raise InterpError(f"a task needs a program with two answers or more, not {len(program.answers)}")
        self.vocabulary, self.pad, self.readout = program.vocabulary, program.pad, program.read  # type: ignore[misc]
        self.ends = tuple([self.token_id(mark)] if mark else [] for mark in marks)
        self.content = tuple(at for at, word in enumerate(self.vocabulary) if word not in (*marks, program.pad))
        longest = program.length - sum(map(len, self.ends))
        shortest = check_size("shortest", self.parameters["shortest"], least=0) or longest
        if not self.content or not 1 <= shortest <= longest:
            raise InterpError(
                f"rows of {shortest} to {longest} of {len(self.content)} content tokens: give a program of another "
                "length, or other marks"
            )
        if shortest < longest and self.pad is None:
            raise InterpError(f"shortest = {shortest}: rows of different lengths need a program with padding")
        self.sizes = tuple(range(shortest, longest + 1))

    @property
    def n_out(self) -> int:
        return len(self.program.answers)

    @property
    def answer_words(self) -> tuple[str, ...]:
        """The words of the program's answers."""
        return self.program.answers

    @property
    def describe(self) -> str:
        """One sentence that describes the task."""
        heads = sum(isinstance(step, Head) for step in self.program.steps)
        maps = words.counted(len(self.program.steps) - heads, "map")
        return f"Give the answers that {words.counted(heads, 'selection')} of tokens and {maps} determine."

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.program.steps)} steps, {self.program.constants} constants)"

    # ------------------------------------------------------------ rows

    def rows(self, content: Int[Tensor, "rows content"]) -> Int[Tensor, "rows length"]:
        """Add the marks and padding to content tokens of one length."""
        ends = [torch.tensor(end, dtype=torch.long).expand(len(content), -1) for end in self.ends]
        rows = torch.cat([ends[0], content, ends[1]], 1)
        return torch.nn.functional.pad(rows, (0, self.program.length - rows.shape[1]), value=self.pad_id or 0)

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        """Label rows of tokens. Raises InterpError for a row that is not an input."""
        self.check_input(tokens)
        there = self.program.weights(tokens) > 0
        labels = self.program.classes(tokens.cpu()).to(tokens.device)
        if self.readout == "all":
            return Batch(tokens, there.sum(1), labels.masked_fill(~there, IGNORED))
        return Batch(tokens, there.sum(1), labels.gather(1, self.program.reads(tokens)[:, None])[:, 0])

    def check_input(self, tokens: Int[Tensor, "rows length"]) -> None:
        """Raise InterpError unless every row is marks around content tokens, and then padding."""
        first, last = map(len, self.ends)
        content = torch.zeros(self.d_vocab, dtype=torch.bool, device=tokens.device)
        content[list(self.content)] = True
        inside = content[tokens]
        if first:
            inside[:, 0] = tokens[:, 0] == self.ends[0][0]
        n = inside.long().cumprod(1).sum(1) + last  # the length, if the row is an input
        good = torch.isin(n - first - last, torch.tensor(self.sizes, device=tokens.device))
        good &= n <= tokens.shape[1]
        ends = (n - 1).clamp(0, tokens.shape[1] - 1)
        if last:
            good &= tokens.gather(1, ends[:, None])[:, 0] == self.ends[1][0]
        after = torch.arange(tokens.shape[1], device=tokens.device) >= n[:, None]
        good &= ~(after & (tokens != (-1 if self.pad_id is None else self.pad_id))).any(1)
        form = f"{self.sizes[0]} to {self.sizes[-1]} content tokens within its marks, and then padding"
        self.check_rows(good, tokens, form)

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        """Draw n rows; both splits have the same distribution."""
        check_size("n", n, least=0)
        check_size("seed", seed, least=0)
        generator = torch.Generator().manual_seed(seed * 16 + self.splits.index(self.check_split(split)))
        sizes = torch.randint(len(self.sizes), (n,), generator=generator) + self.sizes[0]
        drawn = torch.randint(len(self.content), (n, self.sizes[-1]), generator=generator)
        tokens = torch.zeros(n, self.program.length, dtype=torch.long)
        for size in self.sizes:
            tokens[sizes == size] = self.rows(torch.tensor(self.content)[drawn[sizes == size, :size]])
        return self.batch(tokens)

    # ------------------------------------------------------------ all inputs

    @property
    def n_inputs(self) -> int:
        """Number of inputs."""
        return sum(len(self.content) ** size for size in self.sizes)

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        """Yield every input, shorter ones first, in batches of at most `chunk` rows."""
        check_size("chunk", chunk)
        base, content = len(self.content), torch.tensor(self.content)
        for size in self.sizes:
            for start in range(0, base**size, chunk):
                index = torch.arange(start, min(start + chunk, base**size))
                yield self.batch(self.rows(content[digits_of(index, base, size)]))

    def weights(self, batch: Batch) -> Float[Tensor, "rows"]:
        """The sampler's probability of each row, up to a common factor."""
        return float(len(self.content)) ** -(batch.lengths.double() - self.sizes[0])
