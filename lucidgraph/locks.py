"""Locks in a forked child: those that other threads held are free there, for those threads are not."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final

__all__ = ["renewed_in_child"]

_OWNERS: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def renewed_in_child(owner: Any) -> None:
    """Let a forked child find ``owner._lock``, a re-entrant lock, free, unless the thread that forks has it.

    For locks around a few steps of Python, any prefix of which leaves things in order.
    """
    _OWNERS.add(owner)


def _renew() -> None:
    for owner in list(_OWNERS):
        if owner._lock.acquire(blocking=False):
            owner._lock.release()
        else:
            owner._lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)
