"""The search for orders of steps, by which the contract's tests let operations race."""

import pytest

from tests.contract.interleaving import Actor, explore, step


class Counters:
    """Counters that are read in one step and written in another, so that what was counted in between is lost."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._values: dict[str, int] = {}
        self.outcomes: list[dict[str, int]] = []

    def start(self) -> list[Actor]:
        self._values = dict.fromkeys(self._names, 0)
        return [Actor(lambda name=name: self._count(name)) for name in self._names]

    def _count(self, name: str) -> None:
        with step() as touched:
            touched.reads.add(name)
            value = self._values[name]
        with step() as touched:
            touched.changes.add(name)
            self._values[name] = value + 1

    def check(self, actors: object) -> None:
        self.outcomes.append(self._values)


def test_every_outcome_is_seen_and_no_order_that_makes_no_difference() -> None:
    counters = Counters("a", "a")
    # Of the six orders there are, two differ from others only in which of two reads comes first.
    assert explore(counters.start, counters.check, 10) == 4
    assert sorted(each["a"] for each in counters.outcomes) == [1, 1, 2, 2]


def test_steps_that_have_nothing_in_common_are_tried_in_one_order() -> None:
    counters = Counters("a", "b")
    assert explore(counters.start, counters.check, 10) == 1
    assert counters.outcomes == [{"a": 1, "b": 1}]


def test_more_orders_than_expected_are_an_error_and_not_a_wait() -> None:
    counters = Counters("a", "a")
    with pytest.raises(AssertionError, match="more than 3 orders"):
        explore(counters.start, counters.check, 3)


def test_what_fails_says_in_which_order() -> None:
    counters = Counters("a", "a")

    def refuse(actors: object) -> None:
        counters.check(actors)
        assert counters.outcomes[-1]["a"] == 2

    with pytest.raises(AssertionError) as failure:
        explore(counters.start, refuse, 10)
    assert failure.value.__notes__ == ["in the order 001101"]
