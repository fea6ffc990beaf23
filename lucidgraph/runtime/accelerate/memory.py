"""Where values lie: large blocks in huge pages, recycled between calls.

A page touched for the first time costs more than the arithmetic on it, so blocks are never given back to the system
while the cache has room; an array that owns a block returns it when it dies.
"""

from __future__ import annotations

import mmap
import os
import threading
from math import prod
from typing import Any, Final, final

import numpy as np

ALIGNMENT: Final = 64
LARGE: Final = 1 << 20
"""The size in bytes from which a result is put into a recycled block."""
_HUGE_PAGE: Final = 1 << 21
_CACHE_BYTES: Final = 1 << 30


@final
class Block:
    """Zeroed memory of one mapping, aligned to a huge page where it is large."""

    __slots__ = ("_mapping", "_start", "address", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        try:
            # Private: a forked child must not write into its parent's results.
            mapping = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError) as error:
            raise MemoryError(f"{size} bytes for a result cannot be had: {error}") from error
        advice = getattr(mmap, "MADV_HUGEPAGE", None)
        if advice is not None and size >= _HUGE_PAGE:
            mapping.madvise(advice)
        whole = np.frombuffer(mapping, np.uint8)
        self._mapping = mapping
        self._start = -whole.ctypes.data % (_HUGE_PAGE if size >= _HUGE_PAGE else ALIGNMENT)
        self.address: int = whole.ctypes.data + self._start

    def lease(self) -> _Lease:
        """The block's bytes, for one owner."""
        # Over the mapping itself: NumPy would take the base of a view of an array as the base of the lease's views.
        lease = _Lease((self.size,), np.uint8, self._mapping, self._start)
        lease._block = self
        return lease


class _Lease(np.ndarray[Any, Any]):
    """The bytes of a block; when the last array over them dies, the block goes back."""

    _block: Block | None = None

    def __del__(self) -> None:
        block, self._block = self._block, None
        if block is not None:
            BLOCKS.give(block)


@final
class _Blocks:
    """Blocks not in use, by size, those given back last taken first; what has lain longest goes when room is short."""

    def __init__(self) -> None:
        # Re-entrant: an array may die, and give its block back, while this thread holds the lock.
        self._lock = threading.RLock()
        self._free: dict[int, list[Block]] = {}
        self._held = 0
        # Not held while forking, as the compiler's is: a thread that compiles may wait for this one.
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        """What another thread was in the middle of is left as it is, but for the count."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()
            self._held = sum(size * len(free) for size, free in self._free.items())

    def take(self, nbytes: int) -> Block:
        size = rounded(nbytes)
        with self._lock:
            free = self._free.get(size)
            if free:
                self._held -= size
                block = free.pop()
                if not free:
                    del self._free[size]
                return block
        return Block(size)

    def give(self, block: Block) -> None:
        with self._lock:
            if block.size > _CACHE_BYTES:
                return
            while self._held + block.size > _CACHE_BYTES:
                self._drop()
            self._held += block.size
            # A size just used is the last to lose its blocks.
            free = self._free.pop(block.size, [])
            free.append(block)
            self._free[block.size] = free

    def _drop(self) -> None:
        size, free = next(iter(self._free.items()))
        del free[0]
        self._held -= size
        if not free:
            del self._free[size]

    def clear(self) -> None:
        with self._lock:
            self._free.clear()
            self._held = 0

    @property
    def held(self) -> int:
        """The bytes kept for later calls."""
        return self._held


def rounded(nbytes: int) -> int:
    """A block's size for so many bytes: an eighth of waste at the most."""
    step = max(4096, 1 << max(nbytes.bit_length() - 3, 0))
    return -(-max(nbytes, 1) // step) * step


BLOCKS: Final = _Blocks()


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An uninitialised array that owns its memory."""
    nbytes = dtype.itemsize * prod(shape)
    if nbytes < LARGE:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, BLOCKS.take(nbytes).lease())
