"""The checks of a form of call, in machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from llvmlite import ir

from ...calls import Check, Fetch
from . import layouts
from .values import I8, I32, I64, PTR
from .words import BUFFERS, LATE_WORDS, NULL, RAN, SPARE, STEP_WORDS, WAY, Writer

EQUAL: Final = 2
"""CPython's number of the comparison."""


def write_release(module: ir.Module) -> None:
    """``release(way, frame)``: let go of the buffers and references held for a call."""
    w = Writer(module, "release", 2)
    way, frame = w.fn.args
    buffers = w.at(frame, w.word(way, WAY["buffers"]))
    with w.loop(w.word(frame, BUFFERS), "buffers") as k:
        w.call("PyBuffer_Release", ir.VoidType(), w.at(buffers, w.b.mul(k, I64(layouts.BUFFER_WORDS))))
    w.put(I64(0), frame, BUFFERS)
    held = w.at(frame, w.word(way, WAY["held"]))
    with w.loop(w.word(frame), "held") as k:
        w.call("Py_DecRef", ir.VoidType(), w.pointer(held, k))
    w.put(I64(0), frame)
    w.b.ret(NULL)


def write_match(module: ir.Module) -> None:
    """``match(way, args, frame)``: 1 where all checks pass, 0 where not, -1 where one has raised; 2 where not, and
    a check has run Python code, which may have taken the way out of its list."""
    w = Writer(module, "match", 3)
    way, args, frame = w.fn.args
    b = w.b
    w.put(I64(0), frame, RAN)
    steps = w.pointer(way, WAY["step"])
    values, data, objects, scalars, held = (
        w.at(frame, w.word(way, WAY[name])) for name in ("values", "data", "objects", "scalars", "held")
    )
    fail, done, error = w.block("fail"), w.block("done"), w.block("error")
    head, body, checks, passed = (w.block(name) for name in ("head", "body", "checks", "passed"))
    before = b.block
    b.branch(head)
    b.position_at_end(head)
    k = b.phi(I64)
    k.add_incoming(I64(0), before)
    b.cbranch(b.icmp_signed("<", k, w.word(way, WAY["steps"])), body, done)

    b.position_at_end(body)
    step = w.at(steps, b.mul(k, I64(STEP_WORDS)))
    check, fetch, holder, place, number, given = (w.word(step, n) for n in range(6))
    # -- the value
    fetches = w.cases(fetch, Fetch, fail)
    found: list[tuple[ir.Value, ir.Block]] = []

    def fetched(value: ir.Value) -> None:
        found.append((value, b.block))
        b.branch(checks)

    b.position_at_end(fetches[Fetch.ARGUMENT])
    fetched(w.pointer(args, place))
    b.position_at_end(fetches[Fetch.TUPLE])
    fetched(w.pointer(w.pointer(values, holder), place, layouts.TUPLE_ITEMS))
    b.position_at_end(fetches[Fetch.LIST])
    items = w.pointer(values, holder)
    w.unless(b.icmp_signed("<", place, w.word(items, 0, layouts.SIZE)), fail)
    fetched(w.pointer(w.pointer(items, 0, layouts.LIST_ITEMS), place))
    b.position_at_end(fetches[Fetch.STORED])
    fetched(w.pointer(values, place))
    b.position_at_end(fetches[Fetch.CELL])
    fetched(w.pointer(b.inttoptr(holder, PTR), 0, layouts.CELL))
    b.position_at_end(fetches[Fetch.ITEM])
    value = w.call("PyDict_GetItemWithError", PTR, b.inttoptr(holder, PTR), b.inttoptr(place, PTR))
    with b.if_then(w.null(value)):
        w.call("PyErr_Clear", ir.VoidType())
    fetched(value)

    # -- what has to hold of it
    b.position_at_end(checks)
    value = b.phi(PTR)
    for one, block in found:
        value.add_incoming(one, block)
    a = w.pointer(step, 6)
    blocks = w.cases(check, Check, fail)

    def typed(kind: ir.Value) -> None:
        w.unless(b.not_(w.null(value)), fail)
        w.unless(w.same(w.pointer(value, 0, layouts.TYPE), kind), fail)

    def input_at(address: ir.Value) -> None:
        w.put(address, data, given)
        w.put(value, objects, given)
        b.branch(passed)

    def hold() -> None:
        """Keep what is inside a container while it is read."""
        with b.if_then(b.icmp_signed("!=", fetch, I64(0))):
            w.call("Py_IncRef", ir.VoidType(), value)
            count = w.word(frame)
            w.put(value, held, count)
            w.put(b.add(count, I64(1)), frame)

    b.position_at_end(blocks[Check.ARRAY])
    _array(w, typed, fail, value, a)
    hold()
    input_at(w.pointer(value, 0, layouts.DATA))
    b.position_at_end(blocks[Check.SCALAR])
    typed(a)
    hold()
    input_at(w.at(value, 0, layouts.SCALAR))
    for n in (Check.TYPED, Check.BUFFER):  # what else has to hold of them runs others' code, and comes last
        b.position_at_end(blocks[n])
        typed(a)
        hold()
        input_at(value)

    for n, words in ((Check.FLOAT, 1), (Check.COMPLEX, 2)):
        b.position_at_end(blocks[n])
        typed(a)
        slot = w.at(scalars, b.shl(given, I64(1)))
        for part in range(words):
            w.put(w.word(value, part, layouts.NUMBER), slot, part)
        input_at(slot)

    def integer() -> ir.Value:
        typed(a)
        spare = w.at(frame, SPARE)
        number = w.call("PyLong_AsLongLongAndOverflow", I64, value, spare)
        w.unless(b.icmp_signed("==", b.load(spare, typ=I32), I32(0)), fail)
        return number

    b.position_at_end(blocks[Check.INTEGER])
    whole = integer()
    inside = b.and_(b.icmp_signed(">=", whole, w.word(step, 7)), b.icmp_signed("<=", whole, w.word(step, 8)))
    w.unless(inside, fail)
    slot = w.at(scalars, b.shl(given, I64(1)))
    w.put(whole, slot)
    input_at(slot)
    for n in (Check.SAME, Check.SAME_WHILE_ALIVE):
        b.position_at_end(blocks[n])
        b.cbranch(w.same(value, a), passed, fail)
    b.position_at_end(blocks[Check.EQUAL_INTEGER])
    whole = integer()
    b.cbranch(w.same(whole, w.word(step, 7)), passed, fail)
    b.position_at_end(blocks[Check.EQUAL_FLOAT])
    typed(a)
    b.cbranch(w.same(w.word(value, 0, layouts.NUMBER), w.word(step, 7)), passed, fail)
    b.position_at_end(blocks[Check.ITEMS])
    typed(a)
    w.unless(w.same(w.word(value, 0, layouts.SIZE), w.word(step, 7)), fail)
    w.put(value, values, number)
    b.branch(passed)
    b.position_at_end(blocks[Check.DICT])
    typed(a)
    w.unless(w.same(w.word(value, 0, layouts.SIZE), w.word(step, 7)), fail)
    keys = w.pointer(step, 8)
    spare = w.at(frame, SPARE)
    w.put(I64(0), spare)
    w.put(I64(0), frame, SPARE + 1)
    w.put(I64(0), frame, SPARE + 2)
    with w.loop(w.word(step, 7), "keys") as j:
        more = w.call("PyDict_Next", I32, value, spare, w.at(frame, SPARE + 1), w.at(frame, SPARE + 2))
        w.unless(b.icmp_signed("!=", more, I32(0)), fail)
        w.unless(w.same(w.word(frame, SPARE + 1), w.word(keys, j)), fail)
        w.put(w.word(frame, SPARE + 2), values, b.add(number, j))
    b.branch(passed)
    b.position_at_end(blocks[Check.HOLDS])
    w.put(I64(2), frame, RAN)
    verdict = w.call("PyObject_CallNoArgs", PTR, a)
    w.unless(b.not_(w.null(verdict)), error)
    holds = w.same(verdict, w.pointer(step, 7))
    w.call("Py_DecRef", ir.VoidType(), verdict)
    b.cbranch(holds, passed, fail)

    b.position_at_end(passed)
    k.add_incoming(b.add(k, I64(1)), passed)
    b.branch(head)
    b.position_at_end(done)
    lates = w.pointer(way, WAY["late"])
    with w.loop(w.word(way, WAY["lates"]), "lates") as k:
        late = w.at(lates, b.mul(k, I64(LATE_WORDS)))
        given, wanted = w.word(late, 1), w.pointer(late, 2)
        w.put(I64(2), frame, RAN)
        value = w.pointer(objects, given)
        attributes, memory, good = w.block("attributes"), w.block("memory"), w.block("good")
        b.cbranch(w.same(w.word(late), I64(Check.TYPED)), attributes, memory)
        b.position_at_end(attributes)
        _attributes(w, value, wanted, fail, error)
        b.branch(good)
        b.position_at_end(memory)
        w.put(_buffer(w, way, frame, value, wanted, fail), data, given)
        b.branch(good)
        b.position_at_end(good)
    b.ret(b.inttoptr(I64(1), PTR))
    b.position_at_end(fail)
    b.call(module.globals["release"], [way, frame])
    b.ret(w.pointer(frame, RAN))
    b.position_at_end(error)
    b.call(module.globals["release"], [way, frame])
    b.ret(b.inttoptr(I64(-1), PTR))


