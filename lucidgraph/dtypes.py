"""Element types, and how they combine.

Between arrays the table is MLX's (``mlx.core.result_type``), with complex128 added: float64 with complex64 gives
complex128, which MLX lacks. Python scalars are weak: they take the dtype of what they meet and never widen it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, final

import ml_dtypes
import numpy as np

from .errors import DTypeError

_ORDER = "biufc"


@final
class DType:
    """An element type. One object per type; equal to NumPy's and MLX's object of the same name.

    >>> float32 == np.float32, str(int64), bfloat16.itemsize
    (True, 'lucidgraph.int64', 2)
    """

    __slots__ = ("itemsize", "kind", "name", "numpy")

    name: str
    numpy: np.dtype[Any]
    kind: str
    itemsize: int

    def __init__(self, name: str, numpy_type: Any, kind: str) -> None:
        self.name = name
        self.numpy = np.dtype(numpy_type)
        self.kind = kind
        self.itemsize = self.numpy.itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        """What NumPy's functions look for: ``numpy.zeros(3, lucidgraph.float32)``."""
        return self.numpy

    @property
    def type(self) -> type[Any]:
        """NumPy's scalar type: ``x.dtype.type(0.5)``."""
        return self.numpy.type

    @property
    def is_bool(self) -> bool:
        return self.kind == "b"

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned integer; bool is not one."""
        return self.kind in "iu"

    @property
    def is_floating(self) -> bool:
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_inexact(self) -> bool:
        """Floating or complex: what a gradient can flow through."""
        return self.kind in "fc"

    @property
    def is_half(self) -> bool:
        return self.kind == "f" and self.itemsize == 2

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest integer that an integer or bool type holds."""
        if self.kind == "b":
            return 0, 1
        info = np.iinfo(self.numpy)
        return int(info.min), int(info.max)

    @property
    def largest(self) -> float:
        """The greatest finite number of a floating type.

        >>> float16.largest
        65504.0
        """
        return float(ml_dtypes.finfo(self.numpy).max)  # type: ignore[no-untyped-call]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        if isinstance(other, str):
            return False
        found = _find(other)
        return found is self

    def __hash__(self) -> int:
        return hash(self.numpy)

    def __repr__(self) -> str:
        return f"lucidgraph.{self.name}"

    def __str__(self) -> str:
        return f"lucidgraph.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return (from_name, (self.name,))


bool_: Final = DType("bool", np.bool_, "b")
int8: Final = DType("int8", np.int8, "i")
int16: Final = DType("int16", np.int16, "i")
int32: Final = DType("int32", np.int32, "i")
int64: Final = DType("int64", np.int64, "i")
uint8: Final = DType("uint8", np.uint8, "u")
uint16: Final = DType("uint16", np.uint16, "u")
uint32: Final = DType("uint32", np.uint32, "u")
uint64: Final = DType("uint64", np.uint64, "u")
float16: Final = DType("float16", np.float16, "f")
bfloat16: Final = DType("bfloat16", ml_dtypes.bfloat16, "f")
float32: Final = DType("float32", np.float32, "f")
float64: Final = DType("float64", np.float64, "f")
complex64: Final = DType("complex64", np.complex64, "c")
complex128: Final = DType("complex128", np.complex128, "c")

ALL: Final[tuple[DType, ...]] = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
DEFAULT_FLOAT: Final = float32
DEFAULT_INT: Final = int64
DEFAULT_COMPLEX: Final = complex64

_BY_NAME: Final = {d.name: d for d in ALL}
_BY_NUMPY: Final = {d.numpy: d for d in ALL}
_PYTHON: Final[dict[type, DType]] = {bool: bool_, int: DEFAULT_INT, float: DEFAULT_FLOAT, complex: DEFAULT_COMPLEX}
_SIGNIFICAND: Final = {float16: 11, bfloat16: 8, float32: 24, float64: 53}
_UNSIGNED_TO_SIGNED: Final = {1: int16, 2: int32, 4: int64}


def from_name(name: str) -> DType:
    try:
        return _BY_NAME[name]
    except KeyError:
        raise DTypeError(f"no dtype is called {name!r}", hint=f"one of {', '.join(_BY_NAME)}") from None


def _find(value: object) -> DType | None:
    kind = type(value)
    if kind.__module__ == "mlx.core":
        return _BY_NAME.get(str(value).rpartition(".")[2].rstrip("_"))
    if isinstance(value, np.dtype):
        return _BY_NUMPY.get(value if value.isnative else value.newbyteorder("="))
    if isinstance(value, type):
        if value in _PYTHON:
            return _PYTHON[value]
        if issubclass(value, np.generic) or value.__module__ == "ml_dtypes":
            try:
                return _BY_NUMPY.get(np.dtype(value))
            except TypeError:
                return None
    return None


