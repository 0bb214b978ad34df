import base64, collections, csv, dataclasses, datetime, decimal, fractions, functools, hashlib, io, itertools
import json, linecache, math, random, re, statistics, string, sys, textwrap, traceback, typing, urllib.parse, uuid
# Of the packages in interpreter.toml.
sys.path.append("/usr/local/lib/site-packages")


def changes_after_imports():
    """A function `after_import(name, change)`, which has `change(module)` called once the module of this name is imported."""
    # Names of a prelude are gone when programs run: its functions may use only what is inside of them.
    import sys

    changes = {}

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name not in changes or name in under_way:
                return None
            under_way.add(name)
            try:
                found = (finder.find_spec(name, path, target) for finder in sys.meta_path)
                spec = next(filter(None, found), None)
            finally:
                under_way.discard(name)
            if spec is not None:
                spec.loader = Loader(spec.loader)
            return spec

    class Loader:
        def __init__(self, loader):
            self.loader = loader

        def create_module(self, spec):
            return self.loader.create_module(spec)

        def exec_module(self, module):
            module.__spec__.loader = module.__loader__ = self.loader
            self.loader.exec_module(module)
            changes.pop(module.__name__)(module)

    under_way = set()
    sys.meta_path.insert(0, Finder)
    return changes.__setitem__


after_import = changes_after_imports()


def complete_time_formats():
    """Conversions that desktops have, and for which the C library here makes an empty text of the whole format. It ignores the
    width of most others, and fills that of years with zeros where desktops have blanks."""
    import functools
    import re
    import time

    strftime = time.strftime
    conversion = re.compile("%([-_0^#]*)([0-9]*)([EO]?)(.?)", re.DOTALL)

    def supported(found, when):
        """The conversion in words of the C library, or its text."""
        flags, width, form, letter = found.groups()
        text = added(flags, letter, when[3])
        if text is None:
            if not letter or letter not in "aAbBcCdDeFgGhHIjmMnprRsStTuUVwWxXyYzZ%":
                return "%" + found[0]
            plain = "%" + flags.replace("^", "").replace("#", "") + form + letter
            if "^" not in flags and not width:
                return plain
            text = strftime(plain, when)
            text = text.upper() if "^" in flags else text
        if width and letter != "z":
            # The last flag counts.
            fill = next((flag for flag in reversed(flags) if flag in "-_0"), None)
            pads_blanks = fill in ("-", "_") or fill is None and letter in "aAbBcDeFhklnpPrRstTxXZ%"
            text = text.rjust(int(width), " " if pads_blanks else "0")
        return text.replace("%", "%%")

    def added(flags, letter, hour):
        """The text of a conversion that the C library lacks."""
        if letter in ("k", "l"):
            value = hour if letter == "k" else (hour + 11) % 12 + 1
            return str(value) if "-" in flags else f"{value:02}" if "0" in flags else f"{value:2}"
        if letter == "P":
            return "am" if hour < 12 else "pm"
        return None

    @functools.wraps(strftime)
    def completed(format, *when):
        moment = when[0] if when else time.localtime()
        return strftime(conversion.sub(lambda found: supported(found, moment), format), moment)

    time.strftime = completed


complete_time_formats()
# It would start a thread, and warn that it cannot.
after_import("tqdm.std", lambda module: setattr(module.tqdm, "monitor_interval", 0))


