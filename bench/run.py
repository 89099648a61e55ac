"""Runs the benchmarks and prints a table: `run.py [NAME ...] [--json] [--minimum-ratio R]`.

A benchmark is a folder bench/NAME with a program `run`. The program prints one JSON object per row with the fields
case, metric, ours, peer (null if there is nothing to compare with) and ratio (how many times ours is better). It reads
the folder of the built programs from BENCH_PROGRAMS, and the path of a Python interpreter with PyTorch from
BENCH_PYTHON. If BENCH_QUICK is set, it measures little and only once, in order to check that it works. On a machine
where it cannot run, it exits with status 77.

With --record the rows are stored in docs/benchmarks.json, and the tables on the pages between `<!-- benchmark NAME -->`
and `<!-- end -->` are generated from that file. A benchmark with another presentation has a bench/NAME/shown.py:
own_tables(rows) returns the lines of its tables and the rows that remain for the usual table, pictures(rows) returns
the SVGs by file name.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

BENCH = pathlib.Path(__file__).parent
DOCS = BENCH.parent / "docs"
RECORD = "benchmarks.json"
TABLE = re.compile(r"(<!-- benchmark (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
PLACES = ("BENCH_PROGRAMS", "BENCH_PYTHON", "BENCH_PILLOW_SIMD")  # the other BENCH_ variables are settings
CANNOT_RUN = 77
COLUMNS = ["case", "metric", "ours", "peer", "ratio"]


def names() -> list[str]:
    return sorted(path.parent.name for path in BENCH.glob("*/run"))


def rows(name: str):
    with subprocess.Popen([BENCH / name / "run"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as bench:
        for line in bench.stdout:
            row = json.loads(line)
            if list(row) != COLUMNS:
                raise ValueError(f"bench/{name}/run printed the fields {list(row)}, not {COLUMNS}")
            yield row
    if bench.returncode == CANNOT_RUN:
        sys.exit(CANNOT_RUN)
    if bench.returncode != 0:
        sys.exit(f"bench/{name}/run failed with exit status {bench.returncode}")


def cell(value) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def print_table(table: list[dict]):
    lines = [COLUMNS] + [[cell(row[column]) for column in COLUMNS] for row in table]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    for line in lines:
        left = (text.ljust(width) for text, width in zip(line[:2], widths))
        right = (text.rjust(width) for text, width in zip(line[2:], widths[2:]))
        print("  ".join([*left, *right]))


def shown(value) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def own_show(name: str):
    """Imports bench/NAME/shown.py; returns None if there is no such file."""
    path = BENCH / name / "shown.py"
    if not path.exists():
        return None
    spec = importlib.util.spec_from_file_location(f"{name}_shown", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def usual_table(name: str, rows: list[dict]) -> list[str]:
    lines = ["| | ddprun | compared with | times as good |", "|---|---|---|---|"]
    for row in rows:
        what = f"{row['case']}: {row['metric']}".removeprefix(f"{name}: ")
        peer = (re.findall(r"; peer:? ([^:;]+)", what) or [""])[0]
        what = re.sub(r"; peer:? [^:;]+", "", what)
        theirs = "" if row["peer"] is None else f"{shown(row['peer'])} ({peer})" if peer else shown(row["peer"])
        ratio = "" if row["ratio"] is None else shown(row["ratio"])
        lines.append(f"| {what} | {shown(row['ours'])} | {theirs} | {ratio} |")
    return lines


def page_table(record: dict) -> str:
    """Returns the text that a page shows for the rows of a benchmark."""
    name, rows, own = record["name"], record["rows"], own_show(record["name"])
    lines = []
    if own:
        lines, rows = own.own_tables(rows)
    if rows:
        lines = [*lines, *([""] if lines else []), *usual_table(name, rows)]
    command = " ".join([*(f"{key}={value}" for key, value in record.get("settings", {}).items()), "scripts/bench", name, "--record"])
    lines.append(f"\nMeasured by `{command}` on {record['cores']} cores at a load average of {record['load']}.")
    return "".join(line + "\n" for line in lines)


def record(name: str, found: list[dict], docs: pathlib.Path = DOCS):
    """Stores the rows. Writes the benchmark's pictures, and the tables on all pages that show it."""
    path = docs / RECORD
    known = json.loads(path.read_text()) if path.exists() else {}
    settings = {key: value for key, value in sorted(os.environ.items()) if key.startswith("BENCH_") and key not in PLACES}
    known[name] = {"name": name, "settings": settings, "cores": os.cpu_count(), "load": round(os.getloadavg()[1]), "rows": found}
    path.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    for page in docs.glob("*.md"):
        text = page.read_text()
        new = TABLE.sub(lambda match: match[1] + page_table(known[match[2]]) + match[3] if match[2] in known else match[0], text)
        if new != text:
            page.write_text(new)
    if own := own_show(name):
        for file, picture in own.pictures(found).items():
            (docs / file).write_text(picture, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Runs benchmarks and prints a table.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones (default: all): {', '.join(names())}")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--minimum-ratio", type=float, metavar="R", help="fail when a row's ratio is below R")
    parser.add_argument("--record", action="store_true", help="keep the rows in docs/benchmarks.json and write the pages' tables")
    options = parser.parse_args()
    for name in options.names:
        if name not in names():
            parser.error(f"no benchmark '{name}'; there are: {', '.join(names())}")

    table = []
    for name in options.names or names():
        found = []
        for row in rows(name):
            found.append(row)
            if options.json:
                print(json.dumps(row), flush=True)
        table += found
        if options.record and found:
            record(name, found)
    if not options.json:
        print_table(table)
    too_low = [r for r in table if options.minimum_ratio and r["ratio"] is not None and r["ratio"] < options.minimum_ratio]
    for row in too_low:
        print(f"{row['case']}: ratio {row['ratio']:.3g} is below {options.minimum_ratio}", file=sys.stderr)
    return 1 if too_low else 0


if __name__ == "__main__":
    sys.exit(main())
