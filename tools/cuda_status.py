"""Runs the tests labelled gpu, then the benchmarks that support GPUs, and records the results in
docs/cuda-status.md: `cuda_status.py BUILD_FOLDER [project root]`. For each, the page says when and on which device
it last passed or failed, and what was measured. Tests that did not run keep their line, or say "never". --list-only
runs nothing; --check only compares the page with what the tool would then write. The page also lists what the
simulated GPUs (tests/support/device/) cannot show: see ONLY_A_GPU below."""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HEADING = """# CUDA status

When each test that needs a GPU last ran, and on what. Written by `scripts/test --gpu`; don't edit by hand.
"""
TESTS = """
| test | last run | device | LibTorch | result |
|---|---|---|---|---|
"""
BENCHMARKS = """
## Benchmarks on a GPU

| case | metric | ours | peer | ratio | measured | device |
|---|---|---|---|---|---|---|
"""
ONLY = """
## What only a real GPU can show

Everything else about devices runs on simulated ones in every test run (`ctest -L device`): memory, streams, events, waits,
page-locked copies, current devices. They compute with the CPU's kernels and know no hardware, so these remain:

| what | why simulated ones cannot | shown by |
|---|---|---|
"""

# What needs a real GPU, why a simulation cannot show it, and the tests labelled gpu and benchmarks that check it.
ONLY_A_GPU = [
    (
        "NCCL: connecting, its order of sums, its watchdog's times, aborting a kernel that hangs",
        "the ranks' sums go through shared memory in gloo's order; only the manners are NCCL's",
        ["comm.gpu", "ddp.gpu", "ddp.gpu_SharedGpu"],
    ),
    ("two ranks with a GPU each over NCCL", "the same; and no machine with two GPUs has run it yet", []),
    (
        "kernels' numbers: cuDNN, cuBLAS, TF32, sums by atomics, fused optimizers, batch norm, softmax of halves",
        "kernels are the CPU's",
        ["amp.gpu", "optim.gpu", "syncbn.gpu", "ddp.gpu_parity", "examples.gpu"],
    ),
    ("what Python's DDP computes on the same GPU, bit for bit", "Python's half is not loaded", ["ddp.gpu_parity"]),
    (
        "copies, kernels and collectives at the same time, and what a step costs",
        "a device works off one kernel at a time on a thread",
        ["data.gpu", "bench ddp", "bench syncbn"],
    ),
    (
        "work that is still queued for seconds while the program continues",
        "a CPU would take minutes for it, so these two tests are left out there",
        ["checkpoint.gpu", "data.gpu"],
    ),
    (
        "CUDA graphs: capture and replay",
        "nothing is captured; that calls which cannot be captured say so is tested with a stand-in (`ddp.streams`)",
        [],
    ),
    ("gloo with tensors of a GPU", "LibTorch's gloo reads them with CUDA itself", ["comm.gpu", "syncbn.gpu", "ddp.gpu_TwoRanks"]),
    (
        "ddprun's CUDA part: loading it, device nodes, UUIDs, two ranks that claim one GPU, NVML",
        "the simulation takes its place",
        ["ddp.gpu_SharedGpu", "launcher.gpu_driver"],
    ),
    ("sparse and quantized tensors on a GPU", "the simulated devices know neither", []),
    ("running out of device memory, fragmentation, the time that page-locking takes", "memory is the host's", []),
    ("copies between GPUs by NVLink or PCIe, and GPUs that cannot reach each other", "all memory is one file", []),
]
NEVER = ["never", "-", "-", "-"]


def gpu_tests(build: str) -> list[str]:
    listing = subprocess.run(
        ["ctest", "--test-dir", build, "-L", "^gpu$", "--show-only=json-v1"], check=True, capture_output=True, text=True
    )
    return sorted(test["name"] for test in json.loads(listing.stdout)["tests"])


def recorded(page: pathlib.Path) -> dict[str, list[str]]:
    rows = {}
    for line in page.read_text().splitlines() if page.exists() else []:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 5 and not cells[0].startswith(("test", "--")):
            rows[cells[0].strip("`")] = cells[1:]
    return rows


def recorded_benchmarks(page: pathlib.Path) -> dict[tuple[str, str], list[str]]:
    rows = {}
    for line in page.read_text().splitlines() if page.exists() else []:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 7 and not cells[0].startswith(("case", "--", "never")):
            rows[cells[0], cells[1]] = cells[2:]
    return rows


