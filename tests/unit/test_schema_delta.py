"""A schema in the JSON of Delta: its form, its metadata, the types and names that have none, and the way back."""

import json
import pickle
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.errors import SchemaMismatchError, ValidationError
from lakelog.schema import from_bytes, from_delta_json, to_bytes, to_delta_json
from tests.fixtures.delta_json import (
    JSON_VALUES,
    SCHEMAS,
    SIMPLE_TYPES,
    TEXTS,
    field_json,
    json_with_metadata,
    refused_json,
    refused_schema,
    struct_json,
    violations,
)

REFUSED_TYPES = [
    (pa.uint8(), "use int16"),
    (pa.uint16(), "use int32"),
    (pa.uint32(), "use int64"),
    (pa.uint64(), "use decimal128(20, 0)"),
    (pa.float16(), "use float32"),
    (pa.large_string(), "use string"),
    (pa.string_view(), "use string"),
    (pa.large_binary(), "use binary"),
    (pa.binary_view(), "use binary"),
    (pa.binary(16), "use binary"),
    (pa.date64(), "use date32"),
    (pa.time32("s"), "use int64"),
    (pa.time32("ms"), "use int64"),
    (pa.time64("us"), "use int64"),
    (pa.time64("ns"), "use int64"),
    (pa.timestamp("s"), "use timestamp[us]"),
    (pa.timestamp("ms", tz="UTC"), "use timestamp[us, tz=UTC]"),
    (pa.timestamp("ns"), "use timestamp[us]"),
    (pa.timestamp("ns", tz="Europe/Berlin"), "use timestamp[us, tz=Europe/Berlin]"),
    (pa.duration("us"), "use int64 microseconds"),
    (pa.month_day_nano_interval(), "use int64 columns"),
    (pa.null(), "use the type that the column's values will have"),
    (pa.decimal32(5, 2), "use decimal128(5, 2)"),
    (pa.decimal64(12, 2), "use decimal128(12, 2)"),
    (pa.decimal256(38, 2), "use decimal128(38, 2)"),
    (pa.decimal256(39, 2), "at most 38 digits"),
    (pa.decimal128(5, -2), "use decimal128(7, 0)"),
    (pa.decimal128(5, 10), "use decimal128(10, 10)"),
    (pa.decimal128(38, -1), "at most 38 digits"),
    (pa.dictionary(pa.int32(), pa.string()), "use the plain values (string)"),
    (pa.run_end_encoded(pa.int32(), pa.int64()), "use the plain values (int64)"),
    (pa.uuid(), "use its storage type (fixed_size_binary[16])"),
    (pa.dense_union([pa.field("a", pa.int32())]), "use a struct"),
    (pa.sparse_union([pa.field("a", pa.int32())]), "use a struct"),
    (pa.large_list(pa.int32()), "use list"),
    (pa.list_view(pa.int32()), "use list"),
    (pa.large_list_view(pa.int32()), "use list"),
    (pa.list_(pa.int32(), 3), "use list"),
    (pa.map_(pa.string(), pa.int32(), keys_sorted=True), "without keys_sorted"),
]


