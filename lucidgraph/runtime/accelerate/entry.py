"""The native way into a compiled function: one function in machine code that reads the checks of calls from tables.

CPython calls it with the arguments where they lie. It makes the checks of each form of call that is known, and for the
first that passes all of them allocates the results, runs the plan and puts the results together. For every other call
it calls the Python function that could have been called at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from llvmlite import ir

from . import layouts
from .values import I8, I32, I64, PTR, Routine

STEP_WORDS: Final = 9
RESULT_WORDS: Final = 6
MAKE_WORDS: Final = 3
WAY: Final = {
    name: k
    for k, name in enumerate((
        "next", "epoch", "positional", "keywords", "names", "owner", "steps", "step", "inputs", "results", "result",
        "free", "hits", "makes", "make", "stopped", "run", "count", "most", "cost", "python", "lates", "late",
        "values", "data", "objects", "scalars", "held", "made", "stack", "buffers",
    ))
}  # fmt: skip
"""The words of a form of call. ``steps``, ``lates``, ``results``, ``makes``: how many there are, each followed by where
they lie; ``free``: the first instance that no run has; from ``values`` on: where in the frame of a call what lies."""
INSTANCE: Final = {name: k for k, name in enumerate(("next", "table", "stop", "fixups", "fixup"))}
RECORD: Final = {name: k for k, name in enumerate(("first", "epoch", "slow", "frame"))}
"""The words of a function: its first form, the address of the epoch, what to call otherwise, the words of a frame."""
_SPARE: Final = 1
"""The first of three words of a frame for results of CPython's functions, after the count of references held."""
_RAN: Final = 4
"""Whether a check has run Python code."""
_BUFFERS: Final = 5
"""How many buffers are held."""
FRAME_WORDS: Final = 6
LATE_WORDS: Final = 3
_EQUAL: Final = 2
"""CPython's number of the comparison."""
_RUN: Final = ir.FunctionType(I32, [PTR, I64, I64, I64, PTR])
_NULL: Final = ir.Constant(PTR, None)


