"""The native loop that runs a plan: its kernels one after another, each split among threads.

A plan is a table of commands, five 64-bit integers each: the kernel's address, its arguments' address, the number of
items, whether to split them, and the cost. Items are split evenly: part p of P has those from p n/P to before
(p+1) n/P. What an item is, and so a plan's results, does not depend on the parts nor on who does them. What is worth
little is split only where no thread sleeps.

``run`` is entered holding the interpreter's lock, gives it up where the plan is worth it, and takes it back now and
then to see whether a signal has come.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import llvmlite.binding as llvm
from llvmlite import ir

from ... import epoch
from ...errors import UnsupportedError
from .machine import Code, Machine
from .pool import KERNEL, Pool
from .system import SYSTEM, System
from .values import I32, I64, PTR, Routine

COMMAND_WORDS: Final = 5
SIGNAL_COST: Final = 1 << 27
"""The cost, in bytes moved, after which signals are looked for again."""
RELEASE_COST: Final = 1 << 17
"""The cost from which the interpreter's lock is given up."""
PARALLEL_COST: Final = 1 << 18
"""The cost of a kernel, in bytes moved, from which it is split though threads must be woken for it."""
BRIEF_COST: Final = 1 << 14
"""The cost from which it is split among threads that are awake: half a microsecond's work."""
SHARED_COST: Final = 1 << 17
"""The cost of a plan from which its kernels are split."""


class ExecutorModule:
    """Writes the executor's functions: the pool's, and the loop over commands.

    One run at a time has the pool's threads; which it is, is settled here, where no signal can come between.
    """

    def __init__(self, machine: Machine, pool: type[Pool]) -> None:
        self.module = ir.Module(name="executor")
        self.pool = pool(self.module, machine)
        self.busy = ir.GlobalVariable(self.module, I32, "busy")
        self.busy.initializer = I32(0)
        self.ready = ir.GlobalVariable(self.module, I64, "ready")
        self.ready.initializer = I64(1)
        self.save = self._outside("PyEval_SaveThread", PTR, [])
        self.restore = self._outside("PyEval_RestoreThread", ir.VoidType(), [PTR])
        self.signals = self._outside("PyErr_CheckSignals", I32, [])

    def _outside(self, name: str, result: ir.Type, args: list[ir.Type]) -> ir.Function:
        return ir.Function(self.module, ir.FunctionType(result, args), name)

    def write(self) -> ir.Module:
        self.run(self.pool.write(), self.enter(), self.leave())
        return self.module

    def enter(self) -> ir.Function:
        """``i32 enter()``: take the threads for oneself; 0 where another has them."""
        fn = ir.Function(self.module, ir.FunctionType(I32, []), "enter")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        b.ret(b.xor(b.atomic_rmw("xchg", self.busy, I32(1), "acquire"), I32(1)))
        return fn

    def leave(self) -> ir.Function:
        """``void leave(i64 ready)``: give the threads up, of which so many are there, the caller's included."""
        fn = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64]), "leave")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        b.store(fn.args[0], self.ready)
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
        with b.if_then(b.and_(b.icmp_signed(">", most, I64(1)), b.icmp_signed(">=", cost, I64(SHARED_COST)))):
            b.store(b.call(enter, []), taken)
        mine = b.icmp_signed("!=", b.load(taken, typ=I32), I32(0))
        with b.if_then(mine):
            self.pool.wake(b)
        ready = b.load(self.ready, typ=I64)
        threads = b.select(b.and_(mine, b.icmp_signed("<=", ready, most)), ready, I64(1))
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
        worth = b.or_(b.icmp_signed(">=", price, I64(PARALLEL_COST)), self.pool.awake(b))
        many = b.and_(b.and_(b.icmp_signed("!=", split, I64(0)), worth), b.icmp_signed(">", threads, I64(1)))
        with b.if_else(many) as (then, otherwise):
            with then:
                b.call(parallel, [address, args, items, self.parts(b, items, price, threads)])
            with otherwise:
                b.call(Routine(b.inttoptr(address, PTR), KERNEL), [b.inttoptr(args, PTR), I64(0), items, I64(0)])
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
        with b.if_then(mine):
            b.call(leave, [ready])
        with b.if_then(release):
            b.call(self.restore, [b.load(saved, typ=PTR)])
        b.ret(I32(0))
        b.position_at_end(interrupted)
        with b.if_then(mine):
            b.call(leave, [ready])
        b.ret(I32(-1))

    def parts(self, b: ir.IRBuilder, items: ir.Value, price: ir.Value, threads: ir.Value) -> ir.Value:
        """As many as threads; more where they are worth it and the pool hands them out as threads come."""
        if self.pool.finer == 1:
            return threads

        def bound(name: str, x: ir.Value, y: ir.Value) -> ir.Value:
            return b.select(b.icmp_signed(name, x, y), x, y)

        finer = bound("<", b.mul(threads, I64(self.pool.finer)), b.sdiv(price, I64(PARALLEL_COST)))
        return bound("<", bound(">", finer, threads), items)


