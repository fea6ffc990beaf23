"""Processes that are asked on standard input and answer with a line of JSON each, in good time or not at all."""

from __future__ import annotations

import json
import selectors
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.results import ROOT, environment

__all__ = ["Process", "locked"]

ENDED = {"absent": "its process ended", "missing": "its process ended"}


class Process:
    """A peer, or what measures the machine, running: ``absent`` says why it does not.

    What does not answer within the seconds it is given is ended, and started again when it is asked next.
    """

    def __init__(self, *command: str) -> None:
        self.command = command
        self.absent: str | None = None
        self.version = ""
        self.start()

    def start(self) -> None:
        pipe = subprocess.PIPE
        self.running = subprocess.Popen(
            self.command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment(), cwd=ROOT
        )
        self.greeted = False
        self.came = b""

    def greet(self) -> None:
        """Wait until it has loaded what it needs; all load at once."""
        told = self.line(time.monotonic() + 120)
        self.greeted = True
        self.absent = told.get("absent")
        self.version = told.get("version", self.version)

    def tell(self, *what: Any) -> None:
        """Ask without waiting: ``answer`` follows."""
        if self.running.poll() is not None:
            self.start()
        if not self.greeted:
            self.greet()
        assert self.running.stdin is not None
        try:
            self.running.stdin.write(json.dumps(what).encode() + b"\n")
            self.running.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says so

    def answer(self, seconds: float) -> dict[str, Any]:
        return self.line(time.monotonic() + seconds, f"no answer within {seconds:g} s")

    def ask(self, *what: Any, seconds: float = 60.0) -> dict[str, Any]:
        self.tell(*what)
        return self.answer(seconds)

    def line(self, end: float, late: str = "it did not start") -> dict[str, Any]:
        """The next line that comes before ``end``."""
        out = self.running.stdout
        assert out is not None
        with selectors.DefaultSelector() as ready:
            ready.register(out, selectors.EVENT_READ)
            while b"\n" not in self.came:
                if not ready.select(max(end - time.monotonic(), 0.0)):
                    self.stop()
                    return {"absent": late, "missing": late}
                some = out.read1()  # type: ignore[attr-defined]
                if not some:
                    self.stop()
                    return dict(ENDED)
                self.came += some
        line, _, self.came = self.came.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def stop(self) -> None:
        self.running.kill()
        self.running.communicate()


@contextmanager
def locked(path: str | None, alone: bool) -> Iterator[None]:
    """Holding a lock on the file ``path``, for those who share a machine: with nobody else, or with others who do."""
    if path is None:
        yield
        return
    import fcntl

    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
