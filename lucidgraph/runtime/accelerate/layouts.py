"""Where CPython and NumPy keep what native code reads of their objects, and whether they do so here.

What is written down are the layouts of CPython with the interpreter's lock and of NumPy; known objects are read through
them once, and where one does not read as it should the native entry is not used.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import sysconfig
from types import CellType
from typing import Any, Final

import numpy as np

from ...errors import BackendError

TYPE: Final = 8
"""The offset in bytes of an object's type."""
SIZE: Final = 16
"""Of the length of a tuple, a list or a dictionary."""
TUPLE_ITEMS: Final = tuple.__basicsize__
LIST_ITEMS: Final = 24
"""Of a pointer to a list's items."""
NUMBER: Final = 16
"""Of the double in a float, of the two in a complex."""
CELL: Final = 16
SCALAR: Final = 16
"""Of the value in one of NumPy's scalars."""
DATA: Final = 16
"""Of an array's pointer to its elements; then come the number of its axes, and the other fields."""
NDIM: Final = 24
SHAPE: Final = 32
STRIDES: Final = 40
DTYPE: Final = 56
FLAGS: Final = 64
BYTEORDER: Final = 26
"""Of a dtype's byte order, a character."""
TYPE_NUMBER: Final = 28
"""Of a dtype's number."""
C_CONTIGUOUS: Final = 0x1
ALIGNED: Final = 0x100
WRITEABLE: Final = 0x400

NEW_FROM_DESCR: Final = 94
"""The place of ``PyArray_NewFromDescr`` in NumPy's table of functions."""
FUNCTIONS: Final = (
    "Py_IncRef", "Py_DecRef", "PyObject_Vectorcall", "PyObject_CallNoArgs", "PyLong_AsLongLongAndOverflow",
    "PyDict_GetItemWithError", "PyDict_Next", "PyDict_New", "PyDict_SetItem", "PyTuple_New", "PyTuple_SetItem",
    "PyList_New", "PyList_SetItem", "PyErr_Clear", "PyLong_FromLongLong", "PyObject_GetAttr",
    "PyObject_RichCompareBool", "PyObject_GetBuffer", "PyBuffer_Release", "PyErr_ExceptionMatches",
)  # fmt: skip
"""Of CPython's interface, all that native code calls."""
BUFFER_WORDS: Final = 10
"""Of the structure that a buffer is described in; then where in it its fields are."""
BUFFER: Final = {"data": 0, "itemsize": 3, "ndim": 4, "format": 5, "shape": 6, "strides": 7}
BUFFER_FLAGS: Final = 0x18 | 0x4
"""Strides and the format are asked for."""
_KNOWN: Final = ((3, 11), (3, 12), (3, 13), (3, 14))
"""The versions of Python on which native calls have passed their tests."""
_OWN_WORDS: Final = 2
"""Behind an object that native code can be called through."""


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _int(address: int) -> int:
    return ctypes.c_int32.from_address(address).value


def address_of(function: Any) -> int:
    """The address of a function of ctypes."""
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of CPython. Not as an attribute of ``ctypes.pythonapi``: that one's types are everybody's."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


@functools.cache
def new_array() -> int:
    """The address of ``PyArray_NewFromDescr``."""
    get = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    numpy = sys.modules.get("numpy._core._multiarray_umath") or sys.modules["numpy.core._multiarray_umath"]
    return _word(get(numpy._ARRAY_API, None) + 8 * NEW_FROM_DESCR)


def _data_address(array: np.ndarray[Any, Any]) -> int:
    return ctypes.c_int64.from_address(id(array) + _FIELDS).value


