"""The peers: for each, the namespace that a workload is written over, and how its function becomes a call.

``PEERS[name]`` imports that peer's library (an ImportError says that it is not there) and gives a ``Peer``, whose
``prepare(name, work, args)`` gives a function and its arguments, ready to be timed: calling it finishes the work.
``MissingError`` says that the peer cannot express the workload. Each runs in a process of its own (worker.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from math import erf
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from benchmarks import workloads
from benchmarks.workloads import Workload

__all__ = ["PEERS", "Call", "MissingError", "Peer", "over_numpy"]


class MissingError(Exception):
    """This peer has no form of the workload."""


class Call(NamedTuple):
    fn: Callable[..., Any]
    args: tuple[Any, ...]


class Peer(NamedTuple):
    version: str
    prepare: Callable[[str, Workload, tuple[Any, ...]], Call]
    to_numpy: Callable[[Any], Any] = np.asarray


def namespace(library: Any, **own: Any) -> Any:
    """The names of ``library``, with those of ``own`` put over them; a module, which every tracer looks through."""
    module = ModuleType(f"over_{library.__name__}")
    vars(module).update(vars(library))
    vars(module).update(own)
    return module


def each(fn: Callable[[Any], Any], args: Any) -> Any:
    """``fn`` of every array of a tree of lists and tuples."""
    return type(args)(each(fn, a) for a in args) if isinstance(args, list | tuple) else fn(args)


def chosen(argnums: int | tuple[int, ...]) -> tuple[int, ...]:
    return (argnums,) if isinstance(argnums, int) else argnums


# -- NumPy


def numpy_logsumexp(x: Any, axis: int) -> Any:
    most = x.max(axis, keepdims=True)
    return np.log(np.exp(x - most).sum(axis)) + most.squeeze(axis)


def numpy_scatter_add(table: Any, ids: Any, values: Any) -> Any:
    out = table.copy()
    np.add.at(out, ids, values)
    return out


def numpy_conv2d(x: Any, w: Any) -> Any:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.tensordot(windows, w, axes=((3, 4, 5), (3, 1, 2)))


def numpy_max_pool2d(x: Any) -> Any:
    batch, high, wide, channels = x.shape
    return x.reshape(batch, high // 2, 2, wide // 2, 2, channels).max((2, 4))


def numpy_gradient(loss: Callable[..., Any], argnums: Any = 0) -> Any:
    raise MissingError("NumPy has no gradients")


def over_numpy(**own: Any) -> Any:
    try:
        special = importlib.import_module("scipy.special").erf
    except ImportError:
        special = np.vectorize(erf, otypes=[float])
    primitive = workloads.attention(np)
    return namespace(
        np, erf=special, sigmoid=lambda x: 1 / (1 + np.exp(-x)), logsumexp=numpy_logsumexp,
        softmax=workloads.softmax()(np), attention=primitive, conv2d=numpy_conv2d, max_pool2d=numpy_max_pool2d,
        take=lambda table, ids: table[ids], scatter_add=numpy_scatter_add, einsum=partial(np.einsum, optimize=True),
        **{"value_and_grad": numpy_gradient, **own},
    )  # fmt: skip


def numpy_peer() -> Peer:
    xp = over_numpy()
    return Peer(np.__version__, lambda name, work, args: Call(work.fn(xp), args))


# -- lucidgraph, and the peers that trace: JAX, MLX


def over_lucidgraph(lg: Any) -> Any:
    return namespace(
        lg, attention=lambda q, k, v: lg.nn.scaled_dot_product_attention(q, k, v, mask="causal"),
        conv2d=lambda x, w: lg.nn.conv2d(x, w, padding=1), max_pool2d=lambda x: lg.nn.max_pool2d(x, 2),
        take=lambda table, ids: lg.take(table, ids, axis=0),
        scatter_add=lambda table, ids, values: table.at[ids].add(values),
    )  # fmt: skip


def lucidgraph_peer() -> Peer:
    import lucidgraph as lg

    lg.backends()  # loads them, which other peers do when they are imported
    xp = over_lucidgraph(lg)
    return Peer("this tree", lambda name, work, args: Call(lg.compile(work.fn(xp), backend="accelerate"), args))


def jax_peer() -> Peer:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.devices()  # starts the backend
    jnp, lax = jax.numpy, jax.lax
    channels_last = ("NHWC", "OHWI", "NHWC")
    xp = namespace(
        jnp, erf=lax.erf, sigmoid=jax.nn.sigmoid, softmax=jax.nn.softmax, value_and_grad=jax.value_and_grad,
        logsumexp=jax.nn.logsumexp, attention=workloads.attention(jnp), take=lambda table, ids: table[ids],
        scatter_add=lambda table, ids, values: table.at[ids].add(values),
        conv2d=lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=channels_last),
        max_pool2d=lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    )  # fmt: skip

    def prepare(name: str, work: Workload, args: tuple[Any, ...]) -> Call:
        doubles = any(a.dtype == np.float64 for a in workloads.leaves(list(args)))
        jax.config.update("jax_enable_x64", doubles)
        compiled, ready = jax.jit(work.fn(xp)), jax.block_until_ready
        if work.numpy_in_and_out:
            return Call(lambda *args: np.asarray(compiled(*args)), args)
        return Call(lambda *args: ready(compiled(*args)), each(jnp.asarray, args))

    return Peer(jax.__version__, prepare)


def mlx_peer(ours: bool = False) -> Peer:
    """``ours``: the workload over lucidgraph's names, compiled by it for MLX."""
    import mlx.core as mx
    import mlx.nn as nn

    def attention(q: Any, k: Any, v: Any) -> Any:
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask="causal")

    xp = namespace(
        mx, attention=attention, softmax=lambda x: mx.softmax(x, -1), take=lambda table, ids: table[ids],
        scatter_add=lambda table, ids, values: table.at[ids].add(values),
        conv2d=lambda x, w: mx.conv2d(x, w, padding=1), max_pool2d=nn.MaxPool2d(2),
    )  # fmt: skip

    def prepare(name: str, work: Workload, args: tuple[Any, ...]) -> Call:
        doubles = any(a.dtype == np.float64 for a in workloads.leaves(list(args)))
        if doubles and mx.default_device() != mx.cpu:
            raise MissingError("no float64 but on the CPU")
        if ours:
            lg = importlib.import_module("lucidgraph")
            compiled = lg.compile(work.fn(over_lucidgraph(lg)), backend="mlx")
        else:
            compiled = mx.compile(work.fn(xp))
        if work.numpy_in_and_out:
            return Call(lambda *args: np.asarray(compiled(*map(mx.array, args))), args)
        given = each(lambda a: mx.array(a, mx.float64) if a.dtype == np.float64 else mx.array(a), args)
        mx.eval(*given)

        def call(*args: Any) -> Any:
            out = compiled(*args)
            mx.eval(out)
            return out

        return Call(call, given)

    return Peer(mx.__version__, prepare)


