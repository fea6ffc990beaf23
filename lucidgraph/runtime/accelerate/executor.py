"""The native loop that runs a plan: its kernels one after another, each split among threads.

A plan is a table of commands, five 64-bit integers each: the kernel's address, its arguments' address, the number of
items, whether to split them, and the cost. Items are split evenly: thread t of T takes those from t n/T to (t+1) n/T,
so a plan's results depend on nothing but its own data.

``run`` is entered holding the interpreter's lock, gives it up where the plan is worth it, and takes it back now and
then to see whether a signal has come.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import llvmlite.binding as llvm
from llvmlite import ir

from .machine import HOST, Code, Machine, compile_module
from .values import I32, I64, PTR

COMMAND_WORDS: Final = 5
SIGNAL_COST: Final = 1 << 27
"""The cost, in bytes moved, after which signals are looked for again."""
RELEASE_COST: Final = 1 << 17
"""The cost from which the interpreter's lock is given up."""
PARALLEL_COST: Final = 1 << 17
"""The cost of a plan, in bytes moved, from which its large kernels are split."""
SPINS: Final = 4000
_FUTEX: Final = {"x86_64": 202, "aarch64": 98}

_KERNEL: Final = ir.FunctionType(ir.VoidType(), [PTR, I64, I64, I64])