def _slow_address(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


_FIELDS: Final = object.__basicsize__
_example: Final = np.arange(3)
data_address: Final = (
    _data_address
    if sys.implementation.name == "cpython" and _data_address(_example) == _slow_address(_example)
    else _slow_address
)
"""The address of an array's elements, read where NumPy keeps it: the first field after an object's head."""


def _reads() -> bool:
    """Whether known objects read as they should."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)[:, 1:3]
    swapped = np.dtype(np.int16).newbyteorder()
    held, number, both = object(), 2.5, 1.5 - 2j
    items, names, keys = (held, number), [held, number, both], {"a": held}
    cell = CellType(held)
    where = id(array)
    data = _word(where + DATA)
    flags = array.flags
    bits = ctypes.c_double.from_address
    return (
        object.__basicsize__ == 16
        and _word(where + TYPE) == id(np.ndarray)
        and data == array.ctypes.data
        and _int(where + NDIM) == 2
        and [_word(_word(where + SHAPE) + 8 * k) for k in range(2)] == [3, 2]
        and [_word(_word(where + STRIDES) + 8 * k) for k in range(2)] == list(array.strides)
        and _word(where + DTYPE) == id(array.dtype)
        and bool(_int(where + FLAGS) & C_CONTIGUOUS) == flags.c_contiguous
        and bool(_int(where + FLAGS) & ALIGNED) == flags.aligned
        and bool(_int(where + FLAGS) & WRITEABLE) == flags.writeable
        and bool(_int(id(np.ones(2)) + FLAGS) & C_CONTIGUOUS)
        and _int(id(array.dtype) + TYPE_NUMBER) == array.dtype.num
        and ctypes.c_char.from_address(id(swapped) + BYTEORDER).value.decode() == swapped.byteorder
        and bits(id(number) + NUMBER).value == number
        and (bits(id(both) + NUMBER).value, bits(id(both) + NUMBER + 8).value) == (both.real, both.imag)
        and [_word(id(items) + TUPLE_ITEMS + 8 * k) for k in range(2)] == [id(v) for v in items]
        and [_word(_word(id(names) + LIST_ITEMS) + 8 * k) for k in range(3)] == [id(v) for v in names]
        and [_word(id(v) + SIZE) for v in (items, names, keys)] == [2, 3, 1]
        and _word(id(cell) + CELL) == id(held)
        and all(
            ctypes.string_at(id(v) + SCALAR, v.nbytes) == v.tobytes()
            for v in (np.float32(2.5), np.float64(2.5), np.float16(2.5), np.int8(3), np.int64(3), np.complex128(1 - 2j))
        )
    )


@functools.cache
def require() -> None:
    """Raise :class:`BackendError` where the native entry cannot work, saying why."""
    python = sys.version.split()[0]
    if sys.implementation.name != "cpython":
        raise BackendError(f"{sys.implementation.name} keeps objects in its own way")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BackendError("this Python runs without a global lock")
    if sysconfig.get_config_var("Py_DEBUG") or sysconfig.get_config_var("Py_TRACE_REFS"):
        raise BackendError("this Python is built for debugging")
    if sys.version_info[:2] not in _KNOWN or sys.maxsize < 2**32 or sys.byteorder != "little":
        raise BackendError(f"Python {python} on this processor has not been looked into")
    if not _reads() or not _keeps_clear():
        raise BackendError(f"objects of Python {python} or NumPy {np.__version__} do not lie where they should")


# -- a type whose objects native code can be called through


class _Member(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("type", ctypes.c_int), ("offset", ctypes.c_ssize_t), ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )  # fmt: skip


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("value", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int), ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )  # fmt: skip


_MEMBERS: Final = 72
_SSIZE: Final = 19
_READONLY: Final = 1
_VECTORCALL: Final = 1 << 11
_METHOD: Final = 1 << 17
_kept: Final[list[Any]] = []


def callable_type(base: type) -> type:
    """A subclass of ``base``, which has ``__call__``, with two more words: the function that a call goes to, and what
    it finds there. While the first is 0, ``__call__`` is called.

    As a method it is called with its object as first argument, without a bound method in between.
    """
    size = base.__basicsize__
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", _SSIZE, size, _READONLY, None))
    slots = (_Slot * 2)(_Slot(_MEMBERS, ctypes.cast(members, ctypes.c_void_p)))
    name = f"{base.__module__}.{base.__qualname__}".encode()
    spec = _Spec(name, size + 8 * _OWN_WORDS, 0, _VECTORCALL | _METHOD, slots)
    _kept.append((members, slots, spec))  # the type refers to them
    make = _function("PyType_FromSpecWithBases", ctypes.py_object, ctypes.c_void_p, ctypes.py_object)
    made: type = make(ctypes.byref(spec), (base,))
    return made


class _Probe:
    def __call__(self) -> str:
        return "called"


def _keeps_clear() -> bool:
    """Whether nothing of an object lies in the words that are added to it: its attributes do not, which some versions
    keep behind objects, and it can be called while the first is 0."""
    probe: Any = callable_type(_Probe)()
    words = [id(probe) + _Probe.__basicsize__ + 8 * k for k in range(_OWN_WORDS)]
    clear = [_word(address) for address in words] == [0] * _OWN_WORDS
    for k in range(64):
        setattr(probe, f"a{k}", k)
        clear = clear and [_word(address) for address in words] == [0] * _OWN_WORDS
    ctypes.c_int64.from_address(words[1]).value = -1
    return clear and probe() == "called" and [vars(probe)[f"a{k}"] for k in range(64)] == list(range(64))


__all__ = [
    "ALIGNED", "BUFFER", "BUFFER_FLAGS", "BUFFER_WORDS", "BYTEORDER", "CELL", "C_CONTIGUOUS", "DATA", "DTYPE", "FLAGS",
    "FUNCTIONS", "LIST_ITEMS", "NDIM", "NUMBER", "SCALAR", "SHAPE", "SIZE", "STRIDES", "TUPLE_ITEMS", "TYPE",
    "TYPE_NUMBER", "WRITEABLE", "address_of", "callable_type", "data_address", "new_array", "require",
]  # fmt: skip
