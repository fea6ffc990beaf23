"""Composites of neural networks whose gradients are better than their expansions': softmax, normalisation, losses.

All compute half precision in float32, gradients as well, and round once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from ...dtypes import DType, float32, int64
from ...errors import AxisError, DTypeError, ShapeError
from ..builder import Var
from ..op import ZERO, Composite, Elementwise, Gradient, Types, register
from ..schema import AmpPolicy, OpSchema
from ..types import TensorType
from .arithmetic import MaskedMulBackward, WhereBackward
from .creation import counted
from .linalg import MatmulBackward, check_contraction, stacked_rows
from .reduce import Axes, MaxBackward, MeanBackward, Reduction, reduced_shape


def _wide(v: Var) -> Var:
    return v.astype(float32) if v.dtype.is_half else v


class Float32Composite(Composite):
    """Base of composites whose own gradient is taken in float32 where operands are half precision."""

    takes_wide_gradient = True

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        pairs = zip(self.wide_gradient(_wide(grad_out)), self.in_types, strict=True)
        return [g.astype(t.dtype) if isinstance(g, Var) else g for g, t in pairs]

    def wide_gradient(self, g: Var) -> list[Gradient]:
        """``grad_formula`` in float32 or wider, over ``wide_inputs`` and ``wide_y``."""
        raise TypeError("wide_gradient is missing")

    @classmethod
    def flops(cls, types: Sequence[TensorType], results: Types, attrs: Any) -> int:
        return cls.flops_per_element * types[0].size

    @property
    def wide_inputs(self) -> tuple[Var, ...]:
        return tuple(map(_wide, self.inputs))

    @property
    def wide_y(self) -> Var:
        return _wide(self.y)

    @classmethod
    def check_real(cls, *types: TensorType) -> None:
        """Raise :class:`DTypeError` unless all are of one floating dtype."""
        name = cls.schema_v1.name
        if not all(t.dtype.is_floating for t in types):
            raise DTypeError(f"{name} takes floating operands, not {' and '.join(map(str, types))}")
        if len({t.dtype for t in types}) > 1:
            raise DTypeError(f"{name} needs equal dtypes, not {' and '.join(map(str, types))}")


def _check_axis(name: str, x: TensorType, axis: int) -> None:
    if not 0 <= axis < x.ndim:
        raise AxisError(f"{name} along axis {axis} of {x}: an axis from 0 to {x.ndim - 1}")


def _shifted(x: Var, axis: int) -> Var:
    """``x`` less its maximum along ``axis``."""
    return x - MaxBackward.of(x, axis=(axis,), keepdims=True)


@register
class SoftmaxBackward(Float32Composite):
    """y = exp(x - max x) / Σ exp(x - max x)      ∂L/∂x = y (g - Σ g y)

    NaN along an axis that holds nothing but -∞.
    """

    schema_v1 = OpSchema("softmax", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesOutput = True
    flops_per_element = 5

    @classmethod
    def infer(cls, x: TensorType, *, axis: int) -> TensorType:  # type: ignore[override]
        cls.check_real(x)
        _check_axis("softmax", x, axis)
        return TensorType(x.shape, x.dtype)

    @staticmethod
    def expand(x: Var, *, axis: int) -> Var:  # type: ignore[override]
        if not x.size:
            return x
        e = _shifted(x, axis).emit("exp")
        return e / e.sum((axis,), keepdims=True)

    def wide_gradient(self, g: Var) -> list[Gradient]:
        y, axis = self.wide_y, (self.attrs["axis"],)
        return [MaskedMulBackward.of(g - MaskedMulBackward.of(g, y).sum(axis, keepdims=True), y)]


@register
class LogSoftmaxBackward(Float32Composite):
    """y = x - max x - log Σ exp(x - max x)      ∂L/∂x = g - exp(y) Σ g"""

    schema_v1 = OpSchema("log_softmax", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesOutput = True
    flops_per_element = 5

    @classmethod
    def infer(cls, x: TensorType, *, axis: int) -> TensorType:  # type: ignore[override]
        cls.check_real(x)
        _check_axis("log_softmax", x, axis)
        return TensorType(x.shape, x.dtype)

    @staticmethod
    def expand(x: Var, *, axis: int) -> Var:  # type: ignore[override]
        if not x.size:
            return x
        s = _shifted(x, axis)
        return s - s.emit("exp").sum((axis,), keepdims=True).emit("log")

    def wide_gradient(self, g: Var) -> list[Gradient]:
        total = g.sum((self.attrs["axis"],), keepdims=True).broadcast_to(g.shape)
        return [g - MaskedMulBackward.of(total, self.wide_y.emit("exp"))]


@register
class LogSumExpBackward(Float32Composite):
    """y = log Σ_{i ∈ axes} exp(x_i)      ∂L/∂x_i = g exp(x_i - y)

    -∞, with gradient 0, where all elements are -∞ or there are none.
    """

    schema_v1 = OpSchema("logsumexp", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True
    kSavesOutput = True
    flops_per_element = 4

    @classmethod
    def infer(cls, x: TensorType, *, axis: Axes, keepdims: bool) -> TensorType:  # type: ignore[override]
        cls.check_real(x)
        Reduction.check.__func__(cls, x, axis)  # type: ignore[attr-defined]
        return TensorType(reduced_shape(x.shape, axis, keepdims), x.dtype)

    @staticmethod
    def expand(x: Var, *, axis: Axes, keepdims: bool) -> Var:  # type: ignore[override]
        if not axis:
            return x
        if not x.size:
            return x.scalar(-inf).broadcast_to(reduced_shape(x.shape, axis, keepdims))
        top = MaxBackward.of(x, axis=axis, keepdims=True)
        # An infinite maximum is not subtracted: ∞ - ∞ is NaN.
        top = WhereBackward.of(top.emit("isfinite"), top, top.full(0.0))
        y = (x - top).emit("exp").sum(axis, keepdims=True).emit("log") + top
        return y if keepdims else y.squeeze(axis)

    def wide_gradient(self, g: Var) -> list[Gradient]:
        (x,), y = self.wide_inputs, self.wide_y
        if not self.attrs["keepdims"]:
            g, y = (v.expand_dims(self.attrs["axis"]) for v in (g, y))
        y = WhereBackward.of(y == y.full(-inf), y.full(0.0), y)
        return [MaskedMulBackward.of(g.broadcast_to(x.shape), (x - y).emit("exp"))]


@register
class StandardizeBackward(Float32Composite):
    """y = (x - m) r, m = mean x, r = 1/√(var x + eps), over ``axis``      ∂L/∂x = r (g - mean g - y mean(g y))

    The variance is the mean of (x - m)², so that large offsets lose nothing.
    """

    schema_v1 = OpSchema("standardize", amp_policy=AmpPolicy.FORCE_FP32)
    kSavesInput = True
    kSavesOutput = True
    flops_per_element = 5

    @classmethod
    def infer(cls, x: TensorType, *, axis: Axes, eps: float) -> TensorType:  # type: ignore[override]
        cls.check_real(x)
        Reduction.check.__func__(cls, x, axis)  # type: ignore[attr-defined]
        return TensorType(x.shape, x.dtype)

    @staticmethod
    def expand(x: Var, *, axis: Axes, eps: float) -> Var:  # type: ignore[override]
        centred, scale = _centred(x, axis, eps)
        return centred * scale

    def wide_gradient(self, g: Var) -> list[Gradient]:
        return [standardize_gradient(self.wide_inputs[0], self.wide_y, g, **self.attrs)]


def _centred(x: Var, axis: Axes, eps: float) -> tuple[Var, Var]:
    centred = x - MeanBackward.of(x, axis=axis, keepdims=True)
    variance = MeanBackward.of(centred * centred, axis=axis, keepdims=True)
    return centred, (variance + eps).emit("rsqrt")


def standardize_gradient(x: Var, y: Var, g: Var, *, axis: Axes, eps: float) -> Var:
    """The gradient of y = standardize(x), given y's."""
    scale = _centred(x, axis, eps)[1]
    along = MeanBackward.of(g * y, axis=axis, keepdims=True)
    return scale * (g - MeanBackward.of(g, axis=axis, keepdims=True) - y * along)


