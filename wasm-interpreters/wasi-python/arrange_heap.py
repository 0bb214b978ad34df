"""Arranges the heap before a snapshot, so that a call writes to few of its pages.

Each page that a call writes to is copied for it first, which together costs more than a small program. CPython
writes to an object whenever it counts a reference, and lays new objects into gaps anywhere in the heap.

Figure: `pass` writes to 83 pages instead of 280 and takes 0.66 ms instead of 1.65 over HTTP, two callers have 1 674
runs a second instead of 923. Bench: scripts/bench (Python). Remove when the interpreter's package has its objects
immortal by itself, or when its figures without `[heap]` in interpreter.toml are the same.
"""


def arrange_heap():
    import _host, array, gc, sys, types
    if sys.version_info[:2] != (3, 15) or sys.maxsize >= 1 << 32:
        raise RuntimeError("the layout of objects in interpreter.toml is that of CPython 3.15 with pointers of 32 bits")
    # References to immortal objects (PEP 683) are not counted. The interpreter offers no way to make them; the
    # host has one.
    addresses = array.array("I")
    for tracked in gc.get_objects():
        near = [tracked]
        while near:
            thing = near.pop()
            if sys._is_immortal(thing):
                continue
            addresses.append(id(thing))
            # What the collector does not list is found by what it does. It knows nothing of a code object's parts.
            if type(thing) is types.CodeType:
                parts = [thing.co_consts, thing.co_names, thing.co_filename, thing.co_name, thing.co_qualname]
                parts += [thing.co_linetable, thing.co_exceptiontable]
            else:
                parts = gc.get_referents(thing)
            near += [part for part in parts if not gc.is_tracked(part)]
        if len(addresses) > 10_000:
            _host.call(b"immortal" + addresses.tobytes())
            del addresses[:]
    _host.call(b"immortal" + addresses.tobytes())
    del addresses, near, parts, thing, tracked
    # Before the gaps are filled, so that the objects that CPython keeps for reuse are none of those in them.
    gc.collect()
    _host.call(b"fill")
