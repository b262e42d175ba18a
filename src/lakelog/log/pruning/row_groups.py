"""The same plan one level deeper: which row groups of the kept files can hold a matching row."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.log.pruning.bulk_bounds import ColumnBounds, UnusualStatistics, read_statistics
from lakelog.log.pruning.plan import AllOf, AnyOf, Plan, Test
from lakelog.log.pruning.predicate import Everything, Nothing
from lakelog.log.state import TableMetadata


def matching(groups: Any, plan: Plan, metadata: TableMetadata) -> Any:
    """A mask over row groups, from their statistics. What is missing or unreadable keeps the row group.

    So does a column whose bounds were of another kind when the file was added: numbers in what is text now, or floats,
    whose shortened digits a double would take at their word.
    """
    stats = groups.column("stats")
    versions = groups.column("version").to_numpy()
    leaves = tuple(leaf for leaf in metadata.indexed if leaf.path[0] not in metadata.partition_columns)
    try:
        columns = {column.name: column for column in read_statistics(stats, leaves).columns}
    except UnusualStatistics:
        return pa.repeat(True, len(stats))
    return pa.array(_mask(plan, columns, versions))


def _mask(plan: Plan, columns: dict[str, ColumnBounds], versions: Any) -> Any:
    if isinstance(plan, AllOf | AnyOf):
        masks = [_mask(item, columns, versions) for item in plan.items]
        return np.logical_and.reduce(masks) if isinstance(plan, AllOf) else np.logical_or.reduce(masks)
    if isinstance(plan, Everything | Nothing):
        return np.full(len(versions), isinstance(plan, Everything))
    bounds = columns.get(plan.column.name)
    if bounds is None:
        return np.full(len(versions), True)
    return np.array(pc.fill_null(_test(plan, bounds), True)) | (versions < plan.column.same_since)


def _test(test: Test, bounds: ColumnBounds) -> Any:
    """True where the bounds allow a match, null where there are none."""
    values = test.values
    if test.statement == "keys_null":
        return pc.greater(bounds.null_count, 0)
    if test.statement == "keys_all_null":
        return pc.not_equal(bounds.span, -1.0)
    if test.statement in ("keys_only_num", "keys_only_text"):
        only = pc.and_(pc.equal(bounds.minimum, values["value"]), pc.equal(bounds.maximum, values["value"]))
        return pc.invert(pc.and_(only, pc.not_equal(bounds.span, -1.0)))
    inside = pc.and_kleene(
        pc.less_equal(bounds.minimum, values["high"]), pc.greater_equal(bounds.maximum, values["low"])
    )
    return pc.and_kleene(inside, pc.not_equal(bounds.span, -1.0))
