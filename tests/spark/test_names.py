"""Names of datasets are folded as Spark folds its own, and its SQL never reads a dataset for another one."""

import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakelog
from lakelog import Lake, ValidationError, read_dataset, write_dataset
from lakelog.catalog.name_key import name_key
from lakelog.spark import LakeTable, attach
from tests.fixtures.lakes import execute, forget_keys, qualified


@pytest.fixture(autouse=True)
def no_views(spark: SparkSession) -> Iterator[None]:
    """Other tests may have left some in the session."""
    for table in spark.catalog.listTables():
        spark.catalog.dropTempView(table.name)
    yield
    for table in spark.catalog.listTables():
        spark.catalog.dropTempView(table.name)


def _cased(jvm: Any) -> tuple[list[str], dict[str, str]]:
    """The letters that both have and that have a case for Python or Java, and how Spark's catalog lowers them.

    The one may be of a later Unicode than the other, with letters that the other knows nothing of.
    """
    letters = [
        chr(code)
        for code in range(128, sys.maxunicode + 1)
        if unicodedata.category(chr(code)) not in ("Cn", "Cs") and code != 0x85
    ]
    text = "\n".join(letters)
    root = jvm.java.util.Locale.ROOT
    strings = jvm.org.apache.commons.lang3.StringUtils
    lowered, uppered = strings.lowerCase(text, root).split("\n"), strings.upperCase(text, root).split("\n")
    found = [
        letter
        for letter, low, up in zip(letters, lowered, uppered, strict=True)
        if {letter.lower(), letter.upper(), letter.title(), low, up} != {letter}
        and jvm.java.lang.Character.isDefined(ord(letter))
    ]
    return found, dict(zip(letters, lowered, strict=True))


