"""Commands that run Python: printing from inside a program."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np

from ...ir import Node
from .plan import Planner, Rule
from .views import View

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@final
class HostCode:
    """A kernel that is a Python function of its arguments' address; entering it takes the interpreter's lock.

    An exception cannot pass through native code: it waits, for the thread whose call it is, until the run is over.
    """

    def __init__(self, function: Callable[[int], None]) -> None:
        self._function = function
        self._raised: dict[int, BaseException] = {}
        self._callback = _CALLBACK(self._run)

    def _run(self, args: int, begin: int, end: int, thread: int) -> None:
        try:
            self._function(args)
        except BaseException as error:
            self._raised.setdefault(threading.get_ident(), error)

    def raise_pending(self) -> None:
        """Raise what the function raised on this thread since it was last asked."""
        error = self._raised.pop(threading.get_ident(), None)
        if error is not None:
            raise error

    def address(self, name: str) -> int:
        return int(ctypes.cast(self._callback, ctypes.c_void_p).value or 0)


def _array(address: int, view: View) -> np.ndarray[Any, Any]:
    """A contiguous view as an array, copied."""
    if not view.size:
        return np.empty(view.shape, view.dtype.numpy)
    raw: Any = (ctypes.c_char * view.nbytes).from_address(address)
    return np.ndarray(view.shape, view.dtype.numpy, raw).copy()


def debug_print(planner: Planner, node: Node) -> View:
    views = [planner.contiguous(planner.view(o)) for o in node.operands]

    def run(args: int) -> None:
        addresses = (ctypes.c_int64 * max(len(views), 1)).from_address(args)
        node.op.evaluate(*(_array(a, v) for a, v in zip(addresses, views, strict=False)), **node.attrs)

    pointers = list(enumerate(views))
    code = HostCode(run)
    planner.command(node.name, code, [0] * max(len(views), 1), pointers, 1, 0, 0, split=False, node=node)
    return planner.temporary(node.shape, node.dtype)


OPS: Final[dict[str, Rule]] = {"debug_print": debug_print}
