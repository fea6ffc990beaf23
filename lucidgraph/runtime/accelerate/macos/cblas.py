"""Accelerate's CBLAS: matrix products, with 64-bit sizes where the system has them.

Each function is there under up to three names: ``cblas_sgemm$NEWLAPACK$ILP64`` (64-bit integers) and
``cblas_sgemm$NEWLAPACK`` (32-bit) since macOS 13.3, and ``cblas_sgemm``. Enumerations are 32-bit integers in all.

Accelerate splits a product among threads of its own unless told; ``BLASSetThreading`` (macOS 15) tells it for the
calling thread, and kernels put the former setting back, which the user's NumPy may share. Before macOS 15 only the
user's ``VECLIB_MAXIMUM_THREADS`` does, which we leave alone.
"""

from __future__ import annotations

from typing import Final

from ....errors import BackendError
from ..blas import Cblas
from ..values import I32, I64
from .framework import Find

_FORMS: Final = (("$NEWLAPACK$ILP64", I64), ("$NEWLAPACK", I32), ("", I32))
"""Suffixes, best first, and the type of sizes."""


def library(find: Find) -> Cblas:
    """CBLAS under the best names that ``find`` knows."""
    found = next(((suffix, integer) for suffix, integer in _FORMS if find(f"cblas_sgemm{suffix}")), None)
    if found is None:
        raise BackendError("the Accelerate framework has no cblas_sgemm")
    suffix, integer = found
    getter, setter = find("BLASGetThreading"), find("BLASSetThreading")
    both = bool(getter and setter)
    return Cblas(
        f"Accelerate{suffix}", integer, lambda name: find(f"cblas_{name}{suffix}"), getter * both, setter * both
    )


__all__ = ["library"]
