"""Small models get one thread: on busy cores threads wait for each other longer than they work."""

from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info

import interp
from interp.report.sections.base import _SECTIONS
from interp.support.resources import SMALL, cores, threads_for


@pytest.fixture(autouse=True)
def _two() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS and Windows do not say which: there all of the machine's."""
    monkeypatch.setattr("interp.support.resources.os.sched_getaffinity", lambda pid: {0, 5}, raising=False)
    assert cores() == 2
    monkeypatch.delattr("interp.support.resources.os.sched_getaffinity")
    monkeypatch.setattr("interp.support.resources.os.cpu_count", lambda: 7)
    assert cores() == 7


@pytest.mark.parametrize(("parameters", "threads"), [(SMALL, 1), (SMALL + 1, 2)])
def test_only_small_models_get_one(parameters: int, threads: int) -> None:
    with threads_for(torch.nn.Linear(parameters, 1, bias=False, device="meta")):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_new_tensors_are_float32_meanwhile() -> None:
    """Searches add up in float32, whatever format a researcher has set as torch's default."""
    torch.set_default_dtype(torch.float64)
    try:
        with threads_for(torch.nn.Identity()):
            assert torch.zeros(1).dtype == torch.float32
        assert torch.zeros(1).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_report_is_made_with_one_thread() -> None:
    seen: list[int] = []

    @interp.section("threads", title="Threads", order=950)
    def threads(study, report) -> None:
        seen.append(torch.get_num_threads())
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

    try:
        interp.analyze("count01/minimal", sections=["threads"])
    finally:
        _SECTIONS.pop("threads")
    assert len(seen) > 1
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2
