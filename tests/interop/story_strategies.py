"""Stories for Hypothesis: tables with nulls, structs, lists and duplicates, and what people do to them."""

from typing import Any

from hypothesis import strategies as st

from tests.interop.stories import Step, Story

COLUMNS = {
    "id": "bigint",
    "k": "int",
    "s": "string",
    "place": "struct<x:int,y:string>",
    "tags": "array<int>",
    "items": "array<struct<n:int>>",
}


def schema_of(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


SCHEMA = schema_of(COLUMNS)

ids = st.none() | st.integers(0, 6)
small = st.none() | st.integers(0, 2)
words = st.none() | st.sampled_from(["", "a", "ab", "b", "ü", "_%"])
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bigint": ids,
    "int": small,
    "string": words,
    "double": st.none() | st.sampled_from([0.5, -1.0]),
    "array<int>": st.none() | st.lists(small, max_size=2),
    "array<bigint>": st.none() | st.lists(small, max_size=2),
}


def values(kind: str) -> st.SearchStrategy[Any]:
    """Values of a type, as JSON has them."""
    if kind in _VALUES:
        return _VALUES[kind]
    if kind.startswith("array<"):
        return st.none() | st.lists(values(kind[6:-1]), max_size=2)
    fields = dict(field.split(":") for field in kind.removeprefix("struct<").removesuffix(">").split(","))
    return st.none() | st.fixed_dictionaries({name: values(inner) for name, inner in fields.items()})


def rows(columns: dict[str, str] = COLUMNS, size: int = 6) -> st.SearchStrategy[list[list[Any]]]:
    row = st.tuples(*map(values, columns.values())).map(list)
    # The same row twice is what people have, and chance seldom gives.
    return st.builds(lambda some, again: some + some[:again], st.lists(row, max_size=size), st.integers(0, 2))


def conditions(prefix: str = "") -> st.SearchStrategy[str]:
    """Conditions in Spark's SQL."""
    p = prefix
    simple = st.one_of(
        st.builds(
            lambda op, n: f"{p}id {op} {n}", st.sampled_from(["=", "<", ">=", "<>", "<=>"]), st.integers(-1, 7).map(str)
        ),
        st.sampled_from(
            [f"{p}k = 1", f"{p}k IN (0, 2)", f"{p}k IS NULL", f"{p}k NOT IN (0, NULL)", f"{p}id + {p}k > 3", "true"]
        ),
        st.sampled_from([f"{p}s = 'a'", f"{p}s IS NOT NULL", f"{p}s LIKE 'a%'", f"length({p}s) = 1", f"{p}s <=> NULL"]),
        st.sampled_from(
            [f"{p}place IS NULL", f"{p}place.x > 0", f"{p}place.y = 'a'", f"{p}place = named_struct('x', 1, 'y', 'a')"]
        ),
        st.sampled_from(
            [f"array_contains({p}tags, 1)", f"size({p}tags) > 0", f"get({p}tags, 0) = 1", f"{p}items IS NOT NULL"]
        ),
    )
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            st.builds(lambda one: f"NOT ({one})", inner),
            st.builds(lambda one, op, other: f"({one}) {op} ({other})", inner, st.sampled_from(["AND", "OR"]), inner),
        ),
        max_leaves=3,
    )


def sets(table: str = "") -> st.SearchStrategy[dict[str, str]]:
    """New values by what the row itself has."""
    t = table
    return st.sampled_from(
        [
            {"s": "'new'"},
            {"id": f"{t}id + {t}k", "k": "1"},
            {"s": "NULL", "k": f"{t}k + 1"},
            {"id": f"{t}k", "k": f"{t}id"},
            {"s": f"{t}id"},
            {"place.x": f"{t}k"},
            {"place.x": f"{t}place.x + 1", "place.y": f"{t}s"},
            {"place": f"named_struct('x', {t}k, 'y', {t}s)"},
            {"place": "NULL", "tags": f"array_append({t}tags, 7)"},
            {"items": "array(named_struct('n', 1), NULL)"},
        ]
    )


