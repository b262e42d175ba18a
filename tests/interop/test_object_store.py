"""Mirrors and imports of tables in S3, on a server that the tests start."""

import os
import socket
from collections.abc import Iterator
from datetime import datetime

import boto3
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from moto.server import ThreadedMotoServer

import lakelog
from lakelog import Dataset, Lake
from lakelog.storage.log_store import log_store
from tests.contract.samples import add, commit, stats, table
from tests.fixtures.lakes import execute, qualified

BUCKET = "lakelog-tests"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket, to which every client finds its way by the environment."""
    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT": server,
        "AWS_ENDPOINT_URL": server,
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    s3 = boto3.resource("s3")
    created = s3.create_bucket(Bucket=BUCKET)
    yield f"s3://{BUCKET}"
    created.objects.all().delete()
    created.delete()


@pytest.fixture
def events(lake: Lake, bucket: str) -> Dataset:
    return table(lake, location=f"{bucket}/lake/events")


@pytest.mark.parametrize("backend", ["sqlite"])
class TestMirror:
    def test_commits_become_objects_that_delta_readers_see(self, lake: Lake, events: Dataset) -> None:
        for name in ("a", "b"):
            commit(lake, events, add(f"{name}.parquet", stats=stats(3, id=(1, 3))))
        status = events.mirror_status()
        assert (status.state, status.published) == ("published", 2)
        found = DeltaTable(events.location)
        assert (found.version(), sorted(found.get_add_actions(flatten=True).column("path").to_pylist())) == (
            2,
            ["a.parquet", "b.parquet"],
        )

    def test_a_checkpoint_replaces_the_commits(self, lake: Lake, bucket: str) -> None:
        events = table(lake, location=f"{bucket}/lake/events", properties={"delta.checkpointInterval": "2"})
        for name in ("a", "b", "c"):
            commit(lake, events, add(f"{name}.parquet", stats=stats(3, id=(1, 3))))
        events.mirror()
        store = log_store(events.location)
        for file in store.files():
            if file.name.endswith(".json") and int(file.name[:20]) < 3:
                store.move(file.name, f"_away/{file.name}")
        assert DeltaTable(events.location).version() == 3

    def test_a_foreign_object_stops_the_mirror(self, lake: Lake, events: Dataset) -> None:
        assert log_store(events.location).create(f"{1:020}.json", b'{"commitInfo":{"engineInfo":"other"}}\n')
        commit(lake, events, add())
        assert events.mirror_status().state == "stopped"
        assert "other" in (events.mirror_status().error or "")

    def test_of_two_mirrors_one_creates_and_both_succeed(self, lake: Lake, events: Dataset) -> None:
        commit(lake, events, add())
        execute(lake, f"UPDATE {qualified(lake, 'dl_mirror_status')} SET published_version = 0")
        assert (events.mirror().state, events.mirror().published) == ("published", 1)

    def test_a_bucket_that_is_gone_does_not_fail_the_commit(
        self, lake: Lake, events: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            nobody = free.getsockname()[1]
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{nobody}")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{nobody}")
        # A store remembers where it was: another lake does not.
        other = lakelog.Lake(lake.committer, lake.root)
        commit(other, other.dataset("events"), add())
        status = other.dataset("events").mirror_status()
        assert (status.state, status.head, status.published) == ("failing", 1, 0)


@pytest.mark.parametrize("backend", ["sqlite"])
class TestImport:
    def test_a_delta_table_in_s3_becomes_a_dataset_and_stays_one(self, lake: Lake, bucket: str) -> None:
        place = f"{bucket}/theirs"
        for number in range(3):
            write_deltalake(place, pa.table({"id": [number]}), mode="append")
        DeltaTable(place).create_checkpoint()
        write_deltalake(place, pa.table({"id": [3]}), mode="append")
        report = lake.import_delta(place, "theirs")
        assert (report.first_version, report.version, report.files) == (0, 3, 4)
        dataset = lake.dataset("theirs")
        commit(lake, dataset, add(stats=stats(1, id=(9, 9))))
        assert DeltaTable(place).version() == 4
        assert all(isinstance(each.timestamp, datetime) for each in dataset.history())