class Executor:
    """The native executor of this process, with its threads. A forked child starts its own, where it may."""

    def __init__(self, system: System = SYSTEM) -> None:
        self._system = system
        self._lock = threading.Lock()
        self._code: Code | None = None
        self._ordered: Code | None = None
        self._started = 1
        self._ready = 1
        self._closed = False
        self._most: float = math.inf
        self.threads = system.pool.default_threads()
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._started = self._ready = 1
        if self._code is not None:
            self._leave(1)
        if not self._system.pool.survives_fork:
            self.threads = self._most = 1
        epoch.bump()

    def order(self) -> None:
        """Have the code made, if nobody has yet; it is waited for when something runs."""
        with self._lock:
            self._order()

    def _order(self) -> Code:
        if self._ordered is None:
            compiler, pool = self._system.compiler, self._system.pool
            self._ordered = compiler.own(
                f"executor {pool.__name__}", lambda: ExecutorModule(compiler.machine, pool).write()
            )
        return self._ordered

    def _load(self) -> None:
        pool = self._system.pool
        for name in ("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals"):
            llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
        code = self._order()
        integer, pointer = ctypes.c_int64, ctypes.c_void_p
        self._run: Any = ctypes.PYFUNCTYPE(ctypes.c_int32, pointer, integer, integer, integer, pointer)(
            code.address("run")
        )
        self._enter: Any = ctypes.PYFUNCTYPE(ctypes.c_int32)(code.address("enter"))
        self._leave: Any = ctypes.PYFUNCTYPE(None, integer)(code.address("leave"))
        if pool.starts:
            self._start: Any = ctypes.PYFUNCTYPE(ctypes.c_int32, integer, integer)(code.address("start"))
            self._parallel: Any = ctypes.CFUNCTYPE(None, *[integer] * 4)(code.address("parallel"))
        self._code = code

    def address(self) -> int:
        """The address of the native function ``run``."""
        if self._code is None:
            with self._alone():
                pass
        assert self._code is not None
        return self._code.address("run")

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
                self._leave(self._ready)

    def set_threads(self, count: int) -> None:
        """Use ``count`` threads from the next call on. :class:`UnsupportedError` in a forked child that cannot."""
        if count > self._most:
            raise UnsupportedError(
                "a forked child has one thread on this system", hint="start processes by spawn: they have their own"
            )
        with self._alone():
            self._stop()
            self.threads = count
        epoch.bump()

    def _stop(self) -> None:
        self._ready = 1
        if self._started > 1:
            self._parallel(0, 0, 0, self._started - 1)
            self._started = 1

    def run(self, commands: int, count: int, cost: int, stop: int, most: int) -> None:
        """Run a table of commands on all threads, or alone: where ``most`` is less, or another run has them."""
        if self._code is None or (self._ready != self.threads and cost >= SHARED_COST):
            self._make_ready()
        self._run(commands, count, most, cost, stop)

    def _make_ready(self) -> None:
        with self._alone():
            if self._closed or self._ready == self.threads:
                return
            if self._system.pool.starts:
                self._started += self._start(self._started, self.threads - 1)
                if self._started < self.threads:
                    started = self._started
                    self._stop()
                    raise MemoryError(f"only {started} of {self.threads} threads can be started")
            self._ready = self.threads

    def close(self) -> None:
        """End the threads: at the interpreter's end, before its memory goes. What still runs then runs alone."""
        if self._code is not None:
            with self._alone():
                self._closed = True
                self._stop()


EXECUTOR: Final = Executor()
atexit.register(EXECUTOR.close)

__all__ = ["BRIEF_COST", "COMMAND_WORDS", "EXECUTOR", "SHARED_COST", "SIGNAL_COST"]
