"""Laws of reductions: exact where nothing is rounded, which is so of integers and of choices among the elements."""

from __future__ import annotations

from math import prod
from typing import Final

from ...ir import Op, Var
from ...ir.ops.reduce import MeanBackward, Reduction, SumBackward
from ...ir.ops.shape import BroadcastBackward
from ..laws import Kind, Rule, rule


def _merges(op: type[Op]) -> bool:
    return issubclass(op, Reduction) and op.merges


def _is_exact(at: Op) -> bool:
    return at.node.op.exactly_rounded or not at.x.dtype.is_inexact


def _of_one(at: Op) -> Var | None:
    single = all(at.x.shape[k] == 1 for k in at.attrs["axis"])
    return at.x.reshape(at.y.shape) if single else None


@rule("fold over axes of size 1 = reshape", on=_merges)
def fold_of_one(at: Op) -> Var | None:
    op = at.node.op
    assert issubclass(op, Reduction)
    return _of_one(at) if op.keeps_single or _is_exact(at) else None


@rule("sum over axes of size 1 = reshape, but for -0.0", lambda op: op in (SumBackward, MeanBackward), Kind.ROUNDING)
def sum_of_one(at: Op) -> Var | None:
    return _of_one(at)


def _folded_at_once(at: Op) -> Var | None:
    """fold(fold(x)) over the axes of both."""
    inner = at.node.operands[0]
    if inner.op is not at.node.op or inner.dtype is not inner.operands[0].dtype or at.attrs["keepdims"]:
        return None
    first, rank = inner.attrs["axis"], len(inner.operands[0].shape)
    left = list(range(rank)) if inner.attrs["keepdims"] else [k for k in range(rank) if k not in first]
    both = sorted({*first, *(left[k] for k in at.attrs["axis"])})
    x = Var(at.builder, inner.operands[0])
    out = at.node.op.of(x, axis=tuple(both), keepdims=False, dtype=at.attrs.get("dtype"))
    return out.reshape(at.y.shape)


@rule("fold(fold(x)) = fold over the axes of both", on=_merges)
def fold_twice(at: Op) -> Var | None:
    return _folded_at_once(at) if _is_exact(at) else None


@rule("sum(sum(x)) = sum over the axes of both, prod likewise, of floats", on=_merges, kind=Kind.ROUNDING)
def sum_twice(at: Op) -> Var | None:
    return _folded_at_once(at)


def _before_repeats(at: Op) -> Var | None:
    """x of fold(broadcast x), in the result's shape, where the fold is only over axes along which x repeats."""
    inner, axis = at.node.operands[0], at.attrs["axis"]
    if inner.op is not BroadcastBackward:
        return None
    x = Var(at.builder, inner.operands[0])
    added = len(inner.shape) - x.ndim
    if not all(inner.shape[k] and (k < added or x.shape[k - added] == 1) for k in axis):
        return None
    if not at.attrs["keepdims"]:
        x = x.reshape(tuple(n for k, n in enumerate(x.shape, added) if k not in axis))
    return x.broadcast_to(at.y.shape)


@rule("max(broadcast x) = x, min, any, all likewise", on=lambda op: _merges(op) and op.exactly_rounded)
def extreme_of_repeats(at: Op) -> Var | None:
    return _before_repeats(at)


def _times_count(at: Op) -> Var | None:
    x = _before_repeats(at)
    return None if x is None else x * prod(at.x.shape[k] for k in at.attrs["axis"])


@rule("sum(broadcast x) = n x, of integers", SumBackward)
def sum_of_repeats(at: Op) -> Var | None:
    return None if at.x.dtype.is_inexact else _times_count(at)


@rule("sum(broadcast x) = n x", SumBackward, Kind.ROUNDING)
def sum_of_float_repeats(at: Op) -> Var | None:
    return _times_count(at)


RULES: Final[tuple[Rule, ...]] = (
    fold_of_one, sum_of_one, fold_twice, sum_twice, extreme_of_repeats, sum_of_repeats, sum_of_float_repeats,
)  # fmt: skip
