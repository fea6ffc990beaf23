"""The form of a call: which checks, made on the next call, say that the same program serves it.

Where something cannot be checked cheaply there is no form, and the call is taken apart as the first one was.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import Any, Final, final

import numpy as np

from .. import trees
from ..calls import ArrayCheck, BufferCheck, Build, Check, Fetch, Form, Make, Step, TypedCheck, float_bits
from ..lang.tensor import Tensor, is_array, is_mlx
from .keys import PLAIN, static_key
from .outside import FUNCTIONS, Outside, Place, View
from .signatures import Call, StaticArgument
from .tracer import Static, Traced

_WIDEST: Final = range(-(2**63), 2**63)
_MOST_STEPS: Final = 256


@final
class _NoFormError(Exception):
    """Something in the call is not checked cheaply."""


def form_of(
    call: Call,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    outside: Outside,
    bounds: Mapping[int, tuple[int, int]],
    reads_buffers: bool,
) -> Form | None:
    """The form of a call, whose ``args`` and ``kwargs`` have marks around static arguments; ``bounds`` are those of the
    program's integers, by their numbers among the inputs; ``reads_buffers``: it takes the memory of other libraries."""
    try:
        return _Writer(call, bounds, reads_buffers).form(args, kwargs, outside)
    except _NoFormError:
        return None


