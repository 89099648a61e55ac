"""ddprun for Python programs.

    import ddprun

    run = ddprun.checkpoint.load("runs/cifar10")

ddprun.checkpoint exchanges training runs with C++ programs; it needs torch and safetensors, and is imported when it is first used.
"""

import importlib

_MODULES = ("checkpoint",)


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_MODULES})
