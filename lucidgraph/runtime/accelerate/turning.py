"""Transposed copies, in square tiles that are turned in registers.

Of an array that lies one way and is wanted another, a loop along either meets a new cache line at every element. A tile
of n × n elements is n vectors read one way; log2 n steps, each of which zips the first half of the vectors with the
second, turn it, and n vectors are written the other way. So every line is read and written whole.
"""

from __future__ import annotations

from typing import Final

from llvmlite import ir

from .machine import Machine
from .values import I32, I64, PTR
from .views import View
from .writing import KernelWriter

_TILE_BYTES: Final = 64
"""How long a tile's vectors are: a cache line."""
_MOST: Final = 16
_LEAST_BYTES: Final = 1 << 14
WORDS: Final = ("first", "rows", "columns", "blocks", "x_row", "x_column", "y_row", "y_column", "x_first", "y_first",
                "x", "y")  # fmt: skip
"""Sizes: outermost axis, rows (along which x is adjacent), columns (along which y is); blocks of rows; bytes by which x
and y move along rows, columns and the outermost axis; pointers."""


def side(itemsize: int) -> int:
    """The rows and columns of a tile."""
    return min(_MOST, _TILE_BYTES // itemsize)


def turning(x: View, y: View) -> dict[str, int] | None:
    """The sizes and moves for a copy of ``x`` to ``y``, of one shape, or None where a loop does as well: where x is not
    adjacent along another axis than y, or too small, or the other axes are not one."""
    size, last = x.dtype.itemsize, len(x.shape) - 1
    if x.dtype.is_complex or x.nbytes < _LEAST_BYTES or last < 1 or y.strides[last] != size:
        return None
    n = side(size)
    if any(s == 0 < k - 1 for k, s in zip(x.shape, x.strides, strict=True)) or abs(x.strides[last]) < _TILE_BYTES:
        return None
    across = next((k for k in range(last) if x.strides[k] == size and x.shape[k] >= n), None)
    if across is None or x.shape[last] < n:
        return None
    first, x_first, y_first = 1, 0, 0
    for k in range(last):
        if k != across and x.shape[k] != 1:
            if first != 1 and (x_first, y_first) != (x.shape[k] * x.strides[k], x.shape[k] * y.strides[k]):
                return None
            first, x_first, y_first = first * x.shape[k], x.strides[k], y.strides[k]
    return {
        "first": first, "rows": x.shape[across], "columns": x.shape[last], "blocks": -(-x.shape[across] // n),
        "x_row": size, "x_column": x.strides[last], "y_row": y.strides[across], "y_column": size,
        "x_first": x_first, "y_first": y_first,
    }  # fmt: skip


def turning_kernel(itemsize: int, machine: Machine) -> ir.Module:
    """The kernel that copies ``x`` to ``y``: items are blocks of rows, for each index of the outermost axis."""
    module = ir.Module(name="turning")
    w = KernelWriter(module, machine, 1)
    b, n = w.b, side(itemsize)
    element = ir.IntType(8 * itemsize)
    line = ir.VectorType(element, n)
    args = {name: w.argument(k) for k, name in enumerate(WORDS)}

    def place(name: str, start: ir.Value, row: ir.Value, column: ir.Value) -> ir.Value:
        moved = b.add(b.mul(row, args[f"{name}_row"]), b.mul(column, args[f"{name}_column"]))
        return b.inttoptr(b.add(start, moved), PTR)

    with w.loop(w.fn.args[1], w.fn.args[2]) as item:
        first = b.sdiv(item, args["blocks"])
        row = b.mul(b.srem(item, args["blocks"]), I64(n))
        x, y = (b.add(args[name], b.mul(first, args[f"{name}_first"])) for name in ("x", "y"))
        stop = w.smaller(b.add(row, I64(n)), args["rows"])
        full = b.icmp_signed("==", b.sub(stop, row), I64(n))
        whole = b.select(full, b.and_(args["columns"], I64(-n)), I64(0))
        with w.loop(I64(0), whole, n) as column:
            lines = [b.load(place("x", x, row, b.add(column, I64(k))), typ=line, align=itemsize) for k in range(n)]
            for k, turned in enumerate(_turned(b, lines)):
                b.store(turned, place("y", y, b.add(row, I64(k)), column), align=itemsize)
        with w.loop(row, stop) as i, w.loop(whole, args["columns"]) as j:
            b.store(b.load(place("x", x, i, j), typ=element, align=itemsize), place("y", y, i, j), align=itemsize)
    b.ret_void()
    return module


def _turned(b: ir.IRBuilder, lines: list[ir.Value]) -> list[ir.Value]:
    """The columns of a square of vectors."""
    n = len(lines)
    zipped = [k // 2 + n * (k % 2) for k in range(2 * n)]
    halves = [ir.Constant(ir.VectorType(I32, n), [I32(k) for k in half]) for half in (zipped[:n], zipped[n:])]
    for _ in range(n.bit_length() - 1):
        pairs = zip(lines[: n // 2], lines[n // 2 :], strict=True)
        lines = [b.shuffle_vector(p, q, half) for p, q in pairs for half in halves]
    return lines


__all__ = ["WORDS", "side", "turning", "turning_kernel"]
