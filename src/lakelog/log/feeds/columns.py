"""The columns that a change feed has beside the table's, whose names no column of the table can have."""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from lakelog.errors import Violation
from lakelog.schema.mapping import physical_name

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
FEED_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""What a row of the feed has beside the table's columns."""

FEED_PROPERTY = "delta.enableChangeDataFeed"


def feed_column_problems(schema: pa.Schema, configuration: Mapping[str, str]) -> Iterable[Violation]:
    """Columns of a table with a change feed that are called like the feed's own, by the table or in its files."""
    if configuration.get(FEED_PROPERTY, "").lower() != "true":
        return
    for column in schema:
        for name in dict.fromkeys((column.name, physical_name(column))):
            if name.lower() in FEED_COLUMNS:
                in_files = "" if name == column.name else f", which files call {name},"
                message = (
                    f"this column of the table{in_files} has the name of a column of the change feed: "
                    f"copy it to a column of another name and drop it, or leave {FEED_PROPERTY} off"
                )
                yield Violation(column.name, message)
                break
