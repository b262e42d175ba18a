"""Functions of the faces that work without Spark, and may be given a session of it."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def in_session(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Makes a function a door of Spark's where it is given a session: it raises what users of that session catch."""

    @functools.wraps(function)
    def run(*arguments: _P.args, **options: _P.kwargs) -> _R:
        if options.get("spark") is None:
            return function(*arguments, **options)
        from lakelog.spark.errors import spark_door

        return spark_door(function)(*arguments, **options)

    return run
