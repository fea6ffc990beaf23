"""What neural networks are made of: softmax, normalisation, linear layers, embeddings, activations, losses.

Half precision is computed in float32 and rounded once; under autocast the result stays float32.
"""

from __future__ import annotations

from typing import Any

from ..dtypes import float32
from ..errors import DTypeError, ShapeError
from ..ir.op import get
from . import losses
from .activation import *  # noqa: F403
from .activation import __all__ as _activations
from .attention import scaled_dot_product_attention
from .axes import many_axes, one_axis, whole
from .creation import arange
from .index import take
from .losses import *  # noqa: F403
from .losses import __all__ as _losses
from .math import rsqrt
from .shape import astype, broadcast_to, expand_dims, reshape
from .tensor import Tensor, apply, asarray
from .window import *  # noqa: F403
from .window import __all__ as _windows

__all__ = [
    "batch_norm", "embedding", "group_norm", "instance_norm", "layer_norm", "linear", "log_softmax", "logsumexp",
    "losses", "one_hot", "rms_norm", "scaled_dot_product_attention", "softmax", *_activations, *_losses, *_windows,
]  # fmt: skip


def softmax(x: Any, axis: int = -1) -> Tensor:
    """exp(x) / Σ exp(x) along ``axis``, without overflow; NaN where all of it is -∞. Raises :class:`AxisError`.

    >>> softmax(asarray([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    x = asarray(x)
    return apply(get("softmax"), x, axis=one_axis(axis, x.ndim, "softmax"))


def log_softmax(x: Any, axis: int = -1) -> Tensor:
    """x - log Σ exp(x) along ``axis``. Raises :class:`AxisError`.

    >>> log_softmax(asarray([1000.0, 0.0])).tolist()
    [0.0, -1000.0]
    """
    x = asarray(x)
    return apply(get("log_softmax"), x, axis=one_axis(axis, x.ndim, "log_softmax"))


def logsumexp(x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
    """log Σ exp(x) over ``axis`` (None: all axes); -∞, with gradient 0, where all is -∞ or nothing.

    >>> logsumexp(asarray([1000.0, float("-inf")])).item()
    1000.0
    """
    x = asarray(x)
    return apply(get("logsumexp"), x, axis=many_axes(axis, x.ndim, "logsumexp"), keepdims=bool(keepdims))


def linear(x: Any, weight: Any, bias: Any = None) -> Tensor:
    """x weightᵀ + bias: x (…, inputs), weight (outputs, inputs), bias (outputs,) give (…, outputs).

    >>> linear(asarray([1.0, 2.0]), asarray([[3.0, 4.0]]), asarray([1.0])).tolist()
    [12.0]
    """
    return apply(get("linear"), *(asarray(v) for v in (x, weight, bias) if v is not None))


def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / √(var + eps) · weight + bias over the last axis; weight and bias have its shape.

    The variance is taken in two passes, so large offsets lose nothing. Raises :class:`ShapeError`.

    >>> layer_norm(asarray([1.0, 3.0]), eps=0.0).tolist()
    [-1.0, 1.0]
    """
    x = asarray(x)
    if weight is None and bias is not None:
        weight = broadcast_to(asarray(1.0, dtype=asarray(bias).dtype), x.shape[-1:])
    affine = [asarray(v) for v in (weight, bias) if v is not None]
    return apply(
        get("layer_norm"), x, *affine, eps=float(eps), has_weight=weight is not None, has_bias=bias is not None
    )  # fmt: skip


def rms_norm(x: Any, weight: Any = None, eps: float = 1e-5) -> Tensor:
    """x / √(mean x² + eps) · weight over the last axis; the weight has its shape. Raises :class:`ShapeError`.

    >>> rms_norm(asarray([2.0, 2.0]), eps=0.0).tolist()
    [1.0, 1.0]
    """
    x = asarray(x)
    given = [] if weight is None else [asarray(weight)]
    return apply(get("rms_norm"), x, *given, eps=float(eps), has_weight=weight is not None)


