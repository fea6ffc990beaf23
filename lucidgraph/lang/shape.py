"""Moving, joining and repeating elements. Every function returns a new tensor: a write to it changes no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ..dtypes import as_dtype
from ..errors import AxisError, ConcretizationError, DTypeError, ShapeError, UnsupportedError
from ..ir import TensorType
from ..ir.op import broadcast_shapes as common_shape
from ..ir.op import get
from ..ir.ops.core import CastBackward
from ..ir.types import Shape
from .axes import many_axes, one_axis, whole
from .creation import scalar, shape_of
from .tensor import Tensor, apply, asarray, copy_of, is_array

__all__ = [
    "array_split", "astype", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes",
    "broadcast_to", "concat", "concatenate", "copy", "expand_dims", "flatten", "flip", "hstack", "matrix_transpose",
    "moveaxis", "pad", "permute_dims", "ravel", "repeat", "reshape", "roll", "split", "squeeze", "stack", "swapaxes",
    "tile", "transpose", "unflatten", "unstack", "vstack",
]  # fmt: skip

Axis = int | tuple[int, ...] | None


def copy(x: Any) -> Tensor:
    """Another tensor of the same value.

    >>> copy([1, 2]).tolist()
    [1, 2]
    """
    return copy_of(asarray(x))


def astype(x: Any, dtype: Any, copy: bool = True) -> Tensor:
    """``x`` in another dtype. Floats become integers by truncation; what does not fit an integer wraps or is undefined.

    Raises :class:`DTypeError` for complex numbers into real ones.

    >>> astype(asarray([1.7, -1.7]), "int32").tolist()
    [1, -1]
    """
    x, wanted = asarray(x), as_dtype(dtype)
    if x.dtype.is_complex and not (wanted.is_complex or wanted.is_bool):
        raise DTypeError(f"astype of {x._node.type} to {wanted.name} loses the imaginary part", hint="real(x)")
    if wanted is x.dtype:
        return copy_of(x) if copy else x
    return apply(CastBackward, x, dtype=wanted)


# -- shapes


def reshape(x: Any, shape: Any, copy: bool | None = None) -> Tensor:
    """``x`` in another shape, elements in row-major order; one size may be -1 and is worked out.

    Raises :class:`ShapeError` where the number of elements differs.

    >>> reshape(asarray([1, 2, 3, 4]), (2, -1)).tolist()
    [[1, 2], [3, 4]]
    """
    x = asarray(x)
    return apply(get("reshape"), x, shape=_completed(shape, x._node.type))


def _completed(shape: Any, t: TensorType) -> Shape:
    """``shape`` with its -1 worked out for the elements of ``t``."""
    sizes = tuple(whole(n, "reshape") for n in (shape if isinstance(shape, list | tuple) else (shape,)))
    if -1 in sizes:
        rest = prod(n for n in sizes if n != -1)
        if sizes.count(-1) > 1 or rest <= 0 or t.size % rest:
            raise ShapeError(f"{t} has {t.size} elements, which do not fill shape {sizes}", hint="one -1 at most")
        sizes = tuple(t.size // rest if n == -1 else n for n in sizes)
    return shape_of(sizes, "reshape")


def ravel(x: Any) -> Tensor:
    """All elements in one axis, in row-major order.

    >>> ravel([[1, 2], [3, 4]]).tolist()
    [1, 2, 3, 4]
    """
    return reshape(x, (-1,)) if asarray(x).size else reshape(x, (0,))


def flatten(x: Any, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """The axes from ``start_axis`` to ``end_axis`` as one.

    >>> flatten(asarray([[[1], [2]]]), 1).shape
    (1, 2)
    """
    x = asarray(x)
    if x.ndim == 0:
        return copy_of(reshape(x, (1,)))
    a, b = one_axis(start_axis, x.ndim, "flatten"), one_axis(end_axis, x.ndim, "flatten")
    if a > b:
        raise AxisError(f"flatten from axis {a} to axis {b}")
    return copy_of(reshape(x, (*x.shape[:a], prod(x.shape[a : b + 1]), *x.shape[b + 1 :])))


def unflatten(x: Any, axis: int, shape: Any) -> Tensor:
    """One axis split into several; one size may be -1.

    >>> unflatten(asarray([1, 2, 3, 4]), 0, (2, -1)).shape
    (2, 2)
    """
    x = asarray(x)
    k = one_axis(axis, x.ndim, "unflatten")
    sizes = _completed(shape, TensorType((x.shape[k],), x.dtype))
    return reshape(x, (*x.shape[:k], *sizes, *x.shape[k + 1 :]))


def expand_dims(x: Any, axis: int | tuple[int, ...] = 0) -> Tensor:
    """Axes of size 1 at the places ``axis`` of the result. Raises :class:`AxisError`.

    >>> expand_dims([1, 2], (0, -1)).shape
    (1, 2, 1)
    """
    x = asarray(x)
    count = len(axis) if isinstance(axis, list | tuple) else 1
    return apply(get("expand_dims"), x, axis=many_axes(axis, x.ndim + count, "expand_dims"))


def squeeze(x: Any, axis: Axis = None) -> Tensor:
    """Without the axes ``axis``, or without all axes of size 1. Raises :class:`ShapeError` for a size that is not 1.

    >>> squeeze([[1, 2]]).shape
    (2,)
    """
    x = asarray(x)
    axes = tuple(k for k, n in enumerate(x.shape) if n == 1) if axis is None else many_axes(axis, x.ndim, "squeeze")
    return apply(get("squeeze"), x, axis=axes)


def atleast_1d(*arrays: Any) -> Any:
    """With one axis at least; several arrays give a tuple.

    >>> atleast_1d(3).shape
    (1,)
    """
    return _each(arrays, lambda x: reshape(x, (1,)) if x.ndim == 0 else copy_of(x))


def atleast_2d(*arrays: Any) -> Any:
    """With two axes at least: new ones come first.

    >>> atleast_2d([1, 2, 3]).shape
    (1, 3)
    """
    return _each(arrays, lambda x: reshape(x, (1,) * (2 - x.ndim) + x.shape) if x.ndim < 2 else copy_of(x))


def atleast_3d(*arrays: Any) -> Any:
    """With three axes at least, by NumPy's rule: (n,) becomes (1, n, 1), (m, n) becomes (m, n, 1).

    >>> atleast_3d([1, 2]).shape
    (1, 2, 1)
    """

    def raised(x: Tensor) -> Tensor:
        return copy_of(x) if x.ndim > 2 else reshape(x, ((1, 1, 1), (1, *x.shape, 1), (*x.shape, 1))[x.ndim])

    return _each(arrays, raised)


def _each(arrays: Sequence[Any], fn: Callable[[Tensor], Tensor]) -> Any:
    made = tuple(fn(asarray(x)) for x in arrays)
    return made[0] if len(made) == 1 else made


# -- broadcasting


def broadcast_shapes(*shapes: Any) -> Shape:
    """The common shape by NumPy's rule. Raises :class:`ShapeError`.

    >>> broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    return common_shape([shape_of(s, "broadcast_shapes") for s in shapes], "broadcast_shapes")


