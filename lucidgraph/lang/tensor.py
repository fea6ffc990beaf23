"""The deferred array.

Outside a trace a :class:`Tensor` is a node whose value is computed when it is needed; inside one it is a tracer.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, final

import numpy as np

from .. import dtypes, sources
from ..dtypes import DType, as_dtype
from ..errors import (
    ConcretizationError,
    DTypeError,
    LeakedTracerError,
    LucidGraphError,
    ShapeError,
    UnsupportedError,
)  # fmt: skip
from ..ir import CapturedArray, Node, Op, TensorType
from ..ir.op import get
from ..ir.ops.core import Captured, CastBackward, Constant
from ..ir.types import Shape
from .deferred import HOOKS, bound_history, evaluate, has_value, pending, remember, value_of
from .recording import STATE, Strayed, Trace, captured_node, constant_node, current_trace, record, scalar_node

_SCALARS = (bool, int, float, complex)
_HINT = (
    "lucidgraph.where or lucidgraph.cond for a choice, lucidgraph.debug_print to look at it, static_argnames for an "
    "argument that shapes the program"
)
_INTO_NUMPY = (
    "numpy.zeros_like(x) or lucidgraph.zeros(shape) for an array to write traced values into; numpy's functions take "
    "the tensor itself"
)


def is_mlx(value: object) -> bool:
    """Whether a value is an MLX array, without importing MLX."""
    kind = type(value)
    return kind.__module__ == "mlx.core" and kind.__name__ == "array"


def is_array(value: object) -> bool:
    """Whether a value is an array of ours, NumPy's (scalars included) or MLX's."""
    return isinstance(value, Tensor | np.ndarray | np.generic) or is_mlx(value)


def array_type(value: Any) -> TensorType:
    """The type of a NumPy or MLX array. Raises :class:`DTypeError` for dtypes that do not compute."""
    if is_mlx(value):
        return TensorType(tuple(value.shape), as_dtype(value.dtype))
    # Where nobody has loaded NumPy's masked arrays, which takes a while, there are none.
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise DTypeError("masked arrays do not compute: the mask would be lost", hint="x.filled(value), or where")
    try:
        return TensorType(value.shape, as_dtype(value.dtype))
    except DTypeError:
        raise DTypeError(
            f"arrays of dtype {value.dtype} do not compute",
            hint="numeric and boolean arrays do; convert before the call",
        ) from None


if TYPE_CHECKING:

    def _operator(self: Any, other: Any) -> Tensor: ...
    def _attached(self: Any, *args: Any, **kwargs: Any) -> Tensor: ...


@final
class Tensor:
    """An array whose operations are recorded; made by :func:`asarray` and by operations.

    >>> import lucidgraph as lg
    >>> (lg.asarray([1.0, 2.0]) * 3).tolist()
    [3.0, 6.0]
    """

    __slots__ = ("__weakref__", "_bases", "_node", "_trace", "_writes")
    __array_priority__ = 1000

    _node: Node
    _trace: Trace | None
    _bases: tuple[weakref.ref[Tensor], ...]
    """While tracing: what NumPy would have this one be a view of."""
    _writes: int
    """How often this object was written to: what it holds is another value each time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("a Tensor is made by lucidgraph.asarray, or by an operation")

    @staticmethod
    def of_node(node: Node, trace: Trace | EllipsisType | None = ...) -> Tensor:
        """The tensor of a node recorded just now, or in ``trace``."""
        tensor = object.__new__(Tensor)
        tensor._node = node
        tensor._trace = current_trace() if isinstance(trace, EllipsisType) else trace
        tensor._writes = 0
        tensor._bases = ()
        if tensor._trace is None and node.op is not Captured:
            pending.add(tensor)
            bound_history()
        return tensor

    @staticmethod
    def of_value(array: Any, t: TensorType) -> Tensor:
        """A tensor that has its value, outside any trace."""
        tensor = object.__new__(Tensor)
        tensor._node = Node(Captured, (), {"value": CapturedArray(array)}, (t,))
        tensor._trace = None
        tensor._writes = 0
        tensor._bases = ()
        return tensor

    def _settle(self) -> None:
        """Forget how the value came about."""
        node = self._node
        if node.op in (Captured, Constant):
            return
        value = value_of(node)
        if node.type.weak:
            self._node = Node(Constant, (), {"value": HOOKS["to_numpy"](value).item()}, node.types)
            remember(self._node, value)
        else:
            self._node = Node(Captured, (), {"value": CapturedArray(value)}, node.types)

    # -- what is known

    @property
    def shape(self) -> Shape:
        return self._node.shape

    @property
    def dtype(self) -> DType:
        return self._node.type.user_dtype

    @property
    def ndim(self) -> int:
        return len(self._node.shape)

    @property
    def size(self) -> int:
        return self._node.type.size

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def device(self) -> str:
        return "cpu"

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("a 0-d tensor has no length")
        return self.shape[0]

    # -- the value

    def _concrete(self, wanted_by: str) -> Any:
        """The array; an error that names the user's line while tracing."""
        self._require_value(wanted_by)
        if not has_value(self._node):
            evaluate([self])
        return value_of(self._node)

    def _require_value(self, wanted_by: str) -> None:
        if self._trace is not None:
            if not self._trace.open:
                raise leaked(self)
            scalars = self._trace.lifted(self._node)
            if scalars:
                self._trace.require_value(scalars)
            made = f", made at {self._node.source}" if self._node.source else ""
            raise ConcretizationError(
                f"{wanted_by} needs the value of a {self._node.type} from {self._node.name}{made}, while "
                f"{self._trace.name} is being traced and no value exists",
                hint=_INTO_NUMPY if wanted_by == "numpy.asarray" else _HINT,
            )

    def numpy(self) -> np.ndarray[Any, Any]:
        """The value as a NumPy array of its own; ``numpy.asarray(x)`` is read-only and copies nothing."""
        array: np.ndarray[Any, Any] = HOOKS["to_numpy"](self._concrete("numpy()"))
        return array.astype(self.dtype.numpy)

    def mlx(self) -> Any:
        """The value as an MLX array."""
        return HOOKS["to_mlx"](self._concrete("mlx()"), self.dtype)

    def item(self) -> bool | int | float | complex:
        """The one element as a Python number."""
        array = HOOKS["to_numpy"](self._concrete("item()"))
        if array.size != 1:
            raise ShapeError(f"item() needs one element, this tensor has shape {self.shape}")
        value: bool | int | float | complex = array.reshape(()).astype(_python_width(self.dtype)).item()
        return value

    def tolist(self) -> Any:
        """The value as nested lists of Python numbers."""
        array = HOOKS["to_numpy"](self._concrete("tolist()"))
        return array.astype(_python_width(self.dtype), copy=False).tolist()

    def _scalar(self, wanted_by: str) -> Any:
        array = HOOKS["to_numpy"](self._concrete(wanted_by))
        if array.size != 1:
            raise ShapeError(f"{wanted_by} needs one element, this tensor has shape {self.shape}")
        return array.reshape(()).astype(_python_width(self.dtype)).item()

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __bool__(self) -> bool:
        return bool(self._scalar("bool()"))

    def __index__(self) -> int:
        if self.dtype.is_inexact or self.dtype.is_bool:
            raise DTypeError(f"only integers index, this is {self._node.type}")
        return int(self._scalar("an index"))

    def __repr__(self) -> str:
        if self._trace is not None:
            where = f" at {self._node.source}" if self._node.source else ""
            return f"<traced {self._node.type} {self._node.name}{where}>"
        body = np.array2string(self.numpy(), separator=", ", prefix="Tensor(")
        return f"Tensor({body}, dtype={self.dtype.name})"

    def __str__(self) -> str:
        return str(HOOKS["to_numpy"](self._concrete("str()")))

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        return format(self._scalar("format()"), spec)

    def __iter__(self) -> Any:
        if not self.shape:
            raise DTypeError("a 0-d tensor cannot be iterated")
        if self._trace is not None:
            self._concrete("iteration")
        return (self[k] for k in range(self.shape[0]))

    def __reduce__(self) -> Any:
        return (asarray, (self.numpy(),))

    def __copy__(self) -> Tensor:
        return copy_of(self)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return copy_of(self)

    __hash__ = object.__hash__

    if TYPE_CHECKING:  # what ``methods`` attaches, for type checkers
        T: Tensor
        mT: Tensor
        real: Tensor
        imag: Tensor
        flat: Tensor
        at: Any

        __add__ = __sub__ = __radd__ = __rsub__ = __iadd__ = __isub__ = _operator
        __mul__ = __truediv__ = __rmul__ = __rtruediv__ = __imul__ = __itruediv__ = _operator
        __floordiv__ = __mod__ = __rfloordiv__ = __rmod__ = __ifloordiv__ = __imod__ = _operator
        __pow__ = __matmul__ = __rpow__ = __rmatmul__ = __ipow__ = __imatmul__ = _operator
        __and__ = __or__ = __rand__ = __ror__ = __iand__ = __ior__ = _operator
        __xor__ = __lshift__ = __rxor__ = __rlshift__ = __ixor__ = __ilshift__ = _operator
        __rshift__ = __rrshift__ = __irshift__ = _operator
        __lt__ = __le__ = __gt__ = __ge__ = _operator

        def __eq__(self, other: object) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: object) -> Tensor: ...  # type: ignore[override]

        __neg__ = __pos__ = __abs__ = __invert__ = _attached

        def __getitem__(self, key: Any) -> Tensor: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...

        abs = all = any = argmax = argmin = astype = clip = conj = conjugate = copy = cos = _attached
        cumprod = cumsum = _attached
        diagonal = dot = exp = flatten = log = log10 = log1p = log2 = max = mean = min = _attached
        moveaxis = prod = ravel = reciprocal = repeat = reshape = round = rsqrt = sigmoid = sin = _attached
        split = sqrt = square = squeeze = std = sum = swapaxes = take = to_device = trace = _attached
        transpose = var = _attached


