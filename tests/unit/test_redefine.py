"""How a protocol is raised."""

import pytest

from lakelog.actions import Protocol
from lakelog.changes.redefine import upgraded

LEGACY = Protocol(min_reader_version=2, min_writer_version=5)
LISTED = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("invariants", "deletionVectors", "appendOnly"),
)


@pytest.mark.parametrize("protocol", [LEGACY, LISTED])
@pytest.mark.parametrize(("reader", "writer"), [(1, 2), (2, 5), (1, 5), (2, 2)])
def test_a_lower_version_changes_nothing(protocol: Protocol, reader: int, writer: int) -> None:
    assert upgraded(protocol, reader, writer) is protocol


def test_the_part_that_is_lower_stays() -> None:
    assert upgraded(LEGACY, 1, 6) == Protocol(min_reader_version=2, min_writer_version=6)
    raised = upgraded(LEGACY, 3, 7)
    assert (raised.min_reader_version, raised.min_writer_version) == (3, 7)
    assert "columnMapping" in (raised.reader_features or ())


@pytest.mark.parametrize(("reader", "writer"), [(0, 2), (-1, 2), (True, 2), (1, 0)])
def test_what_is_no_version_is_left_to_be_refused(reader: int, writer: int) -> None:
    found = upgraded(LEGACY, reader, writer)
    assert found.min_reader_version is reader or found.min_writer_version is writer
