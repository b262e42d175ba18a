"""Errors of the doors that take a SparkSession: they are Lakelog's, and PySpark's ``AnalysisException`` as well."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException

from lakelog.arguments import CONDITION, FLAG, FRAME, INTEGER, MAPPING, NAMES, PATH, SESSION, TEXT, Kind, check, or_none
from lakelog.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    LakelogError,
    ValidationError,
    VersionNotFoundError,
    Violation,
)
from lakelog.opening.engine import Engine

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


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("sparkSession", "spark"), SESSION),
    "lake": Kind("a Lake", lambda value: isinstance(value, Engine)),
    "path": PATH,
    "properties": MAPPING,
    "frame": FRAME,
    **dict.fromkeys(("condition", "where"), CONDITION),
    "columns": NAMES,
    **dict.fromkeys(("tableOrViewName", "identifier", "target", "featureName", "aliasName", "alias", "query"), TEXT),
    **dict.fromkeys(("mode", "txn_app_id", "user_metadata", "committer"), TEXT),
    **dict.fromkeys(("isShallow", "replace", "nullable", "hold", "overwrite_schema"), FLAG),
    **dict.fromkeys(("schema_merge", "promote_types", "promote_to_string"), FLAG),
    **dict.fromkeys(("ignore_deletes", "skip_change_commits", "read_change_feed"), FLAG),
    **dict.fromkeys(("readerVersion", "writerVersion", "base_version", "txn_version", "retries"), INTEGER),
}
"""What arguments have to be, by name."""


_PUBLIC = ("__enter__", "__exit__")


@contextmanager
def refusing(subject: str, where: str) -> Iterator[None]:
    """Raises ``ValidationError`` for what Spark refuses in the analysis of something that a caller has given."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        message = error.getMessage() if isinstance(error, PySparkException) else str(error.java_exception)
        raise ValidationError(subject, [Violation(where, message or str(error))]) from error


def spark_door(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Makes errors of a function what a Spark user catches, and refuses arguments of a wrong type."""
    signature = inspect.signature(function)
    defaults = {name: each.default for name, each in signature.parameters.items()}
    kinds = {
        name: _KINDS[name] if "None" not in str(each.annotation) else or_none(_KINDS[name])
        for name, each in signature.parameters.items()
        if name in _KINDS
    }

    @functools.wraps(function)
    def run(*arguments: _P.args, **options: _P.kwargs) -> _R:
        if kinds:
            check(function.__name__, signature.bind(*arguments, **options).arguments, kinds, defaults)
        try:
            return function(*arguments, **options)
        except tuple(_SUBCLASSES) as error:
            found = _SUBCLASSES.get(type(error))
            if found is None:
                raise
            raise found(str(error)) from error

    return run


def spark_doors(kind: type[_C]) -> type[_C]:
    """The same for all public methods of a class, among which are those that ``with`` calls."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in _PUBLIC:
            continue
        if isinstance(member, classmethod):
            setattr(kind, name, classmethod(spark_door(member.__func__)))
        elif inspect.isfunction(member):
            setattr(kind, name, spark_door(member))
    return kind
