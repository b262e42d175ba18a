"""The statements of the hot path are index searches, with the database's statistics and without."""

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from lakelog import AddFiles, Dataset, Lake, RemoveFiles, SqlTxnLogWriter
from lakelog.catalog.postgres.one_round_trip import statement_of
from lakelog.catalog.tables import TABLES
from lakelog.log.pruning.plan import KeyQuery
from lakelog.log.snapshot.file_groups import TO_READ
from lakelog.log.snapshot.snapshot import FILE_SCHEMA
from tests.contract.samples import add, stats, table
from tests.fixtures.lakes import COLUMNS, Place, administer, qualified

FILES = 3000
"""Added by each of two commits to each of two tables."""

REMOVED = 1500
VERSIONS = 4000

LARGE = ("dl_add_files", "dl_table_versions", "column_stats", "dl_remove_files", "dl_txn_actions")

KEY = {"table_id": 1, "version": 2}
FILE = "x/00042.parquet"

STATEMENTS: dict[str, dict[str, Any]] = {
    "lock_head": {"table_id": 1, "expected": 2},
    "live_path": {"table_id": 1, "path": FILE},
    "live_paths": {"table_id": 1, "paths": [FILE, "x/00043.parquet", "never"]},
    "close_removed": {"table_id": 1, "version": 2},
    "close_file": {"table_id": 1, "version": 1, "ordinal": 42, "removed_version": 3},
    "advance_head": {**KEY, "committed_at": 1, "metadata_version": 0, "protocol_version": 0},
    "commit_by_id": {"commit_id": str(uuid.uuid4())},
    "metadata_at": KEY,
    "protocol_at": KEY,
    "version_at_time": {"table_id": 1, "time": 2_000_000_000_000},
    "first_version": {"table_id": 1},
    "history": {"table_id": 1, "first": 0, "last": 4000, "limit": 10},
    "txn_version": {"table_id": 1, "app_id": "app-7", "version": 3000},
}

PREDICATES = [
    "id = 42",
    "id >= 42 AND id < 50",
    "id IN (1, 42, 2000)",
    "name = 'n00042'",
    "name LIKE 'n0004%'",
    "id = 42 AND name = 'n00042'",
    "id = 42 OR name BETWEEN 'n00010' AND 'n00012'",
]


@dataclass(frozen=True)
class Filled:
    """A catalog with thousands of rows in every large table."""

    place: Place
    lake: Lake
    dataset: Dataset

    def kept_files(self, where: str) -> tuple[str, dict[str, Any]]:
        """What ``Snapshot.files`` asks for a predicate."""
        queries = self.lake.committer.catalog.queries
        keys = KeyQuery(queries, self.dataset.snapshot()._plan(where))
        columns = ", ".join(f"f.{name}" for name in FILE_SCHEMA.names)
        return queries.fill("kept_files", columns=columns, kept=keys.sql), {**KEY, **keys.parameters}

    def feed_files(self) -> tuple[str, dict[str, Any]]:
        """What the change feed asks for the last few of many commits."""
        queries = self.lake.committer.catalog.queries
        columns = ", ".join(f"f.{name}" for name in TO_READ)
        return queries.fill("feed_files", columns=columns), {"table_id": 1, "first": 3990, "last": 4000}

    def small_commit(self) -> tuple[str, dict[str, Any]]:
        """What PostgreSQL is asked for a commit of some files, with the rows of one of the tables."""
        values: dict[str, Any] = {f"v{number}": None for number in range(len(TABLES["dl_add_files"]) - 2)}
        head = {"table_id": 1, "expected": 2, "anywhere": True, "metadata_version": 0, "protocol_version": 0}
        values |= {"commit_id": str(uuid.uuid4()), "created_at": None}
        values |= {"paths": [FILE, "never"], "leases": [FILE, "never"], "format": 0}
        statement = statement_of(self.lake.committer.catalog.queries, (("dl_add_files", False),), has_leases=True)
        return statement, {**head, **values}


