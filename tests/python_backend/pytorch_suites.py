#!/usr/bin/env python3
"""PyTorch's own tests of torch.distributed, from the installed package, with the backend shm in gloo's place.

    pytorch_suites.py [--world_size N] [--repeat N] [--report FILE] [PATTERN ...]

Runs torch/testing/_internal/distributed/distributed_test.py with BACKEND=shm; and since many tests are for the name gloo only, with
BACKEND=gloo where that name makes our backend. What passes with gloo in the same place has to pass with ours, or is
in pytorch_skips.txt with the reason; what is listed there and passes is an error as well. PATTERN: a part of a test's name.

Needs PyPI's expecttest, which torch.testing imports, and DDPRUN_SHM_LIBRARY or an installed ddprun.
"""

import argparse
import collections
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SKIPS = HERE / "pytorch_skips.txt"
# BACKEND, what serves that name, and the run that says what has to pass.
MODES = {"gloo": ("gloo", "gloo", None), "shm": ("shm", "shm", "gloo"), "as_gloo": ("gloo", "shm", "gloo")}
LIMIT_S = 120  # of one test, for hangs
CANNOT_RUN = 77


def skips(mode):
    """{name of a test: reason} for `mode` of pytorch_skips.txt, whose lines are MODE NAME: REASON; MODE may be `all`."""
    found = {}
    for number, line in enumerate(SKIPS.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"(shm|as_gloo|all) (\w+): (\S.*)", line)
        if match is None:
            raise SystemExit(f"{SKIPS}:{number}: expected 'shm|as_gloo|all TEST: REASON', got: {line}")
        if match[1] in (mode, "all"):
            found[match[2]] = match[3]
    return found


# ---- in the process of one mode: runs the tests, whose ranks are its forks


def serve(name, server):
    """From now on torch.distributed makes `server`'s backend where `name` is asked for."""
    import ddprun  # noqa: F401
    from torch.distributed import Backend

    if name == server:
        return
    Backend._ensure_backend_registered(server)  # as torch does at the first group
    Backend._plugins[name.upper()] = Backend._plugins[server.upper()]
    # Of a backend of gloo's own type DistributedDataParallel's logger takes members of ProcessGroupGloo.
    Backend.backend_type_map[name] = Backend.backend_type_map[server]


class Results(unittest.TextTestResult):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.found = {}
        self.begun = 0.0

    def startTest(self, test):
        super().startTest(test)
        self.begun = time.monotonic()

    def note(self, test, outcome, why=""):
        name = test.id().split(".")[-1]
        self.found[name] = {"outcome": outcome, "why": why, "seconds": round(time.monotonic() - self.begun, 2)}

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "failed", self._exc_info_to_string(error, test))

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "failed", self._exc_info_to_string(error, test))

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.note(test, "passed")


def run_mode(mode, patterns, report):
    name, server, _ = MODES[mode]
    os.environ["BACKEND"] = name
    os.environ["TEMP_DIR"] = tempfile.mkdtemp()
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(LIMIT_S)
    import torch

    torch.set_num_threads(1)
    serve(name, server)
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test

    common_distributed.TIMEOUT_DEFAULT = LIMIT_S
    if server == "shm" and name != "shm":
        # Events of profilers have the name of what does the work.
        events = distributed_test.get_profiling_event
        distributed_test.get_profiling_event = lambda event, *others, **more: events(event.replace(f"{name}:", "shm:"), *others, **more)
    # A process that imports torch for each rank of each test would take an hour; nothing here has threads or CUDA.
    context = torch.multiprocessing.get_context("fork")

    class TestDistributed(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(context.Process)

    TestDistributed.__qualname__ = "TestDistributed"
    names = [name for name in unittest.TestLoader().getTestCaseNames(TestDistributed)
             if not patterns or any(pattern in name for pattern in patterns)]
    suite = unittest.TestSuite(TestDistributed(name) for name in names)
    result = unittest.TextTestRunner(verbosity=2, resultclass=Results).run(suite)
    pathlib.Path(report).write_text(json.dumps(result.found))


# ---- the judge


def start_mode(mode, arguments, folder, round_number):
    report = folder / f"{mode}-{round_number}.json"
    log = folder / f"{mode}-{round_number}.log"
    environment = dict(os.environ, WORLD_SIZE=str(arguments.world_size), OMP_NUM_THREADS="1")
    with open(log, "w") as output:
        code = subprocess.run([sys.executable, "-B", __file__, "--mode", mode, "--report", report, *arguments.pattern], stdout=output,
                              stderr=subprocess.STDOUT, env=environment).returncode
    if not report.exists():
        raise SystemExit(f"{mode}: no report, status {code}; the end of {log}:\n" + log.read_text()[-3000:])
    return json.loads(report.read_text())


def judge(mode, gloo, ours):
    """What is wrong with a run of `mode`, in lines."""
    listed = skips(mode)
    faults = []
    for name, result in ours.items():
        expected = gloo.get(name, {}).get("outcome")
        if result["outcome"] == "failed" and name not in listed and expected != "failed":
            faults.append(f"{mode}: {name} fails, and {expected or 'is missing'} with gloo in its place:\n{result['why']}")
        elif result["outcome"] == "passed" and name in listed:
            faults.append(f"{mode}: {name} passes: remove its line from {SKIPS.name}")
    for name in gloo.keys() - ours.keys():
        faults.append(f"{mode}: {name} did not run")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world_size", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=1, help="rounds of our modes: what hangs only sometimes")
    parser.add_argument("--report", help="a JSON file with the outcome of each test in each mode")
    parser.add_argument("--logs", help="a folder that keeps what the runs print")
    parser.add_argument("--mode", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("pattern", nargs="*")
    arguments = parser.parse_args()
    if arguments.mode:
        return run_mode(arguments.mode, arguments.pattern, arguments.report)
    if importlib.util.find_spec("expecttest") is None:
        print("skipped: torch.testing needs PyPI's expecttest, which scripts/test --pytorch-suites installs")
        return CANNOT_RUN
    folder = pathlib.Path(arguments.logs or tempfile.mkdtemp(prefix="ddprun-suites-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"logs: {folder}", flush=True)
    found, faults = {}, []
    for round_number in range(arguments.repeat):
        for mode, (_, _, reference) in MODES.items():
            if reference is None and round_number > 0:
                continue
            found[mode] = start_mode(mode, arguments, folder, round_number)
            if reference:
                faults += judge(mode, found[reference], found[mode])
    for mode, results in found.items():
        counts = collections.Counter(result["outcome"] for result in results.values())
        print(f"{mode}: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("passed", "skipped", "failed")), flush=True)
    if arguments.report:
        pathlib.Path(arguments.report).write_text(json.dumps(found, indent=1))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
