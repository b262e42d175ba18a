"""Errors of the doors that take a SparkSession: they are Lakelog's, and PySpark's ``AnalysisException`` as well."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import Column

from lakelog.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    LakelogError,
    ValidationError,
    VersionNotFoundError,
    Violation,
)
from lakelog.lake import Lake

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C")


class _SparkError(AnalysisException):
    """What PySpark keeps beside the message is made again after pickling."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.args = (message,)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args


class SparkDatasetNotFoundError(_SparkError, DatasetNotFoundError):
    """There is no such dataset, or it was dropped."""


class SparkVersionNotFoundError(_SparkError, VersionNotFoundError):
    """The dataset exists, but not at that version or time."""


class SparkDatasetExistsError(_SparkError, DatasetExistsError):
    """The name, or the location, belongs to another dataset."""


_SUBCLASSES: dict[type[LakelogError], type[_SparkError]] = {
    DatasetNotFoundError: SparkDatasetNotFoundError,
    VersionNotFoundError: SparkVersionNotFoundError,
    DatasetExistsError: SparkDatasetExistsError,
}


def _is_session(value: Any) -> bool:
    # A session of Spark Connect is of another class, which need not be there.
    return hasattr(value, "conf") and hasattr(value, "readStream")


_EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "sparkSession": ("a SparkSession", _is_session),
    "lake": ("a Lake", lambda value: isinstance(value, Lake)),
    "path": ("a path", lambda value: isinstance(value, str | os.PathLike)),
    "condition": ("a text or a Column", lambda value: isinstance(value, str | Column)),
    "properties": ("a mapping", lambda value: isinstance(value, Mapping)),
    **{
        name: ("a text", lambda value: isinstance(value, str))
        for name in ("tableOrViewName", "identifier", "target", "featureName", "aliasName")
    },
    **{name: ("True or False", lambda value: isinstance(value, bool)) for name in ("isShallow", "replace", "nullable")},
    **{
        name: ("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool))
        for name in ("readerVersion", "writerVersion")
    },
}
"""What arguments have to be, by name."""


def spark_door(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Makes errors of a function what a Spark user catches, and refuses arguments of a wrong type."""
    signature = inspect.signature(function)
    optional = {name for name, each in signature.parameters.items() if each.default is None}
    checked = signature.parameters.keys() & _EXPECTED.keys()

    @functools.wraps(function)
    def run(*arguments: _P.args, **options: _P.kwargs) -> _R:
        if checked:
            _check(signature.bind(*arguments, **options).arguments, checked, optional, function.__name__)
        try:
            return function(*arguments, **options)
        except tuple(_SUBCLASSES) as error:
            found = _SUBCLASSES.get(type(error))
            if found is None:
                raise
            raise found(str(error)) from error

    return run


def spark_doors(kind: type[_C]) -> type[_C]:
    """The same for all public methods of a class."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod):
            setattr(kind, name, classmethod(spark_door(member.__func__)))
        elif inspect.isfunction(member):
            setattr(kind, name, spark_door(member))
    return kind


def _check(given: Mapping[str, Any], names: set[str], optional: set[str], function: str) -> None:
    problems = [
        Violation(name, f"expected {_EXPECTED[name][0]}, got {type(value).__name__} {str(value)[:80]!r}")
        for name, value in given.items()
        if name in names and not (value is None and name in optional) and not _EXPECTED[name][1](value)
    ]
    if problems:
        raise ValidationError(function, problems)
