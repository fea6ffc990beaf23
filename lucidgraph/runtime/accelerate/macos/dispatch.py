"""Threads on macOS: Grand Central Dispatch runs the parts of a kernel on its own threads.

``void dispatch_apply_f(size_t iterations, dispatch_queue_t queue, void *context, void (*work)(void *, size_t))`` calls
``work`` once for every number below ``iterations`` and returns when all calls have; the null queue lets the system
choose one of the caller's priority.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

from llvmlite import ir

from ..pool import Pool
from ..values import I1, I64, PTR

_JOB: Final = ("fn", "args", "items", "parts")


class DispatchPool(Pool):
    """One part of the items for each iteration; the job lies on the caller's stack.

    The part's number is the iteration's, not the thread's: results and scratch memory do not depend on who runs it. A
    forked child cannot use Dispatch and runs on one thread.
    """

    starts = False
    survives_fork = False
    finer = 1

    @staticmethod
    def default_threads() -> int:
        """The number of performance cores: equal parts wait for the slowest core."""
        return max(1, min(16, _system_number("hw.perflevel0.logicalcpu") or os.cpu_count() or 1))

    def wake(self, b: ir.IRBuilder) -> None:
        """The system keeps its threads ready."""

    def awake(self, b: ir.IRBuilder) -> ir.Value:
        return ir.Constant(I1, 0)

    def write(self) -> ir.Function:
        work = self.work()
        fn = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64] * len(_JOB)), "parallel")
        apply = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64, PTR, PTR, PTR]), "dispatch_apply_f")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        job = b.alloca(I64, size=I64(len(_JOB)))
        for k, value in enumerate(fn.args):
            b.store(value, b.gep(job, [I64(k)], source_etype=I64))
        b.call(apply, [fn.args[_JOB.index("parts")], ir.Constant(PTR, None), job, work])
        b.ret_void()
        return fn

    def work(self) -> ir.Function:
        """``void work(void *job, size_t part)``"""
        fn = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [PTR, I64]), "work")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        address, args, items, parts = (
            b.load(b.gep(fn.args[0], [I64(k)], source_etype=I64), typ=I64) for k in range(len(_JOB))
        )
        self.part(b, address, args, items, parts, fn.args[1], fn.args[1])
        b.ret_void()
        return fn


def _system_number(name: str) -> int:
    """An integer of the system's by name; 0 where it has none."""
    sysctl = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    value, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    if sysctl is None or sysctl(name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)):
        return 0
    return value.value


__all__ = ["DispatchPool"]
