"""The native way into a compiled function: one function in machine code that reads the checks of calls from tables.

CPython calls it with the arguments where they lie. It makes the checks of each form of call that is known, and for the
first that passes all of them allocates the results, runs the plan and puts the results together. For every other call
it calls the Python function that could have been called at once.
"""

from __future__ import annotations

from typing import Final

from llvmlite import ir

from ...calls import Make
from . import layouts
from .checks import write_match, write_release
from .values import I32, I64, PTR, Routine
from .words import BUFFERS, INSTANCE, MAKE_WORDS, NULL, RECORD, RESULT_WORDS, SPARE, WAY, Writer

_RUN: Final = ir.FunctionType(I32, [PTR, I64, I64, I64, PTR])


def entry_module(offset: int) -> ir.Module:
    """``entry(callable, args, nargs, names)``, a vectorcall function; the record's address is ``offset`` bytes into the
    object called."""
    module = ir.Module(name="entry")
    write_release(module)
    write_match(module)
    _run(module)
    _entry(module, offset)
    return module


def _run(module: ir.Module) -> None:
    """``run(way, frame)``: the result of a call that has passed the checks, or 0 where something was raised."""
    make = _make(module)
    w = Writer(module, "run", 2)
    way, frame = w.fn.args
    b = w.b
    data, objects, made = (w.at(frame, w.word(way, WAY[name])) for name in ("data", "objects", "made"))
    inputs, results = w.word(way, WAY["inputs"]), w.word(way, WAY["results"])
    w.put(b.add(w.word(way, WAY["hits"]), I64(1)), way, WAY["hits"])
    python, native, leave = (w.block(name) for name in ("python", "native", "leave"))
    failed, raised = w.block("failed"), w.block("raised")
    ends: list[tuple[ir.Value, ir.Block]] = []
    given = w.pointer(way, WAY["python"])
    b.cbranch(w.null(given), native, python)

    b.position_at_end(python)
    bare, plainly, listed, refused = (w.block(name) for name in ("bare", "plainly", "listed", "refused"))
    function = w.pointer(way, WAY["bare"])
    b.cbranch(w.null(function), plainly, bare)
    b.position_at_end(bare)
    extras, extra = w.word(way, WAY["extras"]), w.pointer(way, WAY["extra"])
    with w.loop(extras, "extra") as k:
        w.put(w.word(extra, k), objects, b.add(inputs, k))
    found = w.call("PyObject_Vectorcall", PTR, function, objects, b.add(inputs, extras), NULL)
    b.cbranch(w.null(found), refused, listed)
    b.position_at_end(listed)
    items = w.pointer(found, 0, layouts.LIST_ITEMS)
    with w.loop(results, "listed") as k:
        item = w.pointer(items, k)
        w.call("Py_IncRef", ir.VoidType(), item)
        w.put(item, made, k)
    w.call("Py_DecRef", ir.VoidType(), found)
    result = b.call(make, [way, frame])
    ends.append((result, b.block))
    b.branch(leave)
    b.position_at_end(refused)  # the Python function says more about such errors
    matches = w.call("PyErr_ExceptionMatches", I32, w.pointer(way, WAY["errors"]))
    ends.append((NULL, b.block))
    w.unless(b.icmp_signed("!=", matches, I32(0)), leave)
    w.call("PyErr_Clear", ir.VoidType())
    b.branch(plainly)
    b.position_at_end(plainly)
    result = w.call("PyObject_Vectorcall", PTR, given, objects, inputs, NULL)
    ends.append((result, b.block))
    b.branch(leave)

    b.position_at_end(native)
    instance = w.pointer(way, WAY["free"])
    w.put(w.pointer(instance, INSTANCE["next"]), way, WAY["free"])
    specs = w.pointer(way, WAY["result"])
    with w.loop(results, "results") as k:
        w.put(NULL, made, k)
    with w.loop(results, "allocate") as k:
        spec = w.at(specs, b.mul(k, I64(RESULT_WORDS)))
        array = _allocated(w, spec)
        w.put(array, made, k)
        w.unless(b.not_(w.null(array)), failed)
        w.put(w.word(array, 0, layouts.DATA), data, b.add(inputs, k))
    stop = w.pointer(instance, INSTANCE["stop"])
    w.put(I64(0), stop)
    fixups = w.pointer(instance, INSTANCE["fixup"])
    with w.loop(w.word(instance, INSTANCE["fixups"]), "fixups") as k:
        fix = w.at(fixups, b.mul(k, I64(3)))
        w.put(b.add(w.word(data, w.word(fix, 1)), w.word(fix, 2)), w.pointer(fix))
    count, most, cost = (w.word(way, WAY[name]) for name in ("count", "most", "cost"))
    run = Routine(w.pointer(way, WAY["run"]), _RUN)
    ended = b.call(run, [w.pointer(instance, INSTANCE["table"]), count, most, cost, stop])
    code, index = w.word(stop), w.word(stop, 1)
    w.put(w.pointer(way, WAY["free"]), instance, INSTANCE["next"])
    w.put(instance, way, WAY["free"])
    w.unless(w.same(ended, I32(0)), raised)
    stopped, whole = w.block("stopped"), w.block("whole")
    b.cbranch(w.same(code, I64(0)), whole, stopped)
    b.position_at_end(whole)
    result = b.call(make, [way, frame])
    ends.append((result, b.block))
    b.branch(leave)

    b.position_at_end(stopped)
    number, position = (w.call("PyLong_FromLongLong", PTR, v) for v in (code, index))
    w.put(number, objects, 0)
    w.put(position, objects, 1)
    nothing = w.call("PyObject_Vectorcall", PTR, w.pointer(way, WAY["stopped"]), objects, I64(2), NULL)
    for value in (number, position, nothing):
        with b.if_then(b.not_(w.null(value))):
            w.call("Py_DecRef", ir.VoidType(), value)
    b.branch(raised)

    b.position_at_end(failed)
    w.put(w.pointer(way, WAY["free"]), instance, INSTANCE["next"])
    w.put(instance, way, WAY["free"])
    b.branch(raised)
    b.position_at_end(raised)
    with w.loop(results, "drop") as k:
        array = w.pointer(made, k)
        with b.if_then(b.not_(w.null(array))):
            w.call("Py_DecRef", ir.VoidType(), array)
    ends.append((NULL, b.block))
    b.branch(leave)

    b.position_at_end(leave)
    result = b.phi(PTR)
    for value, block in ends:
        result.add_incoming(value, block)
    b.call(module.globals["release"], [way, frame])
    b.ret(result)


