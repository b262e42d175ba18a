"""Lakelog on Spark: the only package that imports pyspark, and only when something of it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not one of the lazy names: it is called like its module, which would take its place. That module is light.
from lakelog.spark.session import session

if TYPE_CHECKING:
    from lakelog.spark.change_feed import read_changes
    from lakelog.spark.commits import WriteResult
    from lakelog.spark.dml.builder import MergeBuilder
    from lakelog.spark.dml.rewrite import ChangeResult
    from lakelog.spark.lake_table import LakeTable
    from lakelog.spark.optimize import OptimizeResult
    from lakelog.spark.read import read_dataset, version_of
    from lakelog.spark.source.registration import register
    from lakelog.spark.streaming import read_stream, write_stream
    from lakelog.spark.transaction import LakeTransaction
    from lakelog.spark.views import Attached, attach
    from lakelog.spark.write import write_dataset

__all__ = [
    "Attached",
    "ChangeResult",
    "LakeTable",
    "LakeTransaction",
    "MergeBuilder",
    "OptimizeResult",
    "WriteResult",
    "attach",
    "read_changes",
    "read_dataset",
    "read_stream",
    "register",
    "session",
    "version_of",
    "write_dataset",
    "write_stream",
]

_LAZY = {
    "Attached": "lakelog.spark.views",
    "ChangeResult": "lakelog.spark.dml.rewrite",
    "LakeTable": "lakelog.spark.lake_table",
    "LakeTransaction": "lakelog.spark.transaction",
    "MergeBuilder": "lakelog.spark.dml.builder",
    "OptimizeResult": "lakelog.spark.optimize",
    "WriteResult": "lakelog.spark.commits",
    "attach": "lakelog.spark.views",
    "read_changes": "lakelog.spark.change_feed",
    "read_dataset": "lakelog.spark.read",
    "read_stream": "lakelog.spark.streaming",
    "register": "lakelog.spark.source.registration",
    "version_of": "lakelog.spark.read",
    "write_dataset": "lakelog.spark.write",
    "write_stream": "lakelog.spark.streaming",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
