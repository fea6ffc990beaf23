"""Threads on Linux: our own, made by ``pthread_create``, that spin for a while and then sleep on a futex."""

from __future__ import annotations

import os
from typing import Final

from llvmlite import ir

from ..machine import Machine
from ..pool import Pool
from ..values import I32, I64, PTR

SPINS: Final = 4000
_FUTEX: Final = {"x86_64": 202, "aarch64": 98}
"""The number of the system call, by processor."""
_WAIT_PRIVATE: Final = 128
_WAKE_PRIVATE: Final = 129
_EVERYBODY: Final = 1024


class FutexPool(Pool):
    """A worker waits for the epoch to move, does its part and counts it done; the caller does part 0 and waits for the
    count. It spins as long as it has a processor, then yields it."""

    starts = True
    survives_fork = True

    def __init__(self, module: ir.Module, machine: Machine) -> None:
        super().__init__(module, machine)
        self.epoch = self._global("epoch", I32)
        self.done = self._global("done", I32)
        self.job = {name: self._global(name, I64) for name in ("fn", "args", "items", "threads")}
        self.syscall = self._outside("syscall", I64, [I64, PTR, I64, I64, PTR, PTR, I64])
        self.create = self._outside("pthread_create", I32, [PTR, PTR, PTR, PTR])
        self.detach = self._outside("pthread_detach", I32, [I64])
        self.yields = self._outside("sched_yield", I32, [])
        self.futex = I64(_FUTEX[machine.triple.partition("-")[0]])

    @staticmethod
    def default_threads() -> int:
        return max(1, min(16, len(os.sched_getaffinity(0))))

    def _outside(self, name: str, result: ir.Type, args: list[ir.Type]) -> ir.Function:
        return ir.Function(self.module, ir.FunctionType(result, args), name)

    def _global(self, name: str, typ: ir.Type) -> ir.GlobalVariable:
        g = ir.GlobalVariable(self.module, typ, name)
        g.initializer = ir.Constant(typ, 0)
        g.align = 64
        return g

    def write(self) -> ir.Function:
        self.start(self.worker())
        return self.parallel()

    def relax(self, b: ir.IRBuilder) -> None:
        """Tell the processor that this is a wait, where it has an instruction for that."""
        if self.machine.triple.startswith("x86_64"):
            name = "llvm.x86.sse2.pause"
            pause = self.module.globals.get(name) or self._outside(name, ir.VoidType(), [])
            b.call(pause, [])

    def worker(self) -> ir.Function:
        """``ptr worker(ptr index)``: for ever wait for the epoch to move, do one's part, count it done."""
        fn = ir.Function(self.module, ir.FunctionType(PTR, [PTR]), "worker")
        entry, wait, spin, sleep, work, stop = (
            fn.append_basic_block(n) for n in ("entry", "wait", "spin", "sleep", "work", "stop")
        )
        call, after = fn.append_basic_block("call"), fn.append_basic_block("after")
        b = ir.IRBuilder(entry)
        seen, left = b.alloca(I32), b.alloca(I32)
        packed = b.ptrtoint(fn.args[0], I64)
        index = b.and_(packed, I64(0xFFFF))
        b.store(b.trunc(b.lshr(packed, I64(16)), I32), seen)
        b.branch(wait)
        b.position_at_end(wait)
        b.store(I32(SPINS), left)
        b.branch(spin)
        b.position_at_end(spin)
        now = b.load_atomic(self.epoch, "acquire", 4, typ=I32)
        n = b.load(left, typ=I32)
        b.store(b.sub(n, I32(1)), left)
        self.relax(b)
        idle = b.append_basic_block("idle")
        b.cbranch(b.icmp_signed("!=", now, b.load(seen, typ=I32)), work, idle)
        b.position_at_end(idle)
        b.cbranch(b.icmp_signed(">", n, I32(0)), spin, sleep)
        b.position_at_end(sleep)
        null = ir.Constant(PTR, None)
        b.call(
            self.syscall,
            [self.futex, self.epoch, I64(_WAIT_PRIVATE), b.zext(b.load(seen, typ=I32), I64), null, null, I64(0)],
        )
        b.branch(wait)
        b.position_at_end(work)
        b.store(now, seen)
        address = b.load(self.job["fn"], typ=I64)
        b.cbranch(b.icmp_signed("==", address, I64(0)), stop, call)
        b.position_at_end(call)
        args, items, threads = (b.load(self.job[name], typ=I64) for name in ("args", "items", "threads"))
        self.part(b, address, args, items, threads, index)
        b.branch(after)
        b.position_at_end(after)
        b.atomic_rmw("add", self.done, I32(1), "release")
        b.branch(wait)
        b.position_at_end(stop)
        b.atomic_rmw("add", self.done, I32(1), "release")
        b.ret(ir.Constant(PTR, None))
        return fn

    def start(self, worker: ir.Function) -> None:
        """``i32 start(i64 first, i64 last)``: start threads first to last; how many could be."""
        fn = ir.Function(self.module, ir.FunctionType(I32, [I64, I64]), "start")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        thread, at = b.alloca(I64), b.alloca(I64)
        first, last = fn.args
        b.store(first, at)
        head, body, after = (fn.append_basic_block(n) for n in ("head", "body", "after"))
        b.branch(head)
        b.position_at_end(head)
        k = b.load(at, typ=I64)
        b.cbranch(b.icmp_signed("<=", k, last), body, after)
        b.position_at_end(body)
        now = b.zext(b.load(self.epoch, typ=I32), I64)
        packed = b.or_(k, b.shl(now, I64(16)))
        null = ir.Constant(PTR, None)
        error = b.call(self.create, [thread, null, worker, b.inttoptr(packed, PTR)])
        with b.if_then(b.icmp_signed("!=", error, I32(0))):
            b.branch(after)
        b.call(self.detach, [b.load(thread, typ=I64)])
        b.store(b.add(k, I64(1)), at)
        b.branch(head)
        b.position_at_end(after)
        b.ret(b.trunc(b.sub(b.load(at, typ=I64), first), I32))

    def parallel(self) -> ir.Function:
        """``void parallel(i64 fn, i64 args, i64 items, i64 threads)``: all threads do their part, this one included."""
        fn = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64] * 4), "parallel")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        spins = b.alloca(I32)
        address, args, items, threads = fn.args
        for name, value in zip(("fn", "args", "items", "threads"), fn.args, strict=True):
            b.store(value, self.job[name])
        b.store(I32(0), self.done)
        b.atomic_rmw("add", self.epoch, I32(1), "seq_cst")
        null = ir.Constant(PTR, None)
        b.call(self.syscall, [self.futex, self.epoch, I64(_WAKE_PRIVATE), I64(_EVERYBODY), null, null, I64(0)])
        with b.if_then(b.icmp_signed("!=", address, I64(0))):
            self.part(b, address, args, items, threads, I64(0))
        b.store(I32(0), spins)
        wait, more, after = (fn.append_basic_block(n) for n in ("wait", "more", "after"))
        b.branch(wait)
        b.position_at_end(wait)
        done = b.zext(b.load_atomic(self.done, "acquire", 4, typ=I32), I64)
        b.cbranch(b.icmp_signed(">=", done, b.sub(threads, I64(1))), after, more)
        b.position_at_end(more)
        self.relax(b)
        n = b.add(b.load(spins, typ=I32), I32(1))
        b.store(n, spins)
        with b.if_then(b.icmp_unsigned(">", n, I32(SPINS))):
            b.call(self.yields, [])
        b.branch(wait)
        b.position_at_end(after)
        b.ret_void()
        return fn


__all__ = ["SPINS", "FutexPool"]
