"""What more than one file of this folder asks for."""

import pytest

from lakelog import Lake
from tests.contract.lost_races import Setting, prepared


@pytest.fixture
def setting(lake: Lake, other_lake: Lake) -> Setting:
    """A table for which two writers race."""
    return prepared(lake, other_lake)
