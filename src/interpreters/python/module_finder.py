"""Imports modules from their source texts: what this interpreter has in place of some packages, and the modules that the files
of tools share."""

import importlib.machinery
import importlib.util
import sys

from _sekisho_source import compile_module


class SourceFinder:
    """Modules by the paths of their sources: `a.py`, `lib/__init__.py`. A folder without one is a package too."""

    def __init__(self, sources, prefix=""):
        self.sources = sources
        # How its modules are named in tracebacks.
        self._prefix = prefix

    def find_spec(self, name, path=None, target=None):
        base = name.replace(".", "/")
        for file, is_package in ((f"{base}/__init__.py", True), (f"{base}.py", False)):
            if file in self.sources:
                return importlib.util.spec_from_loader(name, self, origin=file, is_package=is_package)
        if any(file.startswith(f"{base}/") for file in self.sources):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        file = module.__spec__.origin
        if file is not None:
            exec(compile_module(self.sources[file], self._prefix + file, "/" in file), module.__dict__)


# After the packages that are there, such as those that an operator has pinned.
PROVIDED = SourceFinder({}, "_sekisho_provided/")


def install():
    if PROVIDED not in sys.meta_path:
        sys.meta_path.append(PROVIDED)
