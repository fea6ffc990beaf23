"""What is measured: every workload written once, over a namespace ``xp`` of array functions that each peer provides.

``fn(xp)`` is the function to be compiled, ``make(rng, *sizes)`` its arguments; ``size`` is what the table shows and
``small`` what the tests run. Gradients are asked of ``xp.value_and_grad``. Nothing but NumPy is imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

__all__ = ["WORKLOADS", "Workload", "leaves"]

Maker = Callable[..., tuple[Any, ...]]


class Workload(NamedTuple):
    """One row of the table.

    ``numpy_in_and_out``: peers with arrays of their own convert from and to NumPy's in the call.
    ``flops``: of the matrix products, by the sizes. ``memory``: bound by the bytes of its arguments and results.
    ``tolerance``: the greatest difference allowed, relative to the greatest number of the result (or to a gradient's
    length). ``peers``: those that can express it, where not all can.
    """

    fn: Callable[[Any], Callable[..., Any]]
    make: Maker
    size: tuple[Any, ...]
    small: tuple[Any, ...]
    gradient: bool = False
    numpy_in_and_out: bool = False
    tolerance: float = 1e-5
    memory: bool = False
    flops: Callable[..., float] | None = None


def leaves(value: Any) -> list[Any]:
    return [leaf for v in value for leaf in leaves(v)] if isinstance(value, list | tuple) else [value]


# -- arguments


def normal(count: int = 1) -> Maker:
    """``count`` float32 arrays of one shape."""
    return lambda rng, *shape: tuple(rng.standard_normal(shape, np.float32) for _ in range(count))


def positive(count: int = 1) -> Maker:
    return lambda rng, *shape: tuple(rng.random(shape, np.float32) + np.float32(0.5) for _ in range(count))


def whole(dtype: str) -> Maker:
    """Integers from 0 to 99, or booleans."""
    return lambda rng, *shape: (rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype),)


def halves(rng: np.random.Generator, *shape: int) -> tuple[Any, ...]:
    """float16 whose sum does not overflow."""
    return ((rng.random(shape, np.float32) / 256).astype(np.float16),)


def doubles(rng: np.random.Generator, *shape: int) -> tuple[Any, ...]:
    return (rng.standard_normal(shape),)


def weight(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal numbers that keep the variance of what they multiply: the last axis is the output's."""
    return rng.standard_normal(shape, np.float32) / np.float32(prod(shape[:-1]) ** 0.5)


# -- small programs, and elementwise ones


def multiply_add_sum(xp: Any) -> Callable[..., Any]:
    return lambda x, y: xp.sum(x * y + 1.0)