class _Module:
    """Writes the executor's functions."""

    def __init__(self, machine: Machine) -> None:
        self.module = ir.Module(name="executor")
        self.machine = machine
        m = self.module
        self.epoch = self._global("epoch", I32)
        self.done = self._global("done", I32)
        self.busy = self._global("busy", I32)
        self.ready = self._global("ready", I64, 1)
        self.job = {name: self._global(name, I64) for name in ("fn", "args", "items", "threads")}
        self.pause = ir.Function(m, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause")
        self.syscall = ir.Function(m, ir.FunctionType(I64, [I64, PTR, I64, I64, PTR, PTR, I64]), "syscall")
        self.create = ir.Function(m, ir.FunctionType(I32, [PTR, PTR, PTR, PTR]), "pthread_create")
        self.detach = ir.Function(m, ir.FunctionType(I32, [I64]), "pthread_detach")
        self.yields = ir.Function(m, ir.FunctionType(I32, []), "sched_yield")
        self.save = ir.Function(m, ir.FunctionType(PTR, []), "PyEval_SaveThread")
        self.restore = ir.Function(m, ir.FunctionType(ir.VoidType(), [PTR]), "PyEval_RestoreThread")
        self.signals = ir.Function(m, ir.FunctionType(I32, []), "PyErr_CheckSignals")
        self.futex_number = _FUTEX.get(platform.machine(), 202)

    def _global(self, name: str, typ: ir.Type, value: int = 0) -> ir.GlobalVariable:
        g = ir.GlobalVariable(self.module, typ, name)
        g.initializer = ir.Constant(typ, value)
        g.align = 64
        return g

    def write(self) -> ir.Module:
        worker = self.worker()
        self.start(worker)
        parallel = self.parallel()
        self.stop(parallel)
        self.reset()
        self.run(parallel, self.enter(), self.leave())
        return self.module

    def relax(self, b: ir.IRBuilder) -> None:
        if self.machine.triple.startswith("x86_64"):
            b.call(self.pause, [])

    def bounds(self, b: ir.IRBuilder, index: ir.Value, items: ir.Value, threads: ir.Value) -> tuple[ir.Value, ir.Value]:
        begin = b.sdiv(b.mul(index, items), threads)
        return begin, b.sdiv(b.mul(b.add(index, I64(1)), items), threads)

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
            [I64(self.futex_number), self.epoch, I64(128), b.zext(b.load(seen, typ=I32), I64), null, null, I64(0)],
        )
        b.branch(wait)
        b.position_at_end(work)
        b.store(now, seen)
        address = b.load(self.job["fn"], typ=I64)
        b.cbranch(b.icmp_signed("==", address, I64(0)), stop, call)
        b.position_at_end(call)
        begin, end = self.bounds(b, index, b.load(self.job["items"], typ=I64), b.load(self.job["threads"], typ=I64))
        some = b.icmp_signed("<", begin, end)
        with b.if_then(some):
            args = b.inttoptr(b.load(self.job["args"], typ=I64), PTR)
            self.call_kernel(b, address, args, begin, end, index)
        b.branch(after)
        b.position_at_end(after)
        b.atomic_rmw("add", self.done, I32(1), "release")
        b.branch(wait)
        b.position_at_end(stop)
        b.atomic_rmw("add", self.done, I32(1), "release")
        b.ret(ir.Constant(PTR, None))
        return fn

    def call_kernel(
        self, b: ir.IRBuilder, address: ir.Value, args: ir.Value, begin: ir.Value, end: ir.Value, thread: ir.Value
    ) -> None:
        b.call(_Pointer(b.inttoptr(address, PTR), _KERNEL), [args, begin, end, thread])

    def start(self, worker: ir.Function) -> None:
        """``i64 start(i64 count)``: start threads 1 to count; how many there are then, the calling one included."""
        fn = ir.Function(self.module, ir.FunctionType(I64, [I64]), "start")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        thread, at = b.alloca(I64), b.alloca(I64)
        b.store(I64(1), at)
        head, body, after = (fn.append_basic_block(n) for n in ("head", "body", "after"))
        b.branch(head)
        b.position_at_end(head)
        k = b.load(at, typ=I64)
        b.cbranch(b.icmp_signed("<=", k, fn.args[0]), body, after)
        b.position_at_end(body)
        now = b.zext(b.load(self.epoch, typ=I32), I64)
        packed = b.or_(k, b.shl(now, I64(16)))
        null = ir.Constant(PTR, None)
        error = b.call(self.create, [thread, null, worker, b.inttoptr(packed, PTR)])
        with b.if_then(b.icmp_signed("!=", error, I32(0))):
            b.store(k, self.ready)
            b.ret(k)
        b.call(self.detach, [b.load(thread, typ=I64)])
        b.store(b.add(k, I64(1)), at)
        b.branch(head)
        b.position_at_end(after)
        count = b.load(at, typ=I64)
        b.store(count, self.ready)
        b.ret(count)

    def stop(self, parallel: ir.Function) -> None:
        """``void stop()``: end all threads but the calling one."""
        fn = ir.Function(self.module, ir.FunctionType(ir.VoidType(), []), "stop")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        b.call(parallel, [I64(0), I64(0), I64(0), b.load(self.ready, typ=I64)])
        b.store(I64(1), self.ready)
        b.ret_void()

    def reset(self) -> None:
        """``void reset()``: in a forked child, whose threads are not there."""
        fn = ir.Function(self.module, ir.FunctionType(ir.VoidType(), []), "reset")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        b.store(I64(1), self.ready)
        b.store_atomic(I32(0), self.busy, "release", 4)
        b.ret_void()

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
        b.call(self.syscall, [I64(self.futex_number), self.epoch, I64(129), I64(1024), null, null, I64(0)])
        with b.if_then(b.icmp_signed("!=", address, I64(0))):
            begin, end = self.bounds(b, I64(0), items, threads)
            with b.if_then(b.icmp_signed("<", begin, end)):
                self.call_kernel(b, address, b.inttoptr(args, PTR), begin, end, I64(0))
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

    def enter(self) -> ir.Function:
        """``i32 enter()``: take the threads for oneself; 0 where another run has them."""
        fn = ir.Function(self.module, ir.FunctionType(I32, []), "enter")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        b.ret(b.xor(b.atomic_rmw("xchg", self.busy, I32(1), "acquire"), I32(1)))
        return fn

    def leave(self) -> ir.Function:
        """``void leave()``: give the threads up."""
        fn = ir.Function(self.module, ir.FunctionType(ir.VoidType(), []), "leave")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        b.store_atomic(I32(0), self.busy, "release", 4)
        b.ret_void()
        return fn

    def run(self, parallel: ir.Function, enter: ir.Function, leave: ir.Function) -> None:
        """``i32 run(i64 *commands, i64 count, i64 most, i64 cost, i64 *stop)``: 0, or -1 after a signal; a kernel that
        writes a number other than 0 to ``stop`` ends the run. It has all threads or, where they are more than ``most``
        or another run has them, one."""
        fn = ir.Function(self.module, ir.FunctionType(I32, [PTR, I64, I64, I64, PTR]), "run")
        # The interpreter ends daemon threads where they ask for its lock back: by unwinding their stacks.
        fn.attributes.add("uwtable")
        commands, count, most, cost, stop = fn.args
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        taken = b.alloca(I32)
        b.store(I32(0), taken)
        with b.if_then(b.and_(b.icmp_signed(">", most, I64(1)), b.icmp_signed(">=", cost, I64(PARALLEL_COST)))):
            b.store(b.call(enter, []), taken)
        parted = b.icmp_signed("!=", b.load(taken, typ=I32), I32(0))
        ready = b.load(self.ready, typ=I64)
        threads = b.select(b.and_(parted, b.icmp_signed("<=", ready, most)), ready, I64(1))
        at, spent, saved = b.alloca(I64), b.alloca(I64), b.alloca(PTR)
        b.store(I64(0), at)
        b.store(I64(0), spent)
        b.store(ir.Constant(PTR, None), saved)
        release = b.icmp_signed(">=", cost, I64(RELEASE_COST))
        with b.if_then(release):
            b.store(b.call(self.save, []), saved)
        head, body, after, interrupted = (fn.append_basic_block(n) for n in ("head", "body", "after", "interrupted"))
        b.branch(head)
        b.position_at_end(head)
        k = b.load(at, typ=I64)
        go = b.and_(b.icmp_signed("<", k, count), b.icmp_signed("==", b.load(stop, typ=I64), I64(0)))
        b.cbranch(go, body, after)
        b.position_at_end(body)
        base = b.gep(commands, [b.mul(k, I64(COMMAND_WORDS))], source_etype=I64)
        address, args, items, split, price = (
            b.load(b.gep(base, [I64(w)], source_etype=I64), typ=I64) for w in range(COMMAND_WORDS)
        )
        many = b.and_(b.icmp_signed("!=", split, I64(0)), b.icmp_signed(">", threads, I64(1)))
        with b.if_else(many) as (then, otherwise):
            with then:
                b.call(parallel, [address, args, items, threads])
            with otherwise:
                self.call_kernel(b, address, b.inttoptr(args, PTR), I64(0), items, I64(0))
        b.store(b.add(k, I64(1)), at)
        total = b.add(b.load(spent, typ=I64), price)
        b.store(total, spent)
        due = b.and_(b.icmp_signed(">", total, I64(SIGNAL_COST)), release)
        with b.if_then(due):
            b.store(I64(0), spent)
            b.call(self.restore, [b.load(saved, typ=PTR)])
            bad = b.icmp_signed("!=", b.call(self.signals, []), I32(0))
            with b.if_then(bad):
                b.branch(interrupted)
            b.store(b.call(self.save, []), saved)
        b.branch(head)
        b.position_at_end(after)
        with b.if_then(parted):
            b.call(leave, [])
        with b.if_then(release):
            b.call(self.restore, [b.load(saved, typ=PTR)])
        b.ret(I32(0))
        b.position_at_end(interrupted)
        with b.if_then(parted):
            b.call(leave, [])
        b.ret(I32(-1))


