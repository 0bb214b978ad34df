def finish():
    import gc, linecache, sys
    # Lines of the preludes must not be taken for lines of a call's code.
    linecache.clearcache()
    for name in [name for name in globals() if not name.startswith("__")]:
        del globals()[name]
    sys.stdout.flush()
    sys.stderr.flush()
    # What lives now lives as long as the instance: the collector need not look at it, and so not write to it.
    gc.collect()
    gc.freeze()


finish()
