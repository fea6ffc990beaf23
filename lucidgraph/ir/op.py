"""The class of an op: all its mathematics in one place, and the registry that finds it by name.

A class is never instantiated to mean an operation; a :class:`~lucidgraph.ir.graph.Node` refers to the class. Its
*instance* is the autograd node: bound to one graph node and a builder, it writes gradient nodes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final, final

import numpy as np

from ..dtypes import DType, accumulator, complex128, float32, float64, is_lossy_pair, result_type
from ..errors import DTypeError, NotDifferentiableError, ShapeError
from .builder import Builder, Var
from .graph import Node
from .schema import Accumulate, AmpPolicy, OpSchema
from .types import Shape, TensorType


@final
class Zero:
    """The gradient of an operand that the result does not depend on smoothly."""

    def __repr__(self) -> str:
        return "ZERO"


ZERO: Final = Zero()
Gradient = Var | Zero
Types = tuple[TensorType, ...]
Attrs = Mapping[str, Any]

REGISTRY: Final[dict[str, type[Op]]] = {}


def get(name: str) -> type[Op]:
    """The op called ``name``. Raises :class:`DTypeError` for a name that nobody registered.

    >>> get("sum").__name__
    'SumBackward'
    """
    try:
        return REGISTRY[name]
    except KeyError:
        raise DTypeError(f"no op is called {name!r}", hint="register it with lucidgraph.ops.register") from None


def register(op: type[Op]) -> type[Op]:
    """Make ``op`` known by its schema's name. Refuses a second class of the same name, and a class without its duties.

    Usable as a decorator; this is also how ops from outside the package are added. ``docs/adding-an-op.md`` shows it.

    >>> register(get("sum")) is get("sum")
    True
    """
    missing = op.missing_duties()
    if missing:
        raise TypeError(f"{op.__qualname__} lacks {', '.join(missing)}")
    name = op.schema_v1.name
    known = REGISTRY.get(name)
    if known is not None and known is not op:
        raise DTypeError(f"an op called {name!r} is registered already: {known.__module__}.{known.__qualname__}")
    REGISTRY[name] = op
    return op


def broadcast_shapes(shapes: Sequence[Shape], what: str) -> Shape:
    """The common shape by NumPy's rule.

    >>> broadcast_shapes([(1, 3), (2, 1), ()], "add")
    (2, 3)
    """
    rank = max((len(s) for s in shapes), default=0)
    out = [1] * rank
    for shape in shapes:
        for k, size in enumerate(shape, start=rank - len(shape)):
            if size != 1:
                if out[k] not in (1, size):
                    raise ShapeError(
                        f"{what} cannot broadcast shapes {' and '.join(map(str, shapes))}",
                        hint="make the trailing sizes equal, or 1",
                    )
                out[k] = size
    return tuple(out)


_attributes: dict[type[Op], Mapping[str, inspect.Parameter]] = {}


class Op:
    """Base of all ops. A subclass declares, with its schema:

    * ``infer(*types, **attrs)``: the result type of explicit operands (equal dtypes, broadcast shapes);
    * ``evaluate(*arrays, **attrs)``: the meaning, in NumPy;
    * ``grad_formula(self, grad_out)``: one gradient per operand, a node or ``ZERO``; or ``zero_gradient`` /
      ``not_differentiable``, the reason why there is none;
    * ``kSavesInput``, ``kSavesOutput``: what the gradient reads (True, False, or the operands' names);
    * the facts that hold for it.
    """

    schema_v1: ClassVar[OpSchema]
    kSavesInput: ClassVar[bool | tuple[str, ...]] = False
    kSavesOutput: ClassVar[bool] = False

    zero_gradient: ClassVar[str] = ""
    """Why the gradient is zero (step functions, integer results); empty when there is a formula."""
    not_differentiable: ClassVar[str] = ""
    """Why asking for a gradient is an error; empty when there is a formula."""

    elementwise: ClassVar[bool] = False
    commutative: ClassVar[bool] = False
    """f(x, y) = f(y, x), to the bit."""
    associative: ClassVar[bool] = False
    """f(f(x, y), z) = f(x, f(y, z)): exactly of integers and booleans, but for rounding of floats."""
    idempotent: ClassVar[bool] = False
    """f(f(x)) = f(x); of two operands, f(x, x) = x."""
    involution: ClassVar[bool] = False
    """f(f(x)) = x, exactly."""
    even: ClassVar[bool] = False
    """f(-x) = f(x), exactly."""
    whole: ClassVar[bool] = False
    """The result is a whole number, and that of a whole number is itself."""
    identity: ClassVar[bool] = False
    """f(x) = x: a mark that passes read."""
    moves_data: ClassVar[bool] = False
    """Only copies elements: exact in every dtype."""
    view: ClassVar[bool] = False
    """The result is the operand's elements under other strides: no work where strides are free."""
    aliases: ClassVar[bool] = False
    """NumPy gives a view of the operand: a write to one shows in the other."""
    reduces: ClassVar[bool] = False
    """Folds the axes named by the attribute ``axis``, and can share a loop with what produces its operand."""
    partial: ClassVar[str] = ""
    """The reduction whose results over pieces of an axis this one can finish: sum for mean; empty where none is."""
    keeps_order: ClassVar[bool] = False
    """The result is its operand's elements in the same row-major order, in another shape."""
    exactly_rounded: ClassVar[bool] = False
    """Each element is the exact result rounded once, so that every backend has the same bits."""
    effect: ClassVar[bool] = False
    """Must run, and in order, though nothing uses its result."""
    captures: ClassVar[bool] = False
    composite: ClassVar[bool] = False
    takes_wide_gradient: ClassVar[bool] = False
    """``grad_formula`` takes the gradient in float32 where the result is half precision."""
    bare: ClassVar[str] = ""
    """The attribute that prints without its name: ``cast[int64]``."""
    flops_per_element: ClassVar[int] = 0
    """Floating-point operations per result element, for cost estimates; 0 for data movement."""
    work: ClassVar[int] = 0
    """About how many vector instructions an element takes on a processor: what computing it again costs, against the
    bytes it is stored in. Functions are counted as the polynomials they are."""

    # -- as the autograd node of one graph node

    def __init__(self, node: Node, builder: Builder) -> None:
        self.node = node
        self.builder = builder

    @property
    def x(self) -> Var:
        """The first operand."""
        return Var(self.builder, self.node.operands[0])

    @property
    def y(self) -> Var:
        """The result."""
        return Var(self.builder, self.node)

    @property
    def inputs(self) -> tuple[Var, ...]:
        return tuple(Var(self.builder, operand) for operand in self.node.operands)

    @property
    def in_types(self) -> Types:
        return tuple(operand.type for operand in self.node.operands)

    @property
    def attrs(self) -> Attrs:
        return self.node.attrs

    def grad_formula(self, grad_out: Var) -> list[Gradient]:
        """The gradient of each operand, given that of the result."""
        if self.zero_gradient:
            return [ZERO] * len(self.node.operands)
        raise NotDifferentiableError(
            f"{self.node.name} has no gradient: {self.not_differentiable}",
            source=self.node.source,
            hint="put lucidgraph.stop_gradient around its operand if no gradient is wanted",
        )

    # -- building

    @classmethod
    def of(cls, *operands: Var | float, **attrs: Any) -> Var:
        """A node of this op over explicit operands, in their builder. Numbers take the first one's dtype."""
        like = next(v for v in operands if isinstance(v, Var))
        nodes = [v.node if isinstance(v, Var) else like.scalar(v).node for v in operands]
        return Var(like.builder, like.builder.emit(cls, nodes, attrs))

    # -- types

    @classmethod
    def infer(cls, *types: Any, **attrs: Any) -> TensorType | Types:
        raise TypeError(f"{cls.__qualname__}.infer is missing")

    @classmethod
    def shared_operands(cls, count: int) -> Sequence[int]:
        """The operands that go to one dtype together: all, unless an op says otherwise (indices and masks do not)."""
        return range(count)

    @classmethod
    def promoted(cls, types: Types, attrs: Attrs, policy: DType | None) -> tuple[DType, ...]:
        """The dtype each operand is cast to: the schema's policy, and autocast's where ``policy`` is its dtype."""
        schema = cls.schema_v1
        result = [t.user_dtype for t in types]
        group = list(cls.shared_operands(len(types)))
        if not group:
            return tuple(result)
        if cls.weakly_typed(types):
            common = max((types[k].dtype for k in group), key=lambda d: "bifc".index(d.kind))
            if schema.takes_reals_only and not common.is_inexact:
                common = float64
        else:
            strong = [types[k].dtype for k in group if not types[k].weak]
            common = result_type(strong, [types[k].dtype.kind for k in group if types[k].weak])
            if attrs.get("dtype") is not None:
                common = attrs["dtype"]
            elif schema.accumulate is Accumulate.WIDE:
                common = accumulator(common)
            if schema.takes_reals_only and not common.is_inexact:
                common = float32
            if policy is not None and common.is_floating and common is not float64:
                if schema.contraction:
                    common = policy
                elif schema.amp_policy is AmpPolicy.FORCE_FP32 and common.is_half:
                    common = float32
        for k in group:
            result[k] = common
        return tuple(result)

    @classmethod
    def weakly_typed(cls, types: Types) -> bool:
        """Whether the operands are Python numbers alone, so that the result is one; a bool has a strong type."""
        if not cls.elementwise or not any(t.weak for t in types):
            return False
        return all(t.weak or (t.dtype.is_bool and not t.shape) for t in types)

    @classmethod
    def broadcasted(cls, types: Types, attrs: Attrs) -> tuple[Shape, ...]:
        """The shape each operand is broadcast to."""
        return tuple(t.shape for t in types)

    @classmethod
    def recorded(cls, types: Types, attrs: Attrs, policy: DType | None) -> Types:
        """The result types of operands as the user gave them."""
        dtypes = cls.promoted(types, attrs, policy)
        shapes = cls.broadcasted(types, attrs)
        weak = cls.weakly_typed(types)
        inferred = cls.result_types([TensorType(s, d) for s, d in zip(shapes, dtypes, strict=True)], attrs)
        if not weak:
            return inferred
        return tuple(TensorType(t.shape, t.dtype, weak=not t.dtype.is_bool) for t in inferred)

    @classmethod
    def result_types(cls, types: Sequence[TensorType], attrs: Attrs) -> Types:
        """``infer``, always as a tuple."""
        arity = cls.schema_v1.arity
        if arity is not None and len(types) != arity:
            raise ShapeError(f"{cls.schema_v1.name} takes {arity} operands, not {len(types)}")
        inferred = cls.infer(*types, **attrs)
        return inferred if isinstance(inferred, tuple) else (inferred,)

    @classmethod
    def lint(cls, types: Types) -> str:
        """A remark on a lossy promotion, or an empty string."""
        strong = [types[k].dtype for k in cls.shared_operands(len(types)) if not types[k].weak]
        for a, b in pairwise(strong):
            if is_lossy_pair(a, b):
                return f"{a.name} with {b.name} gives float32, which cannot hold them exactly"
        return ""

    # -- meaning and launching

    @classmethod
    def evaluate(cls, *arrays: Any, **attrs: Any) -> Any:
        """The value in NumPy. Half-precision operands arrive as float32; the result is rounded to the result type."""
        raise TypeError(f"{cls.__qualname__}.evaluate is missing")

    @classmethod
    def same_everywhere(cls, types: Sequence[TensorType], attrs: Attrs) -> bool:
        """Whether the value for operands of these types is the same to the bit on every backend."""
        return cls.moves_data or (cls.exactly_rounded and not any(t.dtype.is_complex for t in types))

    @staticmethod
    def dispatch(be: Any, *args: Any) -> Any:
        """Run this op alone on a backend's own buffers: ``be.run_op(node, buffers)``."""
        return be.run_op(*args)

    @classmethod
    def launch(cls, be: Any, node: Node, buffers: Sequence[Any]) -> Any:
        """Call :meth:`dispatch` for one graph node; an op with its own ``dispatch`` signature maps it here."""
        return cls.dispatch(be, node, buffers)

    @classmethod
    def flops(cls, types: Sequence[TensorType], results: Types, attrs: Attrs) -> int:
        """Floating-point operations of one run."""
        return cls.flops_per_element * sum(r.size for r in results)

    # -- duties

    @classmethod
    def operand_names(cls) -> tuple[str, ...]:
        """The names of the operands, from ``infer``'s signature; a variadic op has one name."""
        parameters = inspect.signature(cls.infer).parameters.values()
        attributes = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        return tuple(p.name for p in parameters if p.kind not in attributes)

    @classmethod
    def attributes(cls) -> Mapping[str, inspect.Parameter]:
        """The attributes, their types and defaults: what ``infer`` takes by keyword (of a composite, ``expand``)."""
        known = _attributes.get(cls)
        if known is None:
            parameters = inspect.signature(cls.attribute_rule(), eval_str=True).parameters
            known = {k: p for k, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
            _attributes[cls] = known
        return known

    @classmethod
    def attribute_rule(cls) -> Callable[..., Any]:
        return cls.infer

    @classmethod
    def missing_duties(cls) -> list[str]:
        missing = [] if "schema_v1" in vars(cls) else ["schema_v1"]
        if cls.infer.__func__ is Op.infer.__func__:  # type: ignore[attr-defined]
            missing.append("infer")
        if cls.evaluate.__func__ is Op.evaluate.__func__:  # type: ignore[attr-defined]
            missing.append("evaluate")
        has_formula = cls.grad_formula is not Op.grad_formula
        if not has_formula and not cls.zero_gradient and not cls.not_differentiable and not cls.composite:
            missing.append("grad_formula (or zero_gradient, not_differentiable)")
        return missing


class Elementwise(Op):
    """Each result element depends on the operands' elements at the same place."""

    elementwise = True
    flops_per_element = 1
    work = 1

    @classmethod
    def broadcasted(cls, types: Types, attrs: Attrs) -> tuple[Shape, ...]:
        first = types[0].shape
        if all(t.shape == first for t in types):
            return (first,) * len(types)
        return (broadcast_shapes([t.shape for t in types], cls.schema_v1.name),) * len(types)

    @classmethod
    def check(cls, types: Sequence[TensorType]) -> TensorType:
        """The type that the shared operands have in common."""
        name = cls.schema_v1.name
        shapes = {t.shape for t in types}
        if len(shapes) > 1:
            raise ShapeError(f"{name} needs equal shapes, not {' and '.join(str(t) for t in types)}")
        shared = [types[k] for k in cls.shared_operands(len(types))]
        if len({t.dtype for t in shared}) > 1:
            raise DTypeError(f"{name} needs equal dtypes, not {' and '.join(str(t) for t in types)}")
        cls.check_dtype(shared[0].dtype)
        return TensorType(types[0].shape, shared[0].dtype)

    @classmethod
    def check_dtype(cls, dtype: DType) -> None:
        """Raise :class:`DTypeError` for a dtype the op has no meaning for."""
        if cls.schema_v1.takes_reals_only and not dtype.is_inexact:
            raise DTypeError(f"{cls.schema_v1.name} takes floating or complex operands, not {dtype.name}")

    @classmethod
    def result_dtype(cls, dtype: DType) -> DType:
        return dtype

    @classmethod
    def infer(cls, *types: TensorType, **attrs: Any) -> TensorType:
        t = cls.check(types)
        return TensorType(t.shape, cls.result_dtype(t.dtype))


class Unary(Elementwise):
    """y = f(x), element by element."""

    @classmethod
    def infer(cls, x: TensorType) -> TensorType:  # type: ignore[override]
        return super().infer(x)


class Binary(Elementwise):
    """z = f(x, y), element by element; both operands go to one dtype."""

    @classmethod
    def infer(cls, x: TensorType, y: TensorType) -> TensorType:  # type: ignore[override]
        return super().infer(x, y)


class Composite(Op):
    """An op that is written out in others.

    ``expand`` says how; type, meaning, gradient and lowering follow from it unless the class states better ones. A
    FORCE_FP32 composite of half-precision operands is computed in float32 and rounded once.
    """

    composite = True

    @staticmethod
    def expand(*operands: Var, **attrs: Any) -> Var:
        raise TypeError("expand is missing")

    @classmethod
    def expansion(cls, operands: Sequence[Var], attrs: Attrs) -> Var:
        """``expand``, through float32 where the policy wants it."""
        shared = [operands[k] for k in cls.shared_operands(len(operands))]
        dtype = shared[0].dtype if shared else None
        if dtype is None or not dtype.is_half or cls.schema_v1.amp_policy is not AmpPolicy.FORCE_FP32:
            return cls.expand(*operands, **attrs)
        wide = [v.astype(float32) if v.dtype.is_half else v for v in operands]
        return cls.expand(*wide, **attrs).astype(dtype)

    @classmethod
    def attribute_rule(cls) -> Callable[..., Any]:
        return cls.expand

    @classmethod
    def has_own_gradient(cls) -> bool:
        return cls.grad_formula is not Op.grad_formula

    @classmethod
    def infer(cls, *types: TensorType, **attrs: Any) -> TensorType:
        builder = Builder()
        return cls.expansion([Var(builder, builder.input(t)) for t in types], attrs).node.type

    @classmethod
    def missing_duties(cls) -> list[str]:
        missing = [] if "schema_v1" in vars(cls) else ["schema_v1"]
        return missing if cls.expand is not Composite.expand else [*missing, "expand"]


class ElementwiseComposite(Composite, Elementwise):
    """A composite whose result element depends on the operands' elements at the same place."""

    @classmethod
    def infer(cls, *types: TensorType, **attrs: Any) -> TensorType:
        t = cls.check(types)
        return TensorType(t.shape, cls.result_dtype(t.dtype))


def widest_weak(kind: str) -> DType:
    """The dtype in which a weak value of this kind is held."""
    return complex128 if kind == "c" else float64


def as_result(value: Any, t: TensorType) -> np.ndarray[Any, Any]:
    """A NumPy value as an array of exactly the result type."""
    array = np.asarray(value)
    return array if array.dtype == t.dtype.numpy else array.astype(t.dtype.numpy)
