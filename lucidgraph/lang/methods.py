"""Operators and methods of tensors: each is a function of a chapter under another spelling.

:func:`attach` puts them on :class:`Tensor`, once; the chapters stay free of each other this way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from . import activation, arithmetic, bitwise, compare, index, linalg, math, protocols, reduce, scan, shape, update
from .tensor import Tensor, is_array

Function = Callable[..., Any]

BINARY: Final[dict[str, Function]] = {
    "add": arithmetic.add, "sub": arithmetic.subtract, "mul": arithmetic.multiply, "truediv": arithmetic.divide,
    "floordiv": arithmetic.floor_divide, "mod": arithmetic.remainder, "divmod": arithmetic.divmod, "pow": math.pow,
    "matmul": linalg.matmul, "and": bitwise.bitwise_and, "or": bitwise.bitwise_or, "xor": bitwise.bitwise_xor,
    "lshift": bitwise.bitwise_left_shift, "rshift": bitwise.bitwise_right_shift,
}  # fmt: skip
"""Operators that also come reflected and, but for divmod, in place."""

COMPARISONS: Final[dict[str, Function]] = {
    "eq": compare.equal, "ne": compare.not_equal, "lt": compare.less, "le": compare.less_equal,
    "gt": compare.greater, "ge": compare.greater_equal,
}  # fmt: skip

UNARY: Final[dict[str, Function]] = {
    "neg": arithmetic.negative, "pos": arithmetic.positive, "abs": arithmetic.abs, "invert": bitwise.bitwise_invert,
    "round": math.round, "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil,
    "getitem": index.getitem, "setitem": update.setitem, "array": protocols.array,
    "array_ufunc": protocols.array_ufunc, "array_function": protocols.array_function,
    "array_namespace": protocols.array_namespace, "dlpack": protocols.dlpack,
    "dlpack_device": protocols.dlpack_device, "buffer": protocols.buffer,
}  # fmt: skip

METHODS: Final[dict[str, Function]] = {
    **{f.__name__: f for f in (
        arithmetic.abs, arithmetic.clip, arithmetic.conj, arithmetic.reciprocal, math.exp, math.log, math.log1p,
        math.log2, math.log10, math.sqrt, math.rsqrt, math.square, math.sin, math.cos, math.round, reduce.sum,
        reduce.prod, reduce.mean, reduce.max, reduce.min, reduce.any, reduce.all, reduce.argmax, reduce.argmin,
        reduce.var, reduce.std, scan.cumsum, scan.cumprod, shape.astype, shape.copy, shape.flatten, shape.moveaxis,
        shape.ravel, shape.repeat, shape.split, shape.squeeze, shape.swapaxes, index.take, linalg.dot,
        linalg.trace, linalg.diagonal, activation.sigmoid, protocols.to_device,
    )},
    "conjugate": arithmetic.conj,
}  # fmt: skip


def _is_operand(value: object) -> bool:
    return type(value) in (bool, int, float, complex, list, tuple) or is_array(value)


def _operator(function: Function, reflected: bool = False) -> Function:
    """An operator that leaves operands it does not know to the other side."""

    @functools.wraps(function)
    def operator(self: Tensor, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        return function(other, self) if reflected else function(self, other)

    return operator


def _equality(function: Function, otherwise: bool) -> Function:
    @functools.wraps(function)
    def operator(self: Tensor, other: Any) -> Any:
        return function(self, other) if _is_operand(other) else otherwise

    return operator


def _in_place(function: Function) -> Function:
    """``x += y``: the tensor object gets the new value, under every name it has; its shape and dtype stay."""

    @functools.wraps(function)
    def operator(self: Tensor, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        update.assign(self, function(self, other))
        return self

    return operator


def _contains(self: Tensor, value: Any) -> bool:
    """Whether some element equals ``value``, as NumPy has it."""
    return bool(reduce.any(compare.equal(self, value)))


def _reshape(self: Tensor, *sizes: Any) -> Tensor:
    """The elements in another shape: ``x.reshape(2, 3)``, ``x.reshape((2, -1))``."""
    return shape.reshape(self, sizes[0] if len(sizes) == 1 else sizes)


def _transpose(self: Tensor, *axes: Any) -> Tensor:
    """The axes in another order, reversed when none are given."""
    if not axes:
        return shape.transpose(self)
    return shape.transpose(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)


def attach() -> None:
    """Give :class:`Tensor` its operators, methods and properties."""
    for name, function in BINARY.items():
        setattr(Tensor, f"__{name}__", _operator(function))
        setattr(Tensor, f"__r{name}__", _operator(function, reflected=True))
        if name != "divmod":
            setattr(Tensor, f"__i{name}__", _in_place(function))
    for name, function in COMPARISONS.items():
        special = name in ("eq", "ne")
        setattr(Tensor, f"__{name}__", _equality(function, name == "ne") if special else _operator(function))
    for name, function in UNARY.items():
        setattr(Tensor, f"__{name}__", function)
    for name, function in METHODS.items():
        setattr(Tensor, name, function)
    setattr(Tensor, "__contains__", _contains)  # noqa: B010
    setattr(Tensor, "reshape", _reshape)  # noqa: B010
    setattr(Tensor, "transpose", _transpose)  # noqa: B010
    for name, getter in {
        "T": shape.transpose, "mT": shape.matrix_transpose, "real": arithmetic.real, "imag": arithmetic.imag,
        "at": update.At, "flat": shape.ravel,
    }.items():  # fmt: skip
        setattr(Tensor, name, property(getter))


__all__ = ["attach"]
