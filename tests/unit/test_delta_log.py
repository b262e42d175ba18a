"""What a Delta log's names and JSON commits say."""

import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.actions import AddFile, CommitInfo, Metadata, Protocol, RemoveFile
from lakelog.delta_log.log import LogCommit, LogListing, list_log, read_commit
from lakelog.delta_log.paths import TableRoot
from lakelog.errors import DeltaLogError, LakelogError
from lakelog.storage.log_store import LocalStore, LogFile, ObjectStore
from tests.delta_logs import (
    METADATA,
    PROTOCOL,
    UUIDS,
    add,
    checkpoint_name,
    log_at,
    part_name,
    top_name,
    write_commit,
    write_json,
    write_parquet,
)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return log_at(tmp_path / "table")


def touch(store: LocalStore, *names: str) -> None:
    for name in names:
        Path(store.place, name).write_bytes(b"x")


def commit_names(*versions: int) -> list[str]:
    return [f"{version:020}.json" for version in versions]


def read_text(store: LocalStore, text: str) -> LogCommit:
    Path(store.place, f"{0:020}.json").write_text(text)
    return read_commit(store, 0)


class TestListing:
    def test_commits_and_checkpoints_of_every_kind_are_known_by_their_names(self, store: LocalStore) -> None:
        touch(store, *commit_names(3, 4), checkpoint_name(3), top_name(5), top_name(6, "parquet"))
        touch(store, part_name(4, 1, 2), part_name(4, 2, 2))
        listing = list_log(store)
        assert sorted(listing.commits) == [3, 4]
        assert [(each.version, len(each.files)) for each in listing.checkpoints] == [(3, 1), (4, 2), (5, 1), (6, 1)]
        assert [file.name for file in listing.checkpoints[1].files] == [part_name(4, 1, 2), part_name(4, 2, 2)]
        assert listing.checkpoints[1].modified == max(file.modified for file in listing.checkpoints[1].files)

    @pytest.mark.parametrize(
        "name",
        [
            "_last_checkpoint",
            "00000000000000000001.crc",
            "00000000000000000001.00000000000000000003.compacted.json",
            ".00000000000000000001.json.0a1b.tmp",
            "00000000000000000001.json.tmp",
            "0000000000000000001.json",
            "000000000000000000001.json",
            "0000000000000000000١.json",
            "00000000000000000001.JSON",
            f"00000000000000000001.{UUIDS[0]}.json",
            "00000000000000000001.checkpoint.json",
            "00000000000000000001.checkpoint.0000000001.parquet",
            "00000000000000000001.checkpoint.1.1.parquet",
            "00000000000000000001.checkpoint.not-a-uuid.parquet",
            f"00000000000000000001.checkpoint.{UUIDS[0]}.parquet.crc",
            part_name(1, 1, 2),
            part_name(1, 0, 1),
            part_name(1, 0, 0),
            part_name(1, 1, 9999999999),
        ],
    )
    def test_other_names_say_nothing(self, store: LocalStore, name: str) -> None:
        touch(store, *commit_names(0), name)
        listing = list_log(store)
        assert sorted(listing.commits) == [0]
        assert listing.checkpoints == ()

    def test_directories_of_a_log_say_nothing(self, store: LocalStore) -> None:
        touch(store, *commit_names(0))
        for name in ("_commits", "_staged_commits", f"{1:020}.json"):
            Path(store.place, name).mkdir()
        assert list_log(store).latest == 0

    @pytest.mark.parametrize("hint", ['{"version":7,"size":1}', "not JSON", ""])
    def test_the_hint_to_the_last_checkpoint_changes_nothing(self, store: LocalStore, hint: str) -> None:
        touch(store, *commit_names(0, 1), checkpoint_name(1))
        plain = list_log(store)
        Path(store.place, "_last_checkpoint").write_text(hint)
        assert list_log(store) == plain

    def test_parts_of_different_splits_do_not_make_a_checkpoint(self, store: LocalStore) -> None:
        touch(store, *commit_names(0), part_name(0, 1, 3), part_name(0, 2, 3), part_name(0, 2, 2))
        assert list_log(store).checkpoints == ()

    def test_an_empty_checkpoint_is_none(self, store: LocalStore) -> None:
        touch(store, *commit_names(0))
        Path(store.place, checkpoint_name(0)).touch()
        assert list_log(store).checkpoints == ()

    def test_of_one_version_the_checkpoint_without_sidecars_is_taken(self, store: LocalStore) -> None:
        touch(store, top_name(0), part_name(0, 1, 1), checkpoint_name(0))
        [checkpoint] = list_log(store).checkpoints
        assert [file.name for file in checkpoint.files] == [checkpoint_name(0)]

    @pytest.mark.parametrize("suffix", ["json", "parquet"])
    def test_of_several_checkpoints_with_sidecars_a_whole_one_is_taken(self, store: LocalStore, suffix: str) -> None:
        write = write_json if suffix == "json" else write_parquet
        for uuid, sidecar in zip(sorted(UUIDS), ("gone.parquet", "here.parquet"), strict=True):
            write(
                store, top_name(0, suffix, uuid), PROTOCOL, METADATA, {"sidecar": {"path": sidecar, "sizeInBytes": 1}}
            )
        touch(store, "_sidecars/here.parquet")
        [checkpoint] = list_log(store).checkpoints
        assert [file.name for file in checkpoint.files] == [top_name(0, suffix, max(UUIDS))]

    def test_of_several_broken_checkpoints_one_is_taken(self, store: LocalStore) -> None:
        touch(store, *(top_name(0, "parquet", uuid) for uuid in UUIDS))
        assert len(list_log(store).checkpoints) == 1

    def test_a_place_without_a_log_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DeltaLogError, match="found neither a commit nor a checkpoint") as error:
            list_log(LocalStore(tmp_path / "nothing" / "_delta_log"))
        assert error.value.file == str(tmp_path / "nothing" / "_delta_log")

    def test_a_log_without_a_beginning_is_refused(self, store: LocalStore) -> None:
        touch(store, *commit_names(2, 3))
        with pytest.raises(DeltaLogError, match=r"expected version 0 or a checkpoint .* from version 2 on"):
            list_log(store)