MATCHED_SETS = [
    {"s": "s.s", "k": "t.k + 1"},
    {"place": "s.place"},
    {"place.y": "s.s", "id": "s.id"},
    {"tags": "s.tags", "items": "s.items"},
]
INSERTED = [
    {"id": "s.id", "s": "'new'"},
    {"k": "s.k", "place": "s.place", "tags": "array(s.k)"},
    {name: f"s.{name}" for name in COLUMNS},
]


@st.composite
def clauses(draw: st.DrawFn) -> list[list[Any]]:
    """Up to two of each kind, of which the last may be without a condition."""
    matched = st.sampled_from(["whenMatchedUpdate", "whenMatchedUpdateAll", "whenMatchedDelete"])
    inserted = st.sampled_from(["whenNotMatchedInsert", "whenNotMatchedInsertAll"])
    alone = st.sampled_from(["whenNotMatchedBySourceUpdate", "whenNotMatchedBySourceDelete"])
    found = []
    for method, prefixes in ((matched, ("t.", "s.")), (inserted, ("s.",)), (alone, ("t.",))):
        count = draw(st.integers(0, 2))
        for number in range(count):
            name = draw(method)
            given: dict[str, Any] = {}
            if number < count - 1 or draw(st.booleans()):
                given["condition"] = draw(st.sampled_from(prefixes).flatmap(conditions))
            if name == "whenMatchedUpdate":
                given["set"] = draw(st.sampled_from(MATCHED_SETS) | sets("t."))
            elif name == "whenNotMatchedBySourceUpdate":
                given["set"] = draw(sets("t."))
            elif name == "whenNotMatchedInsert":
                given["values"] = draw(st.sampled_from(INSERTED))
            found.append([name, given])
    return found or [["whenMatchedDelete", {}]]


SOURCES = {
    "as the table": COLUMNS,
    "in another order": dict(reversed(COLUMNS.items())),
    "with a column more": COLUMNS | {"extra": "double"},
    "with fields more": COLUMNS
    | {"place": "struct<x:int,y:string,z:bigint>", "items": "array<struct<m:string,n:int>>"},
    "with fields less": COLUMNS | {"place": "struct<y:string>"},
    "with columns less": {"id": "bigint", "s": "string"},
    "with other numbers": COLUMNS | {"id": "int"},
}
"""By what a source has compared with the table."""

MERGE_CONDITIONS = ["t.id = s.id"] * 4 + [
    "t.id = s.id AND t.s = s.s",
    "t.id <=> s.id",
    "t.id = s.id AND t.k > 0",
    "t.id = s.id AND s.s = 'a'",
    "t.id < s.id",
    "false",
]


@st.composite
def merges(draw: st.DrawFn, *, evolves: bool = False) -> Step:
    columns = draw(st.sampled_from([*SOURCES.values()])) if evolves else COLUMNS
    chosen = draw(clauses())
    return {
        "do": "merge",
        "source": _one_per_id(draw(rows(columns)), columns, draw(st.integers(0, 3))),
        "schema": schema_of(columns),
        "condition": draw(st.sampled_from(MERGE_CONDITIONS)),
        "clauses": chosen,
        "evolves": evolves,
    }


def _one_per_id(found: list[list[Any]], columns: dict[str, str], chance: int) -> list[list[Any]]:
    """Mostly: several rows for one key are an error, and would be nearly always."""
    at = list(columns).index("id")
    return list({row[at]: row for row in found}.values()) if chance else found


KEPT = {"delta.enableChangeDataFeed": "true"}
vectors = st.sampled_from([{}, {"delta.enableDeletionVectors": "true"}])
"""Whether rows are deleted by vectors."""

deletes = st.builds(lambda condition: {"do": "delete", "condition": condition}, st.none() | conditions())
updates = st.builds(
    lambda condition, new: {"do": "update", "condition": condition, "set": new}, st.none() | conditions(), sets()
)


