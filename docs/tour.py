"""A tour of lucidgraph: from one line of a program to the code that runs, and back by its gradient.

    python docs/tour.py

Everything printed on the way is checked against what this page says it is, so the page is true or it does not run.
"""

from __future__ import annotations

import copy
import pickle
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

import lucidgraph as lg
from lucidgraph.ir import Composite, Var
from lucidgraph.ir.op import Unary


def shows(value: object, expected: str) -> None:
    """Print ``value``, and insist that it reads as written here, line numbers of this file aside."""
    text = str(value)
    print(textwrap.indent(text, "    "), end="\n\n")
    found, wanted = (re.sub(r"tour\.py:\d+", "tour.py:…", textwrap.dedent(t)).strip() for t in (text, expected))
    if found != wanted:
        sys.exit(f"this page says\n{wanted}\nbut it is\n{found}")


def chapter(title: str) -> None:
    print(f"\n== {title}\n")


def refused(run: Callable[[], Any]) -> lg.LucidGraphError:
    """The error that ``run`` ends in."""
    try:
        run()
    except lg.LucidGraphError as error:
        return error
    sys.exit("an error was expected")


# ----------------------------------------------------------------------------------------------------------------------
chapter("1. One line becomes a graph")
# A function runs once, on stand-ins that know their shape and dtype and nothing else. What it does to them is recorded.
# The graph that results is the program: inputs, one node per operation, outputs. Each node knows the line it came from.


def distance(x: Any, y: Any) -> Any:
    return lg.sum((x - y) * (x - y), axis=1)


points = np.array([[0, 0], [3, 4]], np.float32)
graph = lg.trace(distance, points, points[::-1])
shows(graph, """
    graph explicit(%0 "x": float32[2,2], %1 "y": float32[2,2]) {
      %2: float32[2,2] = subtract(%0, %1)  # (tour.py:…)
      %3: float32[2,2] = subtract(%0, %1)  # (tour.py:…)
      %4: float32[2,2] = multiply(%2, %3)  # (tour.py:…)
      %5: float32[2] = sum[axis=(1,), keepdims=False](%4)  # (tour.py:…)
      return %5
    }
""")
# A graph is a value: it runs, on any backend, on arrays in the order of its inputs.
shows(graph.run(points, points[::-1])[0], "[25. 25.]")
node = graph.nodes[-1]
shows((node.name, str(node.type), node.operands[0].name), "('sum', 'float32[2]', 'multiply')")

# ----------------------------------------------------------------------------------------------------------------------
chapter("2. Dtypes are decided once, and each decision says why")
# The page about sum that the whole design grew from: booleans and integers are promoted to 64 bits before the
# reduction. The promotion is a node of its own, with the reason and the line beside it.

votes = np.array([[True, False, True], [False, False, True]])
shows(lg.trace(lambda x: lg.sum(x, axis=1), votes), """
    graph explicit(%0 "x": bool[2,3]) {
      %1: int64[2,3] = cast[int64](%0)  # promote: sum counts bool in int64 (tour.py:…)
      %2: int64[2] = sum[axis=(1,), keepdims=False](%1)  # (tour.py:…)
      return %2
    }
""")
# What the user wrote, before any pass, is there too: the recorded form, in which operands may differ.
shows(lg.trace(lambda x: lg.sum(x, axis=1), votes, passes=()), """
    graph recorded(%0 "x": bool[2,3]) {
      %1: int64[2] = sum[axis=(1,), keepdims=False](%0)  # (tour.py:…)
      return %1
    }
""")
# So integers are exact, and a float sum needs no cast at all.
shows(lg.sum(np.array([2**31 - 1] * 3, np.int32)).item(), "6442450941")
shows(lg.sum(np.full(1000, 255, np.uint8)).dtype, "lucidgraph.uint64")
shows([n.name for n in lg.trace(lg.sum, np.ones(3, np.float32)).nodes], "['sum']")

