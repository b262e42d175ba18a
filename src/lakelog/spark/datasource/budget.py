"""How much a stream reads at once."""

from typing import Any

import pyarrow.compute as pc


class Budget:
    """How much one batch may hold. A file that is too large by itself is a batch all the same."""

    def __init__(self, files: int | None, size: int | None) -> None:
        self._files = files
        self._size = size
        self._empty = True

    @property
    def is_spent(self) -> bool:
        return self._files == 0 or (self._size is not None and self._size <= 0)

    def take(self, files: Any) -> int:
        """How many of the files fit, from the first on."""
        count = int(files.num_rows if self._files is None else min(files.num_rows, self._files))
        sizes = pc.cumulative_sum(files.column("size").slice(0, count).combine_chunks())
        if self._size is not None:
            fits = int(pc.sum(pc.less_equal(sizes, self._size)).as_py() or 0)
            if fits < count:
                count = max(fits, 1 if self._empty else 0)
                self._size = 0
            elif count:
                self._size -= sizes[count - 1].as_py()
        if self._files is not None:
            self._files -= count
        self._empty = self._empty and not count
        return count
