"""lucidgraph: array programs traced into a graph that is shown, corrected, differentiated and run fast."""

from . import wiring
from .api import CompiledFunction, autocast, compile, disable_compile, enable_compile, eval, trace
from .dtypes import (
    bfloat16, complex64, complex128, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
)  # fmt: skip
from .dtypes import bool_ as bool_
from .frontend.gradients import grad, value_and_grad, vjp
from .ir import AmpPolicy, Graph, OpSchema
from .lang import linalg, nn
from .lang.linalg import dot, einsum, inner, matmul, matrix_transpose, outer, tensordot, vdot, vecdot
from .lang.nn import log_softmax, logsumexp, softmax
from .lang.reduce import *  # noqa: F403
from .lang.tensor import Tensor, asarray
from .wiring import backends

wiring.connect()
