"""Trainings for parity_program.cpp and its twin in Python, and the jobs that run them. Standard library only.

The first command line argument is parity_program's path.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from free_port import free_port  # noqa: E402

PROGRAM = sys.argv.pop(1)
TWIN = pathlib.Path(__file__).with_name("parity_program.py")
CPP = [PROGRAM]
PYTHON = [sys.executable, str(TWIN)]  # needs torch, and so do tests that run it
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMI_", "SLURM_")
JOB_LIMIT_S = 300

DEFAULTS = {
    "model": "lenet",
    "batch": 16,
    "lr": 0.05,
    "views": 1,
    "batched": 0,
    "lazy": 0,
    "set_to_none": 1,
    "bucket_cap_bytes": 0,
    "bucket_cap_bytes_list": "no",
    "forward_sync": -1,
    "accumulate": 1,
    "save_at": 50,
    "replaces": 1,
    "find_unused": 0,
    "static": 0,
    "hook": "none",
    "join": "no",
    "die": "no",
    "odd": -1,
    "micro_is_rank": 0,
    "delayed": 0,
    "bucket_end": "no",
    "device": "cpu",
    "amp": 0,
}
LENET = {"save_at": "10,50"}
CASES = {
    "lenet": LENET,
    "small_buckets": {"bucket_cap_bytes": 4096, "save_at": 20},
    "accumulate": {"accumulate": 4, "bucket_cap_bytes": 16384, "save_at": 10},
    "accumulate_zeroed": {"accumulate": 3, "set_to_none": 0, "views": 0, "save_at": 8},
    "resnet18": {"model": "resnet18", "batch": 4, "lr": 0.01, "save_at": 5},
}
# Every feature on its own.
MIB = 2**20
BUCKETS = {"001": MIB // 100, "1": MIB, "25": 25 * MIB}
FEATURES = {
    "tied": {"model": "tied"},
    "frozen": {"model": "frozen"},
    "unused": {"model": "branches", "find_unused": 1},
    "unused_kept": {"model": "branches", "find_unused": 1, "views": 0, "set_to_none": 0},
    "unused_accumulate": {"model": "branches", "find_unused": 1, "accumulate": 4},
    "unused_small_buckets": {"model": "branches", "find_unused": 1, "bucket_cap_bytes": 300},
    "accumulate_lenet": {"accumulate": 4, "batch": 4},
    "static": {"model": "static", "static": 1},
    "static_zeroed": {"model": "static", "static": 1, "set_to_none": 0, "bucket_cap_bytes": 300},
    "buffers": {"model": "normed"},
    "sparse": {"model": "sparse"},
    "fp16": {"hook": "fp16"},
    "bf16": {"hook": "bf16"},
    "allreduce": {"hook": "allreduce"},
    "fp16_wrapped": {"hook": "fp16_wrapped"},
    "power_sgd1": {"hook": "power_sgd1"},
    "power_sgd4": {"hook": "power_sgd4"},
    "join": {"model": "normed", "join": "initial"},
    "join_divided_by_active": {"model": "normed", "join": "active"},
    "join_lenet": {"join": "initial", "batch": 4},
    "join_unused": {"model": "branches", "join": "active", "find_unused": 1},
}
FEATURES |= {f"lenet_{name}": {"batch": 4, "bucket_cap_bytes": size} for name, size in BUCKETS.items()}
FEATURES |= {f"tiny200_{name}": {"model": "tiny200", "bucket_cap_bytes": size} for name, size in BUCKETS.items()}
# By the minor version of torch 2 that brought them.
SINCE = {
    12: {
        "batched": {"batched": 1, "bucket_cap_bytes": 4096},
        "batched_copied": {"batched": 1, "views": 0, "bucket_cap_bytes": 4096},
        "batched_unused": {"batched": 1, "model": "branches", "find_unused": 1, "bucket_cap_bytes": 300},
        "batched_accumulate": {"batched": 1, "accumulate": 3, "set_to_none": 0},
    },
    15: {
        "list": {"bucket_cap_bytes_list": "2000,20000,4000"},
        "list_tiny200": {"model": "tiny200", "bucket_cap_bytes_list": "3000,400,1000"},
        "list_of_one": {"bucket_cap_bytes_list": "30000", "views": 0},
        "list_unused": {"model": "branches", "find_unused": 1, "bucket_cap_bytes_list": "700,300"},
        "list_static": {"model": "static", "static": 1, "bucket_cap_bytes_list": "700,300"},
        "list_fp16": {"hook": "fp16", "bucket_cap_bytes_list": "2000,20000"},
        "list_join": {"join": "active", "batch": 4, "bucket_cap_bytes_list": "2000,20000"},
        "list_lazy": {"lazy": 1, "bucket_cap_bytes_list": "2000,20000"},
        "own_buffers": {"model": "normed", "forward_sync": 0},
        "own_buffers_join": {"model": "normed", "forward_sync": 0, "join": "initial"},
        "synced_buffers": {"model": "normed", "forward_sync": 1},
        "lazy": {"lazy": 1, "bucket_cap_bytes": 4096},
        "lazy_batched": {"lazy": 1, "batched": 1, "views": 0, "bucket_cap_bytes": 4096},
        "lazy_unused": {"lazy": 1, "model": "branches", "find_unused": 1, "bucket_cap_bytes": 300},
        "lazy_accumulate": {"lazy": 1, "accumulate": 3, "set_to_none": 0},
        "lazy_static": {"lazy": 1, "model": "static", "static": 1},
        "lazy_fp16": {"lazy": 1, "hook": "fp16"},
    },
}
# Parameters whose reduction waits for another one's gradient.
DELAYED = {"delayed": {"delayed": 1, "save_at": 20}}
# There Python reduces them in each micro-batch, which rounds otherwise, and so do ranks that share its job.
DELAYED_MIXED = DELAYED | {
    "delayed_accumulate": {"delayed": 1, "accumulate": 3, "save_at": 10},
    "delayed_bucket_cap": {"delayed": 1, "bucket_cap_bytes": 2 * MIB, "save_at": 5},
}
# What has to hold on three ranks as well, where the order of sums shows.
THREE = [name for name in FEATURES if name.startswith(("lenet_", "tiny200_", "join", "unused", "static"))]
RESNET = {"resnet18": {"model": "resnet18", "batch": 4, "lr": 0.01, "save_at": 50}}
# On a GPU, for one rank on NCCL and for two that share it over gloo. Not sparse gradients: NCCL has none, and there their sums
# are not in a fixed order.
ON_GPU = {
    name: {**case, "device": "cuda", "save_at": 50}
    for name, case in {**CASES, **FEATURES, "lenet_copied_zeroed": {"views": 0, "set_to_none": 0}}.items()
    if name != "sparse"
}
ON_GPU |= {f"{name}_fp16": {**ON_GPU[name], "amp": 1} for name in ("lenet", "resnet18", "accumulate", "buffers", "unused")}
# Ways to do the same training: equal bits whichever is taken.
LENET_VARIANTS = {
    "lenet_views_zeroed": {**LENET, "set_to_none": 0},
    "lenet_copied": {**LENET, "views": 0},
    "lenet_copied_zeroed": {**LENET, "views": 0, "set_to_none": 0},
}


def cases_file(folder, cases):
    path = pathlib.Path(folder) / "cases.txt"
    lines = []
    for name, changes in cases.items():
        settings = {**DEFAULTS, **changes}
        lines.append(" ".join([name, *(f"{key}={value}" for key, value in settings.items())]))
    path.write_text("\n".join(lines) + "\n")
    return path


def environment(rank, size, port):
    variables = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_VARIABLES)}
    variables |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    return variables


def start(command, arguments, **settings):
    if command is not PYTHON:
        return subprocess.Popen(command + arguments, **settings)
    import forked_python  # which needs torch

    return forked_python.popen([TWIN, *arguments], **settings)


class Job:
    """The ranks of one job, one command each; the result files of all cases are in `folder`."""

    def __init__(self, test, commands, cases, agent_store=None, size=None, timeout_s=120, expect_success=True, more_environment=None,
                 may_warn=False):
        folder = tempfile.TemporaryDirectory()
        test.addClassCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        arguments = [str(cases_file(self.folder, cases)), str(self.folder), str(timeout_s)]
        port = agent_store.port if agent_store else free_port()
        variables = {"TORCHELASTIC_USE_AGENT_STORE": "True"} if agent_store else {}
        variables |= more_environment or {}
        ranks = [
            start(
                command,
                arguments,
                env=environment(rank, size or len(commands), port) | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, command in enumerate(commands)
        ]
        deadline = time.monotonic() + JOB_LIMIT_S
        try:
            outputs = [rank.communicate(timeout=max(0, deadline - time.monotonic())) for rank in ranks]
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.communicate()
        self.errors = [errors for _, errors in outputs]
        self.output = [output for output, _ in outputs]
        self.statuses = [rank.returncode for rank in ranks]
        if expect_success and (any(self.statuses) or (any(self.errors) and not may_warn)):
            raise AssertionError(f"exit statuses {self.statuses}, expected 0 and nothing on stderr: {outputs}")

    def weights(self, case, step, rank=0):
        return (self.folder / f"{case}.step{step}.rank{rank}").read_bytes()

    def all_weights(self):
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("*.rank*"))}
