"""Builds with each supported PyTorch, runs the tests that compare with its Python (`scripts/test --parity`) and records
the results in docs/versions.md: `torch_versions.py [--whole] [VERSION ...]`. Without arguments, all versions are
tested; each takes half an hour on two cores if nothing has been built yet. With --whole, all tests are run (an hour).
`torch_versions.py --record VERSION REPORT [project root]` records a finished run from CTest's JUnit report.
"""

import datetime
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

VERSIONS = ["2.15.0", "2.14.0", "2.13.0", "2.12.1", "2.11.0"]
HEADING = """# PyTorch and LibTorch versions

With which the tests have passed: build, parity with Python's DistributedDataParallel of the same version, checkpoints both ways, the
installed package (`scripts/test --parity --torch VERSION`), or every test. Written by `tools/torch_versions.py`; don't edit by hand.

| LibTorch | last run | tests | result |
|---|---|---|---|
"""
NEVER = ["never", "-", "not run"]


def recorded(page: pathlib.Path) -> dict[str, list[str]]:
    rows = {}
    for line in page.read_text().splitlines() if page.exists() else []:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and cells[0][:1].isdigit():
            rows[cells[0]] = cells[1:]
    return rows


def summary(report: pathlib.Path) -> list[str]:
    """Returns the date, the number of tests and the result of a run. Throws if the report is not valid."""
    cases = list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
    failed = sorted(case.get("name") for case in cases if case.find("failure") is not None)
    skipped = [case for case in cases if case.find("skipped") is not None]
    run = len(cases) - len(skipped)
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    counted = f"{run}, and {len(skipped)} skipped" if skipped else str(run)
    if not run:
        return [today, counted, "no test ran"]
    return [today, counted, "failed: " + ", ".join(failed) if failed else "all passed"]


def write(page: pathlib.Path, version: str, row: list[str]) -> None:
    rows = {**{known: NEVER for known in VERSIONS}, **recorded(page), version: row}
    by_number = sorted(rows, key=lambda text: [int(part) for part in text.split(".")], reverse=True)
    page.write_text(HEADING + "".join(f"| {known} | {' | '.join(rows[known])} |\n" for known in by_number))


def main() -> int:
    if sys.argv[1:2] == ["--record"]:
        version, report = sys.argv[2:4]
        root = pathlib.Path(sys.argv[4] if len(sys.argv) > 4 else ".")
        write(root / "docs/versions.md", version, summary(pathlib.Path(report)))
        return 0
    arguments = sys.argv[1:]
    which = [] if "--whole" in arguments else ["--parity"]
    worst = 0
    for version in [each for each in arguments if each != "--whole"] or VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.xml"
            status = subprocess.run(["scripts/test", *which, "--torch", version, "--output-junit", str(report)]).returncode
            worst = worst or status
            built = report.exists()
            write(pathlib.Path("docs/versions.md"), version, summary(report) if built else [*NEVER[:2], "does not build"])
    return worst


if __name__ == "__main__":
    sys.exit(main())
