"""CBLAS from OpenBLAS, as ``scipy-openblas32`` packs it.

It is an instance of its own, set to one thread, so that the user's NumPy keeps its threads.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

import scipy_openblas32

from ..blas import Cblas
from ..values import I32

_TILES: Final = 2 * 512**3
"""Measured on Zen 4: 110 GFLOP/s against 104 below; above, OpenBLAS's copies of both operands pay."""


@cache
def library() -> Cblas:
    path = os.path.join(scipy_openblas32.get_lib_dir(), scipy_openblas32.get_library(fullname=True))
    loaded = ctypes.CDLL(path)
    loaded.scipy_openblas_set_num_threads(1)

    def address(name: str) -> int:
        return int(ctypes.cast(getattr(loaded, f"scipy_cblas_{name}"), ctypes.c_void_p).value or 0)

    return Cblas("OpenBLAS", I32, address, tiles=_TILES)


__all__ = ["library"]
