"""The ops as users see them: their classes by name (``ops.SumBackward``), and the way to add one's own.

>>> from lucidgraph import ops
>>> ops.SumBackward.schema_v1.name, ops.SumBackward.kSavesInput
('sum', False)
"""

from __future__ import annotations

from .ir import Op
from .ir.op import REGISTRY, get, register
from .lang.tensor import apply


def __getattr__(name: str) -> type[Op]:
    for op in REGISTRY.values():
        if op.__name__ == name:
            return op
    raise AttributeError(f"no op class is called {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(op.__name__ for op in REGISTRY.values())])


__all__ = ["apply", "get", "register"]
