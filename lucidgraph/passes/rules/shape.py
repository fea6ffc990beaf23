"""Laws of ops that move elements; all are exact."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from operator import mul
from typing import Final

from ...ir import Op, Var
from ...ir.ops.shape import (
    BroadcastBackward,
    ConcatBackward,
    PadBackward,
    PermuteBackward,
    SliceBackward,
)
from ..laws import Rule, rule


@rule("broadcast_to(x, shape of x) = x", on=BroadcastBackward)
def broadcast_to_own(at: Op) -> Var | None:
    return at.x if at.x.shape == at.y.shape else None


@rule("broadcast_to(broadcast_to(x, s), t) = broadcast_to(x, t)", on=BroadcastBackward)
def broadcast_twice(at: Op) -> Var | None:
    inner = at.node.operands[0]
    return Var(at.builder, inner.operands[0]).broadcast_to(at.y.shape) if inner.op is BroadcastBackward else None


@rule("broadcast_to(reshape(x, (1, …, 1, *s)), t) = broadcast_to(x, t), s the shape of x", on=BroadcastBackward)
def broadcast_adds_axes(at: Op) -> Var | None:
    inner = at.node.operands[0]
    if not inner.op.keeps_order:
        return None
    x = inner.operands[0]
    added = len(inner.shape) - len(x.shape)
    fits = added >= 0 and inner.shape == (1,) * added + x.shape
    return Var(at.builder, x).broadcast_to(at.y.shape) if fits else None


@rule("broadcast_to(reshape(broadcast_to(x, s)), t) = reshape(broadcast_to(reshape(x), u)), as in two repeats",
      on=BroadcastBackward)  # fmt: skip
def broadcast_between_axes(at: Op) -> Var | None:
    # Repeats make a reshape of repeated elements each, which no strides can say: so they make one together.
    inner = at.node.operands[0]
    if not inner.op.keeps_order or inner.operands[0].op is not BroadcastBackward or not at.y.size:
        return None
    spread = inner.operands[0]
    if len(inner.shape) != len(at.y.shape):
        return None
    x = spread.operands[0]
    own = [1] * (len(spread.shape) - len(x.shape)) + list(x.shape)
    full = list(spread.shape)
    ends = list(accumulate(full, mul, initial=1))
    for k in reversed(range(len(inner.shape))):
        if inner.shape[k] != at.y.shape[k]:
            before = prod(inner.shape[:k])
            if before not in ends:
                return None
            place = ends.index(before)
            own.insert(place, 1)
            full.insert(place, at.y.shape[k])
    return Var(at.builder, x).reshape(tuple(own)).broadcast_to(tuple(full)).reshape(at.y.shape)


@rule("reshape(x, shape of x) = x, expand_dims and squeeze likewise", on=lambda op: op.keeps_order)
def reshape_to_own(at: Op) -> Var | None:
    return at.x if at.x.shape == at.y.shape else None


@rule("reshape(reshape(x, s), t) = reshape(x, t), expand_dims and squeeze likewise", on=lambda op: op.keeps_order)
def reshape_twice(at: Op) -> Var | None:
    inner = at.node.operands[0]
    return Var(at.builder, inner.operands[0]).reshape(at.y.shape) if inner.op.keeps_order else None


@rule("permute_dims that leaves the axes of more than one element in order = reshape", on=PermuteBackward)
def permute_of_ones(at: Op) -> Var | None:
    moved = [k for k in at.attrs["axes"] if at.x.shape[k] != 1]
    return at.x.reshape(at.y.shape) if moved == sorted(moved) else None


@rule("permute_dims(permute_dims(x, p), q) = permute_dims(x, p∘q)", on=PermuteBackward)
def permute_twice(at: Op) -> Var | None:
    inner = at.node.operands[0]
    if inner.op is not PermuteBackward:
        return None
    return Var(at.builder, inner.operands[0]).permute(tuple(inner.attrs["axes"][k] for k in at.attrs["axes"]))


@rule("slice of everything = x", on=SliceBackward)
def slice_of_all(at: Op) -> Var | None:
    forward = all(s > 0 or n == 1 for n, s in zip(at.x.shape, at.attrs["step"], strict=True))
    return at.x if forward and at.x.shape == at.y.shape else None


Numbers = tuple[int, ...]


def _sliced(x: Var, start: Numbers, step: Numbers, sizes: Numbers) -> Var:
    """``sizes`` elements from ``start`` on by ``step``, in the normal form of a slice's numbers."""
    parts = []
    for a, s, m in zip(start, step, sizes, strict=True):
        s = s if m > 1 else 1
        parts.append((a, a + s * (m - 1) + (1 if s > 0 else -1), s) if m else (0, 0, 1))
    first, last, by = (tuple(p[k] for p in parts) for k in range(3))
    return SliceBackward.of(x, start=first, stop=last, step=by)


@rule("slice(slice(x)) = slice(x)", on=SliceBackward)
def slice_twice(at: Op) -> Var | None:
    inner = at.node.operands[0]
    if inner.op is not SliceBackward:
        return None
    numbers = zip(inner.attrs["start"], inner.attrs["step"], at.attrs["start"], at.attrs["step"], strict=True)
    start, step = zip(*((a + s * b, s * t) for a, s, b, t in numbers), strict=True)
    return _sliced(Var(at.builder, inner.operands[0]), start, step, at.y.shape)


@rule("slice(pad(x), where x is) = x", on=SliceBackward)
def slice_of_pad(at: Op) -> Var | None:
    pad = at.node.operands[0]
    if pad.op is not PadBackward or pad.operands[0].shape != at.y.shape:
        return None
    places = zip(at.y.shape, pad.attrs["low"], pad.attrs["interior"], at.attrs["start"], at.attrs["step"], strict=True)
    there = all(n == 0 or (a == low and (n == 1 or s == gap + 1)) for n, low, gap, a, s in places)
    return Var(at.builder, pad.operands[0]) if there else None


@rule("slice(concat(…, x, …)) = slice(x), for a slice within x", on=SliceBackward)
def slice_of_concat(at: Op) -> Var | None:
    concat = at.node.operands[0]
    if concat.op is not ConcatBackward or not at.y.size:
        return None
    axis = concat.attrs["axis"]
    start, step = at.attrs["start"], at.attrs["step"]
    ends = start[axis], start[axis] + step[axis] * (at.y.shape[axis] - 1)
    offset = 0
    for part in concat.operands:
        size = part.shape[axis]
        if offset <= min(ends) and max(ends) < offset + size:
            moved = tuple(a - offset if k == axis else a for k, a in enumerate(start))
            return _sliced(Var(at.builder, part), moved, step, at.y.shape)
        offset += size
    return None


@rule("pad(x) by nothing = x", on=PadBackward)
def pad_by_nothing(at: Op) -> Var | None:
    return at.x if at.x.shape == at.y.shape else None


@rule("concat(x) = x, empty arrays left out", on=ConcatBackward)
def concat_of_one(at: Op) -> Var | None:
    axis = at.attrs["axis"]
    full = [v for v in at.inputs if v.shape[axis]] or [at.x]
    if len(full) == len(at.inputs) > 1:
        return None
    return full[0] if len(full) == 1 else ConcatBackward.of(*full, axis=axis)


RULES: Final[tuple[Rule, ...]] = (
    broadcast_to_own, broadcast_twice, broadcast_adds_axes, broadcast_between_axes, reshape_to_own, reshape_twice,
    permute_of_ones, permute_twice, slice_of_all, slice_twice, slice_of_pad, slice_of_concat, pad_by_nothing,
    concat_of_one,
)  # fmt: skip
