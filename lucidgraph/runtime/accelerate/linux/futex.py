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
_PROCESSORS: Final = 1024
"""How many a set of processors has room for, as in the C library."""


class FutexPool(Pool):
    """A job's parts are claimed one by one, the first by the caller, from the first on, the others by the workers, from
    the last on: who comes late leaves more to the others, and nobody waits for a thread that has begun nothing.

    A claim is one word, which holds the parts left, from ``low`` to before ``high``, and the number of the job. Who has
    claimed a part finds the job's other words in place, for they change only when all parts are done. Workers spin for
    a while, then sleep until the number moves. Those that sleep are counted: while there are none, handing out work
    takes a fraction of a microsecond and no call of the system.

    The system may put a thread that is woken on the processor of the one that wakes it, to wait there for milliseconds
    until it is moved. So workers are told to keep off the caller's processor, whenever that is another than the last
    time.
    """

    starts = True
    survives_fork = True
    finer = 4

    def __init__(self, module: ir.Module, machine: Machine) -> None:
        super().__init__(module, machine)
        self.claims = self._global("claims", I64)
        self.left = self._global("left", I32)
        self.asleep = self._global("asleep", I32)
        job = self._global("job", ir.ArrayType(I64, 4))
        self.job = {name: job.gep([I32(0), I32(k)]) for k, name in enumerate(("fn", "args", "items", "parts"))}
        self.syscall = self._outside("syscall", I64, [I64, PTR, I64, I64, PTR, PTR, I64])
        self.workers = self._global("workers", ir.ArrayType(I64, _EVERYBODY))
        self.started = self._global("started", I64)
        self.home = self._global("home", I32)
        self.home.initializer = I32(-1)
        self.processor = self._outside("sched_getcpu", I32, [])
        self.allowed = self._outside("sched_getaffinity", I32, [I32, I64, PTR])
        self.keep_to = self._outside("pthread_setaffinity_np", I32, [I64, I64, PTR])
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
        g.initializer = ir.Constant(typ, 0 if isinstance(typ, ir.IntType) else None)
        g.align = 64
        return g

    def write(self) -> ir.Function:
        self.start(self.worker())
        self.spread = self.keep_off()
        return self.parallel()

    def relax(self, b: ir.IRBuilder) -> None:
        """Tell the processor that this is a wait, where it has an instruction for that."""
        if self.machine.triple.startswith("x86_64"):
            name = "llvm.x86.sse2.pause"
            pause = self.module.globals.get(name) or self._outside(name, ir.VoidType(), [])
            b.call(pause, [])

    # A claim's bits: low from 0, high from 16, the job's number from 32.

    def claim(self, b: ir.IRBuilder, first: bool) -> ir.Value:
        """Claim the first part that is left, or the last: its number, or -1."""
        found = self._alloca(b, I64)
        b.store(I64(-1), found)
        seen = self._alloca(b, I64)
        b.store(b.load_atomic(self.claims, "acquire", 8, typ=I64), seen)
        head, take, after = (b.append_basic_block(n) for n in ("claim", "take", "claimed"))
        b.branch(head)
        b.position_at_end(head)
        now = b.load(seen, typ=I64)
        low, high = b.and_(now, I64(0xFFFF)), b.and_(b.lshr(now, I64(16)), I64(0xFFFF))
        b.cbranch(b.icmp_unsigned("<", low, high), take, after)
        b.position_at_end(take)
        new = b.add(now, I64(1)) if first else b.sub(now, I64(1 << 16))
        pair = b.cmpxchg(self.claims, now, new, "acq_rel", "acquire")
        b.store(b.extract_value(pair, 0), seen)
        mine = b.append_basic_block("mine")
        b.cbranch(b.extract_value(pair, 1), mine, head)
        b.position_at_end(mine)
        b.store(low if first else b.sub(high, I64(1)), found)
        b.branch(after)
        b.position_at_end(after)
        return b.load(found, typ=I64)

    def _alloca(self, b: ir.IRBuilder, typ: ir.Type) -> ir.Value:
        with b.goto_entry_block():
            return b.alloca(typ)

    def work(self, b: ir.IRBuilder, which: ir.Value, thread: ir.Value) -> None:
        """Do a claimed part."""
        address, args, items, parts = (b.load(self.job[name], typ=I64) for name in ("fn", "args", "items", "parts"))
        self.part(b, address, args, items, parts, which, thread)
        b.atomic_rmw("sub", self.left, I32(1), "release")

    def worker(self) -> ir.Function:
        """``ptr worker(ptr index)``: for ever claim parts and do them; a job without a function is the end."""
        fn = ir.Function(self.module, ir.FunctionType(PTR, [PTR]), "worker")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        left = b.alloca(I32)
        index = b.ptrtoint(fn.args[0], I64)
        wait, spin, idle, sleep, work, stop, call = (
            fn.append_basic_block(n) for n in ("wait", "spin", "idle", "sleep", "work", "stop", "call")
        )
        b.branch(wait)
        b.position_at_end(wait)
        b.store(I32(SPINS), left)
        b.branch(spin)
        b.position_at_end(spin)
        seen = b.load_atomic(self.claims, "acquire", 8, typ=I64)
        which = self.claim(b, first=False)
        b.cbranch(b.icmp_signed(">=", which, I64(0)), work, idle)
        b.position_at_end(idle)
        self.relax(b)
        n = b.load(left, typ=I32)
        b.store(b.sub(n, I32(1)), left)
        b.cbranch(b.icmp_signed(">", n, I32(0)), spin, sleep)
        b.position_at_end(sleep)
        # Counted before the system compares the number, which moves before the count is read: no job is missed.
        b.atomic_rmw("add", self.asleep, I32(1), "seq_cst")
        self.call_futex(b, _WAIT_PRIVATE, b.lshr(seen, I64(32)))
        b.atomic_rmw("sub", self.asleep, I32(1), "seq_cst")
        b.branch(wait)
        b.position_at_end(work)
        b.cbranch(b.icmp_signed("==", b.load(self.job["fn"], typ=I64), I64(0)), stop, call)
        b.position_at_end(call)
        self.work(b, which, index)
        b.branch(wait)
        b.position_at_end(stop)
        b.atomic_rmw("sub", self.left, I32(1), "release")
        b.ret(ir.Constant(PTR, None))
        return fn

    def call_futex(self, b: ir.IRBuilder, operation: int, value: ir.Value) -> None:
        """On the upper half of the claims: both processors of ours store it last."""
        null = ir.Constant(PTR, None)
        number = b.gep(self.claims, [I64(1)], source_etype=I32)
        b.call(self.syscall, [self.futex, number, I64(operation), value, null, null, I64(0)])

    def wake(self, b: ir.IRBuilder) -> None:
        with b.if_then(b.not_(self.awake(b))):
            b.call(self.spread, [])
            self.call_futex(b, _WAKE_PRIVATE, I64(_EVERYBODY))

    def keep_off(self) -> ir.Function:
        """``void keep_off()``: let workers run on the processors that the caller may use, but not on its own."""
        fn = ir.Function(self.module, ir.FunctionType(ir.VoidType(), []), "keep_off")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        words, k = b.alloca(I64, _PROCESSORS // 64), b.alloca(I64)
        here = b.call(self.processor, [])
        with b.if_then(b.icmp_signed("==", here, b.load(self.home, typ=I32))):
            b.ret_void()
        b.store(here, self.home)
        size = I64(_PROCESSORS // 8)
        known = b.icmp_signed(">", b.call(self.allowed, [I32(0), size, words]), I32(-1))
        with b.if_then(b.not_(b.and_(known, b.icmp_unsigned("<", here, I32(_PROCESSORS))))):
            b.ret_void()
        here = b.zext(here, I64)
        word = b.gep(words, [b.lshr(here, I64(6))])
        mine = b.shl(I64(1), b.and_(here, I64(63)))
        b.store(b.and_(b.load(word, typ=I64), b.not_(mine)), word)
        head, body, after = (fn.append_basic_block(n) for n in ("head", "body", "after"))
        b.store(I64(0), k)
        b.branch(head)
        b.position_at_end(head)
        n = b.load(k, typ=I64)
        b.cbranch(b.icmp_signed("<", n, b.load(self.started, typ=I64)), body, after)
        b.position_at_end(body)
        # Where no processor is left the system refuses, and nothing changes.
        b.call(self.keep_to, [b.load(b.gep(self.workers, [I64(0), n]), typ=I64), size, words])
        b.store(b.add(n, I64(1)), k)
        b.branch(head)
        b.position_at_end(after)
        b.ret_void()
        return fn

    def awake(self, b: ir.IRBuilder) -> ir.Value:
        return b.icmp_signed("==", b.load_atomic(self.asleep, "seq_cst", 4, typ=I32), I32(0))

    def start(self, worker: ir.Function) -> None:
        """``i32 start(i64 first, i64 last)``: start threads first to last; how many could be.

        A forked child has none of its parent's threads, and may have what they were in the middle of: before the first
        thread is started, nothing is left to claim and nobody asleep.
        """
        fn = ir.Function(self.module, ir.FunctionType(I32, [I64, I64]), "start")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        thread, at = b.alloca(I64), b.alloca(I64)
        first, last = fn.args
        b.store(first, at)
        with b.if_then(b.icmp_signed("==", first, I64(1))):
            number = b.and_(b.load_atomic(self.claims, "monotonic", 8, typ=I64), I64(-1 << 32))
            b.store_atomic(number, self.claims, "seq_cst", 8)
            b.store_atomic(I32(0), self.asleep, "seq_cst", 4)
            b.store(I64(0), self.started)
        b.store(I32(-1), self.home)
        head, body, after = (fn.append_basic_block(n) for n in ("head", "body", "after"))
        b.branch(head)
        b.position_at_end(head)
        k = b.load(at, typ=I64)
        b.cbranch(b.icmp_signed("<=", k, last), body, after)
        b.position_at_end(body)
        null = ir.Constant(PTR, None)
        error = b.call(self.create, [thread, null, worker, b.inttoptr(k, PTR)])
        with b.if_then(b.icmp_signed("!=", error, I32(0))):
            b.branch(after)
        b.call(self.detach, [b.load(thread, typ=I64)])
        with b.if_then(b.icmp_signed("<=", k, I64(_EVERYBODY))):
            b.store(b.load(thread, typ=I64), b.gep(self.workers, [I64(0), b.sub(k, I64(1))]))
            b.store(k, self.started)
        b.store(b.add(k, I64(1)), at)
        b.branch(head)
        b.position_at_end(after)
        b.ret(b.trunc(b.sub(b.load(at, typ=I64), first), I32))

    def parallel(self) -> ir.Function:
        """``void parallel(i64 fn, i64 args, i64 items, i64 parts)``: all threads do parts, this one included. Without a
        function, so many workers end."""
        fn = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [I64] * 4), "parallel")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        spins = b.alloca(I32)
        address, _, _, parts = fn.args
        for name, value in zip(("fn", "args", "items", "parts"), fn.args, strict=True):
            b.store(value, self.job[name])
        b.store(b.trunc(parts, I32), self.left)
        b.call(self.spread, [])
        number = b.add(b.lshr(b.load_atomic(self.claims, "monotonic", 8, typ=I64), I64(32)), I64(1))
        b.atomic_rmw("xchg", self.claims, b.or_(b.shl(number, I64(32)), b.shl(parts, I64(16))), "seq_cst")
        self.wake(b)
        with b.if_then(b.icmp_signed("==", address, I64(0))):
            b.store(I64(0), self.started)
        wait, more, after = (fn.append_basic_block(n) for n in ("wait", "more", "after"))
        own, mine = (fn.append_basic_block(n) for n in ("own", "mine"))
        b.store(I32(0), spins)
        b.cbranch(b.icmp_signed("!=", address, I64(0)), own, wait)
        b.position_at_end(own)
        which = self.claim(b, first=True)
        b.cbranch(b.icmp_signed(">=", which, I64(0)), mine, wait)
        b.position_at_end(mine)
        self.work(b, which, I64(0))
        b.branch(own)
        b.position_at_end(wait)
        left = b.load_atomic(self.left, "acquire", 4, typ=I32)
        b.cbranch(b.icmp_signed("==", left, I32(0)), after, more)
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
