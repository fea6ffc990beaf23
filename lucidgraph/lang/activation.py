"""Activations. Real operands only; integers become float32 but in relu and relu6."""

from __future__ import annotations

from typing import Any

from ..errors import DTypeError, ShapeError
from ..ir.op import get
from .arithmetic import add, multiply, subtract, where
from .axes import one_axis
from .compare import greater, greater_equal, less, logical_or
from .math import square, tanh
from .tensor import Tensor, apply, asarray

__all__ = [
    "celu", "elu", "gelu", "gelu_approx", "gelu_fast_approx", "glu", "hard_shrink", "hard_sigmoid", "hard_swish",
    "hard_tanh", "hardswish", "leaky_relu", "log_sigmoid", "mish", "prelu", "relu", "relu2", "relu6", "selu", "sigmoid",
    "silu", "softplus", "softshrink", "softsign", "step", "swish", "tanh",
]  # fmt: skip


def sigmoid(x: Any) -> Tensor:
    """1/(1 + e^(-x)), without overflow.

    >>> sigmoid(asarray([0.0, -1000.0])).tolist()
    [0.5, 0.0]
    """
    return apply(get("sigmoid"), x)


def relu(x: Any) -> Tensor:
    """max(x, 0), of x's dtype. Its gradient at 0 is 0.

    >>> relu(asarray([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return apply(get("relu"), x)


def relu2(x: Any) -> Tensor:
    """max(x, 0)².

    >>> relu2(asarray([-1.0, 3.0])).tolist()
    [0.0, 9.0]
    """
    return square(relu(x))


def relu6(x: Any) -> Tensor:
    """min(max(x, 0), 6), of x's dtype. Its gradient at 0 and at 6 is 0.

    >>> relu6(asarray([-1.0, 2.0, 9.0])).tolist()
    [0.0, 2.0, 6.0]
    """
    return apply(get("relu6"), x)


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else ``negative_slope`` x.

    >>> leaky_relu(asarray([-2.0, 3.0]), 0.5).tolist()
    [-1.0, 3.0]
    """
    return apply(get("leaky_relu"), x, negative_slope=float(negative_slope))


def prelu(x: Any, alpha: Any) -> Tensor:
    """x where x > 0, else ``alpha`` x; ``alpha`` is an array that broadcasts with x and has a gradient.

    >>> prelu(asarray([-2.0, 3.0]), asarray([0.5, 0.5])).tolist()
    [-1.0, 3.0]
    """
    x = asarray(x)
    return where(greater(x, 0), x, multiply(x, alpha))


def hard_tanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """min(max(x, ``min_val``), ``max_val``). Its gradient at both bounds is 0.

    >>> hard_tanh(asarray([-2.0, 0.5])).tolist()
    [-1.0, 0.5]
    """
    return apply(get("hard_tanh"), x, min_val=float(min_val), max_val=float(max_val))