@pytest.fixture(scope="module", params=[False, True], ids=["without_statistics", "analyzed"])
def filled_sqlite(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    directory = tmp_path_factory.mktemp("plans")
    place = Place("sqlite", f"sqlite:///{directory / 'catalog.db'}", directory, "lakelog")
    with place.connect() as lake:
        dataset = _fill(lake)
        if request.param:
            with lake.committer.catalog.session() as session:
                session.fetch("ANALYZE", {})
        yield Filled(place, lake, dataset)


@pytest.fixture(scope="module", params=[False, True], ids=["without_statistics", "analyzed"])
def filled_postgres(
    request: pytest.FixtureRequest, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Filled]:
    place = Place("postgres", postgres_url, tmp_path_factory.mktemp("plans"), f"plans_{uuid.uuid4().hex[:12]}")
    with place.connect() as lake:
        # Nothing but the test decides whether the planner has statistics.
        administer(place, *(f"ALTER TABLE {qualified(lake, name)} SET (autovacuum_enabled = off)" for name in COLUMNS))
        dataset = _fill(lake)
        if request.param:
            administer(place, *(f"ANALYZE {qualified(lake, name)}" for name in COLUMNS))
        yield Filled(place, lake, dataset)


def _fill(lake: Lake) -> Dataset:
    datasets = [table(lake, name) for name in ("events", "users")]
    assert datasets[0].id == 1
    for dataset in datasets:
        writer = SqlTxnLogWriter(lake)
        writer.commit(dataset.id, 1, [_files("x")])
        removed = pa.table({"path": [f"x/{number:05}.parquet" for number in range(FILES - REMOVED, FILES)]})
        writer.commit(dataset.id, 2, [RemoveFiles(removed), _files("y")])
        _add_rows(lake, "dl_table_versions", [_version(dataset.id, number) for number in range(3, VERSIONS)])
        _add_rows(
            lake,
            "dl_txn_actions",
            [(dataset.id, f"app-{number % 50}", number, number, None, None) for number in range(3, VERSIONS)],
        )
        _add_rows(lake, "dl_remove_files", [_removed(dataset.id, number) for number in range(3, VERSIONS)])
    return datasets[0]


def _files(directory: str) -> AddFiles:
    numbers = range(FILES)
    return AddFiles(
        pa.table(
            {
                "path": [f"{directory}/{number:05}.parquet" for number in numbers],
                "size": [100] * FILES,
                "stats": [
                    stats(id=(number, number + number % 7), name=(f"n{number:05}", f"n{number + 1:05}"))
                    for number in numbers
                ],
            }
        )
    )


def _version(table_id: int, number: int) -> tuple[Any, ...]:
    return table_id, number, 3_000_000_000_000 + number, str(uuid.uuid4()), None, "WRITE", "{}", None


def _removed(table_id: int, number: int) -> tuple[Any, ...]:
    values = dict.fromkeys(TABLES["dl_remove_files"].names) | {"table_id": table_id, "version": number, "ordinal": 0}
    values |= {"path": f"x/{number:05}.parquet", "data_change": True, "added_version": 1, "added_ordinal": number}
    return tuple(values.values())


def _add_rows(lake: Lake, name: str, rows: list[tuple[Any, ...]]) -> None:
    transaction = lake.committer.catalog.begin((), str(uuid.uuid4()), 60)
    try:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, TABLES[name], strict=True)]
        transaction.insert(name, pa.table(arrays, TABLES[name]))
        transaction.commit()
    finally:
        transaction.rollback()


# SQLite


def _sqlite_plan(filled: Filled, statement: str, parameters: dict[str, Any]) -> list[str]:
    with filled.lake.committer.catalog.session() as session:
        return [row[3] for row in session.fetch(f"EXPLAIN QUERY PLAN {statement}", parameters)]


SMALL = r"SCAN (kept|spans|keys|k|p VIRTUAL TABLE.*|CONSTANT ROW|\d+ CONSTANT ROWS?|\(subquery-\d+\)|\(join-\d+\))"