def listing_of(commits: set[int], checkpoints: set[int]) -> LogListing:
    files = [*commit_names(*commits), *map(checkpoint_name, checkpoints)]
    return list_log(_Names([LogFile(name, 1, 0) for name in files]))


class _Names(LocalStore):
    """A log of which only the names are known."""

    def __init__(self, files: list[LogFile]) -> None:
        super().__init__(Path("nowhere"))
        self._files = files

    def files(self, start: str = "") -> list[LogFile]:
        return sorted(self._files)


class TestStart:
    @pytest.mark.parametrize(
        ("commits", "checkpoints", "up_to", "latest", "earliest"),
        [
            ({0}, set(), 0, (None, 0), (None, 0)),
            ({0, 1, 2}, set(), 1, (None, 0), (None, 0)),
            ({0, 1, 2}, {1}, 2, (1, 2), (None, 0)),
            ({0, 1, 2}, {1}, 0, (None, 0), (None, 0)),
            ({0, 1, 2}, {2}, 2, (2, 3), (None, 0)),
            ({3, 4, 5}, {3, 4}, 5, (4, 5), (3, 4)),
            ({4, 5}, {3, 5}, 5, (5, 6), (3, 4)),
            ({5}, {3, 5}, 5, (5, 6), (5, 6)),
            ({0, 1, 5}, {4}, 5, (4, 5), (4, 5)),
            (set(), {4}, 4, (4, 5), (4, 5)),
        ],
    )
    def test_a_version_is_reconstructed_from_the_nearest_beginning_or_the_farthest(
        self, commits: set[int], checkpoints: set[int], up_to: int, latest: Any, earliest: Any
    ) -> None:
        listing = listing_of(commits, checkpoints)
        for history, (checkpoint, first) in ((False, latest), (True, earliest)):
            found, replayed = listing.start(up_to, history=history)
            assert (found and found.version, replayed) == (checkpoint, range(first, up_to + 1))

    @pytest.mark.parametrize("history", [False, True])
    @pytest.mark.parametrize(
        ("commits", "checkpoints", "message"),
        [
            ({0, 1, 3, 7}, set(), "lacks the commits 2, 4 to 6 and has no checkpoint before it"),
            ({3, 5}, {3}, "lacks the commits 4 after the checkpoint of version 3"),
            ({0, 2**63 - 2}, set(), "lacks the commits 1 to 9223372036854775805 and"),
        ],
    )
    def test_a_gap_is_named(self, commits: set[int], checkpoints: set[int], message: str, history: bool) -> None:
        listing = listing_of(commits, checkpoints)
        with pytest.raises(DeltaLogError, match=message):
            listing.start(listing.latest, history=history)

    def test_a_version_before_a_gap_can_be_reconstructed(self) -> None:
        assert listing_of({0, 1, 3}, set()).start(1, history=True) == (None, range(2))

    @pytest.mark.parametrize("version", [-1, 3])
    def test_a_version_that_the_log_does_not_have_is_refused(self, version: int) -> None:
        with pytest.raises(DeltaLogError, match=f"has no version {version}; its newest is 2"):
            listing_of({0, 1, 2}, set()).start(version, history=False)

    @settings(deadline=None)
    @given(st.sets(st.integers(0, 12)), st.sets(st.integers(0, 12)), st.integers(0, 12), st.booleans())
    def test_the_answer_is_what_trying_every_beginning_gives(
        self, commits: set[int], checkpoints: set[int], up_to: int, history: bool
    ) -> None:
        if not checkpoints and 0 not in commits:
            return
        listing = listing_of(commits, checkpoints)
        beginnings = [
            beginning
            for beginning in sorted({-1, *checkpoints})
            if beginning <= up_to and commits.issuperset(range(beginning + 1, up_to + 1))
        ]
        if up_to > listing.latest or not beginnings:
            with pytest.raises(DeltaLogError):
                listing.start(up_to, history=history)
            return
        checkpoint, replayed = listing.start(up_to, history=history)
        assert (checkpoint.version if checkpoint else -1) == beginnings[0 if history else -1]
        assert commits.issuperset(replayed)
        assert [*replayed] == [*range(beginnings[0 if history else -1] + 1, up_to + 1)]