def batch_norm(
    x: Any, weight: Any = None, bias: Any = None, mean: Any = None, var: Any = None, eps: float = 1e-5
) -> Tensor:
    """(x - mean) / √(var + eps) · weight + bias for every channel, the last axis of x (batch, …, channels).

    Without ``mean`` and ``var`` they are the batch's own, over all other axes (training); with them, those that were
    gathered before (inference). All four have shape (channels,).

    >>> batch_norm(asarray([[1.0], [3.0]]), eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    x = _channels_last("batch_norm", x, 2)
    if (mean is None) is not (var is None):
        raise ShapeError("batch_norm takes a mean and a variance, or neither", hint="mean=…, var=…")
    if mean is None:
        return _affine(_standardized(x, tuple(range(x.ndim - 1)), eps), weight, bias)
    mean, var = (_of_channels("batch_norm", x, v) for v in (mean, var))
    return _affine((x - mean) * rsqrt(var + float(eps)), weight, bias)


def instance_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """x (batch, …, channels) with mean 0 and variance 1 over the inner axes, for every instance and channel.

    >>> instance_norm(asarray([[[1.0], [3.0]]]), eps=0.0).tolist()
    [[[-1.0], [1.0]]]
    """
    x = _channels_last("instance_norm", x, 3)
    return _affine(_standardized(x, tuple(range(1, x.ndim - 1)), eps), weight, bias)


def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """x (batch, …, channels) with mean 0 and variance 1 over the inner axes and each of ``num_groups`` groups of
    neighbouring channels. Raises :class:`ShapeError` where the channels do not divide.

    >>> group_norm(asarray([[1.0, 3.0, 10.0, 30.0]]), 2, eps=0.0).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """
    x = _channels_last("group_norm", x, 2)
    channels = x.shape[-1]
    if num_groups < 1 or channels % num_groups:
        raise ShapeError(f"group_norm: {channels} channels do not divide into {num_groups} groups")
    grouped = reshape(x, (*x.shape[:-1], num_groups, channels // num_groups))
    y = _standardized(grouped, (*range(1, x.ndim - 1), x.ndim), eps)
    return _affine(reshape(y, x.shape), weight, bias)


def _standardized(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    return apply(get("standardize"), x, axis=axes, eps=float(eps))


def _affine(y: Tensor, weight: Any, bias: Any) -> Tensor:
    """y weight + bias along the last axis."""
    if weight is not None:
        y = y * _of_channels("a weight", y, weight)
    return y if bias is None else y + _of_channels("a bias", y, bias)


def _of_channels(name: str, x: Tensor, value: Any) -> Tensor:
    tensor = asarray(value)
    if tensor.shape != x.shape[-1:]:
        raise ShapeError(f"{name} for {x.shape[-1]} channels has shape {x.shape[-1:]}, not {tensor.shape}")
    return tensor


def _channels_last(name: str, x: Any, least: int) -> Tensor:
    tensor = asarray(x)
    if tensor.ndim < least:
        raise ShapeError(f"{name} takes (batch, …, channels) with {least} axes or more, not shape {tensor.shape}")
    return tensor


def embedding(x: Any, table: Any) -> Tensor:
    """The rows of ``table`` (count, …) at the integers ``x``: shape ``x.shape + table.shape[1:]``. Raises
    :class:`IndexOutOfRangeError`.

    >>> embedding(asarray([1, 0, 1]), asarray([[0.0, 1.0], [2.0, 3.0]])).tolist()
    [[2.0, 3.0], [0.0, 1.0], [2.0, 3.0]]
    """
    return take(table, x, axis=0)


def one_hot(x: Any, num_classes: int, dtype: Any = float32) -> Tensor:
    """1 at the integers ``x`` along a new last axis of ``num_classes``, 0 elsewhere; all 0 for a number outside.

    >>> one_hot(asarray([1, 0, 3]), 3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    x = asarray(x)
    if not x.dtype.is_integer:
        raise DTypeError(f"one_hot takes integers, not {x.dtype.name}")
    count = whole(num_classes, "one_hot")
    if count < 0:
        raise ShapeError(f"one_hot of {count} classes")
    return astype(expand_dims(x, -1) == arange(count), dtype)
