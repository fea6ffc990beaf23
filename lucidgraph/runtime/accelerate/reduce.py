"""Chapter reduce on vectors: how each reduction starts, takes a value in, joins lanes, and ends.

Float sums are held in double, integer sums in 64 bits, one accumulator a lane. Widening costs more than adding does, so
where there is much to add, a few values at a time are added in a *near* type first: integers in one that they cannot
overflow in so many steps, so that sums stay exact; floats in float32, a few to a lane (16 along a row, 32 along a
column), which bounds the error of a sum whatever its length. What overflows in that, a loop adds up again in double.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from llvmlite import ir

from ... import dtypes
from ...dtypes import DType
from ...ir import Node
from ...ir.ops.core import CastBackward
from .arithmetic import choose, divide_values, extremum, greater, multiply_values
from .compare import truth
from .math import converted
from .values import F32, F64, I1, I8, I16, I32, I64, Lanes, Pair, Value, register_type

State = list[ir.Value]


class Near(NamedTuple):
    """The element in which a sum may take so many steps before it is widened; floats may overflow in it."""

    element: ir.Type
    steps: int


_NEAR: Final[dict[DType, Near]] = {
    dtypes.float32: Near(F32, 16), dtypes.float16: Near(F32, 16), dtypes.bfloat16: Near(F32, 16),
    dtypes.bool_: Near(I8, 255), dtypes.int8: Near(I16, 255), dtypes.uint8: Near(I16, 257),
    dtypes.int16: Near(I32, 1 << 16), dtypes.uint16: Near(I32, 1 << 16),
}  # fmt: skip


class Fold(ABC):
    """One reduction node; its state is a list of vectors. It takes values of ``operand``: the node's, or if it may be
    ``narrow``, what a sum's was widened from."""

    def __init__(self, node: Node, narrow: bool = False) -> None:
        self.node = node
        self.dtype: DType = node.operands[0].dtype
        self.operand = node.operands[0]

    @abstractmethod
    def start(self, lanes: Lanes) -> State:
        """The state of nothing."""

    @abstractmethod
    def neutral(self, lanes: Lanes) -> Value:
        """A value that changes nothing when taken: for lanes beyond the end."""

    @abstractmethod
    def take(self, lanes: Lanes, state: State, value: Value, index: ir.Value) -> State:
        """The state with one more value per lane; ``index`` is its place along the reduced axis."""

    def joined_lanes(self, lanes: Lanes) -> int:
        """How many lanes the state of one row has, which takes vectors of ``lanes`` slice by slice."""
        return lanes.count

    def take_all(self, lanes: Lanes, state: State, values: Sequence[tuple[Value, ir.Value]]) -> State:
        """The state with several values per lane, each with its place."""
        for value, index in values:
            state = self.take(lanes, state, value, index)
        return state

    @abstractmethod
    def join(self, lanes: Lanes, a: State, b: State) -> State:
        """The state of what two states were made of."""

    @abstractmethod
    def finish(self, lanes: Lanes, state: State, count: ir.Value) -> Value:
        """The result, ``count`` being how many values each lane (or all lanes together) took."""

    def suspend(self, lanes: Lanes, state: State) -> Value:
        """The state as a partial result, in the dtype that partial results are held in."""
        return Pair(*state) if len(state) == 2 else state[0]

    def resume(self, lanes: Lanes, value: Value) -> State:
        """The state of a partial result."""
        return list(value) if isinstance(value, Pair) else [value]

    def across(self, lanes: Lanes, state: State) -> State:
        """All lanes joined, the result in every lane."""
        width = lanes.count
        while width > 1:
            width //= 2
            order = [(k + width) % (2 * width) if k < 2 * width else k for k in range(lanes.count)]
            turned = [_shuffled(lanes, v, order) for v in state]
            state = self.join(lanes, state, turned)
        return [_shuffled(lanes, v, [0] * lanes.count) for v in state]