def as_dtype(value: object) -> DType:
    """Our dtype for ours, NumPy's or MLX's object, a name, or Python's ``bool``, ``int``, ``float``, ``complex``.

    Raises :class:`DTypeError` for structured, object, datetime and unknown types.

    >>> as_dtype(np.float16), as_dtype("bfloat16"), as_dtype(int)
    (lucidgraph.float16, lucidgraph.bfloat16, lucidgraph.int64)
    """
    if isinstance(value, DType):
        return value
    found = _BY_NAME.get(value) if isinstance(value, str) else _find(value)
    if found is None and isinstance(value, str):
        try:
            found = _find(np.dtype(value))
        except TypeError:
            found = None
    if found is None:
        raise DTypeError(
            f"dtype {value!r} is not supported", hint=f"cast to one of {', '.join(_BY_NAME)} before the call"
        )
    return found


def promote_types(a: DType, b: DType) -> DType:
    """The dtype of an operation between arrays of dtypes ``a`` and ``b``.

    >>> promote_types(int8, uint8), promote_types(float16, bfloat16), promote_types(uint64, int8)
    (lucidgraph.int16, lucidgraph.float32, lucidgraph.float32)
    """
    if a is b:
        return a
    if _ORDER.index(a.kind) > _ORDER.index(b.kind):
        a, b = b, a
    if a.kind == "b":
        return b
    if a.kind == b.kind:
        if a.itemsize == b.itemsize:  # float16 with bfloat16
            return float32
        return a if a.itemsize > b.itemsize else b
    if b.kind == "u":  # signed with unsigned
        if b is uint64:
            return float32
        signed = _UNSIGNED_TO_SIGNED[b.itemsize]
        return a if a.itemsize > b.itemsize else signed
    if b.kind == "c" and a is float64:
        return complex128
    return b


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of ``narrow`` is a value of ``wide``.

    >>> holds(float32, bfloat16), holds(bfloat16, float16), holds(float16, uint8), holds(int64, uint64)
    (True, False, True, False)
    """
    if wide is narrow or narrow.is_bool:
        return True
    if narrow.is_inexact:
        if wide.is_complex:
            return holds(to_real(wide), to_real(narrow))
        return wide.is_floating and narrow.is_floating and narrow.itemsize < wide.itemsize
    if wide.is_integer:
        return narrow.itemsize < wide.itemsize and wide.kind in ("i", narrow.kind)
    bits = 8 * narrow.itemsize - (narrow.kind == "i")
    return wide.is_inexact and bits <= _SIGNIFICAND[to_real(wide)]


def is_lossy_pair(a: DType, b: DType) -> bool:
    """Whether the promotion of two integer dtypes gives a float that cannot hold them."""
    return a.kind in "iu" and b.kind in "iu" and promote_types(a, b).kind == "f"


def weak_kind_dtype(kind: str) -> DType:
    """The default dtype of a Python scalar of this kind, when it meets no array."""
    return {"b": bool_, "i": DEFAULT_INT, "f": DEFAULT_FLOAT, "c": DEFAULT_COMPLEX}[kind]


def with_scalar(dtype: DType, kind: str) -> DType:
    """The dtype of an operation between an array of ``dtype`` and a Python scalar of kind ``b``, ``i``, ``f`` or ``c``.

    >>> with_scalar(float16, "f"), with_scalar(int8, "i"), with_scalar(int8, "f"), with_scalar(float64, "c")
    (lucidgraph.float16, lucidgraph.int8, lucidgraph.float32, lucidgraph.complex128)
    """
    have = "i" if dtype.kind == "u" else dtype.kind
    if "bifc".index(kind) <= "bifc".index(have):
        return dtype
    if kind == "c":
        return complex128 if dtype is float64 else complex64
    return weak_kind_dtype(kind)


def result_type(strong: Iterable[DType], weak: Iterable[str] = ()) -> DType:
    """The common dtype of arrays (``strong``) and Python scalars (``weak`` kinds)."""
    result: DType | None = None
    for dtype in strong:
        result = dtype if result is None else promote_types(result, dtype)
    kinds = sorted(weak, key="bifc".index)
    if result is None:
        return weak_kind_dtype(kinds[-1])
    return with_scalar(result, kinds[-1]) if kinds else result


def to_real(dtype: DType) -> DType:
    """The floating type of a complex type's parts; other types are returned as they are."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def accumulator(dtype: DType) -> DType:
    """The dtype in which sums and products of integers are taken: int64, uint64 for unsigned; others unchanged."""
    if dtype.kind in "bi":
        return int64
    return uint64 if dtype.kind == "u" else dtype