def hard_sigmoid(x: Any) -> Tensor:
    """min(max(x + 3, 0), 6) / 6.

    >>> hard_sigmoid(asarray([-4.0, 0.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return apply(get("hard_sigmoid"), x)


def hard_swish(x: Any) -> Tensor:
    """x min(max(x + 3, 0), 6) / 6.

    >>> hard_swish(asarray([-4.0, 0.0, 4.0])).tolist()
    [-0.0, 0.0, 4.0]
    """
    return apply(get("hard_swish"), x)


def hard_shrink(x: Any, lambd: float = 0.5) -> Tensor:
    """x where |x| > ``lambd``, else 0.

    >>> hard_shrink(asarray([-1.0, 0.25])).tolist()
    [-1.0, 0.0]
    """
    x = asarray(x)
    return where(logical_or(greater(x, float(lambd)), less(x, -float(lambd))), x, 0)


def softshrink(x: Any, lambd: float = 0.5) -> Tensor:
    """x - ``lambd`` sign(x) where |x| > ``lambd``, else 0.

    >>> softshrink(asarray([-1.0, 0.25])).tolist()
    [-0.5, 0.0]
    """
    x = asarray(x)
    return add(where(greater(x, float(lambd)), subtract(x, float(lambd)), 0),
               where(less(x, -float(lambd)), add(x, float(lambd)), 0))  # fmt: skip


def softsign(x: Any) -> Tensor:
    """x / (1 + |x|).

    >>> softsign(asarray([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """
    return apply(get("softsign"), x)


def step(x: Any, threshold: float = 0.0) -> Tensor:
    """1 where x ≥ ``threshold``, else 0, as int64. Its gradient is 0.

    >>> step(asarray([-1.0, 0.0])).tolist()
    [0, 1]
    """
    return where(greater_equal(x, threshold), 1, 0)


def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else ``alpha`` (e^x - 1).

    >>> elu(asarray([0.0, 3.0])).tolist()
    [0.0, 3.0]
    """
    return apply(get("elu"), x, alpha=float(alpha))


def selu(x: Any) -> Tensor:
    """1.0507… elu(x, 1.6732…), which keeps mean 0 and variance 1 from layer to layer.

    >>> selu(asarray([0.0])).tolist()
    [0.0]
    """
    return apply(get("selu"), x)


def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else ``alpha`` (e^(x/``alpha``) - 1).

    >>> celu(asarray([0.0, 3.0])).tolist()
    [0.0, 3.0]
    """
    return apply(get("celu"), x, alpha=float(alpha))


def softplus(x: Any) -> Tensor:
    """ln(1 + e^x), without overflow.

    >>> softplus(asarray([1000.0, -1000.0])).tolist()
    [1000.0, 0.0]
    """
    return apply(get("softplus"), x)


def log_sigmoid(x: Any) -> Tensor:
    """ln(1/(1 + e^(-x))), without overflow.

    >>> log_sigmoid(asarray([1000.0, -1000.0])).tolist()
    [0.0, -1000.0]
    """
    return apply(get("log_sigmoid"), x)


def silu(x: Any) -> Tensor:
    """x/(1 + e^(-x)).

    >>> silu(asarray([0.0, 1000.0])).tolist()
    [0.0, 1000.0]
    """
    return apply(get("silu"), x)


def mish(x: Any) -> Tensor:
    """x tanh(softplus(x)).

    >>> mish(asarray([0.0, 1000.0])).tolist()
    [0.0, 1000.0]
    """
    return apply(get("mish"), x)


def gelu(x: Any, approximate: str = "none") -> Tensor:
    """x Φ(x) with Φ the normal distribution: exactly, or with ``approximate="tanh"`` through
    tanh(√(2/π) (x + 0.044715 x³)).

    >>> gelu(asarray([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """
    if approximate not in ("none", "tanh"):
        raise DTypeError(f"gelu(approximate={approximate!r}) is not known", hint='"none" or "tanh"')
    return apply(get("gelu"), x, approximate=approximate)


def gelu_approx(x: Any) -> Tensor:
    """``gelu(x, approximate="tanh")``.

    >>> gelu_approx(asarray([0.0])).tolist()
    [0.0]
    """
    return gelu(x, approximate="tanh")


def gelu_fast_approx(x: Any) -> Tensor:
    """x σ(1.702 x).

    >>> gelu_fast_approx(asarray([0.0])).tolist()
    [0.0]
    """
    x = asarray(x)
    return multiply(x, sigmoid(multiply(x, 1.702)))


def glu(x: Any, axis: int = -1) -> Tensor:
    """a σ(b) for the halves a, b of x along ``axis``. Raises :class:`ShapeError` where the axis is odd.

    >>> glu(asarray([2.0, 0.0])).tolist()
    [1.0]
    """
    x = asarray(x)
    k = one_axis(axis, x.ndim, "glu")
    if x.shape[k] % 2:
        raise ShapeError(f"glu halves axis {k}, which has {x.shape[k]} elements")
    return multiply(_half(x, k, 0), sigmoid(_half(x, k, 1)))


def _half(x: Tensor, axis: int, which: int) -> Tensor:
    size = x.shape[axis] // 2
    start = tuple(which * size if k == axis else 0 for k in range(x.ndim))
    stop = tuple((which + 1) * size if k == axis else n for k, n in enumerate(x.shape))
    return apply(get("slice"), x, start=start, stop=stop, step=(1,) * x.ndim)


hardswish = hard_swish
swish = silu
