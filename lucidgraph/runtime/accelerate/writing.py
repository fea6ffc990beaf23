"""Writing a kernel's function: its arguments, loops, and spans of vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from .machine import Machine
from .values import I64, PTR, Lanes

ENTRY = "kernel"
"""The name of every kernel's function: ``void kernel(i64 *args, i64 begin, i64 end, i64 thread)``."""


class KernelWriter:
    """Appends code to a kernel's function, or to another of its module."""

    def __init__(
        self, module: ir.Module, machine: Machine, lanes: int, name: str = ENTRY,
        args: Sequence[ir.Type] = (PTR, I64, I64, I64),
    ) -> None:  # fmt: skip
        self.machine = machine
        self.fn = ir.Function(module, ir.FunctionType(ir.VoidType(), args), name)
        self.fn.attributes.add("nounwind")
        self.b = ir.IRBuilder(self.fn.append_basic_block("entry"))
        self.lanes = Lanes(self.b, lanes, machine)
        self.spare = False
        """Whether the last element of a span is never in a whole vector."""
        self.whole: ir.Value | None = None
        """Under a mask that may be full: whether it is."""

    def argument(self, slot: int) -> ir.Value:
        return self.b.load(self.b.gep(self.fn.args[0], [I64(slot)], source_etype=I64), typ=I64)

    def variable(self, typ: ir.Type) -> ir.Value:
        with self.b.goto_entry_block():
            return self.b.alloca(typ)

    @contextmanager
    def loop(self, start: ir.Value, stop: ir.Value, step: int | ir.Value = 1) -> Iterator[ir.Value]:
        """A loop over ``start, start + step, … < stop``."""
        b = self.b
        at = self.variable(I64)
        b.store(start, at)
        head, inside, after = (b.append_basic_block(n) for n in ("head", "inside", "after"))
        b.branch(head)
        b.position_at_end(head)
        k = b.load(at, typ=I64)
        b.cbranch(b.icmp_signed("<", k, stop), inside, after)
        b.position_at_end(inside)
        yield k
        b.store(b.add(k, I64(step) if isinstance(step, int) else step), at)
        b.branch(head)
        b.position_at_end(after)

    def smaller(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def span(
        self, start: ir.Value, stop: ir.Value, emit: Callable[[ir.Value, ir.Value | None], None], once: bool = False
    ) -> None:
        """``emit(position, mask)`` for the vectors from ``start`` to ``stop``; the mask is None for whole ones.

        The code is written twice, for whole vectors and for the last one; ``once``, where masks cost next to nothing,
        keeps long code short.
        """
        b, count = self.b, self.lanes.count
        if once and self.machine.masks:
            with self.loop(start, stop, count) as v:
                left = b.sub(stop, v)
                self.whole = b.icmp_signed(">=", left, I64(count))
                emit(v, self.mask(left))
                self.whole = None
            return
        whole = self.whole_vectors(start, stop)
        with self.loop(start, whole, count) as v:
            emit(v, None)
        with b.if_then(b.icmp_signed("<", whole, stop)):
            emit(whole, self.mask(b.sub(stop, whole)))

    def whole_vectors(self, start: ir.Value, stop: ir.Value) -> ir.Value:
        """Where the whole vectors of a span end."""
        b = self.b
        length = b.sub(stop, start)
        if self.spare:
            length = b.select(b.icmp_signed(">", length, I64(0)), b.sub(length, I64(1)), length)
        return b.add(start, b.and_(length, I64(-self.lanes.count)))

    def mask(self, left: ir.Value) -> ir.Value:
        b, i32 = self.b, ir.IntType(32)
        bounded = b.trunc(self.smaller(left, I64(self.lanes.count)), i32)
        places = ir.Constant(ir.VectorType(i32, self.lanes.count), [i32(k) for k in range(self.lanes.count)])
        return b.icmp_signed("<", places, self.lanes.splat(bounded))
