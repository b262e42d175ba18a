"""Statistics of Delta's files: which can be trusted, and how structs become text."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.delta_log.json_text import map_text, stats_text
from lakelog.delta_log.statistics import sound_stats
from lakelog.log.validation.stats import checked_stats

FLOATS = st.none() | st.fixed_dictionaries({"x": st.none() | st.floats()})
ROWS = st.fixed_dictionaries({"n": st.none() | st.integers(0, 9), "s": st.none() | st.text(max_size=5), "o": FLOATS})


class TestStructs:
    @pytest.mark.parametrize(
        ("kind", "value", "text"),
        [
            (pa.int8(), -3, "-3"),
            (pa.int64(), 2**63 - 1, "9223372036854775807"),
            (pa.float64(), 0.1, "0.1"),
            (pa.float32(), 0.1, "0.1"),
            (pa.float64(), 1e300, "1e+300"),
            (pa.float64(), math.nan, None),
            (pa.float64(), -math.inf, None),
            (pa.decimal128(38, 2), Decimal("123456789012345678901234567890123456.78"), None),
            (pa.decimal128(38, 10), Decimal("0.0000001"), None),
            (pa.bool_(), True, None),
            (pa.binary(), b"x", None),
            (pa.list_(pa.int32()), [1], None),
            (pa.date32(), date(1, 2, 3), '"0001-02-03"'),
            (pa.timestamp("us", "UTC"), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), '"1969-12-31T23:59:59.999Z"'),
            (pa.timestamp("us", "+02:00"), datetime(2020, 1, 1, 1, 0, 0, 0, UTC), '"2020-01-01T01:00:00.000Z"'),
            (pa.timestamp("us"), datetime(9999, 12, 31, 23, 59, 59, 999999), '"9999-12-31T23:59:59.999"'),  # noqa: DTZ001
            (pa.string(), 'é"\\\n\u2028', '"é\\"\\\\\\n\u2028"'),
            (pa.large_string(), "{,", '"{,"'),
            (pa.struct([("x", pa.int32()), ("y", pa.int32())]), {"x": None, "y": 1}, '{"y":1}'),
            (pa.null(), None, None),
            (pa.int64(), None, None),
        ],
    )
    def test_every_type_has_deltas_text_or_is_left_out(self, kind: Any, value: Any, text: str | None) -> None:
        stats = pa.array([{"minValues": {"a b": value}}], pa.struct([("minValues", pa.struct([("a b", kind)]))]))
        [found] = stats_text(stats).to_pylist()
        if isinstance(value, Decimal):
            assert json.loads(found, parse_float=Decimal) == {"minValues": {"a b": value}}
        else:
            assert found == ('{"minValues":{"a b":%s}}' % text if text else '{"minValues":{}}')  # noqa: UP031

    @settings(deadline=None)
    @given(st.lists(st.none() | ROWS, max_size=5))
    def test_the_text_says_what_the_struct_says(self, rows: list[dict[str, Any] | None]) -> None:
        inner = pa.struct([("n", pa.int64()), ("s", pa.string()), ("o", pa.struct([("x", pa.float64())]))])
        stats = pa.array([row and {"maxValues": row} for row in rows], pa.struct([("maxValues", inner)]))
        for row, text in zip(rows, stats_text(stats).to_pylist(), strict=True):
            if row is None:
                assert text is None
                continue
            expected = {key: value for key, value in row.items() if value is not None}
            if "o" in expected:
                expected["o"] = {k: v for k, v in expected["o"].items() if v is not None and math.isfinite(v)}
            assert json.loads(text) == {"maxValues": expected}


MAPS = st.dictionaries(st.text(max_size=4), st.none() | st.text(max_size=4), max_size=3)


class TestMaps:
    @settings(deadline=None)
    @given(st.lists(st.none() | MAPS, max_size=6), st.integers(0, 3))
    def test_the_text_is_the_maps_json(self, maps: list[dict[str, Any] | None], start: int) -> None:
        kind = pa.map_(pa.string(), pa.string())
        array = pa.array([None if each is None else list(each.items()) for each in maps], kind).slice(start)
        texts = map_text(array).to_pylist()
        assert [None if text is None else json.loads(text) for text in texts] == maps[start:]


NUMBERS = st.one_of(
    st.integers(-3, 3), st.floats(-2, 2), st.sampled_from(["NaN", "2020-01-01", "9999-12-31", "a", "Z"])
)
COLUMNS = st.dictionaries(st.sampled_from("ab"), NUMBERS | st.none() | st.booleans(), max_size=2)
SOUND_OR_NOT = st.one_of(
    st.none(),
    st.sampled_from(
        ["{", "", "[]", '{"numRecords":1}}', '{"a":1,"a":2}', '{"numRecords":1} {}', '{"minValues":{"a":1e999}}']
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "numRecords": st.integers(-1, 3) | st.just("x"),
            "minValues": COLUMNS | st.fixed_dictionaries({"s": COLUMNS}),
            "maxValues": COLUMNS | st.fixed_dictionaries({"s": COLUMNS}),
            "nullCount": st.dictionaries(st.sampled_from("ab"), st.integers(-1, 4) | st.none(), max_size=2)
            | st.just(5),
            "tightBounds": st.booleans() | st.just(1),
            "novelty": st.integers(),
        },
    ).map(json.dumps),
)


class TestSoundStatistics:
    @settings(deadline=None)
    @given(st.lists(SOUND_OR_NOT, max_size=6))
    def test_what_is_seen_at_a_glance_is_what_a_close_look_finds(self, few: list[str | None]) -> None:
        texts = few * 30
        expected = [None if text is None or checked_stats(text, "")[1] else text for text in texts]
        sound, dropped = sound_stats(pa.array(texts, pa.string()), pa.repeat(False, len(texts)))
        assert sound.to_pylist() == expected
        assert dropped == sum(text is not None for text in texts) - sum(text is not None for text in expected)

    def test_one_bad_file_among_thousands_is_found(self) -> None:
        texts = [
            f'{{"numRecords":5,"minValues":{{"a":{i},"s":"{i:05}"}},"maxValues":{{"a":{i},"s":"{i:05}"}}}}'
            for i in range(9000)
        ]
        texts[5000] = '{"numRecords":5,"minValues":{"a":2,"s":"b"},"maxValues":{"a":1,"s":"b"}}'
        texts[6000] = '{"numRecords":5,"minValues":{"a":2,"s":"b"},"maxValues":{"a":2,"s":"a"}}'
        texts[7000] = '{"numRecords":5,"nullCount":{"a":6}}'
        sound, dropped = sound_stats(pa.array(texts), pa.repeat(False, len(texts)))
        assert [index for index, text in enumerate(sound.to_pylist()) if text is None] == [5000, 6000, 7000]
        assert dropped == 3

    def test_numbers_of_rows_survive_beside_deletion_vectors(self) -> None:
        texts = ['{"numRecords":5,"minValues":{"a":NaN}}', "{", '{"numRecords":-1}', '{"numRecords":true,"x":NaN}']
        sound, dropped = sound_stats(pa.array(texts), pa.repeat(True, 4))
        assert (sound.to_pylist(), dropped) == (['{"numRecords":5}', None, None, None], 4)
