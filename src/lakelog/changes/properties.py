"""A table's properties that somebody asks for: of a new table, and changes from one layout to the next.

Some properties are the visible side of something else, the protocol, the columns' ids, rows that were checked, and have
doors of their own; some can only be chosen when a table is created. These are refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

from lakelog.changes.bins import TARGET_SIZE
from lakelog.errors import ValidationError, Violation
from lakelog.log.commit.draft import IN_COMMIT_TIMESTAMPS
from lakelog.log.intervals import LONGEST, milliseconds_in
from lakelog.log.validation.features import FEATURES, FENCED, MIRROR, SWITCHES, unenforced_features
from lakelog.log.validation.text import content_problem, label_problem
from lakelog.schema.evolution.alter import Layout
from lakelog.schema.mapping import MAX_ID, MODE, MODES, is_mapped, with_mapping
from lakelog.schema.rules import CONSTRAINT, constraint_key
from lakelog.strict_json import describe, whole_number

FEATURE = "delta.feature."
MIN_READER, MIN_WRITER = "delta.minReaderVersion", "delta.minWriterVersion"

_ELSEWHERE = {
    CONSTRAINT: "constraints have their own calls, add_constraint and drop_constraint, by which rows are checked",
    FEATURE: "features follow from what a table uses; dataset.add_feature adds one by hand",
    MIN_READER.lower(): "the protocol follows from what a table uses; dataset.upgrade_protocol raises it",
    MIN_WRITER.lower(): "the protocol follows from what a table uses; dataset.upgrade_protocol raises it",
    MAX_ID.lower(): "counts the ids that columns ever had, and is kept by the log",
    "delta.incommittimestampenablement": "says since when there are in-commit timestamps, and is kept by the log",
    "delta.rowtracking.materialized": "names columns that only the writer of row ids knows",
}
"""How properties begin that are never set by themselves, in lower case."""

_OF_NEW_TABLES = (CONSTRAINT, FEATURE, MIN_READER.lower(), MIN_WRITER.lower())
"""Those of them that a new table may be created with: it has no rows, and its protocol is made for it."""

_SMALLEST = {
    "delta.checkpointInterval": 1,
    "delta.dataSkippingNumIndexedCols": -1,
    MIN_READER: 1,
    MIN_WRITER: 1,
}
"""Properties that are whole numbers, with the smallest."""

_INTERVALS = (
    "delta.deletedFileRetentionDuration",
    "delta.logRetentionDuration",
    "delta.setTransactionRetentionDuration",
)

_UNJUDGED = (
    "delta.autoOptimize",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.castIcebergTimeType",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointPolicy",
    "delta.checkpointRetentionDuration",
    "delta.clusteringColumns",
    "delta.compatibility.symlinkFormatManifest.enabled",
    "delta.coordinatedCommits.commitCoordinator-preview",
    "delta.coordinatedCommits.commitCoordinatorConf-preview",
    "delta.coordinatedCommits.tableConf-preview",
    "delta.dataSkippingStatsColumns",
    "delta.dataSkippingStringPrefixLength",
    "delta.dropFeatureTruncateHistory.retentionDuration",
    "delta.enableExpiredLogCleanup",
    "delta.enableFullRetentionRollback",
    "delta.ignoreIcebergBucketPartition",
    "delta.ignoreProtocolDefaults",
    "delta.isolationLevel",
    "delta.parquet.compression.codec",
    "delta.parquet.format.version",
    "delta.parquet.vorder.enabled",
    "delta.randomPrefixLength",
    "delta.randomizeFilePrefixes",
    "delta.requireCheckpointProtectionBeforeVersion",
    "delta.rowTrackingSuspended",
    "delta.sampleRetentionDuration",
    TARGET_SIZE,
    "delta.tuneFileSizesForRewrites",
    "delta.universalFormat.enabledFormats",
    "delta.universalFormat.iceberg.atomicConversion.supported",
    "delta.writePartitionColumnsToParquet",
)
"""Delta's other properties, whose values are judged where they are used, or by other programs."""