# Between arrays the table is MLX's. A Python number is weak: it takes the dtype of the arrays it meets.
half, single = np.ones(2, np.float16), np.ones(2, np.float32)
shows(lg.trace(lambda h, s: h * 2.5 + s, half, single), """
    graph explicit(%0 "h": float16[2], %1 "s": float32[2]) {
      %2: float16[] = constant[2.5]()  # promote: a Python float meets float16 (tour.py:…)
      %3: float16[2] = broadcast_to[(2,)](%2)  # broadcast: multiply of () with (2,) (tour.py:…)
      %4: float16[2] = multiply(%0, %3)  # (tour.py:…)
      %5: float32[2] = cast[float32](%4)  # promote: add of float16 with float32 (tour.py:…)
      %6: float32[2] = add(%5, %1)  # (tour.py:…)
      return %6
    }
""")
# A pair that no integer dtype can hold becomes float32, and the node carries a lint that says so.
lossy = lg.trace(lambda a, b: a + b, np.ones(1, np.uint64), np.ones(1, np.int32))
shows(lossy.nodes[-1].lint, "uint64 with int32 gives float32, which cannot hold them exactly")

# ----------------------------------------------------------------------------------------------------------------------
chapter("3. Nothing is broadcast in silence")
# After promotion the second pass writes every broadcast down. From here on operands agree in dtype and shape, so no
# later pass, and no backend, has to know any rule of broadcasting.

row, column = np.ones((1, 3), np.float32), np.ones((2, 1), np.float32)
shows(lg.trace(lambda a, b: a * b, row, column), """
    graph explicit(%0 "a": float32[1,3], %1 "b": float32[2,1]) {
      %2: float32[2,3] = broadcast_to[(2, 3)](%0)  # broadcast: multiply of (1, 3) with (2, 3) (tour.py:…)
      %3: float32[2,3] = broadcast_to[(2, 3)](%1)  # broadcast: multiply of (2, 1) with (2, 3) (tour.py:…)
      %4: float32[2,3] = multiply(%2, %3)  # (tour.py:…)
      return %4
    }
""")

# ----------------------------------------------------------------------------------------------------------------------
chapter("4. Backward is a graph transform")
# `backward` gives the joint graph: the forward part, one more input per output (its cotangent), and one more output per
# input (its gradient). The nodes of the backward part carry the forward line they belong to.
#
# All reductions share one path: put the reduced axes back, broadcast to the operand's shape, then a hook of the op's
# class, `scale_graph_grad`. For sum it does nothing.

vector = np.arange(4, dtype=np.float32)
shows(lg.trace(lambda x: lg.sum(x), vector).backward(), """
    graph explicit(%0 "x": float32[4], %1 "cotangent0": float32[]) {
      %2: float32[] = sum[axis=(0,), keepdims=False](%0)  # (tour.py:…)
      %3: float32[1] = expand_dims[axis=(0,)](%1)  # backward: gradient of sum (tour.py:…)
      %4: float32[4] = broadcast_to[(4,)](%3)  # backward: gradient of sum (tour.py:…)
      return %2, %4
    }
""")
# For mean it multiplies by 1/N: one more step, and that is the whole difference.
mean = lg.trace(lambda x: lg.mean(x), vector).backward()
shows(" -> ".join(n.name for n in mean.nodes),
      "mean -> expand_dims -> broadcast_to -> constant -> broadcast_to -> multiply")  # fmt: skip
shows(mean.run(vector, np.float32(1))[1], "[0.25 0.25 0.25 0.25]")

# `grad` is the same transform on functions. It nests, because gradients are made of ordinary nodes.
cube = lambda x: x * x * x  # noqa: E731
shows([lg.grad(cube)(2.0).item(), lg.grad(lg.grad(cube))(2.0).item()], "[12.0, 12.0]")
shows(lg.value_and_grad(lambda p: lg.sum(p["w"] * p["b"]))({"w": vector, "b": vector})[1]["w"], "[0. 1. 2. 3.]")
# What a result does not depend on contributes exactly 0, even where its own derivative is infinite.
shows(lg.grad(lambda x: lg.sum(lg.where(x > 0, lg.sqrt(x), 0.0)))(lg.asarray([0.0, 4.0])), "[0.   0.25]")

# ----------------------------------------------------------------------------------------------------------------------
chapter("5. What backward keeps alive")
# Each op declares which operand values its gradient reads, `kSavesInput`, and whether it reads the result,
# `kSavesOutput`. A test holds every op to it. So the residuals of a program are known before anything runs.

shows((lg.ops.SumBackward.kSavesInput, lg.ops.MulBackward.kSavesInput, lg.ops.DivBackward.kSavesInput),
      "(False, True, ('y',))")  # fmt: skip
