"""What lets NumPy and others take tensors: ``numpy.sum(x)``, ``numpy.add(a, x)``, ``numpy.asarray(x)``, DLPack.

Functions are found by name in :data:`FUNCTIONS`. What we do not have raises :class:`UnsupportedError` with its name;
nothing falls back to NumPy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ..dtypes import as_dtype, bfloat16
from ..errors import DTypeError, UnsupportedError
from ..ir.op import get
from .creation import scalar
from .shape import astype, copy, reshape
from .tensor import Tensor, apply, asarray, is_array, rebind
from .update import assign, setitem, updated

FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {}
"""Our functions by name, those of a submodule as ``linalg.norm``: filled by who puts the language together."""
HOOKS: Final[dict[str, Any]] = {}
"""``namespace``: the module that ``__array_namespace__`` gives."""

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


# -- the value


def array(x: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """``numpy.asarray(x)``: read-only unless copied, since tensors are never changed from outside.

    Raises :class:`ConcretizationError` while tracing, ``ValueError`` for ``copy=False`` with another dtype.
    """
    x._concrete("numpy.asarray")
    value = x.numpy()
    wanted = value.dtype if dtype is None else np.dtype(dtype)
    if copy or wanted != value.dtype:
        if copy is False:
            raise ValueError(f"asarray(copy=False) of {x._node.type} as {wanted}: its elements must be copied")
        return np.array(value, dtype=wanted)
    view = value.view()
    view.flags.writeable = False
    return view


def buffer(x: Tensor, flags: int) -> memoryview:
    """Python's buffer protocol, from 3.12 on: the elements, read-only."""
    if x.dtype is bfloat16:
        raise UnsupportedError("bfloat16 has no buffer format", hint="astype(x, lucidgraph.float32)")
    return array(x).data


def dlpack(
    x: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """A DLPack capsule of a copy of the elements, on the CPU."""
    if stream is not None:
        raise UnsupportedError(f"a tensor on the CPU has no stream {stream!r}")
    if dl_device is not None and tuple(dl_device) != dlpack_device(x):
        raise UnsupportedError(f"DLPack to device {dl_device!r}", hint="(1, 0), the CPU")
    if copy is False:
        raise BufferError("a tensor's elements are shared with nobody: they must be copied")
    if x.dtype is bfloat16:
        raise UnsupportedError("bfloat16 does not go through NumPy's DLPack", hint="astype(x, lucidgraph.float32)")
    return array(x, copy=True).__dlpack__()


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """The CPU."""
    return 1, 0


def array_namespace(x: Tensor, *, api_version: str | None = None) -> Any:
    """The functions of this package. Raises :class:`UnsupportedError` for a version of the Array API after 2024.12."""
    if api_version is not None and api_version not in _VERSIONS:
        raise UnsupportedError(f"version {api_version!r} of the Array API", hint=f"one of {', '.join(_VERSIONS)}")
    return HOOKS["namespace"]


def to_device(x: Tensor, device: Any, stream: Any = None) -> Tensor:
    """The tensor itself: tensors are on the CPU as far as others are concerned."""
    if device != "cpu" or stream is not None:
        raise UnsupportedError(f"a tensor goes to no device {device!r}", hint='"cpu"')
    return x


# -- ufuncs

_REDUCTIONS: Final = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip
_ACCUMULATIONS: Final = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}
_WRITES: Final = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
_IRRELEVANT: Final = {"casting", "order", "subok", "device", "like"}