def chain(length: int) -> Callable[[Any], Callable[..., Any]]:
    def over(xp: Any) -> Callable[..., Any]:
        def fn(x: Any) -> Any:
            for _ in range(length // 2):
                x = x * 0.99 + 0.01
            return x

        return fn

    return over


def cheap(xp: Any) -> Callable[..., Any]:
    """Twelve operations that cost next to nothing beside the memory that they touch."""

    def fn(x: Any, y: Any) -> Any:
        a = x * y + 1.5
        b = a - x * 0.5
        c = xp.maximum(b, y) * 0.25
        return (c + a * b - y) * (x + 2.0)

    return fn


def transcendental(xp: Any) -> Callable[..., Any]:
    return lambda x: xp.tanh(xp.exp(-x * x)) * xp.sigmoid(x) + xp.log1p(xp.abs(x))


def gelu_erf(xp: Any) -> Callable[..., Any]:
    return lambda x: 0.5 * x * (1.0 + xp.erf(x * 0.7071067811865476))


def gelu_tanh(xp: Any) -> Callable[..., Any]:
    return lambda x: 0.5 * x * (1.0 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def black_scholes(xp: Any) -> Callable[..., Any]:
    """Prices of call and put at rate 0.03 and volatility 0.2."""

    def fn(spot: Any, strike: Any, years: Any) -> Any:
        spread = 0.2 * xp.sqrt(years)
        d1 = (xp.log(spot / strike) + (0.03 + 0.02) * years) / spread
        d2 = d1 - spread
        below1, below2 = (0.5 * (1.0 + xp.erf(d * 0.7071067811865476)) for d in (d1, d2))
        later = strike * xp.exp(-0.03 * years)
        call = spot * below1 - later * below2
        return call, call + later - spot

    return fn


def slope_of_sum(fn: Callable[[Any], Callable[..., Any]]) -> Callable[[Any], Callable[..., Any]]:
    """The sum of ``fn(x)`` and its gradient."""
    return lambda xp: xp.value_and_grad(lambda x: xp.sum(fn(xp)(x)))


def slope_of_product(fn: Callable[[Any], Callable[..., Any]], count: int) -> Callable[[Any], Callable[..., Any]]:
    """The sum of ``fn(*args) * g``, ``g`` the last argument, and its gradient by the ``count`` others."""

    def over(xp: Any) -> Callable[..., Any]:
        inner = fn(xp)
        return xp.value_and_grad(lambda *args: xp.sum(inner(*args[:-1]) * args[-1]), tuple(range(count)))

    return over


# -- reductions, rows, scans


def total(axis: Any = None) -> Callable[[Any], Callable[..., Any]]:
    return lambda xp: lambda x: xp.sum(x, axis=axis)


def total_of_half(xp: Any) -> Callable[..., Any]:
    return lambda x: xp.sum(x[:, ::2])


def total_of_transpose(xp: Any) -> Callable[..., Any]:
    return lambda x: xp.sum(x.T)


def softmax(axis: int = -1) -> Callable[[Any], Callable[..., Any]]:
    def over(xp: Any) -> Callable[..., Any]:
        def fn(x: Any) -> Any:
            e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
            return e / xp.sum(e, axis=axis, keepdims=True)

        return fn

    return over


def logsumexp(axis: int) -> Callable[[Any], Callable[..., Any]]:
    def over(xp: Any) -> Callable[..., Any]:
        def fn(x: Any) -> Any:
            most = xp.max(x, axis=axis, keepdims=True)
            return xp.log(xp.sum(xp.exp(x - most), axis=axis, keepdims=True)) + most

        return fn

    return over


def layer_norm(xp: Any) -> Callable[..., Any]:
    def fn(x: Any, scale: Any, shift: Any) -> Any:
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * scale + shift

    return fn


def rms_norm(xp: Any) -> Callable[..., Any]:
    return lambda x, scale: x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * scale


def rows(vectors: int, like: int = 0) -> Maker:
    """A matrix, ``vectors`` rows to scale and shift it, and ``like`` further matrices."""

    def make(rng: np.random.Generator, n: int, width: int) -> tuple[Any, ...]:
        matrices = [rng.standard_normal((n, width), np.float32) for _ in range(1 + like)]
        return matrices[0], *(rng.standard_normal(width, np.float32) for _ in range(vectors)), *matrices[1:]

    return make


# -- networks


def perceptron(rng: np.random.Generator, batch: int, *widths: int) -> tuple[Any, ...]:
    params = [p for a, b in pairwise(widths) for p in (weight(rng, a, b), np.zeros(b, np.float32))]
    wanted = np.eye(widths[-1], dtype=np.float32)[rng.integers(0, widths[-1], batch)]
    return params, rng.standard_normal((batch, widths[0]), np.float32), wanted


def perceptron_flops(batch: int, *widths: int) -> float:
    products = [2.0 * batch * a * b for a, b in pairwise(widths)]
    return 3 * sum(products) - products[0]


def forward(xp: Any) -> Callable[..., Any]:
    def fn(params: Any, x: Any, wanted: Any) -> Any:
        for w, b in zip(params[:-2:2], params[1:-2:2], strict=True):
            x = xp.maximum(x @ w + b, 0.0)
        return x @ params[-2] + params[-1]

    return fn


def cross_entropy(xp: Any, logits: Any, wanted: Any) -> Any:
    return xp.mean(xp.logsumexp(logits, -1) - xp.sum(logits * wanted, axis=-1))


def descent(xp: Any, loss: Callable[..., Any]) -> Callable[..., Any]:
    """A step of gradient descent: the loss, and new parameters."""
    slope = xp.value_and_grad(loss)

    def step(params: Any, *args: Any) -> Any:
        value, gradient = slope(params, *args)
        return value, [p - 0.1 * g for p, g in zip(params, gradient, strict=True)]

    return step


def mlp(xp: Any) -> Callable[..., Any]:
    run = forward(xp)
    return descent(xp, lambda params, x, wanted: cross_entropy(xp, run(params, x, wanted), wanted))


def mlp_gradient(xp: Any) -> Callable[..., Any]:
    run = forward(xp)
    return xp.value_and_grad(lambda params, x, wanted: cross_entropy(xp, run(params, x, wanted), wanted))


def attention(xp: Any) -> Callable[..., Any]:
    """Causal attention in primitives, (batch, heads, time, width)."""
    normalized = softmax()(xp)

    def fn(q: Any, k: Any, v: Any) -> Any:
        time = xp.arange(q.shape[-2])
        scores = (q @ xp.swapaxes(k, -1, -2)) * q.shape[-1] ** -0.5
        return normalized(xp.where(time[:, None] >= time[None, :], scores, -inf)) @ v

    return fn


def attention_flops(batch: int, heads: int, time: int, width: int) -> float:
    return 4.0 * batch * heads * time * time * width


def block_args(rng: np.random.Generator, batch: int, time: int, width: int, heads: int) -> tuple[Any, ...]:
    ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
    params = [ones, zeros, weight(rng, width, 3 * width), weight(rng, width, width)]
    params += [ones.copy(), zeros.copy(), weight(rng, width, 4 * width), np.zeros(4 * width, np.float32)]
    params += [weight(rng, 4 * width, width), zeros.copy()]
    x, wanted = (rng.standard_normal((batch, time, width), np.float32) for _ in range(2))
    return params, x, wanted


def block_flops(batch: int, time: int, width: int, heads: int) -> float:
    dense = 2.0 * batch * time * 12 * width * width
    return 3 * dense + 3.5 * attention_flops(batch, 1, time, width)


def block(heads: int) -> Callable[[Any], Callable[..., Any]]:
    """A training step of a transformer's block: attention and a perceptron, each after a layer norm, with residuals."""

    def over(xp: Any) -> Callable[..., Any]:
        norm, attend, gelu = layer_norm(xp), xp.attention, gelu_tanh(xp)

        def loss(params: Any, x: Any, wanted: Any) -> Any:
            scale1, shift1, qkv, out, scale2, shift2, up, up_shift, down, down_shift = params
            batch, time, width = x.shape
            mixed = (norm(x, scale1, shift1) @ qkv).reshape((batch, time, 3, heads, width // heads))
            q, k, v = (xp.swapaxes(mixed[:, :, i], 1, 2) for i in range(3))
            x = x + xp.swapaxes(attend(q, k, v), 1, 2).reshape((batch, time, width)) @ out
            x = x + gelu(norm(x, scale2, shift2) @ up + up_shift) @ down + down_shift
            error = x - wanted
            return xp.mean(error * error)

        return descent(xp, loss)

    return over


def convnet_args(rng: np.random.Generator, batch: int, side: int, *channels: int) -> tuple[Any, ...]:
    """``channels``: of the picture, of two convolutions, and the classes."""
    picture, first, second, classes = channels
    flat = (side // 4) ** 2 * second
    params = [rng.standard_normal((out, 3, 3, into), np.float32) / np.float32((9 * into) ** 0.5)
              for into, out in ((picture, first), (first, second))]  # fmt: skip
    params.append(weight(rng, flat, classes))
    wanted = np.eye(classes, dtype=np.float32)[rng.integers(0, classes, batch)]
    return params, rng.standard_normal((batch, side, side, picture), np.float32), wanted


def convnet_flops(batch: int, side: int, *channels: int) -> float:
    picture, first, second, classes = channels
    one = 2.0 * batch * side**2 * 9 * picture * first
    two = 2.0 * batch * (side // 2) ** 2 * 9 * first * second
    return 2 * one + 3 * (two + 2.0 * batch * (side // 4) ** 2 * second * classes)


def convnet(xp: Any) -> Callable[..., Any]:
    """A training step: two 3×3 convolutions with pooling, and a dense layer."""

    def loss(params: Any, x: Any, wanted: Any) -> Any:
        for w in params[:2]:
            x = xp.max_pool2d(xp.maximum(xp.conv2d(x, w), 0.0))
        return cross_entropy(xp, x.reshape((x.shape[0], -1)) @ params[2], wanted)

    return descent(xp, loss)


# -- broadcasting, indexing, simulation


def pairwise_distances(xp: Any) -> Callable[..., Any]:
    def fn(x: Any, y: Any) -> Any:
        difference = x[:, None, :] - y[None, :, :]
        return xp.sqrt(xp.sum(difference * difference, axis=-1) + 1e-6)

    return fn


def two_sets(rng: np.random.Generator, n: int, m: int, width: int) -> tuple[Any, ...]:
    return rng.standard_normal((n, width), np.float32), rng.standard_normal((m, width), np.float32)


def pairwise_gradient(xp: Any) -> Callable[..., Any]:
    distances = pairwise_distances(xp)
    return xp.value_and_grad(lambda x, y: xp.sum(distances(x, y)), (0, 1))


def table_and_ids(rng: np.random.Generator, words: int, width: int, count: int) -> tuple[Any, ...]:
    table, ids = rng.standard_normal((words, width), np.float32), rng.integers(0, words, count).astype(np.int32)
    return table, ids, rng.standard_normal((count, width), np.float32)


def embedding_gradient(xp: Any) -> Callable[..., Any]:
    return xp.value_and_grad(lambda table, ids, g: xp.sum(xp.take(table, ids) * g))


def scatter_add(xp: Any) -> Callable[..., Any]:
    return lambda table, ids, values: xp.scatter_add(table, ids, values)


def gather_affine(xp: Any) -> Callable[..., Any]:
    return lambda table, ids, g: xp.take(table, ids) * 0.5 + g


def stencil(xp: Any) -> Callable[..., Any]:
    """A step of the heat equation on the inner points, as written in NumPy: slices and one sum."""

    def fn(u: Any) -> Any:
        inner = u[1:-1, 1:-1]
        return inner + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * inner)

    return fn


def wave(xp: Any) -> Callable[..., Any]:
    """Fourth-order differences along both axes, by rolling."""

    def second(u: Any, axis: int) -> Any:
        near, far = (xp.roll(u, s, axis) + xp.roll(u, -s, axis) for s in (1, 2))
        return (16.0 * near - far - 30.0 * u) * (1 / 12)

    return lambda u, before: 2.0 * u - before + 0.05 * (second(u, 0) + second(u, 1))


def nbody(xp: Any) -> Callable[..., Any]:
    """Accelerations of bodies under gravity, softened."""

    def fn(place: Any, mass: Any) -> Any:
        apart = place[None, :, :] - place[:, None, :]
        square = xp.sum(apart * apart, axis=-1) + 1e-2
        pull = mass[None, :] / (square * xp.sqrt(square))
        return xp.sum(pull[:, :, None] * apart, axis=1)

    return fn


def bodies(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    return rng.standard_normal((n, 3), np.float32), rng.random(n, np.float32)


def kmeans(xp: Any) -> Callable[..., Any]:
    """A step of k-means: the nearest centre of every point, and the means of the points of each centre."""

    def fn(points: Any, centres: Any) -> Any:
        distance = xp.sum(centres * centres, axis=-1)[None, :] - 2.0 * (points @ centres.T)
        nearest = xp.argmin(distance, axis=-1)
        count = xp.scatter_add(xp.zeros_like(centres[:, 0]), nearest, xp.ones_like(points[:, 0]))
        return xp.scatter_add(xp.zeros_like(centres), nearest, points) / xp.maximum(count, 1.0)[:, None]

    return fn


def contraction(xp: Any) -> Callable[..., Any]:
    return lambda x, y, z: xp.einsum("bik,bkj,jl->bil", x, y, z)


def contraction_args(rng: np.random.Generator, batch: int, n: int) -> tuple[Any, ...]:
    return (*(weight(rng, batch, n, n) * np.float32(batch**0.5) for _ in range(2)), weight(rng, n, n))


WIDE, SQUARE, FEW = (4096, 2048), (4096, 1024), (12, 9)
MLP, MLP_SMALL = (256, 784, 512, 512, 10), (32, 64, 64, 64, 10)
QKV, QKV_SMALL = (1, 8, 512, 64), (1, 2, 8, 4)
SUM: dict[str, Any] = {"tolerance": 1e-3, "memory": True}  # of numbers that mostly cancel
ROW: dict[str, Any] = {"memory": True, "tolerance": 2e-5}
GRADIENT: dict[str, Any] = {"gradient": True, "tolerance": 1e-3}

WORKLOADS: dict[str, Workload] = {
    "dispatch": Workload(multiply_add_sum, normal(2), (8,), (8,)),
    "dispatch_np": Workload(multiply_add_sum, normal(2), (8,), (8,), numpy_in_and_out=True),
    "chain100": Workload(chain(100), normal(), (8,), (8,)),
    "chain100_np": Workload(chain(100), normal(), (8,), (8,), numpy_in_and_out=True),
    "mlp_small": Workload(mlp, perceptron, MLP_SMALL, (4, 5, 6, 3), **GRADIENT),
    "ew12": Workload(cheap, normal(2), (10_000_000,), (99,), memory=True),
    "trans": Workload(transcendental, normal(), (10_000_000,), (99,), memory=True),
    "trans_grad": Workload(slope_of_sum(transcendental), normal(), (10_000_000,), (99,), memory=True,
        gradient=True, tolerance=4e-3),
    "gelu_erf": Workload(gelu_erf, normal(), (2048, 2048), FEW, memory=True),
    "gelu_tanh": Workload(gelu_tanh, normal(), (2048, 2048), FEW, memory=True),
    "gelu_tanh_grad": Workload(slope_of_sum(gelu_tanh), normal(), (2048, 2048), FEW, memory=True, **GRADIENT),
    "sum_all": Workload(total(), normal(), WIDE, FEW, **SUM),
    "sum_ax0": Workload(total(0), normal(), WIDE, FEW, **SUM),
    "sum_ax-1": Workload(total(-1), normal(), WIDE, FEW, **SUM),
    "sum_mid": Workload(total(1), normal(), (64, 512, 256), (3, 5, 7), **SUM),
    "sum_strided": Workload(total_of_half, normal(), WIDE, FEW, **SUM),
    "sum_transposed": Workload(total_of_transpose, normal(), WIDE, FEW, **SUM),
    "sum_int8": Workload(total(), whole("int8"), WIDE, FEW, **SUM),
    "sum_bool": Workload(total(), whole("bool"), WIDE, FEW, **SUM),
    "sum_int32": Workload(total(), whole("int32"), WIDE, FEW, **SUM),
    "sum_fp16": Workload(total(), halves, WIDE, FEW, tolerance=2e-3, memory=True),
    "softmax": Workload(softmax(), normal(), SQUARE, FEW, **ROW),
    "softmax_native": Workload(lambda xp: lambda x: xp.softmax(x), normal(), SQUARE, FEW, **ROW),
    "softmax_grad": Workload(slope_of_product(softmax(), 1), normal(2), SQUARE, FEW, memory=True, **GRADIENT),
    "layer_norm": Workload(layer_norm, rows(2), SQUARE, FEW, **ROW),
    "layer_norm_grad": Workload(slope_of_product(layer_norm, 3), rows(2, 1), SQUARE, FEW, memory=True, **GRADIENT),
    "mlp_fwd": Workload(forward, perceptron, MLP, (4, 5, 6, 3), flops=lambda *n: sum(
        2.0 * n[0] * a * b for a, b in pairwise(n[1:]))),
    "mlp": Workload(mlp, perceptron, MLP, (4, 5, 6, 3), flops=perceptron_flops, **GRADIENT),
    "attention": Workload(attention, normal(3), QKV, QKV_SMALL, flops=attention_flops),
    "attention_native": Workload(lambda xp: xp.attention, normal(3), QKV, QKV_SMALL, flops=attention_flops),
    "attention_grad": Workload(slope_of_product(attention, 3), normal(4), QKV, QKV_SMALL,
        flops=lambda *n: 3.5 * attention_flops(*n), **GRADIENT),
    "block": Workload(block(4), block_args, (4, 128, 256, 4), (2, 6, 8, 4), flops=block_flops, **GRADIENT),
    "convnet": Workload(convnet, convnet_args, (32, 32, 3, 32, 64, 10), (2, 8, 2, 3, 4, 5), flops=convnet_flops,
        **GRADIENT),
    "black_scholes": Workload(black_scholes, positive(3), (4_000_000,), (99,), memory=True),
    "pairwise": Workload(pairwise_distances, two_sets, (1024, 1024, 64), (5, 4, 3)),
    "pairwise_grad": Workload(pairwise_gradient, two_sets, (1024, 1024, 64), (5, 4, 3), **GRADIENT),
    "cumsum": Workload(lambda xp: lambda x: xp.cumsum(x, -1), normal(), SQUARE, FEW, **SUM),
    "argmax": Workload(lambda xp: lambda x: xp.argmax(x, axis=-1), normal(), SQUARE, FEW, memory=True),
    "embed_grad": Workload(embedding_gradient, table_and_ids, (10_000, 128, 8192), (9, 4, 12), **GRADIENT),
    # Further shapes, axes, dtypes and formulas of the same kinds.
    "ew12_1m": Workload(cheap, normal(2), (1_000_000,), (99,)),
    "sum_f64": Workload(total(), doubles, WIDE, FEW, memory=True),
    "sum_ax0_tall": Workload(total(0), normal(), (262_144, 32), FEW, **SUM),
    "sum_ends": Workload(total((0, 2)), normal(), (64, 512, 256), (3, 5, 7), **SUM),
    "softmax_ax0": Workload(softmax(0), normal(), SQUARE, FEW, **ROW),
    "softmax_narrow": Workload(softmax(), normal(), (131_072, 32), FEW, **ROW),
    "logsumexp_ax0": Workload(logsumexp(0), normal(), SQUARE, FEW, **ROW),
    "rms_norm": Workload(rms_norm, rows(1), SQUARE, FEW, **ROW),
    "rms_norm_grad": Workload(slope_of_product(rms_norm, 2), rows(1, 1), SQUARE, FEW, memory=True, **GRADIENT),
    "attention_long": Workload(lambda xp: xp.attention, normal(3), (1, 4, 2048, 64), QKV_SMALL, flops=attention_flops),
    "mlp12": Workload(mlp_gradient, perceptron, (64, *[128] * 13), (4, 5, 6, 3), flops=perceptron_flops, **GRADIENT),
    "cumsum_ax0": Workload(lambda xp: lambda x: xp.cumsum(x, 0), normal(), SQUARE, FEW, **SUM),
    "argmax_ax0": Workload(lambda xp: lambda x: xp.argmax(x, axis=0), normal(), SQUARE, FEW, memory=True),
    "stencil": Workload(stencil, normal(), (2048, 2048), FEW, memory=True),
    "wave": Workload(wave, normal(2), (2048, 2048), FEW, memory=True),
    "nbody": Workload(nbody, bodies, (2048,), (7,), tolerance=1e-4),
    "kmeans": Workload(kmeans, two_sets, (100_000, 64, 16), (20, 3, 4), tolerance=1e-4),
    "einsum": Workload(contraction, contraction_args, (32, 192), (3, 5), tolerance=1e-4,
        flops=lambda batch, n: 4.0 * batch * n**3),
    "scatter_add": Workload(scatter_add, table_and_ids, (10_000, 128, 8192), (9, 4, 12)),
    "gather": Workload(gather_affine, table_and_ids, (10_000, 128, 65_536), (9, 4, 12), memory=True),
}  # fmt: skip