def sliced(lanes: Lanes, value: Value, width: int) -> list[Value]:
    """A vector cut into vectors of ``width`` lanes."""
    if width == lanes.count:
        return [value]
    if isinstance(value, Pair):
        both = (sliced(lanes, part, width) for part in value)
        return [Pair(*parts) for parts in zip(*both, strict=True)]
    i32 = ir.IntType(32)
    out = []
    for start in range(0, lanes.count, width):
        mask = ir.Constant(ir.VectorType(i32, width), [i32(start + k) for k in range(width)])
        out.append(lanes.b.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask))
    return out


def halved(values: Sequence[Any], join: Callable[[Any, Any], Any]) -> Any:
    """The values joined by neighbours, then those by neighbours, and so on."""
    level = list(values)
    while len(level) > 1:
        odd = [level[-1]] if len(level) % 2 else []
        level = [join(x, y) for x, y in zip(level[::2], level[1::2], strict=False)] + odd
    return level[0]


def _shuffled(lanes: Lanes, v: ir.Value, order: Sequence[int]) -> ir.Value:
    i32 = ir.IntType(32)
    mask = ir.Constant(ir.VectorType(i32, lanes.count), [i32(k) for k in order])
    return lanes.b.shuffle_vector(v, ir.Constant(v.type, ir.Undefined), mask)


class _Linear(Fold):
    """Base of sum, mean and prod: real parts (and imaginary ones) in double, or integers in their own 64 bits."""

    @property
    def wide(self) -> DType:
        if self.dtype.is_complex:
            return dtypes.complex128
        return dtypes.float64 if self.dtype.is_floating else self.dtype

    def parts(self, state: State) -> Value:
        return Pair(*state) if len(state) == 2 else state[0]

    def state(self, value: Value) -> State:
        return list(value) if isinstance(value, Pair) else [value]

    def finish(self, lanes: Lanes, state: State, count: ir.Value) -> Value:
        return converted(lanes, self.parts(state), self.wide, self.node.dtype)


class Sum(_Linear):
    def __init__(self, node: Node, narrow: bool = False) -> None:
        super().__init__(node)
        if narrow:
            self.operand = narrowest(self.operand)
        self.taken = self.operand.dtype
        self.near: Near | None = None
        if self.dtype.is_floating or (self.dtype.is_integer and self.dtype.itemsize == 8):
            self.near = _NEAR.get(self.taken)

    def neutral(self, lanes: Lanes) -> Value:
        return lanes.number(0, self.taken)

    def start(self, lanes: Lanes) -> State:
        return self.state(lanes.number(0, self.wide))

    def take(self, lanes: Lanes, state: State, value: Value, index: ir.Value) -> State:
        return self.join(lanes, state, self.state(converted(lanes, value, self.taken, self.wide)))

    def joined_lanes(self, lanes: Lanes) -> int:
        return lanes.count if self.near is None else min(lanes.count, lanes.machine.lanes)

    # -- sums in the near type

    @property
    def near_steps(self) -> int:
        assert self.near is not None
        return self.near.steps

    def near_zero(self, lanes: Lanes) -> ir.Constant:
        assert self.near is not None
        return ir.Constant(lanes.vector(self.near.element), None)

    def near_add(self, lanes: Lanes) -> Callable[[ir.Value, ir.Value], ir.Value]:
        return lanes.b.fadd if self.taken.is_floating else lanes.b.add

    def nearer(self, lanes: Lanes, value: ir.Value) -> ir.Value:
        """A value in the near type."""
        assert self.near is not None
        return value if self.taken.is_floating else self._wider(lanes, value, self.near.element)

    def settle(self, lanes: Lanes, state: State, near: ir.Value) -> State:
        """The state of ``lanes`` with a sum of the near type, which may have more."""
        b, whole = lanes.b, Lanes(lanes.b, near.type.count, lanes.machine)
        if self.taken.is_floating:
            value = halved(sliced(whole, near, lanes.count), b.fadd)
            return self.join(lanes, state, [b.fpext(value, lanes.vector(F64))])
        # Sums of 16 bits have room for each other in 32.
        between = I32 if near.type.element.width < 32 else I64
        value = halved(sliced(whole, self._wider(whole, near, between), lanes.count), b.add)
        return self.join(lanes, state, [self._wider(lanes, value, I64)])

    def _wider(self, lanes: Lanes, value: ir.Value, element: ir.Type) -> ir.Value:
        target = lanes.vector(element)
        if value.type == target:
            return value
        return lanes.b.sext(value, target) if self.taken.kind == "i" else lanes.b.zext(value, target)

    def join(self, lanes: Lanes, a: State, b: State) -> State:
        if self.dtype.is_bool:
            return [lanes.b.or_(a[0], b[0])]
        add = lanes.b.fadd if self.dtype.is_inexact else lanes.b.add
        return [add(x, y) for x, y in zip(a, b, strict=True)]


