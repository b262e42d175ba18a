"""``undrop_dataset``: a dropped dataset comes back, with its history, while its files are there."""

from itertools import islice
from typing import TYPE_CHECKING

from lakelog.catalog.name_key import name_key
from lakelog.errors import DatasetNotFoundError, ValidationError, Violation
from lakelog.log.state import Head
from lakelog.strict_json import is_text
from lakelog.upkeep.check_files import FileCheck

if TYPE_CHECKING:
    from lakelog.lake import Lake

_SHOWN = 10


def dropped_head(lake: "Lake", name: str) -> Head:
    """The dropped table that a name means: the last one that was dropped in this spelling, or else in any."""
    catalog = lake.committer.catalog
    found: list[Head] = []
    if is_text(name):
        with catalog.session() as session:
            rows = session.fetch(catalog.queries["dropped_tables"], {"name_key": name_key(name)})
        found = [Head(*row) for row in rows]
    if not found:
        raise DatasetNotFoundError(f"no dataset {name!r} was dropped in {catalog!r}")
    return next((head for head in found if head.name == name), found[0])


def require_files(lake: "Lake", head: Head) -> None:
    """Raises ``ValidationError`` if a file of the last version is gone, or has another size."""
    if "://" in head.location:
        return
    catalog = lake.committer.catalog
    with catalog.session() as session:
        files = FileCheck(session, catalog.queries, head, head.version, deep=False)
    findings = iter(files.findings())
    problems = [Violation("files", finding.message) for finding in islice(findings, _SHOWN)]
    if problems:
        rest = sum(1 for _ in findings)
        more = [Violation("files", f"the same of {rest} more")] if rest else []
        advice = Violation("undrop", f"bring back what is missing at {head.location}; the dataset stays dropped")
        raise ValidationError(f"dataset {head.name!r}", [*problems, *more, advice])
