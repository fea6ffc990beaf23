"""The Accelerate backend: the CPU, natively."""

from __future__ import annotations

from ...errors import BackendError
from ..backend import IBackend

_missing: ImportError | None = None
try:
    import llvmlite  # noqa: F401
    import scipy_openblas32  # noqa: F401
except ImportError as error:
    _missing = error

if _missing is None:
    from . import host, index, linalg  # noqa: F401  (their chapters enter the backend's tables)
    from .backend import AccelerateBackend


def create() -> IBackend:
    """The backend, or :class:`BackendError` where llvmlite or a BLAS library is missing."""
    if _missing is not None:
        raise BackendError(f"{_missing.name} is not installed", hint="pip install llvmlite scipy-openblas32")
    return AccelerateBackend()
