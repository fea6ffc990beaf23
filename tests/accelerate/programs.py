"""Running a program on a backend of one's own making: another processor's code, another system's libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import lucidgraph as lg
from lucidgraph.ir import Graph
from lucidgraph.runtime.accelerate.backend import AccelerateBackend
from lucidgraph.runtime.accelerate.machine import HOST, Compiler, Machine
from lucidgraph.runtime.accelerate.system import SYSTEM
from lucidgraph.wiring import lowered

_LEVELS = {
    "x86-64": ("sse", "sse2", "cx8", "cmov"),
    "x86-64-v3": ("sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "avx", "avx2", "f16c", "fma", "bmi", "bmi2",
                  "lzcnt", "movbe", "popcnt"),
    "x86-64-v4": ("sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "avx", "avx2", "f16c", "fma", "bmi", "bmi2",
                  "lzcnt", "movbe", "popcnt", "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd"),
}  # fmt: skip
X86 = {cpu: Machine.of("x86_64-unknown-linux-gnu", cpu, dict.fromkeys(names, True)) for cpu, names in _LEVELS.items()}
ARM = {
    "macOS": Machine.of("arm64-apple-macosx14", "apple-m1", {}),
    "Linux": Machine.of("aarch64-unknown-linux-gnu", "generic", {}),
}
RUNNABLE = [cpu for cpu, m in X86.items() if HOST.triple.startswith("x86_64") and m.lanes <= HOST.lanes]
"""The processors that this one can stand for."""


def backend_for(machine: Machine) -> AccelerateBackend:
    """This system's backend, with code for another processor."""
    return AccelerateBackend(system=replace(SYSTEM, compiler=Compiler(machine)))


def graph_for(backend: AccelerateBackend, fn: Callable[..., Any], *args: np.ndarray) -> Graph:
    """The graph as the backend gets it."""
    return lowered(lg.trace(fn, *args), backend)


def outputs(backend: AccelerateBackend, fn: Callable[..., Any], *args: np.ndarray) -> list[np.ndarray]:
    """What ``fn`` returns, compiled by a backend."""
    return backend.compile(graph_for(backend, fn, *args))(list(args))