def broadcast_to(x: Any, shape: Any) -> Tensor:
    """``x`` repeated to ``shape``. Raises :class:`ShapeError` where it does not fit.

    >>> broadcast_to([1, 2], (2, 2)).tolist()
    [[1, 2], [1, 2]]
    """
    return apply(get("broadcast_to"), asarray(x), shape=shape_of(shape, "broadcast_to"))


def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """The arrays in their common shape; dtypes stay.

    >>> [a.shape for a in broadcast_arrays([1, 2], [[1], [2]])]
    [(2, 2), (2, 2)]
    """
    given = [asarray(a) for a in arrays]
    shape = common_shape([a.shape for a in given], "broadcast_arrays")
    return [broadcast_to(a, shape) for a in given]


# -- order of axes and elements


def permute_dims(x: Any, axes: Any) -> Tensor:
    """``x`` with its axes in the order ``axes``. Raises :class:`AxisError` unless each is named once.

    >>> permute_dims(asarray([[1, 2, 3]]), (1, 0)).shape
    (3, 1)
    """
    x = asarray(x)
    return apply(get("permute_dims"), x, axes=tuple(one_axis(k, x.ndim, "permute_dims") for k in axes))


def transpose(x: Any, axes: Any = None) -> Tensor:
    """``x`` with its axes reversed, or in the order ``axes``.

    >>> transpose([[1, 2], [3, 4]]).tolist()
    [[1, 3], [2, 4]]
    """
    x = asarray(x)
    return permute_dims(x, range(x.ndim)[::-1] if axes is None else axes)


