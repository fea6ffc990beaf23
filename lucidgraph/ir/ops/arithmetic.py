"""Addition to remainders. Integer arithmetic wraps; integer ``// 0`` and ``% 0`` give 0."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ...dtypes import DType, bool_, to_real
from ...errors import DTypeError
from ..builder import Var
from ..op import ZERO, Binary, Elementwise, Gradient, Op, Unary, register
from ..schema import AmpPolicy, OpSchema
from ..types import TensorType


@register
class AddBackward(Binary):
    """z = x + y      ∂L/∂x = g, ∂L/∂y = g"""

    schema_v1 = OpSchema("add", amp_policy=AmpPolicy.PROMOTE, arity=2)
    associative = True
    exactly_rounded = True
    commutative = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.add(x, y)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out, grad_out]


@register
class SubBackward(Binary):
    """z = x - y      ∂L/∂x = g, ∂L/∂y = -g"""

    schema_v1 = OpSchema("subtract", amp_policy=AmpPolicy.PROMOTE, arity=2)
    exactly_rounded = True

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        if dtype is bool_:
            raise DTypeError("subtract has no meaning for booleans", hint="logical_xor, or cast to an integer first")

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.subtract(x, y)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out, -grad_out]


@register
class MulBackward(Binary):
    """z = x y      ∂L/∂x = g y, ∂L/∂y = g x, and 0 where g is 0 though the other factor be infinite"""

    schema_v1 = OpSchema("multiply", amp_policy=AmpPolicy.PROMOTE, arity=2)
    associative = True
    exactly_rounded = True
    kSavesInput = True
    commutative = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.multiply(x, y)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, y = self.inputs
        return [MaskedMulBackward.of(grad_out, y), MaskedMulBackward.of(grad_out, x)]


class _Masked(Binary):
    """Base of masked_multiply and masked_divide: where the second operand is a number that cannot do harm, gradients
    are written with the plain op, which differs in the sign of 0 alone."""

    plain: ClassVar[type[Op]]

    @classmethod
    def of(cls, *operands: Var | float, **attrs: Any) -> Var:
        x, y = operands
        number = _number(y) if isinstance(y, Var) else y
        dtype = (y if isinstance(y, Var) else x).dtype  # type: ignore[union-attr]
        if number is not None and dtype.is_floating:
            with np.errstate(all="ignore"):
                rounded = float(dtype.numpy.type(number))
            if rounded != 0.0 and math.isfinite(rounded):
                return cls.plain.of(x, y)
        return super().of(x, y)


@register
class MaskedMulBackward(_Masked):
    """z = x y, and 0 wherever x is exactly 0, whatever y is      ∂L/∂x = g y, ∂L/∂y = x g

    The product of a cotangent with a derivative that may be infinite: what does not matter stays 0.
    """

    schema_v1 = OpSchema("masked_multiply", amp_policy=AmpPolicy.PROMOTE, arity=2, internal=True)
    work = 3
    plain = MulBackward
    exactly_rounded = True
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.where(x == 0, np.zeros_like(x), np.multiply(x, y))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, y = self.inputs
        return [MaskedMulBackward.of(grad_out, y), MaskedMulBackward.of(x, grad_out)]


@register
class DivBackward(Binary):
    """z = x / y      ∂L/∂x = g / y, ∂L/∂y = -g z / y"""

    schema_v1 = OpSchema("divide", amp_policy=AmpPolicy.PROMOTE, arity=2, real_valued=True)
    work = 6
    exactly_rounded = True
    kSavesInput = ("y",)
    kSavesOutput = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.divide(x, y)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        _, y = self.inputs
        over_y = MaskedDivBackward.of(grad_out, y)
        return [over_y, -MaskedMulBackward.of(over_y, self.y)]


@register
class MaskedDivBackward(_Masked):
    """z = x / y, and 0 wherever x is exactly 0, whatever y is      ∂L/∂x = g / y, ∂L/∂y = -g z / y"""

    schema_v1 = OpSchema("masked_divide", amp_policy=AmpPolicy.PROMOTE, arity=2, real_valued=True, internal=True)
    work = 8
    plain = DivBackward
    exactly_rounded = True
    kSavesInput = ("y",)
    kSavesOutput = True

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.where(x == 0, np.zeros_like(x), np.divide(x, y))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        _, y = self.inputs
        # z first: where x was 0, z is 0 and nothing depends on y.
        return [MaskedDivBackward.of(grad_out, y), -MaskedMulBackward.of(self.y, MaskedDivBackward.of(grad_out, y))]


@register
class NegBackward(Unary):
    """y = -x      ∂L/∂x = -g"""

    schema_v1 = OpSchema("negative", amp_policy=AmpPolicy.PROMOTE)
    exactly_rounded = True
    involution = True

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        if dtype is bool_:
            raise DTypeError("negative has no meaning for booleans", hint="logical_not")

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.negative(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [-grad_out]


@register
class AbsBackward(Unary):
    """y = |x|      ∂L/∂x = g sign(x), 0 at 0; for complex x, ∂L/∂x = g conj(x)/|x|"""

    schema_v1 = OpSchema("abs", amp_policy=AmpPolicy.PROMOTE)
    even = True
    exactly_rounded = True
    kSavesInput = True
    idempotent = True

    @classmethod
    def result_dtype(cls, dtype: DType) -> DType:
        return to_real(dtype)

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.abs(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        if self.x.dtype.is_complex:
            return [grad_out.astype(self.x.dtype) * ConjBackward.of(SignBackward.of(self.x))]
        return [grad_out * SignBackward.of(self.x)]


@register
class SignBackward(Unary):
    """y = -1, 0 or 1 by the sign of x; NaN for NaN; x/|x| for complex x."""

    schema_v1 = OpSchema("sign")
    exactly_rounded = True
    idempotent = True
    zero_gradient = "sign is a step function"

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.sign(x) if np.asarray(x).dtype != np.bool_ else x

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [ZERO]


@register
class ConjBackward(Unary):
    """y = conj(x)      ∂L/∂x = conj(g)"""

    schema_v1 = OpSchema("conj")
    exactly_rounded = True
    involution = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.conj(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [ConjBackward.of(grad_out) if grad_out.dtype.is_complex else grad_out]


@register
class RealBackward(Unary):
    """y = Re x      ∂L/∂x = g, as a complex number"""

    schema_v1 = OpSchema("real")
    exactly_rounded = True

    @classmethod
    def result_dtype(cls, dtype: DType) -> DType:
        return to_real(dtype)

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.real(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out.astype(self.x.dtype)]


@register
class ImagBackward(Unary):
    """y = Im x, 0 for real x      ∂L/∂x = -i g"""

    schema_v1 = OpSchema("imag")
    exactly_rounded = True

    @classmethod
    def result_dtype(cls, dtype: DType) -> DType:
        return to_real(dtype)

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.imag(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        if not self.x.dtype.is_complex:
            return [ZERO]
        return [grad_out.astype(self.x.dtype) * complex(0.0, -1.0)]


@register
class ReciprocalBackward(Unary):
    """y = 1 / x      ∂L/∂x = -g y²"""

    schema_v1 = OpSchema("reciprocal", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    work = 6
    exactly_rounded = True
    kSavesOutput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.divide(1, x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [-MaskedMulBackward.of(MaskedMulBackward.of(grad_out, self.y), self.y)]


@register
class FloorDivideBackward(Binary):
    """z = floor(x / y), rounding toward -∞; 0 for integer division by 0."""

    schema_v1 = OpSchema("floor_divide", amp_policy=AmpPolicy.PROMOTE, arity=2)
    work = 20
    zero_gradient = "floor division is a step function"

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        _ordered("floor_divide", dtype)

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        if np.asarray(x).dtype.kind in "iu":
            safe = np.where(y == 0, np.ones_like(y), y)
            return np.where(y == 0, np.zeros_like(x), np.floor_divide(x, safe))
        return np.floor_divide(x, y)


@register
class RemainderBackward(Binary):
    """z = x - floor(x / y) y, with the sign of y; 0 for integer ``% 0``      ∂L/∂x = g, ∂L/∂y = -g floor(x / y)"""

    schema_v1 = OpSchema("remainder", amp_policy=AmpPolicy.PROMOTE, arity=2)
    work = 20
    kSavesInput = True

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        _ordered("remainder", dtype)

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        if np.asarray(x).dtype.kind in "iu":
            safe = np.where(y == 0, np.ones_like(y), y)
            return np.where(y == 0, np.zeros_like(x), np.remainder(x, safe))
        return np.remainder(x, y)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, y = self.inputs
        return [grad_out, -MaskedMulBackward.of(grad_out, FloorDivideBackward.of(x, y))]


class _Extremum(Binary):
    """Base of maximum and minimum: NaN wins; at a tie both operands get half the gradient, unless one is a constant:
    then the constant takes all of it and the other gets 0 (so relu, clip and minimum(maximum()) agree at bounds)."""

    kSavesInput = True
    idempotent = True
    # Not commutative to the bit: which of 0.0 and -0.0 wins depends on their order.

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, y = self.inputs
        zero = grad_out.full(0.0)
        ahead_x, ahead_y = self.ahead(x, y), self.ahead(y, x)
        if _is_constant(x) or _is_constant(y):
            return [WhereBackward.of(ahead_x, grad_out, zero), WhereBackward.of(ahead_y, grad_out, zero)]
        half = WhereBackward.of(x == y, grad_out * 0.5, zero)
        return [WhereBackward.of(ahead_x, grad_out, half), WhereBackward.of(ahead_y, grad_out, half)]

    @staticmethod
    def ahead(x: Var, y: Var) -> Var:
        """Where x alone is the result. NaN is ahead of everything, of another NaN as well."""
        raise TypeError("ahead is missing")

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        _ordered(cls.schema_v1.name, dtype)


@register
class MaximumBackward(_Extremum):
    """z = max(x, y)      ∂L/∂x = g [x > y] + g/2 [x = y]"""

    schema_v1 = OpSchema("maximum", amp_policy=AmpPolicy.PROMOTE, arity=2)

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.maximum(x, y)

    @staticmethod
    def ahead(x: Var, y: Var) -> Var:
        return (x > y) | (x != x)


@register
class MinimumBackward(_Extremum):
    """z = min(x, y)      ∂L/∂x = g [x < y] + g/2 [x = y]"""

    schema_v1 = OpSchema("minimum", amp_policy=AmpPolicy.PROMOTE, arity=2)

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        return np.minimum(x, y)

    @staticmethod
    def ahead(x: Var, y: Var) -> Var:
        return (x < y) | (x != x)


@register
class WhereBackward(Elementwise):
    """z = x where condition holds, else y      ∂L/∂x = g where condition, else 0; ∂L/∂y = 0 where condition, else g"""

    schema_v1 = OpSchema("where", arity=3)
    exactly_rounded = True
    kSavesInput = ("condition",)

    @classmethod
    def shared_operands(cls, count: int) -> tuple[int, ...]:
        return (1, 2)

    @classmethod
    def infer(cls, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:  # type: ignore[override]
        if condition.dtype is not bool_:
            raise DTypeError(f"the condition of where is boolean, not {condition}", hint="where(condition != 0, x, y)")
        return super().infer(condition, x, y)

    @classmethod
    def evaluate(cls, condition: Any, x: Any, y: Any) -> Any:
        return np.where(condition, x, y)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        condition = self.x
        zero = grad_out.full(0)
        return [ZERO, WhereBackward.of(condition, grad_out, zero), WhereBackward.of(condition, zero, grad_out)]


def _ordered(name: str, dtype: DType) -> None:
    if dtype.is_complex:
        raise DTypeError(f"{name} has no meaning for {dtype.name}: complex numbers are not ordered")


def _number(value: Var) -> Any:
    """The number in every element of a constant, or of a broadcast one; else None."""
    node = value.node
    while node.name == "broadcast_to":
        node = node.operands[0]
    return node.attrs["value"] if node.name == "constant" else None


def _is_constant(value: Var) -> bool:
    node = value.node
    while node.name in ("broadcast_to", "cast"):
        node = node.operands[0]
    return node.name == "constant"
