"""Matrix products through CBLAS, one thread each: ours split the work.

Element (i, j) of a product does not depend on how its rows are split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from .values import F32, F64, I8, I32, I64, PTR, Routine

_ROW_MAJOR: Final = 101
PLAIN: Final = 111
TURNED: Final = 112
_SINGLE: Final = 1
_LETTERS: Final = {dtypes.float32: "s", dtypes.float64: "d", dtypes.complex64: "c", dtypes.complex128: "z"}

WORDS: Final = ("m", "n", "k", "turn_a", "turn_b", "lda", "ldb", "ldc", "pieces", "step", "by_rows",
                "move_a", "move_b", "batch_a", "batch_b", "batch_c", "gemm", "a", "b", "c")  # fmt: skip
"""A product's arguments: sizes, flags, leading dimensions in elements; the pieces each product is split into, of
``step`` rows or columns; the bytes between rows of a, or columns of b, and between products of a batch; the address of
the library's function, so that the code holds in every process; pointers. Of a matrix and a vector, c[m] = a[m, k]
b[k], ``n`` is 1 and ``ldb`` the step along b."""


@dataclass(frozen=True, slots=True)
class Cblas:
    """A CBLAS library.

    ``integer`` is the type of its sizes and leading dimensions, ``address`` gives a function's address by its plain
    name (``"sgemm"``). ``get_threading`` and ``set_threading`` are the addresses of functions that read and set whether
    the calling thread's products use several threads (0) or one (1); 0 where the library is set up once for all.
    ``tiles``: products of up to so many multiplications are faster in tiles of our own. ``vectors``: those of a matrix
    and a vector from so many on are faster in the library's function for them; 0: never.
    """

    name: str
    integer: ir.IntType
    address: Callable[[str], int]
    get_threading: int = 0
    set_threading: int = 0
    tiles: int = 0
    vectors: int = 0


def product_name(dtype: DType, vector: bool = False) -> str:
    """What the library calls its product in ``dtype``, of two matrices or of a matrix and a vector."""
    return f"{_LETTERS[dtype]}{'gemv' if vector else 'gemm'}"


def gemm(dtype: DType, library: Cblas, vector: bool = False) -> int:
    """The address of that."""
    return library.address(product_name(dtype, vector))


def product_kernel(dtype: DType, library: Cblas, vector: bool = False) -> ir.Module:
    """The kernel of matrix products in ``dtype``, or of those with a vector: items are pieces of a batch of them."""
    real = F32 if dtypes.to_real(dtype) is dtypes.float32 else F64
    scalar = PTR if dtype.is_complex else real
    module = ir.Module(name="product")
    fn = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, I64, I64, I64]), "kernel")
    b = ir.IRBuilder(fn.append_basic_block("entry"))
    size_t = library.integer
    sizes = [size_t] * 3
    operands = [scalar, PTR, size_t, PTR, size_t, scalar, PTR, size_t]
    gemm = ir.FunctionType(ir.VoidType(), [I32] * 2 + sizes[1:] + operands if vector else [I32] * 3 + sizes + operands)
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
    before = b.call(Routine(library.get_threading, ir.FunctionType(I32, [])), []) if library.get_threading else None
    if library.set_threading:
        b.call(Routine(library.set_threading, ir.FunctionType(I32, [I32])), [I32(_SINGLE)])
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

    def sized(value: ir.Value) -> ir.Value:
        return value if size_t == I64 else b.trunc(value, size_t)

    turns = [b.trunc(w[name], I32) for name in ("turn_a", "turn_b")]
    k, lda, ldb, ldc = (sized(w[name]) for name in ("k", "lda", "ldb", "ldc"))
    call = Routine(b.inttoptr(w["gemm"], PTR), gemm)
    last = [one, a, lda, second, ldb, zero, c, ldc]
    if vector:
        # It is told how the matrix lies, not how it is read.
        plain = b.icmp_signed("==", turns[0], I32(PLAIN))
        rows, columns = b.select(plain, sized(m), k), b.select(plain, k, sized(m))
        b.call(call, [I32(_ROW_MAJOR), turns[0], rows, columns, *last])
    else:
        b.call(call, [I32(_ROW_MAJOR), *turns, sized(m), sized(n), k, *last])
    b.store(b.add(item, I64(1)), at)
    b.branch(head)
    b.position_at_end(after)
    if before is not None:
        b.call(Routine(library.set_threading, ir.FunctionType(I32, [I32])), [before])
    b.ret_void()
    return module


def leading(strides: tuple[int, int], shape: tuple[int, int], itemsize: int) -> tuple[int, int] | None:
    """(flag, leading dimension) with which CBLAS reads a matrix of these strides; None where it cannot."""
    rows, columns = shape
    by_row, by_column = strides
    if (by_column == itemsize or columns == 1) and (
        rows == 1 or (by_row >= columns * itemsize and by_row % itemsize == 0)
    ):
        return PLAIN, max(columns, by_row // itemsize if rows > 1 else columns, 1)
    if (by_row == itemsize or rows == 1) and (
        columns == 1 or (by_column >= rows * itemsize and by_column % itemsize == 0)
    ):
        return TURNED, max(rows, by_column // itemsize if columns > 1 else rows, 1)
    return None
