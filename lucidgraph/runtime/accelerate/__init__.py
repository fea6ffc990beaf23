"""The Accelerate backend: the CPU, natively."""

import importlib

from ...errors import BackendError
from ..backend import IBackend


def create() -> IBackend:
    """The backend, or :class:`BackendError` where llvmlite or a BLAS library is missing."""
    try:
        module = importlib.import_module(".backend", __name__)
        for chapter in ("host", "index", "linalg", "scan", "window"):
            importlib.import_module(f".{chapter}", __name__)
    except ImportError as error:
        raise BackendError(f"{error.name} is not installed", hint="pip install llvmlite scipy-openblas32") from error
    backend: IBackend = module.AccelerateBackend()
    return backend