class TestCommit:
    def test_actions_come_in_their_order_with_unknown_fields(self, store: LocalStore) -> None:
        write_commit(
            store,
            0,
            {"commitInfo": {"operation": "WRITE", "engine": {"x": 1}}},
            PROTOCOL,
            METADATA,
            add("a%20b.parquet", novelty=[1]),
            {"remove": {"path": "c", "dataChange": False}},
            {"txn": {"appId": "app", "version": 3}},
            {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}},
            {"cdc": {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": False}},
        )
        commit = read_commit(store, 0)
        names = ["commitInfo", "protocol", "metaData", "add", "remove", "txn", "domainMetadata", "cdc"]
        assert [action.action for action in commit.actions] == names
        assert commit.actions[3] == AddFile(path="a%20b.parquet", size=1, modification_time=7, extra={"novelty": [1]})
        assert commit.actions[0] == CommitInfo(operation="WRITE", extra={"engine": {"x": 1}})
        assert (commit.version, commit.dropped_stats) == (0, 0)

    def test_blank_lines_and_a_missing_last_line_break_are_fine(self, store: LocalStore) -> None:
        text = '\n{"txn":{"appId":"a","version":1}}\r\n \n{"txn":{"appId":"b","version":1}}'
        assert [action.app_id for action in read_text(store, text).actions] == ["a", "b"]  # type: ignore[union-attr]

    def test_a_line_separator_inside_a_text_ends_no_line(self, store: LocalStore) -> None:
        [action] = read_text(store, '{"txn":{"appId":"a\u2028b","version":1}}').actions
        assert action.app_id == "a\u2028b"  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        "line", ['{"checkpointMetadata":{"version":1}}', '{"newer":{"path":1}}', '{"sidecar":{}}', "{}"]
    )
    def test_actions_that_are_not_known_are_passed_over(self, store: LocalStore, line: str) -> None:
        assert read_text(store, line).actions == ()

    def test_members_that_are_null_are_no_actions(self, store: LocalStore) -> None:
        [action] = read_text(store, '{"add":null,"txn":{"appId":"a","version":1},"remove":null}').actions
        assert action.action == "txn"

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('{"add":{"path":"a"', "not JSON"),
            ("garbage", "not JSON"),
            ('{"add":NaN}', "NaN"),
            ("[1]", "expected a JSON object, found list"),
            ('{"add":1}', "expected an object, got int 1"),
            ('{"add":{"path":"a"}}', "add.size: is missing"),
            ('{"add":{"path":1,"size":1,"modificationTime":1,"dataChange":true}}', "add.path: expected a string"),
            ('{"add":{"path":"a","size":1.5,"modificationTime":1,"dataChange":true}}', "add.size: expected an integer"),
            ('{"add":{"path":"a","size":1,"modificationTime":1,"dataChange":1}}', "add.dataChange: expected true"),
            ('{"remove":{"path":"a"}}', "remove.dataChange: is missing"),
            ('{"metaData":{"id":"a"}}', "metaData.schemaString: is missing"),
            ('{"protocol":{"minReaderVersion":1}}', "protocol.minWriterVersion: is missing"),
            ('{"txn":{"appId":"a","version":1,"version":2}}', "'version' occurs twice"),
            ('{"txn":{"appId":"a\\u0000","version":1}}', "a NUL character"),
            ('{"txn":{"appId":"a","version":1},"protocol":{}}', "expected one action, found txn and protocol"),
        ],
    )
    def test_a_broken_line_is_named(self, store: LocalStore, line: str, message: str) -> None:
        with pytest.raises(DeltaLogError, match=message) as error:
            read_text(store, f'{{"txn":{{"appId":"a","version":1}}}}\n\n{line}')
        assert (error.value.file, error.value.line) == (f"{store.place}/{0:020}.json", 3)
        assert str(error.value).startswith(f"{store.place}/{0:020}.json, line 3: expected ")

    def test_bytes_that_are_not_utf8_are_refused(self, store: LocalStore) -> None:
        Path(store.place, f"{0:020}.json").write_bytes(b'{"txn":{"appId":"a","version":1}}\n{"txn":"\xff"}\n')
        with pytest.raises(DeltaLogError, match="line 2: expected UTF-8, found the byte 0xff"):
            read_commit(store, 0)

    @pytest.mark.parametrize("text", ["", "\n \n"])
    def test_an_empty_commit_is_refused_since_it_was_not_written_to_its_end(self, store: LocalStore, text: str) -> None:
        with pytest.raises(DeltaLogError, match="expected at least one action, found an empty file"):
            read_text(store, text)

    def test_a_missing_commit_is_refused(self, store: LocalStore) -> None:
        with pytest.raises(DeltaLogError, match=rf"{4:020}\.json: expected this file, found none"):
            read_commit(store, 4)

    def test_a_commit_cut_anywhere_is_refused_or_a_beginning_of_it(self, store: LocalStore) -> None:
        write_commit(store, 0, PROTOCOL, METADATA, add("é.parquet", stats='{"numRecords":1}'))
        path = Path(store.place, f"{0:020}.json")
        whole, actions = path.read_bytes(), read_commit(store, 0).actions
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            try:
                found = read_commit(store, 0).actions
            except DeltaLogError:
                continue
            assert found == actions[: len(found)]

    @settings(deadline=None)
    @given(st.binary(max_size=60))
    def test_whatever_a_file_holds_is_read_or_refused(self, tmp_path_factory: Any, data: bytes) -> None:
        store = log_at(tmp_path_factory.getbasetemp() / "any")
        Path(store.place, f"{0:020}.json").write_bytes(data)
        with suppress(DeltaLogError):
            read_commit(store, 0)


