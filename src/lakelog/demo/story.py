"""The demo's chapters: each runs a part of the pipeline and shows what happened."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakelog import ConcurrencyError, Lake, SchemaMismatchError, WriteResult, read_dataset, write_dataset
from lakelog.demo import pipeline
from lakelog.demo.events import DELIVERIES, RELEASE, Shop, day
from lakelog.demo.pipeline import BRONZE, GOLD, NEW_APP, OLD_APP, QUARANTINE, SILVER, rows_of
from lakelog.demo.race import RATINGS, race
from lakelog.demo.show import Show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Two numbers that have to be the same."""

    text: str
    expected: Any
    found: Any

    @property
    def holds(self) -> bool:
        return bool(self.expected == self.found)


@dataclass(kw_only=True)
class Demo:
    """A run of the demo, and what it claims so far."""

    spark: "SparkSession"
    lake: Lake
    url: str
    directory: Path
    shop: Shop
    show: Show
    claims: list[Claim] = field(default_factory=list)

    def claim(self, text: str, expected: Any, found: Any) -> None:
        self.claims.append(Claim(text=text, expected=expected, found=found))

    def ingest(self) -> int:
        """Takes in what has landed. Gives the number of the stream's last batch."""
        checkpoint = str(self.directory / "checkpoint")
        query = pipeline.ingest(self.spark, self.lake, str(self.directory / "landing"), checkpoint)
        return int((query.lastProgress or {"batchId": -1})["batchId"])


def first_days(demo: Demo) -> None:
    """Bronze, silver and gold come into being."""
    demo.show.chapter(f"1. A web shop delivers {RELEASE} days of events: some late, some broken, some sent twice")
    _deliver(demo, 0, RELEASE - 1)
    lines = read_dataset(demo.lake, BRONZE, where=f"delivery < '{day(RELEASE)}'")
    checked = pipeline.check(lines, OLD_APP)
    with demo.show.step("write quarantine: lines that are no events"):
        refused = pipeline.quarantine(demo.lake, checked, batch=0)
    with demo.show.step("write silver: events, each once, by day"):
        refined = pipeline.refine(demo.lake, checked, batch=0)
    _aggregate(demo, refined)
    demo.show.table(
        ["dataset", "version", "rows", "files"],
        [
            (BRONZE, demo.lake.dataset(BRONZE).version, rows_of(demo.lake, BRONZE), _files(demo.lake, BRONZE)),
            (QUARANTINE, refused.version, refused.rows, refused.files),
            (SILVER, refined.version, refined.rows, refined.files),
        ],
    )


def new_release(demo: Demo) -> None:
    """Silver's schema changes, and only some days of gold."""
    show = demo.show
    show.chapter("2. The shop's new app sends one column more, and user ids that need 64 bits")
    _deliver(demo, RELEASE, DELIVERIES - 1)
    lines = read_dataset(demo.lake, BRONZE, where=f"delivery >= '{day(RELEASE)}'")
    checked = pipeline.check(lines, NEW_APP)
    with show.step("write quarantine"):
        pipeline.quarantine(demo.lake, checked, batch=1)
    _show_refusal(demo, checked)
    with show.step("write silver with schema_merge: schema and rows in one commit"):
        refined = pipeline.refine(demo.lake, checked, batch=1, schema_merge=True)
    entries = demo.lake.dataset(SILVER).schema_history()
    changes = [(entry.introduced_by, change) for entry in reversed(entries) for change in entry.changes]
    show.table(["silver's version", "change of its schema"], changes)
    _aggregate(demo, refined)
    sums = [F.sum(name).alias(name) for name in ("events", "orders", "revenue")]
    best = read_dataset(demo.lake, GOLD).groupBy("country").agg(*sums).orderBy(F.desc("revenue")).limit(5)
    show.table(best.columns, best.collect())
    demo.claim("gold counts every event of silver", rows_of(demo.lake, SILVER), pipeline.totals(demo.lake)[0])


def two_writers(demo: Demo) -> None:
    """Both append to one dataset: one loses, tries again, and nothing is lost."""
    show, lake = demo.show, demo.lake
    # A DuckDB catalog belongs to one process.
    processes = not demo.url.startswith("duckdb:")
    show.chapter(f"3. Two {'processes' if processes else 'threads'} append to one dataset at once")
    empty = demo.spark.createDataFrame([], "writer STRING, product BIGINT, stars INT")
    write_dataset(lake, RATINGS, empty)
    with show.step("race"):
        finishes = race(demo.url, str(lake.root), processes=processes)
    show.table(
        ["writer", "versions", "rows", "races lost"],
        [(each.writer, ", ".join(map(str, each.versions)), each.rows, len(each.lost)) for each in finishes],
    )
    for line in [line for each in finishes for line in each.lost][:1]:
        show.say(f"The log of one that lost: {line}")
    show.history(lake.dataset(RATINGS))
    made = {version for each in finishes for version in each.versions}
    demo.claim("each append made a version of its own", len(made), lake.dataset(RATINGS).version)
    demo.claim("all rows of both writers are there", sum(each.rows for each in finishes), rows_of(lake, RATINGS))


