"""From the text of a condition in Spark's SQL to sqlglot's tree. sqlglot is slow to import, so only when needed."""

import itertools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from lakelog.log.pruning.literals import Rejected

if TYPE_CHECKING:
    from sqlglot import Token, exp

T = TypeVar("T")

LONGEST = 100_000
DEEPEST = 100


def shortened(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 120 else text[:117] + "…"


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7]{2}|.)", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def tree(where: str) -> "exp.Expr":
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
