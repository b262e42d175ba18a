"""Reads a condition in Spark's SQL into the normal form.

What cannot be said about one column and constants is refused.
"""

import difflib
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from lakelog.errors import ValidationError, Violation
from lakelog.log.pruning.literals import (
    Family,
    Kind,
    Literal,
    Rejected,
    Span,
    cast,
    family,
    negated,
    number,
    spans,
    zone_named,
)
from lakelog.log.pruning.predicate import (
    MIRRORED,
    OPPOSITE,
    Condition,
    Everything,
    IsNull,
    Nothing,
    NotNull,
    Predicate,
    conjunction,
    disjunction,
    interval,
    placed,
)
from lakelog.log.pruning.syntax import shortened, tree

if TYPE_CHECKING:
    from sqlglot import exp

_Form = TypeVar("_Form")


def depends_on_settings(text: str) -> bool:
    """Whether a session of Spark's may take a text for another condition than this reader does.

    Escapes are kept, double quotes enclose names, and variables are replaced, if the session's settings say so.
    """
    return any(mark in text for mark in ("\\", '"', "${"))


def parse(where: str, columns: Mapping[str, pa.DataType], timezone: str = "UTC") -> Predicate:
    """Read a condition over the named columns into its normal form.

    The keys of ``columns`` are dotted names as in Spark, parts that contain a dot in backticks; the form uses them as
    they are spelled there. Timestamps without a zone are read in ``timezone``: pass the session's.

    Raises ValidationError, with everything that is wrong, for text that is not a condition or cannot be analysed.
    """
    return _read(where, columns, timezone, lambda reader, node: reader.rows(node, True))


def read_condition(where: str, columns: Mapping[str, pa.DataType], timezone: str = "UTC") -> Condition:
    """The same, from both sides."""
    return _read(where, columns, timezone, _from_both_sides)


def _read(
    where: str, columns: Mapping[str, pa.DataType], timezone: str, form_of: "Callable[[_Reader, exp.Expr], _Form]"
) -> "_Form":
    subject = "timezone"
    try:
        reader = _Reader(columns, zone_named(timezone))
        subject = shortened(where)
        form = form_of(reader, tree(where))
    except Rejected as rejected:
        raise ValidationError("predicate", [Violation(subject, str(rejected))]) from None
    except RecursionError:
        raise ValidationError("predicate", [Violation(subject, "is nested too deeply")]) from None
    if reader.violations:
        raise ValidationError("predicate", reader.violations)
    return form


def _from_both_sides(reader: "_Reader", node: "exp.Expr") -> Condition:
    node = _bare(node)
    parts = [(_fragment(item), reader.rows(item, True)) for item in (_chain(node) if node.key == "and" else [node])]
    if reader.violations:
        return Condition(Everything(), Everything(), ())
    # It is NULL only where a column is, or throughout because of a constant.
    unknown = [Everything()] if reader.has_null else map(IsNull, sorted(reader.columns))
    others = disjunction([reader.rows(node, False), *unknown])
    return Condition(conjunction(form for _, form in parts), others, tuple(parts))


class _Names:
    """Finds columns by their dotted names, without regard to case."""

    _part = re.compile(r"`((?:[^`]|``)+)`|([^.]+)")

    def __init__(self, columns: Iterable[str]) -> None:
        self._spellings: dict[tuple[str, ...], list[str]] = {}
        for name in columns:
            self._spellings.setdefault(tuple(part.lower() for part in self._parts(name)), []).append(name)

    def find(self, parts: Sequence[str]) -> str:
        """The name as it is spelled in the mapping. Raises Rejected."""
        spellings = self._spellings.get(tuple(part.lower() for part in parts), [])
        if len(spellings) > 1:
            spellings = [name for name in spellings if self._parts(name) == tuple(parts)] or spellings
        if len(spellings) > 1:
            raise Rejected(f"the column is ambiguous: {', '.join(spellings)}")
        return spellings[0] if spellings else self._missing(".".join(parts))

    def _missing(self, name: str) -> str:
        lowered = {".".join(parts): names[0] for parts, names in self._spellings.items()}
        close = [lowered[key] for key in difflib.get_close_matches(name.lower(), lowered)]
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join([*lowered.values()][:20])}"
        raise Rejected(f"there is no column {name[:120]!r}; {hint}")

    def _parts(self, name: str) -> tuple[str, ...]:
        return tuple(quoted.replace("``", "`") or plain for quoted, plain in self._part.findall(name))


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}


