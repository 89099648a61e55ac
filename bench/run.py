"""Runs the benchmarks and prints a table: `run.py [NAME ...] [--json] [--minimum-ratio R]`.

A benchmark is a folder bench/NAME with a program `run` that prints one JSON object per row: case, metric, ours, peer (null
when there is nothing to compare with) and ratio, how many times ours is better. It is told where things are by the
variables BENCH_PROGRAMS (the folder of built programs) and BENCH_PYTHON (an interpreter with PyTorch).
"""

import argparse
import json
import pathlib
import subprocess
import sys

BENCH = pathlib.Path(__file__).parent
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Runs benchmarks and prints a table.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones (default: all): {', '.join(names())}")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    parser.add_argument("--minimum-ratio", type=float, metavar="R", help="fail when a row's ratio is below R")
    options = parser.parse_args()
    for name in options.names:
        if name not in names():
            parser.error(f"no benchmark '{name}'; there are: {', '.join(names())}")

    table = []
    for name in options.names or names():
        for row in rows(name):
            table.append(row)
            if options.json:
                print(json.dumps(row), flush=True)
    if not options.json:
        print_table(table)
    too_low = [r for r in table if options.minimum_ratio and r["ratio"] is not None and r["ratio"] < options.minimum_ratio]
    for row in too_low:
        print(f"{row['case']}: ratio {row['ratio']:.3g} is below {options.minimum_ratio}", file=sys.stderr)
    return 1 if too_low else 0


if __name__ == "__main__":
    sys.exit(main())