shows(lg.ops.SumBackward.schema_v1.amp_policy, "AmpPolicy.PROMOTE")
kept = lg.trace(lambda x, w: lg.sum(x * w + x), vector, vector).residuals()
shows([(r.nbytes, r.needed_by) for r in kept], "[(16, ('multiply',)), (16, ('multiply',))]")

# ----------------------------------------------------------------------------------------------------------------------
chapter("6. Passes, one by one")
# The pipeline is one literal list, the same for every program. Any prefix can be run and looked at.


def wasteful(x: Any) -> Any:
    lg.tan(x)
    return x * 6.0 + x * 6.0 + lg.nn.relu(x) * lg.abs(-1.0)


names = ("promote", "broadcast", "fold", "simplify", "cse", "dce", "expand")
for k in range(len(names) + 1):
    after = lg.trace(wasteful, vector, passes=names[:k])
    words = " ".join(n.name for n in after.nodes)
    print(f"    after {names[k - 1] if k else 'record':10} {len(after.nodes):2} nodes: {words}")
print()
# Each pass takes a graph and returns another; nodes never change. Each result verifies, means the same, and a second
# run of the same pass changes nothing.
assert after.verify() is after
assert np.array_equal(after.run(vector)[0], lg.trace(wasteful, vector).run(vector)[0])
assert "abs" not in [n.name for n in after.nodes], "abs(-1) was computed here, and a product with 1 is nothing"
assert "tan" not in [n.name for n in after.nodes], "nobody used it"
assert [n.name for n in after.nodes].count("multiply") == 1, "x * 6 was written twice"
assert "relu" not in [n.name for n in after.nodes], "a composite is written out in other ops"

# ----------------------------------------------------------------------------------------------------------------------
chapter("7. Text is complete")
# What is printed parses back to the same program: same text, same digest. That is also how a graph is pickled, so
# loading one runs no code. Captured arrays print as typed slots, which `bind` fills.

again = lg.Graph.parse(str(graph))
assert str(again) == str(graph)
assert again.digest == graph.digest == pickle.loads(pickle.dumps(graph)).digest
assert copy.deepcopy(graph) is graph, "immutable, so never copied"
offsets = np.array([10, 20, 30, 40], np.float32)
capturing = lg.Graph.parse(str(lg.trace(lambda x: x + offsets, vector)))
shows(refused(lambda: capturing.run(vector)).message, "a captured array is unbound")
shows(capturing.bind([offsets]).run(vector)[0], "[10. 21. 32. 43.]")

# ----------------------------------------------------------------------------------------------------------------------
chapter("8. Writing an op")
# One class holds all the mathematics. A composite is written in other ops, and everything follows from that; a
# primitive states its meaning in NumPy and its gradient. Registration checks that no duty is missing.


@lg.ops.register
class SquareplusBackward(Composite):
    """y = (x + √(x² + b)) / 2      ∂L/∂x = g (1 + x / √(x² + b)) / 2"""

    schema_v1 = lg.OpSchema("squareplus", amp_policy=lg.AmpPolicy.FORCE_FP32)

    @staticmethod
    def expand(x: Var, *, b: float) -> Var:
        return (x + (x * x + b).emit("sqrt")) * 0.5


def squareplus(x: Any) -> Any:
    return lg.ops.apply(SquareplusBackward, x, b=4.0)


shows(lg.compile(squareplus)(np.array([-1.5, 0.0, 1.5], np.float32)), "[0.5 1.  2. ]")
shows(round(lg.grad(squareplus)(1.5).item(), 6), "0.8")
shows([n.name for n in lg.trace(squareplus, np.ones(3, np.int32)).nodes], "['cast', 'squareplus']")


class Nameless(Unary):
    """An op that does not say what it means."""

    schema_v1 = lg.OpSchema("nameless")


try:
    lg.ops.register(Nameless)
except TypeError as error:
    shows(error, "Nameless lacks evaluate, grad_formula (or zero_gradient, not_differentiable)")

# ----------------------------------------------------------------------------------------------------------------------
chapter("9. Autocast is a policy, op by op")
# Contractions go to half precision; ops that need range go to float32; everything else takes what comes. The policy is
# part of what was traced, and each cast says that autocast asked for it.


def layer(x: Any, w: Any) -> Any:
    return lg.softmax(x @ w)


