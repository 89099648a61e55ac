"""ddprun for Python programs.

    import ddprun

In a rank that ddprun has started, this reports what the rank does, for the report on a hang, `ddprun status` and the rest of
docs/watching.md: the phases and steps of DistributedDataParallel and of optimizers, the data loaders, and collectives. step(), phase() and value()
report what a loop of your own does. Elsewhere it does nothing.

Before or after `import torch` it makes torch.distributed.init_process_group("shm") work: the shared-memory backend.

    run = ddprun.checkpoint.load("runs/cifar10")

ddprun.checkpoint exchanges training runs with C++ programs; it needs torch and safetensors, and is imported when it is first used. The rest
needs the standard library only, and does not import torch.
"""

import importlib
import sys

from . import _backend
from ._progress import _reporter, phase, print_stacks_on_signal, step, value
from ._when_imported import when_imported

__all__ = ["checkpoint", "phase", "step", "value"]

_MODULES = ("checkpoint",)


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_MODULES})


def _install_hooks():
    from . import _hooks

    _hooks.install()


_backend.register_when_imported()
if _reporter.page is not None:
    when_imported("torch", _reporter.guarded(_install_hooks))
    # Of other versions ddprun reads the stacks from memory.
    if sys.version_info >= (3, 14):
        _reporter.guarded(print_stacks_on_signal)()
