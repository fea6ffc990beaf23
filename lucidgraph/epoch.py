"""Two words that say whether the short way into a compiled function is open; native code reads them where they lie.

The first counts what makes calls unusual: open traces, gradients being recorded, autocast policies, uncompiled regions,
of all threads. The second moves whenever a setting does that programs were chosen by.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Final

from .locks import renewed_in_child

__all__ = ["ADDRESS", "bump", "mark", "now", "restart", "unusual"]

_words: Final = (ctypes.c_int64 * 2)()
ADDRESS: Final = ctypes.addressof(_words)
_lock = threading.RLock()
renewed_in_child(sys.modules[__name__])


def mark(change: int) -> None:
    """One more thing that makes calls unusual, or one less."""
    with _lock:
        _words[0] += change


def restart(count: int) -> None:
    """Count anew: in a forked child, where the other threads are gone."""
    _words[0] = count


def unusual() -> bool:
    """Whether any thread traces, records a gradient, holds a policy or runs uncompiled."""
    return _words[0] != 0


def now() -> int:
    """The epoch: as long as it stays, so do the settings."""
    return _words[1]


def bump() -> None:
    """A setting has changed."""
    with _lock:
        _words[1] += 1