def _array(w: Writer, typed: Callable[[ir.Value], None], fail: ir.Block, value: ir.Value, wanted: ir.Value) -> None:
    """``wanted``: the type, the dtype and its number, how many axes, the flags wanted and those looked at, whether the
    strides count, then the shape and the strides."""
    b = w.b
    typed(w.pointer(wanted))
    flags = b.load(w.at(value, 0, layouts.FLAGS), typ=I32)
    w.unless(w.same(b.and_(flags, b.trunc(w.word(wanted, 4), I32)), b.trunc(w.word(wanted, 4), I32)), fail)
    ndim = w.word(wanted, 3)
    w.unless(w.same(b.zext(b.load(w.at(value, 0, layouts.NDIM), typ=I32), I64), ndim), fail)
    # Most dtypes exist once; others of the same number and byte order are equal to them.
    dtype = w.pointer(value, 0, layouts.DTYPE)
    with b.if_then(b.not_(w.same(dtype, w.pointer(wanted, 1))), likely=False):
        number = b.zext(b.load(w.at(dtype, 0, layouts.TYPE_NUMBER), typ=I32), I64)
        w.unless(w.same(number, w.word(wanted, 2)), fail)
        w.unless(b.not_(w.same(b.load(w.at(dtype, 0, layouts.BYTEORDER), typ=I8), I8(ord(">")))), fail)
    shape = w.pointer(value, 0, layouts.SHAPE)
    with w.loop(ndim, "shape") as k:
        w.unless(w.same(w.word(shape, k), w.word(w.at(wanted, 6), k)), fail)
    strides = w.pointer(value, 0, layouts.STRIDES)
    with w.loop(w.word(wanted, 5), "strides") as k:
        w.unless(w.same(w.word(strides, k), w.word(w.at(wanted, b.add(ndim, I64(6))), k)), fail)


