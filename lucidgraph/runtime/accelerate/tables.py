"""All ops that are not fused, and who lowers them."""

from __future__ import annotations

from typing import Final

from . import attention, host, index, linalg, scan, window
from .plan import Rule

TABLE: Final[dict[str, Rule]] = {**attention.OPS, **host.OPS, **index.OPS, **linalg.OPS, **scan.OPS, **window.OPS}
