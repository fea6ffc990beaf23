"""vForce: elementary functions of whole arrays, where ``config.veclib`` asks for them.

The result comes first, the count through a pointer to a 32-bit integer. Of two arguments the documentation has
``vvatan2(z, y, x, n)`` for atan2(y, x), and ``vvpow(z, y, x, n)`` for x to the power y: the exponent first.

Not used by itself: Apple states no bound on the error ("exact values vary across CPUs and OS versions"), subnormals
may count as zero, and an op alone would differ in its last bits from the same op in a fused loop, which has our own
functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from llvmlite import ir

from .... import dtypes
from ....config import config
from ....ir import Graph, Node
from ..machine import Machine
from ..values import I32, I64, PTR, Routine
from ..views import View
from .calls import CallWriter, single, words_of
from .framework import Find

if TYPE_CHECKING:
    from ..plan import Planner

# The order of the operands after the result.
_ONE, _BOTH, _TURNED = (0,), (0, 1), (1, 0)
_FUNCTIONS: Final = {
    name: (f"vv{name}", _ONE)
    for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "rsqrt", "cbrt", "sin", "cos", "tan", "asin", "acos",
        "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    )
} | {"atan2": ("vvatan2", _BOTH), "pow": ("vvpow", _TURNED)}  # fmt: skip
_SUFFIX: Final = {dtypes.float32: "f", dtypes.float64: ""}
_LARGE: Final = 1 << 15
_CHUNK: Final = 1 << 14
"""The elements of one call."""


class Functions:
    """One function of contiguous arrays, alone: an item is a chunk."""

    WORDS: Final = ("size", "x0", "x1", "y")

    def __init__(self, find: Find) -> None:
        self.find = find

    def __call__(
        self, planner: Planner, graph: Graph, inputs: Sequence[View], outputs: Sequence[View], node: Node | None
    ) -> bool:
        op = single(graph)
        if not config.veclib or op is None or op.name not in _FUNCTIONS or op.dtype not in _SUFFIX:
            return False
        views = [*inputs, *outputs]
        name, order = _FUNCTIONS[op.name]
        alike = all(v.contiguous and v.shape == op.shape and v.dtype is op.dtype for v in views)
        if not alike or len(inputs) != len(order) or outputs[0].size < _LARGE:
            return False
        name += _SUFFIX[op.dtype]
        function = self.find(name)
        if not function:
            return False
        size, item = outputs[0].size, op.dtype.itemsize
        code = planner.code(f"vForce {name}", lambda: self.write(planner.machine, function, item, order))
        pointers = [(self.WORDS.index(f"x{k}"), view) for k, view in enumerate(inputs)]
        pointers.append((self.WORDS.index("y"), outputs[0]))
        cost = sum(v.nbytes for v in views) + size * op.op.flops_per_element // 2
        words = words_of(self.WORDS, {"size": size})
        planner.command(f"vForce {op.name}", code, words, pointers, -(-size // _CHUNK), cost, 1, node=node)
        return True

    def write(self, machine: Machine, function: int, item: int, order: Sequence[int]) -> ir.Module:
        k = CallWriter(machine, self.WORDS)
        typ = ir.FunctionType(ir.VoidType(), [PTR] * (len(order) + 2))
        count = k.variable(I32)

        def call(chunk: ir.Value) -> None:
            start = k.b.mul(chunk, I64(_CHUNK))
            k.b.store(k.b.trunc(k.smaller(I64(_CHUNK), k.b.sub(k.words["size"], start)), I32), count)
            moved = k.b.mul(start, I64(item))
            operands = [k.pointer(f"x{number}", moved) for number in order]
            k.b.call(Routine(function, typ), [k.pointer("y", moved), *operands, count])

        return k.each(call)


__all__ = ["Functions"]
