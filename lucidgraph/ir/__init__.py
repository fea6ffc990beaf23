"""What a program is: types, schemas, nodes, graphs, ops and their meaning in NumPy."""

from . import op as _op
from . import ops as ops
from .builder import LOOKUP, Builder, Var
from .evaluate import evaluate
from .graph import HOOKS, CapturedArray, Graph, Node, Origin, topological
from .op import ZERO, Composite, Op
from .schema import Accumulate, AmpPolicy, OpSchema
from .text import parse_graph, print_graph, skeleton
from .types import TensorType
from .verify import verify

LOOKUP["op"] = _op.get
HOOKS.update(text=print_graph, parse=parse_graph, skeleton=skeleton, verify=verify)

__all__ = [
    "HOOKS",
    "ZERO",
    "Accumulate",
    "AmpPolicy",
    "Builder",
    "CapturedArray",
    "Composite",
    "Graph",
    "Node",
    "Op",
    "OpSchema",
    "Origin",
    "TensorType",
    "Var",
    "evaluate",
    "ops",
    "topological",
    "verify",
]
