import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql import types as spark

from lakelog.errors import ValidationError
from lakelog.schema.normalize import normalize
from lakelog.schema.spark import from_spark, to_spark
from tests.fixtures.delta_json import SCHEMAS, refused_schema, violations

SAME_TYPES: list[tuple[pa.DataType, spark.DataType]] = [
    (pa.int8(), spark.ByteType()),
    (pa.int16(), spark.ShortType()),
    (pa.int32(), spark.IntegerType()),
    (pa.int64(), spark.LongType()),
    (pa.float32(), spark.FloatType()),
    (pa.float64(), spark.DoubleType()),
    (pa.bool_(), spark.BooleanType()),
    (pa.string(), spark.StringType()),
    (pa.binary(), spark.BinaryType()),
    (pa.date32(), spark.DateType()),
    (pa.timestamp("us", tz="UTC"), spark.TimestampType()),
    (pa.timestamp("us"), spark.TimestampNTZType()),
    (pa.decimal128(1, 0), spark.DecimalType(1, 0)),
    (pa.decimal128(38, 38), spark.DecimalType(38, 38)),
    (pa.struct([]), spark.StructType([])),
    (pa.list_(pa.int8()), spark.ArrayType(spark.ByteType())),
    (pa.list_(pa.field("item", pa.int8(), nullable=False)), spark.ArrayType(spark.ByteType(), False)),
    (pa.map_(pa.string(), pa.int8()), spark.MapType(spark.StringType(), spark.ByteType())),
    (
        pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False)),
        spark.MapType(spark.StringType(), spark.ByteType(), False),
    ),
]


class Point(spark.UserDefinedType):
    """A user-defined type of Python's."""

    @classmethod
    def sqlType(cls) -> spark.DataType:
        return spark.ArrayType(spark.DoubleType(), False)

    @classmethod
    def module(cls) -> str:
        return "geo"


class Vector(Point):
    """One that has a counterpart in Scala."""

    @classmethod
    def scalaUDT(cls) -> str:
        return "org.geo.Vector"


BECOMES: list[tuple[spark.DataType, pa.DataType]] = [
    (spark.CharType(3), pa.string()),
    (spark.VarcharType(40), pa.string()),
    (spark.StringType("UTF8_BINARY"), pa.string()),
]

REFUSED: list[tuple[spark.DataType, str]] = [
    (spark.VariantType(), "no type for Spark's variant; use string"),
    (spark.CalendarIntervalType(), "no type for Spark's interval; use long"),
    (spark.DayTimeIntervalType(), "no type for Spark's interval day to second; use long"),
    (spark.DayTimeIntervalType(1, 1), "no type for Spark's interval hour; use long"),
    (spark.YearMonthIntervalType(), "no type for Spark's interval year to month; use long"),
    (spark.TimeType(), "no type for Spark's time(6); use long"),
    (spark.TimeType(0), "no type for Spark's time(0); use long"),
    (spark.GeometryType(4326), "no type for Spark's geometry(OGC:CRS84); use binary"),
    (spark.GeographyType("ANY"), "no type for Spark's geography(SRID:ANY, SPHERICAL); use binary"),
    (spark.StringType("UTF8_LCASE"), "not by UTF8_LCASE; use string collate UTF8_BINARY"),
    (spark.StringType("UTF8_BINARY_RTRIM"), "not by UTF8_BINARY_RTRIM"),
    (spark.StringType("de_CI_AI"), "not by de_CI_AI"),
    (Point(), 'geo.Point is a user-defined type; use its sqlType: \'{"type":"array","elementType":"double"'),
    (Vector(), "geo.Vector is a user-defined type"),
    (spark.DecimalType(5, -2), "'decimal(5,-2)' is none that Lakelog knows"),
]


def struct(*fields: Any) -> spark.StructType:
    """Fields are given as the arguments of ``StructField``."""
    return spark.StructType([spark.StructField(*field) for field in fields])


def refused(schema: spark.StructType) -> dict[str, str]:
    with pytest.raises(ValidationError) as error:
        from_spark(schema)
    return violations(error)


def same(one: pa.Schema, other: pa.Schema) -> bool:
    equal: bool = one.equals(other, check_metadata=True)
    return equal


