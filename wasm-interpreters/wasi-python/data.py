import numpy, pandas


def widen_integers():
    """numpy's integers have 64 bits where they have them on a desktop. The patches in interpreter.toml do this for what
    numpy computes; here are the names of types, generators with the streams of a desktop, and indices."""
    # Names of a prelude are gone when programs run: its functions may use only what is inside of them.
    import ast
    import builtins
    import functools
    import sys
    import types

    import numpy
    import pandas
    from numpy import random
    from numpy._core import _type_aliases, arrayprint, numerictypes

    # Not `long`, which libraries take for C's.
    for name, kind in {"int_": numpy.int64, "uint": numpy.uint64}.items():
        for module in (numpy, numerictypes):
            setattr(module, name, kind)
        _type_aliases.sctypeDict[name] = kind
    _type_aliases.sctypeDict["int"] = numpy.int64
    # An array of the default type is shown without it.
    arrayprint._typelessdata[:] = [numpy.int64, numpy.float64, numpy.complex128, numpy.bool]

    def widened(value):
        if isinstance(value, tuple):
            parts = [widened(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, (numpy.ndarray, numpy.generic)) and value.dtype == numpy.int32:
            return value.astype(numpy.int64)
        return value

    def of_pointers(function):
        """For compiled code that makes arrays of `int` and reads them as C's `long`, of 32 bits here."""

        @functools.wraps(function)
        def wrapper(*arguments, **named):
            arguments = [numpy.intp if argument is int else argument for argument in arguments]
            return function(*arguments, **{key: numpy.intp if value is int else value for key, value in named.items()})

        return wrapper

    class PointerSized(types.ModuleType):
        """numpy, whose arrays of `int` have the size of a pointer."""

        def __init__(self):
            super().__init__("numpy")
            makers = {name: of_pointers(getattr(numpy, name)) for name in ("arange", "empty", "ones", "zeros")}
            self.__dict__.update(vars(numpy) | makers | {"int_": numpy.intp, "uint": numpy.uintp})

    random.mtrand.np = PointerSized()

    class RandomState(random.RandomState):
        """Draws 64-bit integers, so that a seed gives the numbers that it gives on a desktop."""

        def randint(self, low, high=None, size=None, dtype=int):
            if dtype is not int:
                return super().randint(low, high, size, dtype)
            drawn = super().randint(low, high, size, numpy.int64)
            return int(drawn) if size is None else drawn

    def widening(name):
        method = getattr(random.RandomState, name)

        @functools.wraps(method)
        def wrapper(self, *arguments, **named):
            return widened(method(self, *arguments, **named))

        return wrapper

    drawn = "binomial geometric hypergeometric logseries multinomial negative_binomial permutation poisson"
    for name in (drawn + " choice random_integers tomaxint zipf").split():
        setattr(RandomState, name, widening(name))
    RandomState.__module__ = "numpy.random"
    old, new = random.mtrand._rand, RandomState()
    for module in (random, random.mtrand):
        for name, value in list(vars(module).items()):
            if getattr(value, "__self__", None) is old:
                setattr(module, name, getattr(new, name))
        module.RandomState = RandomState
    random.mtrand._rand = new

    def for_programs(module, name, widen=widened):
        """The indices and counts that this function returns to a program have 64 bits; those that it returns to a library
        keep the size of a pointer, which compiled code wants."""
        function = getattr(module, name)

        @functools.wraps(function)
        def wrapper(*arguments, **named):
            value = function(*arguments, **named)
            return widen(value) if sys._getframe(1).f_globals.get("__name__") == "__main__" else value

        setattr(module, name, wrapper)

    def beside_values(found):
        return (found[0], *widened(found[1:])) if isinstance(found, tuple) else found

    def of_conditions(found):
        return widened(found) if isinstance(found, tuple) else found

    indices = "argmax argmin argpartition argsort argwhere bincount count_nonzero digitize flatnonzero histogram lexsort"
    indices += " nanargmax nanargmin nonzero ravel_multi_index searchsorted tril_indices triu_indices unravel_index"
    for name in indices.split():
        for_programs(numpy, name)
    for_programs(numpy, "unique", beside_values)
    for_programs(numpy, "intersect1d", beside_values)
    for_programs(numpy, "where", of_conditions)
    for_programs(pandas, "factorize")

    # An array's type cannot be changed, so that the programs are: their calls of these methods are widened.
    methods = {"argmax", "argmin", "argpartition", "argsort", "nonzero", "searchsorted"}

    def widen_methods(tree):
        """Wraps each call of such a method in a syntax tree, in place: deep trees are no recursion here."""
        for node in list(ast.walk(tree)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
                call = ast.copy_location(ast.Call(node.func, node.args, node.keywords), node)
                node.func = ast.copy_location(ast.Name("_sekisho_widened", ast.Load()), node)
                node.args, node.keywords = [call], []

    builtins._sekisho_widened = widened
    sys._sekisho_rewrite = widen_methods

    # Compiled code of pandas that takes indices as they come, since they have the size of a pointer on a desktop.
    to_slice = pandas._libs.lib.maybe_indices_to_slice
    pandas._libs.lib.maybe_indices_to_slice = lambda indices, length: to_slice(
        indices.astype(numpy.intp, copy=False), length
    )

    return PointerSized


_sekisho_pointer_sized = widen_integers()