@register
class LayerNormBackward(Float32Composite):
    """y = n w + b with n = (x - mean x)/√(var x + eps) over the last axis

    ∂L/∂w = Σ g n, ∂L/∂b = Σ g over all but the last axis, ∂L/∂x as for n with gradient g w
    """

    schema_v1 = OpSchema("layer_norm", amp_policy=AmpPolicy.FORCE_FP32, arity=None)
    kSavesInput = ("x", "weight")
    flops_per_element = 7

    @classmethod
    def infer(  # type: ignore[override]
        cls, x: TensorType, weight: TensorType | None = None, bias: TensorType | None = None, /,
        *, eps: float, has_weight: bool, has_bias: bool,
    ) -> TensorType:  # fmt: skip
        given = [t for t in (weight, bias) if t is not None]
        if len(given) != has_weight + has_bias or has_bias > has_weight:
            raise ShapeError(f"layer_norm takes x, then a weight, then a bias to it; not {1 + len(given)} operands")
        return _check_affine(cls, x, *given)

    @staticmethod
    def expand(x: Var, *affine: Var, eps: float, has_weight: bool, has_bias: bool) -> Var:  # type: ignore[override]
        y = StandardizeBackward.of(x, axis=(x.ndim - 1,), eps=eps)
        if has_weight:
            y = y * affine[0]
        return y + affine[1] if has_bias else y

    def wide_gradient(self, g: Var) -> list[Gradient]:
        # The bias is not read.
        x, *weight = map(_wide, self.inputs[:2])
        axis, eps = (x.ndim - 1,), self.attrs["eps"]
        n = StandardizeBackward.of(x, axis=axis, eps=eps)
        scaled = g * weight[0] if weight else g
        to_x = standardize_gradient(x, n, scaled, axis=axis, eps=eps)
        batch = tuple(range(g.ndim - 1))
        to_weight = [(g * n).sum(batch)] if weight else []
        return [to_x, *to_weight, *([g.sum(batch)] if self.attrs["has_bias"] else [])]


