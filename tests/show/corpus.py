"""Programs that every view has to show: all forms of values, names that try to break out, gradients, halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lucidgraph as lg
from lucidgraph.ir import Graph
from lucidgraph.ir.op import get
from lucidgraph.lang.recording import scope
from lucidgraph.lang.tensor import Tensor, apply

HOSTILE = ("<script>alert(1)</script>", 'a"b\\', "class", "]] --> %% `x`", "&amp;'", "x\ny", "π#35;", "lg", "v5")


def op(name: str, *operands: Any, **attrs: Any) -> Tensor:
    return apply(get(name), *operands, **attrs)


def array(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    values = np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape)
    return (values * 3).astype(dtype)


def _chain(x: Any, w: Any, b: Any) -> Any:
    return lg.mean(lg.max(x * w + b, axis=1) * 0.5)


def _counts(x: Any) -> Any:
    return lg.sum(x, axis=0), lg.sum(x, axis=()), lg.mean(x)


def _numbers(x: Any, a: Any, k: Any) -> Any:
    return x * a + k, a, k, a * 2.5, x // k


def _constants(x: Any) -> Any:
    return [x + c for c in (float("inf"), float("-inf"), float("nan"), -0.0, 1e-45, 0.1)], x * (1 - 2j)


_TABLE = array(4, dtype=np.float64)
_WORDS = np.array([2**63, 7], np.uint64)


def _captures(x: Any) -> Any:
    return x * _TABLE, lg.asarray(_WORDS) + 2**63 - 1, _TABLE


def _moves(x: Any) -> Any:
    back = op("slice", x, start=(3, 1), stop=(-1, 3), step=(-1, 1))
    y = op("reshape", op("permute_dims", back, axes=(1, 0)), shape=(2, 4))
    padded = op("pad", y, lg.asarray(0.5, dtype=y.dtype), low=(1, 0), high=(0, 2), interior=(1, 1))
    return op("concat", padded, padded, axis=1), y, y, x


def _network(x: Any, w: Any, v: Any) -> Any:
    with scope("layers.0"):
        h = op("gelu", op("matmul", x, w), approximate="none")
    with scope("layers.1"):
        h = op("matmul", h, v)
    return op("softmax", h, axis=1)


def _half(x: Any, w: Any) -> Any:
    with lg.autocast(lg.bfloat16):
        return op("log_softmax", op("matmul", x, w), axis=1), op("exp", x)


def _choice(x: Any, y: Any) -> Any:
    return op("where", op("greater", x, y), op("sqrt", op("abs", x)), y), op("logical_not", x)


def _lookup(x: Any, w: Any, k: Any) -> Any:
    rows = op("take", w, k, axis=0)
    first = op("slice", w, start=(0, 0), stop=(1, 4), step=(1, 1))
    normal = op("layer_norm", rows, op("reshape", first, shape=(4,)), eps=1e-5, has_weight=True, has_bias=False)
    best = op("take_along_axis", normal, op("reshape", k, shape=(1, 4)), axis=0)
    return op("scatter_add", x, k, normal, axis=0), op("einsum", normal, x, subscripts="ij,kj->ik"), best


def _prints(x: Any) -> Any:
    op("debug_print", x, format="{}")
    return -x


def _named(**arrays: Any) -> Any:
    total = 0.0
    for value in arrays.values():
        total = total + value
    return total


def graphs() -> dict[str, tuple[Graph, list[Any]]]:
    """Explicit graphs by name, with arguments for their inputs."""
    found: dict[str, tuple[Graph, list[Any]]] = {}

    def add(name: str, fn: Callable[..., Any], *args: Any) -> None:
        found[name] = lg.trace(fn, *args), list(args)

    def differentiated(name: str) -> None:
        graph, args = found[name]
        cotangents = [np.full(out.shape, 0.75, out.dtype.numpy) for out in graph.outputs]
        found[f"gradient of {name}"] = graph.backward(), [*args, *cotangents]

    add("chain", _chain, array(5, 4), array(5, 4), array(4))
    add("counts", _counts, array(5, 4) > 0)
    add("numbers", _numbers, array(3, dtype=np.float16), 0.3, 2)
    add("constants", _constants, array(3))
    add("captures", _captures, array(2, 4))
    add("moves", _moves, array(4, 3))
    add("network", _network, array(6, 4), array(4, 8), array(8, 3))
    add("half", _half, array(4, 4), array(4, 4))
    add("choice", _choice, array(2, 3), array(2, 3).T.reshape(2, 3))
    add("empty", _chain, array(3, 0, 4).reshape(0, 4), array(0, 4), array(4))
    add("lookup", _lookup, array(5, 4), array(6, 4), np.array([2, 0, 0, 3]))
    add("scalar", lambda x: x, np.float64(2.0))
    arrays = {name: array(2) + k for k, name in enumerate(HOSTILE)}
    graph = lg.trace(_named, **arrays)
    found["hostile"] = graph, [arrays[name] for name in graph.input_names]
    for name in ("chain", "moves", "network", "half", "choice", "lookup"):
        differentiated(name)
    return found


def printing() -> Graph:
    """A graph with an effect."""
    return lg.trace(_prints, array(2))


GRAPHS = graphs()
NAMES = list(GRAPHS)
