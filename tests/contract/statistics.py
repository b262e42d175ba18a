"""Files with statistics of every type, as Hypothesis makes them."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lakelog import RowGroup
from lakelog.actions import AddFile
from tests.contract.samples import VECTOR

SCHEMA = pa.schema(
    [
        ("p_text", pa.string()),
        ("p_int", pa.int32()),
        ("p_day", pa.date32()),
        ("i", pa.int64()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("m", pa.decimal128(12, 2)),
        ("long", pa.decimal128(38, 18)),
        ("b", pa.bool_()),
        ("t", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("s", pa.struct([("a", pa.int32()), ("t", pa.string())])),
        ("list", pa.list_(pa.int64())),
    ]
)
PARTITIONS = ["p_text", "p_int", "p_day"]
TEXTS = {"p_text", "t", "s.t"}
"""The columns whose bounds are texts."""

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=100)
BOUNDS: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9),
    "d": st.floats(allow_nan=False, allow_infinity=False),
    "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "m": st.decimals(-(10**10), 10**10, places=2).map(float) | st.integers(-9, 9),
    "long": st.decimals(-(10**19), 10**19, places=18).map(float) | st.integers(-(10**19), 10**19),
    "b": st.booleans(),
    "t": text | st.sampled_from(["x" * 64, "x" * 65, "\U0010ffff" * 70]),
    "day": st.dates().map(str),
    "at": st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='milliseconds')}Z"),
    "s.a": st.integers(-(2**31), 2**31 - 1),
    "s.t": text,
}
"""What a writer puts into minValues and maxValues, by column."""


@st.composite
def statistics(draw: st.DrawFn) -> str | None:
    """The statistics of a file: any part may be missing, and none contradicts another."""
    if draw(st.integers(0, 9)) == 0:
        return None
    rows = draw(st.none() | st.integers(2, 1000))
    found: dict[str, Any] = {} if rows is None else {"numRecords": rows}
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for name, strategy in BOUNDS.items():
        low, high = sorted((draw(strategy), draw(strategy)))
        for tree, value in ((lows, low), (highs, high), (nulls, draw(st.sampled_from([0, 1, rows or 2])))):
            if draw(st.integers(0, 5)):
                *parents, leaf = name.split(".")
                for parent in parents:
                    tree = tree.setdefault(parent, {})
                tree[leaf] = value
    parts = {"minValues": lows, "maxValues": highs, "nullCount": nulls}
    found |= {part: tree for part, tree in parts.items() if draw(st.integers(0, 9))}
    return json.dumps(found, ensure_ascii=draw(st.booleans()))


@st.composite
def files(draw: st.DrawFn) -> tuple[list[AddFile], list[RowGroup]]:
    """Added files with their row groups. Paths are to be made unique by the caller."""
    adds: list[AddFile] = []
    groups: list[RowGroup] = []
    for number in range(draw(st.integers(1, 6))):
        stats = draw(statistics())
        rows = json.loads(stats).get("numRecords") if stats else None
        add = AddFile(
            path=f"{number}.parquet",
            size=draw(st.integers(0, 2**63 - 1)),
            partition_values={
                "p_text": draw(st.none() | text.filter(bool)),
                "p_int": draw(st.none() | st.integers(-(2**31), 2**31 - 1).map(str)),
                "p_day": draw(st.none() | st.dates().map(str)),
            },
            modification_time=draw(st.integers(0, 2**63 - 1)),
            data_change=draw(st.booleans()),
            stats=stats,
            tags=draw(st.none() | st.dictionaries(text, st.none() | text, max_size=2)),
            deletion_vector=VECTOR if rows is not None and draw(st.booleans()) else None,
            base_row_id=draw(st.none() | st.integers(0, 2**63 - 1)),
            default_row_commit_version=draw(st.none() | st.integers(0, 2**63 - 1)),
            clustering_provider=draw(st.none() | st.just("liquid")),
            extra=draw(st.dictionaries(text.map("extra {}".format), text | st.integers(), max_size=2)),
        )
        adds.append(add)
        if draw(st.booleans()):
            first = draw(st.integers(0, 1000 if rows is None else rows))
            counts = [first, 7 if rows is None else rows - first]
            groups += [
                RowGroup(path=add.path, row_group=index, row_count=count, byte_size=draw(st.none() | st.just(9)))
                for index, count in enumerate(counts)
            ]
    return adds, groups