def _python_width(dtype: DType) -> Any:
    return np.float64 if dtype.is_floating else dtype.numpy


def concrete(tensors: Sequence[Tensor], wanted_by: str) -> None:
    """Compute tensors together. Raises :class:`ConcretizationError` for one that is being traced."""
    for tensor in tensors:
        tensor._require_value(wanted_by)
    evaluate(tensors)


def leaked(tensor: Tensor) -> LeakedTracerError:
    assert tensor._trace is not None
    made = f" at {tensor._node.source}" if tensor._node.source else ""
    return LeakedTracerError(
        f"a {tensor._node.type} made{made} while tracing {tensor._trace.name} is used after that trace ended",
        hint="return it from the function instead of storing it",
    )


def node_of(value: Any) -> Node:
    """The node of an operand, in the trace that records now. Arrays from outside are captured."""
    if type(value) in _SCALARS:
        return scalar_node(value)
    trace = current_trace()
    if isinstance(value, Tensor):
        if value._trace is trace:
            if trace is None and not STATE.tapes and has_value(value._node):
                value._settle()
            return value._node
        if value._trace is None:
            if value._node.op is Constant:
                return constant_node(value._node.attrs["value"], value._node.type)
            return _captured(value, value._concrete("capture"), value._node.type, trace)
        if not value._trace.open:
            raise leaked(value)
        raise ConcretizationError(
            f"a {value._node.type} of {value._trace.name}, which is being traced, is used inside another trace",
            hint="pass it as an argument",
        )
    if is_mlx(value):
        return _captured(value, value, array_type(value), trace)
    if isinstance(value, np.ndarray | np.generic):
        return _captured(value, value, array_type(value), trace)
    if isinstance(value, list | tuple):
        return node_of(asarray(value))
    raise DTypeError(f"{type(value).__name__} is no array: {value!r:.80}", hint="lucidgraph.asarray(value)")


