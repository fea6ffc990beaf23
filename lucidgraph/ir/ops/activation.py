"""Activations: sigmoid, and functions written out in others.

Where a composite's expansion has a poor gradient (at a kink, or through numbers that overflow), it states its own.
``where(x > 0, 0, x)`` keeps a branch that is not taken from overflowing, and its gradient from being NaN.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ...dtypes import DType
from ..builder import Var
from ..op import ElementwiseComposite, Gradient, Unary, register
from ..schema import AmpPolicy, OpSchema
from ..types import TensorType
from .arithmetic import AbsBackward, MaskedMulBackward, MaximumBackward, MinimumBackward, WhereBackward
from .math import (
    ErfBackward,
    ExpBackward,
    Expm1Backward,
    Log1pBackward,
    TanhBackward,
    in_float32,
    refuse_complex,
)  # fmt: skip

SELU_ALPHA: Final = 1.6732632423543772
SELU_SCALE: Final = 1.0507009873554805


@register
class SigmoidBackward(Unary):
    """y = 1/(1 + e^(-x))      ∂L/∂x = g y (1 - y)"""

    schema_v1 = OpSchema("sigmoid", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    work = 22
    kSavesOutput = True

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        super().check_dtype(dtype)
        refuse_complex("sigmoid", dtype)

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        small = np.exp(-np.abs(x))
        return np.where(x < 0, small, np.ones_like(small)) / (1 + small)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out * (self.y * (1.0 - self.y))]


class _Activation(ElementwiseComposite):
    """Base of composites of one real operand."""

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        super().check_dtype(dtype)
        refuse_complex(cls.schema_v1.name, dtype)

    @classmethod
    def infer(cls, x: TensorType, **attrs: float) -> TensorType:  # type: ignore[override]
        return super().infer(x)


# -- made of straight lines


@register
class ReluBackward(_Activation):
    """y = max(x, 0)      ∂L/∂x = g [y > 0]        From the result, which the next layer keeps anyway."""

    schema_v1 = OpSchema("relu")
    kSavesOutput = True
    idempotent = True

    @staticmethod
    def expand(x: Var) -> Var:  # type: ignore[override]
        return MaximumBackward.of(x, x.full(0))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [WhereBackward.of(self.y > 0.0, grad_out, grad_out.full(0.0))]


@register
class Relu6Backward(_Activation):
    """y = min(max(x, 0), 6)      ∂L/∂x = g [0 < y < 6]"""

    schema_v1 = OpSchema("relu6")
    kSavesOutput = True
    idempotent = True

    @staticmethod
    def expand(x: Var) -> Var:  # type: ignore[override]
        return MinimumBackward.of(MaximumBackward.of(x, x.full(0)), x.full(6))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        inside = (self.y > 0.0) & (self.y < 6.0)
        return [WhereBackward.of(inside, grad_out, grad_out.full(0.0))]


@register
class LeakyReluBackward(_Activation):
    """y = x where x > 0, else slope x      ∂L/∂x = g where x > 0, else slope g"""

    schema_v1 = OpSchema("leaky_relu", real_valued=True)
    kSavesInput = True

    @staticmethod
    def expand(x: Var, *, negative_slope: float) -> Var:  # type: ignore[override]
        return WhereBackward.of(x > 0.0, x, x * negative_slope)


@register
class HardTanhBackward(_Activation):
    """y = min(max(x, low), high)      ∂L/∂x = g [low < x < high]"""

    schema_v1 = OpSchema("hard_tanh", real_valued=True)
    kSavesInput = True

    @staticmethod
    def expand(x: Var, *, min_val: float, max_val: float) -> Var:  # type: ignore[override]
        return MinimumBackward.of(MaximumBackward.of(x, x.full(min_val)), x.full(max_val))


@register
class HardSigmoidBackward(_Activation):
    """y = min(max(x + 3, 0), 6) / 6      ∂L/∂x = g/6 [-3 < x < 3]"""

    schema_v1 = OpSchema("hard_sigmoid", real_valued=True)
    kSavesInput = True

    @staticmethod
    def expand(x: Var) -> Var:  # type: ignore[override]
        return Relu6Backward.of(x + 3.0) * (1.0 / 6.0)


@register
class HardSwishBackward(_Activation):
    """y = x min(max(x + 3, 0), 6) / 6      ∂L/∂x = g (h + x/6 [-3 < x < 3]), h = hard_sigmoid(x)"""

    schema_v1 = OpSchema("hard_swish", real_valued=True)
    kSavesInput = True

    @staticmethod
    def expand(x: Var) -> Var:  # type: ignore[override]
        return x * HardSigmoidBackward.of(x)


@register
class SoftsignBackward(_Activation):
    """y = x / (1 + |x|)      ∂L/∂x = g / (1 + |x|)²"""

    schema_v1 = OpSchema("softsign", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @staticmethod
    def expand(x: Var) -> Var:  # type: ignore[override]
        return x / (AbsBackward.of(x) + 1.0)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        scale = AbsBackward.of(self.x) + 1.0
        return [grad_out / scale / scale]


# -- made of exponentials


@register
class EluBackward(_Activation):
    """y = x where x > 0, else α (e^x - 1)      ∂L/∂x = g where x > 0, else g α e^x"""

    schema_v1 = OpSchema("elu", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True

    @staticmethod
    def expand(x: Var, *, alpha: float) -> Var:  # type: ignore[override]
        return WhereBackward.of(x > 0.0, x, Expm1Backward.of(_not_positive(x)) * alpha)


@register
class SeluBackward(_Activation):
    """y = λ elu(x, α) with λ = 1.0507…, α = 1.6732…, which keep mean 0 and variance 1"""

    schema_v1 = OpSchema("selu", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True

    @staticmethod
    def expand(x: Var) -> Var:  # type: ignore[override]
        return EluBackward.of(x, alpha=SELU_ALPHA) * SELU_SCALE


@register
class CeluBackward(_Activation):
    """y = x where x > 0, else α (e^(x/α) - 1)      ∂L/∂x = g where x > 0, else g e^(x/α)"""

    schema_v1 = OpSchema("celu", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True

    @staticmethod
    def expand(x: Var, *, alpha: float) -> Var:  # type: ignore[override]
        return WhereBackward.of(x > 0.0, x, Expm1Backward.of(_not_positive(x) / alpha) * alpha)


def _not_positive(x: Var) -> Var:
    return WhereBackward.of(x > 0.0, x.full(0.0), x)


@register
class SoftplusBackward(_Activation):
    """y = ln(1 + e^x)      ∂L/∂x = g σ(x)"""

    schema_v1 = OpSchema("softplus", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True

    @staticmethod
    def expand(x: Var) -> Var:  # type: ignore[override]
        return MaximumBackward.of(x, x.full(0.0)) + Log1pBackward.of(ExpBackward.of(-AbsBackward.of(x)))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        g, x = in_float32(grad_out), in_float32(self.x)
        return [(g * SigmoidBackward.of(x)).astype(grad_out.dtype)]


@register
class LogSigmoidBackward(_Activation):
    """y = ln σ(x) = -softplus(-x)      ∂L/∂x = g σ(-x)"""

    schema_v1 = OpSchema("log_sigmoid", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True

    @staticmethod
    def expand(x: Var) -> Var:  # type: ignore[override]
        return MinimumBackward.of(x, x.full(0.0)) - Log1pBackward.of(ExpBackward.of(-AbsBackward.of(x)))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        g, x = in_float32(grad_out), in_float32(self.x)
        return [(g * SigmoidBackward.of(-x)).astype(grad_out.dtype)]


@register
class SiluBackward(_Activation):
    """y = x σ(x)      ∂L/∂x = g σ (1 + x (1 - σ))"""

    schema_v1 = OpSchema("silu", amp_policy=AmpPolicy.PROMOTE, real_valued=True)
    kSavesInput = True

    @staticmethod
    def expand(x: Var) -> Var:  # type: ignore[override]
        return x * SigmoidBackward.of(x)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        sigma = SigmoidBackward.of(self.x)
        return [grad_out * (sigma * (self.x * (1.0 - sigma) + 1.0))]


@register
class MishBackward(_Activation):
    """y = x tanh(softplus(x))      ∂L/∂x = g (t + x σ(x) (1 - t²)), t = tanh(softplus(x))"""

    schema_v1 = OpSchema("mish", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True

    @staticmethod
    def expand(x: Var) -> Var:  # type: ignore[override]
        return x * TanhBackward.of(SoftplusBackward.of(x))


@register
class GeluBackward(_Activation):
    """y = x Φ(x), Φ(x) = (1 + erf(x/√2)) / 2      ∂L/∂x = g (Φ(x) + x φ(x)), φ(x) = e^(-x²/2) / √2π

    With ``approximate="tanh"``, Φ(x) = (1 + tanh u) / 2 with u = √(2/π) (x + 0.044715 x³), and
    ∂L/∂x = g (Φ(x) + x (1 - tanh² u) u' / 2).
    """

    schema_v1 = OpSchema("gelu", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True
    cubic = 0.044715
    scale = math.sqrt(2.0 / math.pi)

    @classmethod
    def infer(cls, x: TensorType, *, approximate: str) -> TensorType:  # type: ignore[override]
        return super().infer(x)

    @staticmethod
    def expand(x: Var, *, approximate: str) -> Var:  # type: ignore[override]
        return x * GeluBackward.cdf(x, approximate)

    @classmethod
    def cdf(cls, x: Var, approximate: str) -> Var:
        """Φ(x)."""
        edge = ErfBackward.of(x * math.sqrt(0.5)) if approximate == "none" else cls.tanh(x)
        return (edge + 1.0) * 0.5

    @classmethod
    def tanh(cls, x: Var) -> Var:
        return TanhBackward.of(x * (x * x * (cls.scale * cls.cubic) + cls.scale))

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        g, x = in_float32(grad_out), in_float32(self.x)
        if self.attrs["approximate"] == "none":
            density = ExpBackward.of(x * x * -0.5) * (1.0 / math.sqrt(2.0 * math.pi))
            slope = self.cdf(x, "none") + x * density
        else:
            t = self.tanh(x)
            u_slope = x * x * (3.0 * self.scale * self.cubic) + self.scale
            # Masked: far out 1 - t² is 0 while u' overflows.
            bend = MaskedMulBackward.of((1.0 - t) * (1.0 + t), x * u_slope)
            slope = (t + 1.0 + bend) * 0.5
        return [(g * slope).astype(grad_out.dtype)]
