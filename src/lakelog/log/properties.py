"""Changes of a table's properties that somebody asks for, each from one layout to the next.

Some properties are the visible side of something else, the protocol, the columns' ids, rows that were checked, and have
doors of their own; some can only be chosen when a table is created. These are refused.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lakelog.errors import ValidationError, Violation
from lakelog.log.draft import IN_COMMIT_TIMESTAMPS
from lakelog.log.validation.features import FENCED, MIRROR, SWITCHES, unenforced_features
from lakelog.log.validation.text import content_problem, label_problem
from lakelog.schema.alter import Layout
from lakelog.schema.mapping import MAX_ID, MODE, MODES, is_mapped, with_mapping
from lakelog.schema.rules import CONSTRAINT, constraint_key

_ELSEWHERE = {
    CONSTRAINT: "constraints have their own calls, add_constraint and drop_constraint, by which rows are checked",
    "delta.feature.": "features follow from what a table uses, and cannot be listed by hand",
    "delta.minreaderversion": "the protocol follows from what a table uses",
    "delta.minwriterversion": "the protocol follows from what a table uses",
    MAX_ID.lower(): "counts the ids that columns ever had, and is kept by the log",
    "delta.incommittimestampenablement": "says since when there are in-commit timestamps, and is kept by the log",
    "delta.rowtracking.materialized": "names columns that only the writer of row ids knows",
}
"""How properties begin that are never set by themselves, in lower case."""

_KNOWN = {name.lower(): name for name in (*SWITCHES, MODE, MIRROR)}
"""Those that have a meaning here, by their names without case: another spelling would have none."""


def set_properties(layout: Layout, properties: Mapping[str, str]) -> Layout:
    """The table with other values for some properties. Values that it has change nothing."""
    if not isinstance(properties, Mapping):
        raise _refused([Violation("properties", f"expected a mapping of texts to texts, got {properties!r}")])
    problems = [problem for name, value in properties.items() for problem in _problems(layout, name, value)]
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
        raise _refused([Violation("names", f"expected a list of names, got {names!r}")])
    problems = []
    for name in names:
        if not isinstance(name, str) or (name not in layout.configuration and not if_exists):
            problems.append(Violation(repr(name), f"is not set; there are {', '.join(layout.configuration) or 'none'}"))
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


def _problems(layout: Layout, name: object, value: object) -> Iterable[Violation]:
    if not isinstance(name, str) or not name:
        yield Violation(repr(name), "expected a text as the property's name")
        return
    if not isinstance(value, str):
        yield Violation(name, f"expected a text as its value, got {value!r}")
        return
    if problem := label_problem(name) or content_problem(value):
        yield Violation(name, problem)
    yield from (Violation(name, why) for why in _elsewhere(name))
    if _KNOWN.get(name.lower(), name) != name:
        yield Violation(name, f"did you mean {_KNOWN[name.lower()]}?")
    before = layout.configuration.get(name)
    if name in SWITCHES and value.lower() not in ("true", "false"):
        yield Violation(name, f"expected 'true' or 'false', got {value!r}")
    elif name == MODE and value not in MODES:
        yield Violation(name, f"expected one of {', '.join(MODES)}, got {value!r}")
    elif name == MODE and value != (before or "none") and (before or "none", value) != ("none", "name"):
        yield Violation(name, f"cannot go from {before or 'none'} to {value}; only from none to name")
    elif name == MIRROR and value != (before or "true") and (before in ("false", FENCED) or value != FENCED):
        yield Violation(name, f"cannot go from {before or 'true'} to {value}; only a mirrored table can be fenced")
    elif name == IN_COMMIT_TIMESTAMPS and value.lower() == "true" and (before or "").lower() != "true":
        yield Violation(name, "can be switched on only when a table is created")


def _elsewhere(name: str) -> list[str]:
    return [why for prefix, why in _ELSEWHERE.items() if name.lower().startswith(prefix)]


def _refused(problems: Sequence[Violation]) -> ValidationError:
    return ValidationError("table properties", problems)
