"""Runs the tests labelled gpu and records in docs/cuda-status.md when and on which device each last passed or failed:
`cuda_status.py BUILD_FOLDER [project root]`. Tests that did not run keep their line, or say "never"; --list-only runs none.
"""

import datetime
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HEADING = """# CUDA status

When each test that needs a GPU last ran, and on what. Written by `scripts/test --gpu`; don't edit by hand.

| test | last run | device | LibTorch | result |
|---|---|---|---|---|
"""
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


def device() -> str:
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "no GPU"
    names = re.findall(r"GPU \d+: (.*?) \(UUID", listing)
    return f"{len(names)} x {names[0]}" if len(names) > 1 else "".join(names) or "no GPU"


def libtorch(build: str) -> str:
    folder = re.search(r"^DDPRUN_LIBTORCH:PATH=(.+)$", (pathlib.Path(build) / "CMakeCache.txt").read_text(), re.M)
    version = pathlib.Path(folder[1]) / "version.py" if folder else None
    found = version and version.exists() and re.search(r"__version__ = '([^']+)'", version.read_text())
    return found[1] if found else "-"


def run(build: str) -> tuple[int, dict[str, str]]:
    """The exit status and the result of each test that ran."""
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


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--list-only"]
    build, root = arguments[0], pathlib.Path(arguments[1] if len(arguments) > 1 else ".")
    page = root / "docs/cuda-status.md"
    rows = recorded(page)
    status, results = (0, {}) if "--list-only" in sys.argv else run(build)
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    where = [device(), libtorch(build)] if results else []
    if where and where[0] == "no GPU":
        print("no GPU here: docs/cuda-status.md keeps what it says", file=sys.stderr)
        results = {}
    for name, result in results.items():
        rows[name] = [today, *where, result]
    lines = [f"| `{name}` | " + " | ".join(rows.get(name, NEVER)) + " |" for name in gpu_tests(build)]
    page.write_text(HEADING + "\n".join(lines) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
