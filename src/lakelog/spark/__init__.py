"""Lakelog on Spark: the only package that imports pyspark, and only when something of it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not one of the lazy names: it is called like its module, which would take its place. That module is light.
from lakelog.spark.session import session

if TYPE_CHECKING:
    from lakelog.spark.read import read_dataset
    from lakelog.spark.write import write_dataset

__all__ = ["read_dataset", "session", "write_dataset"]

_LAZY = {
    "read_dataset": "lakelog.spark.read",
    "write_dataset": "lakelog.spark.write",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
