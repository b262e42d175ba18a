"""JSON that is no schema of Delta, or absurdly deep, is refused with its place and no other exception."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import ValidationError
from lakelog.schema import from_bytes, from_delta_json, to_bytes, to_delta_json
from tests.fixtures.delta_json import field_json, json_with_metadata, nested, refused_json, refused_schema, struct_json

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["struct", "array", "map", "long"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "fields", "name", "nullable"]), inner),
)


class TestMalformedJson:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            " ",
            "{",
            "[",
            "nonsense",
            "'a'",
            '{"type":"struct","fields":[],}',
            '{"type":"struct","fields":[]} x',
            "\ufeff{}",
            '{"type":"struct","fields":[],"type":"struct"}',
            json_with_metadata('{"k":NaN}'),
            json_with_metadata('{"k":Infinity}'),
            json_with_metadata('{"k":-Infinity}'),
            json_with_metadata('{"k":1e999}'),
            json_with_metadata('{"k":' + "1" * 5000 + "}"),
            "[" * 100_000,
            '{"a":' * 100_000,
        ],
        ids=lambda text: text[:80],
    )
    def test_text_that_is_not_json_is_refused(self, text: str) -> None:
        assert refused_json(text)["schema"].startswith("it is not JSON")

    @pytest.mark.parametrize(
        ("text", "key"),
        [
            ('{"type":"struct","fields":[{"name":"a","name":"b","type":"long","nullable":true}]}', "'name'"),
            ('{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"nullable":false}]}', "'nullable'"),
            ('{"type":"struct","fields":[{"name":"a","metadata":{"k":{"x":1,"x":1}}}]}', "'x'"),
        ],
    )
    def test_a_key_that_occurs_twice_is_refused(self, text: str, key: str) -> None:
        assert f"the key {key} occurs twice" in refused_json(text)["schema"]

    @pytest.mark.parametrize(
        "root", [None, True, 1, 1.5, "long", "nonsense", [], {}, {"type": "struct"}, {"fields": []}]
    )
    def test_a_root_that_is_not_a_struct_is_refused(self, root: Any) -> None:
        assert set(refused_json(json.dumps(root))) == {"schema"}

    def test_a_list_as_root_is_refused(self) -> None:
        text = '{"type":"array","elementType":"long","containsNull":true}'
        assert "expected a struct" in refused_json(text)["schema"]

    @pytest.mark.parametrize(
        "type",
        [
            "variant",
            "void",
            "null",
            "interval",
            "interval day to second",
            "char(3)",
            "varchar(3)",
            "int",
            "bigint",
            "Long",
            "string collate UNICODE",
            "",
            "\ud800",
            "x" * 10_000,
            "decimal(39,0)",
            "decimal(0,0)",
            "decimal(5,6)",
            "decimal(5,-1)",
            "decimal(5)",
            "decimal(5,1",
            "decimal(٣,١)",
            f"decimal({'9' * 5000},1)",
            None,
            1,
            True,
            [],
            ["long"],
            {},
            {"type": "udt", "class": "x"},
            {"type": "long"},
            {"type": ["struct"]},
            {"type": None},
        ],
        ids=lambda type: repr(type)[:40],
    )
    def test_an_unknown_type_is_refused_with_its_path(self, type: Any) -> None:
        array = {"type": "array", "elementType": type, "containsNull": True}
        map_ = {"type": "map", "keyType": type, "valueType": type, "valueContainsNull": True}
        fields = [field_json("ok"), field_json("a", type), field_json("b", array), field_json("c", map_)]
        found = refused_json(json.dumps(struct_json(field_json("s", struct_json(*fields)))))
        assert set(found) == {"s.a", "s.b.element", "s.c.key", "s.c.value"}
        assert max(map(len, found.values())) < 400

    @pytest.mark.parametrize(
        ("whole", "key"),
        [
            (field_json(), "type"),
            (field_json(), "nullable"),
            (field_json(type={"type": "struct", "fields": []}), "type.fields"),
            (field_json(type={"type": "array", "elementType": "long", "containsNull": True}), "type.elementType"),
            (field_json(type={"type": "array", "elementType": "long", "containsNull": True}), "type.containsNull"),
            *(
                (
                    field_json(type={"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": True}),
                    f"type.{key}",
                )
                for key in ("keyType", "valueType", "valueContainsNull")
            ),
        ],
        ids=str,
    )
    def test_a_missing_or_misshapen_member_is_refused(self, whole: dict[str, Any], key: str) -> None:
        *parents, last = key.split(".")

        def changed(change: Any) -> str:
            copy = json.loads(json.dumps(whole))
            owner = copy
            for parent in parents:
                owner = owner[parent]
            change(owner)
            return json.dumps(struct_json(copy))

        assert f"it lacks {last}" in refused_json(changed(lambda owner: owner.pop(last)))["a"]
        for wrong in (None, 0, 1.5, "yes", {"x": 1}):
            assert refused_json(changed(lambda owner, wrong=wrong: owner.update({last: wrong})))
        assert "no 'more'" in refused_json(changed(lambda owner: owner.update(more=1)))["a"]

    @pytest.mark.parametrize(
        "field", [None, 1, "a", [], {}, {"type": "long"}, {"name": None}, {"name": 1}, {"name": []}]
    )
    def test_a_field_without_a_name_is_refused_with_its_position(self, field: Any) -> None:
        text = json.dumps(struct_json(field_json("s", struct_json(field_json(), field))))
        assert "as field 1" in refused_json(text)["s"]

    @pytest.mark.parametrize("fields", [None, {}, "a", 1])
    def test_fields_that_are_no_array_are_refused(self, fields: Any) -> None:
        assert "array of fields" in refused_json(json.dumps({"type": "struct", "fields": fields}))["schema"]

    @pytest.mark.parametrize("metadata", [None, [], "x", 1, True])
    def test_metadata_that_is_no_object_is_refused(self, metadata: Any) -> None:
        assert "metadata" in refused_json(json.dumps(struct_json(field_json(metadata=metadata))))["a"]

    def test_everything_wrong_is_said_at_once(self) -> None:
        text = json.dumps(
            struct_json(
                field_json("a", "variant"),
                field_json("b", nullable=1),
                field_json("c", metadata=[]),
                field_json("d\ud800"),
                field_json("A"),
                7,
            )
        )
        assert set(refused_json(text)) == {"a", "b", "c", "d\\ud800", "A", "schema"}

    @given(ANY_JSON)
    def test_no_json_leads_to_another_exception(self, value: Any) -> None:
        try:
            from_delta_json(json.dumps(value))
        except ValidationError as error:
            str(error).encode()

    @given(st.data())
    def test_no_damage_to_a_good_text_leads_to_another_exception(self, data: st.DataObject) -> None:
        field = field_json("m", {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True})
        text = json.dumps(struct_json(field_json(metadata={"k": [1]}), field))
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 12, len(text))))
        damaged = text[:start] + data.draw(st.text(alphabet='{}[]":,\\0eE.-naul \ud800', max_size=6)) + text[end:]
        try:
            from_delta_json(damaged)
        except ValidationError as error:
            str(error).encode()


class TestDepth:
    @pytest.mark.parametrize("depth", [1, 50, 99])
    def test_deep_types_round_trip_through_json_and_bytes(self, depth: int) -> None:
        schema = pa.schema([("a", nested(pa.int8(), depth))])
        assert from_delta_json(to_delta_json(schema)) == schema
        assert from_bytes(to_bytes(schema)) == schema

    def test_a_map_at_the_deepest_place_round_trips(self) -> None:
        schema = pa.schema([("a", nested(pa.map_(pa.string(), pa.int8()), 98))])
        assert from_delta_json(to_delta_json(schema)) == schema
        assert from_bytes(to_bytes(schema)) == schema

    @pytest.mark.parametrize("depth", [100, 5000])
    def test_absurd_depth_is_refused_in_arrow(self, depth: int) -> None:
        (message,) = refused_schema(pa.schema([("a", nested(pa.int8(), depth))])).values()
        assert "nested" in message

    @pytest.mark.parametrize("depth", [100, 200, 320, 5000])
    def test_absurd_depth_is_refused_in_json(self, depth: int) -> None:
        array = '{"type":"array","containsNull":true,"elementType":' * depth + '"long"' + "}" * depth
        text = '{"type":"struct","fields":[{"name":"a","nullable":true,"metadata":{},"type":' + array + "}]}"
        (message,) = refused_json(text).values()
        assert "nested" in message

    @pytest.mark.parametrize("depth", range(100, 1100, 50))
    def test_absurd_depth_of_metadata_is_no_other_exception(self, depth: int) -> None:
        text = json_with_metadata('{"k":' + "[" * depth + "]" * depth + "}")
        try:
            back = to_delta_json(from_delta_json(text))
        except ValidationError as error:
            back = str(error)
        assert back == text or "nested" in back

    def test_marked_metadata_of_absurd_depth_is_a_plain_string(self) -> None:
        value = "json:" + "[" * 50_000
        schema = pa.schema([pa.field("a", pa.int64(), metadata={"k": value})])
        assert to_delta_json(schema) == json_with_metadata('{"k":"' + value + '"}')
