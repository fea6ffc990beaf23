"""Matrix products through CBLAS, one thread each: ours split the work.

Off macOS the library is OpenBLAS from ``scipy-openblas32``, an instance of its own, so that the user's NumPy keeps its
threads. Element (i, j) of a product does not depend on how its rows are split.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Final

import scipy_openblas32
from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from .machine import HOST, Code, compile_module
from .values import F32, F64, I8, I32, I64, PTR

_ROW_MAJOR: Final = 101
_PLAIN: Final = 111
_TURNED: Final = 112
_NAMES: Final = {
    dtypes.float32: "sgemm",
    dtypes.float64: "dgemm",
    dtypes.complex64: "cgemm",
    dtypes.complex128: "zgemm",
}

WORDS: Final = ("m", "n", "k", "turn_a", "turn_b", "lda", "ldb", "ldc", "pieces", "step", "by_rows",
                "move_a", "move_b", "batch_a", "batch_b", "batch_c", "a", "b", "c")  # fmt: skip
"""A product's arguments: sizes, flags, leading dimensions in elements; the pieces each product is split into, of
``step`` rows or columns; the bytes between rows of a, or columns of b, and between products of a batch; pointers."""

_lock = threading.Lock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_codes: dict[DType, Code] = {}
_library: Any = None


def _symbol(name: str) -> int:
    global _library
    if _library is None:
        path = os.path.join(scipy_openblas32.get_lib_dir(), scipy_openblas32.get_library(fullname=True))
        _library = ctypes.CDLL(path)
        _library.scipy_openblas_set_num_threads(1)
    return int(ctypes.cast(getattr(_library, f"scipy_cblas_{name}"), ctypes.c_void_p).value or 0)


def product_code(dtype: DType) -> Code:
    """The kernel of matrix products in ``dtype``: items are the pieces of a batch of products."""
    with _lock:
        if dtype not in _codes:
            _codes[dtype] = compile_module(_module(dtype, _symbol(_NAMES[dtype])), HOST)
        return _codes[dtype]


def _module(dtype: DType, address: int) -> ir.Module:
    real = F32 if dtypes.to_real(dtype) is dtypes.float32 else F64
    scalar = PTR if dtype.is_complex else real
    module = ir.Module(name="product")
    fn = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, I64, I64, I64]), "kernel")
    b = ir.IRBuilder(fn.append_basic_block("entry"))
    gemm = ir.FunctionType(ir.VoidType(), [I32] * 6 + [scalar, PTR, I32, PTR, I32, scalar, PTR, I32])
    w = {name: b.load(b.gep(fn.args[0], [I64(k)], source_etype=I64), typ=I64) for k, name in enumerate(WORDS)}
    one: ir.Value = real(1.0)
    zero: ir.Value = real(0.0)
    if dtype.is_complex:
        both = [b.alloca(ir.ArrayType(real, 2)) for _ in range(2)]
        for place, value in zip(both, (1.0, 0.0), strict=True):
            b.store(ir.Constant(ir.ArrayType(real, 2), [real(value), real(0.0)]), place)
        one, zero = both
    at = b.alloca(I64)
    b.store(fn.args[1], at)
    head, body, after = (fn.append_basic_block(n) for n in ("head", "body", "after"))
    b.branch(head)
    b.position_at_end(head)
    item = b.load(at, typ=I64)
    b.cbranch(b.icmp_signed("<", item, fn.args[2]), body, after)
    b.position_at_end(body)
    which, piece = b.sdiv(item, w["pieces"]), b.srem(item, w["pieces"])
    start = b.mul(piece, w["step"])
    rows = b.icmp_signed("!=", w["by_rows"], I64(0))

    def smaller(x: ir.Value, y: ir.Value) -> ir.Value:
        return b.select(b.icmp_signed("<", x, y), x, y)

    m = b.select(rows, smaller(w["step"], b.sub(w["m"], start)), w["m"])
    n = b.select(rows, w["n"], smaller(w["step"], b.sub(w["n"], start)))
    size = I64(dtype.itemsize)

    def moved(name: str, along: ir.Value, batch: ir.Value) -> ir.Value:
        return b.gep(b.inttoptr(w[name], PTR), [b.add(along, b.mul(which, batch))], source_etype=I8)

    none = I64(0)
    a = moved("a", b.select(rows, b.mul(start, w["move_a"]), none), w["batch_a"])
    second = moved("b", b.select(rows, none, b.mul(start, w["move_b"])), w["batch_b"])
    down = b.mul(b.mul(start, w["ldc"]), size)
    c = moved("c", b.select(rows, down, b.mul(start, size)), w["batch_c"])
    short = {k: b.trunc(v, I32) for k, v in w.items() if k in ("k", "turn_a", "turn_b", "lda", "ldb", "ldc")}
    call = _Symbol(b.inttoptr(I64(address), PTR), gemm)
    b.call(call, [
        I32(_ROW_MAJOR), short["turn_a"], short["turn_b"], b.trunc(m, I32), b.trunc(n, I32), short["k"],
        one, a, short["lda"], second, short["ldb"], zero, c, short["ldc"],
    ])  # fmt: skip
    b.store(b.add(item, I64(1)), at)
    b.branch(head)
    b.position_at_end(after)
    b.ret_void()
    return module


class _Symbol(ir.Value):
    """A function at a known address."""

    def __init__(self, value: ir.Value, typ: ir.FunctionType) -> None:
        self.type = PTR
        self.function_type = typ
        self.value = value

    def get_reference(self) -> str:
        return str(self.value.get_reference())


def leading(strides: tuple[int, int], shape: tuple[int, int], itemsize: int) -> tuple[int, int] | None:
    """(flag, leading dimension) with which CBLAS reads a matrix of these strides; None where it cannot."""
    rows, columns = shape
    by_row, by_column = strides
    if (by_column == itemsize or columns == 1) and (
        rows == 1 or (by_row >= columns * itemsize and by_row % itemsize == 0)
    ):
        return _PLAIN, max(columns, by_row // itemsize if rows > 1 else columns, 1)
    if (by_row == itemsize or rows == 1) and (
        columns == 1 or (by_column >= rows * itemsize and by_column % itemsize == 0)
    ):
        return _TURNED, max(rows, by_column // itemsize if columns > 1 else rows, 1)
    return None
