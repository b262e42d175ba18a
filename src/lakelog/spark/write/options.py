"""What a caller of a write asks for."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakelog.actions import Txn
from lakelog.arguments import NAMES, OPTIONAL_TEXT
from lakelog.errors import Violation
from lakelog.strict_json import describe

RETRIES = 10
"""How often a lost race is tried again by streams, by Spark's own doors, and by appends unless they say otherwise."""

_MODES = ("append", "overwrite", "error", "ignore")


def retries_of(mode: str, base_version: int | None) -> int:
    """How often a lost race is tried again if the caller does not say: an append waits in line."""
    return RETRIES if mode == "append" and base_version is None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a caller of ``write_dataset`` asks for, as it was given."""

    mode: str
    partition_by: Sequence[str] | None = None
    partition_overwrite_mode: str = "static"
    replace_where: str | None = None
    base_version: int | None = None
    retries: int = 0
    txn_app_id: str | None = None
    txn_version: int | None = None
    user_metadata: str | None = None
    committer: str | None = None
    compression: str = "zstd"
    max_records_per_file: int | None = None
    target_file_size: int | None = None
    sort_by: Sequence[str] = ()
    overwrite_schema: bool = False

    @property
    def txn(self) -> Txn | None:
        if self.txn_app_id is None or self.txn_version is None:
            return None
        return Txn(app_id=self.txn_app_id, version=self.txn_version)

    @property
    def for_spark(self) -> dict[str, str]:
        """Options of Spark's writer."""
        options = {
            "compression": self.compression,
            # Not INT96, which has no statistics.
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
            # Of longer strings Parquet would keep no statistics at all, not even how many are null.
            "parquet.statistics.truncate.length": "64",
        }
        if self.max_records_per_file is not None:
            options["maxRecordsPerFile"] = str(self.max_records_per_file)
        return options

    def problems(self) -> list[Violation]:
        """Everything that is wrong with them, whatever the table and the data are."""
        found = []
        if self.mode not in _MODES:
            found.append(Violation("mode", f"expected one of {', '.join(_MODES)}, got {self.mode!r}"))
        found += [
            Violation(name, f"expected a list of column names, got {describe(value)}")
            for name in ("partition_by", "sort_by")
            if (value := getattr(self, name)) is not None and not NAMES.fits(value)
        ]
        found += [
            Violation(name, f"expected a text, got {describe(value)}")
            for name in ("user_metadata", "committer", "txn_app_id", "compression")
            if not OPTIONAL_TEXT.fits(value := getattr(self, name))
        ]
        if self.partition_overwrite_mode not in ("static", "dynamic"):
            message = f"expected static or dynamic, got {self.partition_overwrite_mode!r}"
            found.append(Violation("partition_overwrite_mode", message))
        if self.replace_where is not None:
            if not isinstance(self.replace_where, str):
                found.append(Violation("replace_where", f"expected a condition as text, got {self.replace_where!r}"))
            if self.mode != "overwrite" or self.partition_overwrite_mode == "dynamic":
                message = "goes with mode='overwrite' and no dynamic partition overwrite"
                found.append(Violation("replace_where", message))
        if self.overwrite_schema and (
            self.mode != "overwrite" or self.partition_overwrite_mode == "dynamic" or self.replace_where is not None
        ):
            message = "goes with mode='overwrite' of the whole table: other rows would keep the old schema"
            found.append(Violation("overwrite_schema", message))
        found += [
            Violation(name, f"expected a positive integer, got {value!r}")
            for name in ("max_records_per_file", "target_file_size")
            if (value := getattr(self, name)) is not None
            and (not isinstance(value, int) or isinstance(value, bool) or value < 1)
        ]
        if (self.txn_app_id is None) != (self.txn_version is None):
            found.append(Violation("txn_app_id", "goes together with txn_version: give both or neither"))
        if not isinstance(self.retries, int) or isinstance(self.retries, bool) or self.retries < 0:
            found.append(Violation("retries", f"expected a count, got {self.retries!r}"))
        elif self.retries and self.base_version is not None:
            found.append(Violation("retries", "a write that names its base_version is never tried on another one"))
        return found