def _allocated(w: Writer, spec: ir.Value) -> ir.Value:
    """A new array as ``spec`` says: what to call for it, or 0; the dtype, how many axes, the shape; the type of arrays
    and the address of NumPy's function."""
    b = w.b
    own = w.pointer(spec)
    ours, theirs, after = w.block("ours"), w.block("theirs"), w.block("allocated")
    b.cbranch(w.null(own), theirs, ours)
    b.position_at_end(ours)
    first = w.call("PyObject_CallNoArgs", PTR, own)
    b.branch(after)
    b.position_at_end(theirs)
    dtype = w.pointer(spec, 1)
    w.call("Py_IncRef", ir.VoidType(), dtype)  # the function takes one
    new = Routine(w.pointer(spec, 5), ir.FunctionType(PTR, [PTR, PTR, I32, PTR, PTR, PTR, I32, PTR]))
    axes = b.trunc(w.word(spec, 2), I32)
    second = b.call(new, [w.pointer(spec, 4), dtype, axes, w.pointer(spec, 3), NULL, NULL, I32(0), NULL])
    b.branch(after)
    b.position_at_end(after)
    array = b.phi(PTR)
    array.add_incoming(first, ours)
    array.add_incoming(second, theirs)
    return array


def _make(module: ir.Module) -> ir.Function:
    """``make(way, frame)``: the results put together, which it takes; 0 where there is no memory."""
    w = Writer(module, "make", 2)
    way, frame = w.fn.args
    b = w.b
    made, stack = (w.at(frame, w.word(way, WAY[name])) for name in ("made", "stack"))
    makes = w.pointer(way, WAY["make"])
    top = w.at(frame, SPARE)
    w.put(I64(0), top)
    failed = w.block("failed")
    with w.loop(w.word(way, WAY["makes"]), "makes") as k:
        step = w.at(makes, b.mul(k, I64(MAKE_WORDS)))
        what, a = w.word(step), w.word(step, 1)
        pushed, blocks = w.block("pushed"), w.cases(what, Make, failed)
        new: list[tuple[ir.Value, ir.Value, ir.Block]] = []

        def push(value: ir.Value, taken: ir.Value) -> None:
            new.append((value, taken, b.block))
            b.branch(pushed)

        b.position_at_end(blocks[Make.RESULT])
        array = w.pointer(made, a)
        w.put(NULL, made, a)
        push(array, I64(0))
        b.position_at_end(blocks[Make.VALUE])
        value = b.inttoptr(a, PTR)
        w.call("Py_IncRef", ir.VoidType(), value)
        push(value, I64(0))
        for n, kind in ((Make.TUPLE, "Tuple"), (Make.LIST, "List")):
            b.position_at_end(blocks[n])
            container = w.call(f"Py{kind}_New", PTR, a)
            w.unless(b.not_(w.null(container)), failed)
            start = b.sub(w.word(top), a)
            with w.loop(a, "items") as j:
                w.call(f"Py{kind}_SetItem", I32, container, j, w.pointer(stack, b.add(start, j)))
            push(container, a)
        b.position_at_end(blocks[Make.DICT])
        container = w.call("PyDict_New", PTR)
        w.unless(b.not_(w.null(container)), failed)
        start, keys = b.sub(w.word(top), a), w.pointer(step, 2)
        with w.loop(a, "entries") as j:
            item = w.pointer(stack, b.add(start, j))
            w.call("PyDict_SetItem", I32, container, w.pointer(keys, j), item)
            w.call("Py_DecRef", ir.VoidType(), item)
        push(container, a)
        b.position_at_end(blocks[Make.CALL])
        place = w.at(stack, b.sub(w.word(top), I64(1)))
        value = w.pointer(place)
        made_of = w.call("PyObject_Vectorcall", PTR, b.inttoptr(a, PTR), place, I64(1), NULL)
        w.call("Py_DecRef", ir.VoidType(), value)
        w.put(b.sub(w.word(top), I64(1)), top)
        w.unless(b.not_(w.null(made_of)), failed)
        push(made_of, I64(0))

        b.position_at_end(pushed)
        value, taken = b.phi(PTR), b.phi(I64)
        for one, count, block in new:
            value.add_incoming(one, block)
            taken.add_incoming(count, block)
        place = b.sub(w.word(top), taken)
        w.put(value, stack, place)
        w.put(b.add(place, I64(1)), top)
    b.ret(w.pointer(stack))

    b.position_at_end(failed)
    with w.loop(w.word(top), "stack") as k:
        w.call("Py_DecRef", ir.VoidType(), w.pointer(stack, k))
    with w.loop(w.word(way, WAY["results"]), "rest") as k:
        array = w.pointer(made, k)
        with b.if_then(b.not_(w.null(array))):
            w.call("Py_DecRef", ir.VoidType(), array)
    b.ret(NULL)
    return w.fn


