"""Programs as users write them, through every chapter: what passes are tested on.

Each has a NumPy function of the same meaning, to be given the arguments in float64 where they are floats.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf as erf_of
from typing import Any, NamedTuple

import numpy as np

import lucidgraph as lg
from lucidgraph import nn
from lucidgraph.ir import Graph
from lucidgraph.lang import activation, arithmetic, bitwise, compare, creation, index, math, shape
from lucidgraph.lang.losses import cross_entropy


class Program(NamedTuple):
    """A function, its arguments, and what it means in NumPy; ``scale`` widens the tolerance of float32."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    meaning: Callable[..., Any]
    scale: float = 1.0

    def recorded(self) -> Graph:
        return lg.trace(self.fn, *self.args, passes=())

    def expected(self) -> list[np.ndarray]:
        """The results in NumPy, floats in float64."""
        with np.errstate(all="ignore"):
            wide = [a.astype(np.float64) if a.dtype.kind not in "biuc" else a for a in map(np.asarray, self.args)]
            results = self.meaning(*wide)
        return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


_rng = np.random.default_rng(5)


def f32(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype(np.float32)


X, Y, ROW, COLUMN = f32(3, 4), f32(3, 4), f32(4), f32(3, 1)
POSITIVE = np.abs(X) + np.float32(0.5)
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-38, -1.5, 3e38], np.float32)
BOOLS = X > 0
INTS = _rng.integers(-9, 9, (3, 4)).astype(np.int32)
BYTES = _rng.integers(0, 255, (3, 4)).astype(np.uint8)
HALF = X.astype(np.float16)
COMPLEX = (f32(3) + 1j * f32(3)).astype(np.complex64)
SQUARE = f32(4, 4)
LABELS = np.array([1, 0, 3])


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _polynomial(x: Any, row: Any, column: Any) -> Any:
    return (x * row - column) / (1.0 + x * x) + 2 * x - 0.5


def _mixed(i: Any, b: Any, x: Any) -> Any:
    return i * b + x, i + 3, i / 2, b * 2


def _statistics(x: Any) -> Any:
    mean = lg.mean(x, axis=1, keepdims=True)
    spread = lg.var(x, axis=0), lg.std(x, axis=1, correction=1)
    return *spread, lg.max(x - mean), lg.argmax(x, axis=1), lg.prod(x, axis=0)


def _numpy_statistics(x: np.ndarray) -> Any:
    mean = x.mean(1, keepdims=True)
    return x.var(0), x.std(1, ddof=1), (x - mean).max(), x.argmax(1), x.prod(0)


def _edges(x: Any) -> Any:
    inside = compare.logical_and(compare.isfinite(x), compare.logical_not(compare.equal(x, 0)))
    return arithmetic.where(inside, 1 / x, x), arithmetic.maximum(x, 0.0), compare.isnan(x), x + 0.0, x * 1.0, abs(-x)


def _numpy_edges(x: np.ndarray) -> Any:
    return np.where(np.isfinite(x) & (x != 0), 1 / x, x), np.maximum(x, 0.0), np.isnan(x), x + 0.0, x, np.abs(x)


def _moved(x: Any) -> Any:
    parts = shape.split(x, 2, axis=1)
    back = shape.concat(parts[::-1], axis=1)
    turned = shape.permute_dims(shape.expand_dims(back, 0), (2, 0, 1))
    return shape.flip(shape.reshape(turned, (4, 3)), axis=0), shape.pad(x, ((1, 0), (0, 2))), shape.roll(x, 1, axis=1)


def _numpy_moved(x: np.ndarray) -> Any:
    back = np.concatenate([x[:, 2:], x[:, :2]], axis=1)
    turned = back[None].transpose(2, 0, 1)
    return np.flip(turned.reshape(4, 3), 0), np.pad(x, ((1, 0), (0, 2))), np.roll(x, 1, axis=1)


def _network(x: Any, w: Any, b: Any) -> Any:
    hidden = activation.gelu(lg.matmul(x, w) + b)
    return cross_entropy(nn.layer_norm(hidden), LABELS, reduction="mean")


