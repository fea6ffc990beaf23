"""Elementary functions. Integer operands become float32; pow of integers stays an integer.

Derivatives that are infinite or NaN somewhere are multiplied by ``masked_multiply`` and ``masked_divide``, so that an
exactly zero cotangent stays zero. Of complex operands the gradients are those of the holomorphic function.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

import numpy as np

from ...dtypes import DType, float32
from ...errors import DTypeError
from ..builder import Var
from ..op import ZERO, Binary, ElementwiseComposite, Gradient, Unary, register
from ..schema import AmpPolicy, OpSchema
from ..types import Scalar, TensorType
from .arithmetic import AbsBackward, MaskedDivBackward, MaskedMulBackward, MaximumBackward, WhereBackward
from .compare import IsInf
from .core import StopGradientBackward

LN2: Final = math.log(2.0)
LN10: Final = math.log(10.0)


def refuse_complex(name: str, dtype: DType) -> None:
    """Raise :class:`DTypeError` for an operation between real numbers only."""
    if dtype.is_complex:
        raise DTypeError(f"{name} has no meaning for {dtype.name}", hint="real, imag or abs of it")


class _Function(Unary):
    """Base of those that are polynomials on a processor."""

    work = 24


# -- exponentials and logarithms


@register
class ExpBackward(Unary):
    """y = e^x      ∂L/∂x = g y"""

    schema_v1 = OpSchema("exp", amp_policy=AmpPolicy.FORCE_FP32)
    work = 14
    kSavesOutput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.exp(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedMulBackward.of(grad_out, self.y)]


@register
class Exp2Backward(Unary):
    """y = 2^x      ∂L/∂x = g y ln 2"""

    schema_v1 = OpSchema("exp2", amp_policy=AmpPolicy.FORCE_FP32)
    work = 14
    kSavesOutput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.exp2(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedMulBackward.of(grad_out, self.y) * LN2]


@register
class Expm1Backward(_Function):
    """y = e^x - 1, accurate near 0      ∂L/∂x = g e^x        (y + 1 would lose the digits of a small e^x)"""

    schema_v1 = OpSchema("expm1", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.expm1(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedMulBackward.of(grad_out, ExpBackward.of(self.x))]


@register
class LogBackward(_Function):
    """y = ln x      ∂L/∂x = g / x"""

    schema_v1 = OpSchema("log", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.log(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedDivBackward.of(grad_out, self.x)]


@register
class Log1pBackward(_Function):
    """y = ln(1 + x), accurate near 0      ∂L/∂x = g / (1 + x)"""

    schema_v1 = OpSchema("log1p", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.log1p(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedDivBackward.of(grad_out, self.x + 1.0)]


@register
class Log2Backward(_Function):
    """y = log₂ x      ∂L/∂x = g / (x ln 2)"""

    schema_v1 = OpSchema("log2", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.log2(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedDivBackward.of(grad_out, self.x) * (1.0 / LN2)]


@register
class Log10Backward(_Function):
    """y = log₁₀ x      ∂L/∂x = g / (x ln 10)"""

    schema_v1 = OpSchema("log10", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.log10(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedDivBackward.of(grad_out, self.x) * (1.0 / LN10)]


@register
class LogAddExpBackward(ElementwiseComposite):
    """z = ln(e^x + e^y)      ∂L/∂x = g σ(x - y), ∂L/∂y = g σ(y - x)

    Two equal infinities are a difference of 0; logaddexp(-∞, -∞) is -∞ with gradient 0.
    """

    schema_v1 = OpSchema("logaddexp", amp_policy=AmpPolicy.FORCE_FP32, arity=2)
    kSavesInput = True
    commutative = True

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        super().check_dtype(dtype)
        refuse_complex("logaddexp", dtype)

    @classmethod
    def infer(cls, x: TensorType, y: TensorType) -> TensorType:  # type: ignore[override]
        return super().infer(x, y)

    @staticmethod
    def expand(x: Var, y: Var) -> Var:  # type: ignore[override]
        gap = AbsBackward.of(_difference(x, y))
        return MaximumBackward.of(x, y) + Log1pBackward.of(ExpBackward.of(-gap))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        dtype = grad_out.dtype
        g, x, y = (in_float32(v) for v in (grad_out, *self.inputs))
        nothing = (x == -math.inf) & (y == -math.inf)
        g = WhereBackward.of(nothing, g.full(0.0), g)
        gap = _difference(x, y)
        return [(g * gap.emit("sigmoid")).astype(dtype), (g * (-gap).emit("sigmoid")).astype(dtype)]


def _difference(x: Var, y: Var) -> Var:
    """x - y, and 0 between equal infinities."""
    same = (x == y) & IsInf.of(x)
    return WhereBackward.of(same, x.full(0.0), x - y)


def in_float32(v: Var) -> Var:
    """A half-precision value in float32; others as they are."""
    return v.astype(float32) if v.dtype.is_half else v


# -- powers and roots


@register
class SquareBackward(Unary):
    """y = x²      ∂L/∂x = 2 g x"""

    schema_v1 = OpSchema("square", amp_policy=AmpPolicy.PROMOTE)
    even = True
    exactly_rounded = True
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.multiply(x, x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out * (self.x * 2.0)]


@register
class SqrtBackward(Unary):
    """y = √x      ∂L/∂x = g / 2y"""

    schema_v1 = OpSchema("sqrt", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    work = 8
    exactly_rounded = True
    kSavesOutput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.sqrt(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedDivBackward.of(grad_out, self.y) * 0.5]


@register
class RsqrtBackward(Unary):
    """y = 1/√x      ∂L/∂x = -g y³ / 2"""

    schema_v1 = OpSchema("rsqrt", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    work = 16
    kSavesOutput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.divide(1, np.sqrt(x))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        # Factor by factor: y³ alone overflows before g y³ does, and its own gradient would be 0·∞ at x = 0.
        g = grad_out
        for _ in range(3):
            g = MaskedMulBackward.of(g, self.y)
        return [g * -0.5]


@register
class CbrtBackward(_Function):
    """y = ∛x, real also for negative x      ∂L/∂x = g / 3y²"""

    schema_v1 = OpSchema("cbrt", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesOutput = True

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        super().check_dtype(dtype)
        refuse_complex("cbrt", dtype)

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.cbrt(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedDivBackward.of(grad_out, self.y * self.y) * (1.0 / 3.0)]


@register
class PowBackward(Binary):
    """z = x^y      ∂L/∂x = g y x^(y-1), ∂L/∂y = g z ln x

    0^0 is 1. y = 0 makes ∂z/∂x 0 and x = 0, y ≥ 0 makes ∂z/∂y 0. Integers stay integers and wrap; a negative
    exponent then gives 0.
    """

    schema_v1 = OpSchema("pow", amp_policy=AmpPolicy.FORCE_FP32, arity=2, real_valued=False)
    work = 80
    kSavesInput = True
    kSavesOutput = True

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        if dtype.is_bool:
            raise DTypeError("pow has no meaning for booleans", hint="logical_or(x, logical_not(y)), or cast first")

    @classmethod
    def evaluate(cls, x: Any, y: Any) -> Any:
        if np.asarray(y).dtype.kind == "i":
            power = np.power(x, np.maximum(y, np.zeros_like(y)))
            return np.where(y < 0, np.zeros_like(power), power)
        return np.power(x, y)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, y = self.inputs
        exponent = _constant_value(y)
        if exponent is not None:
            return [_power_gradient(grad_out, x, exponent), ZERO]
        slope = MaskedMulBackward.of(y, PowBackward.of(x, y - 1.0))
        still = (x == 0.0) if x.dtype.is_complex else (x == 0.0) & (y >= 0.0)
        log = WhereBackward.of(still, x.full(0.0), LogBackward.of(x))
        return [
            MaskedMulBackward.of(grad_out, slope),
            MaskedMulBackward.of(grad_out, MaskedMulBackward.of(self.y, log)),
        ]


def _power_gradient(g: Var, x: Var, exponent: Scalar) -> Gradient:
    """The gradient of x to a known power."""
    if exponent == 0:
        return ZERO
    if exponent == 1:
        return g
    if exponent == 2:
        return g * (x * 2.0)
    return MaskedMulBackward.of(g, PowBackward.of(x, x.full(exponent - 1)) * exponent)


def _constant_value(v: Var) -> Scalar | None:
    """The number that a constant, or a broadcast one, holds."""
    node = v.node
    while node.name == "broadcast_to":
        node = node.operands[0]
    value: Scalar | None = node.attrs["value"] if node.name == "constant" else None
    return value


# -- rounding


class _Rounding(Unary):
    """Base: floats are rounded to whole numbers of the same dtype, integers and booleans are returned as they are."""

    zero_gradient = "rounding is a step function"
    whole = True
    exactly_rounded = True
    idempotent = True
    rounded: ClassVar[Any]

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        refuse_complex(cls.schema_v1.name, dtype)

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return cls.rounded(x) if np.asarray(x).dtype.kind in "fc" else x


@register
class FloorBackward(_Rounding):
    """y = ⌊x⌋, toward -∞"""

    schema_v1 = OpSchema("floor")
    rounded = staticmethod(np.floor)


@register
class CeilBackward(_Rounding):
    """y = ⌈x⌉, toward +∞"""

    schema_v1 = OpSchema("ceil")
    rounded = staticmethod(np.ceil)


@register
class TruncBackward(_Rounding):
    """y = x without its fraction, toward 0"""

    schema_v1 = OpSchema("trunc")
    rounded = staticmethod(np.trunc)


@register
class RoundBackward(_Rounding):
    """y = the whole number nearest to x, the even one of two; each part of a complex number by itself"""

    schema_v1 = OpSchema("round")
    rounded = staticmethod(np.rint)

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        pass


# -- trigonometry


@register
class SinBackward(_Function):
    """y = sin x      ∂L/∂x = g cos x"""

    schema_v1 = OpSchema("sin", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.sin(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedMulBackward.of(grad_out, CosBackward.of(self.x))]


@register
class CosBackward(_Function):
    """y = cos x      ∂L/∂x = -g sin x"""

    schema_v1 = OpSchema("cos", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.cos(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [-MaskedMulBackward.of(grad_out, SinBackward.of(self.x))]


@register
class TanBackward(_Function):
    """y = tan x      ∂L/∂x = g (1 + y²)"""

    schema_v1 = OpSchema("tan", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesOutput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.tan(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedMulBackward.of(grad_out, self.y * self.y + 1.0)]


@register
class AsinBackward(_Function):
    """y = arcsin x      ∂L/∂x = g / √(1 - x²)"""

    schema_v1 = OpSchema("asin", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.arcsin(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedDivBackward.of(grad_out, SqrtBackward.of(_one_minus_square(self.x)))]


@register
class AcosBackward(_Function):
    """y = arccos x      ∂L/∂x = -g / √(1 - x²)"""

    schema_v1 = OpSchema("acos", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.arccos(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [-MaskedDivBackward.of(grad_out, SqrtBackward.of(_one_minus_square(self.x)))]


@register
class AtanBackward(_Function):
    """y = arctan x      ∂L/∂x = g / (1 + x²)"""

    schema_v1 = OpSchema("atan", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.arctan(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        # Masked for complex x: the derivative has poles at ±i.
        return [MaskedDivBackward.of(grad_out, self.x * self.x + 1.0)]


@register
class Atan2Backward(Binary):
    """z = the angle of the point (x, y), from -π to π; the operands are y, x

    ∂L/∂y = g x / (x² + y²), ∂L/∂x = -g y / (x² + y²), and 0 at the origin
    """

    schema_v1 = OpSchema("atan2", amp_policy=AmpPolicy.PROMOTE, arity=2, real_valued=True)
    work = 32
    kSavesInput = True

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        super().check_dtype(dtype)
        refuse_complex("atan2", dtype)

    @classmethod
    def infer(cls, y: TensorType, x: TensorType) -> TensorType:  # type: ignore[override]
        return super().infer(y, x)

    @classmethod
    def evaluate(cls, y: Any, x: Any) -> Any:
        return np.arctan2(y, x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        y, x = self.inputs
        # Scaled by the larger of the two, on which the result does not depend: squares neither overflow nor vanish.
        scale = StopGradientBackward.of(MaximumBackward.of(AbsBackward.of(y), AbsBackward.of(x)))
        scale = WhereBackward.of(scale == 0.0, scale.full(1.0), scale)
        y, x, g = y / scale, x / scale, MaskedDivBackward.of(grad_out, scale)
        square = x * x + y * y
        return [
            MaskedMulBackward.of(g, MaskedDivBackward.of(x, square)),
            -MaskedMulBackward.of(g, MaskedDivBackward.of(y, square)),
        ]


def _one_minus_square(x: Var) -> Var:
    """1 - x², accurate near ±1."""
    return (1.0 - x) * (1.0 + x)


# -- hyperbolic functions


@register
class SinhBackward(_Function):
    """y = sinh x      ∂L/∂x = g cosh x"""

    schema_v1 = OpSchema("sinh", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.sinh(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedMulBackward.of(grad_out, CoshBackward.of(self.x))]


@register
class CoshBackward(_Function):
    """y = cosh x      ∂L/∂x = g sinh x"""

    schema_v1 = OpSchema("cosh", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.cosh(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedMulBackward.of(grad_out, SinhBackward.of(self.x))]


@register
class TanhBackward(_Function):
    """y = tanh x      ∂L/∂x = g (1 - y²)"""

    schema_v1 = OpSchema("tanh", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesOutput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.tanh(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out * _one_minus_square(self.y)]


@register
class AsinhBackward(_Function):
    """y = arsinh x      ∂L/∂x = g / cosh y        (√(1 + x²) without the square, which overflows)"""

    schema_v1 = OpSchema("asinh", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesOutput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.arcsinh(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedDivBackward.of(grad_out, CoshBackward.of(self.y))]


@register
class AcoshBackward(_Function):
    """y = arcosh x      ∂L/∂x = g / (√(x - 1) √(x + 1))"""

    schema_v1 = OpSchema("acosh", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.arccosh(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        root = SqrtBackward.of(self.x - 1.0) * SqrtBackward.of(self.x + 1.0)
        return [MaskedDivBackward.of(grad_out, root)]


@register
class AtanhBackward(_Function):
    """y = artanh x      ∂L/∂x = g / (1 - x²)"""

    schema_v1 = OpSchema("atanh", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.arctanh(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [MaskedDivBackward.of(grad_out, _one_minus_square(self.x))]


# -- the error function

_ERF: Final = np.frompyfunc(math.erf, 1, 1)


@register
class ErfBackward(_Function):
    """y = 2/√π ∫₀ˣ e^(-t²) dt      ∂L/∂x = g 2/√π e^(-x²)"""

    schema_v1 = OpSchema("erf", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        super().check_dtype(dtype)
        refuse_complex("erf", dtype)

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return np.asarray(_ERF(x)).astype(np.float64)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out * (ExpBackward.of(-(self.x * self.x)) * (2.0 / math.sqrt(math.pi)))]
