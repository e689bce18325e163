"""Results that stay with their object: computed once for each argument, and gone with it."""

import gc
from dataclasses import dataclass, replace
from weakref import ref

from interp.support.cached import cached_method


@dataclass(frozen=True, eq=False)
class Doubled:
    asked: list[int]

    @cached_method
    def of(self, number: int) -> list[int]:
        self.asked.append(number)
        return [2 * number]


def test_a_result_is_computed_once_for_each_argument() -> None:
    one = Doubled([])
    assert one.of(1) is one.of(1) == [2]
    assert one.of(2) is one.of(2) == [4]
    assert one.of(number=3) == [6]
    assert one.asked == [1, 2, 3]
    assert replace(one).of(1) == [2]
    assert one.asked == [1, 2, 3, 1]


def test_results_do_not_outlive_their_object() -> None:
    one = Doubled([])
    one.of(1)
    gone = ref(one)
    del one
    gc.collect()
    assert gone() is None
