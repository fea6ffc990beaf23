"""The ops, a chapter a file. Importing this package registers them all."""

from . import arithmetic, compare, core, reduce, shape
from ..op import REGISTRY, get, register

__all__ = ["REGISTRY", "arithmetic", "compare", "core", "get", "reduce", "register", "shape"]