class _Pointer(ir.Value):
    """A code address as something that can be called."""

    def __init__(self, value: ir.Value, typ: ir.FunctionType) -> None:
        self.type = PTR
        self.function_type = typ
        self.value = value

    def get_reference(self) -> str:
        return str(self.value.get_reference())


def _default_threads() -> int:
    available = getattr(os, "sched_getaffinity", None)
    return max(1, min(16, len(available(0)) if available else os.cpu_count() or 1))


class Executor:
    """The native executor of this process, with its threads. A forked child starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._code: Code | None = None
        self._started = 1
        self._closed = False
        self.threads = _default_threads()
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._started = 1
        if self._code is not None:
            self._reset()

    def _load(self) -> None:
        for name in ("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals"):
            llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
        code = compile_module(_Module(HOST).write(), HOST)
        integer, pointer = ctypes.c_int64, ctypes.c_void_p
        self._run: Any = ctypes.PYFUNCTYPE(ctypes.c_int32, pointer, integer, integer, integer, pointer)(
            code.address("run")
        )
        self._start: Any = ctypes.PYFUNCTYPE(integer, integer)(code.address("start"))
        self._end: Any = ctypes.CFUNCTYPE(None)(code.address("stop"))
        self._reset: Any = ctypes.PYFUNCTYPE(None)(code.address("reset"))
        self._enter: Any = ctypes.PYFUNCTYPE(ctypes.c_int32)(code.address("enter"))
        self._leave: Any = ctypes.PYFUNCTYPE(None)(code.address("leave"))
        self._code = code

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While no run has the threads."""
        with self._lock:
            if self._code is None:
                self._load()
            while not self._enter():
                time.sleep(1e-4)
            try:
                yield
            finally:
                self._leave()

    def set_threads(self, count: int) -> None:
        """Use ``count`` threads from the next call on."""
        with self._alone():
            self._stop()
            self.threads = count

    def _stop(self) -> None:
        if self._started > 1:
            self._end()
            self._started = 1

    def run(self, commands: int, count: int, cost: int, stop: int, most: int) -> None:
        """Run a table of commands on all threads, or alone: where ``most`` is less, or another run has them."""
        if self._code is None or (self._started != self.threads and cost >= PARALLEL_COST):
            self._make_ready()
        self._run(commands, count, most, cost, stop)

    def _make_ready(self) -> None:
        with self._alone():
            if self._started == self.threads or self._closed:
                return
            self._started = self._start(self.threads - 1)
            if self._started != self.threads:
                self._stop()
                raise MemoryError(f"{self.threads} threads cannot be started")

    def close(self) -> None:
        """End the threads: at the interpreter's end, before its memory goes. What still runs then runs alone."""
        if self._code is not None:
            with self._alone():
                self._closed = True
                self._stop()


EXECUTOR: Final = Executor()
atexit.register(EXECUTOR.close)

__all__ = ["COMMAND_WORDS", "EXECUTOR", "PARALLEL_COST"]