@final
class _Writer:
    def __init__(self, call: Call, bounds: Mapping[int, tuple[int, int]], reads_buffers: bool) -> None:
        self.call = call
        self.bounds = bounds
        self.reads_buffers = reads_buffers
        self.first: list[Step] = []
        """What runs Python code, before anything else."""
        self.steps: list[Step] = []
        self.values = 0
        self.leaves = 0
        self.given = 0

    def form(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], outside: Outside) -> Form:
        call = self.call
        view = outside.view(call.objects)
        for place in view.places:
            self.outside(place, outside, view)
        for name, value in call.objects:
            expected = _keys(outside, view, name, value)
            self.holds(functools.partial(_is_unchanged, outside, view, name, _weak(value), expected))
        for k, value in enumerate(args):
            self.argument(value, Fetch.ARGUMENT, -1, k)
        names = tuple(kwargs)
        for name in sorted(names):
            self.argument(kwargs[name], Fetch.ARGUMENT, -1, len(args) + names.index(name))
        if self.leaves != len(call.leaves):
            raise _NoFormError
        steps = (*self.first, *self.steps)
        return Form(len(args), names, steps, self.values, self.given)

    def add(self, check: Check, expected: Any, fetch: Fetch, holder: Any, place: Any, number: int = -1,
            given: int = -1) -> None:  # fmt: skip
        if len(self.steps) >= _MOST_STEPS:
            raise _NoFormError
        self.steps.append(Step(check, expected, fetch, holder, place, number, given))

    def holds(self, function: Callable[[], bool]) -> None:
        self.first.append(Step(Check.HOLDS, function))

    def number(self, fetch: Fetch, place: Any) -> int:
        """The number of a tuple or list."""
        if fetch is Fetch.STORED:
            return int(place)
        self.values += 1
        return self.values - 1

    # -- arguments

    def argument(self, value: Any, fetch: Fetch, holder: int, place: int) -> None:
        kind = type(value)
        if value is None:
            self.add(Check.SAME, None, fetch, holder, place)
        elif kind is tuple or kind is list or trees.is_namedtuple(kind):
            items = Fetch.LIST if kind is list else Fetch.TUPLE
            number = self.number(fetch, place)
            self.add(Check.ITEMS, (kind, len(value)), fetch, holder, place, number)
            for k, item in enumerate(value):
                self.argument(item, items, number, k)
        elif kind is dict:
            number = self.keys(value, fetch, holder, place)
            names = list(value)
            for name in sorted(names):
                self.argument(value[name], Fetch.STORED, -1, number + names.index(name))
        else:
            self.leaf(value, fetch, holder, place)

    def keys(self, value: dict[str, Any], fetch: Fetch, holder: Any, place: Any) -> int:
        """A step for a dictionary; the number of its first value."""
        if not all(type(name) is str for name in value):
            raise _NoFormError
        first = self.values
        self.values += len(value)
        self.add(Check.DICT, tuple(value), fetch, holder, place, first)
        return first

    def leaf(self, value: Any, fetch: Fetch, holder: int, place: int) -> None:
        k = self.leaves
        self.leaves += 1
        leaves, types = self.call.leaves, self.call.types
        static = isinstance(value, StaticArgument)
        if k >= len(leaves) or leaves[k] is not (value.value if static else value):
            raise _NoFormError
        value, t = leaves[k], types[k]
        if t is None:
            if isinstance(value, (*PLAIN, float, complex)):
                self.constant(value, fetch, holder, place)
            elif is_array(value):
                raise _NoFormError
            else:
                self.add(Check.SAME_WHILE_ALIVE, _weak(value), fetch, holder, place)
            return
        kind = type(value)
        given = self.given
        self.given += 1
        if kind is np.ndarray:
            if value.dtype != t.dtype.numpy or not value.flags.aligned:
                raise _NoFormError
            strides = None if value.flags.c_contiguous else value.strides
            self.add(Check.ARRAY, ArrayCheck(t.dtype.numpy, t.shape, strides), fetch, holder, place, given=given)
        elif kind is float:
            self.add(Check.FLOAT, None, fetch, holder, place, given=given)
        elif kind is complex:
            self.add(Check.COMPLEX, None, fetch, holder, place, given=given)
        elif kind is int:
            limits = self.bounds.get(given, (_WIDEST[0], _WIDEST[-1]))
            limits = max(limits[0], _WIDEST[0]), min(limits[1], _WIDEST[-1])
            self.add(Check.INTEGER, limits, fetch, holder, place, given=given)
        elif isinstance(value, np.generic):
            self.add(Check.SCALAR, kind, fetch, holder, place, given=given)
        elif is_mlx(value) and self.reads_buffers:
            self.add(Check.BUFFER, _buffer(value), fetch, holder, place, given=given)
        elif is_mlx(value) or kind is Tensor:
            self.add(Check.TYPED, TypedCheck(kind, value.shape, value.dtype), fetch, holder, place, given=given)
        else:
            raise _NoFormError

    def constant(self, value: Any, fetch: Fetch, holder: Any, place: Any) -> None:
        """A plain value, by what it is."""
        kind = type(value)
        if kind is int and value in _WIDEST:
            self.add(Check.EQUAL_INTEGER, value, fetch, holder, place)
        elif kind is float:
            self.add(Check.EQUAL_FLOAT, float_bits(value), fetch, holder, place)
        elif isinstance(value, type):
            self.add(Check.SAME_WHILE_ALIVE, weakref.ref(value), fetch, holder, place)
        else:
            self.add(Check.SAME, value, fetch, holder, place)

    # -- what is outside

    def outside(self, place: Place, outside: Outside, view: View) -> None:
        name, where, key = place
        skip = outside.skipped(name)
        if skip is True:
            return
        before = len(self.steps), self.values
        try:
            if skip is not None:
                raise _NoFormError
            if isinstance(where, CellType):
                self.bound(place.value, Fetch.CELL, where, None)
            elif type(where) is dict:
                self.bound(place.value, Fetch.ITEM, where, key)
            else:
                raise _NoFormError
        except _NoFormError:
            del self.steps[before[0] :]
            self.values = before[1]
            expected = outside.key(place, view)
            self.holds(functools.partial(outside.holds, place, view, expected))

    def bound(self, value: Any, fetch: Fetch, holder: Any, place: Any) -> None:
        kind = type(value)
        if kind is np.ndarray or kind is FunctionType or is_mlx(value):
            self.add(Check.SAME_WHILE_ALIVE, weakref.ref(value), fetch, holder, place)
        elif isinstance(value, (*PLAIN, *FUNCTIONS, float, complex, np.generic)):
            self.constant(value, fetch, holder, place)
        elif kind is tuple or kind is list:
            items = Fetch.LIST if kind is list else Fetch.TUPLE
            number = self.number(fetch, place)
            self.add(Check.ITEMS, (kind, len(value)), fetch, holder, place, number)
            for k, item in enumerate(value):
                self.bound(item, items, number, k)
        elif kind is dict:
            number = self.keys(value, fetch, holder, place)
            for k, item in enumerate(value.values()):
                self.bound(item, Fetch.STORED, -1, number + k)
        else:
            raise _NoFormError


