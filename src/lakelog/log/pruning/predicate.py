"""Predicates that prune data files by the bounds of their columns.

``parse`` reads a condition in Spark's SQL into a small normal form without NOT. The form is conservative: it holds for
every row for which Spark finds the condition TRUE, and may hold for more, so that a file may be left out as soon as its
bounds say that no row satisfies the form. What cannot be said about one column and constants is refused.
"""

import difflib
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

from lakelog.errors import ValidationError, Violation
from lakelog.log.pruning.literals import (
    Family,
    Kind,
    Literal,
    Rejected,
    Span,
    Value,
    cast,
    family,
    negated,
    number,
    spans,
    zone_named,
)

if TYPE_CHECKING:
    from sqlglot import Token, exp

T = TypeVar("T")

LONGEST = 100_000
DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Range:
    """The column is not null and lies in the interval. An end that is None is open, and counts as not inclusive."""

    column: str
    low: Value | None
    low_inclusive: bool
    high: Value | None
    high_inclusive: bool


@dataclass(frozen=True, slots=True)
class Differs:
    """The column is not null and is not this value. Never made for floating point columns."""

    column: str
    value: Value


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column is null."""

    column: str


@dataclass(frozen=True, slots=True)
class NotNull:
    """The column is not null."""

    column: str


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more: at most one Range per column, no And inside."""

    items: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of two or more, no Or inside."""

    items: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Everything:
    """Any row may match."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No row can match."""


Predicate: TypeAlias = Range | Differs | IsNull | NotNull | And | Or | Everything | Nothing


def parse(where: str, columns: Mapping[str, pa.DataType], timezone: str = "UTC") -> Predicate:
    """Read a condition over the named columns into its normal form.

    The keys of ``columns`` are dotted names as in Spark, parts that contain a dot in backticks; the form uses them as
    they are spelled there. Timestamps without a zone are read in ``timezone``: pass the session's.

    Raises ValidationError, with everything that is wrong, for text that is not a condition or cannot be analysed.
    """
    subject = "timezone"
    try:
        reader = _Reader(columns, zone_named(timezone))
        subject = _shortened(where)
        form = reader.rows(_tree(where), True)
    except Rejected as rejected:
        raise ValidationError("predicate", [Violation(subject, str(rejected))]) from None
    except RecursionError:
        raise ValidationError("predicate", [Violation(subject, "is nested too deeply")]) from None
    if reader.violations:
        raise ValidationError("predicate", reader.violations)
    return form


def interval(
    column: str, low: Value | None, low_inclusive: bool, high: Value | None, high_inclusive: bool
) -> Predicate:
    """A Range, or what is left of it: NotNull without ends, Nothing if it is empty."""
    if low is None and high is None:
        return NotNull(column)
    found = Range(column, low, low_inclusive and low is not None, high, high_inclusive and high is not None)
    return Nothing() if _is_empty(found) else found


def conjunction(items: Iterable[Predicate]) -> Predicate:
    """All of the items, simplified; the ranges of a column become one."""
    kept: dict[object, Predicate] = {}
    for item in _flat(items, And):
        if isinstance(item, Nothing):
            return item
        key: object = (Range, item.column) if isinstance(item, Range) else item
        earlier = kept.get(key)
        if isinstance(earlier, Range) and isinstance(item, Range):
            item = _intersection(earlier, item)
            if _is_empty(item):
                return Nothing()
        kept[key] = item
    kept.pop(Everything(), None)
    bound = {item.column for item in kept.values() if isinstance(item, Range | Differs)}
    found = [item for item in kept.values() if not (isinstance(item, NotNull) and item.column in bound)]
    if any(isinstance(item, IsNull) and (item.column in bound or NotNull(item.column) in kept) for item in found):
        return Nothing()
    return _one(found, And, Everything())


def disjunction(items: Iterable[Predicate]) -> Predicate:
    """One of the items, simplified."""
    kept = dict.fromkeys(_flat(items, Or))
    kept.pop(Nothing(), None)
    if Everything() in kept or any(isinstance(item, IsNull) and NotNull(item.column) in kept for item in kept):
        return Everything()
    found = [item for item in kept if not (isinstance(item, Range | Differs) and NotNull(item.column) in kept)]
    return _one(found, Or, Nothing())


def _one(items: list[Predicate], several: type[And] | type[Or], none: Predicate) -> Predicate:
    return several(tuple(items)) if len(items) > 1 else items[0] if items else none


def _flat(items: Iterable[Predicate], kind: type[And] | type[Or]) -> Iterable[Predicate]:
    for item in items:
        if isinstance(item, kind):
            yield from item.items
        else:
            yield item


def _is_empty(found: Range) -> bool:
    if found.low is None or found.high is None:
        return False
    if found.low == found.high:
        return not (found.low_inclusive and found.high_inclusive)
    return bool(found.low > found.high)  # type: ignore[operator]  # one column's values are of one sort