def lost_update(demo: Demo) -> None:
    """Both change what they read: the second is refused."""
    show, lake = demo.show, demo.lake
    show.chapter("4. Two analysts correct the same day, both from the version that they have read")
    corrected = str(day(RELEASE))
    figures = read_dataset(lake, GOLD, where=f"day = '{corrected}'")
    read = lake.dataset(GOLD).version_of(figures)
    with show.step(f"the first corrects {corrected}"):
        result = pipeline.correct(lake, figures, corrected, percent=5)
    show.say(
        f"The first has read version {read} and makes version {result.version}. The second, from the same version:"
    )
    try:
        pipeline.correct(lake, figures, corrected, percent=10)
        refusal = "none"
    except ConcurrencyError as error:
        refusal = type(error).__name__
        show.quote(f"{refusal}: {error}")
    demo.claim("the second correction was refused", "VersionConflict", refusal)
    demo.claim("and has changed nothing", result.version, lake.dataset(GOLD).version)


def replay(demo: Demo) -> None:
    """A batch that Spark sends again changes nothing."""
    show, bronze = demo.show, demo.lake.dataset(BRONZE)
    show.chapter("5. Spark dies after Lakelog's commit and before its own: the stream's last batch comes again")
    before = (bronze.version, rows_of(demo.lake, BRONZE))
    commits = demo.directory / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    with show.step(f"start the stream again, from batch {last}"):
        again = demo.ingest()
    after = (bronze.version, rows_of(demo.lake, BRONZE))
    show.table(["bronze", "version", "rows"], [("before", *before), (f"after batch {again} again", *after)])
    demo.claim("Spark repeated its last batch", last, again)
    demo.claim("a repeated batch makes no version", before[0], after[0])
    demo.claim("a repeated batch adds no row", before[1], after[1])


def time_travel(demo: Demo) -> None:
    """The same question to every version."""
    show, lake, gold = demo.show, demo.lake, demo.lake.dataset(GOLD)
    show.chapter("6. The same question to gold as it was, and as it is")
    commits = list(reversed(gold.history()))
    with show.step("ask every version"):
        answers = [pipeline.totals(lake, version=commit.version) for commit in commits]
    moment = commits[1].timestamp
    by_time = pipeline.totals(lake, timestamp=moment)
    rows = [(f"version={each.version}", *answer) for each, answer in zip(commits, answers, strict=True)]
    show.table(
        ["read_dataset(…)", "events", "revenue"], [*rows, (f"timestamp='{moment:%Y-%m-%d %H:%M:%S.%f}'", *by_time)]
    )
    old, new = (len(lake.dataset(SILVER).schema(version=version)) for version in (0, None))
    show.say(f"Silver has {new} columns, and had {old} at version 0.")
    demo.claim("a version's time finds that version", commits[1].version, gold.snapshot(timestamp=moment).version)
    demo.claim("gold's revenue was that of silver", _revenue(lake), answers[1][1])


def pruning(demo: Demo) -> None:
    """The catalog leaves out files, and Spark never sees them."""
    show = demo.show
    show.chapter("7. Conditions are answered by the catalog first")
    conditions = [
        (SILVER, f"day = '{day(RELEASE)}'"),
        (SILVER, f"user_id >= {2**31}"),
        (BRONZE, f"delivery = '{day(1)}'"),
    ]
    rows = []
    for name, where in conditions:
        kept, files = pipeline.pruned(demo.lake, name, where)
        rows.append((name, where, kept, files))
    show.table(["dataset", "where", "files read", "of"], rows)
    name, where = conditions[0]
    with show.step(f"count {where}"):
        counted = read_dataset(demo.lake, name, where=where).count()
    by_hand = read_dataset(demo.lake, name).where(f"date_format(day, 'yyyy-MM-dd') = '{day(RELEASE)}'").count()
    demo.claim("pruning loses no row", by_hand, counted)


def _deliver(demo: Demo, first: int, last: int) -> None:
    with demo.show.step(f"make up the events of {day(first)} to {day(last)}"):
        demo.shop.deliver(demo.spark, str(demo.directory / "landing"), first, last)
    with demo.show.step("stream the files into bronze"):
        demo.ingest()


def _show_refusal(demo: Demo, checked: "DataFrame") -> None:
    try:
        pipeline.refine(demo.lake, checked, batch=1)
    except SchemaMismatchError as error:
        demo.show.say("Silver refuses it, before a file is written:")
        demo.show.quote(str(error))
    demo.claim("a schema that does not fit is refused", 0, demo.lake.dataset(SILVER).version)


def _aggregate(demo: Demo, refined: WriteResult) -> None:
    days = pipeline.touched_days(demo.lake.dataset(SILVER), refined.version)
    with demo.show.step(f"write gold: figures of the {len(days)} days that silver's version {refined.version} touched"):
        pipeline.aggregate(demo.lake, days)


def _files(lake: Lake, name: str) -> int:
    return int(lake.dataset(name).snapshot().files(columns=["path"]).num_rows)


def _revenue(lake: Lake) -> Any:
    row = read_dataset(lake, SILVER, where="type = 'purchase'").agg(F.sum("price")).first()
    return None if row is None else row[0]
