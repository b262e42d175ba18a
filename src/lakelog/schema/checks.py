"""What every schema must keep to, whichever form it arrives in."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lakelog.errors import ValidationError, Violation
from lakelog.schema.leaves import join_path

Path: TypeAlias = tuple[str, ...]

MAX_DEPTH = 100
"""How deep types may nest. A map counts twice, as in Arrow's IPC messages, which cannot be read much below this."""

_NEEDS_COLUMN_MAPPING = frozenset(" ,;{}()\n\t=")


@dataclass(slots=True)
class Checks:
    """Collects everything that is wrong with one schema, so that it can be said at once."""

    column_mapping: bool = False
    violations: list[Violation] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing was found so far."""
        return not self.violations

    def add(self, path: Path, message: str) -> None:
        """Note what is wrong with the column at this path; the empty path is the schema itself."""
        self.violations.append(Violation(_shown(join_path(path)) if path else "schema", message))

    def names(self, parent: Path, names: Sequence[str]) -> None:
        """Check the names of all the columns of one struct."""
        spelled: dict[str, str] = {}
        for name in names:
            self._name((*parent, name), name)
            folded = name.lower()
            if folded in spelled:
                first = spelled[folded]
                difference = "occurs twice" if first == name else f"differs only in case from {first!r}"
                self.add((*parent, name), f"the name {difference}; names in a struct are unique whatever their case")
            spelled[folded] = name

    def may_nest(self, path: Path, depth: int) -> bool:
        """Whether a nested type may stand at this depth; if not, that is noted."""
        if depth < MAX_DEPTH:
            return True
        self.add(path, f"types are nested more than {MAX_DEPTH} levels deep (a map counts as two)")
        return False

    def finish(self) -> None:
        """Raise a ``ValidationError`` with all that was found, if anything was."""
        if self.violations:
            raise ValidationError("schema", self.violations)

    def _name(self, path: Path, name: str) -> None:
        if not name:
            self.add(path, "a column needs a name")
        if "\0" in name:
            self.add(path, f"the name {name!r} holds a NUL character")
        if not _is_unicode(name):
            self.add(path, f"the name {name!r} holds half of a surrogate pair, which is not a character")
        if not self.column_mapping and not _NEEDS_COLUMN_MAPPING.isdisjoint(name):
            self.add(
                path, f"the name {name!r} holds one of ' ,;{{}}()\\n\\t=', which Delta allows only with column mapping"
            )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
