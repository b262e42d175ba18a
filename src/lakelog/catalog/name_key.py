"""The form of a dataset's name in which it is unique and looked up: as Spark compares names, without regard to case.

Databases fold by their locale, their library or ASCII alone, so that none of them is asked.
"""

import re
from collections.abc import Collection
from functools import cache

from lakelog.errors import ValidationError, Violation

_DOTTED = re.compile("i\u0307+")
"""Spark finds ``\u0130`` by ``i`` where it compares letters, and by ``i`` with a dot above where it lowers texts."""


def name_key(name: str) -> str:
    """The key of a name. Two names that Spark takes for one have the same, but for letters that Python lacks yet."""
    if name.isascii():
        return name.lower()
    return _DOTTED.sub("i", "".join(map(_folded, name.lower())))


def match_name(names: Collection[str], name: str) -> str | None:
    """The one of these names that is meant: exactly that one, or the only one with its key; None if there is none.

    Raises ``ValidationError`` if it may be several: a catalog that is older than keys has them.
    """
    if not isinstance(name, str):
        return None
    if name in names:
        return name
    found = [each for each in names if name_key(each) == name_key(name)]
    if len(found) > 1:
        raise ValidationError(f"dataset name {name!r}", twin_problems(found))
    return found[0] if found else None


def twin_problems(names: Collection[str]) -> list[Violation]:
    """What is wrong with each name that is another one in another case."""
    keys = [name_key(name) for name in names]
    message = "differs from another dataset only by case: use the exact name, and rename one with lake.rename_dataset"
    return [Violation(repr(name), message) for name, key in zip(names, keys, strict=True) if keys.count(key) > 1]


@cache
def _folded(letter: str) -> str:
    """The lower case of a letter's upper case, if each is one letter: final sigma is sigma, but \u00df is not ss."""
    upper = next((each for each in (letter.upper(), letter.title()) if len(each) == 1), letter)
    lower = upper.lower()
    return lower if len(lower) == 1 else letter
