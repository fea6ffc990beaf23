"""What operating systems offer beneath our kernels, and the choice of this one's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...ir import Graph, Node
from .blas import Cblas
from .machine import HOST, Compiler
from .pool import Pool
from .views import View

if TYPE_CHECKING:
    from .plan import Planner

_CACHE: Final = 1 << 25


@dataclass(frozen=True, slots=True)
class System:
    """A processor's compiler, and an operating system's matrix products and threads.

    ``blas`` loads its library when first asked. ``singles`` are tried in turn on each fused body: one that has a
    library function for all of it appends its commands and returns True. ``cache``: the bytes of the processor's last
    cache.
    """

    compiler: Compiler
    blas: Callable[[], Cblas]
    pool: type[Pool]
    singles: tuple[Callable[[Planner, Graph, Sequence[View], Sequence[View], Node | None], bool], ...] = ()
    cache: int = _CACHE


if sys.platform == "darwin":
    from .macos import cblas, dispatch, framework, vdsp, vforce

    SYSTEM: Final = System(
        Compiler(HOST),
        lambda: cblas.library(framework.find),
        dispatch.DispatchPool,
        (vdsp.Transposes(framework.find), vdsp.Reductions(framework.find), vforce.Functions(framework.find)),
    )
else:
    from .linux import caches, futex, openblas

    SYSTEM: Final = System(Compiler(HOST), openblas.library, futex.FutexPool, cache=caches.last_cache(_CACHE))

__all__ = ["SYSTEM", "System"]
