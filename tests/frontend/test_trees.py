"""Containers of arrays, in and out, compiled and differentiated."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import lucidgraph as lg
from lucidgraph import trees


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Params:
    w: Any
    b: Any = 0.0
    name: str = "layer"
    kind: ClassVar[str] = "params"

    def norm(self) -> Any:
        return lg.sum(self.w * self.w)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    x: Any
    inner: Params | None = None


@dataclasses.dataclass
class Child(Params):
    extra: Any = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.twice = self.w * 2


X = np.arange(3, dtype=np.float32)
DEFAULTS = collections.defaultdict(list, {"k": [X]})

TREES = {
    "dict": {"b": X, "a": X + 1},
    "nested": {"p": [X, (X, {"q": X})], "empty": [{}, (), [], None]},
    "tuple": (X, X),
    "list": [X],
    "namedtuple": Pair(X, [X]),
    "dataclass": Params(X, X),
    "frozen": Frozen(X, Params(X, X)),
    "inherited": Child(X, X, extra=[X, X]),
    "ordered": collections.OrderedDict([("z", X), ("a", X)]),
    "default": DEFAULTS,
    "deque": collections.deque([X, X]),
    "int keys": {3: X, 1: X},
    "mixed keys": {3: X, "a": X, (1, 2): X},
    "none": None,
    "nothing": (),
    "tuple keys": {(0, 1): X},
    "statics": {"name": "text", "flag": True, "none": None, "x": X},
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray | lg.Tensor):
        return type(a) is type(b) and np.array_equal(np.asarray(a), np.asarray(b))
    if dataclasses.is_dataclass(a):
        names = [f.name for f in dataclasses.fields(a)] + sorted(getattr(a, "__dict__", ()))
        return type(a) is type(b) and all(same(getattr(a, n), getattr(b, n)) for n in names)
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple | list | collections.deque):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("name", TREES)
def test_trees_go_in_and_come_out(name: str) -> None:
    f = lg.compile(lambda tree: tree, backend="reference")
    for _ in range(2):
        assert same(TREES[name], f(TREES[name]))
    assert f.cache_info().misses == 1


@pytest.mark.parametrize("name", ["dict", "nested", "namedtuple", "frozen", "ordered", "int keys", "mixed keys"])
def test_gradients_have_the_structure_of_the_argument(name: str) -> None:
    tree = trees.map_leaves(lambda v: v if isinstance(v, np.ndarray) else np.float32(1), TREES[name])

    def loss(tree: Any) -> Any:
        total = lg.asarray(0.0)
        for leaf in trees.flatten(tree)[0]:
            total = total + lg.sum(leaf * leaf)
        return total

    expected = trees.map_leaves(lambda v: np.asarray(2 * v), tree)
    if name == "frozen":
        with pytest.raises(lg.DTypeError, match=r"not str: 'layer'"):
            lg.grad(loss)(TREES[name])
    assert same(expected, lg.compile(lg.grad(loss), backend="reference")(tree))


def test_dict_order_is_no_part_of_the_structure() -> None:
    f = lg.compile(lambda d: d["a"] - d["b"], backend="reference")
    assert f({"a": X, "b": X + 1}).tolist() == [-1, -1, -1]
    assert f({"b": X + 1, "a": X}).tolist() == [-1, -1, -1]
    assert f.cache_info().currsize == 1


def test_structure_is() -> None:
    f = lg.compile(lambda d: None, backend="reference")
    for d in ({"a": X}, {"b": X}, [X], (X,), Pair(X, X), (X, X), Params(X), Params(X, name="other"), None, {"a": None}):
        f(d)
    assert f.cache_info().currsize == 10


def test_none_and_zero_in_both_orders() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x,) if y is None else (x, x + y)

    for order in ((0, None, 0, None), (None, 0, None, 0)):
        g = lg.compile(f, backend="reference")
        assert [len(g(X, y)) for y in order] == [1 if y is None else 2 for y in order]


def test_dataclasses_keep_their_methods_and_what_they_computed() -> None:
    f = lg.compile(lambda p: (p.norm(), p.twice, p.kind, p.name), backend="reference")
    norm, twice, kind, name = f(Child(X, name="c"))
    assert norm == 5 and twice.tolist() == [0, 2, 4] and (kind, name) == ("params", "c")


def test_static_fields_of_dataclasses() -> None:
    f = lg.compile(lambda p: p.w * 2 if p.name == "double" else p.w, backend="reference")
    assert f(Params(X, name="double"))[1] == 2 and f(Params(X, name="single"))[1] == 1


def test_a_dataclass_with_a_field_that_was_never_set() -> None:
    @dataclasses.dataclass
    class Lazy:
        w: Any
        cache: Any = dataclasses.field(init=False)

    value = lg.compile(lambda p: p, backend="reference")(Lazy(X))
    assert same(value.w, X) and "cache" not in vars(value)


def test_classes_of_equal_names_are_different_structures() -> None:
    def make(scale: float) -> Any:
        @dataclasses.dataclass
        class Local:
            w: Any

            def out(self) -> Any:
                return self.w * scale

        return Local(X)

    f = lg.compile(lambda p: p.out(), backend="reference")
    assert f(make(2.0))[1] == 2 and f(make(3.0))[1] == 3


def test_names_of_leaves() -> None:
    graph = lg.trace(lambda p, *rest, **more: p, Frozen(X, Params(X)), {"a": [X]}, (X, X), k=Pair(X, X))
    assert graph.input_names == (
        "p.x", "p.inner.w", "p.inner.b", "rest[0]['a'][0]", "rest[1][0]", "rest[1][1]", "k.left", "k.right",
    )  # fmt: skip


def test_functions_that_return_what_is_no_array() -> None:
    for value in (object(), {1, 2}, lambda: 0, (v for v in ())):
        with pytest.raises(lg.DTypeError, match="a traced function returned"):
            lg.compile(lambda x, value=value: (x, value), backend="reference")(X)
