"""A stand-in for what macOS offers, in NumPy: functions under Apple's names with the documented signatures.

Scalars and counts by pointer where Apple has them so, strides in elements, sizes of ``vDSP_mtrans`` those of the
result, vForce's result first and the exponent of ``vvpow`` before its base, CBLAS with 64-bit integers under
``$NEWLAPACK$ILP64`` and 32-bit ones else. Memory is read and written through plain addresses. ``CALLS`` holds the
arguments of every call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

Stride, Length = ctypes.c_int64, ctypes.c_uint64
Address, Enum, Int32 = ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32)
ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112

FUNCTIONS: dict[str, Any] = {}
CALLS: list[tuple[Any, ...]] = []
THREADING = [0]
"""What BLASSetThreading set last; a Mac keeps one for every thread."""


def export(name: str, result: Any, *types: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            CALLS.append((name, *args))
            return function(*args)

        FUNCTIONS[name] = ctypes.CFUNCTYPE(result, *types)(called)
        return function

    return register


def find(name: str) -> int:
    """The address of a function of this name, or 0."""
    function = FUNCTIONS.get(name)
    return 0 if function is None else int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def strided(address: int, stride: int, count: int, dtype: Any) -> np.ndarray:
    """``count`` elements, ``stride`` elements apart."""
    item = np.dtype(dtype).itemsize
    raw: Any = (ctypes.c_char * (((count - 1) * stride + 1) * item)).from_address(address)
    return np.ndarray((count,), dtype, raw, strides=(stride * item,))


def export_vdsp(suffix: str, dtype: Any) -> None:
    @export(f"vDSP_mtrans{suffix}", None, Address, Stride, Address, Stride, Length, Length)
    def mtrans(a: int, ia: int, c: int, ic: int, m: int, n: int) -> None:
        strided(c, ic, m * n, dtype).reshape(m, n)[:] = strided(a, ia, n * m, dtype).reshape(n, m).T

    def reduction(name: str, function: Callable[..., Any]) -> None:
        @export(f"vDSP_{name}{suffix}", None, Address, Stride, Address, Length)
        def reduce(a: int, ia: int, c: int, n: int) -> None:
            strided(c, 1, 1, dtype)[0] = function(strided(a, ia, n, dtype))

    for name, function in (("sve", np.sum), ("meanv", np.mean), ("maxv", np.max), ("minv", np.min)):
        reduction(name, function)


def export_vforce(suffix: str, dtype: Any) -> None:
    def unary(name: str, function: Callable[..., Any]) -> None:
        @export(f"vv{name}{suffix}", None, Address, Address, Int32)
        def call(y: int, x: int, n: Any) -> None:
            strided(y, 1, n[0], dtype)[:] = function(strided(x, 1, n[0], dtype))

    def binary(name: str, function: Callable[..., Any]) -> None:
        @export(f"vv{name}{suffix}", None, Address, Address, Address, Int32)
        def call(z: int, y: int, x: int, n: Any) -> None:
            first, second = strided(y, 1, n[0], dtype), strided(x, 1, n[0], dtype)
            strided(z, 1, n[0], dtype)[:] = function(first, second)

    for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt", "sin", "cos", "tan", "sinh", "cosh",
                 "tanh"):  # fmt: skip
        unary(name, getattr(np, name))
    for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh"):
        unary(name, getattr(np, f"arc{name[1:]}"))
    unary("rsqrt", lambda x: 1 / np.sqrt(x))
    binary("atan2", np.arctan2)
    binary("pow", lambda y, x: x**y)  # z = x to the power y


def export_cblas(suffix: str, integer: Any) -> None:
    def gemm(letter: str, dtype: Any) -> None:
        real = ctypes.c_float if np.dtype(dtype).itemsize == 4 else ctypes.c_double
        scalar = Address if np.dtype(dtype).kind == "c" else real

        @export(
            f"cblas_{letter}gemm{suffix}", None, Enum, Enum, Enum, integer, integer, integer, scalar, Address, integer,
            Address, integer, scalar, Address, integer,
        )  # fmt: skip
        def call(
            order: int, turn_a: int, turn_b: int, m: int, n: int, k: int, alpha: Any, a: int, lda: int, b: int,
            ldb: int, beta: Any, c: int, ldc: int,
        ) -> None:  # fmt: skip
            assert order == ROW_MAJOR
            if scalar is Address:
                alpha, beta = (strided(p, 1, 1, dtype)[0] for p in (alpha, beta))

            def matrix(address: int, rows: int, columns: int, pitch: int, turn: int) -> np.ndarray:
                if turn == TRANS:
                    return matrix(address, columns, rows, pitch, NO_TRANS).T
                assert turn == NO_TRANS and pitch >= columns
                flat = strided(address, 1, (rows - 1) * pitch + columns, dtype)
                item = flat.itemsize
                return np.lib.stride_tricks.as_strided(flat, (rows, columns), (pitch * item, item))

            product = np.zeros((m, n), dtype)
            if k:
                product = matrix(a, m, k, lda, turn_a) @ matrix(b, k, n, ldb, turn_b)
            out = matrix(c, m, n, ldc, NO_TRANS)
            # What is there counts for nothing where beta is 0, NaN included.
            out[:] = alpha * product if beta == 0 else alpha * product + beta * out

    for letter, dtype in (("s", "f4"), ("d", "f8"), ("c", "c8"), ("z", "c16")):
        gemm(letter, dtype)


for _suffix, _dtype in (("", np.float32), ("D", np.float64)):
    export_vdsp(_suffix, _dtype)
for _suffix, _dtype in (("f", np.float32), ("", np.float64)):
    export_vforce(_suffix, _dtype)
for _suffix, _integer in (("$NEWLAPACK$ILP64", ctypes.c_int64), ("$NEWLAPACK", ctypes.c_int32), ("", ctypes.c_int32)):
    export_cblas(_suffix, _integer)


@export("BLASGetThreading", Enum)
def get_threading() -> int:
    return THREADING[0]


@export("BLASSetThreading", Enum, Enum)
def set_threading(value: int) -> int:
    THREADING[0] = value
    return 0


@export("dispatch_apply_f", None, ctypes.c_size_t, Address, Address, Address)
def dispatch_apply(iterations: int, queue: int | None, context: int, work: int) -> None:
    """Every iteration once, in an order nobody relies on."""
    assert not queue
    run = ctypes.CFUNCTYPE(None, Address, ctypes.c_size_t)(work)
    for k in reversed(range(iterations)):
        run(context, k)