_OF_FORMATS = "delta.universalformat.config."
"""Before names of which Delta takes any."""

_KNOWN = {name.lower(): name for name in (*SWITCHES, *_SMALLEST, *_INTERVALS, *_UNJUDGED, MODE, MIRROR)}
"""Those of Delta and ours, by their names without case: another spelling would have no meaning."""


def check_new(properties: Mapping[str, str], before: Mapping[str, str] | None = None) -> None:
    """Refuses what cannot be a property of a new table, or, with those of ``before``, of one that is made anew."""
    _check_mapping(properties)
    problems = [
        problem
        for name, value in properties.items()
        for problem in (
            *_value_problems(name, value),
            *(Violation(name, why) for why in _elsewhere(name, allowed=_OF_NEW_TABLES)),
            *(() if before is None else _step_problems(before, name, value)),
        )
    ]
    if problems:
        raise _refused(problems)


def check_taken_over(properties: Mapping[str, str], taken: Mapping[str, str]) -> None:
    """Refuses what cannot be a property of a table that takes over another's rows, which has those of ``taken``."""
    _check_mapping(properties)
    problems = []
    for name, value in properties.items():
        problems += [*_value_problems(name, value), *(Violation(describe(name), why) for why in _elsewhere(name))]
        if name == MODE and value != taken.get(MODE, "none"):
            message = f"is {taken.get(MODE, 'none')} in the source, by which its files know their columns"
            problems.append(Violation(name, message))
    if problems:
        raise _refused(problems)


def set_properties(layout: Layout, properties: Mapping[str, str]) -> Layout:
    """The table with other values for some properties. Values that it has change nothing."""
    _check_mapping(properties)
    problems = [
        problem
        for name, value in properties.items()
        for problem in (
            *_value_problems(name, value),
            *(Violation(name, why) for why in _elsewhere(name)),
            *_step_problems(layout.configuration, name, value),
        )
    ]
    if problems:
        raise _refused(problems)
    changed = {name: value for name, value in properties.items() if layout.configuration.get(name) != value}
    if not changed:
        return layout
    schema, configuration = layout.schema, {**layout.configuration, **changed}
    if is_mapped(changed):
        schema, configuration = with_mapping(schema, {**configuration, MODE: "none"})
    after = replace(layout, schema=schema, configuration=configuration)
    unenforced = set(unenforced_features(after.schema, after.configuration))
    unenforced -= set(unenforced_features(layout.schema, layout.configuration))
    if unenforced:
        message = "is a feature that Lakelog does not enforce yet, so that the table could not be written to any more"
        raise _refused([Violation(name, message) for name in sorted(unenforced)])
    return after


