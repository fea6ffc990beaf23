"""The ops, a chapter a file. Importing this package registers them all."""

from ..op import REGISTRY, get, register
from . import activation, arithmetic, bitwise, compare, core, math, reduce, shape

__all__ = [
    "REGISTRY", "activation", "arithmetic", "bitwise", "compare", "core", "get", "math", "reduce", "register", "shape",
]  # fmt: skip