class TestCarelessWriters:
    def read(self, store: LocalStore, action: dict[str, Any]) -> Any:
        write_commit(store, 0, action)
        [found] = read_commit(store, 0).actions
        return found

    @pytest.mark.parametrize("nothing", [{}, {"partitionValues": None}])
    def test_files_without_partition_values_have_none(self, store: LocalStore, nothing: dict[str, Any]) -> None:
        body = {"path": "a", "size": 1, "modificationTime": 1, "dataChange": True, **nothing}
        assert self.read(store, {"add": body}).partition_values == {}

    def test_an_empty_partition_value_is_null(self, store: LocalStore) -> None:
        assert self.read(store, add("a", partitionValues={"x": "", "y": None, "z": " "})).partition_values == {
            "x": None,
            "y": None,
            "z": " ",
        }

    def test_nulls_stand_for_what_is_absent(self, store: LocalStore) -> None:
        nothing = dict.fromkeys(["stats", "tags", "deletionVector", "baseRowId", "clusteringProvider"])
        assert self.read(store, add("a", **nothing)) == AddFile(path="a", size=1, modification_time=7)
        removed = {"path": "a", "dataChange": True, "deletionTimestamp": None, "tags": {}}
        assert self.read(store, {"remove": removed}) == RemoveFile(path="a", tags={})

    def test_whole_numbers_may_be_written_as_fractions(self, store: LocalStore) -> None:
        body = METADATA["metaData"] | {"createdTime": 1.5e12}
        assert self.read(store, {"metaData": body}).created_time == 1_500_000_000_000
        assert type(self.read(store, add("a", size=3.0)).size) is int

    def test_properties_without_a_value_are_absent(self, store: LocalStore) -> None:
        body = METADATA["metaData"] | {
            "configuration": {"a": None, "b": "c"},
            "format": {"provider": "parquet", "options": {"x": None}},
            "name": None,
        }
        found = self.read(store, {"metaData": body})
        assert isinstance(found, Metadata)
        assert (found.configuration, found.format_options, found.name) == ({"b": "c"}, {}, None)

    @pytest.mark.parametrize("nothing", [{}, {"configuration": None}])
    def test_a_table_without_properties_may_say_nothing_of_them(
        self, store: LocalStore, nothing: dict[str, Any]
    ) -> None:
        body = {key: value for key, value in METADATA["metaData"].items() if key != "configuration"} | nothing
        assert self.read(store, {"metaData": body}).configuration == {}

    def test_empty_lists_of_features_say_nothing_below_the_versions_that_have_them(self, store: LocalStore) -> None:
        body = {"minReaderVersion": 1, "minWriterVersion": 2, "readerFeatures": [], "writerFeatures": []}
        assert self.read(store, {"protocol": body}) == Protocol(min_reader_version=1, min_writer_version=2)
        body = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}
        assert self.read(store, {"protocol": body}).writer_features == ()


