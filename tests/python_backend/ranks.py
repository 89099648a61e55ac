"""Ranks of torch.distributed as forks of a test: each import of torch costs two seconds of a core."""

import dataclasses
import datetime
import gc
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from free_port import free_port  # noqa: E402

LIMIT_S = 300  # for hangs


@dataclasses.dataclass
class Outcome:
    """How a rank ended: its exit status, its result or None, and what it wrote to standard error."""

    status: int
    result: object
    errors: str


def _rank(body, rank, folder, backend, timeout_s):
    status = 1
    try:
        sys.stderr = open(folder / f"errors{rank}", "w", buffering=1)
        os.dup2(sys.stderr.fileno(), 2)
        torch.set_num_threads(1)
        if backend:
            dist.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout_s))
        torch.save(body(rank), folder / f"result{rank}")
        if backend and dist.is_initialized():
            dist.destroy_process_group()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def start(body, size, folder, backend, timeout_s, variables):
    """The processes; `variables` may have a list with one value per rank."""
    gc.freeze()
    port = free_port()
    processes = []
    for rank in range(size):
        process = os.fork()
        if process == 0:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            os.environ.update({name: value[rank] if isinstance(value, list) else value for name, value in variables.items()})
            _rank(body, rank, folder, backend[rank] if isinstance(backend, list) else backend, timeout_s)
        processes.append(process)
    return processes


def outcomes(body, size, backend="shm", timeout_s=60, **variables):
    """An Outcome per rank of `body(rank)` between init_process_group(backend) and destroy_process_group()."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        processes = dict(enumerate(start(body, size, folder, backend, timeout_s, variables)))
        status = {}
        deadline = time.monotonic() + LIMIT_S
        while processes and time.monotonic() < deadline:
            for rank, process in list(processes.items()):
                ended, code = os.waitpid(process, os.WNOHANG)
                if ended:
                    status[rank] = os.waitstatus_to_exitcode(code)
                    del processes[rank]
            time.sleep(0.005)
        for rank, process in processes.items():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            status[rank] = None  # it hung
        found = []
        for rank in range(size):
            result = folder / f"result{rank}"
            errors = folder / f"errors{rank}"
            found.append(Outcome(status[rank], torch.load(result, weights_only=False) if result.exists() else None,
                                 errors.read_text() if errors.exists() else ""))
        return found


def results(body, size, backend="shm", **settings):
    """The results, where no rank may fail."""
    found = outcomes(body, size, backend, **settings)
    for rank, outcome in enumerate(found):
        if outcome.status != 0:
            raise AssertionError(f"rank {rank} of {size} on {backend} ended with {outcome.status}: "
                                 + "\n".join(f"[{number}] {one.errors}" for number, one in enumerate(found)))
    return [outcome.result for outcome in found]


def shares_memory():
    """Whether this process maps memory of ddprun's."""
    return "memfd:ddprun ranks" in pathlib.Path("/proc/self/maps").read_text()