def _captured(source: Any, array: Any, t: TensorType, trace: Trace | None) -> Node:
    """A captured array: NumPy's copied, so that later writes do not show; once per trace while it is unchanged."""
    native = TensorType(t.shape, t.user_dtype)
    if trace is not None:
        known = trace.arrays.get(id(source))
        if known is not None and (not isinstance(source, np.ndarray) or _same_bits(source, known[1])):
            return known[1]
    if isinstance(array, np.ndarray | np.generic) and not isinstance(source, Tensor):
        array = np.array(array, dtype=native.dtype.numpy, order="C")
    node = captured_node(CapturedArray(array), native)
    if trace is not None:
        trace.arrays[id(source)] = (source, node)
    return node


def _same_bits(source: np.ndarray[Any, Any], node: Node) -> bool:
    copy = Captured.array(node.attrs["value"])
    return bool(np.array_equal(source, copy, equal_nan=source.dtype.kind in "fc"))


def apply(op: type[Op], *operands: Any, **attrs: Any) -> Tensor:
    """Record one op over tensors, arrays and Python numbers, with the attributes it declares.

    >>> import lucidgraph as lg
    >>> apply(lg.ops.AddBackward, asarray([1.0, 2.0]), 1).tolist()
    [2.0, 3.0]
    """
    result = Tensor.of_node(record(op, [node_of(v) for v in operands], attrs))
    return view_of(operands[0], result) if op.aliases else result


