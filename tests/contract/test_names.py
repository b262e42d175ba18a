"""Names without regard to case: one dataset has a name in all its spellings, and old catalogs with twins still work."""

from collections.abc import Callable

import pytest

from lakelog import DatasetExistsError, DatasetNotFoundError, Lake, ValidationError
from tests.contract.samples import add, commit, paths, table
from tests.fixtures.lakes import execute, forget_keys, qualified, rows

Connect = Callable[..., Lake]

SPELLINGS = [
    ("Orders", "oRDERS"),
    ("ÄÖÜ", "äöü"),
    ("ΣΊΣΥΦΟΣ", "σίσυφος"),
    ("İstanbul", "istanbul"),
    ("DIŞ", "dış"),
    ("𐐀", "𐐨"),
    ("\u212aelvin \u017f", "kelvin s"),
]


@pytest.mark.parametrize(("name", "other"), SPELLINGS)
def test_a_dataset_is_found_in_every_spelling_and_keeps_its_own(lake: Lake, name: str, other: str) -> None:
    dataset = table(lake, name, mirror=False)
    for spelling in (name, other):
        found = lake.dataset(spelling)
        assert (found.id, found.name) == (dataset.id, name)
        with pytest.raises(DatasetExistsError, match=f"'{name}'"):
            table(lake, spelling, mirror=False)
    assert list(lake.versions()) == [name]
    lake.drop_dataset(other)
    assert lake.versions() == {}
    assert table(lake, other, mirror=False).name == other


@pytest.mark.parametrize("name", ["strasse", "straße"])
def test_letters_that_spark_tells_apart_make_other_names(lake: Lake, name: str) -> None:
    table(lake, {"strasse": "STRAßE", "straße": "STRASSE"}[name], mirror=False)
    table(lake, name, mirror=False)
    assert len(lake.versions()) == 2


def test_a_rename_may_change_the_case_alone(lake: Lake, other_lake: Lake) -> None:
    dataset = table(lake, "orders", mirror=False)
    assert lake.rename_dataset("ORDERS", "Orders").name == "Orders"
    assert other_lake.dataset("orders").name == "Orders"
    assert other_lake.dataset("Orders").id == dataset.id
    table(lake, "other", mirror=False)
    with pytest.raises(DatasetExistsError, match="'Orders'"):
        lake.rename_dataset("other", "oRDERS")
    assert list(lake.versions()) == ["Orders", "other"]


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_the_database_itself_refuses_a_second_spelling(lake: Lake) -> None:
    """Two creators who come at once have both seen that the name is free. DuckDB has one writer, which looks first."""
    dataset = table(lake, "orders", mirror=False)
    values = {"name": "Orders", "name_key": rows(lake, "dl_tables")[0]["name_key"], "location": "/x", "created_at": 0}
    assert dataset.name == "orders"
    transaction = lake.committer.catalog.begin((), "none", lake.committer.timeout)
    try:
        with pytest.raises(Exception, match="dl_tables_live_name"):
            transaction.fetch(lake.committer.catalog.queries["create_table"], values)
    finally:
        transaction.rollback()


@pytest.fixture
def twins(connect: Connect) -> Lake:
    """An old catalog, with two datasets that differ by case, upgraded."""
    lake = connect()
    for name in ("Orders", "other", "alone"):
        commit(lake, table(lake, name, mirror=False), add(f"{name}.parquet"))
    table(lake, "ORDERS_", mirror=False)
    lake.drop_dataset("ORDERS_")
    forget_keys(lake)
    execute(
        lake,
        f"UPDATE {qualified(lake, 'dl_tables')} SET name = 'orders' WHERE name = 'other'",
        f"UPDATE {qualified(lake, 'dl_tables')} SET name = 'oRDERS' WHERE name = 'ORDERS_'",
    )
    lake.close()
    return connect(upgrade=True)


def test_twins_are_found_by_their_exact_names_only(twins: Lake) -> None:
    assert list(twins.versions()) == ["Orders", "alone", "orders"]
    assert paths(twins.dataset("Orders").snapshot().files()) == ["Orders.parquet"]
    assert paths(twins.dataset("orders").snapshot().files()) == ["other.parquet"]
    commit(twins, twins.dataset("Orders"), add("b.parquet"))
    for refused in (twins.dataset, twins.drop_dataset, lambda name: twins.rename_dataset(name, "x")):
        with pytest.raises(ValidationError, match=r"(?s)'Orders': .*'orders': .*rename_dataset"):
            refused("ORDERS")
    with pytest.raises(DatasetExistsError, match="'Orders'"):
        table(twins, "oRDERS", mirror=False)
    with pytest.raises(DatasetExistsError, match="'Orders'"):
        twins.rename_dataset("alone", "orderS")
    assert twins.dataset("ALONE").name == "alone"


def test_renaming_one_of_two_twins_ends_it(twins: Lake) -> None:
    with pytest.raises(DatasetExistsError, match="'orders'"):
        twins.rename_dataset("Orders", "ORDERS")
    assert twins.rename_dataset("Orders", "orders_old").name == "orders_old"
    assert paths(twins.dataset("ORDERS").snapshot().files()) == ["other.parquet"]
    with pytest.raises(DatasetExistsError, match="'orders'"):
        twins.rename_dataset("orders_old", "Orders")
    assert twins.rename_dataset("ORDERS", "Orders").name == "Orders"
    assert [row["has_twin"] for row in rows(twins, "dl_tables")] == [False] * 4


def test_a_twin_that_is_dropped_leaves_the_name_to_the_other(twins: Lake) -> None:
    twins.drop_dataset("orders")
    assert paths(twins.dataset("oRdErS").snapshot().files()) == ["Orders.parquet"]
    twins.drop_dataset("ORDERS")
    with pytest.raises(DatasetNotFoundError):
        twins.dataset("Orders")