def _intersection(a: Range, b: Range) -> Range:
    lows = [r for r in (a, b) if r.low is not None]
    highs = [r for r in (a, b) if r.high is not None]
    low = max(lows, key=lambda r: (r.low, not r.low_inclusive), default=a)
    high = min(highs, key=lambda r: (r.high, r.high_inclusive), default=a)
    return Range(a.column, low.low, low.low_inclusive, high.high, high.high_inclusive)


def _shortened(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 120 else text[:117] + "…"


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7]{2}|.)", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def _tree(where: str) -> "exp.Expr":
    """Parse one condition. Raises Rejected, or RecursionError if it is nested too deeply."""
    if not where.strip():
        raise Rejected("is empty; leave the condition out to read all rows")
    if len(where) > LONGEST:
        raise Rejected(f"is longer than {LONGEST:,} characters")
    _check_characters(where)
    from sqlglot import Dialect, exp

    dialect = Dialect.get_or_raise("spark")
    tokens = _spark_tokens(_attempt(lambda: dialect.tokenize(where)), where)
    trees = _attempt(lambda: dialect.parser().parse_into(exp.Condition, tokens, where))
    if len(trees) != 1 or trees[0] is None:
        raise Rejected("is not one condition")
    return trees[0]


def _attempt(step: Callable[[], T]) -> T:
    """A step of sqlglot, which raises errors of all kinds for text that is not a condition. Raises Rejected."""
    try:
        return step()
    except RecursionError:
        raise
    except Exception as error:
        details = getattr(error, "errors", None) or [{}]
        near = f" near {details[-1]['highlight'][:60]!r}" if details[-1].get("highlight") else ""
        raise Rejected(
            f"is not a condition in Spark's SQL{near}; is a quote left open, or is a column named like a keyword? "
            "Put such a name in backticks"
        ) from None


