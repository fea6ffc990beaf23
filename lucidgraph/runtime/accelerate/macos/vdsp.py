"""vDSP: transposes always; reductions where ``config.veclib`` asks for them.

The functions take elements and strides, counted in elements, and return results through pointers. Apple promises
neither IEEE 754's rounding nor what becomes of NaN, and a float sum is accumulated in float. What that leaves:

- ``mtrans`` moves elements and computes nothing: used for every copy that is a transpose of whole matrices, where
  there are as many of them as threads (a matrix cannot be shared among threads: the function knows no row pitch).
- ``sve`` and ``meanv`` of float32 would hold sums in float32, where ours hold them in float64: never used.
- ``sveD``, ``meanvD`` add float64 in an order of Apple's; ``maxv``, ``minv`` may lose a NaN: used with
  ``config.veclib`` alone.
- Conversions, fills, arithmetic: our loops fuse them, and promise the rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from llvmlite import ir

from .... import dtypes
from ....config import config
from ....ir import Graph, Node
from ..machine import Machine
from ..values import I64, PTR, Routine
from ..views import View
from .calls import CallWriter, loops_of, single, words_of
from .framework import Find

if TYPE_CHECKING:
    from ..plan import Planner

# vDSP_mtrans(A, IA, C, IC, M, N): C has M rows and N columns, A has N and M.
_MTRANS: Final = ir.FunctionType(ir.VoidType(), [PTR, I64, PTR, I64, I64, I64])
# vDSP_sve(A, IA, C, N), and its like: C points to the result.
_REDUCTION: Final = ir.FunctionType(ir.VoidType(), [PTR, I64, PTR, I64])
_SIDE: Final = 32
"""The least side of a matrix worth a call."""
_LONG: Final = 1 << 12
_WIDEST_STRIDE: Final = 8
_SHARED: Final = 1 << 15
"""From so many elements on, rows fewer than threads are better split by our own kernels."""
_SUFFIX: Final = {dtypes.float32: "", dtypes.float64: "D"}
_NAMES: Final = {"sum": "vDSP_sve", "mean": "vDSP_meanv", "max": "vDSP_maxv", "min": "vDSP_minv"}


class Transposes:
    """Copies between matrices laid out by rows and by columns."""

    WORDS: Final = ("rows", "columns", "step_x", "step_y", "x", "y")

    def __init__(self, find: Find) -> None:
        self.find = find

    def __call__(
        self, planner: Planner, graph: Graph, inputs: Sequence[View], outputs: Sequence[View], node: Node | None
    ) -> bool:
        op = single(graph)
        if op is None or op.name != "stop_gradient" or op.dtype not in _SUFFIX:
            return False
        item = op.dtype.itemsize
        axes = loops_of(op, [*inputs, *outputs], graph)
        if not 2 <= len(axes) <= 3:
            return False
        down, along = axes[-2:]
        size, count = down.size * along.size, axes[0].size if len(axes) == 3 else 1
        turned = down.strides == (item, along.size * item) and along.strides == (down.size * item, item)
        if not turned or min(down.size, along.size) < _SIDE or count < planner.threads:
            return False
        function = self.find(f"vDSP_mtrans{_SUFFIX[op.dtype]}")
        if not function:
            return False
        steps = axes[0].strides if len(axes) == 3 else (0, 0)
        values = {"rows": down.size, "columns": along.size, "step_x": steps[0], "step_y": steps[1]}
        code = planner.code(f"mtrans {op.dtype.name}", lambda: self.write(planner.machine, function))
        pointers = [(self.WORDS.index("x"), inputs[0]), (self.WORDS.index("y"), outputs[0])]
        words = words_of(self.WORDS, values)
        planner.command("transpose", code, words, pointers, count, 2 * size * count * item, 1, node=node)
        return True

    def write(self, machine: Machine, function: int) -> ir.Module:
        k = CallWriter(machine, self.WORDS)
        rows, columns = k.words["rows"], k.words["columns"]

        def call(number: ir.Value) -> None:
            x = k.pointer("x", k.b.mul(number, k.words["step_x"]))
            y = k.pointer("y", k.b.mul(number, k.words["step_y"]))
            k.b.call(Routine(function, _MTRANS), [x, I64(1), y, I64(1), rows, columns])

        return k.each(call)


class Reductions:
    """One long axis reduced, alone: an item is one row, its elements ``stride`` apart."""

    WORDS: Final = ("size", "stride", "step_x", "step_y", "x", "y")

    def __init__(self, find: Find) -> None:
        self.find = find

    def __call__(
        self, planner: Planner, graph: Graph, inputs: Sequence[View], outputs: Sequence[View], node: Node | None
    ) -> bool:
        op = single(graph)
        if not config.veclib or op is None or op.name not in _NAMES:
            return False
        dtype = op.operands[0].dtype
        if dtype not in _SUFFIX or op.dtype is not dtype or (op.name in ("sum", "mean") and dtype is dtypes.float32):
            return False
        axes = loops_of(op, [*inputs, *outputs], graph)
        if not 1 <= len(axes) <= 2 or [a.reduced for a in axes].count(True) != 1:
            return False
        long = next(a for a in axes if a.reduced)
        kept = next((a for a in axes if not a.reduced), None)
        rows = kept.size if kept else 1
        stride, rest = divmod(long.strides[0], dtype.itemsize)
        if rest or not 1 <= stride <= _WIDEST_STRIDE or long.size < _LONG:
            return False
        function = self.find(_NAMES[op.name] + _SUFFIX[dtype])
        if not function or (rows < planner.threads and long.size >= _SHARED):
            return False
        steps = kept.strides if kept else (0, 0)
        values = {"size": long.size, "stride": stride, "step_x": steps[0], "step_y": steps[1]}
        code = planner.code(f"vDSP {op.name} {dtype.name}", lambda: self.write(planner.machine, function))
        pointers = [(self.WORDS.index("x"), inputs[0]), (self.WORDS.index("y"), outputs[0])]
        planner.command(
            f"vDSP {op.name}", code, words_of(self.WORDS, values), pointers, rows, inputs[0].nbytes, 1, node=node
        )
        return True

    def write(self, machine: Machine, function: int) -> ir.Module:
        k = CallWriter(machine, self.WORDS)

        def call(row: ir.Value) -> None:
            x = k.pointer("x", k.b.mul(row, k.words["step_x"]))
            y = k.pointer("y", k.b.mul(row, k.words["step_y"]))
            k.b.call(Routine(function, _REDUCTION), [x, k.words["stride"], y, k.words["size"]])

        return k.each(call)


__all__ = ["Reductions", "Transposes"]