def _entry(module: ir.Module, offset: int) -> None:
    """The function that CPython calls."""
    fn = ir.Function(module, ir.FunctionType(PTR, [PTR, PTR, I64, PTR]), "entry")
    fn.attributes.add("uwtable")
    w = Writer(module, "entry", 4)
    called, args, flagged, names = fn.args
    b = w.b
    nargs = b.and_(flagged, I64(2**63 - 1))
    named = b.alloca(I64)
    w.put(I64(0), named)
    with b.if_then(b.not_(w.null(names))):
        w.put(w.word(names, 0, layouts.SIZE), named)
    keywords = w.word(named)
    record = w.pointer(called, 0, offset)
    epoch = w.pointer(record, RECORD["epoch"])
    slow, error = w.block("slow"), w.block("error")
    w.unless(w.same(w.word(epoch), I64(0)), slow)
    now = w.word(epoch, 1)
    first = w.pointer(record, RECORD["first"])
    w.unless(b.not_(w.null(first)), slow)  # else there is no frame either
    frame = b.alloca(I64, w.word(record, RECORD["frame"]))
    w.put(I64(0), frame)
    w.put(I64(0), frame, BUFFERS)
    head, other = w.block("head"), w.block("other")
    before = b.block
    b.branch(head)
    b.position_at_end(head)
    way = b.phi(PTR)
    way.add_incoming(first, before)
    w.unless(b.not_(w.null(way)), slow)
    w.unless(w.same(w.word(way, WAY["epoch"]), now), other)
    w.unless(w.same(w.word(way, WAY["positional"]), nargs), other)
    w.unless(w.same(w.word(way, WAY["keywords"]), keywords), other)
    with w.loop(keywords, "names") as k:
        known = w.word(w.pointer(way, WAY["names"]), k)
        w.unless(w.same(w.word(names, k, layouts.TUPLE_ITEMS), known), other)
    owner = w.pointer(way, WAY["owner"])
    w.call("Py_IncRef", ir.VoidType(), owner)
    matched = b.ptrtoint(b.call(module.globals["match"], [way, args, frame]), I64)
    hit, missed, gone, busy = (w.block(name) for name in ("hit", "missed", "gone", "busy"))
    switch = b.switch(matched, missed)
    for result, block in ((1, hit), (2, busy), (-1, error)):
        switch.add_case(I64(result), block)
    b.position_at_end(missed)
    w.call("Py_DecRef", ir.VoidType(), owner)
    b.branch(other)
    b.position_at_end(other)
    way.add_incoming(w.pointer(way, WAY["next"]), b.block)
    b.branch(head)

    b.position_at_end(hit)
    ready = b.or_(w.word(way, WAY["free"]), w.word(way, WAY["python"]))
    w.unless(b.not_(w.same(ready, I64(0))), gone)
    result = b.call(module.globals["run"], [way, frame])
    w.call("Py_DecRef", ir.VoidType(), owner)
    b.ret(result)
    b.position_at_end(gone)  # all instances are running on other threads
    b.call(module.globals["release"], [way, frame])
    b.branch(busy)
    b.position_at_end(busy)
    w.call("Py_DecRef", ir.VoidType(), owner)
    b.branch(slow)

    b.position_at_end(slow)
    total = b.add(nargs, keywords)
    again = b.alloca(PTR, b.add(total, I64(1)))
    w.put(called, again)
    with w.loop(total, "arguments") as k:
        w.put(w.pointer(args, k), again, b.add(k, I64(1)))
    function = w.pointer(record, RECORD["slow"])
    b.ret(w.call("PyObject_Vectorcall", PTR, function, again, b.add(nargs, I64(1)), names))
    b.position_at_end(error)
    w.call("Py_DecRef", ir.VoidType(), owner)
    b.ret(NULL)


__all__ = ["entry_module"]
