"""``docs/requirements.md`` names every scenario of the specifications, and only tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "requirements.md").read_text()

SCENARIOS: dict[str, dict[str, list[str]]] = {
    "Catalog transactions: requirements": {
        "Versioned Transaction Log": ["Successful commit increments version"],
        "Optimistic Concurrency Control for Writers": ["Two writers race to commit"],
        "Atomic Catalog Updates": ["Failure rolls back catalog changes"],
        "Locking Strategy Per Backend": ["Acquire exclusive commit lock"],
    },
    "Writer of the SQL transaction log: requirements": {
        "Atomic Commit": ["Successful commit", "Transaction rollback"],
        "Optimistic Concurrency Control": ["Version validation", "Concurrent writer conflict", "Row-level locking"],
        "Action Persistence": [
            "Add file actions",
            "Remove file actions",
            "Metadata update",
            "Protocol update",
            "Transaction action",
        ],
        "Batch Operations": ["Large commit", "Batch performance"],
        "Idempotency": ["Duplicate commit"],
        "Validation": ["Invalid action schema", "Protocol compatibility"],
        "Version Tracking": ["Recording operation", "Preserving history"],
        "Error Reporting": ["Version conflict details", "Constraint violation"],
        "Transaction Isolation": ["Read committed isolation", "Serializable for conflicts"],
    },
    "Schema evolution: requirements": {
        "Schema Versioning": ["Record new schema version"],
        "Schema Merge Behavior": ["Add new nullable column", "Type widening promotion"],
        "Strict Mode and Schema Mismatch Errors": ["Incompatible type without promotion", "Promotion to string/utf8"],
    },
    "Catalog transactions: decisions": {
        "Transaction Manager": [
            "begin takes the lock and reads the version",
            "commit writes all entries and the version at once",
            "rollback releases the lock and leaves nothing",
            "a stale base version is a ConcurrencyError",
        ],
        "Catalog Updates": ["one version more than the base, with its records", "a failure leaves no partial state"],
        "Locking Strategy": [
            "SQLite and DuckDB: one exclusive transaction",
            "PostgreSQL: an advisory lock for each dataset",
        ],
        "API Changes": ["write_dataset takes a base_version and returns the version"],
        "Open Questions": ["a read sees the snapshot of the version at its start"],
    },
    "Writer of the SQL transaction log: decisions": {
        "Optimistic Concurrency": ["SELECT FOR UPDATE with a version check"],
        "Batch Insertion Strategy": ["multi-row INSERT up to 1,000 rows, then COPY"],
        "Transaction Lifecycle": ["one transaction from the lock to the commit"],
        "Error Handling and Retry": ["each failure has a type of its own, and the caller retries"],
        "Idempotency Handling": ["a duplicate version is refused by the database"],
        "Action Validation": [
            "required fields",
            "protocol versions",
            "partition values match the partition columns",
            "file paths",
        ],
        "Risks": ["long transactions are noticed", "locks in one order", "connection pool exhaustion", "SQL injection"],
    },
}
"""The scenarios of the specifications by heading of the page and requirement, and the decisions of their designs."""

PLANNED = {("Catalog transactions: decisions", "API Changes")}
"""What later work may still show."""

NAMED = sorted(set(re.findall(r"`(tests/[^`]*::[^`]*)`", PAGE)))


def page_rows(heading: str) -> dict[tuple[str, str], str]:
    """What the table below a heading says shows each scenario."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {(requirement.strip(), scenario.strip()): shown for requirement, scenario, shown in lines[1:]}


def names_of_tests(path: Path) -> set[str]:
    """The tests of a file, read without importing it."""
    tree = ast.parse(path.read_text())
    scopes = {"": tree.body} | {f"{node.name}::": node.body for node in tree.body if isinstance(node, ast.ClassDef)}
    return {
        scope + node.name
        for scope, nodes in scopes.items()
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("heading", SCENARIOS)
def test_every_scenario_is_on_the_page_and_nothing_else(heading: str) -> None:
    expected = [(requirement, each) for requirement, scenarios in SCENARIOS[heading].items() for each in scenarios]
    assert list(page_rows(heading)) == expected


@pytest.mark.parametrize("heading", SCENARIOS)
def test_every_scenario_is_shown_by_a_test_or_may_be_planned(heading: str) -> None:
    unshown = [
        scenario
        for (requirement, scenario), shown in page_rows(heading).items()
        if not re.search(r"`tests/[^`]*::(?:\w+::)?test_\w+`", shown)
        and not ("planned" in shown and (heading, requirement) in PLANNED)
    ]
    assert unshown == []


@pytest.mark.parametrize("name", NAMED)
def test_a_test_named_on_the_page_exists(name: str) -> None:
    file, _, test = name.partition("::")
    assert (ROOT / file).is_file(), f"there is no file {file}"
    assert test in names_of_tests(ROOT / file), f"{file} has no test {test}"


def test_every_view_that_stands_for_a_table_is_named_as_a_difference() -> None:
    definitions = (ROOT / "src" / "lakelog" / "catalog" / "sql" / "schema.sqlite.sql").read_text()
    views = re.findall(r"CREATE VIEW (\w+)", definitions)
    differences = PAGE.partition("## Where Lakelog differs")[2]
    assert views, "the pattern finds no view"
    assert [view for view in views if f"`{view}`" not in differences] == []