@register
class RMSNormBackward(Float32Composite):
    """y = n w with n = x r, r = 1/√(mean x² + eps) over the last axis

    ∂L/∂w = Σ g n over all but the last axis, ∂L/∂x = r (g w - n mean(g w n))
    """

    schema_v1 = OpSchema("rms_norm", amp_policy=AmpPolicy.FORCE_FP32, arity=None)
    kSavesInput = True
    flops_per_element = 4

    @classmethod
    def infer(  # type: ignore[override]
        cls, x: TensorType, weight: TensorType | None = None, /, *, eps: float, has_weight: bool
    ) -> TensorType:
        if has_weight is not (weight is not None):
            raise ShapeError(f"rms_norm with has_weight={has_weight} takes {1 + has_weight} operands")
        return _check_affine(cls, x, *([] if weight is None else [weight]))

    @staticmethod
    def expand(x: Var, *weight: Var, eps: float, has_weight: bool) -> Var:  # type: ignore[override]
        y = x * _root_mean_square(x, eps)
        return y * weight[0] if has_weight else y

    def wide_gradient(self, g: Var) -> list[Gradient]:
        x, *weight = self.wide_inputs
        scale = _root_mean_square(x, self.attrs["eps"])
        n = x * scale
        scaled = g * weight[0] if weight else g
        to_x = scale * (scaled - n * MeanBackward.of(scaled * n, axis=(x.ndim - 1,), keepdims=True))
        return [to_x, *((g * n).sum(tuple(range(g.ndim - 1))) for _ in weight)]


