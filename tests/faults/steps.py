"""Something that happens at a chosen step of the transactions that a catalog begins."""

from collections.abc import Callable
from typing import Any

from lakelog import Lake
from lakelog.catalog.base import Transaction

STEPS = ("fetch", "fetch_each", "execute", "insert", "give_up", "commit")


class Steps:
    """Counts small commits, begin and every call of a transaction, and calls ``fault`` before or after the chosen one.

    A step has only begun when the database has got it, so what a backend merely queues is sent before the fault.
    """

    def __init__(self, lake: Lake, at: int, moment: str, fault: Callable[[Any], None]) -> None:
        self.count = 0
        self._at = at
        self._moment = moment
        self._fault = fault
        catalog = lake.committer.catalog
        self._begin, self._at_once = catalog.begin, catalog.commit_at_once
        catalog.begin, catalog.commit_at_once = self.begin, self.commit_at_once  # type: ignore[method-assign]

    def commit_at_once(self, *arguments: Any) -> Any:
        self._count("before", None)
        result = self._at_once(*arguments)
        self._count("after", None)
        return result

    def begin(self, *arguments: Any) -> Any:
        self._count("before", None)
        transaction = self._begin(*arguments)
        self._count("after", transaction)
        return _Watched(self, transaction)

    def step(self, transaction: Transaction, name: str, *arguments: Any) -> Any:
        self._count("before", transaction)
        result = getattr(transaction, name)(*arguments)
        if name != "commit" and self.count == self._at and self._moment == "after":
            transaction.fetch("SELECT 1", {})
        self._count("after", transaction)
        return result

    def _count(self, moment: str, transaction: Transaction | None) -> None:
        self.count += moment == "before"
        if self.count == self._at and self._moment == moment:
            self._fault(transaction)


class _Watched:
    def __init__(self, steps: Steps, transaction: Transaction) -> None:
        self._steps = steps
        self._transaction = transaction

    def __getattr__(self, name: str) -> Any:
        if name not in STEPS:
            return getattr(self._transaction, name)
        return lambda *arguments: self._steps.step(self._transaction, name, *arguments)
