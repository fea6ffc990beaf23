"""Arrays made of nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import DType, bool_, int64
from ...errors import DTypeError, ShapeError
from ..builder import Var
from ..op import Op, register
from ..schema import OpSchema
from ..types import TensorType


@register
class Arange(Op):
    """y_k = start + k step for k < size, taken in 64 bits and rounded to ``dtype`` once; integers wrap."""

    schema_v1 = OpSchema("arange", arity=0)
    zero_gradient = "it has no operands"

    @classmethod
    def infer(cls, *, start: float, step: float, size: int, dtype: DType) -> TensorType:
        if size < 0:
            raise ShapeError(f"arange of size {size}")
        if dtype is bool_:
            raise DTypeError("arange has no meaning for booleans", hint="cast the result")
        return TensorType((size,), dtype)

    @classmethod
    def evaluate(cls, *, start: float, step: float, size: int, dtype: DType) -> Any:
        if isinstance(start, int) and isinstance(step, int) and dtype.is_integer:
            # Modulo 2**64, which is exact for every integer dtype.
            first, by = (np.uint64(v % 2**64) for v in (start, step))
            return (first + np.arange(size, dtype=np.uint64) * by).astype(dtype.numpy)
        return (float(start) + np.arange(size, dtype=np.float64) * float(step)).astype(dtype.numpy)


def counted(like: Var, count: int) -> Var:
    """0, 1, … up to ``count`` as int64, in the builder of ``like``."""
    from_zero = {"start": 0, "step": 1, "size": count, "dtype": int64}
    return Var(like.builder, like.builder.emit(Arange, (), from_zero))