class _Writer:
    """Appends code to a block: words of memory, and calls of CPython."""

    def __init__(self, module: ir.Module, name: str, arguments: int) -> None:
        found = module.globals.get(name)
        self.fn = found or ir.Function(module, ir.FunctionType(PTR, [PTR] * arguments), name)
        # The interpreter ends daemon threads where they ask for its lock back: by unwinding their stacks.
        self.fn.attributes.add("uwtable")
        self.module = module
        self.b = ir.IRBuilder(self.fn.append_basic_block("entry"))

    def block(self, name: str) -> ir.Block:
        return self.fn.append_basic_block(name)

    def at(self, base: ir.Value, word: int | ir.Value, offset: int = 0) -> ir.Value:
        """The address of a word after ``base``, or ``offset`` bytes after it."""
        index = I64(word) if isinstance(word, int) else word
        place = self.b.gep(base, [index], source_etype=I64)
        return self.b.gep(place, [I64(offset)], source_etype=I8) if offset else place

    def word(self, base: ir.Value, word: int | ir.Value = 0, offset: int = 0) -> ir.Value:
        return self.b.load(self.at(base, word, offset), typ=I64)

    def pointer(self, base: ir.Value, word: int | ir.Value = 0, offset: int = 0) -> ir.Value:
        return self.b.load(self.at(base, word, offset), typ=PTR)

    def put(self, value: ir.Value, base: ir.Value, word: int | ir.Value = 0) -> None:
        self.b.store(value, self.at(base, word))

    def call(self, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        found = self.module.globals.get(name)
        if found is None:
            found = ir.Function(self.module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.b.call(found, list(arguments))

    def same(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.b.icmp_unsigned("==", a, b)

    def null(self, pointer: ir.Value) -> ir.Value:
        return self.same(pointer, _NULL)

    def unless(self, condition: ir.Value, otherwise: ir.Block) -> None:
        """Go on where the condition holds, to ``otherwise`` where not."""
        on = self.block("on")
        self.b.cbranch(condition, on, otherwise)
        self.b.position_at_end(on)

    def loop(self, count: ir.Value, name: str) -> _Loop:
        return _Loop(self, count, name)


class _Loop:
    """``with writer.loop(count, name) as k:`` for k from 0 up."""

    def __init__(self, writer: _Writer, count: ir.Value, name: str) -> None:
        self.w = writer
        self.count = count
        self.head, self.body, self.after = (writer.block(f"{name}.{part}") for part in ("head", "body", "after"))

    def __enter__(self) -> ir.Value:
        b = self.w.b
        self.before = b.block
        b.branch(self.head)
        b.position_at_end(self.head)
        self.k = b.phi(I64)
        self.k.add_incoming(I64(0), self.before)
        b.cbranch(b.icmp_signed("<", self.k, self.count), self.body, self.after)
        b.position_at_end(self.body)
        return self.k

    def __exit__(self, *exc: object) -> None:
        b = self.w.b
        self.k.add_incoming(b.add(self.k, I64(1)), b.block)
        b.branch(self.head)
        b.position_at_end(self.after)


def entry_module(offset: int) -> ir.Module:
    """``entry(callable, args, nargs, names)``, a vectorcall function; the record's address is ``offset`` bytes into the
    object called."""
    module = ir.Module(name="entry")
    _release(module)
    _match(module)
    _run(module)
    _entry(module, offset)
    return module


def _release(module: ir.Module) -> None:
    """``release(way, frame)``: let go of the buffers and references held for a call."""
    w = _Writer(module, "release", 2)
    way, frame = w.fn.args
    buffers = w.at(frame, w.word(way, WAY["buffers"]))
    with w.loop(w.word(frame, _BUFFERS), "buffers") as k:
        w.call("PyBuffer_Release", ir.VoidType(), w.at(buffers, w.b.mul(k, I64(layouts.BUFFER_WORDS))))
    w.put(I64(0), frame, _BUFFERS)
    held = w.at(frame, w.word(way, WAY["held"]))
    with w.loop(w.word(frame), "held") as k:
        w.call("Py_DecRef", ir.VoidType(), w.pointer(held, k))
    w.put(I64(0), frame)
    w.b.ret(_NULL)


def _match(module: ir.Module) -> None:
    """``match(way, args, frame)``: 1 where all checks pass, 0 where not, -1 where one has raised; 2 where not, and
    a check has run Python code, which may have taken the way out of its list."""
    w = _Writer(module, "match", 3)
    way, args, frame = w.fn.args
    b = w.b
    w.put(I64(0), frame, _RAN)
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
    fetches = [w.block(f"fetch.{n}") for n in range(6)]
    switch = b.switch(fetch, fetches[0])
    for n, block in enumerate(fetches[1:], 1):
        switch.add_case(I64(n), block)
    found: list[tuple[ir.Value, ir.Block]] = []

    def fetched(value: ir.Value) -> None:
        found.append((value, b.block))
        b.branch(checks)

    b.position_at_end(fetches[0])
    fetched(w.pointer(args, place))
    b.position_at_end(fetches[1])
    fetched(w.pointer(w.pointer(values, holder), place, layouts.TUPLE_ITEMS))
    b.position_at_end(fetches[2])
    items = w.pointer(values, holder)
    w.unless(b.icmp_signed("<", place, w.word(items, 0, layouts.SIZE)), fail)
    fetched(w.pointer(w.pointer(items, 0, layouts.LIST_ITEMS), place))
    b.position_at_end(fetches[3])
    fetched(w.pointer(values, place))
    b.position_at_end(fetches[4])
    fetched(w.pointer(b.inttoptr(holder, PTR), 0, layouts.CELL))
    b.position_at_end(fetches[5])
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
    blocks = [w.block(f"check.{n}") for n in range(15)]
    switch = b.switch(check, blocks[0])
    for n, block in enumerate(blocks[1:], 1):
        switch.add_case(I64(n), block)

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

    b.position_at_end(blocks[0])
    _array(w, typed, fail, value, a)
    hold()
    input_at(w.pointer(value, 0, layouts.DATA))
    b.position_at_end(blocks[12])
    typed(a)
    hold()
    input_at(w.at(value, 0, layouts.SCALAR))
    for n in (13, 14):  # what else has to hold of them runs others' code, and comes last
        b.position_at_end(blocks[n])
        typed(a)
        hold()
        input_at(value)

    for n, words in ((1, 1), (3, 2)):  # a float, a complex
        b.position_at_end(blocks[n])
        typed(a)
        slot = w.at(scalars, b.shl(given, I64(1)))
        for part in range(words):
            w.put(w.word(value, part, layouts.NUMBER), slot, part)
        input_at(slot)

    def integer() -> ir.Value:
        typed(a)
        spare = w.at(frame, _SPARE)
        number = w.call("PyLong_AsLongLongAndOverflow", I64, value, spare)
        w.unless(b.icmp_signed("==", b.load(spare, typ=I32), I32(0)), fail)
        return number

    b.position_at_end(blocks[2])
    whole = integer()
    inside = b.and_(b.icmp_signed(">=", whole, w.word(step, 7)), b.icmp_signed("<=", whole, w.word(step, 8)))
    w.unless(inside, fail)
    slot = w.at(scalars, b.shl(given, I64(1)))
    w.put(whole, slot)
    input_at(slot)
    for n in (4, 5):
        b.position_at_end(blocks[n])
        b.cbranch(w.same(value, a), passed, fail)
    b.position_at_end(blocks[6])
    whole = integer()
    b.cbranch(w.same(whole, w.word(step, 7)), passed, fail)
    b.position_at_end(blocks[7])
    typed(a)
    b.cbranch(w.same(w.word(value, 0, layouts.NUMBER), w.word(step, 7)), passed, fail)
    for n in (8, 9):
        b.position_at_end(blocks[n])
        typed(a)
        w.unless(w.same(w.word(value, 0, layouts.SIZE), w.word(step, 7)), fail)
        w.put(value, values, number)
        b.branch(passed)
    b.position_at_end(blocks[10])
    typed(a)
    w.unless(w.same(w.word(value, 0, layouts.SIZE), w.word(step, 7)), fail)
    keys = w.pointer(step, 8)
    spare = w.at(frame, _SPARE)
    w.put(I64(0), spare)
    w.put(I64(0), frame, _SPARE + 1)
    w.put(I64(0), frame, _SPARE + 2)
    with w.loop(w.word(step, 7), "keys") as j:
        more = w.call("PyDict_Next", I32, value, spare, w.at(frame, _SPARE + 1), w.at(frame, _SPARE + 2))
        w.unless(b.icmp_signed("!=", more, I32(0)), fail)
        w.unless(w.same(w.word(frame, _SPARE + 1), w.word(keys, j)), fail)
        w.put(w.word(frame, _SPARE + 2), values, b.add(number, j))
    b.branch(passed)
    b.position_at_end(blocks[11])
    w.put(I64(2), frame, _RAN)
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
        w.put(I64(2), frame, _RAN)
        value = w.pointer(objects, given)
        attributes, memory, good = w.block("attributes"), w.block("memory"), w.block("good")
        b.cbranch(w.same(w.word(late), I64(13)), attributes, memory)
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
    b.ret(w.pointer(frame, _RAN))
    b.position_at_end(error)
    b.call(module.globals["release"], [way, frame])
    b.ret(b.inttoptr(I64(-1), PTR))


def _array(w: _Writer, typed: Callable[[ir.Value], None], fail: ir.Block, value: ir.Value, wanted: ir.Value) -> None:
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


def _attributes(w: _Writer, value: ir.Value, wanted: ir.Value, fail: ir.Block, error: ir.Block) -> None:
    """``wanted``: two names of attributes, each followed by what it has to be equal to."""
    b = w.b
    for k in (0, 2):
        found = w.call("PyObject_GetAttr", PTR, value, w.pointer(wanted, k))
        w.unless(b.not_(w.null(found)), error)
        verdict = w.call("PyObject_RichCompareBool", I32, found, w.pointer(wanted, k + 1), I32(_EQUAL))
        w.call("Py_DecRef", ir.VoidType(), found)
        w.unless(b.icmp_signed(">=", verdict, I32(0)), error)
        w.unless(w.same(verdict, I32(1)), fail)


def _buffer(
    w: _Writer, way: ir.Value, frame: ir.Value, value: ir.Value, wanted: ir.Value, fail: ir.Block
) -> ir.Value:  # fmt: skip
    """The address of an object's memory, which it shows from then on. ``wanted``: the format, the bytes of an element,
    the bits that are 0 in its address, how many axes, the shape and the strides."""
    b = w.b
    field = layouts.BUFFER
    count = w.word(frame, _BUFFERS)
    buffer = w.at(w.at(frame, w.word(way, WAY["buffers"])), b.mul(count, I64(layouts.BUFFER_WORDS)))
    got = w.call("PyObject_GetBuffer", I32, value, buffer, I32(layouts.BUFFER_FLAGS))
    with b.if_then(b.icmp_signed("!=", got, I32(0)), likely=False):
        w.call("PyErr_Clear", ir.VoidType())
        b.branch(fail)
    w.put(b.add(count, I64(1)), frame, _BUFFERS)
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


def _run(module: ir.Module) -> None:
    """``run(way, frame)``: the result of a call that has passed the checks, or 0 where something was raised."""
    w = _Writer(module, "run", 2)
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
    result = w.call("PyObject_Vectorcall", PTR, given, objects, inputs, _NULL)
    ends.append((result, b.block))
    b.branch(leave)

    b.position_at_end(native)
    instance = w.pointer(way, WAY["free"])
    w.put(w.pointer(instance, INSTANCE["next"]), way, WAY["free"])
    specs = w.pointer(way, WAY["result"])
    with w.loop(results, "results") as k:
        w.put(_NULL, made, k)
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
    result = b.call(_make(module), [way, frame])
    ends.append((result, b.block))
    b.branch(leave)

    b.position_at_end(stopped)
    number, position = (w.call("PyLong_FromLongLong", PTR, v) for v in (code, index))
    w.put(number, objects, 0)
    w.put(position, objects, 1)
    nothing = w.call("PyObject_Vectorcall", PTR, w.pointer(way, WAY["stopped"]), objects, I64(2), _NULL)
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
    ends.append((_NULL, b.block))
    b.branch(leave)

    b.position_at_end(leave)
    result = b.phi(PTR)
    for value, block in ends:
        result.add_incoming(value, block)
    b.call(module.globals["release"], [way, frame])
    b.ret(result)


def _allocated(w: _Writer, spec: ir.Value) -> ir.Value:
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
    second = b.call(new, [w.pointer(spec, 4), dtype, axes, w.pointer(spec, 3), _NULL, _NULL, I32(0), _NULL])
    b.branch(after)
    b.position_at_end(after)
    array = b.phi(PTR)
    array.add_incoming(first, ours)
    array.add_incoming(second, theirs)
    return array


def _make(module: ir.Module) -> ir.Function:
    """``make(way, frame)``: the results put together, which it takes; 0 where there is no memory."""
    w = _Writer(module, "make", 2)
    way, frame = w.fn.args
    b = w.b
    made, stack = (w.at(frame, w.word(way, WAY[name])) for name in ("made", "stack"))
    makes = w.pointer(way, WAY["make"])
    top = w.at(frame, _SPARE)
    w.put(I64(0), top)
    failed = w.block("failed")
    with w.loop(w.word(way, WAY["makes"]), "makes") as k:
        step = w.at(makes, b.mul(k, I64(MAKE_WORDS)))
        what, a = w.word(step), w.word(step, 1)
        blocks, pushed = [w.block(f"make.{n}") for n in range(6)], w.block("pushed")
        switch = b.switch(what, blocks[0])
        for n, block in enumerate(blocks[1:], 1):
            switch.add_case(I64(n), block)
        new: list[tuple[ir.Value, ir.Value, ir.Block]] = []

        def push(value: ir.Value, taken: ir.Value) -> None:
            new.append((value, taken, b.block))
            b.branch(pushed)

        b.position_at_end(blocks[0])
        array = w.pointer(made, a)
        w.put(_NULL, made, a)
        push(array, I64(0))
        b.position_at_end(blocks[1])
        value = b.inttoptr(a, PTR)
        w.call("Py_IncRef", ir.VoidType(), value)
        push(value, I64(0))
        for n, kind in ((2, "Tuple"), (3, "List")):
            b.position_at_end(blocks[n])
            container = w.call(f"Py{kind}_New", PTR, a)
            w.unless(b.not_(w.null(container)), failed)
            start = b.sub(w.word(top), a)
            with w.loop(a, "items") as j:
                w.call(f"Py{kind}_SetItem", I32, container, j, w.pointer(stack, b.add(start, j)))
            push(container, a)
        b.position_at_end(blocks[4])
        container = w.call("PyDict_New", PTR)
        w.unless(b.not_(w.null(container)), failed)
        start, keys = b.sub(w.word(top), a), w.pointer(step, 2)
        with w.loop(a, "entries") as j:
            item = w.pointer(stack, b.add(start, j))
            w.call("PyDict_SetItem", I32, container, w.pointer(keys, j), item)
            w.call("Py_DecRef", ir.VoidType(), item)
        push(container, a)
        b.position_at_end(blocks[5])
        place = w.at(stack, b.sub(w.word(top), I64(1)))
        value = w.pointer(place)
        made_of = w.call("PyObject_Vectorcall", PTR, b.inttoptr(a, PTR), place, I64(1), _NULL)
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
    b.ret(_NULL)
    return w.fn


def _entry(module: ir.Module, offset: int) -> None:
    """The function that CPython calls."""
    fn = ir.Function(module, ir.FunctionType(PTR, [PTR, PTR, I64, PTR]), "entry")
    fn.attributes.add("uwtable")
    w = _Writer(module, "entry", 4)
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
    frame = b.alloca(I64, w.word(record, RECORD["frame"]))
    w.put(I64(0), frame)
    w.put(I64(0), frame, _BUFFERS)
    first = w.pointer(record, RECORD["first"])
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
    b.ret(_NULL)


__all__ = [
    "FRAME_WORDS", "INSTANCE", "LATE_WORDS", "MAKE_WORDS", "RECORD", "RESULT_WORDS", "STEP_WORDS", "WAY",
    "entry_module",
]  # fmt: skip
