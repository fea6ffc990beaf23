"""Elementary functions as vector LLVM IR, at most 2 ulp from the truth over the whole range.

`FUNCTIONS[name](b, x, target=…)` (two-argument functions: `(b, x, y, target=…)`) appends the function to the builder's
block and returns its value; `x` is float or double, a scalar or a vector of any lane count. No library is called, no
fast-math flag set, and NaN, infinities, signed zeros and subnormals are right, as arguments and as results. A lane's
result does not depend on the lane count. sin, cos and tan branch around the reduction of huge arguments, so after them
the builder may stand in a new block; they add internal functions to the module once.

"Greatest error: a / b ulp" in the descriptions is what was measured for binary32 / binary64 with fused multiply-add:
one-argument functions of binary32 over all 2**32 arguments, the others over some million samples (erf of binary64:
sixty thousand). With the instructions of AVX-512 binary32's exp, logarithms, sigmoid, tanh and erf look numbers up in
registers (`registers`, `pieces`): the figure is that of the form that errs more. Without fused multiply-add smaller
samples differ from them by at most 0.4 ulp.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .emit import DEFAULT_TARGET, Emitter, Target
from .exponential import exp, exp2, expm1
from .hyperbolic import acosh, asinh, atanh, cosh, sigmoid, sinh, tanh
from .logarithm import log, log1p, log2, log10
from .power import cbrt, pow, reciprocal, rsqrt, sqrt
from .special import erf
from .trig import cos, sin, tan
from .trig_inverse import acos, asin, atan, atan2

FUNCTIONS: Mapping[str, Emitter] = MappingProxyType(
    {
        emit.__name__: emit
        for emit in (
            exp, exp2, expm1, log, log1p, log2, log10, sin, cos, tan, asin, acos, atan, atan2, sinh, cosh, tanh,
            asinh, acosh, atanh, sigmoid, erf, pow, sqrt, rsqrt, cbrt, reciprocal,
        )
    }
)  # fmt: skip

__all__ = ["DEFAULT_TARGET", "FUNCTIONS", "Emitter", "Target"]
