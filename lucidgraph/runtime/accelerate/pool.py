"""How a kernel's items are shared among threads: functions written into the executor's module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from llvmlite import ir

from .machine import Machine
from .values import I64, PTR, Routine

KERNEL: Final = ir.FunctionType(ir.VoidType(), [PTR, I64, I64, I64])


class Pool(ABC):
    """Writes ``void parallel(i64 fn, i64 args, i64 items, i64 threads)``, which returns when every thread has done its
    part; ``fn`` is a kernel's address."""

    starts: ClassVar[bool]
    """Whether it has threads of its own: then it writes ``i32 start(i64 first, i64 last)``, which starts those threads
    and returns how many it could, and ``parallel`` with ``fn`` 0 ends them."""
    survives_fork: ClassVar[bool]
    """Whether a forked child can have threads."""

    def __init__(self, module: ir.Module, machine: Machine) -> None:
        self.module = module
        self.machine = machine

    @abstractmethod
    def write(self) -> ir.Function:
        """Append the functions to the module; the one named ``parallel``."""

    @staticmethod
    @abstractmethod
    def default_threads() -> int:
        """How many threads to use unless told."""

    def part(
        self, b: ir.IRBuilder, address: ir.Value, args: ir.Value, items: ir.Value, threads: ir.Value, thread: ir.Value
    ) -> None:
        """Do a thread's part: the items from t n/T to before (t+1) n/T."""
        begin = b.sdiv(b.mul(thread, items), threads)
        end = b.sdiv(b.mul(b.add(thread, I64(1)), items), threads)
        with b.if_then(b.icmp_signed("<", begin, end)):
            b.call(Routine(b.inttoptr(address, PTR), KERNEL), [b.inttoptr(args, PTR), begin, end, thread])


__all__ = ["KERNEL", "Pool"]
