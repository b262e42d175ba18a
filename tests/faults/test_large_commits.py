"""Commits that are larger than any buffer on their way to PostgreSQL, with paths as long as Spark writes them."""

import os
import socket
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from lakelog import AddFiles, Lake, RemoveFiles, SqlTxnLogWriter
from tests.faults.proxy import Proxy
from tests.faults.scenarios import SCHEMA
from tests.fixtures.lakes import Place, rows

pytestmark = pytest.mark.parametrize("backend", ["postgres"])

PACE = 16_384
"""Bytes that a slow network takes in a millisecond."""


@pytest.fixture(params=["Unix socket", "slow TCP"])
def lake(place: Place, request: pytest.FixtureRequest) -> Iterator[Lake]:
    if request.param == "Unix socket":
        with place.connect(mirror="manual", timeout=20.0) as lake:
            yield lake
        return
    with (
        Proxy(place.url, pace=PACE) as proxy,
        Place(place.backend, proxy.url, place.root, place.schema).connect(mirror="manual", timeout=20.0) as lake,
    ):
        narrow(lake)
        yield lake


def narrow(lake: Lake) -> None:
    """A send buffer as small as a busy machine has. The kernel of an idle one takes megabytes."""
    with lake.committer.catalog.session() as session:
        descriptor = os.dup(session._connection.fileno())  # type: ignore[attr-defined]
    with socket.socket(fileno=descriptor) as side:
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PACE)


def paths(count: int) -> list[str]:
    job = uuid.uuid4()
    return [
        f"region=south-eastern-asia-and-oceania/customer_segment=small-business/day=2024-02-29/"
        f"part-{number:05d}-{job}-attempt-0000.c{number % 1000:03d}.snappy.parquet"
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [4_000, 20_000])
def test_commits_with_more_paths_than_a_socket_takes_come_through(lake: Lake, count: int) -> None:
    """What a socket does not take at once is sent while the server's answer is waited for."""
    dataset = lake.create_dataset("events", SCHEMA)
    writer = SqlTxnLogWriter(lake)
    old, new = paths(count), paths(count)
    assert len(old[0]) >= 150
    writer.commit(dataset.id, 1, [AddFiles(pa.table({"path": old, "size": [100] * count}))])
    # Removed and added: each path is looked up before the first answer is read.
    changed = [RemoveFiles(pa.table({"path": old})), AddFiles(pa.table({"path": new, "size": [100] * count}))]
    writer.commit(dataset.id, 2, changed)
    live = [row["path"] for row in rows(lake, "dl_add_files") if row["removed_version"] is None]
    assert sorted(live) == sorted(new)
