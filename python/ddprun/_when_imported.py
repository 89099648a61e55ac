"""Calls a function once a module has been imported, without importing it. Standard library only."""

import importlib.abc
import importlib.util
import sys


def when_imported(module, function):
    """Calls function() now if `module` has been imported, else right after its import. What it raises ends that import."""
    if module in sys.modules and not getattr(getattr(sys.modules[module], "__spec__", None), "_initializing", False):
        function()
    else:
        sys.meta_path.insert(0, _Finder(module, function))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module, function):
        self._module, self._function = module, function
        self._looks = False

    def find_spec(self, name, _path=None, _target=None):
        if name != self._module or self._looks:
            return None
        self._looks = True  # the other finders find it
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looks = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._finish)
        return spec

    def _finish(self):
        # An earlier query whether the module exists has come here before.
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._function()


class _Loader(importlib.abc.Loader):
    def __init__(self, loader, function):
        self._loader, self._function = loader, function

    def __getattr__(self, name):  # resources and sources are the real loader's
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._function()
