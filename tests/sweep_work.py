"""Functions that spawned workers import: what a job may do to its worker. A grid that all tests of sweeps share.

As a script, `python sweep_work.py N interp sweep ...` runs a command that kills itself at its N-th system call that
matters to the table: in the middle of a write, or just before or after a sync or a rename.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interp.training.sweeps.jobs import Job


def small_grid(**changes: Any) -> dict[str, Any]:
    """Six cells of a histogram task that trains in milliseconds, two seeds each."""
    base = {
        "d_model": 8, "direction": "bidirectional", "readout": "relu_mlp", "readout_width": 8,
        "task": {"name": "histogram", "parameters": {"T": 8, "L": 5, "zero_class": True}},
        "layers": [{"d_head": 8, "scale": "inv_sqrt_d_model", "value_output": "identity"}],
        "origin": {"kind": "training", "init": "torch", "data": "fresh", "samples_per_epoch": 200, "batch_size": 32},
    }  # fmt: skip
    axes = {"readout_width": [2, 4, 8], "d": {"fields": ["d_model", "layers.0.d_head"], "values": [2, 4]}}
    return {"seeds": 2, "epochs": 3, "base": base, "axes": axes, **changes}


def a_job(name: str, marker: Path | None = None) -> Job:
    return Job(spec={"marker": str(marker)}, spec_id=name, seeds=(0,), epochs=1)


def name_and_process(job: Job) -> tuple[str, int]:
    return job.spec_id, os.getpid()


def die(job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail_at_a(job: Job) -> str:
    if job.spec_id == "a":
        raise MemoryError("no more memory")
    return job.spec_id


def write_process_and_sleep(job: Job) -> None:
    marker = Path(job.spec["marker"])
    marker.with_suffix(".part").write_text(str(os.getpid()))
    marker.with_suffix(".part").rename(marker)
    time.sleep(600)


def die_at_call(wanted: int) -> None:
    """Arm this process: its wanted-th write, sync or rename is its end."""
    moments, calls = random.Random(wanted), [0]

    def armed(call: Callable[..., Any], at_the_end: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] < wanted:
                return call(*arguments, **options)
            at_the_end(*arguments, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        return counted

    from interp.training.sweeps import table

    write = table.write_at

    def write_a_part(handle: int, data: bytes, offset: int) -> None:
        write(handle, data[: moments.randint(0, len(data))], offset)

    def perhaps(call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: moments.random() < 0.5 and call(*arguments, **options)

    table.write_at = armed(table.write_at, write_a_part)
    os.fsync = armed(os.fsync, perhaps(os.fsync))
    os.replace = armed(os.replace, perhaps(os.replace))


if __name__ == "__main__":
    die_at_call(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    from interp import cli

    cli.main()