class TestStatisticsOfCommits:
    @pytest.mark.parametrize(
        "stats",
        [
            "{",
            "null",
            '{"numRecords":NaN}',
            '{"numRecords":1,"numRecords":2}',
            '{"numRecords":-1}',
            '{"numRecords":1,"nullCount":{"a":2}}',
            '{"numRecords":1,"minValues":{"a":2},"maxValues":{"a":1}}',
            '{"minValues":{"a":"\\u0000"}}',
            "\0",
            "\ud83d",
            5,
            {"numRecords": 1},
        ],
    )
    def test_what_cannot_be_trusted_is_dropped_and_counted(self, store: LocalStore, stats: Any) -> None:
        write_commit(store, 0, add("a", stats=stats), add("b", stats='{"numRecords":1}'))
        commit = read_commit(store, 0)
        assert [action.stats for action in commit.actions] == [None, '{"numRecords":1}']  # type: ignore[union-attr]
        assert commit.dropped_stats == 1

    @pytest.mark.parametrize("stats", [None, "", "{}", '{"minValues":{"f":"NaN"},"maxValues":{"f":"NaN"}}'])
    def test_what_says_little_is_not_dropped(self, store: LocalStore, stats: str | None) -> None:
        write_commit(store, 0, add("a", stats=stats))
        commit = read_commit(store, 0)
        assert (commit.actions[0].stats, commit.dropped_stats) == (stats or None, 0)  # type: ignore[union-attr]

    def test_those_of_removed_files_are_dropped_but_counted_where_they_were_added(self, store: LocalStore) -> None:
        write_commit(store, 0, {"remove": {"path": "a", "dataChange": True, "stats": "{"}})
        assert read_commit(store, 0).actions == (RemoveFile(path="a"),)
        assert read_commit(store, 0).dropped_stats == 0

    def test_a_file_with_a_deletion_vector_keeps_its_number_of_rows(self, store: LocalStore) -> None:
        vector = {
            "storageType": "i",
            "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
            "sizeInBytes": 40,
            "cardinality": 6,
        }
        write_commit(store, 0, add("a", stats='{"numRecords":9,"minValues":{"f":NaN}}', deletionVector=vector))
        commit = read_commit(store, 0)
        assert (commit.actions[0].stats, commit.dropped_stats) == ('{"numRecords":9}', 1)  # type: ignore[union-attr]


