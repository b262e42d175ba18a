"""Lakelog on Spark: the only package that imports pyspark, and only when something of it is used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not one of the lazy names: it is called like its module, which would take its place. That module is light.
from lakelog.spark.session import session

if TYPE_CHECKING:
    from lakelog.delta_table.lake_table import LakeTable
    from lakelog.spark.datasource.registration import register
    from lakelog.spark.dml.builder import MergeBuilder
    from lakelog.spark.dml.rewrite import ChangeResult
    from lakelog.spark.optimize.compaction import OptimizeResult
    from lakelog.spark.read.change_feed import read_changes
    from lakelog.spark.read.read import read_dataset, version_of
    from lakelog.spark.sql.views import Attached, attach
    from lakelog.spark.streaming.streams import read_stream, write_stream
    from lakelog.spark.write.table_change import WriteResult
    from lakelog.spark.write.write import write_dataset
    from lakelog.transaction import LakeTransaction

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
    "Attached": "lakelog.spark.sql.views",
    "ChangeResult": "lakelog.spark.dml.rewrite",
    "LakeTable": "lakelog.delta_table.lake_table",
    "LakeTransaction": "lakelog.transaction",
    "MergeBuilder": "lakelog.spark.dml.builder",
    "OptimizeResult": "lakelog.spark.optimize.compaction",
    "WriteResult": "lakelog.spark.write.table_change",
    "attach": "lakelog.spark.sql.views",
    "read_changes": "lakelog.spark.read.change_feed",
    "read_dataset": "lakelog.spark.read.read",
    "read_stream": "lakelog.spark.streaming.streams",
    "register": "lakelog.spark.datasource.registration",
    "version_of": "lakelog.spark.read.read",
    "write_dataset": "lakelog.spark.write.write",
    "write_stream": "lakelog.spark.streaming.streams",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
