"""Tables of other catalogs above or below a table, as far as a disk shows them: a vacuum would delete their files.

A catalog knows where its own tables are. Of another one's table without a mirror, only the directories of its writes
can be seen, which Lakelog makes directly below a table's location.
"""

import os
from contextlib import suppress
from pathlib import Path

from lakelog.errors import DatasetExistsError, LakelogError
from lakelog.storage.listing import CHANGES, WRITE, Listing
from lakelog.storage.uris import LOG_DIRECTORY


def refuse_tables_below(listing: Listing, location: str) -> None:
    """Raises ``LakelogError`` if another table lies below the one whose files are listed."""
    own = {listing.root, f"{listing.root}/{CHANGES}"}
    for directory in listing.directories:
        above, _, name = directory.rpartition("/")
        if WRITE.fullmatch(name) and above not in own and listing.write_of(above) is None:
            raise LakelogError(
                f"nothing was deleted: {above} lies below {location} and has directories of Lakelog's writes, so "
                "that it is a table of its own, perhaps of another catalog, whose files would look like orphans. Move "
                "one of the two tables to another place; if that one was dropped, delete its directory"
            )


def refuse_table_above(location: str) -> None:
    """Raises ``DatasetExistsError`` if a new table's location lies below another table, also by a symbolic link."""
    if "://" in location:
        return
    for parent in Path(os.path.realpath(location)).parents:
        if _is_table(parent):
            raise DatasetExistsError(
                f"location {location!r} lies below {str(parent)!r}, which is a table already, perhaps of another "
                "catalog: a vacuum of that one would delete the files of this one. Choose a place outside of it"
            )


def _is_table(directory: Path) -> bool:
    with suppress(OSError), os.scandir(directory) as entries:
        return any(each.name == LOG_DIRECTORY or WRITE.fullmatch(each.name) for each in entries)
    return False
