"""The ops, a chapter a file. Importing this package registers them all."""

from . import arithmetic, compare, core, creation, index, reduce, shape
from ..op import REGISTRY, get, register

__all__ = ["REGISTRY", "arithmetic", "compare", "core", "creation", "get", "index", "reduce", "register", "shape"]
