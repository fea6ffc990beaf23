"""The MLX backend: a graph becomes one flat function of ``mlx.core`` calls, compiled by ``mx.compile``."""

from __future__ import annotations

from ...errors import BackendError
from ..backend import IBackend

_missing: ImportError | None = None
try:
    import mlx.core  # noqa: F401
except ImportError as error:
    _missing = error

if _missing is None:
    from .backend import MLXBackend


def create() -> IBackend:
    """The backend. Raises :class:`BackendError` where mlx cannot be imported."""
    if _missing is not None:
        raise BackendError(
            f"mlx is not installed: {_missing}",
            hint="pip install 'lucidgraph[cpu]' (Linux), 'lucidgraph[cuda]' (Linux with CUDA) or mlx (macOS)",
        )
    return MLXBackend()
