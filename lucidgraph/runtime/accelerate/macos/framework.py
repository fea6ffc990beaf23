"""The Accelerate framework's symbols."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Final

PATH: Final = "/System/Library/Frameworks/Accelerate.framework/Accelerate"
"""Served from the loader's shared cache; there need not be a file."""

Find = Callable[[str], int]
"""The address of a symbol, or 0."""


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(PATH)


@cache
def find(name: str) -> int:
    try:
        function = getattr(_library(), name)
    except AttributeError:
        return 0
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


__all__ = ["Find", "find"]
