"""One table of all chapters: op name -> how MLX computes it."""

from __future__ import annotations

from typing import Final

from ...errors import UnsupportedError
from ...ir import Node
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
from .writing import Entry, Table, Unsupported

__all__ = ["CHAPTERS", "TABLE", "TAKES", "entry"]

CHAPTERS: Final = (
    core, arithmetic, compare, bitwise, math, activation, reduce, shape, index, creation, linalg, nn, scan, window,
    attention,
)  # fmt: skip

TABLE: Final[Table] = {name: how for chapter in CHAPTERS for name, how in chapter.TABLE.items()}

TAKES: Final = attention.TAKES | nn.TAKES | scan.TAKES
"""The composites that MLX may take whole."""


def entry(node: Node) -> Entry:
    """How the node's op is lowered. Raises :class:`UnsupportedError` where it is not."""
    how = TABLE.get(node.name, Unsupported("there is no entry for it in lucidgraph.runtime.mlx.tables.TABLE"))
    if isinstance(how, Unsupported):
        raise UnsupportedError(
            f"the mlx backend cannot run {node.name}: {how.why}",
            source=node.source,
            hint='backend="reference" runs every op',
        )
    return how