@pytest.mark.parametrize(("arrow_type", "spark_type"), SAME_TYPES, ids=str)
@pytest.mark.parametrize("nullable", [True, False])
def test_a_type_that_both_have(arrow_type: pa.DataType, spark_type: spark.DataType, nullable: bool) -> None:
    schema = pa.schema([pa.field("a", arrow_type, nullable), ("s", pa.struct([pa.field("x", arrow_type, nullable)]))])
    expected = struct(("a", spark_type, nullable), ("s", struct(("x", spark_type, nullable))))
    assert to_spark(schema) == expected
    assert same(from_spark(expected), schema)


def test_comments_and_field_metadata_go_both_ways() -> None:
    metadata = {"comment": "né", "i": 4, "f": 1.5, "b": True, "s": "4", "l": [1, 2], "o": {"x": ["y"]}, "n": None}
    in_arrow = {"comment": "né", "s": "4", "i": "json:4", "f": "json:1.5", "b": "json:true", "n": "json:null"}
    in_arrow |= {"l": "json:[1,2]", "o": 'json:{"x":["y"]}'}
    fields = [pa.field("a", pa.int64(), metadata=in_arrow)]
    schema = pa.schema([*fields, ("s", pa.list_(pa.struct(fields)))])
    field = ("a", spark.LongType(), True, metadata)
    expected = struct(field, ("s", spark.ArrayType(struct(field))))
    assert to_spark(schema) == expected
    assert same(from_spark(expected), schema)


@settings(max_examples=300, deadline=None)
@given(SCHEMAS)
def test_arrow_to_spark_to_arrow_is_the_same_schema(schema: pa.Schema) -> None:
    there = to_spark(schema)
    back = from_spark(there)
    assert same(back, schema)
    assert to_spark(back) == there
    assert normalize(back) is back


@pytest.mark.parametrize(("spark_type", "arrow_type"), BECOMES, ids=str)
def test_a_type_that_becomes_another(spark_type: spark.DataType, arrow_type: pa.DataType) -> None:
    schema = struct(
        ("a", spark_type),
        ("l", spark.ArrayType(spark_type)),
        ("m", spark.MapType(spark_type, struct(("x", spark_type)))),
    )
    expected = pa.schema(
        [("a", arrow_type), ("l", pa.list_(arrow_type)), ("m", pa.map_(arrow_type, pa.struct([("x", arrow_type)])))]
    )
    assert same(from_spark(schema), expected)


def test_what_spark_notes_about_the_length_of_a_string_goes() -> None:
    metadata = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(40)", "comment": "x"}
    schema = from_spark(struct(("a", spark.StringType(), True, metadata)))
    assert same(schema, pa.schema([pa.field("a", pa.string(), metadata={"comment": "x"})]))


@pytest.mark.parametrize(("spark_type", "message"), REFUSED, ids=str)
def test_a_type_without_a_counterpart_is_refused_with_its_path(spark_type: spark.DataType, message: str) -> None:
    schema = struct(
        ("a.b", spark_type),
        ("ok", spark.LongType()),
        ("s", struct(("x", spark_type), ("ok", spark.VarcharType(3)))),
        ("l", spark.ArrayType(spark.ArrayType(spark_type))),
        ("m", spark.MapType(spark_type, spark.MapType(spark.StringType(), spark_type))),
    )
    found = refused(schema)
    assert set(found) == {"`a.b`", "s.x", "l.element.element", "m.key", "m.value.value"}
    assert all(message in said for said in found.values())


def test_everything_wrong_is_said_at_once() -> None:
    found = refused(
        struct(
            ("v", spark.VariantType()),
            ("c", spark.StringType("UNICODE")),
            ("u", Point()),
            ("x", spark.LongType(), True, {"k": {1, 2}}),
            ("X", spark.LongType()),
            ("n", spark.LongType(), True, {"k": float("nan")}),
            ("h", spark.LongType(), True, {"k": "\ud800"}),
            ("void", spark.ArrayType(spark.NullType())),
            ("", spark.LongType()),
        )
    )
    assert set(found) == {"v", "c", "u", "x", "X", "n", "h", "void.element", "``"}
    assert "no JSON form" in found["x"]
    assert "no JSON form" in found["n"]


