"""Conditions on columns that came later, were widened, are nested, or cannot be asked for."""

import json
from typing import Any

import pyarrow as pa
import pytest

from lakelog import Lake, ValidationError
from lakelog.actions import Metadata
from lakelog.log import state
from lakelog.schema import from_delta_json, to_delta_json
from tests.contract.samples import SCHEMA, add, bounded, commit, paths, stats, table


def test_files_older_than_a_column_are_kept(lake: Lake) -> None:
    """A file from before the column has null there: nothing was ever said about it."""
    dataset = table(lake)
    commit(lake, dataset, add("old", stats=stats(3, id=(1, 9))))
    wider = SCHEMA.append(pa.field("later", pa.int64()))
    commit(lake, dataset, Metadata(id="x", schema_string=to_delta_json(wider)))
    commit(lake, dataset, add("new", stats=stats(3, id=(1, 9), later=(5, 5))))
    snapshot = dataset.snapshot()
    assert paths(snapshot.files("later = 5")) == ["new", "old"]
    assert paths(snapshot.files("later IS NULL")) == ["old"]
    assert paths(snapshot.files("later = 6 AND id = 1")) == ["old"]
    assert paths(snapshot.files("later = 6 OR id = 99")) == ["old"]
    assert paths(snapshot.files("id = 99")) == []
    with pytest.raises(ValidationError, match="no column 'later'"):
        dataset.snapshot(version=1).files("later = 5")


def test_bounds_from_before_a_column_was_widened_still_count(lake: Lake) -> None:
    dataset = table(lake, schema=pa.schema([("x", pa.int32())]))
    commit(lake, dataset, add("old", stats=bounded(1, 3)))
    commit(lake, dataset, Metadata(id="x", schema_string=to_delta_json(pa.schema([("x", pa.int64())]))))
    commit(lake, dataset, add("new", stats=bounded(2**40, 2**40)))
    assert paths(dataset.snapshot().files("x = 2")) == ["old"]
    assert paths(dataset.snapshot().files(f"x > {2**39}")) == ["new"]
    assert paths(dataset.snapshot(version=1).files("x > 5")) == []


def test_files_from_before_a_change_of_partitioning_are_kept(lake: Lake) -> None:
    dataset = table(lake)
    schema = dataset.snapshot().metadata.schema_string
    commit(lake, dataset, add("plain"))
    commit(lake, dataset, Metadata(id="x", schema_string=schema, partition_columns=("name",)))
    commit(lake, dataset, add("by-name", partition_values={"name": "x"}))
    assert paths(dataset.snapshot().files("name = 'x'")) == ["by-name", "plain"]
    assert paths(dataset.snapshot().files("name = 'y'")) == ["plain"]
    commit(lake, dataset, Metadata(id="x", schema_string=schema))
    commit(lake, dataset, add("plain-again"))
    assert {"plain", "plain-again"} <= set(paths(dataset.snapshot().files("name = 'y'")))
    assert paths(dataset.snapshot().files("name = 'x'")) == ["by-name", "plain", "plain-again"]


@pytest.mark.parametrize(("limit", "kept"), [("1", 2), ("2", 1), ("-1", 1), ("0", 2), ("nonsense", 1)])
def test_columns_beyond_the_index_keep_every_file(lake: Lake, limit: str, kept: int) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    dataset = table(lake, schema=schema)
    # As of a table that came from elsewhere: our own doors take no nonsense.
    configuration = {"delta.dataSkippingNumIndexedCols": limit}
    commit(lake, dataset, Metadata(id="x", schema_string=to_delta_json(schema), configuration=configuration))
    commit(
        lake, dataset, add("one", stats=stats(3, a=(1, 1), b=(1, 1))), add("two", stats=stats(3, a=(2, 2), b=(2, 2)))
    )
    assert dataset.snapshot().files("b = 2").num_rows == kept


def test_nested_and_oddly_named_columns_are_found(lake: Lake) -> None:
    inner = pa.struct([("deep", pa.int64()), ("with.dot", pa.int64())])
    dataset = table(
        lake, schema=pa.schema([("s", inner), ("a.b", pa.int64()), ("Ünï", pa.string()), ("order", pa.int64())])
    )
    trees: Any = {"s": {"deep": 5, "with.dot": 6}, "a.b": 7, "Ünï": "x", "order": 8}
    nulls = {"s": {"deep": 0, "with.dot": 0}, "a.b": 0, "Ünï": 0, "order": 0}
    text = json.dumps({"numRecords": 1, "minValues": trees, "maxValues": trees, "nullCount": nulls})
    commit(lake, dataset, add("a", stats=text))
    snapshot = dataset.snapshot()
    for found in ("s.deep = 5", "S.DEEP = 5", "s.`with.dot` = 6", "`a.b` = 7", "Ünï = 'x'", "`order` = 8"):
        assert snapshot.files(found).num_rows == 1, found
    for lost in ("s.deep = 6", "s.`with.dot` = 5", "`a.b` = 8", "Ünï = 'y'", "`order` = 9"):
        assert snapshot.files(lost).num_rows == 0, lost