class TestForm:
    @pytest.mark.parametrize(("name", "type"), SIMPLE_TYPES.items(), ids=SIMPLE_TYPES)
    def test_every_simple_type_has_its_name_in_delta(self, name: str, type: pa.DataType) -> None:
        schema = pa.schema([pa.field("a", type)])
        text = to_delta_json(schema)
        assert json.loads(text) == struct_json(field_json(type=name))
        assert from_delta_json(text).equals(schema, check_metadata=True)

    def test_nested_types_are_written_as_delta_writes_them(self) -> None:
        schema = pa.schema(
            [
                pa.field("s", pa.struct([pa.field("x", pa.int8(), nullable=False)]), nullable=False),
                pa.field("l", pa.list_(pa.field("item", pa.string(), nullable=False))),
                pa.field("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
            ]
        )
        array = {"type": "array", "elementType": "integer", "containsNull": True}
        assert json.loads(to_delta_json(schema)) == struct_json(
            field_json("s", struct_json(field_json("x", "byte", nullable=False)), nullable=False),
            field_json("l", {"type": "array", "elementType": "string", "containsNull": False}),
            field_json("m", {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}),
        )

    def test_the_text_is_compact_and_keeps_delta_key_order(self) -> None:
        text = to_delta_json(pa.schema([pa.field("größe", pa.int64(), metadata={"comment": "né"})]))
        expected = (
            '{"type":"struct","fields":[{"name":"größe","type":"long","nullable":true,"metadata":{"comment":"né"}}]}'
        )
        assert text == expected

    def test_an_empty_schema_round_trips(self) -> None:
        assert to_delta_json(pa.schema([])) == '{"type":"struct","fields":[]}'
        assert from_delta_json('{"type":"struct","fields":[]}') == pa.schema([])

    def test_any_time_zone_is_a_timestamp_and_comes_back_as_utc(self) -> None:
        text = to_delta_json(pa.schema([("t", pa.timestamp("us", tz="Asia/Tokyo"))]))
        assert from_delta_json(text).field("t").type == pa.timestamp("us", tz="UTC")

    def test_what_delta_has_no_place_for_is_left_out(self) -> None:
        element = pa.field("thing", pa.int32(), metadata={"lost": "yes"})
        schema = pa.schema([("a", pa.list_(element))], metadata={"pandas": "{}"})
        back = from_delta_json(to_delta_json(schema))
        assert back.equals(pa.schema([("a", pa.list_(pa.int32()))]), check_metadata=True)

    def test_spark_spellings_of_decimal_are_read(self) -> None:
        text = json.dumps(struct_json(field_json("a", "decimal"), field_json("b", "decimal( 12 , 3 )")))
        assert from_delta_json(text).types == [pa.decimal128(10, 0), pa.decimal128(12, 3)]

    def test_a_field_without_metadata_has_none(self) -> None:
        text = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":false}]}'
        expected = pa.schema([pa.field("a", pa.int64(), nullable=False)])
        assert from_delta_json(text).equals(expected, check_metadata=True)


class TestMetadata:
    @pytest.mark.parametrize(
        ("delta", "arrow"),
        [
            ("a note", b"a note"),
            ("", b""),
            ("4", b"4"),
            ("né\x00", "né\x00".encode()),
            (4, b"json:4"),
            (-1.5, b"json:-1.5"),
            (True, b"json:true"),
            (None, b"json:null"),
            ([1, "x"], b'json:[1,"x"]'),
            ({"a": {"é": []}}, 'json:{"a":{"é":[]}}'.encode()),
            ("json:4", b'json:"json:4"'),
            ("json: about JSON", b"json: about JSON"),
            ("json:1e999", b"json:1e999"),
            ('json:"json:4"', b'json:"json:\\"json:4\\""'),
        ],
    )
    def test_every_json_value_has_one_form_in_arrow(self, delta: Any, arrow: bytes) -> None:
        text = json.dumps(struct_json(field_json(metadata={"key": delta})))
        schema = from_delta_json(text)
        assert schema.field("a").metadata == {b"key": arrow}
        assert json.loads(to_delta_json(schema))["fields"][0]["metadata"] == {"key": delta}

    def test_a_marked_value_may_be_spelled_freely(self) -> None:
        schema = pa.schema([pa.field("a", pa.int64(), metadata={"k": 'json: {"x": 1}'})])
        assert '"metadata":{"k":{"x":1}}' in to_delta_json(schema)

    @pytest.mark.parametrize("metadata", [{b"\xff": b"v"}, {b"k": b"\xff"}])
    def test_bytes_that_are_not_text_are_refused(self, metadata: dict[bytes, bytes]) -> None:
        field = pa.field("b", pa.int64(), metadata=metadata)
        found = refused_schema(pa.schema([("a", pa.struct([field]))]))
        assert found == {"a.b": "its metadata holds b'\\xff', which is not UTF-8; Delta's metadata is text"}

    @pytest.mark.parametrize("metadata", ['{"\\ud800":"v"}', '{"k":"\\ud800"}', '{"k":["\\udfff"]}'])
    def test_half_surrogates_are_refused(self, metadata: str) -> None:
        assert "surrogate" in refused_json(json_with_metadata(metadata))["a"]


class TestRefusedTypes:
    @pytest.mark.parametrize(("type", "advice"), REFUSED_TYPES, ids=str)
    def test_a_type_without_a_delta_form_is_refused_with_advice(self, type: pa.DataType, advice: str) -> None:
        found = refused_schema(pa.schema([("ok", pa.int64()), ("bad", type)]))
        assert list(found) == ["bad"]
        assert str(type) in found["bad"]
        assert advice in found["bad"]

    def test_all_offending_columns_are_listed_by_their_path(self) -> None:
        uint = pa.uint8()
        schema = pa.schema(
            [
                ("a", pa.struct([("b", pa.list_(uint)), ("x.y", uint), ("ok", pa.int8())])),
                ("m", pa.map_(uint, pa.struct([("c", uint)]))),
                ("l", pa.large_list(uint)),
                ("s", pa.map_(pa.string(), uint, keys_sorted=True)),
            ]
        )
        found = {"a.b.element", "a.`x.y`", "m.key", "m.value.c", "l", "l.element", "s", "s.value"}
        assert set(refused_schema(schema)) == found

    def test_the_error_is_about_the_schema_alone_and_survives_pickling(self) -> None:
        with pytest.raises(ValidationError) as error:
            to_delta_json(pa.schema([("a", pa.uint8())]))
        assert not isinstance(error.value, SchemaMismatchError)
        assert pickle.loads(pickle.dumps(error.value)).violations == error.value.violations


class TestNames:
    @pytest.mark.parametrize("char", list(" ,;{}()\n\t="))
    def test_some_characters_need_column_mapping(self, char: str) -> None:
        name = f"x{char}y"
        schema = pa.schema([(name, pa.int8()), ("s", pa.list_(pa.struct([(name, pa.int8())])))])
        found = refused_schema(schema)
        assert len(found) == 2
        assert all("column mapping" in message for message in found.values())
        assert any(where.startswith("s.element.x") for where in found)

        text = to_delta_json(schema, column_mapping=True)
        assert refused_json(text) == found
        assert from_delta_json(text, column_mapping=True).equals(schema)

    @pytest.mark.parametrize("column_mapping", [False, True])
    @pytest.mark.parametrize(
        ("names", "where", "message"),
        [
            ([""], "``", "needs a name"),
            (["a\0"], "a\\x00", "NUL"),
            (["id", "ID"], "ID", "differs only in case from 'id'"),
            (["Ä", "ä"], "ä", "differs only in case from 'Ä'"),
            (["id", "id"], "id", "occurs twice"),
        ],
    )
    def test_names_that_no_delta_table_takes(
        self, names: list[str], where: str, message: str, column_mapping: bool
    ) -> None:
        fields = [pa.field(name, pa.int8()) for name in names]
        top, inner = pa.schema(fields), pa.schema([("s", pa.struct(fields))])
        assert message in refused_schema(top, column_mapping=column_mapping)[where]
        assert message in refused_schema(inner, column_mapping=column_mapping)[f"s.{where}"]
        text = json.dumps(struct_json(*[field_json(name, "byte") for name in names]))
        assert message in refused_json(text, column_mapping=column_mapping)[where]

    def test_the_same_name_in_another_struct_is_another_column(self) -> None:
        schema = pa.schema([("id", pa.int8()), ("s", pa.struct([("ID", pa.int8())]))])
        assert from_delta_json(to_delta_json(schema)) == schema

    def test_dots_backticks_and_any_script_are_fine(self) -> None:
        schema = pa.schema([(name, pa.int8()) for name in ("a.b", "`", "日本", "😀", "a'b\"c\\")])
        assert from_delta_json(to_delta_json(schema)) == schema

    def test_half_surrogates_are_refused(self) -> None:
        text = '{"type":"struct","fields":[{"name":"a\\ud800","type":"long","nullable":true,"metadata":{}}]}'
        assert "surrogate" in refused_json(text)["a\\ud800"]

    def test_a_name_that_is_not_utf8_is_refused(self) -> None:
        schema = from_bytes(to_bytes(pa.schema([("zzzz", pa.int8())])).replace(b"zzzz", b"z\xffzz"))
        assert refused_schema(schema) == {"z\\xffzz": "the name is not UTF-8"}


class TestRoundTrip:
    @settings(max_examples=300, deadline=None)
    @given(SCHEMAS)
    def test_arrow_to_json_to_arrow_is_the_same_schema(self, schema: pa.Schema) -> None:
        text = to_delta_json(schema)
        back = from_delta_json(text)
        assert back.equals(schema, check_metadata=True)
        assert to_delta_json(back) == text

    @settings(deadline=None)
    @given(SCHEMAS)
    def test_arrow_to_bytes_to_arrow_is_the_same_schema(self, schema: pa.Schema) -> None:
        assert from_bytes(to_bytes(schema)).equals(schema, check_metadata=True)

    @given(st.dictionaries(TEXTS, JSON_VALUES))
    def test_metadata_from_json_to_arrow_to_json_is_the_same(self, metadata: dict[str, Any]) -> None:
        text = json.dumps(struct_json(field_json(metadata=metadata)))
        back = json.loads(to_delta_json(from_delta_json(text)))["fields"][0]["metadata"]
        assert repr(back) == repr(metadata)


class TestBytes:
    def test_schema_metadata_is_kept(self) -> None:
        schema = pa.schema([pa.field("a", pa.list_(pa.int8()), metadata={"k": "v"})], metadata={"pandas": b"\xff"})
        assert from_bytes(to_bytes(schema)).equals(schema, check_metadata=True)

    @pytest.mark.parametrize("damage", [b"", b"x", b"nonsense" * 20])
    def test_bytes_that_are_no_schema_are_refused(self, damage: bytes) -> None:
        with pytest.raises(ValidationError) as error:
            from_bytes(damage)
        assert "cannot be read as an Arrow IPC schema" in violations(error)["schema"]

    def test_bytes_that_were_cut_short_are_refused(self) -> None:
        message = to_bytes(pa.schema([("a", pa.int8())]))
        with pytest.raises(ValidationError):
            from_bytes(message[: len(message) // 2])


def test_a_thousand_columns_take_milliseconds() -> None:
    types = list(SIMPLE_TYPES.values())
    fields = [pa.field(f"column_{i}", types[i % len(types)], metadata={"comment": "x"}) for i in range(1000)]
    schema = pa.schema(fields)

    def fastest(call: Any, argument: Any) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            call(argument)
            times.append(time.perf_counter() - start)
        return min(times)

    assert fastest(to_delta_json, schema) < 0.020
    assert fastest(from_delta_json, to_delta_json(schema)) < 0.020
