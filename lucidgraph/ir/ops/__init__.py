"""The ops, a chapter a file. Importing this package registers them all."""

from ..op import REGISTRY, get, register
from . import (
    activation,
    arithmetic,
    attention,
    bitwise,
    compare,
    core,
    creation,
    index,
    linalg,
    math,
    nn,
    reduce,
    scan,
    shape,
    window,
)  # fmt: skip

__all__ = [
    "REGISTRY", "activation", "arithmetic", "attention", "bitwise", "compare", "core", "creation", "get", "index",
    "linalg", "math", "nn", "reduce", "register", "scan", "shape", "window",
]  # fmt: skip
