"""Comparisons, tests of a number's kind, and logic. All results are booleans, and step functions of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtypes import DType, bool_
from ...errors import DTypeError, ShapeError
from ..op import Binary, Elementwise, Unary, register
from ..schema import AmpPolicy, OpSchema
from ..types import TensorType


class _Comparison(Binary):
    """Base: both operands go to one dtype; a comparison with NaN is False (``not_equal``: True)."""

    zero_gradient = "a comparison is a step function"
    exactly_rounded = True

    @classmethod
    def result_dtype(cls, dtype: DType) -> DType:
        return bool_


class _Ordering(_Comparison):
    """Base of the comparisons that complex numbers do not have."""

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        if dtype.is_complex:
            name = cls.schema_v1.name
            raise DTypeError(
                f"{name} has no meaning for {dtype.name}: complex numbers are not ordered",
                hint="compare real, imag or abs of them",
            )


@register
class Equal(_Comparison):
    """z = [x = y]"""

    schema_v1 = OpSchema("equal", amp_policy=AmpPolicy.PROMOTE, arity=2)
    commutative = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.equal(x, y)


@register
class NotEqual(_Comparison):
    """z = [x ≠ y]"""

    schema_v1 = OpSchema("not_equal", amp_policy=AmpPolicy.PROMOTE, arity=2)
    commutative = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.not_equal(x, y)


@register
class Less(_Ordering):
    """z = [x < y]"""

    schema_v1 = OpSchema("less", amp_policy=AmpPolicy.PROMOTE, arity=2)

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.less(x, y)


@register
class LessEqual(_Ordering):
    """z = [x ≤ y]"""

    schema_v1 = OpSchema("less_equal", amp_policy=AmpPolicy.PROMOTE, arity=2)

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.less_equal(x, y)


@register
class Greater(_Ordering):
    """z = [x > y]"""

    schema_v1 = OpSchema("greater", amp_policy=AmpPolicy.PROMOTE, arity=2)

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.greater(x, y)


@register
class GreaterEqual(_Ordering):
    """z = [x ≥ y]"""

    schema_v1 = OpSchema("greater_equal", amp_policy=AmpPolicy.PROMOTE, arity=2)

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.greater_equal(x, y)


class _Kind(Unary):
    """Base of the tests for NaN and infinity, which integers never are. Either part of a complex number counts."""

    zero_gradient = "a test is a step function"
    exactly_rounded = True

    @classmethod
    def result_dtype(cls, dtype: DType) -> DType:
        return bool_


@register
class IsNan(_Kind):
    """y = [x is NaN]"""

    schema_v1 = OpSchema("isnan")

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.isnan(x)


@register
class IsInf(_Kind):
    """y = [x is +∞ or -∞]"""

    schema_v1 = OpSchema("isinf")

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.isinf(x)


@register
class IsFinite(_Kind):
    """y = [x is neither NaN nor infinite]"""

    schema_v1 = OpSchema("isfinite")

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.isfinite(x)


class _Logical(Elementwise):
    """Base of logic: operands of any dtypes, each true where it is not 0 (NaN is true)."""

    zero_gradient = "a truth value is a step function"
    exactly_rounded = True

    @classmethod
    def shared_operands(cls, count: int) -> Sequence[int]:
        return ()

    @classmethod
    def check(cls, types: Sequence[TensorType]) -> TensorType:
        if len({t.shape for t in types}) > 1:
            raise ShapeError(f"{cls.schema_v1.name} needs equal shapes, not {' and '.join(map(str, types))}")
        return TensorType(types[0].shape, bool_)


class _LogicalPair(_Logical):
    commutative = True

    @classmethod
    def infer(cls, x: TensorType, y: TensorType) -> TensorType:  # type: ignore[override]
        return super().infer(x, y)


@register
class LogicalAnd(_LogicalPair):
    """z = x ∧ y"""

    schema_v1 = OpSchema("logical_and", arity=2)
    associative = True
    idempotent = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.logical_and(x, y)


@register
class LogicalOr(_LogicalPair):
    """z = x ∨ y"""

    schema_v1 = OpSchema("logical_or", arity=2)
    associative = True
    idempotent = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.logical_or(x, y)


@register
class LogicalXor(_LogicalPair):
    """z = x ⊻ y"""

    schema_v1 = OpSchema("logical_xor", arity=2)
    associative = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.logical_xor(x, y)


@register
class LogicalNot(_Logical):
    """y = ¬x. Of booleans an involution."""

    schema_v1 = OpSchema("logical_not")
    involution = True

    @classmethod
    def infer(cls, x: TensorType) -> TensorType:  # type: ignore[override]
        return super().infer(x)

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.logical_not(x)
