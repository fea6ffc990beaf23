"""lucidgraph: array programs traced into a graph that is shown, corrected, differentiated and run fast."""
# ruff: noqa: I001

import sys as _sys
from math import e, inf, nan, pi

from . import ops, wiring
from .api import CompiledFunction, autocast, compile, disable_compile, enable_compile, eval, set_threads, trace
from .dtypes import (
    DType, bfloat16, bool_, complex64, complex128, float16, float32, float64, int8, int16, int32, int64,
    uint8, uint16, uint32, uint64,
)  # fmt: skip
from .errors import (
    AxisError, BackendError, ConcretizationError, DTypeError, IndexOutOfRangeError, LeakedTracerError, LucidGraphError,
    LucidGraphWarning, NotDifferentiableError, PassError, ShapeError, UnsupportedError, VerifyError,
)  # fmt: skip
from .frontend.gradients import grad, value_and_grad, vjp
from .ir import AmpPolicy, Graph, OpSchema
from .lang import arithmetic as _arithmetic
from .lang import bitwise as _bitwise
from .lang import compare as _compare
from .lang import core as _core
from .lang import creation as _creation
from .lang import index as _index
from .lang import linalg, methods as _methods, nn, protocols as _protocols
from .lang import math as _math
from .lang import reduce as _reduce
from .lang import scan as _scan
from .lang import shape as _shape
from .lang import update as _update
from .lang.activation import sigmoid
from .lang.arithmetic import *  # noqa: F403
from .lang.bitwise import *  # noqa: F403
from .lang.compare import *  # noqa: F403
from .lang.core import *  # noqa: F403
from .lang.creation import *  # noqa: F403
from .lang.index import *  # noqa: F403
from .lang.linalg import dot, einsum, inner, matmul, outer, tensordot, vdot, vecdot
from .lang.math import *  # noqa: F403
from .lang.nn import log_softmax, logsumexp, one_hot, softmax
from .lang.reduce import *  # noqa: F403
from .lang.scan import *  # noqa: F403
from .lang.shape import *  # noqa: F403
from .lang.tensor import Tensor, asarray
from .lang.update import *  # noqa: F403
from .wiring import backends

newaxis = None

wiring.connect()

__all__ = [
    "AmpPolicy", "AxisError", "BackendError", "CompiledFunction", "ConcretizationError", "DType", "DTypeError", "Graph",
    "IndexOutOfRangeError", "LeakedTracerError", "LucidGraphError", "LucidGraphWarning", "NotDifferentiableError",
    "OpSchema", "PassError", "ShapeError", "Tensor", "UnsupportedError", "VerifyError", "asarray", "autocast",
    "backends", "bfloat16", "bool_", "compile", "complex64", "complex128", "disable_compile", "dot", "e", "einsum",
    "enable_compile", "eval", "float16", "float32", "float64", "grad", "inf", "inner", "int8", "int16", "int32",
    "int64", "linalg", "log_softmax", "logsumexp", "matmul", "nan", "newaxis", "nn", "one_hot", "ops", "outer", "pi",
    "set_threads", "sigmoid", "softmax", "tensordot", "trace", "uint8", "uint16", "uint32", "uint64", "value_and_grad",
    "vdot", "vecdot", "vjp",
    *_arithmetic.__all__, *_bitwise.__all__, *_compare.__all__, *_core.__all__, *_creation.__all__, *_index.__all__,
    *_math.__all__, *_reduce.__all__, *_scan.__all__, *_shape.__all__, *_update.__all__,
]  # fmt: skip

_methods.attach()
_protocols.HOOKS["namespace"] = _sys.modules[__name__]
_protocols.FUNCTIONS.update({name: value for name in __all__ if callable(value := globals()[name])})
_protocols.FUNCTIONS.update({f"linalg.{name}": getattr(linalg, name) for name in linalg.__all__})
_protocols.FUNCTIONS["trace"] = linalg.trace
