"""What an op declares about itself, apart from its mathematics."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, fields
from functools import cached_property


class AmpPolicy(enum.Enum):
    """What happens to an op's operand dtypes, and what autocast may do to them.

    * ``PROMOTE``: the operands go together to the widest dtype present; sums and products of integers are taken in
      64 bits; under autocast a contraction goes to the autocast dtype.
    * ``KEEP_INPUT``: the operands stay as they are.
    * ``FORCE_FP32``: integers become float32; under autocast half precision goes to float32, and so does the result.
    """

    PROMOTE = "promote"
    KEEP_INPUT = "keep_input"
    FORCE_FP32 = "force_fp32"


class Accumulate(enum.Enum):
    """How a reduction holds its partial results: ``NATIVE`` in its operand's dtype, ``WIDE`` in int64, uint64 for
    integers and at least float32 for floats, rounded once at the end."""

    NATIVE = "native"
    WIDE = "wide"


@dataclass(frozen=True)
class OpSchema:
    """The declaration of an op, of which a hash goes into every cache key and saved file.

    ``contraction``: a sum of products (matmul, convolution), which autocast narrows. ``real_valued``: an integer
    operand becomes float32 first; FORCE_FP32 implies it unless it is set to False. ``deterministic``: two runs give
    the same bits (``note`` says why where not). ``arity``: the number of operands, None where it varies.
    ``internal``: made by passes, never by users.
    """

    name: str
    version: int = 1
    amp_policy: AmpPolicy = AmpPolicy.KEEP_INPUT
    contraction: bool = False
    accumulate: Accumulate = Accumulate.NATIVE
    deterministic: bool = True
    arity: int | None = 1
    real_valued: bool | None = None
    internal: bool = False
    note: str = ""

    @cached_property
    def takes_reals_only(self) -> bool:
        if self.real_valued is not None:
            return self.real_valued
        return self.amp_policy is AmpPolicy.FORCE_FP32

    @cached_property
    def digest(self) -> str:
        parts = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name != "note"]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