def device() -> str:
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "no GPU"
    names = re.findall(r"GPU \d+: (.*?) \(UUID", listing)
    return f"{len(names)} x {names[0]}" if len(names) > 1 else "".join(names) or "no GPU"


def libtorch(build: str) -> str:
    folder = re.search(r"^DDPRUN_LIBTORCH:[A-Z]*=(.+)$", (pathlib.Path(build) / "CMakeCache.txt").read_text(), re.M)
    version = pathlib.Path(folder[1]) / "version.py" if folder else None
    found = version and version.exists() and re.search(r"__version__ = '([^']+)'", version.read_text())
    return found[1] if found else "-"


def run(build: str) -> tuple[int, dict[str, str]]:
    """Returns the exit status, and the result of each test that ran."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        status = subprocess.run(
            ["ctest", "--test-dir", build, "-L", "^gpu$", "--output-on-failure", "--output-junit", str(report)]
        ).returncode
        results = {}
        for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
            if case.find("skipped") is None:
                results[case.get("name")] = "failed" if case.find("failure") is not None else "passed"
        return status, results


def run_benchmarks(build: str, root: pathlib.Path) -> tuple[int, list[dict]]:
    """Returns the exit status and the rows of the benchmarks that support GPUs, limited to their GPU cases."""
    cache = (pathlib.Path(build) / "CMakeCache.txt").read_text()
    folder = re.search(r"^DDPRUN_LIBTORCH:[A-Z]*=(.+)$", cache, re.M)
    python = pathlib.Path(folder[1]) / "../../../../bin/python3" if folder else None
    if python is None or not python.exists():
        print("no benchmarks: they compare with Python, but this LibTorch is not a wheel in an environment", file=sys.stderr)
        return 0, []
    variables = {
        "BENCH_PROGRAMS": str(pathlib.Path(build).absolute() / "bin"),
        "BENCH_PYTHON": str(python),
        "BENCH_DDP_CASES": "cuda",
        "BENCH_SYNCBN": "cuda",
    }
    command = [sys.executable, "-B", str(root / "bench/run.py"), "--json", "ddp", "syncbn"]
    bench = subprocess.run(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True)
    return bench.returncode, [json.loads(line) for line in bench.stdout.splitlines()]


def cell(value) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "/")


def page_of(tests: list[str], rows: dict[str, list[str]], benchmarks: dict[tuple[str, str], list[str]]) -> str:
    unknown = {shown for *_, names in ONLY_A_GPU for shown in names if not shown.startswith("bench ")} - set(tests)
    if unknown:
        raise SystemExit(f"ONLY_A_GPU names tests that are not labelled gpu: {', '.join(sorted(unknown))}")

    def table(lines):
        return "".join("| " + " | ".join(line) + " |\n" for line in lines)

    only = [[what, why, ", ".join(f"`{name}`" for name in names) or "nothing yet"] for what, why, names in ONLY_A_GPU]
    measured = table([*key, *values] for key, values in benchmarks.items()) or "| never | - | - | - | - | - | - |\n"
    return (
        HEADING
        + TESTS
        + table([f"`{name}`", *rows.get(name, NEVER)] for name in tests)
        + BENCHMARKS
        + measured
        + ONLY
        + table(only)
    )


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--list-only", "--check")]
    build, root = arguments[0], pathlib.Path(arguments[1] if len(arguments) > 1 else ".")
    page = root / "docs/cuda-status.md"
    rows = recorded(page)
    status, results = (0, {}) if {"--list-only", "--check"} & set(sys.argv) else run(build)
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    where = [device(), libtorch(build)] if results else []
    if where and where[0] == "no GPU":
        print("no GPU here: docs/cuda-status.md keeps what it says", file=sys.stderr)
        results = {}
    for name, result in results.items():
        rows[name] = [today, *where, result]
    benchmarks = recorded_benchmarks(page)
    if results:
        bench_status, measured = run_benchmarks(build, root)
        status = status or bench_status
        for row in measured:
            values = [cell(row[column]) for column in ("ours", "peer", "ratio")]
            benchmarks[cell(row["case"]), cell(row["metric"])] = [*values, today, where[0]]
    text = page_of(gpu_tests(build), rows, benchmarks)
    if "--check" in sys.argv and page.read_text() != text:
        print("docs/cuda-status.md is not what tools/cuda_status.py BUILD_FOLDER --list-only writes", file=sys.stderr)
        return 1
    page.write_text(text)
    return status


if __name__ == "__main__":
    sys.exit(main())