class TestCollations:
    def test_the_default_one_may_be_spelled_out(self) -> None:
        metadata = {"__COLLATIONS": {"a": "spark.UTF8_BINARY"}, "k": "v"}
        schema = from_spark(struct(("a", spark.StringType(), True, metadata)))
        assert same(schema, pa.schema([pa.field("a", pa.string(), metadata={"k": "v"})]))
        assert metadata == {"__COLLATIONS": {"a": "spark.UTF8_BINARY"}, "k": "v"}

    def test_one_with_a_version_is_refused(self) -> None:
        metadata = {"__COLLATIONS": {"a.element": "icu.UNICODE.75.1"}}
        found = refused(struct(("a", spark.ArrayType(spark.StringType()), True, metadata)))
        assert "not by UNICODE.75.1" in found["a.element"]

    @pytest.mark.parametrize("collations", ["icu.UNICODE", 1, [], None])
    def test_metadata_that_is_none_is_refused(self, collations: Any) -> None:
        found = refused(struct(("a", spark.StringType(), True, {"__COLLATIONS": collations})))
        assert "expected an object as __COLLATIONS" in found["a"]

    def test_metadata_in_arrow_gives_no_string_a_collation(self) -> None:
        metadata = {"__COLLATIONS": 'json:{"a":"icu.UNICODE"}'}
        with pytest.raises(ValidationError) as error:
            to_spark(pa.schema([("s", pa.struct([pa.field("a", pa.string(), metadata=metadata)]))]))
        assert "not by UNICODE" in violations(error)["s.a"]


class TestVoid:
    def test_a_column_of_nulls_has_arrows_null_type(self) -> None:
        void = spark.NullType()
        metadata = {"comment": "later"}
        inner = struct(("x", void), ("string", spark.StringType(), False))
        schema = struct(
            ("a", void, True, metadata),
            ("s", inner, False),
            ("l", spark.ArrayType(inner, False)),
            ("m", spark.MapType(inner, inner, False)),
            ("string", spark.StringType()),
        )
        in_arrow = pa.struct([("x", pa.null()), pa.field("string", pa.string(), nullable=False)])
        expected = pa.schema(
            [
                pa.field("a", pa.null(), metadata=metadata),
                pa.field("s", in_arrow, nullable=False),
                pa.field("l", pa.list_(pa.field("item", in_arrow, nullable=False))),
                pa.field("m", pa.map_(in_arrow, pa.field("value", in_arrow, nullable=False))),
                pa.field("string", pa.string()),
            ]
        )
        found = from_spark(schema)
        assert same(found, expected)
        assert normalize(found) is found

    def test_a_column_of_nulls_is_nullable_whatever_it_says(self) -> None:
        assert same(from_spark(struct(("a", spark.NullType(), False))), pa.schema([("a", pa.null())]))

    def test_elements_keys_and_values_need_a_type(self) -> None:
        void = spark.NullType()
        found = refused(struct(("l", spark.ArrayType(void)), ("m", spark.MapType(void, void))))
        assert set(found) == {"l.element", "m.key", "m.value"}
        assert all("use the type that the values will have" in message for message in found.values())


class TestNames:
    def test_names_that_need_column_mapping_go_both_ways(self) -> None:
        schema = pa.schema([(name, pa.int8()) for name in ("a b", "x,y", "k=v", "a.b", "`", "日本")])
        assert same(from_spark(to_spark(schema)), schema)

    def test_names_that_differ_only_in_case_are_refused_with_their_path(self) -> None:
        twice = struct(("id", spark.LongType()), ("ID", spark.LongType()))
        assert "differs only in case" in refused(struct(("s", spark.ArrayType(twice))))["s.element.ID"]


def test_a_type_that_is_no_struct_is_refused() -> None:
    assert "expected a struct" in refused(spark.LongType())["schema"]  # type: ignore[arg-type]


@pytest.mark.parametrize("depth", [100, 500, 800])
def test_absurd_depth_is_refused(depth: int) -> None:
    kind: spark.DataType = spark.LongType()
    for _ in range(depth):
        kind = spark.ArrayType(kind)
    (message,) = refused(struct(("a", kind))).values()
    assert "nested" in message


def test_types_that_delta_lacks_are_refused_as_in_a_tables_schema() -> None:
    schema = pa.schema([("s", pa.struct([("a", pa.uint8()), ("n", pa.null())]))])
    with pytest.raises(ValidationError) as error:
        to_spark(schema)
    assert violations(error) == refused_schema(schema)


def test_pyspark_is_loaded_by_its_users_only() -> None:
    code = "import sys, lakelog, lakelog.schema.spark; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