def samples_of_large_ranges():
    """`random.sample(range(10**10), 3)`: `len` has 31 bits here."""
    import random

    def length(values):
        if type(values) is not range:
            return len(values)
        last = 1 if values.step > 0 else -1
        return max(0, (values.stop - values.start + values.step - last) // values.step)

    random.len = length


samples_of_large_ranges()


def plots_in_all_scripts(after_import, path, first="\u1100"):
    """Texts with characters that matplotlib's own fonts lack (Hangul, Kana, Han and others from `first` on) are drawn
    with the font at `path` besides. Only those: opening it takes longer than most plots."""
    import dataclasses

    families = []

    def of_fonts(font_manager):
        font_manager.fontManager.addfont(path)
        families.append(font_manager.FontProperties(fname=path).get_name())
        # What programs written for other systems ask for.
        font = next(font for font in font_manager.fontManager.ttflist if font.fname == path)
        others = "SimHei,Microsoft YaHei,PingFang SC,Hiragino Sans,Yu Gothic,MS Gothic,Malgun Gothic,NanumGothic"
        others += ",AppleGothic,Noto Sans CJK JP,Noto Sans CJK KR,Noto Sans CJK TC,WenQuanYi Micro Hei,Arial Unicode MS"
        font_manager.fontManager.ttflist += [dataclasses.replace(font, name=other) for other in others.split(",")]
        # A font that is missing is named once, not for each text.
        named = set()
        font_manager._log.addFilter(lambda record: not (record.getMessage() in named or named.add(record.getMessage())))

    def of_texts(text):
        layout = text.Text._get_layout

        def layout_with_family(self, renderer):
            shown = self.get_text()
            if not shown.isascii() and max(shown) >= first and families[0] not in self.get_fontfamily():
                self.set_fontfamily([*self.get_fontfamily(), families[0]])
            return layout(self, renderer)

        # Before it is measured or drawn, whatever set the text and its font.
        text.Text._get_layout = layout_with_family

    def of_backends(backend_bases):
        # Figures are returned at the end of a run: there is nothing to warn of.
        backend_bases.FigureManagerBase.show = lambda self: None

    after_import("matplotlib.font_manager", of_fonts)
    after_import("matplotlib.text", of_texts)
    after_import("matplotlib.backend_bases", of_backends)


plots_in_all_scripts(after_import, "/usr/local/lib/fonts/mplfonts/fonts/NotoSansCJKsc-Regular.otf")


def one_number_system(after_import):
    """numpy's integers have 64 bits where they have them on a desktop. The patches in interpreter.toml do this for what
    numpy computes. Indices that numpy makes keep the size of a pointer, which compiled code of packages wants: they have 64
    bits where packages give them to the code of a run. Integers of 32 bits that the code asks for are C's `int`, by the
    patches and the names below; those of the size of a pointer are C's `long`, which tells them apart."""
    import functools
    import sys
    import types

    conversions = sys._sekisho_conversions = {}

    def of_numpy(numpy):
        from numpy import random
        from numpy._core import _type_aliases, arrayprint, numerictypes

        # Not `long`, which libraries take for C's.
        names = {"int_": numpy.int64, "uint": numpy.uint64, "int32": numpy.intc, "uint32": numpy.uintc}
        for name, kind in names.items():
            for module in (numpy, numerictypes):
                setattr(module, name, kind)
            _type_aliases.sctypeDict[name] = kind
        _type_aliases.sctypeDict["int"] = numpy.int64
        # An array of the default type is shown without it.
        arrayprint._typelessdata[:] = [numpy.int64, numpy.float64, numpy.complex128, numpy.bool]

        pointers = {numpy.dtype(code).type: kind for code, kind in {"p": numpy.int64, "P": numpy.uint64}.items()}
        numbers = {numpy.dtype(code).num: numpy.dtype(kind) for code, kind in {"p": "q", "P": "Q"}.items()}

        def widened(values):
            kind = numbers.get(getattr(values.dtype, "num", None))
            return values if kind is None else values.astype(kind)

        conversions.update(pointers)
        conversions[numpy.ndarray] = widened
        # The types themselves: `np.intp`, and what `dtype` is.
        # Not by a look-up: a class need not have a hash.
        conversions[type] = lambda kind: next((wide for narrow, wide in pointers.items() if kind is narrow), kind)
        conversions[numpy.dtype] = lambda kind: numbers.get(kind.num, kind)

        def narrowed(values):
            """Of the size of a pointer, for compiled code that accepts no other and converts none."""
            is_wide = isinstance(values, (numpy.ndarray, numpy.generic)) and values.dtype == numpy.int64
            return values.astype(numpy.intp) if is_wide else values

        random.mtrand.np = with_pointers(numpy)
        seeds_as_on_desktops(numpy, random, narrowed)
        after_import("pandas", lambda pandas: of_pandas(numpy, pandas, widened, narrowed))
        after_import("scipy.sparse", lambda sparse: conversions.update({sparse.sparray: widened, sparse.spmatrix: widened}))
        after_import("scipy.signal._peak_finding", lambda module: of_peaks(numpy, module, narrowed))
        after_import("sklearn.tree._tree", lambda module: setattr(module, "NODE_DTYPE", of_pointers(numpy, module.NODE_DTYPE)))
        # Their compiled code takes C's `long` alone.
        for name in ("sklearn.utils._random", "scipy.integrate._ode", "scipy.optimize._lbfgsb_py", "scipy.optimize._slsqp_py"):
            after_import(name, lambda module: setattr(module, "np", with_pointers(numpy)))

    def with_pointers(numpy):
        """numpy for compiled code that makes arrays of `int` and reads them as C's `long`, of 32 bits here."""

        def of_pointers(function):
            @functools.wraps(function)
            def wrapper(*arguments, **named):
                arguments = [numpy.intp if argument is int else argument for argument in arguments]
                named = {key: numpy.intp if value is int else value for key, value in named.items()}
                return function(*arguments, **named)

            return wrapper

        module = types.ModuleType("numpy")
        makers = {name: of_pointers(getattr(numpy, name)) for name in ("arange", "empty", "ones", "zeros")}
        vars(module).update(vars(numpy) | makers | {"int_": numpy.intp, "uint": numpy.uintp, "int32": numpy.long})
        return module

    def of_pointers(numpy, record):
        """The type of a record whose integers have the size of a pointer: C names them `int`."""
        fields = [record.fields[name] for name in record.names]
        formats = [numpy.dtype("p") if kind == numpy.int32 else kind for kind, *_ in fields]
        parts = {"names": record.names, "formats": formats, "offsets": [place for _, place, *_ in fields]}
        return numpy.dtype({**parts, "itemsize": record.itemsize})

    def of_peaks(numpy, module, narrowed):
        expected = module._arg_peaks_as_expected
        module._arg_peaks_as_expected = lambda peaks: expected(narrowed(numpy.asarray(peaks)))

    def seeds_as_on_desktops(numpy, random, narrowed):
        class RandomState(random.RandomState):
            """Draws 64-bit integers, so that a seed gives the numbers that it gives on a desktop."""

            def randint(self, low, high=None, size=None, dtype=int):
                if dtype is not int:
                    return super().randint(low, high, size, dtype)
                drawn = super().randint(low, high, size, numpy.int64)
                return int(drawn) if size is None else drawn

            def random_integers(self, low, high=None, size=None):
                low, high = (1, low) if high is None else (low, high)
                return self.randint(low, int(high) + 1, size, numpy.int64)

            def binomial(self, n, *arguments, **named):
                return super().binomial(narrowed(n), *arguments, **named)

            def multinomial(self, n, *arguments, **named):
                return super().multinomial(narrowed(n), *arguments, **named)

            def hypergeometric(self, ngood, nbad, nsample, size=None):
                return super().hypergeometric(narrowed(ngood), narrowed(nbad), narrowed(nsample), size)

        RandomState.__module__, RandomState.__qualname__ = "numpy.random", "RandomState"
        # What copies and pickles are made by.
        random._pickle.RandomState = RandomState
        old, new = random.mtrand._rand, RandomState()
        for module in (random, random.mtrand):
            for name, value in list(vars(module).items()):
                if getattr(value, "__self__", None) is old:
                    setattr(module, name, getattr(new, name))
            module.RandomState = RandomState
        random.mtrand._rand = new

    def of_pandas(numpy, pandas, widened, narrowed):
        def of_series(series):
            wide, index = widened(series), of_index(series.index)
            return wide if index is series.index else wide.set_axis(index)

        def of_index(index):
            return widened(index)

        def of_frame(frame):
            wide = frame
            if any(getattr(block.dtype, "num", None) in numbers for block in frame._mgr.blocks):
                wide = frame.copy()
                for at in range(frame.shape[1]):
                    wide.isetitem(at, of_series(frame.iloc[:, at]))
            for axis, labels in enumerate(frame.axes):
                if of_index(labels) is not labels:
                    wide = wide.set_axis(of_index(labels), axis=axis)
            return wide

        numbers = {numpy.dtype(code).num for code in "pP"}
        conversions.update({pandas.Series: of_series, pandas.Index: of_index, pandas.DataFrame: of_frame})

        # Compiled code of pandas that takes indices as they come, since they have the size of a pointer on a desktop.
        lib, manager = pandas._libs.lib, pandas.core.internals.managers.BlockManager
        to_slice, insert = lib.maybe_indices_to_slice, manager._insert_update_blklocs_and_blknos
        convert_objects = lib.maybe_convert_objects

        def insert_with_pointers(self, place):
            insert(self, place)
            self._blklocs, self._blknos = narrowed(self._blklocs), narrowed(self._blknos)

        def converted_objects(objects, *arguments, **named):
            """Numbers that a program's function, such as numpy.argmax, gave to pandas."""
            found = convert_objects(objects, *arguments, **named)
            is_wide = getattr(found, "dtype", None) == numpy.int32 and any(type(one) is numpy.intp for one in objects)
            return found.astype(numpy.int64) if is_wide else found

        lib.maybe_indices_to_slice = lambda indices, length: to_slice(narrowed(indices), length)
        lib.maybe_convert_objects = converted_objects
        manager._insert_update_blklocs_and_blknos = insert_with_pointers

    def of_types(module):
        # Other names of theirs, which numpy's import reads.
        dtypes = sys.modules["numpy.dtypes"]
        dtypes.IntDType, dtypes.UIntDType = dtypes.Int32DType, dtypes.UInt32DType

    after_import("numpy._core.multiarray", of_types)
    after_import("numpy", of_numpy)


one_number_system(after_import)
