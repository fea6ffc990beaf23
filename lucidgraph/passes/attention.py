"""Attention that a program writes out becomes one op: softmax(mask(scale q kᵀ)) v, before and after differentiation.

Nothing but the order of sums changes. The softmax may be the op or its formula; masks are choices between a score and
one number, or are added. What lies between the first product and the second must serve nothing else.

A mask that follows from the places of query and key alone, and lets each query see the keys up to its own place,
becomes a fact of the op, so that what nobody sees is not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, isnan, nan, prod
from typing import Any, Final, final

import numpy as np

from ..dtypes import float32, float64
from ..ir import Builder, Graph, Node, Var, topological
from ..ir.evaluate import evaluate
from ..ir.ops.arithmetic import AddBackward, DivBackward, MulBackward, SubBackward, WhereBackward
from ..ir.ops.attention import AttendBackward, Attention
from ..ir.ops.compare import Greater, GreaterEqual, Less, LessEqual, LogicalAnd, LogicalNot
from ..ir.ops.core import Captured, CastBackward
from ..ir.ops.creation import Arange
from ..ir.ops.linalg import MatmulBackward
from ..ir.ops.math import ExpBackward
from ..ir.ops.nn import SoftmaxBackward
from ..ir.ops.reduce import MaxBackward, Reduction, SumBackward
from ..ir.ops.shape import BroadcastBackward, PermuteBackward
from .cleanup import dce
from .laws import uniform
from .rebuild import rebuild

_KNOWN: Final = 1 << 22
"""How many elements a mask without inputs may have to be computed here."""
_LOOKED_AT: Final = 64
"""Of how many nodes it may be made."""


@final
@dataclass(frozen=True, slots=True)
class _Found:
    """The parts of an attention; ``inside`` are the nodes it replaces."""

    q: Node
    turned: Node
    inside: tuple[Node, ...]
    scale: float = 1.0
    over: float = 1.0
    added: tuple[tuple[Node, bool], ...] = ()
    """What is added to the scores, or taken from them."""
    choices: tuple[tuple[Node, bool], ...] = field(default=())
    """Conditions, and whether a score is seen where they hold."""
    hidden: float | None = None

    def around(self, *nodes: Node, **changes: Any) -> _Found:
        return replace(self, inside=(*self.inside, *nodes), **changes)


def attention(graph: Graph) -> Graph:
    """The graph with ``attend`` in the place of attention written out."""
    places = [node for node in graph.nodes if node.op is MatmulBackward]
    if len(places) < 2:
        return graph
    found = {node: match for node in places if (match := _attention(node)) is not None}
    if not found:
        return graph
    users: dict[Node, set[Node]] = {}
    for node in graph.nodes:
        for operand in node.operands:
            users.setdefault(operand, set()).add(node)
    leaving = set(graph.outputs)
    chosen = {
        node for node, match in found.items()
        if leaving.isdisjoint(match.inside) and all(users[n] <= {node, *match.inside} for n in match.inside)
    }  # fmt: skip

    def visit(builder: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if node not in chosen:
            return None
        here = node.replace(operands=operands)
        match = _attention(here)
        return None if match is None else _written(builder, here, match)

    return dce(rebuild(graph, visit, stage="attention")) if chosen else graph


# -- finding


def _attention(node: Node) -> _Found | None:
    weights, v = node.operands
    if node.dtype not in (float32, float64) or weights.shape[:-2] != v.shape[:-2] or len(weights.shape) < 2:
        return None
    soft = _softmax(weights)
    if soft is None or not weights.type.size:
        return None
    scores, inside = soft
    match = _scores(scores)
    return None if match is None else match.around(*inside)


def _plain(node: Node) -> Node:
    """A value without marks that only passes read."""
    while node.op.identity:
        node = node.operands[0]
    return node


def _softmax(node: Node) -> tuple[Node, list[Node]] | None:
    """x and the nodes between, where ``node`` is the softmax of x along the last axis."""
    last = len(node.shape) - 1
    if node.op is SoftmaxBackward:
        return (node.operands[0], [node]) if node.attrs["axis"] == last else None
    if node.op is not DivBackward:
        return None
    e, total = node.operands
    if e.op is not ExpBackward or e.operands[0].op is not SubBackward:
        return None
    less = e.operands[0]
    x, top = less.operands
    of_sum, of_max = _row(total, SumBackward, e), _row(top, MaxBackward, x)
    return None if of_sum is None or of_max is None else (x, [node, e, less, *of_sum, *of_max])


def _row(node: Node, op: type[Reduction], x: Node) -> list[Node] | None:
    """The nodes by which ``node`` is the reduction of x along the last axis, put back."""
    inside = []
    if node.op is BroadcastBackward:
        inside.append(node)
        node = node.operands[0]
    if node.shape != (*x.shape[:-1], 1):
        return None
    while node.op.keeps_order or node.op.identity:
        inside.append(node)
        node = node.operands[0]
    same = node.op is op and node.attrs["axis"] == (len(x.shape) - 1,) and node.dtype is x.dtype
    return [*inside, node] if same and _plain(node.operands[0]) is x else None


def _scores(node: Node) -> _Found | None:
    """The product that scores are made of, with what is done to it from the outside in: choices, sums, a quotient,
    a factor."""
    stages = (_chosen, _summed, _divided, _scaled)
    at, steps = 0, []
    while node.op is not MatmulBackward:
        step = None
        while at < len(stages) and (step := stages[at](node)) is None:
            at += 1
        if step is None:
            return None
        steps.append((node, step))
        at += at > 1  # one quotient, one factor
        node = step[0]
    q, turned = node.operands
    if q.shape[:-2] != turned.shape[:-2]:
        return None
    match = _Found(q, turned, (node,))
    for outer, (_, changes) in steps:
        choices, added = changes.pop("choices", ()), changes.pop("added", ())
        hidden = changes.get("hidden", match.hidden)
        if match.hidden not in (None, hidden):
            return None
        match = match.around(outer, choices=(*match.choices, *choices), added=(*match.added, *added), **changes)
    return match


_Step = tuple[Node, dict[str, Any]]


def _leads(node: Node) -> bool:
    """Whether a product may stand behind a value."""
    while node.op in (WhereBackward, AddBackward, SubBackward, MulBackward, DivBackward):
        operands = node.operands[1:] if node.op is WhereBackward else node.operands
        node = next((o for o in operands if uniform(o) is None), operands[0])
    return node.op is MatmulBackward


def _number(node: Node) -> float | None:
    """The real number that every element of a node is."""
    value = uniform(node)
    return float(value) if isinstance(value, int | float) else None


def _chosen(node: Node) -> _Step | None:
    if node.op is not WhereBackward:
        return None
    condition, x, y = node.operands
    for inner, other, seen in ((x, y, True), (y, x, False)):
        number = _number(other)
        if number is not None and not isnan(number) and uniform(inner) is None:
            return inner, {"choices": ((condition, seen),), "hidden": number}
    return None


def _summed(node: Node) -> _Step | None:
    if node.op is AddBackward:
        x, y = node.operands
        inner, other = (x, y) if _leads(x) else (y, x)
        return (inner, {"added": ((other, True),)}) if _leads(inner) else None
    if node.op is SubBackward and _leads(node.operands[0]):
        return node.operands[0], {"added": ((node.operands[1], False),)}
    return None


def _divided(node: Node) -> _Step | None:
    number = _number(node.operands[1]) if node.op is DivBackward else None
    return None if number is None else (node.operands[0], {"over": number})


def _scaled(node: Node) -> _Step | None:
    if node.op is MulBackward:
        for inner, other in (node.operands, node.operands[::-1]):
            number = _number(other)
            if number is not None:
                return inner, {"scale": number}
    return None


# -- writing


def _written(builder: Builder, node: Node, match: _Found) -> Node | None:
    """``attend`` for what was found; None where it has no form for the masks."""
    *lead, queries, width = node.shape
    keys = match.turned.shape[-1]
    batch = (*(1,) * (2 - len(lead)), *lead) if len(lead) <= 2 else (prod(lead[:-1]), lead[-1])

    def four(x: Var) -> Var:
        return x.reshape((*batch, *x.shape[-2:]))

    q, turned, v = (Var(builder, n) for n in (match.q, match.turned, node.operands[1]))
    swap = (*range(len(lead)), len(lead) + 1, len(lead))
    k = Var(builder, turned.node.operands[0]) if _is_swap(turned.node, swap) else turned.swap_last()
    if len(match.added) > 1 or (match.added and match.choices):
        return None
    mask = _mask(builder, (*match.choices, *match.added))
    if mask is not None and mask.ndim > 4:
        mask = mask.broadcast_to((*lead, queries, keys)).reshape((*batch, queries, keys))
    hidden = -inf if match.hidden is None else match.hidden
    attrs = {"scale": match.scale, "over": match.over, "causal": False, "hidden": hidden, "added": False, "blind": nan}
    operands = [*map(four, (q, k, v)), *([] if mask is None else [mask])]
    return AttendBackward.of(*operands, **attrs).reshape((*lead, queries, width)).node


def _is_swap(node: Node, axes: Sequence[int]) -> bool:
    return node.op is PermuteBackward and node.attrs["axes"] == tuple(axes)


def _mask(builder: Builder, parts: Sequence[tuple[Node, bool]]) -> Var | None:
    """The one mask that choices or terms come to, before they were broadcast."""
    found: Var | None = None
    for node, plain in parts:
        while node.op is BroadcastBackward:
            node = node.operands[0]
        one = Var(builder, node)
        if not plain:
            one = ~one if one.dtype.is_bool else -one
        found = one if found is None else found & one
    return found


# -- masks that follow from places


def _index(node: Node) -> tuple[int, int] | None:
    """(axis, c), counted from the end, where an element of ``node`` is its place along an axis plus c."""
    if node.op is Arange:
        start, step = node.attrs["start"], node.attrs["step"]
        return (1, int(start)) if step == 1 and start == int(start) else None
    if node.op is CastBackward and node.operands[0].dtype.is_integer and node.dtype.is_integer:
        return _index(node.operands[0])
    if node.op in (AddBackward, SubBackward):
        x, y = node.operands
        if node.op is AddBackward and uniform(x) is not None:
            x, y = y, x
        number, inner = uniform(y), _index(x)
        if inner is None or not isinstance(number, int):
            return None
        return inner[0], inner[1] + (number if node.op is AddBackward else -number)
    if node.op is BroadcastBackward or node.op.keeps_order:
        inner = _index(node.operands[0])
        if inner is None:
            return None
        axis, c = inner
        count = node.operands[0].shape[-axis]
        # The one axis longer than 1 stays in its order.
        if node.op is not BroadcastBackward:
            if prod(node.operands[0].shape) != count:
                return None
            axis = next((k for k in (1, 2) if k <= len(node.shape) and node.shape[-k] == count), 0)
        return (axis, c) if axis and node.shape[-axis] == count else None
    return None


def _order(node: Node) -> tuple[int, bool] | None:
    """(c, True) where a condition is key ≤ query + c in every batch, (c, False) where it is the contrary."""
    while node.op is BroadcastBackward:
        node = node.operands[0]
    if node.op is LogicalNot:
        inner = _order(node.operands[0])
        return None if inner is None else (inner[0], not inner[1])
    if node.op not in (Less, LessEqual, Greater, GreaterEqual):
        return None
    x, y = map(_index, node.operands)
    if x is None or y is None or {x[0], y[0]} != {1, 2}:
        return None
    # As key ∘ query + c.
    key_first = x[0] == 1
    c = y[1] - x[1] if key_first else x[1] - y[1]
    low = (node.op in (Less, LessEqual)) == key_first
    strict = node.op in (Less, Greater)
    # key < query + c is key ≤ query + c - 1; key > query + c is the contrary of key ≤ query + c.
    return (c - strict, True) if low else (c - (not strict), False)


def _value(node: Node) -> np.ndarray[Any, Any] | None:
    """The value of what depends on no input, before it was broadcast; None where that is unknown or large."""
    while node.op is BroadcastBackward:
        node = node.operands[0]
    seen, todo = {node}, [node]
    while todo:
        n = todo.pop()
        if n.op.effect or n.name == "input" or not n.op.schema_v1.deterministic or n.type.size > _KNOWN:
            return None
        if len(seen) > _LOOKED_AT or (n.op is Captured and n.attrs["value"].array is None):
            return None
        todo += [o for o in n.operands if o not in seen]
        seen.update(n.operands)
    return evaluate(Graph([], topological([node]), [node], "explicit"), [])[0]


def _corner(array: np.ndarray[Any, Any], queries: int, keys: int) -> np.ndarray[Any, Any] | None:
    """The one matrix (queries, keys) that an array repeats."""
    if array.shape[-2:] != (queries, keys) or array.size != queries * keys:
        return None
    return array.reshape(queries, keys)


def _is_causal(condition: Node, queries: int, keys: int) -> bool:
    """Whether a score is seen just where the key is not behind the query, the last of both side by side."""
    order = _order(condition)
    if order is not None:
        return order == (keys - queries, True)
    value = _value(condition)
    matrix = None if value is None else _corner(value, queries, keys)
    return matrix is not None and np.array_equal(matrix, np.tri(queries, keys, keys - queries, dtype=bool))


def _causal_sum(term: Node, queries: int, keys: int) -> float | None:
    """The number that a term adds to the scores behind each query, where it adds 0 to all others."""
    value = _value(term)
    matrix = None if value is None else _corner(value, queries, keys)
    if matrix is None:
        return None
    seen = np.tri(queries, keys, keys - queries, dtype=bool)
    behind = matrix[~seen]
    if not behind.size or matrix[seen].any() or not behind[0] < 0 or (behind != behind[0]).any():
        return None
    return float(behind[0])


def _parts(node: Node) -> list[Node]:
    """The conditions that must hold together."""
    found, todo = [], [node]
    while todo:
        at = todo.pop()
        while at.op is BroadcastBackward:
            at = at.operands[0]
        if at.op is LogicalAnd:
            todo += at.operands[::-1]
        else:
            found.append(at)
    return found


def causal(graph: Graph) -> Graph:
    """The graph in which masks that follow from places are facts of the ops that read them."""
    if not any(issubclass(node.op, Attention) for node in graph.nodes):
        return graph
    known: dict[tuple[Node, int, int], tuple[dict[str, Any], tuple[Node, ...]] | None] = {}

    def placed(mask: Node, queries: int, keys: int) -> tuple[dict[str, Any], tuple[Node, ...]] | None:
        """What the mask says, and what is left of it."""
        if not mask.dtype.is_bool:
            number = _causal_sum(mask, queries, keys)
            return None if number is None else ({"causal": True, "hidden": number, "added": True}, ())
        parts = _parts(mask)
        rest = tuple(part for part in parts if not _is_causal(part, queries, keys))
        return None if len(rest) == len(parts) else ({"causal": True}, rest)

    def visit(builder: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if not issubclass(node.op, Attention) or node.attrs["causal"]:
            return None
        mask = node.op.mask_of(operands)
        if mask is None:
            return None
        key = mask, operands[0].shape[2], operands[1].shape[2]
        if key not in known:
            known[key] = placed(*key)
        found = known[key]
        if found is None:
            return None
        changes, rest = found
        left = _mask(builder, [(part, True) for part in rest])
        masks = () if left is None else (left.node,)
        return builder.emit(node.op, (*operands[:-1], *masks), {**node.attrs, **changes})

    return rebuild(graph, visit, stage="attention")


__all__ = ["attention", "causal"]