def array_ufunc(x: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """``__array_ufunc__``: a call of a ufunc, its reduce, accumulate, outer and at.

    ``out`` is written to, ``where`` needs an ``out``, ``dtype`` casts the operands first.
    """
    name = ufunc.__name__
    if not all(_is_operand(v) for v in inputs):
        return NotImplemented
    if method == "at":
        return _written_at(name, *inputs)
    out = kwargs.pop("out", None)
    target = out[0] if isinstance(out, tuple) and len(out) == 1 else None
    if out is not None and target is None and any(o is not None for o in out):
        raise UnsupportedError(f"numpy.{name} with several outputs", hint="assign its results")
    where = kwargs.pop("where", True)
    dtype = kwargs.pop("dtype", None)
    kwargs = {k: v for k, v in kwargs.items() if k not in _IRRELEVANT and v is not np._NoValue}
    if method == "reduce":
        if where is not True:
            raise UnsupportedError(f"numpy.{name}.reduce(where=…)", hint="lucidgraph.where before the reduction")
        result = _reduced(name, inputs[0], dtype, **kwargs)
    elif method == "accumulate":
        result = _function(_ACCUMULATIONS.get(name, f"{name}.accumulate"))(inputs[0], axis=kwargs.pop("axis", 0))
        _refuse(f"{name}.accumulate", kwargs)
    elif method in ("__call__", "outer"):
        _refuse(name, kwargs)
        if dtype is not None:
            if as_dtype(dtype).is_bool:
                raise UnsupportedError(f"numpy.{name}(dtype=bool)", hint="astype of the result")
            inputs = tuple(astype(v, dtype) for v in inputs)
        if method == "outer":
            first, second = (asarray(v) for v in inputs)
            inputs = (reshape(first, first.shape + (1,) * second.ndim), second)
        result = _function(name)(*inputs)
    else:
        raise UnsupportedError(f"numpy.{name}.{method} of a tensor")
    if where is not True:
        if target is None:
            raise UnsupportedError(f"numpy.{name}(where=…) without out", hint="lucidgraph.where(condition, y, other)")
        result = apply(get("where"), astype(where, bool), result, target)
    return result if target is None else _written(target, result)


def _is_operand(value: Any) -> bool:
    return is_array(value) or not callable(getattr(type(value), "__array_ufunc__", None))


def _function(name: str) -> Callable[..., Any]:
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise UnsupportedError(
            f"numpy.{name} of a tensor: lucidgraph has no {name}", hint=f"numpy.{name}(x.numpy()) outside traced code"
        ) from None


def _refuse(name: str, kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise UnsupportedError(f"numpy.{name}({next(iter(kwargs))}=…) of a tensor")


def _reduced(name: str, x: Any, dtype: Any, axis: Any = 0, keepdims: bool = False, **rest: Any) -> Any:
    """A ufunc's reduce: axis 0 unless said otherwise."""
    initial = rest.pop("initial", None)
    _refuse(f"{name}.reduce", rest)
    reduced = _function(_REDUCTIONS.get(name, f"{name}.reduce"))
    x = asarray(x, dtype=dtype)
    more = {"dtype": dtype} if dtype is not None and name in ("add", "multiply") else {}
    result = reduced(x, axis=axis, keepdims=keepdims, **more)
    return result if initial is None else _function(name)(result, initial)


def _written_at(name: str, target: Any, key: Any, value: Any = None) -> None:
    """``ufunc.at``: in place, each place as often as it is named."""
    if name not in _WRITES:
        raise UnsupportedError(f"numpy.{name}.at of a tensor", hint=f"one of {', '.join(_WRITES)}")
    if isinstance(target, Tensor):
        rebind(target, updated(target, key, value, name))
    else:
        getattr(np, name).at(target, *(np.asarray(v) if isinstance(v, Tensor) else v for v in (key, value)))


def _written(target: Any, result: Any) -> Any:
    """``out=target``: a tensor is rebound, a NumPy array filled."""
    if isinstance(target, Tensor):
        assign(target, result)
    else:
        np.copyto(target, np.asarray(result), casting="same_kind")
    return target


# -- functions

_RENAMED: Final = {
    "amax": "max", "amin": "min", "around": "round", "concatenate": "concat", "cumulative_prod": "cumprod",
    "cumulative_sum": "cumsum", "fix": "trunc",
}  # fmt: skip
_ARGUMENTS: Final = {"ddof": "correction", "a_min": "min", "a_max": "max", "reps": "repetitions", "N": "n", "M": "m"}
_WITHOUT_SIGNATURE: Final = {
    "concatenate": ("arrays", "axis", "out"), "where": ("condition", "x", "y"), "dot": ("a", "b", "out"),
    "inner": ("a", "b"), "vdot": ("a", "b"), "empty_like": ("prototype", "dtype"), "copyto": ("dst", "src"),
}  # fmt: skip
"""The parameters of functions that say nothing about them in older versions of NumPy."""


def array_function(
    x: Tensor, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """``__array_function__``: NumPy's function by our function of its name, with NumPy's names of arguments."""
    if not all(issubclass(t, Tensor | np.ndarray) for t in types):
        return NotImplemented
    module = (getattr(func, "__module__", None) or "numpy").removeprefix("numpy").removeprefix(".")
    name = func.__name__
    special = _SPECIAL.get(name) if not module else None
    if special is not None:
        return special(*args, **kwargs)
    label = f"{module}.{name}" if module else name
    # NumPy repeats some of its own functions in numpy.linalg; what is in other modules is another thing.
    plain = not module or module == "linalg"
    target = FUNCTIONS.get(label) or _function(_RENAMED.get(name, name) if plain else label)
    positional, named = _bound(func, label, args, kwargs)
    out, dtype = named.pop("out", None), named.pop("dtype", None)
    parameters = inspect.signature(target).parameters
    if dtype is not None and "dtype" in parameters:
        named["dtype"] = dtype
    elif dtype is not None and is_array(positional[0]):
        positional = (astype(positional[0], dtype), *positional[1:])
    unknown = [k for k in named if k not in parameters]
    if unknown:
        raise UnsupportedError(f"numpy.{label}({unknown[0]}=…) of a tensor")
    result = target(*positional, **named)
    if dtype is not None and "dtype" not in parameters and not is_array(positional[0]):
        result = astype(result, dtype)
    return result if out is None else _written(out, result)


def _bound(
    func: Callable[..., Any], label: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call: what NumPy requires by position, what it makes optional by our names."""
    try:
        parameters = list(inspect.signature(func).parameters.values())
    except ValueError:
        names = _WITHOUT_SIGNATURE.get(func.__name__)
        if names is None:
            raise UnsupportedError(f"numpy.{label} of a tensor: its arguments are not known") from None
        parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None) for n in names]
        parameters[0] = parameters[0].replace(default=inspect.Parameter.empty)
    try:
        found = inspect.Signature(parameters).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise DTypeError(f"numpy.{label}: {error}") from None
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for p in parameters:
        if p.name not in found:
            continue
        value = found[p.name]
        if p.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.extend(value)
        elif p.kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif p.default is inspect.Parameter.empty and p.kind is not inspect.Parameter.KEYWORD_ONLY:
            positional.append(value)
        elif value is not np._NoValue and not _says_nothing(p, value):
            named[_ARGUMENTS.get(p.name, p.name)] = value
    return tuple(positional), named


def _says_nothing(parameter: inspect.Parameter, value: Any) -> bool:
    """Whether an argument only repeats NumPy's default, or is about memory, which tensors do not show."""
    if parameter.name == "order" and value not in (None, "C", "K", "A"):
        return False
    if parameter.name in _IRRELEVANT:
        return True
    return value is parameter.default or (isinstance(value, str | int) and value == parameter.default)


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, Tensor):
        np.copyto(dst, np.asarray(src), casting=casting, where=np.asarray(where))  # type: ignore[arg-type]
    elif where is True:
        setitem(dst, ..., src)
    else:
        value = asarray(src, dtype=dst.dtype) if is_array(src) else scalar(src, dst.dtype)
        assign(dst, apply(get("where"), astype(where, bool), value, dst))


def _put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None = -1) -> None:
    if not isinstance(arr, Tensor):
        return np.put_along_axis(arr, np.asarray(indices), np.asarray(values), axis)
    return assign(arr, _function("put_along_axis")(arr, indices, values, axis))


def _result_type(*args: Any) -> np.dtype[Any]:
    return np.result_type(*(a.dtype.numpy if isinstance(a, Tensor) else a for a in args))


_SPECIAL: Final[dict[str, Callable[..., Any]]] = {
    "shape": lambda a: asarray(a).shape,
    "ndim": lambda a: asarray(a).ndim,
    "size": lambda a, axis=None: asarray(a).size if axis is None else asarray(a).shape[axis],
    "copy": lambda a, order="K", subok=False: copy(a),
    "iscomplexobj": lambda x: asarray(x).dtype.is_complex,
    "isrealobj": lambda x: not asarray(x).dtype.is_complex,
    "copyto": _copyto,
    "put_along_axis": _put_along_axis,
    "result_type": _result_type,
}
"""What is no function from arrays to arrays, or writes to its argument."""

__all__ = [
    "FUNCTIONS", "HOOKS", "array", "array_function", "array_namespace", "array_ufunc", "buffer", "dlpack",
    "dlpack_device", "to_device",
]  # fmt: skip