def _weak(value: Any) -> weakref.ref[Any]:
    try:
        return weakref.ref(value)
    except TypeError:
        raise _NoFormError from None


def _keys(outside: Outside, view: View, name: str, value: Any) -> tuple[Any, int, Any]:
    """What a static argument is told apart by, and what is read of it."""
    key = static_key(value)
    return key, hash(key), outside.key_of(name, value, view)


def _is_unchanged(
    outside: Outside, view: View, name: str, ref: weakref.ref[Any], expected: tuple[Any, int, Any]
) -> bool:  # fmt: skip
    value = ref()
    return value is not None and _keys(outside, view, name, value) == expected


def _buffer(value: Any) -> BufferCheck:
    view = memoryview(value)
    strides = view.strides or ()
    return BufferCheck(
        type(value), value.shape, value.dtype, view.format, view.itemsize, strides, view.c_contiguous
    )


def build_of(traced: Traced) -> Build | None:
    """How the results become what the function returned; None where it has containers of other kinds."""
    if not trees.is_plain(traced.spec):
        return None
    made: list[tuple[Make, Any]] = []
    # A stack of what is still to make: values, and the containers that come after their items.
    stack: list[Any] = [trees.unflatten(traced.spec, [_Leaf(out) for out in traced.outputs])]
    while stack:
        value = stack.pop()
        kind = type(value)
        if kind is _Container:
            made.append((value.what, value.of))
        elif kind is _Leaf:
            out = value.out
            made.append((Make.VALUE, out.value) if isinstance(out, Static) else (Make.RESULT, out))
        elif value is None:
            made.append((Make.VALUE, None))
        elif kind is dict:
            stack += (_Container(Make.DICT, tuple(value)), *reversed(value.values()))
        elif kind is list or kind is tuple:
            stack += (_Container(Make.LIST if kind is list else Make.TUPLE, len(value)), *reversed(value))
        else:
            named = _Container(Make.CALL, functools.partial(_spread, kind))
            stack += (named, _Container(Make.TUPLE, len(value)), *reversed(value))
    return tuple(made)


def _spread(kind: type, items: tuple[Any, ...]) -> Any:
    return kind(*items)


@final
class _Leaf:
    __slots__ = ("out",)

    def __init__(self, out: int | Static) -> None:
        self.out = out


@final
class _Container:
    __slots__ = ("of", "what")

    def __init__(self, what: Make, of: Any) -> None:
        self.what = what
        self.of = of


def inputs_with_strides(form: Form) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """The inputs that are not in row-major order, with their strides."""
    found = []
    for check, expected, *_, given in form.steps:
        strided = expected.strides is not None if check is Check.ARRAY else check is Check.BUFFER
        if strided and not (check is Check.BUFFER and expected.contiguous):
            found.append((given, expected.strides))
    return tuple(sorted(found))


def is_in_memory(form: Form) -> bool:
    """Whether all inputs are read from memory, and none is an object of a library."""
    return all(step.check is not Check.TYPED for step in form.steps)


def is_of_mlx(form: Form) -> bool:
    """Whether all inputs are MLX arrays, taken as objects."""
    given = [step for step in form.steps if step.given >= 0]
    return all(step.check is Check.TYPED and step.expected.kind is not Tensor for step in given)


__all__ = ["build_of", "form_of", "inputs_with_strides", "is_in_memory", "is_of_mlx"]