def matrix_transpose(x: Any) -> Tensor:
    """The last two axes exchanged. Raises :class:`ShapeError` for fewer.

    >>> matrix_transpose([[[1, 2]]]).shape
    (1, 2, 1)
    """
    x = asarray(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose takes matrices, not {x._node.type}")
    return swapaxes(x, -1, -2)


def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Two axes exchanged.

    >>> swapaxes([[[1, 2, 3]]], 0, 2).shape
    (3, 1, 1)
    """
    x = asarray(x)
    a, b = one_axis(axis1, x.ndim, "swapaxes"), one_axis(axis2, x.ndim, "swapaxes")
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    return permute_dims(x, order)


def moveaxis(x: Any, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Tensor:
    """Axes moved to other places; the others keep their order. Raises :class:`AxisError`.

    >>> moveaxis(asarray([[[1, 2, 3]]]), 2, 0).shape
    (3, 1, 1)
    """
    x = asarray(x)
    sources, places = (
        [one_axis(k, x.ndim, "moveaxis") for k in (axis if isinstance(axis, list | tuple) else (axis,))]
        for axis in (source, destination)
    )
    if len(sources) != len(places) or len(set(sources)) < len(sources) or len(set(places)) < len(places):
        raise AxisError(f"moveaxis from {source} to {destination}: equally many, each named once")
    order = [k for k in range(x.ndim) if k not in sources]
    for place, k in sorted(zip(places, sources, strict=True)):
        order.insert(place, k)
    return permute_dims(x, order)


def sliced(x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    """``x[start:stop:step]`` along one axis, for numbers in the op's normal form."""
    if not len(range(start, stop, step)):
        start, stop, step = 0, 0, 1
    every = [(0, n, 1) for n in x.shape]
    every[axis] = (start, stop, step)
    first, last, by = (tuple(part[k] for part in every) for k in range(3))
    return apply(get("slice"), x, start=first, stop=last, step=by)


def flip(x: Any, axis: Axis = None) -> Tensor:
    """The order of elements reversed along ``axis`` (None: along all).

    >>> flip([1, 2, 3]).tolist()
    [3, 2, 1]
    """
    x = asarray(x)
    axes = many_axes(axis, x.ndim, "flip")
    parts = [(n - 1, -1, -1) if k in axes and n else (0, n, 1) for k, n in enumerate(x.shape)]
    start, stop, step = (tuple(part[k] for part in parts) for k in range(3))
    return apply(get("slice"), x, start=start, stop=stop, step=step)


def roll(x: Any, shift: int | tuple[int, ...], axis: Axis = None) -> Tensor:
    """Elements moved by ``shift`` places along ``axis``, those pushed out coming in again; None rolls all as one axis.

    >>> roll([1, 2, 3], 1).tolist()
    [3, 1, 2]
    """
    x = asarray(x)
    shifts = [whole(s, "roll") for s in (shift if isinstance(shift, list | tuple) else (shift,))]
    if axis is None:
        return reshape(_rolled(ravel(x), sum(shifts), 0), x.shape)
    axes = [one_axis(k, x.ndim, "roll") for k in (axis if isinstance(axis, list | tuple) else (axis,))]
    if 1 not in (len(axes), len(shifts)) and len(axes) != len(shifts):
        raise ShapeError(f"roll by {shift} along axes {axis}: equally many, or one for all")
    if len(shifts) < len(axes):
        shifts *= len(axes)
    elif len(axes) < len(shifts):
        axes *= len(shifts)
    out = copy_of(x)
    for by, k in zip(shifts, axes, strict=True):
        out = _rolled(out, by, k)
    return out


def _rolled(x: Tensor, shift: int, axis: int) -> Tensor:
    size = x.shape[axis]
    cut = size - shift % size if size else 0
    if cut == size:
        return x
    return apply(get("concat"), sliced(x, axis, cut, size), sliced(x, axis, 0, cut), axis=axis)


# -- joining and splitting


def concat(arrays: Any, axis: int | None = 0) -> Tensor:
    """Arrays one after another along ``axis`` (None: all flattened); their dtypes are promoted.

    Raises :class:`ShapeError` where the other axes differ.

    >>> concat([[1, 2], [3]]).tolist()
    [1, 2, 3]
    """
    given = [asarray(a) for a in _sequence(arrays, "concat")]
    if not given:
        raise ShapeError("concat needs at least one array")
    if axis is None:
        given, axis = [ravel(a) for a in given], 0
    if not given[0].ndim:
        raise ShapeError("concat of 0-d arrays", hint="lucidgraph.stack")
    return apply(get("concat"), *given, axis=one_axis(axis, given[0].ndim, "concat"))


concatenate = concat


def _sequence(arrays: Any, what: str) -> list[Any]:
    if isinstance(arrays, list | tuple):
        return list(arrays)
    if is_array(arrays):
        return list(unstack(arrays))
    raise DTypeError(f"{what} takes a sequence of arrays, not {type(arrays).__name__}")


def stack(arrays: Any, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis; their dtypes are promoted.

    >>> stack([[1, 2], [3, 4]], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    given = [asarray(a) for a in _sequence(arrays, "stack")]
    if len({a.shape for a in given}) != 1:
        raise ShapeError(f"stack takes arrays of one shape, not {', '.join(str(a.shape) for a in given) or 'none'}")
    k = one_axis(axis, given[0].ndim + 1, "stack")
    return apply(get("concat"), *(expand_dims(a, k) for a in given), axis=k)


def hstack(arrays: Any) -> Tensor:
    """Arrays side by side: along axis 1, vectors along axis 0.

    >>> hstack([[1], [2, 3]]).tolist()
    [1, 2, 3]
    """
    given = [atleast_1d(a) for a in _sequence(arrays, "hstack")]
    return concat(given, axis=0 if given and given[0].ndim == 1 else 1)


def vstack(arrays: Any) -> Tensor:
    """Arrays below each other: along axis 0, vectors as rows.

    >>> vstack([[1, 2], [3, 4]]).tolist()
    [[1, 2], [3, 4]]
    """
    return concat([atleast_2d(a) for a in _sequence(arrays, "vstack")], axis=0)


def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along ``axis``, a tuple, without that axis.

    >>> [a.tolist() for a in unstack([[1, 2], [3, 4]])]
    [[1, 2], [3, 4]]
    """
    x = asarray(x)
    k = one_axis(axis, x.ndim, "unstack")
    return tuple(squeeze(sliced(x, k, i, i + 1), k) for i in range(x.shape[k]))


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """Parts along ``axis``: so many of equal size, or cut before the indices given.

    Raises :class:`ShapeError` where the axis does not divide evenly.

    >>> [a.tolist() for a in split([1, 2, 3, 4], 2)], [a.tolist() for a in split([1, 2, 3, 4], [1, 3])]
    ([[1, 2], [3, 4]], [[1], [2, 3], [4]])
    """
    x = asarray(x)
    k = one_axis(axis, x.ndim, "split")
    if not isinstance(indices_or_sections, list | tuple | np.ndarray):
        sections = whole(indices_or_sections, "split")
        if sections < 1 or x.shape[k] % sections:
            raise ShapeError(f"split of axis {k} of {x._node.type} into {sections} equal parts", hint="array_split")
    return array_split(x, indices_or_sections, k)


def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    """As :func:`split`; where the axis does not divide evenly, the first parts have one element more.

    >>> [a.tolist() for a in array_split([1, 2, 3], 2)]
    [[1, 2], [3]]
    """
    x = asarray(x)
    k = one_axis(axis, x.ndim, "array_split")
    size = x.shape[k]
    if isinstance(indices_or_sections, list | tuple | np.ndarray):
        cuts = [None, *(whole(i, "split") for i in indices_or_sections), None]
        parts = [slice(a, b).indices(size)[:2] for a, b in pairwise(cuts)]
    else:
        sections = whole(indices_or_sections, "split")
        if sections < 1:
            raise ShapeError(f"array_split into {sections} parts")
        each, more = divmod(size, sections)
        ends = [0, *(each * (i + 1) + min(i + 1, more) for i in range(sections))]
        parts = list(pairwise(ends))
    return [sliced(x, k, a, b) for a, b in parts]


# -- padding and repeating

_PAD_MODES = ("edge", "reflect", "symmetric", "wrap")


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Tensor:
    """``x`` with elements added at the ends of its axes.

    ``pad_width``: one number for all ends, ``(before, after)`` for all axes, one such pair per axis, or a dict from
    axis to either. ``constant_values`` is one value. Modes ``"edge"``, ``"reflect"``, ``"symmetric"``, ``"wrap"``
    repeat elements as NumPy does. Raises :class:`ShapeError` for negative widths.

    >>> pad([1, 2], (1, 2)).tolist()
    [0, 1, 2, 0, 0]
    """
    x = asarray(x)
    widths = _widths(pad_width, x.ndim)
    if mode == "constant":
        value = constant_values
        value = asarray(value, dtype=x.dtype) if is_array(value) else scalar(value, x.dtype)
        low, high = (tuple(w[k] for w in widths) for k in range(2))
        return apply(get("pad"), x, value, low=low, high=high, interior=(0,) * x.ndim)
    if mode not in _PAD_MODES:
        raise UnsupportedError(f"pad: mode={mode!r}", hint=f"constant, {', '.join(_PAD_MODES)}")
    out = copy_of(x)
    for k, (n, width) in enumerate(zip(x.shape, widths, strict=True)):
        if width != (0, 0):
            if not n:
                raise ShapeError(f"pad: axis {k} of {x._node.type} has no elements to repeat")
            out = apply(get("take"), out, np.pad(np.arange(n), width, mode=mode), axis=k)  # type: ignore[call-overload]
    return out


def _widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, dict):
        named = {one_axis(k, ndim, "pad"): _ends(w) for k, w in pad_width.items()}
        return [named.get(k, (0, 0)) for k in range(ndim)]
    given = pad_width.tolist() if isinstance(pad_width, np.ndarray) else pad_width
    if not isinstance(given, list | tuple) or not any(isinstance(w, list | tuple) for w in given):
        return [_ends(given)] * ndim
    if len(given) not in (1, ndim):
        raise ShapeError(f"pad: {len(given)} widths for {ndim} axes")
    return [_ends(w) for w in (given if len(given) == ndim else [given[0]] * ndim)]


def _ends(width: Any) -> tuple[int, int]:
    parts = width if isinstance(width, list | tuple) else (width,)
    if len(parts) not in (1, 2):
        raise ShapeError(f"pad: {width!r} is no width", hint="(before, after)")
    before, after = (whole(w, "pad") for w in (parts[0], parts[-1]))
    if min(before, after) < 0:
        raise ShapeError(f"pad: {width!r} is negative", hint="a slice removes elements")
    return before, after


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Tensor:
    """Each element along ``axis`` (None: of the flattened array) ``repeats`` times, one number or one per element.

    >>> repeat([1, 2], 2).tolist(), repeat([1, 2], [1, 3]).tolist()
    ([1, 1, 2, 2], [1, 2, 2, 2])
    """
    x = asarray(x)
    x, k = (ravel(x), 0) if axis is None else (x, one_axis(axis, x.ndim, "repeat"))
    size = x.shape[k]
    counts = np.asarray(_known_counts(repeats))
    if counts.dtype.kind not in "iu" or counts.ndim > 1 or (counts.ndim and counts.size not in (1, size)):
        raise ShapeError(f"repeat of {size} elements by {repeats!r:.80}: one integer, or one per element")
    if counts.size and counts.min() < 0:
        raise ShapeError(f"repeat by {repeats!r:.80}: counts are not negative")
    if counts.size != 1:
        return apply(get("take"), x, np.repeat(np.arange(size), counts), axis=k)
    count = int(counts.reshape(()))
    wide = broadcast_to(expand_dims(x, k + 1), (*x.shape[: k + 1], count, *x.shape[k + 1 :]))
    return reshape(wide, (*x.shape[:k], size * count, *x.shape[k + 1 :]))


def _known_counts(repeats: Any) -> Any:
    if not isinstance(repeats, Tensor):
        return repeats
    if not repeats.ndim:
        return whole(repeats, "repeat")
    try:
        return repeats.numpy()
    except ConcretizationError as error:
        raise ConcretizationError(
            f"repeat: {error.message}", source=error.source, hint="counts shape the result: pass a list or NumPy array"
        ) from None


def tile(x: Any, repetitions: Any) -> Tensor:
    """``x`` laid ``repetitions`` times side by side along its last axes; a longer tuple adds axes.

    >>> tile([1, 2], (2, 2)).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    x = asarray(x)
    counts = shape_of(repetitions, "tile")
    counts = (1,) * (x.ndim - len(counts)) + counts
    shape = (1,) * (len(counts) - x.ndim) + x.shape
    out = reshape(x, tuple(n for size in shape for n in (1, size)))
    out = broadcast_to(out, tuple(n for pair in zip(counts, shape, strict=True) for n in pair))
    return reshape(out, tuple(c * n for c, n in zip(counts, shape, strict=True)))