def _check_characters(text: str) -> None:
    if "\0" in text:
        raise Rejected("contains a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise Rejected("contains half of a surrogate pair")


def _spark_tokens(tokens: "Sequence[Token]", where: str) -> "list[Token]":
    """The tokens with their strings as Spark reads them, which sqlglot does not. Raises Rejected.

    Refuses what sqlglot would read differently than Spark without a word, and nesting that may overflow its stack.
    """
    from sqlglot import Token, TokenType

    nesting = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
    found: list[Token] = []
    depth = run = 0
    for token, following in itertools.zip_longest(tokens, tokens[1:]):
        if token.comments:
            raise Rejected("contains a comment; leave it out")
        if token.token_type == TokenType.SEMICOLON:
            raise Rejected("is more than one statement")
        if token.token_type == TokenType.PLUS and (following is None or following.token_type != TokenType.NUMBER):
            raise Rejected("has a plus sign that does not stand before a number; arithmetic cannot be analysed")
        if token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
            text, last = _string(where[token.start : token.end + 1]), found[-1] if found else None
            if (
                last
                and last.token_type == TokenType.STRING
                and where[last.end : last.end + 2] == where[token.start] * 2
            ):
                text = f"{found.pop().text}{where[token.start]}{text}"
            token = Token(TokenType.STRING, text, token.line, token.col, token.start, token.end)
        else:
            depth += nesting.get(token.text, 0)
        run = run + 1 if token.token_type == TokenType.NOT or token.text in ("-", "~") else 0
        if max(depth, run) > DEEPEST:
            raise Rejected("is nested too deeply")
        found.append(token)
    return found


def _string(source: str) -> str:
    """The value of a string literal, given with its quotes. Raises Rejected."""
    if source[0] in "rR":
        return source[2:-1]
    try:
        text = _ESCAPE.sub(lambda match: _unescaped(match[1]), source[1:-1])
        text = text.encode("utf-16", "surrogatepass").decode("utf-16")
    except (ValueError, OverflowError):
        raise Rejected("contains an escape that is not a Unicode character") from None
    _check_characters(text)
    return text


def _unescaped(code: str) -> str:
    if len(code) == 1:
        return _ESCAPED.get(code, code)
    return chr(int(code, 8)) if code[0] in "01" else chr(int(code[1:], 16))


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
_OPPOSITE = {"eq": "neq", "neq": "eq", "lt": "gte", "gte": "lt", "gt": "lte", "lte": "gt"}
_MIRRORED = {"lt": "gt", "gt": "lt", "lte": "gte", "gte": "lte"}


class _Reader:
    """Turns sqlglot's tree into the normal form, and collects what is wrong on the way."""

    def __init__(self, columns: Mapping[str, pa.DataType], zone: tzinfo) -> None:
        self._columns = columns
        self._names = _Names(columns)
        self._zone = zone
        self.violations: list[Violation] = []

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
                return Nothing()
            case "column" | "dot":
                return self._truth(self._column(node), wanted)
            case "eq" | "neq" | "lt" | "lte" | "gt" | "gte":
                return self._comparison(node.key, _arguments(node, "this", "expression"), wanted)
            case "nullsafeeq" | "nullsafeneq":
                same = (node.key == "nullsafeeq") == wanted
                return self._null_safe(_arguments(node, "this", "expression"), same)
            case "between":
                return self._between(_arguments(node, "this", "low", "high"), wanted)
            case "in":
                return self._in(_arguments(node, "this", "expressions"), wanted)
            case "is":
                return self._is(_arguments(node, "this", "expression"), wanted)
            case "like":
                return self._like(_arguments(node, "this", "expression", "negate"), "\\", wanted)
            case "escape" if node.this.key == "like":
                escape = _literal(node.expression).value
                if not isinstance(escape, str) or len(escape) != 1:
                    raise Rejected("ESCAPE needs one character")
                return self._like(_arguments(node.this, "this", "expression", "negate"), escape, wanted)
        raise _unanalysable(node)

    def _column(self, node: "exp.Expr") -> str:
        node = _bare(node)
        if node.key not in ("column", "dot"):
            raise _unanalysable(node)
        parts = node.parts  # type: ignore[attr-defined]  # of Column and Dot
        if any(part.key != "identifier" for part in parts) or node.args.get("join_mark"):
            raise _unanalysable(node)
        return self._names.find([part.name for part in parts])

    def _operand(self, node: "exp.Expr") -> str | Literal:
        return self._column(node) if _bare(node).key in ("column", "dot") else _literal(node)

    def _comparison(self, name: str, node: "exp.Expr", wanted: bool) -> Predicate:
        return self._compared(name, self._operand(node.this), self._operand(node.expression), wanted)

    def _compared(self, name: str, left: str | Literal, right: str | Literal, wanted: bool) -> Predicate:
        name = name if wanted else _OPPOSITE[name]
        if isinstance(left, Literal):
            if isinstance(right, Literal):
                return _constant(name, left, right)
            name, left, right = _MIRRORED.get(name, name), right, left
        if isinstance(right, str):
            raise Rejected("two columns cannot be compared by their bounds; compare one with a constant")
        if right.kind is Kind.NULL:
            return Nothing()
        span = spans([right], self._columns[left], self._zone)[0]
        if family(self._columns[left]) is Family.INTEGER and _is_settled(name, right):
            return Everything()
        return _placed(left, name, span)

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
        literals = [_literal(item) for item in node.expressions]
        known = [literal for literal in literals if literal.kind is not Kind.NULL]
        if not literals:
            raise Rejected("IN needs at least one value")
        if not known or (len(known) < len(literals) and not wanted):
            return Nothing()
        found = spans(known, self._columns[column], self._zone, listed=True)
        found.sort(key=lambda span: (span.low is not None, span.low))
        items = [_placed(column, "eq" if wanted else "neq", span) for span in found]
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
        column, pattern = self._column(node.this), _literal(node.expression)
        if family(self._columns[column]) is not Family.STRING:
            raise Rejected("LIKE needs a string column")
        if pattern.kind is Kind.NULL:
            return Nothing()
        if not isinstance(pattern.value, str):
            raise Rejected("LIKE needs a quoted pattern")
        wanted = wanted != bool(node.args.get("negate"))
        prefix, whole = _prefix(pattern.value, escape)
        if whole:
            return _placed(column, "eq" if wanted else "neq", Span(prefix, prefix, exact=True))
        if not wanted or not prefix:
            return NotNull(column)
        return interval(column, prefix, True, _after(prefix), False)


def _placed(column: str, name: str, span: Span) -> Predicate:
    """Where the column must lie for a comparison with a constant to be TRUE."""
    match name:
        case "eq":
            return interval(column, span.low, True, span.high, True)
        case "neq" if span.exact and span.low is not None:
            return Differs(column, span.low)
        case "lt" | "lte":
            return interval(column, None, False, span.high, name == "lte" or not span.exact)
        case "gt" | "gte":
            return interval(column, span.low, name == "gte" or not span.exact, None, False)
    return NotNull(column)


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


def _literal(node: "exp.Expr") -> Literal:
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
            return negated(_literal(node.this))
        case "cast" | "trycast":
            target = _arguments(node, "this", "to", "safe").args["to"]
            sizes = [int(size.name) for size in target.expressions if size.name.isdecimal() and len(size.name) < 4]
            return cast(_literal(node.this), str(getattr(target.this, "value", target.this)), sizes)
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


def _arguments(node: "exp.Expr", *known: str) -> "exp.Expr":
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
        return _shortened(node.sql(dialect="spark"))
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
