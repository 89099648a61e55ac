"""What files of at most 1 MB make the readers take: a DataError or the picture, at most 64 MB beside it, and no long time.

A file whose name begins with "read-" or "refused-" has to be read or refused. `hostile_files_test.py --table` prints a line
for each file. PROGRAM is reader_cost_program."""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import hostile_files

MOST_BYTES = 64_000_000  # beside what was read
MOST_SECONDS = 20  # of the processor; 2 where nothing else runs
KINDS = {".tif": "READS_TIFF", ".webp": "READS_WEBP"}


def measure(path: pathlib.Path):
    done = subprocess.run([os.environ["PROGRAM"], path], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return None, done.stderr.strip() or f"status {done.returncode}"
    decoded, peak, seconds, said = done.stdout.split(" ", 3)
    return (int(decoded), int(peak), float(seconds)), said.split(": ", 1)[1].strip()


def main():
    failures = count = 0
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        path = None
        for name, content in hostile_files.all_files():
            if os.environ.get(KINDS.get(pathlib.Path(name).suffix, ""), "1") != "1":
                continue
            path = pathlib.Path(folder) / name
            path.write_bytes(content)
            cost, said = measure(path)
            path.unlink()
            count += 1
            beside = cost and cost[1] - cost[0]
            is_right = cost is not None and beside <= MOST_BYTES and cost[2] <= MOST_SECONDS
            seconds[name] = cost and cost[2]
            if name.startswith("read-") and "-interlaced" in name:  # as much work as without
                is_right = is_right and cost[2] < 1.8 * seconds[name.replace("-interlaced", "")] + 0.2
            if name == "read-samples-one.tar.gz":  # as much work as a sample for each file
                is_right = is_right and cost[2] < 5 * seconds["read-samples.tar.gz"] + 0.5
            if name.startswith(("read-", "refused-")):
                is_right = is_right and (said == "read") == name.startswith("read-")
            failures += not is_right
            if not is_right or "--table" in sys.argv:
                numbers = f"{cost[0] / 1e6:7.1f} MB read {beside / 1e6:7.1f} MB beside {cost[2]:6.2f} s" if cost else " " * 39
                print(f"{'' if is_right else 'WRONG: '}{name:30} {len(content):7} {numbers}  {said[:100]}")
    print(f"{count} files, {failures} failures")
    return 1 if failures or count < 100 else 0


sys.exit(main())
