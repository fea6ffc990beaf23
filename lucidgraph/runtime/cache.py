"""A bounded, thread-safe cache that drops what was used least recently."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar, final

from ..locks import renewed_in_child

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CacheInfo(NamedTuple):
    """As ``functools.lru_cache`` reports."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


@final
class Cache(Generic[K, V]):
    """At most ``maxsize`` entries. ``on_full`` is called once, when the first entry has to go."""

    def __init__(self, maxsize: int, on_full: Callable[[], None] | None = None) -> None:
        self.maxsize = maxsize
        self._on_full = on_full
        self._entries: OrderedDict[K, V] = OrderedDict()
        # Re-entrant: a signal's handler may call a program in the middle of a call.
        self._lock = threading.RLock()
        renewed_in_child(self)
        self._hits = 0
        self._misses = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            value = self._entries.get(key)
            if value is None:
                self._misses += 1
            else:
                self._hits += 1
                self._entries.move_to_end(key)
            return value

    def __contains__(self, key: object) -> bool:
        """Whether there is an entry; neither a hit nor a use."""
        with self._lock:
            return key in self._entries

    def touch(self, key: K) -> None:
        """Count an entry among those used last."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)

    def put(self, key: K, value: V) -> V:
        """Keep ``value``, or return what another thread has put there first."""
        full = None
        with self._lock:
            kept = self._entries.setdefault(key, value)
            self._entries.move_to_end(key)
            while len(self._entries) > self.maxsize:
                self._entries.popitem(last=False)
                full, self._on_full = self._on_full, None
        if full is not None:
            full()
        return kept

    def replace(self, key: K, value: V) -> None:
        """Keep ``value`` in the place of what is there."""
        with self._lock:
            self._entries[key] = value

    def discard(self, doomed: Callable[[K], bool]) -> None:
        """Drop the entries whose key ``doomed`` picks."""
        with self._lock:
            for key in [key for key in self._entries if doomed(key)]:
                del self._entries[key]

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._hits = self._misses = 0

    def info(self) -> CacheInfo:
        with self._lock:
            return CacheInfo(self._hits, self._misses, self.maxsize, len(self._entries))

    def __iter__(self) -> Iterator[V]:
        with self._lock:
            return iter(list(self._entries.values()))
