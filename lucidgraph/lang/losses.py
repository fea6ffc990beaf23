"""Losses, as ``mlx.nn.losses`` spells them.

Half precision is computed in float32 and rounded once, after the reduction; under autocast the loss stays float32.
Predictions and targets have equal shapes. ``reduction`` is "none", "mean" or "sum". Booleans and integers count as
float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import float32, result_type
from ..errors import DTypeError, ShapeError
from ..ir.op import get
from .arithmetic import abs, divide, maximum, multiply, negative, subtract, where
from .axes import one_axis
from .compare import less_equal
from .index import indices_for, take_along_axis
from .linalg import vector_norm
from .math import exp, log, logaddexp, pow, square
from .recording import current_policy
from .reduce import mean as _mean
from .reduce import sum as _sum
from .shape import expand_dims, squeeze
from .tensor import Tensor, apply, asarray

__all__ = [
    "binary_cross_entropy", "cosine_similarity_loss", "cross_entropy", "gaussian_nll_loss", "hinge_loss", "huber_loss",
    "kl_div_loss", "l1_loss", "log_cosh_loss", "margin_ranking_loss", "mse_loss", "nll_loss", "smooth_l1_loss",
    "triplet_loss",
]  # fmt: skip


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return _mean(loss)
    if reduction == "sum":
        return _sum(loss)
    if reduction == "none":
        return loss
    raise ShapeError(f"there is no reduction {reduction!r}", hint='"none", "mean" or "sum"')


def _weighted(loss: Tensor, weights: Any) -> Tensor:
    weights = asarray(weights)
    if weights.shape != loss.shape:
        raise ShapeError(f"weights of a loss of shape {loss.shape} have that shape, not {weights.shape}")
    return multiply(loss, weights)


def _loss(name: str, formula: Callable[..., Tensor], reduction: str, *given: Any, equal: bool = True) -> Tensor:
    """``formula`` of the operands in their common dtype, float32 at least, reduced and rounded once."""
    arrays = [asarray(x) for x in given]
    if equal and len({x.shape for x in arrays}) > 1:
        raise ShapeError(f"{name} needs equal shapes, not {' and '.join(str(x.shape) for x in arrays)}")
    common = result_type([x.dtype for x in arrays])
    if common.is_complex:
        raise DTypeError(f"{name} has no meaning for complex numbers")
    wide = float32 if common.is_half or not common.is_inexact else common
    loss = _reduced(formula(*(asarray(x, dtype=wide) for x in arrays)), reduction)
    return asarray(loss, dtype=common) if common.is_half and current_policy() is None else loss


def cross_entropy(
    logits: Any, targets: Any, weights: Any = None, axis: int = -1, label_smoothing: float = 0.0,
    reduction: str = "none",
) -> Tensor:  # fmt: skip
    """-Σ_c q_c log_softmax(logits)_c along ``axis``, q = (1 - s) p + s/C with s = ``label_smoothing``.

    ``targets`` are integer classes, of the logits' shape without ``axis``, or probabilities p of the logits' shape.
    ``weights`` of the loss's shape multiply it. Raises :class:`ShapeError`, and :class:`DTypeError` for classes that
    are no integers.

    >>> cross_entropy(asarray([[0.0, 1000.0]]), asarray([1])).tolist()
    [0.0]
    """
    logits = asarray(logits)
    if not 0 <= label_smoothing < 1:
        raise ShapeError(f"label_smoothing is from 0 to less than 1, not {label_smoothing}")
    k = one_axis(axis, logits.ndim, "cross_entropy")
    soft = asarray(targets).ndim == logits.ndim
    targets = asarray(targets) if soft else _classes("cross_entropy", logits, targets, k)
    loss = apply(get("cross_entropy"), logits, targets, axis=k, label_smoothing=float(label_smoothing))
    if weights is not None:
        loss = _weighted(loss, weights)
    return _reduced(loss, reduction)


def binary_cross_entropy(
    inputs: Any, targets: Any, weights: Any = None, with_logits: bool = True, reduction: str = "mean"
) -> Tensor:
    """-t log p - (1 - t) log(1 - p), where the inputs are logits of p, or p itself for ``with_logits=False``.

    Logarithms of probabilities are held at -100 at least. ``weights`` of the loss's shape multiply it.

    >>> binary_cross_entropy(asarray([1000.0, -1000.0]), asarray([1.0, 0.0])).item()
    0.0
    """
    inputs, targets = asarray(inputs), asarray(targets)
    if inputs.shape != targets.shape:
        raise ShapeError(f"binary_cross_entropy needs equal shapes, not {inputs.shape} and {targets.shape}")
    if with_logits:
        loss = apply(get("bce_with_logits"), inputs, targets)
    else:

        def formula(p: Tensor, t: Tensor) -> Tensor:
            yes, no = maximum(log(p), -100.0), maximum(log(1.0 - p), -100.0)
            return negative(t * yes + (1.0 - t) * no)

        loss = _loss("binary_cross_entropy", formula, "none", inputs, targets)
    if weights is not None:
        loss = _weighted(loss, weights)
    return _reduced(loss, reduction)


def nll_loss(inputs: Any, targets: Any, axis: int = -1, reduction: str = "none") -> Tensor:
    """Minus the log-probabilities ``inputs`` at the integer classes ``targets`` along ``axis``.

    >>> nll_loss(asarray([[-1.0, -2.0]]), asarray([1])).tolist()
    [2.0]
    """
    inputs = asarray(inputs)
    k = one_axis(axis, inputs.ndim, "nll_loss")
    classes = expand_dims(_classes("nll_loss", inputs, targets, k), k)
    return _loss("nll_loss", lambda x: negative(squeeze(take_along_axis(x, classes, k), k)), reduction, inputs)


def _classes(name: str, x: Tensor, targets: Any, axis: int) -> Tensor:
    """Targets as classes of ``x`` along ``axis``; those known while tracing are seen to be in range."""
    classes, shape = asarray(targets), (*x.shape[:axis], *x.shape[axis + 1 :])
    if classes.shape != shape:
        raise ShapeError(f"{name} of shape {x.shape} along axis {axis}: classes of shape {shape}, not {classes.shape}")
    return asarray(indices_for(targets, x.shape[axis], axis, name))


def mse_loss(predictions: Any, targets: Any, reduction: str = "mean") -> Tensor:
    """(predictions - targets)².

    >>> mse_loss(asarray([1.0, 3.0]), asarray([1.0, 1.0])).item()
    2.0
    """
    return _loss("mse_loss", lambda x, t: square(x - t), reduction, predictions, targets)


def l1_loss(predictions: Any, targets: Any, reduction: str = "mean") -> Tensor:
    """|predictions - targets|.

    >>> l1_loss(asarray([1.0, 3.0]), asarray([1.0, 1.0])).item()
    1.0
    """
    return _loss("l1_loss", lambda x, t: abs(x - t), reduction, predictions, targets)


def smooth_l1_loss(predictions: Any, targets: Any, beta: float = 1.0, reduction: str = "mean") -> Tensor:
    """d²/(2 beta) where |d| < beta, else |d| - beta/2, with d = predictions - targets.

    >>> smooth_l1_loss(asarray([1.0, 4.0]), asarray([0.0, 0.0]), reduction="none").tolist()
    [0.5, 3.5]
    """
    if beta < 0:
        raise ShapeError(f"beta is not negative, not {beta}")
    if beta == 0:
        return l1_loss(predictions, targets, reduction)
    return _loss("smooth_l1_loss", lambda x, t: _huber(x - t, beta) * (1.0 / beta), reduction, predictions, targets)


def huber_loss(inputs: Any, targets: Any, delta: float = 1.0, reduction: str = "none") -> Tensor:
    """d²/2 where |d| <= delta, else delta (|d| - delta/2), with d = inputs - targets.

    >>> huber_loss(asarray([1.0, 4.0]), asarray([0.0, 0.0]), delta=2.0).tolist()
    [0.5, 6.0]
    """
    return _loss("huber_loss", lambda x, t: _huber(x - t, delta), reduction, inputs, targets)


def _huber(d: Tensor, delta: float) -> Tensor:
    size = abs(d)
    return where(less_equal(size, delta), 0.5 * square(d), delta * (size - 0.5 * delta))


def kl_div_loss(inputs: Any, targets: Any, axis: int = -1, reduction: str = "none") -> Tensor:
    """Σ exp(targets) (targets - inputs) along ``axis``: the divergence of log-probabilities; 0 where a target is -∞.

    >>> kl_div_loss(asarray([[0.0, -1.0]]), asarray([[0.0, float("-inf")]])).tolist()
    [0.0]
    """

    def formula(x: Tensor, t: Tensor) -> Tensor:
        return _sum(apply(get("masked_multiply"), exp(t), t - x), axis=axis)

    return _loss("kl_div_loss", formula, reduction, inputs, targets)


def hinge_loss(inputs: Any, targets: Any, reduction: str = "none") -> Tensor:
    """max(0, 1 - inputs · targets), for targets of -1 and 1.

    >>> hinge_loss(asarray([0.5, 2.0]), asarray([1.0, 1.0])).tolist()
    [0.5, 0.0]
    """
    return _loss("hinge_loss", lambda x, t: maximum(1.0 - x * t, 0.0), reduction, inputs, targets)


def log_cosh_loss(inputs: Any, targets: Any, reduction: str = "none") -> Tensor:
    """log cosh(inputs - targets), without overflow.

    >>> log_cosh_loss(asarray([0.0]), asarray([0.0])).tolist()
    [0.0]
    """

    def formula(x: Tensor, t: Tensor) -> Tensor:
        return subtract(logaddexp(x - t, t - x), math.log(2.0))

    return _loss("log_cosh_loss", formula, reduction, inputs, targets)


def gaussian_nll_loss(
    inputs: Any, targets: Any, vars: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log v + (inputs - targets)²/v)/2 with v = max(vars, eps), and log(2π)/2 more with ``full``.

    >>> gaussian_nll_loss(asarray([3.0]), asarray([1.0]), asarray([1.0])).item()
    2.0
    """

    def formula(x: Tensor, t: Tensor, v: Tensor) -> Tensor:
        v = maximum(v, eps)
        return divide(log(v * (2 * math.pi) if full else v) + square(x - t) / v, 2.0)

    return _loss("gaussian_nll_loss", formula, reduction, inputs, targets, vars)