def asarray(value: Any, dtype: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of an array, a Python number or nested lists of numbers and arrays.

    Python floats become float32, integers int64, unless ``dtype`` says otherwise; NumPy's and MLX's dtypes are kept.
    A NumPy array is copied. ``copy=False`` raises ``ValueError`` where a copy is needed.

    Raises :class:`DTypeError` for object, structured and datetime arrays, :class:`ShapeError` for ragged lists,
    ``OverflowError`` for integers that do not fit.

    >>> asarray([[1, 2], [3, 4]]).dtype
    lucidgraph.int64
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(value, Tensor):
        if copy:
            value = copy_of(value)
        if value._node.type.weak:
            return apply(CastBackward, value, dtype=value.dtype if wanted is None else wanted)
        return value if wanted is None or wanted is value.dtype else apply(CastBackward, value, dtype=wanted)
    if is_mlx(value):
        tensor = Tensor.of_node(node_of(value)) if current_trace() else Tensor.of_value(value, array_type(value))
        return tensor if wanted is None or wanted is tensor.dtype else apply(CastBackward, tensor, dtype=wanted)
    if isinstance(value, list | tuple) and _holds_tensor(value):
        joined = _stacked(value)
        return joined if wanted is None else asarray(joined, dtype=wanted)
    if copy is False:
        raise ValueError("asarray(copy=False) of a value that is not a Tensor: its elements must be copied")
    array = _numpy_from(value, wanted)
    t = array_type(array)
    if current_trace() is not None:
        if type(value) in _SCALARS:
            return Tensor.of_node(constant_node(value, t))
        return Tensor.of_node(captured_node(CapturedArray(array), t))
    return Tensor.of_value(array, t)


def _numpy_from(value: Any, wanted: DType | None) -> np.ndarray[Any, Any]:
    """A fresh native NumPy array of a value, in the dtype wanted or the default one."""
    if isinstance(value, np.ndarray | np.generic):
        t = array_type(value)
        with np.errstate(all="ignore"):
            return np.array(value, dtype=(wanted or t.dtype).numpy, order="C")
    if type(value) in _SCALARS or isinstance(value, list | tuple):
        try:
            array = np.array(value)
        except ValueError as error:
            raise ShapeError(f"nested lists of unequal lengths: {value!r:.80}") from error
        if array.dtype == object and not _is_big_integer(value):
            raise DTypeError(f"objects do not compute: {value!r:.80}")
        holds_numpy = _holds_numpy(value)
        defaults = {"f": dtypes.DEFAULT_FLOAT, "c": dtypes.DEFAULT_COMPLEX}
        natural = None if holds_numpy else defaults.get(array.dtype.kind)
        if array.size == 0 and not holds_numpy and type(value) is not bool:
            natural = dtypes.DEFAULT_FLOAT
        if array.dtype == object and not wanted:
            raise OverflowError(f"{value!r:.80} fits neither int64 nor uint64")
        target = wanted or natural or as_dtype(array.dtype)
        if target.is_integer and array.dtype.kind in "iuO":
            return np.array(value, dtype=target.numpy)  # OverflowError where it does not fit
        with np.errstate(all="ignore"):
            return array.astype(target.numpy)
    array = np.asarray(value)
    if array.dtype != object:
        return _numpy_from(array, wanted)
    raise DTypeError(f"{type(value).__name__} is no array: {value!r:.80}")


def _stacked(values: list[Any] | tuple[Any, ...]) -> Tensor:
    """Nested lists that hold tensors, along a new first axis."""
    parts = [asarray(v) for v in values]
    if len({part.shape for part in parts}) > 1:
        raise ShapeError(f"tensors of shapes {', '.join(str(p.shape) for p in parts[:5])} do not make one array")
    return apply(get("concat"), *(apply(get("expand_dims"), part, axis=(0,)) for part in parts), axis=0)


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, list | tuple) and any(_holds_tensor(v) for v in value))