def test_names_are_folded_as_spark_resolves_them(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    package = getattr(jvm.org.apache.spark.sql.catalyst.analysis, "package$")
    resolver = getattr(package, "MODULE$").caseInsensitiveResolution()
    letters, lowered = _cased(jvm)
    assert len(letters) > 2500
    assert [letter for letter in letters if not resolver.apply(letter, name_key(letter))] == []
    assert [letter for letter in letters if name_key(lowered[letter]) != name_key(letter)] == []
    character = jvm.java.lang.Character
    classes: dict[int, set[str]] = defaultdict(set)
    for letter in [*map(chr, range(128)), *letters]:
        classes[character.toLowerCase(character.toUpperCase(ord(letter)))].add(name_key(letter))
    assert [keys for keys in classes.values() if len(keys) > 1] == []


@pytest.mark.parametrize(
    ("name", "other"),
    [("Orders", "oRDERS"), ("ΣΊΣΥΦΟΣ", "σίσυφος"), ("DIŞ", "diş"), ("𐐀", "𐐨"), ("\u212aelvin", "kelvin")],
)
def test_sql_finds_a_dataset_in_every_spelling(local: Lake, spark: SparkSession, name: str, other: str) -> None:
    write_dataset(local, name, spark.range(3).coalesce(1))
    with attach(spark, local):
        for spelling in (name, other):
            assert local.sql(f"SELECT count(*) FROM `{spelling}`", spark=spark).first()[0] == 3
            assert spark.sql(f"SELECT count(*) FROM `{spelling}`").first()[0] == 3
            assert LakeTable.forName(spark, spelling).toDF().count() == 3


def test_a_rename_that_changes_the_case_alone_is_seen_after_a_refresh(local: Lake, spark: SparkSession) -> None:
    write_dataset(local, "orders", spark.range(3).coalesce(1))
    with attach(spark, local) as attached:
        assert spark.table("orders").count() == 3
        local.rename_dataset("orders", "Orders")
        write_dataset(local, "ORDERS", spark.range(2).coalesce(1))
        attached.refresh()
        assert spark.table("orders").count() == 5
        assert attached.versions == {"Orders": 1}


def test_a_transaction_takes_two_spellings_for_one_table(local: Lake, spark: SparkSession) -> None:
    write_dataset(local, "Orders", spark.range(3).coalesce(1))
    with local.transaction(spark=spark) as transaction:
        transaction.write("orders", spark.range(3, 5).coalesce(1))
        transaction.delete("ORDERS", "id = 4")
        assert transaction.read("oRDERS").count() == 4
    assert local.versions() == {"Orders": 1}
    assert read_dataset(local, "orders", spark=spark).count() == 4


def test_of_twins_sql_reads_the_one_that_is_meant_or_none(local: Lake, tmp_path: Path, spark: SparkSession) -> None:
    for name, count in (("Orders", 3), ("other", 5)):
        write_dataset(local, name, spark.range(count).coalesce(1))
    forget_keys(local)
    execute(local, f"UPDATE {qualified(local, 'dl_tables')} SET name = 'orders' WHERE name = 'other'")
    with lakelog.connect(f"sqlite:///{tmp_path}/catalog.db", tmp_path / "lake", upgrade=True) as twins:
        for name, count in (("Orders", 3), ("orders", 5)):
            assert twins.sql(f"SELECT count(*) FROM {name}", spark=spark).first()[0] == count
            assert read_dataset(twins, name, spark=spark).count() == count
        for query in (
            "SELECT * FROM ORDERS",
            "SELECT orders.id FROM Orders",
            "SELECT * FROM Orders JOIN orders USING (id)",
        ):
            with pytest.raises(ValidationError, match="differs from another dataset only by case"):
                twins.sql(query, spark=spark)
        with attach(spark, twins) as attached:
            # Each in turn, though Spark has one view for both.
            for name, count in (("Orders", 3), ("orders", 5), ("Orders", 3)):
                assert rows_of(spark.sql(f"SELECT count(*) FROM {name}")) == spark.table(name).count() == count
            for query in ("SELECT * FROM ORDERS", "SELECT * FROM Orders JOIN orders USING (id)"):
                with pytest.raises(ValidationError, match="differs from another dataset only by case"):
                    spark.sql(query)
            write_dataset(twins, "Orders", spark.range(4).coalesce(1))
            attached.refresh()
            assert (spark.table("Orders").count(), spark.table("orders").count()) == (7, 5)
        assert spark.catalog.listTables() == []
        twins.dataset("Orders").restore(version=0)
        twins.rename_dataset("orders", "later")
        assert twins.sql("SELECT count(*) FROM ORDERS", spark=spark).first()[0] == 3


def rows_of(frame: Any) -> int:
    return int(frame.first()[0])


def test_a_view_shows_the_dataset_that_had_the_name_and_no_other(local: Lake, spark: SparkSession) -> None:
    """Though it has the name no longer, and another one has it by now, at the same version."""
    for name, count in (("orders", 3), ("parts", 4)):
        write_dataset(local, name, spark.range(count).coalesce(1))
    with attach(spark, local) as attached:
        assert spark.table("orders").count() == 3
        for name in ("orders", "parts"):
            local.rename_dataset(name, f"old_{name}")
            write_dataset(local, name, spark.range(9).coalesce(1))
        # One was looked at before, and the other was not.
        assert (spark.table("orders").count(), spark.table("parts").count()) == (3, 4)
        attached.refresh()
        found = {name: spark.table(name).count() for name in ("orders", "parts", "old_orders", "old_parts")}
        assert found == {"orders": 9, "parts": 9, "old_orders": 3, "old_parts": 4}
        local.drop_dataset("orders")
        write_dataset(local, "orders", spark.range(2).coalesce(1))
        attached.refresh()
        assert spark.table("orders").count() == 2


def test_a_query_reads_the_datasets_that_had_the_names_when_it_began(
    local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(local, "orders", spark.range(3).coalesce(1))
    heads = local.heads

    def then_others() -> Any:
        found = heads()
        monkeypatch.undo()
        local.rename_dataset("orders", "old")
        write_dataset(local, "orders", spark.range(9).coalesce(1))
        return found

    monkeypatch.setattr(local, "heads", then_others)
    assert rows_of(local.sql("SELECT count(*) FROM orders", spark=spark)) == 3
    assert rows_of(local.sql("SELECT count(*) FROM orders", spark=spark)) == 9


def test_a_batch_that_was_committed_is_known_whatever_its_table_is_called_by_now(
    local: Lake, spark: SparkSession
) -> None:
    batch = {"txn_app_id": "etl", "txn_version": 1}
    write_dataset(local, "orders", spark.range(3).coalesce(1))
    with local.transaction(spark=spark) as transaction:
        local.rename_dataset("orders", "old")
        write_dataset(local, "orders", spark.range(9).coalesce(1))
        write_dataset(local, "orders", spark.range(1).coalesce(1), **batch)
        # Of the table that it began with, which has no such batch.
        transaction.write("orders", spark.range(3, 5).coalesce(1), **batch)
    assert local.dataset("old").count() == 5
    assert local.dataset("old").txn_version("etl") == local.txn_version("orders", "etl") == 1