def _root_mean_square(x: Var, eps: float) -> Var:
    """1/√(mean x² + eps) over the last axis, which is kept."""
    return (MeanBackward.of(x * x, axis=(x.ndim - 1,), keepdims=True) + eps).emit("rsqrt")


def _check_affine(op: type[Float32Composite], x: TensorType, *affine: TensorType) -> TensorType:
    name = op.schema_v1.name
    op.check_real(x, *affine)
    if not x.ndim:
        raise ShapeError(f"{name} works along the last axis, {x} has none")
    for t in affine:
        if t.shape != x.shape[-1:]:
            raise ShapeError(f"{name} of {x} with {t}: weight and bias are of shape {x.shape[-1:]}")
    return TensorType(x.shape, x.dtype)


@register
class LinearBackward(Composite):
    """y = x wᵀ + b with w of shape (outputs, inputs)

    ∂L/∂x = g w, ∂L/∂w = gᵀ x and ∂L/∂b = Σ g over the flattened batch
    """

    schema_v1 = OpSchema("linear", amp_policy=AmpPolicy.PROMOTE, contraction=True, arity=None)
    kSavesInput = ("x", "weight")

    @classmethod
    def infer(  # type: ignore[override]
        cls, x: TensorType, weight: TensorType, bias: TensorType | None = None, /
    ) -> TensorType:
        check_contraction("linear", [t for t in (x, weight, bias) if t is not None])
        if x.ndim < 1 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
            raise ShapeError(
                f"linear of {x} with the weight {weight}: x is (…, inputs), the weight (outputs, inputs)",
                hint="transpose the weight",
            )
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ShapeError(f"linear with the weight {weight} has a bias of shape {weight.shape[:1]}, not {bias}")
        return TensorType((*x.shape[:-1], weight.shape[0]), x.dtype)

    @staticmethod
    def expand(x: Var, weight: Var, *bias: Var) -> Var:  # type: ignore[override]
        rows = x.expand_dims((0,)) if x.ndim == 1 else x
        y = MatmulBackward.of(rows, weight.swap_last())
        y = y.squeeze((0,)) if x.ndim == 1 else y
        return y + bias[0] if bias else y

    @classmethod
    def flops(cls, types: Any, results: Types, attrs: Any) -> int:
        return int(2 * types[1].shape[1] * results[0].size)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        x, weight = self.inputs[:2]
        g = stacked_rows(grad_out)
        to_x = MatmulBackward.of(g, weight).reshape(x.shape)
        to_weight = MatmulBackward.of(g.swap_last(), stacked_rows(x))
        return [to_x, to_weight, *(g.sum((0,)) for _ in self.inputs[2:])]


