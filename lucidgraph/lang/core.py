"""Marks on values: where gradients end, and prints that happen when the program runs."""

from __future__ import annotations

from typing import Any

from ..ir.op import get
from .recording import current_trace
from .tensor import Tensor, apply, asarray

__all__ = ["debug_print", "stop_gradient"]


def stop_gradient(x: Any) -> Tensor:
    """y = x, through which no gradient flows: ∂L/∂x = 0.

    >>> import lucidgraph as lg
    >>> lg.grad(lambda x: x * stop_gradient(x))(3.0).item()
    3.0
    """
    return apply(get("stop_gradient"), asarray(x))


def debug_print(fmt: str, *values: Any) -> None:
    """Print ``fmt.format(*values)`` when the program runs: inside compiled code with the values of each run.

    Outside a trace it prints at once. The program's results and gradients are as without it.

    >>> debug_print("loss {}", asarray([1.0, 2.0]))
    loss [1. 2.]
    """
    tensors = [asarray(value) for value in values]
    if current_trace() is None:
        get("debug_print").infer(*(t._node.type for t in tensors), format=fmt)
        print(fmt.format(*(t.numpy() for t in tensors)), flush=True)
    else:
        apply(get("debug_print"), *tensors, format=fmt)
