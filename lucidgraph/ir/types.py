"""What is known of a value before it exists: its shape and dtype."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..dtypes import DType, bool_, complex128, float64, int64, weak_kind_dtype

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and dtype of a value. ``weak`` marks a Python scalar, or what was computed from Python scalars alone:
    it is held at Python's own width (int64, float64, complex128) and takes the dtype of the arrays it meets."""

    shape: Shape
    dtype: DType
    weak: bool = False

    def __str__(self) -> str:
        return f"{'~' if self.weak else ''}{self.dtype.name}[{','.join(map(str, self.shape))}]"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def user_dtype(self) -> DType:
        """The dtype that a user sees: a weak type's default."""
        return weak_kind_dtype(self.dtype.kind) if self.weak else self.dtype

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(self.shape, dtype)

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(shape, self.dtype)


_WEAK = {
    bool: TensorType((), bool_),
    int: TensorType((), int64, weak=True),
    float: TensorType((), float64, weak=True),
    complex: TensorType((), complex128, weak=True),
}
Scalar = bool | int | float | complex


def scalar_type(value: Scalar) -> TensorType:
    """The type of a Python scalar: weak, but for bool, which widens nothing anyway."""
    return _WEAK[type(value)]
