"""Gradients of functions, in one way for traced and for deferred values.

The function runs on ``primal`` nodes, which stand for the values differentiated; what it recorded between them and its
outputs is cut out as a graph, made explicit, differentiated, and the joint graph is put where the call was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import trees
from ..errors import AxisError, DTypeError, NotDifferentiableError, ShapeError
from ..ir import Graph, Node, topological
from ..ir.op import get
from ..lang.recording import Trace, current_trace, keep, taping
from ..lang.tensor import Tensor, apply, asarray, is_array, node_of
from .tracer import require_callable

_PRIMAL = get("primal")
_CAST = get("cast")


def _as_tensor(leaf: Any) -> Tensor:
    if isinstance(leaf, bool) or not (is_array(leaf) or isinstance(leaf, int | float | complex)):
        raise DTypeError(f"a gradient flows through arrays, not {type(leaf).__name__}: {leaf!r:.80}")
    tensor = leaf if isinstance(leaf, Tensor) else asarray(leaf)
    return apply(_CAST, tensor, dtype=tensor.dtype) if tensor._node.type.weak else tensor


def _require_inexact(tensor: Tensor, path: str) -> None:
    if not tensor.dtype.is_inexact:
        raise NotDifferentiableError(
            f"a gradient with respect to argument{path} of {tensor.dtype.name} was asked for: only floating and "
            "complex values have one",
            hint="cast it to a floating dtype, or leave it out of argnums",
        )


def _cut(outputs: Sequence[Node], primals: Sequence[Node], effects: Sequence[Node]) -> tuple[Graph, list[Node]]:
    """The recorded graph from ``primals`` to ``outputs``, and the other nodes it reads: its further inputs."""
    depends = set(primals)
    order = topological([*effects, *outputs], stop=depends.__contains__)
    for node in order:
        if not depends.isdisjoint(node.operands):
            depends.add(node)
    new: dict[Node, Node] = {node: Node(get("input"), (), {}, node.types) for node in primals}
    surroundings: list[Node] = []

    def inside(node: Node) -> Node:
        if node not in new:
            if node.op.schema_v1.name == "constant":
                new[node] = node
            else:
                surroundings.append(node)
                new[node] = Node(get("input"), (), {}, node.types)
        return new[node]

    nodes = []
    for node in order:
        if node in depends and node not in new:
            operands = tuple(inside(operand) for operand in node.operands)
            new[node] = node.replace(operands=operands)
            nodes.append(new[node])
    results = [inside(node) for node in outputs]
    inputs = [new[node] for node in (*primals, *surroundings)]
    return Graph.from_outputs(inputs, results, "recorded", order=nodes), surroundings


def _paste(graph: Graph, arguments: Sequence[Node]) -> list[Node]:
    """The nodes of ``graph`` over ``arguments``, recorded here; its outputs."""
    new = dict(zip(graph.inputs, arguments, strict=True))
    for node in graph.nodes:
        new[node] = keep(node.replace(operands=tuple(new[operand] for operand in node.operands)))
    return [new[node] for node in graph.outputs]


def _brought(node: Node, trace: Trace | None) -> Node:
    """A node recorded in ``trace``, or outside traces, for use where the recording is now."""
    return node if trace is current_trace() else node_of(Tensor.of_node(node, trace))


def _independent(nodes: Sequence[Node], marks: Sequence[Node]) -> list[Node]:
    """The nodes that do not depend on ``marks``."""
    depends = set(marks)
    for node in nodes:
        if not depends.isdisjoint(node.operands):
            depends.add(node)
    return [node for node in nodes if node not in depends]


def linearized(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], argnums: Sequence[int], has_aux: bool = False
) -> tuple[Any, Callable[[Any], tuple[Any, list[Any]]], Any]:
    """``fn``'s result; the function from its cotangent to the result again, as part of the joint graph, and one
    gradient tree per argument in ``argnums``; and what else ``fn`` returned."""
    spec_of: dict[int, trees.TreeDef] = {}
    tensors: list[Tensor] = []
    for k in argnums:
        leaves, spec_of[k] = trees.flatten(args[k])
        for leaf, path in zip(leaves, trees.paths(spec_of[k]), strict=True):
            tensor = _as_tensor(leaf)
            _require_inexact(tensor, f" {k}{path}")
            tensors.append(tensor)
    trace = current_trace()
    start = len(trace.nodes) if trace is not None else 0
    with taping():
        originals = [node_of(t) for t in tensors]
        marked = [apply(_PRIMAL, t) for t in tensors]
        marks = [t._node for t in marked]  # now: the function may write to its arguments
        given, at = list(args), 0
        for k in argnums:
            count = spec_of[k].num_leaves
            given[k] = trees.unflatten(spec_of[k], marked[at : at + count])
            at += count
        returned = fn(*given, **kwargs)
        if has_aux and not (isinstance(returned, tuple) and len(returned) == 2):
            raise DTypeError(f"with has_aux {_label(fn)} returns (result, aux), not {type(returned).__name__}")
        out, aux = returned if has_aux else (returned, None)
        out_leaves, out_spec = trees.flatten(out)
        out_tensors = [_as_tensor(leaf) for leaf in out_leaves]
        out_nodes = [node_of(t) for t in out_tensors]
        effects = []
        if trace is not None:
            effects = [node for node in trace.nodes[start:] if node.op.effect]
        graph, surroundings = _cut(out_nodes, marks, effects)
        joint = graph.backward(wrt=range(len(tensors)))
    if trace is not None:
        # The forward part comes back with the joint graph; what was recorded over the marks is not needed twice.
        trace.nodes[start:] = _independent(trace.nodes[start:], marks)

    def pullback(cotangent: Any) -> tuple[Any, list[Any]]:
        leaves, spec = trees.flatten(cotangent)
        if spec != out_spec:
            raise ShapeError(
                f"the cotangent is {trees.describe(spec)}, the result is {trees.describe(out_spec)}",
                hint="give one cotangent per array of the result, nested as the result is",
            )
        cotangents = []
        for leaf, t in zip(leaves, out_tensors, strict=True):
            tensor = asarray(leaf, dtype=t.dtype)
            if tensor.shape != t.shape:
                raise ShapeError(f"a cotangent of shape {tensor.shape} was given for a result of {t._node.type}")
            cotangents.append(node_of(tensor))
        given = [_brought(node, trace) for node in (*originals, *surroundings)]
        results = _paste(joint, [*given, *cotangents])
        gradients = [Tensor.of_node(node) for node in results[len(out_nodes) :]]
        grouped, at = [], 0
        for k in argnums:
            count = spec_of[k].num_leaves
            grouped.append(trees.unflatten(spec_of[k], gradients[at : at + count]))
            at += count
        values = trees.unflatten(out_spec, [Tensor.of_node(node) for node in results[: len(out_nodes)]])
        return values, grouped

    return trees.unflatten(out_spec, out_tensors), pullback, aux


def positions(argnums: int | Sequence[int], count: int) -> tuple[int, ...]:
    """``argnums`` as non-negative positions among ``count`` arguments."""
    asked = tuple(argnums) if isinstance(argnums, Sequence) else (argnums,)
    for k in asked:
        if type(k) is not int:
            raise DTypeError(f"argnums={argnums!r}: positions of arguments are integers")
        if not -count <= k < count:
            raise AxisError(
                f"argnums={argnums!r} names argument {k}, the function was given {count} by position",
                hint="give what is differentiated by position",
            )
    places = tuple(k % count for k in asked)
    if len(set(places)) < len(places):
        raise AxisError(f"argnums={argnums!r} names an argument twice")
    return places


def value_and_grad(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """The function that returns ``fn``'s scalar result and its gradient: ``(value, gradient)``.

    An int in ``argnums`` gives one gradient tree, a tuple a tuple of them, ``(0,)`` a tuple of one. With ``has_aux``
    ``fn`` returns ``(loss, aux)`` and the value is that pair. Integer results and step functions contribute zero.

    Raises :class:`ShapeError` when the result is not one number, :class:`NotDifferentiableError` for integer
    arguments and for ops without a gradient, naming the line.

    >>> import lucidgraph as lg
    >>> value, slope = value_and_grad(lambda x: lg.sum(x * x))(lg.asarray([1.0, 2.0]))
    >>> value.item(), slope.tolist()
    (5.0, [2.0, 4.0])
    """

    require_callable(fn, "value_and_grad")

    def wrapped(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        places = positions(argnums, len(args))
        out, pullback, aux = linearized(fn, args, kwargs, places, has_aux)
        if not isinstance(out, Tensor) or out.shape != () or not out.dtype.is_floating:
            what = out._node.type if isinstance(out, Tensor) else type(out).__name__
            raise ShapeError(
                f"grad needs a real scalar result, {_label(fn)} gave {what}", hint="sum or mean over it, or use vjp"
            )
        value, gradients = pullback(1.0)
        gradient = gradients[0] if isinstance(argnums, int) else tuple(gradients)
        return ((value, aux) if has_aux else value), gradient

    return _named(wrapped, fn, "value_and_grad")


def grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that returns the gradient of ``fn``'s scalar result; as :func:`value_and_grad`, without the value.

    With ``has_aux`` it returns ``(gradient, aux)``.

    >>> grad(lambda x: x * x)(3.0).item()
    6.0
    """
    require_callable(fn, "grad")
    both = value_and_grad(fn, argnums, has_aux)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return _named(wrapped, fn, "grad")


def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """``(fn(*primals), pullback)``: ``pullback(cotangent)`` is the tuple of gradients, one tree per primal.

    >>> out, pullback = vjp(lambda x, y: x * y, 3.0, 4.0)
    >>> out.item(), [g.item() for g in pullback(1.0)]
    (12.0, [4.0, 3.0])
    """
    require_callable(fn, "vjp")
    out, pullback, _ = linearized(fn, primals, {}, range(len(primals)))
    return out, lambda cotangent: tuple(pullback(cotangent)[1])


def _label(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))


def _named(wrapped: Callable[..., Any], fn: Callable[..., Any], what: str) -> Callable[..., Any]:
    wrapped.__name__ = wrapped.__qualname__ = f"{what}({_label(fn)})"
    wrapped.__doc__ = fn.__doc__
    setattr(wrapped, "__wrapped__", fn)  # noqa: B010  names of arguments, and what compile watches outside
    return wrapped
