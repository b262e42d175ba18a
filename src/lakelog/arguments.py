"""What the arguments of public functions have to be, compared before a function does anything."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from lakelog.errors import ValidationError, Violation
from lakelog.strict_json import describe, is_text

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Kind:
    """What an argument may be, in words and as a test."""

    words: str
    fits: Callable[[object], bool]


def _is_path(value: object) -> bool:
    return is_text(os.fspath(value) if isinstance(value, os.PathLike) else value)


def _are_texts(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(is_text, value))


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_of_spark(value: object, name: str) -> bool:
    """Whether a value is an instance of one of PySpark's classes, of a session or of Spark Connect."""
    return any(each.__name__ == name and each.__module__.startswith("pyspark.sql.") for each in type(value).__mro__)


TEXT = Kind("a text that a database can store", is_text)
OPTIONAL_TEXT = Kind("a text, or None", lambda value: value is None or is_text(value))
PATH = Kind("a path or a URI", _is_path)
NAMES = Kind("a list of names", _are_texts)
MAPPING = Kind("a mapping", lambda value: isinstance(value, Mapping))
FLAG = Kind("True or False", lambda value: isinstance(value, bool))
INTEGER = Kind("an integer", _is_integer)
CONDITION = Kind("a text or a Column", lambda value: is_text(value) or is_of_spark(value, "Column"))
SESSION = Kind("a SparkSession", lambda value: is_of_spark(value, "SparkSession"))
FRAME = Kind("a Spark DataFrame", lambda value: is_of_spark(value, "DataFrame"))


def or_none(kind: Kind) -> Kind:
    """The same kind, for an argument that may be None."""
    return Kind(f"{kind.words}, or None", lambda value: value is None or kind.fits(value))


def takes(**kinds: Kind) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Makes a function refuse arguments of another kind. None fits where it is the default."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)
        defaults = {name: each.default for name, each in signature.parameters.items()}
        assert kinds.keys() <= defaults.keys(), f"{function.__name__} has no such parameter"

        @functools.wraps(function)
        def run(*arguments: _P.args, **options: _P.kwargs) -> _R:
            check(function.__name__, signature.bind(*arguments, **options).arguments, kinds, defaults)
            return function(*arguments, **options)

        return run

    return decorate


def check(subject: str, given: Mapping[str, Any], kinds: Mapping[str, Kind], defaults: Mapping[str, Any]) -> None:
    """Raises ``ValidationError`` with every argument that is neither of its kind nor its default."""
    problems = [
        Violation(name, f"expected {kinds[name].words}, got {describe(value)}")
        for name, value in given.items()
        if name in kinds and value is not defaults[name] and not kinds[name].fits(value)
    ]
    if problems:
        raise ValidationError(subject, problems)
