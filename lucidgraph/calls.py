"""How a call is known again: a list of checks, each of one value, cheap enough to make before every call.

The checks of a form are made in order. A value is an argument, or an item of a value before it, or what is bound
outside; each has a number. Passing all of them means that the program found for the first such call serves this one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "ArrayCheck", "BufferCheck", "Build", "Check", "Fetch", "Form", "Make", "Step", "TypedCheck", "float_bits",
]  # fmt: skip


@unique
class Fetch(IntEnum):
    """Where a value comes from: ``Step.holder`` is the number of the container, or the cell or dictionary itself;
    ``Step.place`` the index or key."""

    ARGUMENT = 0
    TUPLE = 1
    LIST = 2
    STORED = 3
    """The value of this number: the step of its dictionary has taken it out."""
    CELL = 4
    ITEM = 5


@unique
class Check(IntEnum):
    """What has to hold of a value; ``Step.expected`` says which."""

    ARRAY = 0
    """A NumPy array as :class:`ArrayCheck` says, and no subclass."""
    FLOAT = 1
    """Any Python float."""
    INTEGER = 2
    """A Python int between two bounds."""
    COMPLEX = 3
    """Any Python complex."""
    SAME = 4
    """This object."""
    SAME_WHILE_ALIVE = 5
    """The object of this weak reference."""
    EQUAL_INTEGER = 6
    """A Python int of this value."""
    EQUAL_FLOAT = 7
    """A Python float of these bits."""
    ITEMS = 8
    """A tuple, named tuple or list of this class, with so many items."""
    DICT = 9
    """A dictionary of these keys in this order, and no subclass: its values have the numbers from the step's on, which
    is not that of the dictionary."""
    HOLDS = 10
    """This function, called without arguments, gives True."""
    SCALAR = 11
    """One of NumPy's scalars, of this class."""
    TYPED = 12
    """An array of another library, as :class:`TypedCheck` says."""
    BUFFER = 13
    """The same, of a library that shows its memory, as :class:`BufferCheck` says."""


class ArrayCheck(NamedTuple):
    """An aligned array in the machine's byte order. ``strides`` is None for row-major order."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


class TypedCheck(NamedTuple):
    """An object of this class and no subclass, with these attributes."""

    kind: type
    shape: Any
    dtype: Any


class BufferCheck(NamedTuple):
    """The same, and what its buffer says: the format, the bytes of an element, the strides."""

    kind: type
    shape: Any
    dtype: Any
    format: str
    itemsize: int
    strides: tuple[int, ...]
    contiguous: bool


class Step(NamedTuple):
    """One value, and what has to hold of it. ``number`` is its own, ``given`` its place among the program's inputs."""

    check: Check
    expected: Any
    fetch: Fetch = Fetch.ARGUMENT
    holder: Any = -1
    place: Any = -1
    number: int = -1
    given: int = -1


@unique
class Make(IntEnum):
    """How results are put together, on a stack."""

    RESULT = 0
    """Push the result of this number."""
    VALUE = 1
    """Push this object."""
    TUPLE = 2
    """A tuple of so many of the topmost."""
    LIST = 3
    """A list of so many of the topmost."""
    DICT = 4
    """A dictionary of these keys and as many of the topmost."""
    CALL = 5
    """What this function makes of the topmost."""


_ARGUMENT, _STORED, _CELL, _ITEM = Fetch.ARGUMENT, Fetch.STORED, Fetch.CELL, Fetch.ITEM
_ARRAY, _DICT, _HOLDS = Check.ARRAY, Check.DICT, Check.HOLDS

Build = tuple[tuple[Make, Any], ...]


def float_bits(value: float) -> int:
    """The bits of a Python float as a signed integer."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


@dataclass(frozen=True, slots=True)
class Form:
    """The checks of a call: so many positional arguments, these keywords in this order, and of the values."""

    positional: int
    keywords: tuple[str, ...]
    steps: tuple[Step, ...]
    values: int
    """How many numbers the values have."""
    inputs: int
    """How many of the values are inputs of the program."""

    def taken(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The inputs of the program, or None where a check fails."""
        if len(args) != self.positional or tuple(kwargs) != self.keywords:
            return None
        arguments = (*args, *kwargs.values()) if kwargs else args
        values: list[Any] = [None] * self.values
        inputs: list[Any] = [None] * self.inputs
        for check, expected, fetch, holder, place, number, given in self.steps:
            if check is _HOLDS:
                if not expected():
                    return None
                continue
            if fetch is _ARGUMENT:
                value = arguments[place]
            elif fetch is _STORED:
                value = values[place]
            elif fetch is _CELL or fetch is _ITEM:
                value = _outside(holder, place)
            else:
                value = values[holder][place]
            if check is _ARRAY:
                dtype, shape, strides = expected
                if (
                    type(value) is not np.ndarray or (value.dtype is not dtype and value.dtype != dtype)
                    or value.shape != shape
                    or not (value.flags.c_contiguous if strides is None else value.strides == strides)
                    or not value.flags.aligned
                ):  # fmt: skip
                    return None
            elif not _PASSES[check](value, expected):
                return None
            if given >= 0:
                inputs[given] = value
            elif check is _DICT:
                values[number : number + len(expected)] = value.values()
            elif number >= 0:
                values[number] = value
        return inputs


def _outside(holder: Any, place: Any) -> Any:
    if place is None:
        try:
            return holder.cell_contents
        except ValueError:  # not bound yet
            return None
    return holder.get(place)


def _is_integer_between(value: Any, bounds: tuple[int, int]) -> bool:
    return type(value) is int and bounds[0] <= value <= bounds[1]


def _is_typed(value: Any, expected: Any) -> bool:
    return type(value) is expected.kind and bool(value.shape == expected.shape and value.dtype == expected.dtype)


_PASSES: dict[int, Callable[[Any, Any], bool]] = {
    Check.FLOAT: lambda value, expected: type(value) is float,
    Check.INTEGER: _is_integer_between,
    Check.COMPLEX: lambda value, expected: type(value) is complex,
    Check.SAME: lambda value, expected: value is expected,
    Check.SAME_WHILE_ALIVE: lambda value, expected: value is expected(),
    Check.EQUAL_INTEGER: lambda value, expected: type(value) is int and value == expected,
    Check.EQUAL_FLOAT: lambda value, expected: type(value) is float and float_bits(value) == expected,
    Check.ITEMS: lambda value, expected: type(value) is expected[0] and len(value) == expected[1],
    Check.DICT: lambda value, expected: type(value) is dict and tuple(value) == expected,
    Check.SCALAR: lambda value, expected: type(value) is expected,
    Check.TYPED: _is_typed,
    Check.BUFFER: _is_typed,
}
