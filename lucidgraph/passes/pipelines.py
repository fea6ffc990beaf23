"""The pipeline, the same for every program. A backend adds data: the composites it takes whole."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Final

from ..config import config
from ..errors import LucidGraphError, PassError
from ..ir import Graph
from ..ir.ops.attention import AttendBackward
from .attention import attention, causal
from .broadcast import broadcast
from .cleanup import cse, dce
from .expand import expand
from .fold import fold
from .fuse import fuse
from .promote import promote
from .simplify import simplify

Pass = Callable[[Graph], Graph]

EXPLICIT: Final[tuple[tuple[str, Pass], ...]] = (
    ("promote", promote),
    ("broadcast", broadcast),
)

TIDY: Final[tuple[tuple[str, Pass], ...]] = (
    ("fold", fold),
    ("simplify", simplify),
    ("cse", cse),
    ("dce", dce),
)

Stage = tuple[str, Graph]


def pipeline(
    takes: Container[str] = (), fuses: bool = False, keeps: frozenset[str] = frozenset()
) -> tuple[tuple[str, Pass], ...]:
    """All passes from a recorded graph to what a backend lowers."""
    tidy = tuple((name, partial(simplify, keeps=keeps) if run is simplify else run) for name, run in TIDY)
    return (
        *EXPLICIT,
        *tidy,
        ("expand", lambda graph: expand(graph, takes)),
        *tidy,
        *((("attention", attention), ("causal", causal)) if AttendBackward.schema_v1.name in takes else ()),
        *((("fuse", fuse),) if fuses else ()),
    )


def run_passes(
    graph: Graph, passes: Sequence[tuple[str, Pass]], observe: Callable[[str, Graph], None] | None = None
) -> Graph:
    """``graph`` through ``passes`` in order; ``observe(name, after)`` sees each result.

    With ``LUCIDGRAPH_VERIFY=1`` every result is verified.
    """
    for name, run in passes:
        try:
            graph = run(graph)
            if config.verify_passes:
                graph.verify()
        except LucidGraphError:
            raise
        except Exception as error:
            hint = "this is a fault of lucidgraph; report it"
            raise PassError(f"the pass {name} failed: {error!r}", hint=hint) from error
        if observe is not None:
            observe(name, graph)
    return graph


def by_name(names: Sequence[str]) -> tuple[tuple[str, Pass], ...]:
    """The passes called ``names``, in that order."""
    known = dict(pipeline())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise PassError(f"no pass is called {unknown[0]!r}", hint=f"one of {', '.join(known)}")
    return tuple((name, known[name]) for name in names)


def explicit(graph: Graph) -> Graph:
    """A recorded graph made explicit; an explicit one as it is."""
    return graph if graph.form == "explicit" else run_passes(graph, EXPLICIT)