# -- torch: one operation at a time, with the forward compiled, and with the whole step compiled


def over_torch(torch: Any, value_and_grad: Callable[..., Any]) -> Any:
    functional = torch.nn.functional

    def reduced(op: Any) -> Callable[..., Any]:
        return lambda x, axis=None, keepdims=False: op(x) if axis is None else op(x, axis, keepdims)

    def maximum(x: Any, y: Any) -> Any:
        return torch.clamp_min(x, y) if isinstance(y, float) else torch.maximum(x, y)

    def conv2d(x: Any, w: Any) -> Any:  # channels last: torch's own fast layout
        return functional.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=1).permute(0, 2, 3, 1)

    return namespace(
        torch, sum=reduced(torch.sum), mean=reduced(torch.mean), max=reduced(torch.amax), maximum=maximum,
        argmax=lambda x, axis: torch.argmax(x, axis), argmin=lambda x, axis: torch.argmin(x, axis),
        softmax=lambda x: torch.softmax(x, -1), conv2d=conv2d, value_and_grad=value_and_grad,
        attention=lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        max_pool2d=lambda x: functional.max_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1),
        take=lambda table, ids: functional.embedding(ids, table), take_along_axis=torch.take_along_dim,
        scatter_add=lambda table, ids, values: torch.index_add(table, 0, ids, values),
    )  # fmt: skip