def _sqlite_faults(plan: list[str]) -> list[str]:
    """Scans of what can be large, and searches that only find a table's own rows."""
    scans = [line for line in plan if line.startswith("SCAN") and not re.fullmatch(SMALL, line)]
    return scans + [line for line in plan if re.search(r"\(table_id=\?\)|AUTOMATIC", line)]


@pytest.mark.parametrize("name", STATEMENTS)
def test_sqlite_searches_an_index(filled_sqlite: Filled, name: str) -> None:
    statement = filled_sqlite.lake.committer.catalog.queries[name]
    plan = _sqlite_plan(filled_sqlite, statement, STATEMENTS[name])
    assert plan != []
    allowed = {"SEARCH dl_table_versions USING INDEX sqlite_autoindex_dl_table_versions_1 (table_id=?)"}
    faults = set(_sqlite_faults(plan))
    # The first version is the first entry of the index, and nothing more is read.
    assert faults <= (allowed if name == "first_version" else set()), plan


@pytest.mark.parametrize("where", PREDICATES)
def test_sqlite_finds_the_files_of_a_predicate_by_index(filled_sqlite: Filled, where: str) -> None:
    plan = _sqlite_plan(filled_sqlite, *filled_sqlite.kept_files(where))
    assert _sqlite_faults(plan) == [], plan
    assert any("column_name=?" in line for line in plan)


def test_sqlite_finds_the_changes_of_a_range_by_index(filled_sqlite: Filled) -> None:
    plan = _sqlite_plan(filled_sqlite, *filled_sqlite.feed_files())
    assert plan != []
    assert _sqlite_faults(plan) == [], plan


def test_a_scan_of_sqlite_would_be_noticed(filled_sqlite: Filled) -> None:
    for statement in (
        "SELECT * FROM dl_add_files f WHERE size = 1",
        "SELECT * FROM dl_add_files WHERE table_id = 1 AND size = 1",
        "SELECT sum(null_count) FROM column_stats",
    ):
        assert _sqlite_faults(_sqlite_plan(filled_sqlite, statement, {})) != []


# PostgreSQL


def _postgres_plan(filled: Filled, statement: str, parameters: dict[str, Any], generic: bool = False) -> Any:
    literals = {
        key: "{" + ",".join(f'"{each}"' for each in value) + "}" if isinstance(value, list) else value
        for key, value in parameters.items()
    }
    with psycopg.connect(filled.place.url) as connection, psycopg.ClientCursor(connection) as cursor:
        if generic:
            names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
            numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", statement)
            cursor.execute("SET plan_cache_mode = force_generic_plan")
            cursor.execute(f"PREPARE statement AS {numbered.replace('%%', '%')}".encode())
            arguments = ", ".join(f"%({name})s" for name in names)
            cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE statement ({arguments})", literals)
        else:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}", literals)
        return cursor.fetchone()[0][0]["Plan"]  # type: ignore[index]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _postgres_faults(plan: dict[str, Any]) -> list[str]:
    faults = []
    for node in _nodes(plan):
        relation, index = node.get("Relation Name"), node.get("Index Name", "")
        large = relation in LARGE or index.startswith(LARGE)
        kind = node["Node Type"]
        if not large or kind in ("Bitmap Heap Scan", "ModifyTable", "Tid Scan"):
            continue
        columns = set(re.findall(r"\b(?:\w+\.)?(\w+) (?:=|<=|>=|<|>) ", node.get("Index Cond", "")))
        hashed = "hashtextextended" in node.get("Index Cond", "")
        if kind not in ("Index Scan", "Index Only Scan", "Bitmap Index Scan") or (
            columns <= {"table_id"} and not hashed
        ):
            faults.append(f"{kind} of {relation or index} by {node.get('Index Cond')}")
    return faults


