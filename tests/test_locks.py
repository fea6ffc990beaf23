"""A lock that another thread holds while a process forks is free in the child."""

import os
import threading
import warnings

import pytest

from lucidgraph.runtime.cache import Cache


def forked(work) -> int:
    """The exit code of a child that does ``work`` within seconds; 1 where it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        threading.Timer(20, lambda: os._exit(1)).start()
        os._exit(0 if work() else 2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_finds_locks_free():
    cache: Cache[str, int] = Cache(4)
    cache.put("a", 1)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with cache._lock:
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        assert forked(lambda: cache.get("a") == 1) == 0
    finally:
        done.set()
        holder.join()
    with cache._lock:  # the forking thread's own stays its own
        assert forked(lambda: cache.get("a") == 1 and cache._lock.release() is None) == 0
    assert cache.get("a") == 1
