"""How a program changes: passes from graph to graph, and the pipeline they form."""

from .backward import backward
from .broadcast import broadcast
from .cleanup import cse, dce
from .expand import expand
from .fold import fold
from .pipelines import by_name, explicit, pipeline, run_passes
from .promote import promote
from .simplify import simplify

__all__ = [
    "backward", "broadcast", "by_name", "cse", "dce", "expand", "explicit", "fold", "pipeline", "promote",
    "run_passes", "simplify",
]  # fmt: skip
