"""The base of all compiled engines: models as flat vectors, one model per core, with state and compilation.

A compiled engine defines its refusals, the layout of its vectors, one epoch, and the accuracy of one model.
"""

import os
import platform
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from interp.errors import InterpError
from interp.models.architecture.parameters import initialize
from interp.models.spec import ModelSpec
from interp.support.resources import cores
from interp.tasks import Task
from interp.training.compiled.layout import Layout, file_of, sources
from interp.training.engines.engine import Engine, EpochResult, learning_rate

DTYPES: dict[torch.dtype, np.dtype[Any]] = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}

NEEDS_NUMBA = "the compiled loop needs numba: pip install numba"
"""The only refusal that installing a package resolves."""

PATIENCE = 1.5
"""Seconds after which a message says that code is being compiled; cached code loads faster."""


class CompiledEngine(Engine):
    """Models as flat vectors of parameters and Adam's two moments, each trained by one compiled loop (numba)."""

    compile_seconds: ClassVar[float] = 25.0
    """Approximate time for compiling on one core, once per version, dtype and machine."""
    saved_seconds: ClassVar[float]
    """Approximate seconds saved per model and step, relative to the fastest other engine with few models."""

    loop: ClassVar[str]
    """The module of the compiled code."""

    layout: Layout
    sizes: Any

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        if dtype not in DTYPES:
            raise InterpError(f"dtype {dtype}; the {self.name} engine trains in float32 or float64")
        super().__init__(spec, task, seeds, device, dtype)
        self.kind = DTYPES[dtype]
        self.layout = self.make_layout()
        self.spare: list[tuple[int, Any]] = []
        self.flat, self.m, self.v = ([self.layout.zeros() for _ in self.seeds] for _ in "pmv")
        for flat, seed in zip(self.flat, self.seeds):
            fresh = initialize(spec, task, seed, dtype)
            for name, view in self.layout.views(flat).items():
                view[...] = fresh[name].numpy()

    @classmethod
    def pays(cls, spec: ModelSpec, task: Task, models: int) -> bool:
        """Test whether training saves more time than compiling takes, or the compiled code is cached."""
        recipe = spec.training
        samples = recipe.samples_per_epoch or len(task.dataset("train"))
        steps = recipe.epochs * -(-samples // recipe.batch_size) * models
        return steps * cls.saved_seconds > cls.compile_seconds or _mark(cls.name, cls.loop, spec.dtype).exists()

    @staticmethod
    def cannot_run(device: torch.device) -> str | None:
        """Return the reason why compiled code cannot run on a device, or None."""
        if device.type != "cpu":
            return f"the compiled loop runs on the CPU, not on {device.type}"
        if find_spec("numba") is None:
            return NEEDS_NUMBA
        return None

    @abstractmethod
    def make_layout(self) -> Layout:
        """Set `sizes`; return the layout of the parameters in the flat vectors."""

    @abstractmethod
    def make_workspace(self, rows: int) -> Any:
        """Make work arrays for so many rows."""

    @abstractmethod
    def train_one(self, index: int, epoch: int) -> float:
        """Train one model for one epoch; return its mean loss."""

    @abstractmethod
    def accuracy_of(self, index: int) -> float:
        """Return the accuracy of one model on the held-out data."""

    @abstractmethod
    def touch(self) -> None:
        """Call every compiled function once on empty work, so that it is compiled or loaded."""

    @property
    def compiled(self) -> Any:
        """The module of the compiled code, imported on first use because it imports numba."""
        return import_module(self.loop)

    @contextmanager
    def workspace(self, rows: int) -> Iterator[Any]:
        """Return work arrays for at least so many rows, one set per thread, reused in later epochs."""
        size, work = self.spare.pop() if self.spare else (0, None)
        if size < rows:
            size, work = rows, self.make_workspace(rows)
        yield work
        self.spare.append((size, work))

    def rates(self, epoch: int, n: int) -> tuple[np.ndarray, int]:
        """Return the learning rate of every step of an epoch of n examples, and the number of steps before it."""
        steps = -(-n // self.recipe.batch_size)
        done = (epoch - 1) * steps
        return np.array([learning_rate(self.recipe, done + step, steps) for step in range(steps)]), done

    def _train(self, index: int, data: Any, rows: int, rates: np.ndarray, done: int) -> float:
        """Train one model on data, with one step per rate, in work arrays of so many rows; return the mean loss."""
        flat, grad, recipe = self.flat[index], self.layout.zeros(), self.recipe
        P, G = self.layout.blocks(flat), self.layout.blocks(grad)
        with self.workspace(rows) as work:
            loss: float = self.compiled.train(
                self.sizes, P, G, work, data, flat, grad, self.m[index], self.v[index],
                P.embed.size if self.spec.embedding == "frozen" else 0, done, recipe.batch_size, rates,
                *recipe.betas, recipe.eps,
            )  # fmt: skip
        return loss

    def prepare(self, say: Callable[[str], None]) -> None:
        """Compile the code or load it from disk. If processes start together, one compiles and the others wait."""
        text = f"compiling the {self.name} engine, about {self.compile_seconds:.0f} s, once"
        told = threading.Timer(PATIENCE, say, (text,))
        told.daemon = True
        told.start()
        try:
            with _one_process(_mark(self.name, self.loop, self.kind.name)):
                self.touch()
        finally:
            told.cancel()

    def run_epoch(self, epoch: int) -> EpochResult:
        def train_and_score(index: int) -> tuple[float, float]:
            with no_subnormals():
                return self.train_one(index, epoch), self.accuracy_of(index)

        if len(self.seeds) == 1:
            found = [train_and_score(0)]
        else:
            # The compiled loop releases the GIL, so threads are as fast as processes, and they share the code.
            with ThreadPoolExecutor(max_workers=min(len(self.seeds), cores())) as pool:
                found = list(pool.map(train_and_score, range(len(self.seeds))))
        loss, accuracy = (torch.tensor(column, dtype=torch.float64) for column in zip(*found))
        return EpochResult(loss, accuracy)

    def evaluate(self) -> Tensor:
        return torch.tensor([self.accuracy_of(index) for index in range(len(self.seeds))], dtype=torch.float64)

    def parameters(self) -> dict[str, Tensor]:
        views = [self.layout.views(flat) for flat in self.flat]
        return {name: torch.from_numpy(np.stack([view[name] for view in views])) for name in views[0]}

    def state(self) -> dict[str, Tensor]:
        kept = {"flat": self.flat, "m": self.m, "v": self.v}
        return {name: torch.from_numpy(np.stack(arrays)) for name, arrays in kept.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, arrays in {"flat": self.flat, "m": self.m, "v": self.v}.items():
            for array, saved in zip(arrays, state[name].numpy()):
                array[...] = saved


@contextmanager
def no_subnormals() -> Iterator[None]:
    """Treat subnormal results and arguments as 0 in this thread.

    Adam's moments of a parameter without gradient, such as those of a dead neuron, shrink until they are subnormal, and
    subnormal arithmetic takes a hundred times as long. Such small steps leave the weights unchanged to the last bit.
    """
    was_on = bool(np.float32(1e-40) * np.float32(1) == 0)  # torch cannot report this setting
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_on)


def _mark(engine: str, loop: str, dtype: str) -> Path:
    """Return the path of a file that exists once this version of the engine is compiled on this machine.

    It is in the folder of numba's compiled code, so that both are deleted together.
    """
    beside = file_of(loop).parent / "__pycache__"
    kept = Path(os.environ.get("NUMBA_CACHE_DIR") or beside)
    return kept / f"interp-{engine}-{dtype}-{platform.node()}-{sources(loop)[:16]}.compiled"


@contextmanager
def _one_process(mark: Path) -> Iterator[None]:
    """Let one process at a time into this context. The system releases the lock if its process dies."""
    lock = FileLock(mark.with_suffix(".lock"), mode=0o644)
    try:
        lock.acquire()
    except OSError:  # the folder is not writable: processes compile in parallel
        yield
        return
    try:
        yield
        with suppress(OSError):
            mark.touch()
    finally:
        lock.release()
