"""Clustering, which Delta keeps in a domain of metadata, never names a column that the table does not have."""

import json

import pyarrow as pa

from lakelog import Dataset, Lake
from lakelog.actions import DomainMetadata
from lakelog.changes.evolution import plan_overwrite
from tests.contract.samples import commit
from tests.invariants import check_invariants

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.int64())]))])


def clustered(lake: Lake, name: str, *columns: list[str], schema: pa.Schema = SCHEMA) -> Dataset:
    dataset = lake.create_dataset(name, schema)
    dataset.add_feature("clustering")
    cluster(lake, dataset, *columns)
    return dataset


def cluster(lake: Lake, dataset: Dataset, *columns: list[str]) -> None:
    configuration = json.dumps({"clusteringColumns": columns})
    commit(lake, dataset, DomainMetadata(domain="delta.clustering", configuration=configuration, removed=not columns))


def columns(dataset: Dataset) -> tuple[str, ...]:
    return dataset.detail().clustering_columns


def test_a_restoration_brings_the_clustering_of_its_version(lake: Lake) -> None:
    dataset = clustered(lake, "t", ["id"])
    first = dataset.version
    dataset.add_column("later", pa.int64())
    cluster(lake, dataset, ["later"])
    second = dataset.version
    dataset.restore(first)
    assert (columns(dataset), dataset.schema().names) == (("id",), ["id", "s"])
    dataset.restore(0)
    assert columns(dataset) == ()
    dataset.restore(second)
    assert columns(dataset) == ("later",)
    check_invariants(lake)


def test_a_restoration_can_bring_nothing_but_clustering(lake: Lake) -> None:
    dataset = clustered(lake, "t", ["id"])
    before = dataset.version
    cluster(lake, dataset)
    assert dataset.restore(before).version == before + 2
    assert columns(dataset) == ("id",)
    assert dataset.restore(before).version is None
    check_invariants(lake)


def test_a_table_that_is_replaced_is_not_clustered(lake: Lake) -> None:
    dataset = clustered(lake, "t", ["id"])
    dataset.replace(pa.schema([("other", pa.int64())]))
    assert columns(dataset) == ()
    check_invariants(lake)


def test_a_clone_that_replaces_is_clustered_as_its_source(lake: Lake) -> None:
    plain = lake.create_dataset("plain", pa.schema([("other", pa.int64())]))
    source = clustered(lake, "source", ["s", "x"])
    target = clustered(lake, "target", ["id"])
    source.clone("target", replace=True)
    assert columns(target) == ("s.x",)
    plain.clone("target", replace=True)
    assert columns(target) == ()
    check_invariants(lake)


def test_a_new_clone_is_clustered_as_its_source_was(lake: Lake) -> None:
    source = clustered(lake, "source", ["s", "x"])
    before = source.version
    cluster(lake, source)
    assert columns(source.clone("then", before)) == ("s.x",)
    assert columns(source.clone("now")) == ()
    check_invariants(lake)


def test_an_overwrite_of_the_schema_keeps_clustering_by_columns_that_stay(lake: Lake) -> None:
    dataset = clustered(lake, "t", ["id"], ["s", "x"])
    for arriving, kept in (
        (SCHEMA.append(pa.field("more", pa.int64())), ("id", "s.x")),
        (pa.schema([("id", pa.int64()), ("s", pa.struct([("y", pa.int64())]))]), ()),
    ):
        commit(lake, dataset, *plan_overwrite(dataset.snapshot(), arriving, None).actions)
        assert columns(dataset) == kept
    check_invariants(lake)


def test_a_table_that_becomes_partitioned_is_no_longer_clustered(lake: Lake) -> None:
    dataset = clustered(lake, "t", ["id"])
    plan = plan_overwrite(dataset.snapshot(), SCHEMA, ["id"])
    commit(lake, dataset, *plan.actions)
    assert (columns(dataset), dataset.snapshot().metadata.partition_columns) == ((), ("id",))
    check_invariants(lake)