def _attributes(w: Writer, value: ir.Value, wanted: ir.Value, fail: ir.Block, error: ir.Block) -> None:
    """``wanted``: two names of attributes, each followed by what it has to be equal to."""
    b = w.b
    for k in (0, 2):
        found = w.call("PyObject_GetAttr", PTR, value, w.pointer(wanted, k))
        w.unless(b.not_(w.null(found)), error)
        verdict = w.call("PyObject_RichCompareBool", I32, found, w.pointer(wanted, k + 1), I32(EQUAL))
        w.call("Py_DecRef", ir.VoidType(), found)
        w.unless(b.icmp_signed(">=", verdict, I32(0)), error)
        w.unless(w.same(verdict, I32(1)), fail)


def _buffer(
    w: Writer, way: ir.Value, frame: ir.Value, value: ir.Value, wanted: ir.Value, fail: ir.Block
) -> ir.Value:  # fmt: skip
    """The address of an object's memory, which it shows from then on. ``wanted``: the format, the bytes of an element,
    the bits that are 0 in its address, how many axes, the shape and the strides."""
    b = w.b
    field = layouts.BUFFER
    count = w.word(frame, BUFFERS)
    buffer = w.at(w.at(frame, w.word(way, WAY["buffers"])), b.mul(count, I64(layouts.BUFFER_WORDS)))
    got = w.call("PyObject_GetBuffer", I32, value, buffer, I32(layouts.BUFFER_FLAGS))
    with b.if_then(b.icmp_signed("!=", got, I32(0)), likely=False):
        w.call("PyErr_Clear", ir.VoidType())
        b.branch(fail)
    w.put(b.add(count, I64(1)), frame, BUFFERS)
    name = w.pointer(buffer, field["format"])
    w.unless(b.not_(w.null(name)), fail)
    w.unless(w.same(w.call("strcmp", I32, name, w.pointer(wanted)), I32(0)), fail)
    w.unless(w.same(w.word(buffer, field["itemsize"]), w.word(wanted, 1)), fail)
    address = w.word(buffer, field["data"])
    w.unless(w.same(b.and_(address, w.word(wanted, 2)), I64(0)), fail)
    ndim = w.word(wanted, 3)
    w.unless(w.same(b.zext(b.load(w.at(buffer, field["ndim"], 4), typ=I32), I64), ndim), fail)
    shape, strides = w.pointer(buffer, field["shape"]), w.pointer(buffer, field["strides"])
    with w.loop(ndim, "buffer") as k:
        w.unless(w.same(w.word(shape, k), w.word(w.at(wanted, 4), k)), fail)
        w.unless(w.same(w.word(strides, k), w.word(w.at(wanted, b.add(ndim, I64(4))), k)), fail)
    return address


__all__ = ["write_match", "write_release"]