with lg.autocast(lg.bfloat16):
    shows(lg.trace(layer, np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)), """
        graph explicit(%0 "x": float32[2,3], %1 "w": float32[3,4]) {
          %2: bfloat16[2,3] = cast[bfloat16](%0) under bfloat16  # promote: autocast runs matmul in bfloat16 (tour.py:…)
          %3: bfloat16[3,4] = cast[bfloat16](%1) under bfloat16  # promote: autocast runs matmul in bfloat16 (tour.py:…)
          %4: bfloat16[2,4] = matmul(%2, %3) under bfloat16  # (tour.py:…)
          %5: float32[2,4] = cast[float32](%4) under bfloat16  # promote: autocast runs softmax in float32 (tour.py:…)
          %6: float32[2,4] = softmax[axis=1](%5) under bfloat16  # (tour.py:…)
          return %6
        }
    """)
    # The gradient of a float32 weight is float32: the backward of a cast is a cast back.
    slopes = lg.grad(lambda w: lg.sum(layer(np.ones((2, 3), np.float32), w)))(np.ones((3, 4), np.float32))
    shows(slopes.dtype, "lucidgraph.float32")

# ----------------------------------------------------------------------------------------------------------------------
chapter("10. Outside compile, values wait until they are needed")
# The same functions work on values directly. An operation is recorded, and computed when somebody looks. Programs seen
# before run as one.

waiting = lg.asarray([1.0, 2.0, 3.0]) * 2 + 1
shows(waiting, "[3. 5. 7.]")
shows((float(waiting[0]), waiting.tolist(), waiting.shape), "(3.0, [3.0, 5.0, 7.0], (3,))")
source = np.zeros(2, np.float32)
later = lg.asarray(source) + 1
source[:] = 100
shows(later, "[1. 1.]")  # what was captured has the value of the moment of capture

# ----------------------------------------------------------------------------------------------------------------------
chapter("11. Compile, and why it compiled again")
# One program per signature: structure, shapes, dtypes, static values, policy. A Python number is an input like any
# other, until the function asks for its value.


@lg.compile
def decay(x: Any, rate: Any, steps: int) -> Any:
    for _ in range(steps):
        x = x * rate
    return x


for rate in (0.5, 0.25, 0.125):
    decay(vector, rate, 1)
decay(vector[:2], 0.5, 1)
decay(vector, 0.5, 3)
shows(re.sub(r", at tour.py:\d+", "", decay.explain()).partition("\n")[2], """
      1. the first call
      2. x: float32[4] before, float32[2] now
      3. steps: 1 before, 3 now
""")
shows(decay.cache_info().currsize, "3")
with lg.disable_compile():
    shows(decay(vector, 2.0, 1), "[0. 2. 4. 6.]")  # op by op, for a debugger

# ----------------------------------------------------------------------------------------------------------------------
chapter("12. Backends")
# A backend takes an explicit graph and returns something that runs. The reference is NumPy, node by node: slow, and the
# meaning of everything. What a backend compiled is there to read.

for name, why in lg.backends().items():
    print(f"    {name}: {why}")
print()
lowered = lg.compile(distance, backend="reference").lower(points, points)
shows([n.name for n in lowered.graph.nodes], "['subtract', 'multiply', 'sum']")
assert lowered.compile().source
for name, why in lg.backends().items():
    if why == "available":
        shows(graph.run(points, points[::-1], backend=name)[0], "[25. 25.]")

# ----------------------------------------------------------------------------------------------------------------------
chapter("13. Errors say what, where and what to try")
# What failed, the user's line, the types, a way out. Each error is also one of Python's own kinds.

shows(refused(lambda: lg.trace(lambda x: lg.sum(x, axis=3), votes)), """
    sum: axis 3 is out of range for 2 axes
      at tour.py:…: shows(refused(lambda: lg.trace(lambda x: lg.sum(x, axis=3), votes)), \"\"\"
      try: an axis from -2 to 1
""")
error = refused(lambda: lg.trace(lambda x: 1 if x > 0 else 2, np.ones((), np.float32)))
shows(type(error).__mro__[2].__name__, "TypeError")
shows(error.hint, """
    lucidgraph.where or lucidgraph.cond for a choice, lucidgraph.debug_print to look at it, static_argnames for an argument that shapes the program
""")  # noqa: E501
shows(refused(lambda: lg.grad(lambda x: lg.sum(x))(np.arange(3))).hint,
      "cast it to a floating dtype, or leave it out of argnums")  # fmt: skip
print("That is all of it.")
