"""The ops, a chapter a file. Importing this package registers them all."""

from ..op import REGISTRY, get, register
from . import arithmetic, compare, core, reduce, shape

__all__ = ["REGISTRY", "arithmetic", "compare", "core", "get", "reduce", "register", "shape"]