def _holds_numpy(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or (
        isinstance(value, list | tuple) and any(_holds_numpy(v) for v in value)
    )


def _is_big_integer(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, list | tuple) and all(_is_big_integer(v) for v in value))


def copy_of(tensor: Tensor) -> Tensor:
    """Another tensor object of the same value: writes to one leave the other alone."""
    twin = object.__new__(Tensor)
    twin._node, twin._trace, twin._writes, twin._bases = tensor._node, tensor._trace, 0, ()
    if twin._trace is None and not has_value(twin._node):
        pending.add(twin)
    return twin


def view_of(base: Any, tensor: Tensor) -> Tensor:
    """``tensor``, which NumPy would have as a view of ``base``."""
    if tensor._trace is not None and isinstance(base, Tensor):
        tensor._bases = (weakref.ref(base), *base._bases)
    return tensor


def rebind(tensor: Tensor, value: Tensor) -> None:
    """Let ``tensor`` be ``value`` from now on, under every name it has: what a write does. No other tensor changes.

    Raises :class:`UnsupportedError` for a write, while tracing, to a tensor from outside the trace.
    """
    trace = current_trace()
    if tensor._trace is not trace:
        if tensor._trace is not None and not tensor._trace.open:
            raise leaked(tensor)
        open_trace = trace or tensor._trace
        raise UnsupportedError(
            f"a write to a {tensor._node.type} from outside, while {open_trace} is open",
            hint="pass it as an argument, or write to lucidgraph.copy(x)",
        )
    if trace is not None and any(base() is not None for base in tensor._bases):
        error = UnsupportedError(
            f"a write to a {tensor._node.type} that is a view of another array, which NumPy would change as well",
            hint="write to the array itself, array[key] = … or array[key] += …, or to numpy.copy(view)",
        )
        trace.strayed.setdefault(id(tensor), Strayed(tensor, tensor._node, error))
    tensor._node = value._node
    tensor._writes += 1
    if trace is None and not has_value(value._node):
        pending.add(tensor)


def known_value(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """The value of a tensor that has been computed already, or None."""
    if tensor._trace is not None or not has_value(tensor._node):
        return None
    return tensor.numpy()


__all__ = [
    "HOOKS", "LucidGraphError", "Tensor", "apply", "array_type", "asarray", "concrete", "copy_of", "evaluate",
    "is_array", "is_mlx", "known_value", "leaked", "node_of", "rebind", "sources", "view_of",
]  # fmt: skip
