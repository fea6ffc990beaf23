"""How a kernel's items are shared among threads: functions written into the executor's module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from llvmlite import ir

from .machine import Machine
from .values import I64, PTR, Routine

KERNEL: Final = ir.FunctionType(ir.VoidType(), [PTR, I64, I64, I64])


class Pool(ABC):
    """Writes ``void parallel(i64 fn, i64 args, i64 items, i64 parts)``, which returns when every part of the items has
    been done by some thread; ``fn`` is a kernel's address."""

    starts: ClassVar[bool]
    """Whether it has threads of its own: then it writes ``i32 start(i64 first, i64 last)``, which starts those threads
    and returns how many it could, and ``parallel`` with ``fn`` 0 ends as many as there are parts."""
    finer: ClassVar[int]
    """Into how many parts for each thread work may be cut, so that a thread that is held up does fewer."""
    survives_fork: ClassVar[bool]
    """Whether a forked child can have threads."""

    def __init__(self, module: ir.Module, machine: Machine) -> None:
        self.module = module
        self.machine = machine

    @abstractmethod
    def write(self) -> ir.Function:
        """Append the functions to the module; the one named ``parallel``."""

    @abstractmethod
    def wake(self, b: ir.IRBuilder) -> None:
        """Let threads that sleep get ready for work that follows."""

    @abstractmethod
    def awake(self, b: ir.IRBuilder) -> ir.Value:
        """Whether every thread waits for work, so that it is worth sharing little of it."""

    @staticmethod
    @abstractmethod
    def default_threads() -> int:
        """How many threads to use unless told."""

    def part(
        self, b: ir.IRBuilder, address: ir.Value, args: ir.Value, items: ir.Value, parts: ir.Value, which: ir.Value,
        thread: ir.Value,
    ) -> None:  # fmt: skip
        """Do part p of P on a thread: the items from p n/P to before (p+1) n/P."""
        begin = b.sdiv(b.mul(which, items), parts)
        end = b.sdiv(b.mul(b.add(which, I64(1)), items), parts)
        with b.if_then(b.icmp_signed("<", begin, end)):
            b.call(Routine(b.inttoptr(address, PTR), KERNEL), [b.inttoptr(args, PTR), begin, end, thread])


__all__ = ["KERNEL", "Pool"]
