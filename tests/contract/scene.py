"""The tables that operations race for, again and again."""

import shutil

from lakelog import Lake
from lakelog.log.commit.committer import Committer
from tests.contract.rivals import START, append, delete
from tests.contract.upkeep_tables import SCHEMA, there
from tests.contract.watched import watch
from tests.fixtures.lakes import COLUMNS, Place, execute, qualified


def prepare(lake: Lake) -> None:
    """Makes ``events``, with a file that only older versions need, and an empty ``archive``."""
    for name in START:
        # Without a mirror, of which the log knows before anybody races.
        lake.create_dataset(name, SCHEMA, mirror=False).mirror_status()
    append(lake, 1, 2)
    append(lake, 3, 4)
    delete(lake, 2)
    append(lake, 5, 6)


class Scene:
    """These tables, which two lakes race for, and which can be had anew in less time than it takes to make them."""

    def __init__(self, place: Place) -> None:
        self.lake = place.connect()
        self._racing = [place.connect() for _ in range(2)]
        for each in self._racing:
            watch(each)
        prepare(self.lake)
        self.files = {dataset.name: there(dataset) for dataset in self.lake.datasets()}
        self._root, self._kept = place.root, place.root.with_name("kept")
        shutil.copytree(self._root, self._kept)
        names = [qualified(self.lake, name) for name in COLUMNS if name != "dl_tables"]
        self._tables = {name: f"{name}_kept" for name in names}
        execute(self.lake, *(f"CREATE TABLE {kept} AS SELECT * FROM {name}" for name, kept in self._tables.items()))

    def reset(self) -> None:
        shutil.rmtree(self._root)
        shutil.copytree(self._kept, self._root)
        tables, versions = qualified(self.lake, "dl_tables"), qualified(self.lake, "dl_table_versions")
        latest = f"FROM {versions} v WHERE v.table_id = {tables}.table_id"
        # In two transactions: DuckDB takes no row again in the one that deleted it.
        execute(
            self.lake,
            *(f"DELETE FROM {name}" for name in self._tables),
            f"DELETE FROM {tables} WHERE name = 'copy'",
        )
        execute(
            self.lake,
            *(f"INSERT INTO {name} SELECT * FROM {kept}" for name, kept in self._tables.items()),
            f"UPDATE {tables} SET current_version = (SELECT max(v.version) {latest}), "
            f"committed_at = (SELECT max(v.committed_at) {latest})",
        )

    def connect(self) -> list[Lake]:
        """Two lakes whose steps are watched, and that remember nothing."""
        return [anew(each) for each in self._racing]

    def close(self) -> None:
        for lake in (self.lake, *self._racing):
            lake.close()


def anew(lake: Lake) -> Lake:
    """A lake on the same connections that remembers nothing."""
    return Lake(Committer(lake.committer.catalog, lake.committer.timeout), lake.root)
