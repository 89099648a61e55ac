"""Exits with status 0 if every file of every package in this Python environment exists in full; otherwise prints what
is missing.

Reads only file names and sizes, as recorded by pip. Nothing is imported.
"""

import csv
import pathlib
import sys
import sysconfig


def broken_files(site_packages: pathlib.Path):
    for info in site_packages.glob("*.dist-info"):
        record = info / "RECORD"
        if not record.is_file():
            yield record
            continue
        with record.open(newline="") as rows:
            for name, _, size in csv.reader(rows):
                path = site_packages / name
                try:
                    actual = path.stat().st_size
                except OSError:
                    # pip compiles .pyc files after it has written the other entries of RECORD.
                    if not name.endswith(".pyc"):
                        yield path
                    continue
                if size and int(size) != actual:
                    yield path


broken = next(broken_files(pathlib.Path(sysconfig.get_paths()["purelib"])), None)
if broken:
    sys.exit(f"missing or incomplete: {broken}")
