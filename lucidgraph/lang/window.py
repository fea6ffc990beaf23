"""Convolution and pooling of arrays (batch, *spatial, channels), as MLX has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ShapeError
from ..ir.op import get
from .axes import whole
from .reduce import max, mean
from .shape import pad
from .tensor import Tensor, apply, asarray

__all__ = [
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "conv1d", "conv2d", "conv3d", "conv_general", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip

Sizes = int | tuple[int, ...]


def _numbers(value: Any, rank: int, what: str, least: int = 1) -> tuple[int, ...]:
    """One number for each spatial axis."""
    given = [whole(v, what) for v in value] if isinstance(value, Iterable) else [whole(value, what)] * rank
    if len(given) != rank or min(given) < least:
        raise ShapeError(f"{what} is a number from {least} on, or {rank} of them, not {value!r}")
    return tuple(given)


def _operands(name: str, x: Any, w: Any, rank: int) -> tuple[Tensor, Tensor]:
    x, w = asarray(x), asarray(w)
    if x.ndim != rank + 2:
        raise ShapeError(f"{name} takes (batch, *spatial, channels) with {rank} spatial axes, not shape {x.shape}")
    return x, w


def conv_general(
    x: Any, w: Any, stride: Any = 1, padding: Any = 0, kernel_dilation: Any = 1, input_dilation: Any = 1,
    groups: int = 1, flip: bool = False,
) -> Tensor:  # fmt: skip
    """y[n, o, f] = Σ_{k, c} x̂[n, o · stride + k · kernel_dilation, c] w[f, k, c], over any number of spatial axes.

    x̂ is x with ``input_dilation`` - 1 zeros between its elements, then ``padding`` zeros around them: a number, one
    for each axis, or a pair of such for the low and the high ends. ``w`` is (outputs, *kernel, inputs / groups).
    ``flip`` reads the kernel from its end. Raises :class:`ShapeError`.

    >>> x = asarray([[[1.0], [2.0], [3.0]]])
    >>> conv_general(x, asarray([[[1.0], [10.0]]]), padding=([1], [0])).tolist()
    [[[10.0], [21.0], [32.0]]]
    """
    x, w = asarray(x), asarray(w)
    rank = x.ndim - 2
    if rank < 1:
        raise ShapeError(f"conv_general takes (batch, *spatial, channels), not shape {x.shape}")
    ends = tuple(padding) if isinstance(padding, Iterable) else ()
    low, high = ends if len(ends) == 2 and all(isinstance(e, Iterable) for e in ends) else (padding, padding)
    return apply(
        get("conv"), x, w,
        stride=_numbers(stride, rank, "the stride"),
        pad_lo=_numbers(low, rank, "the padding", least=-(2**31)),
        pad_hi=_numbers(high, rank, "the padding", least=-(2**31)),
        kernel_dilation=_numbers(kernel_dilation, rank, "the dilation"),
        input_dilation=_numbers(input_dilation, rank, "the input's dilation"),
        groups=whole(groups, "groups"), flip=bool(flip),
    )  # fmt: skip


def _conv(rank: int, x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    x, w = _operands(f"conv{rank}d", x, w, rank)
    return conv_general(x, w, stride, _numbers(padding, rank, "the padding", 0), dilation, 1, groups)


def conv1d(x: Any, w: Any, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1, groups: int = 1) -> Tensor:
    """The convolution of x (batch, length, inputs) with w (outputs, kernel, inputs / groups), zeros around x.

    >>> conv1d(asarray([[[1.0], [2.0], [3.0]]]), asarray([[[1.0], [1.0]]])).tolist()
    [[[3.0], [5.0]]]
    """
    return _conv(1, x, w, stride, padding, dilation, groups)


def conv2d(x: Any, w: Any, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1, groups: int = 1) -> Tensor:
    """The convolution of x (batch, height, width, inputs) with w (outputs, *kernel, inputs / groups), zeros around x.

    ``stride``, ``padding`` and ``dilation`` (of the kernel) are a number, or one for each axis; ``groups`` splits the
    channels into as many convolutions side by side. Under autocast it runs in half precision; half precision is added
    in float32. Raises :class:`ShapeError`.

    >>> conv2d(asarray([[[[1.0], [2.0]], [[3.0], [4.0]]]]), asarray([[[[1.0], [1.0]]]])).tolist()
    [[[[3.0]], [[7.0]]]]
    """
    return _conv(2, x, w, stride, padding, dilation, groups)


def conv3d(x: Any, w: Any, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1, groups: int = 1) -> Tensor:
    """As :func:`conv2d`, over three spatial axes.

    >>> conv3d(asarray([[[[[2.0]]]]]), asarray([[[[[3.0]]]]])).tolist()
    [[[[[6.0]]]]]
    """
    return _conv(3, x, w, stride, padding, dilation, groups)


def _conv_transpose(
    rank: int, x: Any, w: Any, stride: Any, padding: Any, dilation: Any, output_padding: Any, groups: int
) -> Tensor:
    x, w = _operands(f"conv_transpose{rank}d", x, w, rank)
    if w.ndim != rank + 2:
        raise ShapeError(f"conv_transpose{rank}d takes a kernel (outputs, *kernel, inputs / groups), not {w.shape}")
    inner = _numbers(padding, rank, "the padding", 0)
    extra = _numbers(output_padding, rank, "the output's padding", 0)
    spread = _numbers(dilation, rank, "the dilation")
    low = [(k - 1) * d - p for k, d, p in zip(w.shape[1:-1], spread, inner, strict=True)]
    high = [lo + e for lo, e in zip(low, extra, strict=True)]
    return conv_general(x, w, 1, (low, high), spread, stride, groups, flip=True)


def conv_transpose1d(
    x: Any, w: Any, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1, output_padding: Sizes = 0,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """Each element of x (batch, length, inputs) times the kernel w (outputs, kernel, inputs / groups), added up
    ``stride`` apart: the transpose of a convolution with the same stride, ``padding`` and ``dilation``.

    ``padding`` is taken away at both ends of the result, ``output_padding`` added at its high end.

    >>> conv_transpose1d(asarray([[[1.0], [2.0]]]), asarray([[[1.0], [10.0]]]), stride=2).tolist()
    [[[1.0], [10.0], [2.0], [20.0]]]
    """
    return _conv_transpose(1, x, w, stride, padding, dilation, output_padding, groups)


def conv_transpose2d(
    x: Any, w: Any, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1, output_padding: Sizes = 0,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """As :func:`conv_transpose1d`, over two spatial axes.

    >>> conv_transpose2d(asarray([[[[2.0]]]]), asarray([[[[1.0], [3.0]]]])).tolist()
    [[[[2.0], [6.0]]]]
    """
    return _conv_transpose(2, x, w, stride, padding, dilation, output_padding, groups)


def conv_transpose3d(
    x: Any, w: Any, stride: Sizes = 1, padding: Sizes = 0, dilation: Sizes = 1, output_padding: Sizes = 0,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """As :func:`conv_transpose1d`, over three spatial axes.

    >>> conv_transpose3d(asarray([[[[[2.0]]]]]), asarray([[[[[3.0]]]]])).tolist()
    [[[[[6.0]]]]]
    """
    return _conv_transpose(3, x, w, stride, padding, dilation, output_padding, groups)


# -- pooling


def _pooled(
    name: str, rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any, fill: Callable[[Tensor], Any],
    reduced: Callable[[Tensor, tuple[int, ...]], Tensor],
) -> Tensor:  # fmt: skip
    x = asarray(x)
    if x.ndim != rank + 2:
        raise ShapeError(f"{name}{rank}d takes (batch, *spatial, channels) with {rank} spatial axes, not {x.shape}")
    kernel = _numbers(kernel_size, rank, "the kernel's size")
    step = kernel if stride is None else _numbers(stride, rank, "the stride")
    around = _numbers(padding, rank, "the padding", 0)
    if any(around):
        x = pad(x, ((0, 0), *((p, p) for p in around), (0, 0)), constant_values=fill(x))
    windows = apply(get("windows"), x, axis=1, kernel=kernel, stride=step, dilation=(1,) * rank)
    return reduced(windows, tuple(range(rank + 1, 2 * rank + 1)))


def _max_pool(rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any) -> Tensor:
    def lowest(x: Tensor) -> Any:
        return float("-inf") if x.dtype.is_inexact else x.dtype.range[0]

    return _pooled("max_pool", rank, x, kernel_size, stride, padding, lowest, lambda v, axes: max(v, axes))


def _avg_pool(rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any) -> Tensor:
    return _pooled("avg_pool", rank, x, kernel_size, stride, padding, lambda x: 0, lambda v, axes: mean(v, axes))


def max_pool1d(x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> Tensor:
    """The greatest element of each window of x (batch, length, channels). Otherwise as :func:`max_pool2d`.

    >>> max_pool1d(asarray([[[1.0], [3.0], [2.0], [0.0]]]), 2).tolist()
    [[[3.0], [2.0]]]
    """
    return _max_pool(1, x, kernel_size, stride, padding)


def max_pool2d(x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> Tensor:
    """The greatest element of each window of x (batch, height, width, channels).

    Windows are ``stride`` apart, by default side by side; x is padded with the least number there is. Elements that tie
    share the gradient equally. Raises :class:`ShapeError` where no window fits.

    >>> max_pool2d(asarray([[[[1.0], [2.0]], [[4.0], [3.0]]]]), 2).tolist()
    [[[[4.0]]]]
    """
    return _max_pool(2, x, kernel_size, stride, padding)


def max_pool3d(x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> Tensor:
    """As :func:`max_pool2d`, over three spatial axes.

    >>> max_pool3d(asarray([[[[[1.0], [2.0]]]]]), (1, 1, 2)).tolist()
    [[[[[2.0]]]]]
    """
    return _max_pool(3, x, kernel_size, stride, padding)


def avg_pool1d(x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> Tensor:
    """The mean of each window of x (batch, length, channels). Otherwise as :func:`avg_pool2d`.

    >>> avg_pool1d(asarray([[[1.0], [3.0], [2.0], [0.0]]]), 2).tolist()
    [[[2.0], [1.0]]]
    """
    return _avg_pool(1, x, kernel_size, stride, padding)


def avg_pool2d(x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> Tensor:
    """The mean of each window of x (batch, height, width, channels).

    Windows are ``stride`` apart, by default side by side; x is padded with zeros, which count. Integers give float32.
    Raises :class:`ShapeError` where no window fits.

    >>> avg_pool2d(asarray([[[[1.0], [2.0]], [[4.0], [3.0]]]]), 2).tolist()
    [[[[2.5]]]]
    """
    return _avg_pool(2, x, kernel_size, stride, padding)


def avg_pool3d(x: Any, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0) -> Tensor:
    """As :func:`avg_pool2d`, over three spatial axes.

    >>> avg_pool3d(asarray([[[[[1.0], [2.0]]]]]), (1, 1, 2)).tolist()
    [[[[[1.5]]]]]
    """
    return _avg_pool(3, x, kernel_size, stride, padding)