@register
class CrossEntropyBackward(Float32Composite):
    """y = -Σ_c q_c log_softmax(x)_c over ``axis``
    ∂L/∂x = g (softmax(x) Σ q - q), ∂L/∂p = -g (1 - s) log_softmax(x)

    q = (1 - s) p + s/C smooths the targets by s = ``label_smoothing``. ``targets`` are the probabilities p, of x's
    shape, or the integer classes where p is 1, of x's shape without ``axis`` (negative ones count from the end).
    """

    schema_v1 = OpSchema("cross_entropy", amp_policy=AmpPolicy.FORCE_FP32, arity=2)
    kSavesInput = True
    flops_per_element = 5

    @classmethod
    def promoted(cls, types: Types, attrs: Any, policy: DType | None) -> tuple[DType, ...]:
        logits, targets = types
        if targets.ndim == logits.ndim:
            return super().promoted(types, attrs, policy)
        return (*super().promoted(types[:1], attrs, policy), targets.user_dtype)

    @classmethod
    def infer(  # type: ignore[override]
        cls, logits: TensorType, targets: TensorType, *, axis: int, label_smoothing: float
    ) -> TensorType:
        _check_axis("cross_entropy", logits, axis)
        shape = reduced_shape(logits.shape, (axis,), False)
        if targets.shape == logits.shape:
            cls.check_real(logits, targets)
        elif targets.shape == shape:
            cls.check_real(logits)
            if not targets.dtype.is_integer:
                raise DTypeError(f"classes are integers, not {targets}; probabilities have shape {logits.shape}")
        else:
            raise ShapeError(
                f"cross_entropy of {logits} along axis {axis} with targets {targets}: "
                f"classes have shape {shape}, probabilities {logits.shape}"
            )
        if not logits.shape[axis]:
            raise ShapeError(f"cross_entropy of {logits} along axis {axis}: there are no classes")
        return TensorType(shape, logits.dtype)

    @staticmethod
    def expand(logits: Var, targets: Var, *, axis: int, label_smoothing: float) -> Var:  # type: ignore[override]
        if targets.ndim == logits.ndim:
            q = _smoothed(targets, axis, label_smoothing)
            return -MaskedMulBackward.of(q, LogSoftmaxBackward.of(logits, axis=axis)).sum((axis,))
        s = _shifted(logits, axis)
        y = s.emit("exp").sum((axis,)).emit("log")
        score = s.emit("take_along_axis", targets.expand_dims((axis,)), axis=axis).squeeze((axis,))
        if label_smoothing:
            score = score * (1.0 - label_smoothing) + MeanBackward.of(s, axis=(axis,), keepdims=False) * label_smoothing
        return y - score

    def wide_gradient(self, g: Var) -> list[Gradient]:
        logits, targets = self.wide_inputs
        axis, smoothing = self.attrs["axis"], self.attrs["label_smoothing"]
        g = g.expand_dims((axis,)).broadcast_to(logits.shape)
        soft = targets.ndim == logits.ndim
        q = _smoothed(targets if soft else one_hot(targets, axis, logits), axis, smoothing)
        y = SoftmaxBackward.of(logits, axis=axis)
        if not soft:
            return [MaskedMulBackward.of(g, y - q), ZERO]
        to_logits = MaskedMulBackward.of(g, y * q.sum((axis,), keepdims=True) - q)
        return [to_logits, -MaskedMulBackward.of(g * (1.0 - smoothing), LogSoftmaxBackward.of(logits, axis=axis))]


def _smoothed(p: Var, axis: int, smoothing: float) -> Var:
    return p * (1.0 - smoothing) + smoothing / p.shape[axis] if smoothing else p


def one_hot(classes: Var, axis: int, like: Var) -> Var:
    """1 at the classes along ``axis`` and 0 elsewhere, of ``like``'s shape and dtype."""
    count = like.shape[axis]
    wide = classes.astype(int64)
    wide = WhereBackward.of(wide < 0, wide + count, wide).expand_dims((axis,))
    numbers = counted(like, count).reshape(tuple(count if k == axis else 1 for k in range(like.ndim)))
    return (wide == numbers).astype(like.dtype)


@register
class BinaryCrossEntropyBackward(Float32Composite, Elementwise):
    """y = max(x, 0) - x t + log(1 + exp(-|x|)), of logits x with targets t      ∂L/∂x = g (σ(x) - t), ∂L/∂t = -g x"""

    schema_v1 = OpSchema("bce_with_logits", amp_policy=AmpPolicy.FORCE_FP32, arity=2)
    kSavesInput = True
    flops_per_element = 7

    @classmethod
    def infer(cls, logits: TensorType, targets: TensorType) -> TensorType:  # type: ignore[override]
        cls.check_real(logits, targets)
        if logits.shape != targets.shape:
            raise ShapeError(f"bce_with_logits needs equal shapes, not {logits} and {targets}")
        return TensorType(logits.shape, logits.dtype)

    @staticmethod
    def expand(logits: Var, targets: Var) -> Var:  # type: ignore[override]
        x = logits
        return x.binary("maximum", 0.0) - x * targets + (-x.emit("abs")).emit("exp").emit("log1p")

    def wide_gradient(self, g: Var) -> list[Gradient]:
        x, t = self.wide_inputs
        return [g * (x.emit("sigmoid") - t), -(g * x)]
