"""What every program is made of: constants, captured arrays, results, casts, and marks that passes read."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...dtypes import DType, bool_
from ...errors import DTypeError, ShapeError, VerifyError
from ..builder import Var
from ..graph import CapturedArray, Graph
from ..op import ZERO, Gradient, Op, register
from ..schema import AmpPolicy, OpSchema
from ..types import Shape, TensorType


class _Leaf(Op):
    """A node without operands; its type is stated by who makes it."""

    @classmethod
    def infer(cls, **attrs: Any) -> TensorType:
        raise VerifyError(f"the type of {cls.schema_v1.name} is stated, not inferred")

    @classmethod
    def evaluate(cls, **attrs: Any) -> Any:
        raise VerifyError(f"{cls.schema_v1.name} has no value of its own")


@register
class Input(_Leaf):
    """An argument of the graph."""

    schema_v1 = OpSchema("input", arity=0, internal=True)
    zero_gradient = "it has no operands"


@register
class Constant(_Leaf):
    """A scalar known exactly: Python's number, rounded to the node's dtype once."""

    schema_v1 = OpSchema("constant", arity=0, internal=True)
    bare = "value"
    zero_gradient = "it has no operands"


@register
class Captured(_Leaf):
    """An array the program took from its surroundings; only its type is part of the program."""

    schema_v1 = OpSchema("captured", arity=0, internal=True)
    bare = "value"
    zero_gradient = "it has no operands"
    captures = True

    @staticmethod
    def array(value: CapturedArray) -> Any:
        """The array, or :class:`VerifyError` where the graph was read from text and not bound."""
        if value.array is None:
            raise VerifyError("a captured array is unbound", hint="graph.bind(arrays) after Graph.parse")
        return value.array


@register
class Result(Op):
    """One result of a node that has several."""

    schema_v1 = OpSchema("result", internal=True)
    bare = "index"
    not_differentiable = "its node's gradient is taken as a whole"

    @classmethod
    def result_types(cls, types: Any, attrs: Any) -> tuple[TensorType, ...]:
        raise VerifyError("the type of a result is stated by its node")

    @classmethod
    def infer(cls, x: TensorType, *, index: int) -> TensorType:
        raise VerifyError("the type of a result is stated by its node")

    @classmethod
    def evaluate(cls, x: Any, *, index: int) -> Any:
        return x[index]


@register
class Kernel(Op):
    """One loop nest: the explicit graph ``body`` over the operands, which a backend compiles as a whole.

    Made by fusion after differentiation.
    """

    schema_v1 = OpSchema("kernel", arity=None, internal=True)
    not_differentiable = "gradients are taken before fusion"
    bare = "body"

    @classmethod
    def infer(cls, *operands: TensorType, body: Graph) -> tuple[TensorType, ...]:
        given = [TensorType(t.shape, t.dtype) for t in operands]
        if given != [node.type for node in body.inputs]:
            raise ShapeError(f"a kernel of {', '.join(map(str, body.inputs))} is given {', '.join(map(str, given))}")
        return tuple(node.type for node in body.outputs)

    @classmethod
    def evaluate(cls, *operands: Any, body: Graph) -> Any:
        raise VerifyError("a kernel's value is its body's")

    @staticmethod
    def domain(body: Graph) -> tuple[Shape, tuple[int, ...]]:
        """The full shape of a kernel's body and the axes it reduces."""
        for node in body.nodes:
            if node.op.reduces:
                return node.operands[0].shape, node.attrs["axis"]
        return max((node.shape for node in body.nodes if node.op.elementwise), key=lambda s: (len(s), prod(s))), ()


@register
class CastBackward(Op):
    """y = x in another dtype      ∂L/∂x = ∂L/∂y in x's dtype

    Floats become integers by truncation; complex numbers lose their imaginary part.
    """

    schema_v1 = OpSchema("cast")
    bare = "dtype"
    elementwise = True
    work = 1
    takes_wide_gradient = True

    @classmethod
    def same_everywhere(cls, types: Any, attrs: Any) -> bool:
        # A float outside the range of an integer type becomes whatever the machine makes of it.
        return not (types[0].dtype.is_inexact and attrs["dtype"].is_integer)

    @classmethod
    def infer(cls, x: TensorType, *, dtype: DType) -> TensorType:
        return TensorType(x.shape, dtype)

    @classmethod
    def promoted(cls, types: Any, attrs: Any, policy: Any) -> tuple[DType, ...]:
        return tuple(t.dtype for t in types)

    @classmethod
    def recorded(cls, types: Any, attrs: Any, policy: Any) -> tuple[TensorType, ...]:
        return (TensorType(types[0].shape, attrs["dtype"]),)

    @classmethod
    def evaluate(cls, x: Any, *, dtype: DType) -> Any:
        if np.iscomplexobj(x) and not dtype.is_complex:
            x = x != 0 if dtype.is_bool else x.real
        if dtype.is_bool:
            return x != 0
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(x).astype(dtype.numpy)

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        if not (self.x.dtype.is_inexact and self.y.dtype.is_inexact):
            return [ZERO]
        return [grad_out.astype(self.x.dtype)]


@register
class StopGradientBackward(Op):
    """y = x      ∂L/∂x = 0"""

    schema_v1 = OpSchema("stop_gradient")
    zero_gradient = "stop_gradient says so"
    elementwise = True
    identity = True
    idempotent = True
    moves_data = True

    @classmethod
    def infer(cls, x: TensorType) -> TensorType:
        return TensorType(x.shape, x.dtype)

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return x


@register
class PrimalBackward(Op):
    """y = x      ∂L/∂x = ∂L/∂y        Marks the value that a gradient is taken with respect to."""

    schema_v1 = OpSchema("primal", internal=True)
    elementwise = True
    identity = True
    idempotent = True
    moves_data = True

    @classmethod
    def infer(cls, x: TensorType) -> TensorType:
        return x

    @classmethod
    def evaluate(cls, x: Any) -> Any:
        return x

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        return [grad_out]


@register
class DebugPrint(Op):
    """Print ``format`` with the operands' values when the program runs. Its result is an empty boolean array."""

    schema_v1 = OpSchema("debug_print", amp_policy=AmpPolicy.KEEP_INPUT, arity=None)
    zero_gradient = "it only prints"
    effect = True

    @classmethod
    def shared_operands(cls, count: int) -> tuple[int, ...]:
        return ()

    @classmethod
    def infer(cls, *values: TensorType, format: str) -> TensorType:
        # A format fits types or does not: said here, where the line is known, and never in the middle of a run.
        try:
            format.format(*(np.broadcast_to(np.zeros((), t.dtype.numpy), t.shape) for t in values))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            given = ", ".join(map(str, values)) or "nothing"
            raise DTypeError(f"debug_print cannot put {given} into {format!r:.80}: {error}") from error
        return TensorType((0,), bool_)

    @classmethod
    def evaluate(cls, *values: Any, format: str) -> Any:
        print(format.format(*values), flush=True)
        return np.zeros((0,), np.bool_)

