"""Registers the backend `shm` with torch.distributed. Nothing is compiled: one library per minor version of torch, which
knows nothing of Python, is beside this file and is loaded when the first group is made."""

import importlib
import os
import pathlib

from ._when_imported import when_imported

_DISTRIBUTED = "torch.distributed.distributed_c10d"
_LIBRARY_VARIABLE = "DDPRUN_SHM_LIBRARY"


def library_path(torch_version):
    """The path of the library for this torch: the file that DDPRUN_SHM_LIBRARY names, else the one beside this module.
    Raises RuntimeError with what there is instead."""
    named = os.environ.get(_LIBRARY_VARIABLE)
    if named:
        if not os.path.isfile(named):
            raise RuntimeError(f"{_LIBRARY_VARIABLE}={named}: there is no such file")
        return named
    minor = ".".join(torch_version.split("+")[0].split(".")[:2])
    folder = pathlib.Path(__file__).parent
    path = folder / f"libddprun_shm_torch-{minor}.so"
    if path.is_file():
        return str(path)
    there = sorted(file.name.removeprefix("libddprun_shm_torch-").removesuffix(".so")
                   for file in folder.glob("libddprun_shm_torch-*.so"))
    has = "has the backend shm for torch " + ", ".join(there) if there else "has no library of the backend shm"
    raise RuntimeError(f"ddprun in {folder} {has}, and this is torch {torch_version}: install the wheel of ddprun that was "
                       "built for it, or use another backend")


def load_library():
    """The library's operators as torch.ops.ddprun. Raises RuntimeError or OSError if it is missing for this torch."""
    import torch

    if not hasattr(torch.ops.ddprun, "connect_shm"):
        torch.ops.load_library(library_path(torch.__version__))


def _create(options, backend_options):
    """Makes the backend of a group; torch.distributed calls it on each of the group's ranks."""
    import torch
    from torch.distributed import ProcessGroup

    if getattr(options, "enable_reconfigure", False):
        raise RuntimeError("the backend shm does not support enable_reconfigure: use gloo, or make a new group")
    load_library()
    # A group of TorchBind is what carries store, rank and size into C++, and the backend back.
    carrier = ProcessGroup(options.store, options.group_rank, options.group_size)
    timeout_ms = int(options.timeout.total_seconds() * 1000)
    torch.ops.ddprun.connect_shm(carrier.boxed(), timeout_ms, options.group_id, list(options.global_ranks_in_group))
    return carrier._get_backend(torch.device("cpu"))


def register():
    """Makes `shm` known to torch.distributed, once. The wheel names this as an entry point, by which torch 2.15 finds the
    backend without `import ddprun`."""
    backend = importlib.import_module(_DISTRIBUTED).Backend
    if not hasattr(backend, "SHM"):
        backend.register_backend("shm", _create, extended_api=True, devices=["cpu"])


def register_when_imported():
    """Registers the backend at once if torch.distributed has been imported, else when it is imported. Does not import torch."""
    when_imported(_DISTRIBUTED, register)