class _Reader:
    """Turns sqlglot's tree into the normal form, and collects what is wrong on the way."""

    def __init__(self, columns: Mapping[str, pa.DataType], zone: tzinfo) -> None:
        self._columns = columns
        self._names = _Names(columns)
        self._zone = zone
        self.violations: list[Violation] = []
        self.columns: set[str] = set()
        """Those that were read so far."""
        self.has_null = False
        """Whether a constant is NULL."""

    def rows(self, node: "exp.Expr", wanted: bool) -> Predicate:
        """The rows for which the condition is TRUE, or, if that is not wanted, FALSE; never those where it is NULL."""
        node = _bare(node)
        if node.key == "not":
            return self.rows(node.this, not wanted)
        if node.key in ("and", "or"):
            items = [self.rows(item, wanted) for item in _chain(node)]
            return conjunction(items) if (node.key == "and") == wanted else disjunction(items)
        try:
            return self._leaf(node, wanted)
        except Rejected as rejected:
            self.violations.append(Violation(_fragment(node), str(rejected)))
            return Everything()

    def _leaf(self, node: "exp.Expr", wanted: bool) -> Predicate:
        match node.key:
            case "boolean":
                return Everything() if node.this == wanted else Nothing()
            case "null":
                self.has_null = True
                return Nothing()
            case "column" | "dot":
                return self._truth(self._column(node), wanted)
            case "eq" | "neq" | "lt" | "lte" | "gt" | "gte":
                return self._comparison(node.key, arguments(node, "this", "expression"), wanted)
            case "nullsafeeq" | "nullsafeneq":
                same = (node.key == "nullsafeeq") == wanted
                return self._null_safe(arguments(node, "this", "expression"), same)
            case "between":
                return self._between(arguments(node, "this", "low", "high"), wanted)
            case "in":
                return self._in(arguments(node, "this", "expressions"), wanted)
            case "is":
                return self._is(arguments(node, "this", "expression"), wanted)
            case "like":
                return self._like(arguments(node, "this", "expression", "negate"), "\\", wanted)
            case "escape" if node.this.key == "like":
                escape = literal_of(node.expression).value
                if not isinstance(escape, str) or len(escape) != 1:
                    raise Rejected("ESCAPE needs one character")
                return self._like(arguments(node.this, "this", "expression", "negate"), escape, wanted)
        raise _unanalysable(node)

    def _column(self, node: "exp.Expr") -> str:
        node = _bare(node)
        if node.key not in ("column", "dot"):
            raise _unanalysable(node)
        parts = node.parts  # type: ignore[attr-defined]  # of Column and Dot
        if any(part.key != "identifier" for part in parts) or node.args.get("join_mark"):
            raise _unanalysable(node)
        name = self._names.find([part.name for part in parts])
        self.columns.add(name)
        return name

    def _constant(self, node: "exp.Expr") -> Literal:
        found = literal_of(node)
        self.has_null |= found.kind is Kind.NULL
        return found

    def _operand(self, node: "exp.Expr") -> str | Literal:
        return self._column(node) if _bare(node).key in ("column", "dot") else self._constant(node)

    def _comparison(self, name: str, node: "exp.Expr", wanted: bool) -> Predicate:
        return self._compared(name, self._operand(node.this), self._operand(node.expression), wanted)

    def _compared(self, name: str, left: str | Literal, right: str | Literal, wanted: bool) -> Predicate:
        name = name if wanted else OPPOSITE[name]
        if isinstance(left, Literal):
            if isinstance(right, Literal):
                return _constant(name, left, right)
            name, left, right = MIRRORED.get(name, name), right, left
        if isinstance(right, str):
            raise Rejected("two columns cannot be compared by their bounds; compare one with a constant")
        if right.kind is Kind.NULL:
            return Nothing()
        span = spans([right], self._columns[left], self._zone)[0]
        if family(self._columns[left]) is Family.INTEGER and _is_settled(name, right):
            return Everything()
        return placed(left, name, span)

    def _null_safe(self, node: "exp.Expr", same: bool) -> Predicate:
        left, right = self._operand(node.this), self._operand(node.expression)
        if isinstance(left, Literal):
            left, right = right, left
        if isinstance(left, Literal):
            raise _unanalysable(node)
        if isinstance(right, Literal) and right.kind is Kind.NULL:
            return self._nullness(left, same)
        found = self._compared("eq", left, right, same)
        return found if same else disjunction([found, IsNull(left)])

    def _between(self, node: "exp.Expr", wanted: bool) -> Predicate:
        value, low, high = (self._operand(node.args[name]) for name in ("this", "low", "high"))
        items = [self._compared("gte", value, low, wanted), self._compared("lte", value, high, wanted)]
        return conjunction(items) if wanted else disjunction(items)

    def _in(self, node: "exp.Expr", wanted: bool) -> Predicate:
        column = self._column(node.this)
        literals = [self._constant(item) for item in node.expressions]
        known = [literal for literal in literals if literal.kind is not Kind.NULL]
        if not literals:
            raise Rejected("IN needs at least one value")
        if not known or (len(known) < len(literals) and not wanted):
            return Nothing()
        found = spans(known, self._columns[column], self._zone, listed=True)
        found.sort(key=lambda span: (span.low is not None, span.low))
        items = [placed(column, "eq" if wanted else "neq", span) for span in found]
        return disjunction(items) if wanted else conjunction(items)

    def _is(self, node: "exp.Expr", wanted: bool) -> Predicate:
        column, asked = self._column(node.this), node.expression
        if asked.key == "null":
            return self._nullness(column, wanted)
        if asked.key != "boolean":
            raise _unanalysable(node)
        found = self._truth(column, bool(asked.this) == wanted)
        return found if wanted else disjunction([found, IsNull(column)])

    def _nullness(self, column: str, null: bool) -> Predicate:
        if family(self._columns[column]) is Family.OTHER:
            return Everything()
        return IsNull(column) if null else NotNull(column)

    def _truth(self, column: str, wanted: bool) -> Predicate:
        if family(self._columns[column]) is not Family.BOOLEAN:
            raise Rejected("the column is not a boolean; compare it with a value")
        return interval(column, int(wanted), True, int(wanted), True)

    def _like(self, node: "exp.Expr", escape: str, wanted: bool) -> Predicate:
        column, pattern = self._column(node.this), self._constant(node.expression)
        if family(self._columns[column]) is not Family.STRING:
            raise Rejected("LIKE needs a string column")
        if pattern.kind is Kind.NULL:
            return Nothing()
        if not isinstance(pattern.value, str):
            raise Rejected("LIKE needs a quoted pattern")
        wanted = wanted != bool(node.args.get("negate"))
        prefix, whole = _prefix(pattern.value, escape)
        if whole:
            return placed(column, "eq" if wanted else "neq", Span(prefix, prefix, exact=True))
        if not wanted or not prefix:
            return NotNull(column)
        return interval(column, prefix, True, _after(prefix), False)


