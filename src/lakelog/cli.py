"""The command ``lakelog``. Each command is a function of this module."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated, Any

import pyarrow.compute as pc

import lakelog
from lakelog.log.deletion_vectors import live_rows

try:
    import typer
    from typer.core import TyperGroup

    from lakelog import terminal
    from lakelog.strict_json import printable
except ModuleNotFoundError as missing:
    sys.exit(f"lakelog: the command line needs {missing.name}: pip install 'lakelog[cli]'")


class _Commands(TyperGroup):
    """An error that Lakelog raises on purpose is a message and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        handler = logging.StreamHandler()
        handler.setFormatter(_Printable("lakelog: %(message)s"))
        handler.setLevel(logging.WARNING)
        logging.getLogger("lakelog").addHandler(handler)
        try:
            return super().invoke(ctx)
        except lakelog.LakelogError as error:
            _say(f"lakelog: {error}", err=True)
            raise typer.Exit(1) from error
        finally:
            logging.getLogger("lakelog").removeHandler(handler)


class _Printable(logging.Formatter):
    """What is logged may hold texts that somebody has stored."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)


app = typer.Typer(
    cls=_Commands,
    help="A lakehouse whose transaction log is a SQL database.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Catalog = Annotated[
    str | None,
    typer.Option(envvar="LAKELOG_CATALOG", help="sqlite:///path, duckdb:///path or postgresql://…", show_default=False),
]
Root = Annotated[Path | None, typer.Option(help="Where new datasets live.", show_default=False)]
Name = Annotated[str, typer.Argument(help="The dataset.", show_default=False)]
Version = Annotated[int | None, typer.Option(help="A version instead of the newest one.", show_default=False)]
Limit = Annotated[int, typer.Option(min=1, help="How many lines at most.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, change nothing.")]


@app.command()
def demo(
    catalog: Annotated[
        str | None, typer.Option(help="sqlite:///path, duckdb:///path or postgresql://…", show_default="SQLite")
    ] = None,
    directory: Annotated[Path, typer.Option(help="For all files; what an earlier demo left there goes.")] = Path(
        "lakelog-demo"
    ),
    rows: Annotated[int, typer.Option(min=1000, help="Events to make up.")] = 2_000_000,
) -> None:
    """Run a pipeline from raw events to figures, and check it."""
    from lakelog.demo.show import Show
    from lakelog.spark import session

    if catalog is not None:
        # What is wrong with it is said before Spark starts.
        lakelog.connect(catalog).close()
    show = Show(terminal.console())
    with show.step("start Spark"):
        show.spark = session(
            "lakelog-demo", config={"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
        )
    from lakelog.demo.run import run

    if not run(show.spark, show, catalog=catalog, directory=directory, rows=rows):
        raise typer.Exit(1)


@app.command()
def datasets(catalog: Catalog = None, root: Root = None) -> None:
    """List the datasets."""
    rows = []
    with _lake(catalog, root) as lake:
        for dataset in lake.datasets():
            files = dataset.snapshot().files(columns=["row_count", "deletion_vector", "size"])
            count, size = (pc.sum(column).as_py() or 0 for column in (live_rows(files), files.column("size")))
            rows.append((dataset.name, dataset.version, files.num_rows, count, _megabytes(size), dataset.location))
    _print(["dataset", "version", "files", "rows", "MB", "location"], rows)


@app.command()
def history(name: Name, catalog: Catalog = None, root: Root = None, limit: Limit = 50) -> None:
    """Show a dataset's commits, newest first."""
    with _lake(catalog, root) as lake:
        terminal.console().print(terminal.history(lake.dataset(name), limit))


@app.command()
def schema(name: Name, catalog: Catalog = None, root: Root = None, version: Version = None) -> None:
    """Show a dataset's columns, and how they came to be so."""
    with _lake(catalog, root) as lake:
        dataset = lake.dataset(name)
        snapshot = dataset.snapshot(version)
        entries = [entry for entry in dataset.schema_history() if entry.introduced_by <= snapshot.version]
    partitions = snapshot.metadata.partition_columns
    columns = [
        (field.name, field.type, "" if field.nullable else "NOT NULL", "partition" if field.name in partitions else "")
        for field in snapshot.schema
    ]
    _print(["column", "type", "", ""], columns)
    if changes := [(entry.introduced_by, change) for entry in entries for change in entry.changes]:
        _print(["version", "change"], changes)


@app.command()
def files(
    name: Name,
    catalog: Catalog = None,
    root: Root = None,
    where: Annotated[str | None, typer.Option(help="Only files that can hold such rows.", show_default=False)] = None,
    version: Version = None,
    limit: Limit = 50,
) -> None:
    """Show a dataset's files, and what a condition leaves of them."""
    wanted = ["path", "row_count", "deletion_vector", "size", "partition_values"]
    with _lake(catalog, root) as lake:
        snapshot = lake.dataset(name).snapshot(version)
        found = snapshot.files(where, columns=wanted, whole=False)
        total = snapshot.files(columns=["path"], whole=False).num_rows
    shown = found.slice(0, limit)
    rows = [
        (row["path"], count, _megabytes(row["size"]), row["partition_values"])
        for row, count in zip(shown.to_pylist(), live_rows(shown).to_pylist(), strict=True)
    ]
    _print(["file", "rows", "MB", "partition"], rows)
    _say(f"{found.num_rows:,} of {total:,} files" + (f", {limit:,} of them shown" if limit < found.num_rows else ""))


