"""Whether the machine is undisturbed: a fixed loop takes as long as it has taken at best, on each processor.

Virtual processors share a core with others' now and then, unseen from inside; all then runs at about two thirds of its
speed, on one of them or on both. What is measured meanwhile says nothing about the program.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, Final, final

__all__ = ["Steady"]

TURNS: Final = 20_000
SLOW: Final = 1.2
"""How many times its least time a loop may take."""
WAIT: Final = 0.05
"""Seconds between two looks at a disturbed machine."""


def loop() -> float:
    began = time.perf_counter()
    for _ in repeat(None, TURNS):
        pass
    return time.perf_counter() - began


def on_each(measure: Callable[[], float]) -> Iterator[float]:
    """Made on each processor in turn; on any, where the system does not let one choose."""
    if sys.platform != "linux":
        yield measure()
        return
    allowed = os.sched_getaffinity(0)
    try:
        for processor in allowed:
            os.sched_setaffinity(0, {processor})
            yield measure()
    finally:
        os.sched_setaffinity(0, allowed)


@final
class Steady:
    """``patience``: the seconds to wait for an undisturbed machine before a measurement; it is made up to ``tries``
    times, until the machine was undisturbed before and after."""

    def __init__(self, patience: float, tries: int) -> None:
        self.patience, self.tries = patience, tries
        self.least = float("inf")
        self.made = self.disturbed = 0
        self.now()

    def now(self) -> bool:
        taken = list(on_each(lambda: min(loop() for _ in range(3))))
        self.least = min(self.least, *taken)
        return max(taken) <= SLOW * self.least

    def measured(self, ask: Callable[[], dict[str, Any]], after: float) -> dict[str, Any]:
        """What ``ask`` answers, its threads given ``after`` seconds to come to rest."""
        self.made += 1
        for _ in range(self.tries):
            end = time.monotonic() + self.patience
            steady = self.now()
            while not steady and time.monotonic() < end:
                time.sleep(WAIT)
                steady = self.now()
            told = ask()
            time.sleep(after)
            if steady and self.now():
                return told
        self.disturbed += 1
        return told
