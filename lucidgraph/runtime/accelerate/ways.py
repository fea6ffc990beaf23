"""The ways into a compiled function as tables of words, which the native entry reads."""

from __future__ import annotations

import ctypes
import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import llvmlite.binding as llvm
import numpy as np

from ... import epoch
from ...calls import ArrayCheck, Build, Check, Fetch, Form, Make, Step
from . import layouts
from .entry import entry_module
from .machine import Code
from .system import SYSTEM
from .words import FRAME_WORDS, INSTANCE, LATE_WORDS, MAKE_WORDS, RECORD, RESULT_WORDS, STEP_WORDS, WAY

if TYPE_CHECKING:
    from ..backend import Direct
    from .backend import Run

_TYPES: Final[dict[Check, type]] = {
    Check.FLOAT: float, Check.INTEGER: int, Check.COMPLEX: complex, Check.EQUAL_INTEGER: int,
    Check.EQUAL_FLOAT: float, Check.DICT: dict,
}  # fmt: skip
_MOST_INSTANCES: Final = 16


def _words(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


@functools.cache
def _code(offset: int) -> Code:
    """The entry, for objects that have their record so many bytes in; kept for ever."""
    for name in layouts.FUNCTIONS:
        llvm.add_symbol(name, layouts.address_of(getattr(ctypes.pythonapi, name)))
    return SYSTEM.compiler.code(f"entry {offset}", lambda: entry_module(offset))


@final
class Way:
    """One form of call: its checks, and the plan that serves it or, where it cannot be run natively, the Python
    function of its inputs that does; before that one, a library's own function may be tried, which gives so many
    ``results``. ``build`` says how results are put together."""

    def __init__(
        self, form: Form, build: Build, run: Run | None, python: Callable[..., Any] | None = None,
        bare: Direct | None = None, results: int = 0,
    ) -> None:  # fmt: skip
        self._kept: list[Any] = [form, build, run, python, bare]
        self._run = run
        inputs, extra = form.inputs, () if bare is None else bare.arrays
        results = len(run.results) if run is not None else results if bare is not None else 0
        header = self.header = _words([0] * len(WAY))
        self._set(epoch=epoch.now(), positional=form.positional, keywords=len(form.keywords), owner=id(self))
        self._set(names=self._table([id(self._keep(sys.intern(name))) for name in form.keywords]))
        self._set(steps=len(form.steps), step=self._table([w for s in form.steps for w in self._step(s)]))
        lates = [self._late(s) for s in form.steps if s.check in (Check.TYPED, Check.BUFFER)]
        buffers = sum(s.check is Check.BUFFER for s in form.steps)
        self._set(lates=len(lates), late=self._table([w for late in lates for w in late]))
        self._set(inputs=inputs, results=results)
        self._set(makes=len(build), make=self._table([w for what, a in build for w in self._make(what, a)]))
        at = FRAME_WORDS
        for name, count in (
            ("values", form.values), ("data", inputs + results), ("objects", max(inputs + len(extra), 2)),
            ("scalars", 2 * inputs), ("held", inputs), ("made", results), ("stack", len(build)),
            ("buffers", buffers * layouts.BUFFER_WORDS),
        ):  # fmt: skip
            header[WAY[name]] = at
            at += count
        self.frame = at
        if bare is not None:
            self._set(bare=id(bare.function), errors=id(bare.errors))
            self._set(extras=len(extra), extra=self._table([id(a) for a in extra]))
        if run is None:
            self._set(python=id(python))
        else:
            self._set(result=self._table([w for r in run.results for w in self._result(*r)]))
            self._set(run=run.address, count=run.commands, most=run.most, cost=run.cost, stopped=id(run.stopped))
            self._instances = 0
            self.grow()

    @property
    def is_free(self) -> bool:
        """Whether another call can come this way now."""
        return self._run is None or self.header[WAY["free"]] != 0

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self.header[WAY[name]] = value

    @property
    def address(self) -> int:
        return ctypes.addressof(self.header)

    @property
    def hits(self) -> int:
        """How many calls came this way."""
        return int(self.header[WAY["hits"]])

    def _keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value

    def _table(self, values: Sequence[int]) -> int:
        return ctypes.addressof(self._keep(_words(values)))

    def grow(self) -> None:
        """One more call at a time can come this way."""
        if self._run is None or self._instances >= _MOST_INSTANCES:
            return
        memory = self._keep(self._run.instance())
        fixups = self._table([w for fix in memory.fixups for w in fix])
        words = [0] * len(INSTANCE)
        for name, value in (
            ("next", self.header[WAY["free"]]), ("table", memory.table_address), ("stop", memory.stop_address),
            ("fixups", len(memory.fixups)), ("fixup", fixups),
        ):  # fmt: skip
            words[INSTANCE[name]] = value
        self._instances += 1
        self._set(free=self._table(words))

    def _step(self, step: Step) -> list[int]:
        check, expected, fetch, holder, place, number, given = step
        a = b = c = 0
        if check is Check.ARRAY:
            a = self._array(expected)
        elif check is Check.SAME_WHILE_ALIVE:
            a = self._watched(expected)
        elif check in (Check.SAME, Check.HOLDS):
            a, b = id(self._keep(expected)), id(True)
        elif check is Check.SCALAR:
            a = id(self._keep(expected))
        elif check in (Check.TYPED, Check.BUFFER):
            a = id(self._keep(expected.kind))
        elif check is Check.ITEMS:
            a, b = id(self._keep(expected[0])), expected[1]
        else:
            a = id(_TYPES[check])
            if check is Check.INTEGER:
                b, c = expected
            elif check is Check.DICT:
                b, c = len(expected), self._table([id(self._keep(key)) for key in expected])
            elif expected is not None:
                b = expected
        if fetch in (Fetch.CELL, Fetch.ITEM):
            holder = id(self._keep(holder))
            place = id(self._keep(place))
        words = [check, fetch, holder, place, number, given, a, b, c]
        assert len(words) == STEP_WORDS
        return words

    def _late(self, step: Step) -> list[int]:
        wanted = step.expected
        if step.check is Check.TYPED:
            words = [id(self._keep(v)) for v in ("shape", wanted.shape, "dtype", wanted.dtype)]
        else:
            name = self._keep(ctypes.create_string_buffer(wanted.format.encode()))
            ones = min(wanted.itemsize, 8) - 1
            words = [ctypes.addressof(name), wanted.itemsize, ones, len(wanted.shape), *wanted.shape, *wanted.strides]
        late = [step.check, step.given, self._table(words)]
        assert len(late) == LATE_WORDS
        return late

    def _array(self, wanted: ArrayCheck) -> int:
        dtype, shape, strides = wanted
        flags = layouts.ALIGNED | (layouts.C_CONTIGUOUS if strides is None else 0)
        head = [id(np.ndarray), id(self._keep(dtype)), dtype.num, len(shape), flags, len(strides or ())]
        return self._table([*head, *shape, *(strides or ())])

    def _watched(self, reference: Callable[[], Any]) -> int:
        """The address of an object that is not kept alive: when it dies, nothing comes this way any more."""
        header, place = self.header, WAY["epoch"]
        target = reference()
        if target is None:
            header[place] = -1
        else:
            self._keep(weakref.ref(target, lambda _: header.__setitem__(place, -1)))
        return id(target)

    def _make(self, what: Make, a: Any) -> list[int]:
        keys = 0
        if what is Make.VALUE:
            a = id(self._keep(a))
        elif what is Make.DICT:
            keys = self._table([id(self._keep(key)) for key in a])
            a = len(a)
        elif what is Make.CALL:
            a = id(self._keep(a))
        return [what, a, keys][:MAKE_WORDS]

    def _result(self, own: Callable[[], Any] | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> list[int]:
        words = [0 if own is None else id(self._keep(own)), id(self._keep(dtype)), len(shape), self._table(shape)]
        words += [id(np.ndarray), layouts.new_array()]
        assert len(words) == RESULT_WORDS
        return words


@final
class EntryPoint:
    """The ways into one object of a type made by :func:`layouts.callable_type`; ``slow`` is called with the object and
    the arguments where there is none."""

    def __init__(self, called: Any, size: int, slow: Callable[..., Any]) -> None:
        self._slow = slow
        self._record = _words([0] * len(RECORD))
        self._record[RECORD["epoch"]] = epoch.ADDRESS
        self._record[RECORD["slow"]] = id(slow)
        self._ways: tuple[Way, ...] = ()
        # The code may have to be waited for, and a signal's handler may call the object meanwhile.
        entry = _code(size + 8).address("entry")
        words = (ctypes.c_int64 * 2).from_address(id(called) + size)
        words[1] = ctypes.addressof(self._record)
        words[0] = entry

    def install(self, ways: Sequence[Way]) -> None:
        """Let calls come these ways, those used least last."""
        record = self._record
        record[RECORD["first"]] = 0
        record[RECORD["frame"]] = max((way.frame for way in ways), default=0)
        following = 0
        for way in reversed(ways):
            way._set(next=following)
            following = way.address
        self._ways = tuple(ways)
        record[RECORD["first"]] = following


__all__ = ["EntryPoint", "Way"]
