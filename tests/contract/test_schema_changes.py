"""Explicit changes of a schema, each version with the schema of its time, and values that became text."""

from typing import Any

import pyarrow as pa
import pytest

from lakelog import AddFiles, Lake, RowGroup, SchemaMismatchError, ValidationError, VersionConflict
from lakelog.actions import DomainMetadata, RemoveFile
from tests.contract.evolution import SCHEMA, data, everything, ids
from tests.contract.samples import OTHER_VECTOR, VECTOR, add, commit, paths, stats, table
from tests.invariants import check_invariants
from tests.parquet import read, write


class TestExplicitChanges:
    def test_each_is_one_commit_of_metadata_alone(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        write(lake, dataset, data(id=ids(1), name=["a"]))
        steps = [
            lambda: dataset.add_column("place", pa.struct([("x", pa.float32())]), comment="where"),
            lambda: dataset.add_column("place.y", pa.float32()),
            lambda: dataset.widen_column("place.x", pa.float64()),
            lambda: dataset.make_nullable("id"),
            lambda: dataset.set_comment("id", "the key"),
            lambda: dataset.rename_column("name", "title"),
            lambda: dataset.drop_column("place.y"),
        ]
        for number, step in enumerate(steps, start=2):
            assert step().version == number
        what = [[change.what for change in each.changes] for each in reversed(dataset.schema_history())]
        assert what == [[], ["added"], ["added"], ["widened"], ["nullability"], ["comment"], ["renamed"], ["dropped"]]
        assert [commit.operation for commit in dataset.history()[:2]] == ["DROP COLUMNS", "RENAME COLUMN"]
        assert dataset.snapshot().files().num_rows == 1
        assert read(dataset.snapshot(), dataset.location).to_pylist() == [{"id": 1, "title": "a", "place": None}]
        check_invariants(lake)

    def test_what_is_so_already_makes_no_commit(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        assert dataset.make_nullable("name") is None
        assert dataset.widen_column("id", pa.int32()) is None
        assert dataset.version == 0

    def test_what_would_be_unsafe_is_refused_and_changes_nothing(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA, partition_by=["name"])
        for change in (
            lambda: dataset.drop_column("name"),
            lambda: dataset.widen_column("id", pa.int16()),
            lambda: dataset.widen_column("id", pa.string()),
            lambda: dataset.add_column("ID", pa.int32()),
            lambda: dataset.rename_column("id", "Name"),
            lambda: dataset.drop_column("nowhere"),
        ):
            with pytest.raises(ValidationError):
                change()
        assert dataset.version == 0

    def test_a_column_that_the_table_is_clustered_by_stays(self, lake: Lake) -> None:
        dataset = table(
            lake, schema=pa.schema([("s", pa.struct([("x", pa.int8()), ("y", pa.int8())])), ("n", pa.int8())])
        )
        clustering = DomainMetadata(domain="delta.clustering", configuration='{"clusteringColumns":[["s","x"]]}')
        commit(lake, dataset, clustering)
        for name in ("s", "s.x"):
            with pytest.raises(ValidationError, match="clustered by it"):
                dataset.drop_column(name)
        dataset.drop_column("s.y")
        commit(lake, dataset, DomainMetadata(domain="delta.clustering", configuration="{}", removed=True))
        dataset.drop_column("s")

    def test_a_renamed_partition_column_still_finds_its_files(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA, partition_by=["name"])
        commit(lake, dataset, add("a", partition_values={"name": "x"}), add("b", partition_values={"name": "y"}))
        dataset.rename_column("name", "title")
        assert paths(dataset.snapshot().files("title = 'y'")) == ["b"]
        commit(lake, dataset, add("c", partition_values={"name": "y"}))
        assert paths(dataset.snapshot().files("title = 'y'")) == ["b", "c"]

    def test_of_two_changes_on_the_same_version_one_is_a_conflict(self, lake: Lake, other_lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        plan = dataset.plan_write(pa.schema([("new", pa.int8())]), schema_merge=True)
        other_lake.dataset(dataset.name).set_comment("id", "mine")
        with pytest.raises(VersionConflict):
            commit(lake, dataset, *plan.actions, version=1)


class TestTimeTravel:
    def test_each_version_is_read_with_the_schema_of_its_time(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        write(lake, dataset, data(id=ids(1), name=["a"]))
        write(lake, dataset, data(id=ids(2), name=["b"], score=ids(5)), schema_merge=True)
        dataset.rename_column("score", "points")
        dataset.drop_column("name")
        write(lake, dataset, data(id=["three"], points=ids(6)), schema_merge=True, promote_to_string=True)

        expected = {
            0: [],
            1: [{"id": 1, "name": "a"}],
            2: [{"id": 1, "name": "a", "score": None}, {"id": 2, "name": "b", "score": 5}],
            3: [{"id": 1, "name": "a", "points": None}, {"id": 2, "name": "b", "points": 5}],
            4: [{"id": 1, "points": None}, {"id": 2, "points": 5}],
            5: [{"id": "1", "points": None}, {"id": "2", "points": 5}, {"id": "three", "points": 6}],
        }
        for version, found in expected.items():
            rows_found = read(dataset.snapshot(version=version), dataset.location).to_pylist()
            assert sorted(rows_found, key=lambda row: str(row["id"])) == found
            assert dataset.schema(version=version).names == dataset.snapshot(version=version).schema.names
        check_invariants(lake)

    def test_bounds_of_older_files_still_prune_a_widened_column_and_never_a_promoted_one(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        commit(lake, dataset, add("low", stats=stats(1, id=(1, 5))), add("high", stats=stats(1, id=(100, 200))))
        dataset.widen_column("id", pa.int64())
        assert paths(dataset.snapshot().files(f"id < 50 OR id > {2**40}")) == ["low"]
        plan = dataset.plan_write(data(id=["x"]).schema, schema_merge=True, promote_to_string=True)
        commit(lake, dataset, *plan.actions, add("text", stats=stats(1, id=("x", "x"))))
        assert paths(dataset.snapshot().files("id = '3'")) == ["high", "low"]
        assert paths(dataset.snapshot().files("id = 'x'")) == ["high", "low", "text"]


class TestText:
    """What a column showed last is what becomes text, whatever its files hold."""

    @pytest.mark.parametrize("mirror", [False, True])
    def test_widened_values_have_the_text_of_the_wider_type(self, lake: Lake, mirror: bool) -> None:
        dataset = table(lake, schema=pa.schema([("a", pa.int32()), ("day", pa.date32())]), mirror=mirror)
        days = pa.array([19724], pa.date32())
        write(lake, dataset, pa.table({"a": ids(5), "day": days}))
        times = days.cast(pa.timestamp("us"))
        write(lake, dataset, pa.table({"a": pa.array([5.0]), "day": times}), schema_merge=True)
        text = pa.table({"a": ["x"], "day": ["y"]})
        write(lake, dataset, text, schema_merge=True, promote_to_string=True)
        found = read(dataset.snapshot(), dataset.location).to_pylist()
        assert sorted((row["a"], row["day"]) for row in found) == [("5.0", "2024-01-02 00:00:00")] * 2 + [("x", "y")]

    @pytest.mark.parametrize("mirror", [False, True])
    def test_a_struct_has_the_names_and_fields_that_it_had_last(self, lake: Lake, mirror: bool) -> None:
        struct = pa.struct([("a", pa.int32()), ("b", pa.int32())])
        dataset = table(lake, schema=pa.schema([("s", struct), ("n", pa.int32())]), mirror=mirror)
        write(lake, dataset, pa.table({"s": pa.array([{"a": 1, "b": 2}], struct), "n": ids(1)}))
        dataset.rename_column("s.a", "x")
        dataset.drop_column("s.b")
        dataset.add_column("s.b", pa.int32())
        after = pa.struct([("x", pa.int32()), ("b", pa.int32())])
        write(lake, dataset, pa.table({"s": pa.array([{"x": 10, "b": 20}], after), "n": ids(2)}))
        options = {"schema_merge": True, "promote_to_string": True}
        write(lake, dataset, pa.table({"s": ["text"], "n": ids(3)}), **options)
        dataset.rename_column("s", "t")
        write(lake, dataset, pa.table({"t": ["more"], "n": ["four"]}), **options)
        found = read(dataset.snapshot(), dataset.location).to_pylist()
        assert {(row["n"], row["t"]) for row in found} == {
            ("1", '{"x":1}'),
            ("2", '{"x":10,"b":20}'),
            ("3", "text"),
            ("four", "more"),
        }

    def test_a_file_that_is_added_again_is_still_what_it_was(self, lake: Lake) -> None:
        dataset = table(lake, schema=pa.schema([("id", pa.float32())]), mirror=False)
        said = stats(9, id=(0.1, 0.1))
        commit(lake, dataset, add("old", stats=said, deletion_vector=VECTOR))
        dataset.widen_column("id", pa.float64())
        again = add("old", stats=said, deletion_vector=OTHER_VECTOR)
        commit(lake, dataset, RemoveFile(path="old", deletion_vector=VECTOR), again)
        assert paths(dataset.snapshot().files("id = 0.10000000149011612")) == ["old"]

        plan = dataset.plan_write(pa.schema([("id", pa.string())]), schema_merge=True, promote_to_string=True)
        commit(lake, dataset, *plan.actions, add("new"))
        bulk = AddFiles.of([add("old", stats=said)])
        for actions in ([], [RemoveFile(path="old", deletion_vector=OTHER_VECTOR), bulk]):
            if actions:
                commit(lake, dataset, *actions)
            (native, text) = dataset.snapshot().file_groups()
            assert (paths(native.files), paths(text.files)) == (["new"], ["old"])
            assert paths(dataset.snapshot().files("id = 'x'")) == ["new", "old"]

    @pytest.mark.parametrize(
        ("before", "after", "bounds", "where"),
        [
            (pa.timestamp("us"), pa.string(), "2024-01-01T00:00:00", "c = '2024-01-01 00:00:00'"),
            (pa.float32(), pa.float64(), 0.1, "c = 0.10000000149011612"),
        ],
        ids=["text", "double"],
    )
    def test_row_groups_of_older_files_are_not_judged_by_the_new_type(
        self, lake: Lake, before: pa.DataType, after: pa.DataType, bounds: Any, where: str
    ) -> None:
        dataset = table(lake, schema=pa.schema([("c", before)]), mirror=False)
        said = stats(1, c=(bounds, bounds))
        group = RowGroup(path="a", row_group=0, row_count=1, stats=said)
        commit(lake, dataset, add("a", stats=said), row_groups=[group])
        plan = dataset.plan_write(pa.schema([("c", after)]), schema_merge=True, promote_to_string=True)
        commit(lake, dataset, *plan.actions)
        assert dataset.snapshot().row_groups(where).num_rows == 1

    @pytest.mark.parametrize("key", [pa.binary(), pa.struct([("x", pa.int8())])], ids=str)
    def test_what_has_no_text_is_refused_before_anything_is_written(self, lake: Lake, key: pa.DataType) -> None:
        dataset = table(lake, schema=pa.schema([("s", pa.struct([("m", pa.map_(key, pa.int8()))]))]))
        before = everything(lake, dataset)
        with pytest.raises(SchemaMismatchError, match="has a text"):
            write(lake, dataset, pa.table({"s": ["x"]}), schema_merge=True, promote_to_string=True)
        assert everything(lake, dataset) == before

    def test_a_mirrored_table_that_is_append_only_cannot_have_its_files_replaced(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA, properties={"delta.appendOnly": "true"})
        with pytest.raises(SchemaMismatchError, match="append-only"):
            dataset.plan_write(data(id=["x"]).schema, schema_merge=True, promote_to_string=True)