@app.command()
def explain(
    name: Name,
    where: Annotated[str, typer.Argument(help="A condition in Spark's SQL.", show_default=False)],
    catalog: Catalog = None,
    root: Root = None,
    version: Version = None,
) -> None:
    """Say how much of a dataset a condition needs, and why."""
    with _lake(catalog, root) as lake:
        _say(str(lake.dataset(name).scan(where, version=version).explain()))


@app.command()
def mirror(
    name: Annotated[str | None, typer.Argument(help="One dataset instead of all.", show_default=False)] = None,
    catalog: Catalog = None,
    root: Root = None,
    publish: Annotated[bool, typer.Option("--publish", help="First publish what is pending.")] = False,
) -> None:
    """Show how far each dataset's _delta_log is."""
    rows = []
    with _lake(catalog, root) as lake:
        for dataset in lake.datasets() if name is None else [lake.dataset(name)]:
            status = dataset.mirror() if publish else dataset.mirror_status()
            rows.append((dataset.name, status.state, status.published, status.pending, status.error or ""))
    _print(["dataset", "mirror", "published", "pending", ""], rows)


@app.command("import-delta")
def import_delta(
    location: Annotated[str, typer.Argument(help="Where the Delta table is.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="Its name from now on.", show_default="its own")] = None,
    catalog: Catalog = None,
    root: Root = None,
    up_to_version: Annotated[int | None, typer.Option(help="The last version to take.", show_default="all")] = None,
    history: Annotated[bool, typer.Option(help="All versions that the log has, or the last one.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and check everything, change nothing.")] = False,
) -> None:
    """Make a dataset of a Delta table. Its files stay where they are."""
    with _lake(catalog, root) as lake, terminal.progress("commits") as progress:
        report = lake.import_delta(
            location, name, up_to_version, history, dry_run=dry_run, progress=None if dry_run else progress
        )
    _say(
        f"{report.name}: {'would have' if dry_run else 'has'} versions {report.first_version} to {report.version}, "
        f"{report.files:,} files at the last"
    )
    if report.dropped_stats:
        _say(f"{report.dropped_stats:,} files have statistics that make no sense, which were left out")


@app.command()
def vacuum(
    name: Name,
    catalog: Catalog = None,
    root: Root = None,
    retention_hours: Annotated[
        float | None, typer.Option(help="Keep what was needed since.", show_default="168, or what the table says")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Keep it for a shorter time than is safe.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Delete files that no version needs any more, and what failed writes left."""
    with _lake(catalog, root) as lake:
        report = lake.dataset(name).vacuum(retention_hours, dry_run=dry_run, force=force)
    for path in report.paths if dry_run else ():
        _say(path)
    _say(
        f"{report.files:,} files with {_megabytes(report.bytes)} MB {'would go' if dry_run else 'are gone'}: "
        f"{report.removed:,} removed from the table, {report.orphans:,} orphans; {report.in_flight:,} stay for writes "
        f"in flight; data is whole from version {report.oldest_version} on"
    )
    _fail_with([f"cannot delete {failure}" for failure in report.failures])


@app.command()
def expire(
    name: Name,
    catalog: Catalog = None,
    root: Root = None,
    older_than: Annotated[
        str | None, typer.Option(help="Keep what was current at this time or later.", show_default=False)
    ] = None,
    keep_last: Annotated[int | None, typer.Option(help="Keep as many versions.", show_default=False)] = None,
    dry_run: DryRun = False,
) -> None:
    """Forget old versions for good."""
    with _lake(catalog, root) as lake:
        _say(str(lake.dataset(name).expire_versions(older_than, keep_last, dry_run=dry_run)))


@app.command()
def check(
    name: Name,
    catalog: Catalog = None,
    root: Root = None,
    quick: Annotated[bool, typer.Option("--quick", help="Look at the sizes of files, and do not read them.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Mend what can be mended safely.")] = False,
) -> None:
    """Look whether a dataset is as it must be; exit code 1 if it is not."""
    with _lake(catalog, root) as lake:
        report = lake.check(name, repair, deep=not quick)
    _say(
        f"{report.dataset}: versions {report.first_version} to {report.version}, {report.files:,} files, "
        f"{len(report.findings):,} findings"
    )
    for finding in report.findings:
        _say(str(finding))
    if not report.is_sound:
        raise typer.Exit(1)


@app.command()
def version() -> None:
    """Show the version of Lakelog."""
    _say(f"lakelog {installed('lakelog')}")


@contextmanager
def _lake(catalog: str | None, root: Path | None) -> Iterator[lakelog.Lake]:
    """A catalog that exists."""
    if catalog is None:
        raise lakelog.ConfigurationError(
            "say which catalog: --catalog sqlite:///path/to/catalog.db, or the environment variable LAKELOG_CATALOG"
        )
    with lakelog.connect(catalog, root, create=False) as lake:
        yield lake


def _say(text: str, *, err: bool = False) -> None:
    typer.echo(printable(text, lines=True), err=err)


def _print(columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    terminal.console().print(terminal.table(columns, rows))


def _fail_with(messages: list[str]) -> None:
    for message in messages:
        _say(f"lakelog: {message}", err=True)
    if messages:
        raise typer.Exit(1)


def _megabytes(size: int) -> float:
    return round(size / 1e6, 2)