class Mean(Sum):
    def finish(self, lanes: Lanes, state: State, count: ir.Value) -> Value:
        n = lanes.splat(lanes.b.sitofp(count, F64))
        divided = [lanes.b.fdiv(v, n) for v in state]
        return converted(lanes, self.parts(divided), self.wide, self.node.dtype)


class Prod(_Linear):
    def neutral(self, lanes: Lanes) -> Value:
        return lanes.number(1, self.dtype)

    def start(self, lanes: Lanes) -> State:
        return self.state(lanes.number(1, self.wide))

    def take(self, lanes: Lanes, state: State, value: Value, index: ir.Value) -> State:
        return self.join(lanes, state, self.state(converted(lanes, value, self.dtype, self.wide)))

    def join(self, lanes: Lanes, a: State, b: State) -> State:
        return self.state(multiply_values(lanes, self.parts(a), self.parts(b), self.dtype.is_floating))


class Extreme(Fold):
    """The extreme so far; of floats, and whether a NaN was seen, so that each step is one instruction."""

    largest = True

    def neutral(self, lanes: Lanes) -> Value:
        return worst(lanes, self.dtype, self.largest)

    def start(self, lanes: Lanes) -> State:
        first = worst(lanes, self.dtype, self.largest)
        return [first, lanes.constant(0, I1)] if self.dtype.is_floating else [first]

    def take(self, lanes: Lanes, state: State, value: Value, index: ir.Value) -> State:
        if not self.dtype.is_floating:
            return self.join(lanes, state, [value])
        return self.join(lanes, state, [value, lanes.b.fcmp_unordered("uno", value, value)])

    def take_all(self, lanes: Lanes, state: State, values: Sequence[tuple[Value, ir.Value]]) -> State:
        if not self.dtype.is_floating or len(values) % 2:
            return super().take_all(lanes, state, values)
        # One comparison finds a NaN in either of two vectors; where there is one, what wins does not matter.
        pairs = zip(values[::2], values[1::2], strict=True)
        nan = lanes.b.fcmp_unordered
        parts = [[self._chosen(lanes, x, y), nan("uno", x, y)] for (x, _), (y, _) in pairs]
        return self.join(lanes, state, halved(parts, lambda a, b: self.join(lanes, a, b)))

    def joined_lanes(self, lanes: Lanes) -> int:
        return min(lanes.count, lanes.machine.lanes) if register_type(self.dtype) == F32 else lanes.count

    def _chosen(self, lanes: Lanes, x: ir.Value, y: ir.Value) -> ir.Value:
        return lanes.b.select(lanes.b.fcmp_ordered(">" if self.largest else "<", y, x), y, x)

    def join(self, lanes: Lanes, a: State, b: State) -> State:
        build = lanes.b
        if self.dtype.is_bool:
            return [(build.or_ if self.largest else build.and_)(a[0], b[0])]
        if not self.dtype.is_floating:
            return [extremum(lanes, a[0], b[0], self.dtype.kind, self.largest)]
        return [self._chosen(lanes, a[0], b[0]), build.or_(a[1], b[1])]

    def suspend(self, lanes: Lanes, state: State) -> Value:
        return self.finish(lanes, state, I64(1))

    def resume(self, lanes: Lanes, value: Value) -> State:
        return [value, lanes.b.fcmp_unordered("uno", value, value)] if self.dtype.is_floating else [value]

    def finish(self, lanes: Lanes, state: State, count: ir.Value) -> Value:
        if len(state) == 1:
            return state[0]
        return lanes.b.select(state[1], lanes.number(float("nan"), self.dtype), state[0])


class Max(Extreme):
    pass