def torch_peer(form: str) -> Peer:
    """``form``: "eager", "compile" (the forward and its backward, called from Python), "func" (the whole step)."""
    import torch

    torch.set_num_threads(torch.get_num_threads())

    def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
        return fn if form == "eager" else torch.compile(fn)

    def by_tape(loss: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
        run, numbers = compiled(loss), chosen(argnums)

        def call(*args: Any) -> Any:
            given = [each(lambda t: t.detach().requires_grad_(), a) if i in numbers else a for i, a in enumerate(args)]
            value = run(*given)
            wanted = workloads.leaves([given[i] for i in numbers])
            found = iter(torch.autograd.grad(value, wanted))
            trees = tuple(each(lambda t: next(found), given[i]) for i in numbers)
            return value.detach(), trees[0] if isinstance(argnums, int) else trees

        return call

    def by_function(loss: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
        slope = torch.func.grad_and_value(loss, argnums)
        return lambda *args: slope(*args)[::-1]

    xp = over_torch(torch, by_function if form == "func" else by_tape)

    def prepare(name: str, work: Workload, args: tuple[Any, ...]) -> Call:
        torch._dynamo.reset()
        if form == "func" and not work.gradient:
            raise MissingError("the same as torch-compile")
        fn = work.fn(xp) if work.gradient and form != "func" else compiled(work.fn(xp))
        if work.numpy_in_and_out:
            return Call(lambda *args: fn(*map(torch.from_numpy, args)).numpy(), args)
        return Call(fn, each(torch.from_numpy, args))

    return Peer(torch.__version__, prepare)


# -- PyTensor


def pytensor_peer() -> Peer:
    import pytensor
    import pytensor.tensor as pt

    pytensor.config.floatX = "float32"

    def value_and_grad(loss: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            value = loss(*args)
            found = iter(pytensor.grad(value, workloads.leaves([args[i] for i in chosen(argnums)])))
            trees = tuple(each(lambda t: next(found), args[i]) for i in chosen(argnums))
            return value, trees[0] if isinstance(argnums, int) else trees

        return call

    xp = namespace(
        pt, where=pt.switch, softmax=lambda x: pt.special.softmax(x, axis=-1), value_and_grad=value_and_grad,
        logsumexp=lambda x, axis: pt.logsumexp(x, axis=axis), take=lambda table, ids: table[ids],
        scatter_add=lambda table, ids, values: pt.inc_subtensor(table[ids], values),
        attention=workloads.attention(namespace(pt, where=pt.switch)), cumsum=lambda x, axis: pt.cumsum(x, axis=axis),
    )  # fmt: skip

    def prepare(name: str, work: Workload, args: tuple[Any, ...]) -> Call:
        if name == "block":
            raise MissingError("it takes minutes to compile")
        symbols = each(lambda a: pt.tensor(dtype=str(a.dtype), shape=a.shape), args)
        out = work.fn(xp)(*symbols)
        flat = workloads.leaves(list(out) if isinstance(out, list | tuple) else out)
        wanted = flat if len(flat) > 1 else flat[0]
        fn = pytensor.function(workloads.leaves(list(symbols)), wanted, mode="NUMBA", on_unused_input="ignore")
        fn.trust_input = True
        return Call(fn, tuple(workloads.leaves(list(args))))

    return Peer(pytensor.__version__, prepare)


# -- written by hand: numba, numexpr


def numba_peer() -> Peer:
    by_hand = importlib.import_module("benchmarks.by_hand")

    def prepare(name: str, work: Workload, args: tuple[Any, ...]) -> Call:
        if name not in by_hand.KERNELS:
            raise MissingError("not written by hand")
        return Call(by_hand.KERNELS[name], args)

    return Peer(importlib.import_module("numba").__version__, prepare)


EXPRESSIONS = {
    "dispatch": "sum(a * b + 1)",
    "dispatch_np": "sum(a * b + 1)",
    "ew12": "((where(a * b + 1.5 - a * 0.5 > b, a * b + 1.5 - a * 0.5, b) * 0.25)"
    " + (a * b + 1.5) * (a * b + 1.5 - a * 0.5) - b) * (a + 2)",
    "trans": "tanh(exp(-a * a)) / (1 + exp(-a)) + log1p(abs(a))",
    "gelu_tanh": "0.5 * a * (1 + tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)))",
    "sum_all": "sum(a)",
    "sum_ax0": "sum(a, axis=0)",
    "sum_ax-1": "sum(a, axis=1)",
    "sum_f64": "sum(a)",
}


def numexpr_peer() -> Peer:
    import numexpr

    def prepare(name: str, work: Workload, args: tuple[Any, ...]) -> Call:
        if name not in EXPRESSIONS:
            raise MissingError("not written by hand")
        text, evaluate = EXPRESSIONS[name], numexpr.evaluate
        numexpr.set_num_threads(numexpr.detect_number_of_cores())
        return Call(lambda *args: evaluate(text, dict(zip("abc", args, strict=False)), truediv=False), args)

    return Peer(numexpr.__version__, prepare)


PEERS: dict[str, Callable[[], Peer]] = {
    "lucidgraph": lucidgraph_peer,
    "numpy": numpy_peer,
    "lucidgraph-mlx": lambda: mlx_peer(ours=True),
    "mlx": mlx_peer,
    "jax": jax_peer,
    "torch": lambda: torch_peer("eager"),
    "torch-compile": lambda: torch_peer("compile"),
    "torch-func": lambda: torch_peer("func"),
    "numba": numba_peer,
    "numexpr": numexpr_peer,
    "pytensor": pytensor_peer,
}