BAD = {
    "": "empty",
    "   ": "empty",
    "id =": "not a condition",
    "id = 1; DROP TABLE dl_tables": "more than one statement",
    "id = 1 -- comment": "comment",
    "colour = 'red'": "no column 'colour'",
    "nam = 'x'": "did you mean name",
    "id = name": "two columns",
    "id + 1 = 2": "cannot be analysed",
    "abs(id) = 2": "cannot be analysed",
    "id = (SELECT 1)": "subquery",
    "id = 'abc'": "not written as one",
    "name = 5": "quote the value",
    "day = 'yesterday'": "not a date",
    "day = '2026-02-30'": "no such day",
    "id LIKE 'a%'": "LIKE needs a string",
    "id": "not a boolean",
    "(" * 200 + "id = 1" + ")" * 200: "nested too deeply",
    "name = '\0'": "NUL",
    "name = '\ud800'": "surrogate",
    "id IN ()": "at least one value",
}


@pytest.mark.parametrize(("condition", "message"), BAD.items(), ids=[repr(text[:20]) for text in BAD])
def test_a_condition_that_makes_no_sense_is_a_clear_error(lake: Lake, condition: str, message: str) -> None:
    snapshot = table(lake).snapshot()
    for read in (snapshot.files, snapshot.row_groups):
        with pytest.raises(ValidationError, match=message):
            read(condition)


def test_all_that_is_wrong_with_a_condition_is_said_at_once(lake: Lake) -> None:
    with pytest.raises(ValidationError) as caught:
        table(lake).snapshot().files("colour = 'red' AND id = 'x' OR abs(id) = 1")
    assert len(caught.value.violations) == 3


def test_values_are_bound_and_never_pasted(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, add(stats=stats(3, name=("a", "z"))))
    for text in ("'' OR 1=1 --", "%s", "$low_1", "{columns}", ":x", "?", '"', "it''s"):
        assert dataset.snapshot().files(f"name = 'b{text}'").num_rows == 1
        assert dataset.snapshot().files(f"name = '~{text}'").num_rows == 0


def test_infinite_bounds_find_their_files(lake: Lake) -> None:
    dataset = table(lake, schema=pa.schema([("x", pa.float64())]))
    commit(lake, dataset, add("large", stats=bounded(-1.7e308, 1.7e308)), add("small", stats=bounded(5e-324, 5e-324)))
    snapshot = dataset.snapshot()
    assert paths(snapshot.files("x = -1e30")) == ["large"]
    assert paths(snapshot.files("x = 0")) == ["large"]
    assert paths(snapshot.files("x <= 5e-324")) == ["large", "small"]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The schemas that were parsed out of metadata."""
    texts: list[str] = []

    def parse(text: str, **options: Any) -> Any:
        texts.append(text)
        return from_delta_json(text, **options)

    monkeypatch.setattr(state, "from_delta_json", parse)
    return texts


def test_a_search_does_not_grow_with_changes_of_metadata(lake: Lake, other_lake: Lake, parsed: list[str]) -> None:
    dataset = table(lake)
    commit(lake, dataset, add("old", stats=stats(3, id=(1, 9))))
    for number in range(20):
        dataset.set_properties({"a.b": str(number)})
    for number in range(20):
        dataset.add_column(f"c{number}", pa.int64())
    commit(lake, dataset, add("new", stats=stats(3, id=(1, 9), c0=(5, 5))))
    commits = iter(range(10, 20))

    def kept() -> int:
        parsed.clear()
        other = other_lake.dataset(dataset.name)
        commit(other_lake, other, add(f"more-{next(commits)}", stats=stats(3, id=(10, 10))))
        assert paths(other.snapshot().files("id = 5 AND c0 = 5")) == ["new", "old"]
        return len(parsed)

    assert kept() == 21, "each schema once, whatever else changed"
    assert kept() == 0
    dataset.set_properties({"a.b": "again"})
    dataset.add_column("last", pa.int64())
    assert kept() == 2, "what came since"
    assert paths(other_lake.dataset(dataset.name).snapshot(version=1).files("id = 5")) == ["old"]


def test_a_search_sees_all_metadata_of_files_after_an_expiry_elsewhere(lake: Lake, other_lake: Lake) -> None:
    """The bounds of text are no bounds of the number that the column was before, and is again."""
    numbers, texts = (to_delta_json(pa.schema([("x", kind)])) for kind in (pa.int64(), pa.string()))
    dataset = table(lake, schema=pa.schema([("x", pa.int64())]))
    assert paths(dataset.snapshot().files("x = 5")) == []
    other = other_lake.dataset(dataset.name)
    commit(other_lake, other, Metadata(id="x", schema_string=texts))
    commit(other_lake, other, add("text", stats=bounded("1", "9")))
    commit(other_lake, other, Metadata(id="x", schema_string=numbers))
    commit(other_lake, other, add("number", stats=bounded(7, 9)))
    other.expire_versions(keep_last=1)
    assert other.first_version == 4
    assert paths(dataset.snapshot().files("x = 5")) == ["text"]
