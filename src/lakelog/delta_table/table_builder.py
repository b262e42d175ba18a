"""``LakeTableBuilder``: a new table, said column by column, under the names that Delta's users know."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from lakelog.catalog.name_key import match_name
from lakelog.dataset import Dataset
from lakelog.errors import DatasetExistsError, DatasetNotFoundError, ValidationError, Violation
from lakelog.lake import Lake
from lakelog.schema.spark import from_spark
from lakelog.spark.errors import refusing, spark_doors
from lakelog.spark.identifiers import called, known_name, name_for, path_in
from lakelog.storage.locations import absolute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakelog.delta_table.lake_table import LakeTable


class Mode(Enum):
    CREATE = "CREATE TABLE"
    CREATE_IF_NOT_EXISTS = "CREATE TABLE IF NOT EXISTS"
    REPLACE = "REPLACE TABLE"
    CREATE_OR_REPLACE = "CREATE OR REPLACE TABLE"


@spark_doors
class LakeTableBuilder:
    """Each method gives the builder itself; ``execute`` makes the table, in one commit."""

    def __init__(
        self, spark: "SparkSession", lake: Lake, mode: Mode, made: "Callable[[Lake, Dataset, str | None], LakeTable]"
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._mode = mode
        self._made = made
        self._name: str | None = None
        self._called: str | None = None
        self._location: str | None = None
        self._comment: str | None = None
        self._fields: list[StructField] = []
        self._partitions: tuple[str, ...] = ()
        self._properties: dict[str, str] = {}

    def tableName(self, identifier: str) -> "LakeTableBuilder":
        """A name, or a path as ``delta.`/path` ``."""
        path = path_in(_text(identifier, "tableName"))
        if path is None:
            self._name = known_name(self._lake, identifier)
            self._called = called(identifier)
            return self
        return self.location(path)

    def location(self, location: str) -> "LakeTableBuilder":
        self._location = _text(location, "location")
        return self

    def comment(self, comment: str) -> "LakeTableBuilder":
        self._comment = _text(comment, "comment")
        return self

    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | None = None,
        generatedByDefaultAs: Any = None,
        comment: str | None = None,
    ) -> "LakeTableBuilder":
        """A column, of a Spark type or its text. ``generatedAlwaysAs`` is an expression over other columns."""
        if generatedByDefaultAs is not None or not isinstance(generatedAlwaysAs, str | None):
            raise ValidationError("column", [Violation(repr(colName), "identity columns are not supported")])
        name = _text(colName, "colName")
        metadata = {} if comment is None else {"comment": _text(comment, "comment")}
        if generatedAlwaysAs is not None:
            metadata["delta.generationExpression"] = generatedAlwaysAs
        self._fields.append(StructField(name, _parsed(dataType), nullable, metadata))
        return self

    def addColumns(self, cols: StructType | Sequence[StructField]) -> "LakeTableBuilder":
        for field in cols if isinstance(cols, Iterable) else [cols]:
            if not isinstance(field, StructField):
                raise ValidationError("columns", [Violation("cols", f"expected a StructField, got {field!r}")])
            self._fields.append(field)
        return self

    def partitionedBy(self, *cols: str | Sequence[str]) -> "LakeTableBuilder":
        self._partitions = names_of(cols)
        return self

    def clusterBy(self, *cols: str | Sequence[str]) -> "LakeTableBuilder":
        message = "is not a property of a table here: sort what is there with optimize().executeZOrderBy(…)"
        raise ValidationError("table", [Violation("clusterBy", message)])

    def property(self, key: str, value: str) -> "LakeTableBuilder":
        self._properties[_text(key, "key")] = _text(value, "value")
        return self

    def execute(self) -> "LakeTable":
        """Raises ``DatasetExistsError`` or ``DatasetNotFoundError``, as the builder was made to."""
        known = self._existing()
        if known is None:
            if self._mode is Mode.REPLACE:
                raise DatasetNotFoundError(f"there is no dataset {self._name or self._location!r} to replace")
            try:
                return self._made(self._lake, self._create(), self._called)
            except DatasetExistsError:
                known = self._existing()
                if self._mode is Mode.CREATE or known is None:
                    raise
                # Somebody else was first.
        if self._mode is Mode.CREATE:
            raise DatasetExistsError(f"there is already a dataset {known.name!r}, at {known.location}")
        if self._mode is not Mode.CREATE_IF_NOT_EXISTS:
            self._replace(known)
        return self._made(self._lake, known, self._called)

    def _existing(self) -> Dataset | None:
        if self._name is not None:
            found = match_name(self._lake.versions(), self._name)
            return None if found is None else self._lake.dataset(found)
        if self._location is None:
            message = "expected a tableName or a location: say one of them"
            raise ValidationError("table", [Violation("tableName", message)])
        return self._lake.dataset_at(self._location)

    def _schema(self) -> pa.Schema:
        return from_spark(StructType(self._fields))

    def _create(self) -> Dataset:
        return self._lake.create_dataset(
            self._name or name_for(self._lake, self._location or ""),
            self._schema(),
            self._partitions,
            self._properties,
            location=self._location,
            description=self._comment,
            operation=(Mode.CREATE if self._mode is Mode.CREATE_IF_NOT_EXISTS else self._mode).value,
            spark=self._spark,
        )

    def _replace(self, dataset: Dataset) -> None:
        if self._location is not None and absolute(self._location) != dataset.location:
            message = f"the table lies at {dataset.location}, and stays there when it is replaced"
            raise ValidationError("table", [Violation("location", message)])
        dataset.replace(
            self._schema(),
            self._partitions,
            self._properties,
            description=self._comment,
            operation=self._mode.value,
            spark=self._spark,
        )


def _parsed(kind: str | DataType) -> DataType:
    if isinstance(kind, DataType):
        return kind
    text = _text(kind, "dataType")
    with refusing("table", f"dataType {text!r}"):
        return DataType.fromDDL(text)


def names_of(given: Sequence[str | Sequence[str]]) -> tuple[str, ...]:
    """Names one by one, or in one list."""
    names = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    return tuple(_text(name, "column") for name in names)


def _text(value: Any, argument: str) -> str:
    if not isinstance(value, str):
        raise ValidationError("table", [Violation(argument, f"expected a text, got {value!r}")])
    return value
