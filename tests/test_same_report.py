"""The same model, task and options give the same report, byte for byte, however busy the machine is."""

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import interp


@contextmanager
def busy() -> Iterator[None]:
    """Let a loop run on each core."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def page() -> str:
    """The page of a small model, most of whose sections take samples, without date and versions."""
    report = interp.analyze(interp.build("histogram/dot-exact", T=5, L=5))
    return re.sub(r"\d{4}-\d\d-\d\d|interp [\d.]+\S*|torch [\d.]+\S*", "", report.html())


@pytest.mark.slow
def test_a_report_depends_neither_on_load_nor_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    first = page()
    assert "Patching" in first
    assert "a sample of" in first
    for name in ("perf_counter", "monotonic", "process_time"):  # a machine on which everything takes long
        monkeypatch.setattr(time, name, itertools.count(0.0, 5.0).__next__)
    with busy():
        assert page() == first
