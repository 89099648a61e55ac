"""The suites that use the real PyTorch once more, with the newest release of it (scripts/get_newest_torch puts it into the
cache folder). Exit status 77: it is not there."""

import os
import subprocess
import sys

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.environ.get("DDPRUN_CACHE") or os.path.expanduser("~/.cache/ddprun")
PYTHON = os.path.join(CACHE, "torch-newest", "bin", "python")


def main():
    version = None
    if os.path.exists(PYTHON):
        asked = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE, text=True)
        version = asked.stdout.strip() if asked.returncode == 0 else None
    if version is None:
        print(f"skipped: no torch in {os.path.dirname(PYTHON)}; scripts/get_newest_torch puts it there")
        return 77
    failed = 0
    for suite in ("nodes/store_torch", "job/torch_job"):
        result = subprocess.run([PYTHON, os.path.join(FOLDER, suite + "_test.py")], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PYTHON_EXEC": PYTHON})
        print(f"torch {version}, {suite}: {'ok' if result.returncode == 0 else 'FAILED'}", flush=True)
        if result.returncode != 0:
            failed = 1
            print(result.stdout.decode(errors="replace"), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