def cosine_similarity_loss(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8, reduction: str = "none") -> Tensor:
    """Σ x1 x2 / max(‖x1‖ ‖x2‖, eps) along ``axis``.

    >>> cosine_similarity_loss(asarray([[1.0, 0.0]]), asarray([[0.0, 1.0]])).tolist()
    [0.0]
    """

    def formula(a: Tensor, b: Tensor) -> Tensor:
        sizes = vector_norm(a, axis=axis) * vector_norm(b, axis=axis)
        return divide(_sum(a * b, axis=axis), maximum(sizes, eps))

    return _loss("cosine_similarity_loss", formula, reduction, x1, x2)


def margin_ranking_loss(
    inputs1: Any, inputs2: Any, targets: Any, margin: float = 0.0, reduction: str = "none"
) -> Tensor:
    """max(0, margin - targets · (inputs1 - inputs2)), for targets of -1 and 1.

    >>> margin_ranking_loss(asarray([1.0]), asarray([3.0]), asarray([1.0])).tolist()
    [2.0]
    """

    def formula(a: Tensor, b: Tensor, t: Tensor) -> Tensor:
        return maximum(margin - t * (a - b), 0.0)

    return _loss("margin_ranking_loss", formula, reduction, inputs1, inputs2, targets)


def triplet_loss(
    anchors: Any, positives: Any, negatives: Any, axis: int = -1, p: int = 2, margin: float = 1.0, eps: float = 1e-6,
    reduction: str = "none",
) -> Tensor:  # fmt: skip
    """max(0, d(anchors, positives) - d(anchors, negatives) + margin) with d(x, y) = (Σ |x - y|^p + eps)^(1/p).

    >>> triplet_loss(asarray([[0.0]]), asarray([[1.0]]), asarray([[3.0]]), margin=2.5, eps=0.0).tolist()
    [0.5]
    """

    def formula(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        near, far = (pow(_sum(pow(abs(a - v), p), axis=axis) + eps, 1.0 / p) for v in (b, c))
        return maximum(near - far + margin, 0.0)

    return _loss("triplet_loss", formula, reduction, anchors, positives, negatives)