class TestPaths:
    @pytest.mark.parametrize(
        ("place", "path", "expected"),
        [
            ("/data/t", "x%20y/a.parquet", "x%20y/a.parquet"),
            ("/data/t", "/data/t/x%20y/a.parquet", "x%20y/a.parquet"),
            ("/data/t", "file:/data/t/a.parquet", "a.parquet"),
            ("/data/t", "file:///data/t/a.parquet", "a.parquet"),
            ("/da ta/t", "file:///da%20ta/t/a%20b.parquet", "a%20b.parquet"),
            ("/data/t", "/data/t2/a.parquet", "/data/t2/a.parquet"),
            ("/data/t", "/data/t", "/data/t"),
            ("/data/t", "//host/data/t/a", "//host/data/t/a"),
            ("/data/t", "s3://bucket/data/t/a", "s3://bucket/data/t/a"),
            ("s3://bucket/t", "s3a://bucket/t/a.parquet", "a.parquet"),
            ("s3a://bucket/t", "s3://bucket/t/p=1/a.parquet", "p=1/a.parquet"),
            ("s3://bucket/t", "s3://other/t/a.parquet", "s3://other/t/a.parquet"),
            ("s3://bucket/t", "/t/a.parquet", "/t/a.parquet"),
            ("gs://bucket/a/b", "gs://bucket/a/b/c/d", "c/d"),
        ],
    )
    def test_an_absolute_path_below_the_table_becomes_relative(self, place: str, path: str, expected: str) -> None:
        store = ObjectStore(f"{place}/_delta_log") if "://" in place else LocalStore(Path(place) / "_delta_log")
        assert TableRoot.of(store).relative(path) == expected

    def test_the_paths_of_a_commit_become_relative(self, store: LocalStore) -> None:
        root = Path(store.place).parent
        write_commit(
            store, 0, add(f"{root}/a"), {"remove": {"path": f"file://{root}/b", "dataChange": True}}, add("/c")
        )
        assert [action.path for action in read_commit(store, 0).actions] == ["a", "b", "/c"]  # type: ignore[union-attr]


def test_the_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(DeltaLogError("expected x, found y", "file", 3)))
    assert isinstance(error, LakelogError)
    assert (str(error), error.file, error.line) == ("file, line 3: expected x, found y", "file", 3)
    assert str(DeltaLogError("no")) == "no"
