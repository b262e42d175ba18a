"""Two operations at once, through every order of their steps that makes a difference.

Each operation runs in a thread that stops before each of its steps until it is given the turn, so that exactly one of
them runs at any time. A step is what nobody can come in between of: a statement that reads the catalog, a whole
transaction, something done to files.

Orders are searched depth first. Two steps of which neither changes what the other touches have the same effect in
either order, so that only one of the two orders is tried: the other operation is given the turn before a step only if
it has a later step that meets this one, and an operation that could have gone on before rests until something happens
that its step meets. This is dynamic partial order reduction with sleep sets, and leaves out no outcome.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lakelog import LakelogError

PATIENCE = 60.0
"""Seconds after which an operation that neither stops nor ends is stuck."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a step touches, by name."""

    reads: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    adds: set[str] = field(default_factory=set)
    """Where something of its own comes or goes: it meets who reads or changes the whole, and not what others have."""

    def meets(self, other: "Step") -> bool:
        """Whether it matters which of the two comes first."""
        return self._stirs(other) or other._stirs(self)

    def _stirs(self, other: "Step") -> bool:
        return not (self.changes | self.adds).isdisjoint(other.reads | other.changes)


class Actor(threading.Thread):
    """An operation that goes on only when it has the turn."""

    def __init__(self, operation: Callable[[], Any], *, small_steps: bool = True) -> None:
        super().__init__(daemon=True)
        self._operation = operation
        self._small_steps = small_steps
        self._turn = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._step = Step()
        self._is_inside = False
        self._failure: BaseException | None = None
        self.is_done = False
        self.result: Any = None
        self.refusal: LakelogError | None = None
        """What the operation raised, if it was refused."""

    def run(self) -> None:
        _current.actor = self
        self._turn.acquire()
        try:
            self.result = self._operation()
        except LakelogError as error:
            self.refusal = error
        except BaseException as error:
            self._failure = error
        self.is_done = True
        self._stopped.release()

    def take_turn(self) -> Step:
        """Lets it go on to where its next step begins, and says what it touched on the way."""
        self._step = Step()
        self._turn.release()
        assert self._stopped.acquire(timeout=PATIENCE), "an operation waits for what only the other one can do"
        if self._failure is not None:
            raise self._failure
        return self._step

    @contextmanager
    def in_step(self, *, small: bool) -> Iterator[Step]:
        if self._is_inside or (small and not self._small_steps):
            yield self._step
            return
        self._stopped.release()
        self._turn.acquire()
        self._is_inside = True
        try:
            yield self._step
        finally:
            self._is_inside = False


_current = threading.local()


@contextmanager
def step(*, small: bool = False) -> Iterator[Step]:
    """A step of the operation that runs in this thread: waits for the turn, and is told what is touched.

    Inside of another step it is a part of that, as a small one is of the step before where small steps do not count.
    In a thread without an operation it is nothing.
    """
    actor: Actor | None = getattr(_current, "actor", None)
    if actor is None:
        yield Step()
        return
    with actor.in_step(small=small) as found:
        yield found


@dataclass(slots=True)
class _Turn:
    """A step of an order, and what else there is to try in its place."""

    actor: int
    resting: dict[int, Step]
    """Actors whose next step, which is known, was tried before, and has met nothing since then."""
    step: Step = field(default_factory=Step)
    is_open: bool = False
    """Whether the other actor has yet to be tried here."""


def explore(start: Callable[[], Sequence[Actor]], check: Callable[[Sequence[Actor]], None], limit: int) -> int:
    """Runs two actors in every order, each time anew, and checks what came of it. Returns how many orders there are.

    What fails has a note of its order, such as ``00110``: which of them had the turn.
    """
    path: list[_Turn] = []
    for count in range(1, limit + 1):
        actors = start()
        for actor in actors:
            actor.start()
        try:
            _follow(path, actors)
            check(actors)
        except Exception as error:
            error.add_note(f"in the order {''.join(str(turn.actor) for turn in path)}")
            raise
        _open_races(path)
        while path and not path[-1].is_open:
            path.pop()
        if not path:
            return count
        last = path[-1]
        last.resting = {**last.resting, last.actor: last.step}
        last.actor, last.is_open = 1 - last.actor, False
    raise AssertionError(f"there are more than {limit} orders")


def _follow(path: list[_Turn], actors: Sequence[Actor]) -> None:
    """Goes the path again, and then on to the end."""
    resting: dict[int, Step] = {}
    for depth in itertools.count():
        ready = [number for number, actor in enumerate(actors) if not actor.is_done]
        if depth == len(path):
            if not ready:
                return
            path.append(_Turn(next(number for number in ready if number not in resting), resting))
        turn = path[depth]
        assert turn.actor in ready, "the operations take other steps when they are repeated"
        turn.step = actors[turn.actor].take_turn()
        others = turn.resting.items()
        resting = {number: each for number, each in others if number != turn.actor and not each.meets(turn.step)}


def _open_races(path: Sequence[_Turn]) -> None:
    """Finds the steps before which the other actor has to be tried: a later step of its own meets them, and could have
    come first."""
    settled = [-1, -1]
    """By actor: the last step of the other that had to come before what it has done."""
    for place, turn in enumerate(path):
        for before in range(place - 1, settled[turn.actor], -1):
            other = path[before]
            if other.actor != turn.actor and other.step.meets(turn.step):
                other.is_open |= turn.actor not in other.resting
                settled[turn.actor] = before
                break