def stories(steps: st.SearchStrategy[Step], most: int = 2, **more: Any) -> st.SearchStrategy[Story]:
    return st.fixed_dictionaries(
        {
            "schema": st.just(SCHEMA),
            "partitioned": st.sampled_from([[], ["k"]]),
            "properties": st.builds(lambda one, other: one | other, st.sampled_from([KEPT, KEPT, {}]), vectors),
            "files": st.lists(rows(), min_size=1, max_size=2),
            "steps": st.lists(steps, min_size=1, max_size=most),
            **more,
        }
    )


RULED = {
    "schema": "id bigint NOT NULL, s string, twice bigint, kind string, place struct<x:int,y:string>",
    "given": "id bigint, s string, place struct<x:int,y:string>, kind string",
    "generated": {"twice": "id * 2"},
    "defaults": {"kind": "'plain'"},
    "properties": {"delta.enableChangeDataFeed": "true", "delta.feature.allowColumnDefaults": "supported"},
    "constraints": {"few": "id < 6 OR s = 'a'"},
}
"""A table that asks something of its rows. What is written to it first keeps to that."""

_RULED_ROWS = st.tuples(
    st.integers(0, 4), words, values("struct<x:int,y:string>"), st.sampled_from([None, "plain", "other"])
)
_RULED_SETS = [
    {"id": "{t}id + 3"},
    {"id": "NULL"},
    {"id": "{t}id + 1", "twice": "2 * {t}id + 2"},
    {"twice": "7"},
    {"s": "NULL", "kind": "NULL"},
    {"place.x": "NULL"},
    {"place.y": "'new'"},
    {"place": "NULL"},
]


def ruled_updates(prefix: str = "") -> st.SearchStrategy[dict[str, str]]:
    said = ({name: value.format(t=prefix) for name, value in each.items()} for each in _RULED_SETS)
    return st.sampled_from(list(said))


@st.composite
def ruled_stories(draw: st.DrawFn) -> Story:
    new = st.tuples(st.none() | st.integers(0, 8), words, values("struct<x:int,y:string>"), words).map(list)
    source = st.lists(new, min_size=1, max_size=3, unique_by=lambda row: row[0])
    condition = st.none() | st.sampled_from(["id > 2", "s IS NULL", "kind = 'plain' AND twice < 5", "place IS NULL"])
    matched = st.sampled_from([["whenMatchedUpdateAll", {}], ["whenMatchedDelete", {}]]) | st.builds(
        lambda new: ["whenMatchedUpdate", {"set": new}],
        st.sampled_from([{"id": "s.id + 3"}, {"s": "s.s"}, {"twice": "t.twice"}, {"kind": "s.s", "place": "s.place"}]),
    )
    inserted = st.sampled_from(
        [
            ["whenNotMatchedInsertAll", {}],
            ["whenNotMatchedInsert", {"values": {"id": "s.id"}}],
            ["whenNotMatchedInsert", {"values": {"s": "s.s"}}],
            ["whenNotMatchedInsert", {"values": {"id": "s.id", "kind": "NULL", "twice": "s.id * 2"}}],
            ["whenNotMatchedInsert", {"values": {"id": "s.id", "twice": "s.id"}}],
        ]
    )
    steps = st.one_of(
        st.builds(lambda where, new: {"do": "update", "condition": where, "set": new}, condition, ruled_updates()),
        st.builds(
            lambda rows, one, other: {
                "do": "merge",
                "source": [row[:3] for row in rows],
                "schema": RULED["given"].removesuffix(", kind string"),
                "condition": "t.id = s.id",
                "clauses": [one, other],
                # Without it, Delta wants generated columns in the source.
                "evolves": True,
            },
            source,
            matched,
            inserted,
        ),
        st.builds(lambda rows: {"do": "append", "source": rows, "schema": RULED["given"]}, source),
        st.just({"do": "constrain", "name": "more", "expression": "id > 0"}),
    )
    files = draw(st.lists(st.lists(_RULED_ROWS.map(list), min_size=1, max_size=4), min_size=1, max_size=2))
    properties = RULED["properties"] | draw(vectors)
    return RULED | {
        "properties": properties,
        "files": files,
        "steps": draw(st.lists(steps, min_size=1, max_size=3)),
    }
