"""CBLAS from OpenBLAS, as ``scipy-openblas32`` packs it.

It is an instance of its own, set to one thread, so that the user's NumPy keeps its threads.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ....errors import BackendError
from ..blas import Cblas
from ..values import I32

_TILES: Final = 2 * 512**3
"""Measured on Zen 4: 110 GFLOP/s against 104 below; above, OpenBLAS's copies of both operands pay."""
_VECTORS: Final = 1 << 10
"""Measured there: a product with a vector takes a quarter of the time of the same one of matrices from 2^20 on, and
from here on less than our tiles, which are nearly empty."""


@cache
def library() -> Cblas:
    # Found, not imported: its import costs more than the library.
    spec = find_spec("scipy_openblas32")
    folders = [Path(place) / "lib" for place in (spec.submodule_search_locations or ())] if spec else []
    files = sorted(file for folder in folders for file in folder.glob("libscipy_openblas*"))
    if not files:
        raise BackendError("OpenBLAS is not there", hint="pip install scipy-openblas32")
    loaded = ctypes.CDLL(str(files[0]))
    loaded.scipy_openblas_set_num_threads(1)

    def address(name: str) -> int:
        return int(ctypes.cast(getattr(loaded, f"scipy_cblas_{name}"), ctypes.c_void_p).value or 0)

    return Cblas("OpenBLAS", I32, address, tiles=_TILES, vectors=_VECTORS)


__all__ = ["library"]
