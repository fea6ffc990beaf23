"""Plans on disk: what a recorded graph became, for the next process, which then neither rewrites it nor plans.

A plan is written as JSON: names, numbers, and the keys of its kernels, whose code is on disk beside it. Nothing that is
read is run, but that code, which is checked as it is. Addresses are put in anew. What holds something of this process
(captured arrays, Python functions) is not kept, nor what depends on ops that users have registered.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ... import dtypes
from ...ir import Graph, Node, TensorType
from ...ir.op import REGISTRY
from ..store import Store
from .blas import Cblas
from .chains import ChainCode
from .commands import Addressed, Buffer, Command, Plan
from .machine import Code, Compiler

_OURS: Final = __name__.partition(".")[0] + "."
_MOST: Final = 1 << 16
"""The bytes of constants from which a plan is not kept."""


def may_be_kept(graph: Graph) -> bool:
    """Whether the digest of a recorded graph says all that its plan is made of."""
    return not graph.captured and all(node.op.__module__.startswith(_OURS) for node in graph.nodes)


def written(plan: Plan, graph: Graph, library: Callable[[], Cblas]) -> bytes | None:
    """The plan of a recorded graph as text; None where it cannot be kept."""
    if sum(a.nbytes for a in plan.captured) > _MOST:
        return None
    lines: dict[Any, int] = {}
    for k, node in enumerate(graph.nodes):
        lines.setdefault(node.source, k)
    commands = []
    for c in plan.commands:
        code, calls = _key(c.code), [[slot, _key(called)] for slot, called in c.calls.items()]
        if code is None or any(key is None for _, key in calls):
            return None
        stop = [c.node.name, lines.get(c.node.source, -1)] if c.number >= 0 and c.node is not None else None
        commands.append([c.name, code, c.words, c.pointers, c.items, c.split, c.cost, c.moved, c.idle, c.form,
                         c.number, list(c.products.items()), calls, stop])  # fmt: skip
    uses = any(c.products for c in plan.commands)
    told = {
        "commands": commands, "library": library().name if uses else "",
        "buffers": [[b.kind, b.nbytes, b.index, b.offset] for b in plan.buffers],
        "captured": [[a.dtype.name, a.shape, a.tobytes().hex()] for a in plan.captured],
        "outputs": [_type(t) for t in plan.outputs],
        "reused": list(plan.reused.items()), "arena": plan.arena, "scratch": plan.scratch, "threads": plan.threads,
    }  # fmt: skip
    return json.dumps(told, separators=(",", ":")).encode()


def read(
    data: bytes, graph: Graph, compiler: Compiler, library: Callable[[], Cblas]
) -> Plan | None:
    """The plan that was written; None where a kernel of it is not on disk any more, or the library of matrix products
    is another one."""
    told = json.loads(data)
    if told["library"] and told["library"] != library().name:
        return None
    plan = Plan(arena=told["arena"], scratch=told["scratch"], threads=told["threads"], reused=dict(told["reused"]))
    plan.buffers = [Buffer(kind, nbytes, index, offset=offset) for kind, nbytes, index, offset in told["buffers"]]
    plan.captured = [
        np.frombuffer(bytes.fromhex(data), dtypes.from_name(name).numpy).reshape(shape)
        for name, shape, data in told["captured"]
    ]
    plan.outputs = [_typed(t) for t in told["outputs"]]
    codes: dict[str, Code | None] = {}
    for told_of in told["commands"]:
        name, key, words, pointers, items, split, cost, moved, idle, form, number, products, calls, stop = told_of
        for slot, product in products:
            words[slot] = library().address(product)
        made = _code(key, words, codes, compiler)
        called = {slot: _code(of, [], codes, compiler) for slot, of in calls}
        if made is None or None in called.values():
            return None
        node = None
        if stop is not None:
            source = graph.nodes[stop[1]].source if stop[1] >= 0 else None
            node = Node(REGISTRY[stop[0]], (), {}, (), source=source)
        places = [(slot, buffer, offset) for slot, buffer, offset in pointers]
        made_of = {"moved": moved, "idle": idle, "form": form, "number": number}
        made_of |= {"products": dict(products), "calls": called}
        plan.commands.append(Command(name, made, words, places, items, split, cost, node, **made_of))
    return plan


def _key(code: Addressed) -> Any:
    """The key of a kernel, a chain's as a list; None for what lives in this process alone."""
    if isinstance(code, Code):
        return code.key or None
    if isinstance(code, ChainCode):
        keys = [_key(c) for c in (code.code, *code.members)]
        return None if None in keys else keys
    return None


def _code(key: Any, words: list[int], known: dict[str, Code | None], compiler: Compiler) -> Addressed | None:
    keys = [key] if isinstance(key, str) else key
    for k in keys:
        if k not in known:
            known[k] = compiler.known(k)
    found = [c for k in keys if (c := known[k]) is not None]
    if len(found) < len(keys):
        return None
    return found[0] if isinstance(key, str) else ChainCode(found[0], found[1:], words)


def _type(t: TensorType) -> Any:
    return [t.shape, t.dtype.name, t.weak]


def _typed(told: Any) -> TensorType:
    shape, name, weak = told
    return TensorType(tuple(shape), dtypes.from_name(name), weak)


def stored(kept: Store, name: bytes, read_: Callable[[bytes], Any]) -> Any:
    """What ``read_`` makes of an entry; None where there is none, or one that this version cannot read."""
    data = kept.get(name)
    if data is None:
        return None
    try:
        return read_(data)
    except (ValueError, KeyError, TypeError, IndexError):
        return None


__all__ = ["may_be_kept", "read", "stored", "written"]