@pytest.mark.parametrize("generic", [False, True], ids=["by_values", "prepared"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_postgres_searches_an_index(filled_postgres: Filled, name: str, generic: bool) -> None:
    statement = filled_postgres.lake.committer.catalog.queries[name]
    plan = _postgres_plan(filled_postgres, statement, STATEMENTS[name], generic)
    # The first version is the first entry of the index, and nothing more is read.
    first = [f"Index Scan of dl_table_versions by (table_id = {'$1' if generic else 1})"]
    faults = [each for each in _postgres_faults(plan) if name != "first_version" or each not in first]
    assert faults == [], json.dumps(plan, indent=1)


@pytest.fixture(scope="module")
def young_postgres(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A table of a few commits, of which the planner knows nothing yet."""
    place = Place("postgres", postgres_url, tmp_path_factory.mktemp("plans"), f"plans_{uuid.uuid4().hex[:12]}")
    with place.connect() as lake:
        administer(place, *(f"ALTER TABLE {qualified(lake, name)} SET (autovacuum_enabled = off)" for name in COLUMNS))
        dataset = table(lake, "events")
        for version in range(1, 13):
            SqlTxnLogWriter(lake).commit(dataset.id, version, [add(f"{version}.parquet")])
        yield Filled(place, lake, dataset)


@pytest.mark.parametrize("name", ["lock_head", "live_path", "live_paths", "txn_version"])
def test_what_postgres_prepares_for_a_young_table_serves_it_when_it_has_grown(
    young_postgres: Filled, name: str
) -> None:
    """A session keeps its plans: one that reads all rows of a table is fast only until there are many."""
    statement = young_postgres.lake.committer.catalog.queries[name]
    plan = _postgres_plan(young_postgres, statement, STATEMENTS[name], generic=True)
    assert _postgres_faults(plan) == [], json.dumps(plan, indent=1)


@pytest.mark.parametrize("where", PREDICATES)
def test_postgres_finds_the_files_of_a_predicate_by_index(filled_postgres: Filled, where: str) -> None:
    plan = _postgres_plan(filled_postgres, *filled_postgres.kept_files(where))
    assert _postgres_faults(plan) == [], json.dumps(plan, indent=1)
    assert any("column_name" in node.get("Index Cond", "") for node in _nodes(plan))


@pytest.mark.parametrize("generic", [False, True], ids=["by_values", "prepared"])
def test_postgres_finds_the_changes_of_a_range_by_index(filled_postgres: Filled, generic: bool) -> None:
    plan = _postgres_plan(filled_postgres, *filled_postgres.feed_files(), generic)
    assert _postgres_faults(plan) == [], json.dumps(plan, indent=1)


@pytest.mark.parametrize("generic", [False, True], ids=["by_values", "prepared"])
def test_postgres_makes_a_small_commit_by_index(filled_postgres: Filled, young_postgres: Filled, generic: bool) -> None:
    for filled in (filled_postgres, young_postgres):
        plan = _postgres_plan(filled, *filled.small_commit(), generic)
        assert _postgres_faults(plan) == [], json.dumps(plan, indent=1)
        assert any("hashtextextended" in node.get("Index Cond", "") for node in _nodes(plan))


def test_a_scan_of_postgres_would_be_noticed(filled_postgres: Filled) -> None:
    add_files, column_stats = (qualified(filled_postgres.lake, name) for name in ("dl_add_files", "column_stats"))
    for statement in (
        f"SELECT * FROM {add_files} WHERE size = 1",
        f"SELECT count(*) FROM {column_stats} WHERE table_id = 1",
        f"SELECT * FROM {add_files} f JOIN {column_stats} c USING (table_id, version, ordinal)",
    ):
        assert _postgres_faults(_postgres_plan(filled_postgres, statement, {})) != []


@pytest.mark.parametrize("where", PREDICATES)
def test_the_plans_are_of_statements_that_find_the_right_files(
    filled_sqlite: Filled, filled_postgres: Filled, where: str
) -> None:
    found = [
        sorted(each.dataset.snapshot(version=2).files(where, columns=["path"]).column("path").to_pylist())
        for each in (filled_sqlite, filled_postgres)
    ]
    assert found[0] == found[1]
    assert len(found[0]) < 50