class Min(Extreme):
    largest = False


def worst(lanes: Lanes, dtype: DType, largest: bool) -> ir.Value:
    """What every value beats or equals."""
    if dtype.is_floating:
        value: Any = float("-inf") if largest else float("inf")
    else:
        value = dtype.range[0 if largest else 1]
    number = lanes.number(value, dtype)
    assert not isinstance(number, Pair)
    return number


class AnyTrue(Fold):
    def neutral(self, lanes: Lanes) -> Value:
        return lanes.number(0, self.dtype)

    def start(self, lanes: Lanes) -> State:
        return [lanes.constant(0, I1)]

    def take(self, lanes: Lanes, state: State, value: Value, index: ir.Value) -> State:
        return self.join(lanes, state, [truth(lanes, value)])

    def join(self, lanes: Lanes, a: State, b: State) -> State:
        return [lanes.b.or_(a[0], b[0])]

    def finish(self, lanes: Lanes, state: State, count: ir.Value) -> Value:
        return state[0]


class AllTrue(AnyTrue):
    def neutral(self, lanes: Lanes) -> Value:
        return lanes.number(1, self.dtype)

    def start(self, lanes: Lanes) -> State:
        return [lanes.constant(1, I1)]

    def join(self, lanes: Lanes, a: State, b: State) -> State:
        return [lanes.b.and_(a[0], b[0])]


class ArgMax(Fold):
    """The value and its index; of equal values the smaller index, a NaN before everything."""

    largest = True

    def neutral(self, lanes: Lanes) -> Value:
        return worst(lanes, self.dtype, self.largest)

    def start(self, lanes: Lanes) -> State:
        return [worst(lanes, self.dtype, self.largest), lanes.constant(0, I64)]

    def take(self, lanes: Lanes, state: State, value: Value, index: ir.Value) -> State:
        return self._chosen(lanes, state, [value, index], self._better(lanes, value, state[0]))

    def join(self, lanes: Lanes, a: State, b: State) -> State:
        better, worse = self._better(lanes, b[0], a[0]), self._better(lanes, a[0], b[0])
        level = lanes.b.not_(lanes.b.or_(better, worse))
        earlier = lanes.b.icmp_signed("<", b[1], a[1])
        return self._chosen(lanes, a, b, lanes.b.or_(better, lanes.b.and_(level, earlier)))

    def _chosen(self, lanes: Lanes, old: State, new: State, take: ir.Value) -> State:
        return [lanes.b.select(take, n, o) for n, o in zip(new, old, strict=True)]

    def _better(self, lanes: Lanes, x: Value, y: Value) -> ir.Value:
        b = lanes.b
        if self.dtype.is_bool:
            return b.and_(x, b.not_(y)) if self.largest else b.and_(y, b.not_(x))
        beats = greater(lanes, x, y, self.dtype.kind) if self.largest else greater(lanes, y, x, self.dtype.kind)
        if not self.dtype.is_floating:
            return beats
        nan = b.and_(b.fcmp_unordered("uno", x, x), b.fcmp_ordered("ord", y, y))
        return b.or_(beats, nan)

    def finish(self, lanes: Lanes, state: State, count: ir.Value) -> Value:
        return state[1]


class ArgMin(ArgMax):
    largest = False


FOLDS: Final[dict[str, type[Fold]]] = {
    "sum": Sum, "mean": Mean, "prod": Prod, "max": Max, "min": Min, "any": AnyTrue, "all": AllTrue,
    "argmax": ArgMax, "argmin": ArgMin,
}  # fmt: skip

def narrowest(node: Node) -> Node:
    """The value that integers or truth values were widened from, which has the same values."""
    while node.op is CastBackward and _holds(node.dtype, node.operands[0].dtype):
        node = node.operands[0]
    return node


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of an integer dtype, or of bool, is one of another."""
    if not wide.is_integer or not (narrow.is_integer or narrow.is_bool):
        return False
    return narrow.is_bool or (wide.range[0] <= narrow.range[0] and narrow.range[1] <= wide.range[1])


__all__ = ["FOLDS", "Fold", "State", "choose", "divide_values", "sliced"]