def _numpy_network(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Any:
    z = x @ w + b
    erf = np.vectorize(erf_of)
    hidden = 0.5 * z * (1 + erf(z / np.sqrt(2.0)))
    normal = (hidden - hidden.mean(-1, keepdims=True)) / np.sqrt(hidden.var(-1, keepdims=True) + 1e-5)
    return -np.log(_softmax(normal))[np.arange(3), LABELS].mean()


def _slope(x: Any, row: Any) -> Any:
    return lg.value_and_grad(lambda v: lg.sum(math.tanh(v * row) * 2.0 + v / 4.0))(x)


def _numpy_slope(x: np.ndarray, row: np.ndarray) -> Any:
    t = np.tanh(x * row)
    return (t * 2 + x / 4).sum(), 2 * (1 - t * t) * row + 0.25


def _curvature(x: Any) -> Any:
    def slope(v: Any) -> Any:
        return lg.sum(lg.grad(lambda u: lg.sum(u * u * u))(v))

    return lg.grad(slope)(x)


def _autocast(x: Any, w: Any) -> Any:
    with lg.autocast(lg.bfloat16):
        y = lg.matmul(x, w)
        return lg.softmax(y), y


PROGRAMS: dict[str, Program] = {
    "polynomial": Program(_polynomial, (X, ROW, COLUMN), lambda x, r, c: (x * r - c) / (1 + x * x) + 2 * x - 0.5),
    "mixed dtypes": Program(_mixed, (INTS, BOOLS, X), lambda i, b, x: (i * b + x, i + 3, i / 2, b * 2)),
    "counts": Program(
        lambda b, u: (lg.sum(b, axis=1), lg.mean(b), lg.sum(u), lg.prod(b)),
        (BOOLS, BYTES),
        lambda b, u: (b.sum(1), b.mean(), u.sum(), b.all().astype(int)),
    ),
    "half precision": Program(lambda h: (lg.mean(h), h * 2 + 1), (HALF,), lambda h: (h.mean(), h * 2 + 1)),
    "statistics": Program(_statistics, (X,), _numpy_statistics),
    "edge values": Program(_edges, (EDGES,), _numpy_edges),
    "elementary": Program(
        lambda x: (math.exp(x) + math.log(x), math.sqrt(x) * math.sin(x), math.pow(x, 2), math.floor(x)),
        (POSITIVE,),
        lambda x: (np.exp(x) + np.log(x), np.sqrt(x) * np.sin(x), x**2, np.floor(x)),
    ),
    "bits": Program(
        lambda i: (bitwise.bitwise_and(i, 3), bitwise.bitwise_xor(i, i), bitwise.bitwise_invert(i)),
        (INTS,),
        lambda i: (i & 3, i ^ i, ~i),
    ),
    "complex": Program(
        lambda z: (abs(z), arithmetic.conj(z) * z, arithmetic.real(z)),
        (COMPLEX,),
        lambda z: (np.abs(z), np.conj(z) * z, z.real),
    ),
    "moved": Program(_moved, (X,), _numpy_moved),
    "indexed": Program(
        lambda x: (
            index.take(x, np.array([2, 0, 0]), axis=0),
            index.getitem(x, (slice(None, None, -1), slice(1, 3))),
            index.getitem(index.getitem(x, 1), slice(0, 4)),
        ),
        (X,),
        lambda x: (x[[2, 0, 0]], x[::-1, 1:3], x[1]),
    ),
    "created": Program(
        lambda x: creation.ones((3, 4)) * x + creation.arange(4), (X,), lambda x: x + np.arange(4), 2.0
    ),
    "network": Program(_network, (X, SQUARE, ROW), _numpy_network, 8.0),
    "gradient": Program(_slope, (X, ROW), _numpy_slope, 4.0),
    "second gradient": Program(_curvature, (X,), lambda x: 6 * x),
    "gradient of a network": Program(
        lambda x, w, b: lg.grad(lambda v: _network(v, w, b))(x),
        (X, SQUARE, ROW),
        lambda x, w, b: _central_difference(lambda v: _numpy_network(v, w, b), x),
        40.0,
    ),
    "autocast": Program(_autocast, (X, SQUARE), lambda x, w: (_softmax(x @ w), x @ w), 2e4),
    "constants": Program(lambda x: (x, x, 1.5, x * 0 + 3), (ROW,), lambda x: (x, x, np.full(4, 3.0))),
    "nothing": Program(lambda x: lg.sum(x * 2, axis=0), (np.zeros((0, 3), np.float32),), lambda x: np.zeros(3)),
}


def _central_difference(fn: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for k in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[k] = 1e-6
        out[k] = (fn(x + step) - fn(x - step)) / 2e-6
    return out
