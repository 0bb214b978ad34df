"""Before a snapshot: tidies up, and arranges the heap so that a call writes to few of its pages.

Each page that a call writes to is copied for it first, which together costs more than a small program. CPython
writes to an object whenever it counts a reference, and lays new objects into gaps anywhere in the heap.
"""


def finish():
    import gc, linecache, sys
    harness, encode = sys.modules["_sekisho_harness"], sys.modules["_sekisho_encode"].encode
    # Lines of the preludes must not be taken for lines of a call's code.
    linecache.clearcache()
    # At its end a program flushes and closes what is listed here: the handler of last resort, whose stderr is
    # flushed anyway.
    if "logging" in sys.modules:
        sys.modules["logging"]._handlerList.clear()
    take_turns(sys, lambda text, name: harness.run(encode))
    arrange = arrange_heap
    for name in [name for name in globals() if not name.startswith("__")]:
        del globals()[name]
    sys.stdout.flush()
    sys.stderr.flush()
    gc.unfreeze()
    gc.collect()
    # What is known of this version, with pointers of 32 bits, need not hold for another.
    if sys.version_info[:2] == (3, 15) and sys.maxsize < 1 << 32:
        arrange()
        # What the next run frees for the one after it then lies side by side.
        harness.rehearse(encode)
    # What lives now lives as long as the instance: the collector need not look at it, and so not write to it.
    gc.freeze()


def take_turns(sys, run):
    # A turn of this reactor compiles its source, in parts and twice, and shows what it gives. The harness needs none
    # of that; in a reactor that is made otherwise it is called by what the turn shows.
    frame = sys._getframe()
    while frame.f_back:
        frame = frame.f_back
    if "_run_turn" in frame.f_globals:
        frame.f_globals["_run_turn"] = run


def arrange_heap():
    import _host, array, gc, sys, types
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


finish()