def unset_properties(layout: Layout, names: Sequence[str], *, if_exists: bool = False) -> Layout:
    """The table without some properties. With ``if_exists``, those that it has not change nothing."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise _refused([Violation("names", f"expected a list of names, got {describe(names)}")])
    problems = []
    for name in names:
        if not isinstance(name, str) or (name not in layout.configuration and not if_exists):
            problems.append(
                Violation(describe(name), f"is not set; there are {', '.join(layout.configuration) or 'none'}")
            )
        elif name in layout.configuration and name in (MODE, MIRROR):
            problems.append(Violation(name, "cannot be taken back"))
        else:
            problems += [Violation(name, why) for why in _elsewhere(name)]
    if problems:
        raise _refused(problems)
    kept = {name: value for name, value in layout.configuration.items() if name not in names}
    return layout if len(kept) == len(layout.configuration) else replace(layout, configuration=kept)


def add_constraint(layout: Layout, name: str, sql: str) -> Layout:
    """The table with one more constraint, for which all its rows were checked."""
    key = constraint_key(layout.configuration, name)
    if key is not None:
        message = f"there is such a constraint already ({layout.configuration[key]}); drop it first"
        raise ValidationError("constraint", [Violation(repr(name), message)])
    return replace(layout, configuration={**layout.configuration, f"{CONSTRAINT}{name.lower()}": sql})


def drop_constraint(layout: Layout, name: str) -> Layout:
    """The table without a constraint. One that it has not changes nothing."""
    key = constraint_key(layout.configuration, name)
    if key is None:
        return layout
    kept = {other: value for other, value in layout.configuration.items() if other != key}
    return replace(layout, configuration=kept)


def _check_mapping(properties: object) -> None:
    if not isinstance(properties, Mapping):
        raise _refused([Violation("properties", f"expected a mapping of texts to texts, got {describe(properties)}")])


def _value_problems(name: object, value: object) -> Iterable[Violation]:
    """What is wrong with a property by itself."""
    if not isinstance(name, str) or not name:
        yield Violation(describe(name), "expected a text as the property's name")
        return
    if not isinstance(value, str):
        yield Violation(name, f"expected a text as its value, got {describe(value)}")
        return
    if problem := label_problem(name) or content_problem(value):
        yield Violation(name, problem)
    if _KNOWN.get(name.lower(), name) != name:
        yield Violation(name, f"did you mean {_KNOWN[name.lower()]}?")
    elif (
        name.lower() not in _KNOWN
        and name.lower().startswith("delta.")
        and not (_elsewhere(name) or name.lower().startswith(_OF_FORMATS))
    ):
        near = get_close_matches(name.lower(), _KNOWN, n=1)
        advice = f"did you mean {_KNOWN[near[0]]}?" if near else "give properties of your own another prefix"
        yield Violation(name, f"is no property of Delta: {advice}")
    if name in SWITCHES and value.lower() not in ("true", "false"):
        yield Violation(name, f"expected 'true' or 'false', got {describe(value)}")
    elif name == MODE and value not in MODES:
        yield Violation(name, f"expected one of {', '.join(MODES)}, got {describe(value)}")
    elif name == MIRROR and value not in ("true", "false", FENCED):
        yield Violation(name, f"expected 'true', 'false' or {FENCED!r}, got {describe(value)}")
    elif name in _SMALLEST and not _is_count(value, _SMALLEST[name]):
        yield Violation(name, f"expected a whole number from {_SMALLEST[name]} on, got {describe(value)}")
    elif name in _INTERVALS and milliseconds_in(value) == LONGEST:
        yield Violation(name, "is longer than any table lives: expected less than 1,000 years")
    elif name in _INTERVALS and milliseconds_in(value) is None:
        yield Violation(name, f"expected an interval such as 'interval 7 days', got {describe(value)}")
    elif name.startswith(FEATURE):
        if name[len(FEATURE) :] not in FEATURES:
            yield Violation(name, f"is not a feature; known are {', '.join(sorted(FEATURES))}")
        if value not in ("supported", "enabled"):
            yield Violation(name, f"expected 'supported', got {describe(value)}")


def _step_problems(before: Mapping[str, str], name: object, value: object) -> Iterable[Violation]:
    """Why a property that is sound by itself cannot follow on those that a table has."""
    if not isinstance(name, str) or not isinstance(value, str):
        return
    known = before.get(name)
    if name == MODE and value in MODES and value != (known or "none") and (known or "none", value) != ("none", "name"):
        yield Violation(name, f"cannot go from {known or 'none'} to {value}; only from none to name")
    elif name == MIRROR and value != (known or "true") and (known in ("false", FENCED) or value != FENCED):
        yield Violation(name, f"cannot go from {known or 'true'} to {value}; only a mirrored table can be fenced")
    elif name == IN_COMMIT_TIMESTAMPS and value.lower() == "true" and (known or "").lower() != "true":
        yield Violation(name, "can be switched on only when a table is created")


def _is_count(text: str, smallest: int) -> bool:
    found = whole_number(text)
    return found is not None and found >= smallest


def _elsewhere(name: object, allowed: Sequence[str] = ()) -> list[str]:
    lowered = name.lower() if isinstance(name, str) else ""
    return [why for prefix, why in _ELSEWHERE.items() if lowered.startswith(prefix) and prefix not in allowed]


def _refused(problems: Sequence[Violation]) -> ValidationError:
    return ValidationError("table properties", problems)
