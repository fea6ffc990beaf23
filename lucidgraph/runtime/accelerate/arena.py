"""Places in the memory that a plan's temporaries share."""

from __future__ import annotations

from bisect import bisect_left
from typing import final

from .memory import ALIGNMENT


@final
class Arena:
    """First fit among the holes between places in use; it grows at its end, up to ``most`` bytes. ``size`` is the
    greatest extent so far."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.size = 0
        self._end = 0
        self._starts: list[int] = []
        self._sizes: list[int] = []

    def take(self, nbytes: int) -> int | None:
        """The offset of so many bytes; None where there is no room for them."""
        nbytes = aligned(nbytes)
        for k, size in enumerate(self._sizes):
            if size >= nbytes:
                start = self._starts[k]
                if size == nbytes:
                    del self._starts[k], self._sizes[k]
                else:
                    self._starts[k] += nbytes
                    self._sizes[k] -= nbytes
                return start
        start = self._end
        if self.most is not None and start + nbytes > self.most:
            return None
        self._end += nbytes
        self.size = max(self.size, self._end)
        return start

    def give(self, start: int, nbytes: int) -> None:
        """A place of so many bytes is free again; neighbouring holes become one."""
        nbytes = aligned(nbytes)
        k = bisect_left(self._starts, start)
        if k < len(self._starts) and self._starts[k] == start + nbytes:
            nbytes += self._sizes[k]
            del self._starts[k], self._sizes[k]
        if k and self._starts[k - 1] + self._sizes[k - 1] == start:
            k -= 1
            start = self._starts[k]
            nbytes += self._sizes[k]
            del self._starts[k], self._sizes[k]
        if start + nbytes == self._end:
            self._end = start
            return
        self._starts.insert(k, start)
        self._sizes.insert(k, nbytes)


def aligned(nbytes: int) -> int:
    """Rounded up to whole cache lines."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