def _is_settled(name: str, literal: Literal) -> bool:
    """Whether Spark takes the order of an integer and a constant beyond 64 bits as TRUE, even for a null integer."""
    if literal.kind is not Kind.EXACT or not isinstance(literal.value, Decimal):
        return False
    return (name in ("lt", "lte") and literal.value >= 2**63) or (name in ("gt", "gte") and literal.value < -(2**63))


def _constant(name: str, left: Literal, right: Literal) -> Predicate:
    if Kind.NULL in (left.kind, right.kind):
        return Nothing()
    foldable = left.kind in (Kind.EXACT, Kind.STRING, Kind.BOOLEAN) and left.digits[1] == right.digits[1] == 0
    if left.kind is not right.kind or not foldable:
        raise Rejected("no column is compared")
    return Everything() if _COMPARISONS[name](left.value, right.value) else Nothing()


def literal_of(node: "exp.Expr") -> Literal:
    """The constant that a node stands for. Raises Rejected."""
    node = _bare(node)
    match node.key:
        case "literal":
            return Literal(Kind.STRING, node.this) if node.args["is_string"] else number(node.this)
        case "boolean":
            return Literal(Kind.BOOLEAN, int(node.this))
        case "null":
            return Literal(Kind.NULL)
        case "neg":
            return negated(literal_of(node.this))
        case "cast" | "trycast":
            target = arguments(node, "this", "to", "safe").args["to"]
            sizes = [int(size.name) for size in target.expressions if size.name.isdecimal() and len(size.name) < 4]
            return cast(literal_of(node.this), str(getattr(target.this, "value", target.this)), sizes)
    raise _unanalysable(node)


def _bare(node: "exp.Expr") -> "exp.Expr":
    while node.key == "paren":
        node = node.this
    return node


def _chain(node: "exp.Expr") -> "list[exp.Expr]":
    """The operands of a chain of the same connector, which leans to the left and may be thousands long."""
    items = []
    tip = node
    while tip.key == node.key:
        items.append(tip.expression)
        tip = tip.this
    return [tip, *reversed(items)]


def arguments(node: "exp.Expr", *known: str) -> "exp.Expr":
    """The node, if sqlglot has found nothing in it but these arguments. Raises Rejected."""
    if any(value and name not in known for name, value in node.args.items()):
        raise _unanalysable(node)
    return node


def _unanalysable(node: "exp.Expr") -> Rejected:
    from sqlglot import exp

    if node.find(exp.Query):
        return Rejected("a subquery cannot be analysed")
    if node.find(exp.AggFunc):
        return Rejected("an aggregate function has no value for one row")
    return Rejected("cannot be analysed; compare a column with constants, and join such comparisons by AND, OR and NOT")


def _fragment(node: "exp.Expr") -> str:
    try:
        return shortened(node.sql(dialect="spark"))
    except Exception:  # a tree that cannot be written back still has a name
        return node.key


def _prefix(pattern: str, escape: str) -> tuple[str, bool]:
    """What every match of a LIKE pattern begins with, and whether that is all of it. Raises Rejected."""
    found: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if character not in ("%", "_", escape):
                raise Rejected(f"in a LIKE pattern {escape} must be followed by %, _ or itself")
        elif character in "%_":
            return "".join(found), False
        found.append(character)
    return "".join(found), True


def _after(prefix: str) -> str | None:
    """The smallest string that is greater than all strings with this prefix, if there is one."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)
