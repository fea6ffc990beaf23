"""From the text of an LLVM module to object code, for several modules at once.

llvmlite lets one thread at a time into LLVM. LLVM itself asks only that threads share no context, so the three long
steps, of which each module has its own context, are called past that lock; the rest keeps to it, and to ours.

Modules stand in a line. A thread of each further processor takes from it, and so does whoever waits for a result: on
one processor everything happens there. Threads end with the line; no fork happens while one is inside LLVM.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, final

import llvmlite.binding as llvm
from llvmlite.binding import newpassmanagers


def held_while_forking(lock: Any) -> None:
    """Let no fork happen while another thread has ``lock``: in the child it would never be released."""
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


ENTRY: Final = threading.RLock()
"""Held around calls into LLVM through llvmlite, which has a lock of its own that a forked child may find taken."""
# Before the line, which is so waited for first: what is done there needs this lock.
held_while_forking(ENTRY)

PASSES: Final = ("sroa", "instruction_combine", "loop_rotate")
"""What our loops need: variables in registers, simple arithmetic, conditions at the loops' ends. Vectors are written
as vectors, and what does not change in a loop is moved out of it while code is generated."""


def add_passes(manager: Any) -> None:
    for name in PASSES:
        getattr(manager, f"add_{name}_pass")()


def _native() -> tuple[Any, Any]:
    """llvmlite's library, as called with the interpreter's lock given up, and with it held."""
    name = getattr(llvm.ffi.lib, "_name", None)
    return (ctypes.CDLL(name), ctypes.PyDLL(name)) if name else (llvm.ffi.lib, llvm.ffi.lib)


_FREE, _HELD = _native()


def _function(library: Any, name: str) -> Any:
    function, known = getattr(library, name), getattr(llvm.ffi.lib, name)
    function.argtypes, function.restype = known.argtypes, known.restype
    return function


# Short calls keep the interpreter's lock: to get it back can take longer than they do.
_run_passes = _function(_FREE, "LLVMPY_RunNewModulePassManager")
_emit = _function(_FREE, "LLVMPY_TargetMachineEmitToMemory")
_parse = _function(_HELD, "LLVMPY_ParseAssembly")
_new_context = _function(_HELD, "LLVMPY_ContextCreate")
_drop_context = _function(_HELD, "LLVMPY_ContextDispose")
_drop_module = _function(_HELD, "LLVMPY_DisposeModule")
_start_of = _function(_HELD, "LLVMPY_GetBufferStart")
_size_of = _function(_HELD, "LLVMPY_GetBufferSize")
_drop_buffer = _function(_HELD, "LLVMPY_DisposeMemoryBuffer")


@final
class Bench:
    """What one thread at a time compiles with: a target machine, and the passes for it."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=1))
        self.passes = newpassmanagers.create_new_module_pass_manager()
        add_passes(self.passes)

    @staticmethod
    def of(make_target: Callable[[], Any]) -> Bench:
        with ENTRY:
            return Bench(make_target())

    def object_code(self, text: str) -> bytes:
        error = ctypes.c_char_p()
        context = _new_context()
        module = None
        try:
            module = _parse(context, text.encode(), ctypes.byref(error))
            if not module or error.value:
                raise RuntimeError(f"LLVM cannot read what was written: {(error.value or b'').decode()}")
            _run_passes(self.passes, module, self.builder)
            buffer = _emit(self.target, module, 1, ctypes.byref(error))
            if not buffer:
                raise RuntimeError(f"LLVM has no code for what was written: {(error.value or b'').decode()}")
            code = ctypes.string_at(_start_of(buffer), _size_of(buffer))
            _drop_buffer(buffer)
            return code
        finally:
            if module:
                _drop_module(module)
            _drop_context(context)


@final
class Job:
    """A module in the line: ``work`` gives its object code, or raises."""

    __slots__ = ("code", "error", "state", "work")

    def __init__(self, work: Callable[[], bytes]) -> None:
        self.work: Callable[[], bytes] | None = work
        self.code: bytes | None = None
        self.error: BaseException | None = None
        self.state = "waiting"


@final
class Line:
    """Jobs, and the threads that do them."""

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._inside: dict[int, int] = {}
        """How many jobs each thread is doing: one, but for what a signal's handler begins in another."""
        self._workers = 0
        os.register_at_fork(
            before=self._before_fork, after_in_parent=self._changed.release, after_in_child=self._after_fork
        )

    def add(self, work: Callable[[], bytes]) -> Job:
        job = Job(work)
        with self._changed:
            self._waiting.append(job)
            start = self._workers < self._most and not sys.is_finalizing()
            self._workers += start
        if start:
            try:
                threading.Thread(target=self._serve, name="lucidgraph-compiler").start()
            except RuntimeError:  # none is to be had: whoever waits for the result makes it
                with self._changed:
                    self._workers -= 1
        return job

    def drop(self, job: Job) -> None:
        """Forget a job that nobody has begun."""
        with self._changed:
            if job.state == "waiting":
                job.state, job.work = "dropped", None
                self._waiting.remove(job)

    def result(self, job: Job) -> bytes:
        """A job's object code. Until it is there, this thread does what stands in the line."""
        while True:
            with self._changed:
                while job.state == "running" and not self._waiting:
                    self._changed.wait()
                if job.state == "done":
                    break
                mine = self._begun(job if job.state == "waiting" else None)
            self._do(mine)
        if job.error is not None:
            raise job.error
        assert job.code is not None
        return job.code

    def _serve(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._workers -= 1
                    return
                job = self._begun(None)
            self._do(job)

    def _begun(self, job: Job | None) -> Job:
        """Take a job out of the line: ``job``, or the first. Called with the lock held."""
        if job is None:
            job = self._waiting.popleft()
        else:
            self._waiting.remove(job)
        job.state = "running"
        me = threading.get_ident()
        self._inside[me] = self._inside.get(me, 0) + 1
        return job

    def _do(self, job: Job) -> None:
        assert job.work is not None
        try:
            job.code = job.work()
        except (RuntimeError, OSError, MemoryError) as error:
            job.error = error  # raised where the result is wanted
        finally:
            self._ended(job)

    def _ended(self, job: Job) -> None:
        me = threading.get_ident()
        with self._changed:
            if job.code is None and job.error is None:  # a signal's handler has raised: the job is still to be done
                job.state = "waiting"
                self._waiting.append(job)
            else:
                job.state, job.work = "done", None
            self._inside[me] -= 1
            if not self._inside[me]:
                del self._inside[me]
            self._changed.notify_all()

    # -- forks: the child has none of the other threads

    def _before_fork(self) -> None:
        self._changed.acquire()
        me = threading.get_ident()
        while any(thread != me for thread in self._inside):
            self._changed.wait()

    def _after_fork(self) -> None:
        self._workers = 0
        self._changed.release()


LINE: Final = Line(min(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1, 8) - 1)

__all__ = ["ENTRY", "LINE", "Bench", "Job", "Line", "add_passes", "held_while_forking"]
