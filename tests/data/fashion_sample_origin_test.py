"""The bundled sample is, byte for byte, what tools/make_fashion_sample.py makes from Debian's dataset-fashion-mnist."""

import pathlib
import shutil
import subprocess
import sys

PACKAGE = "dataset-fashion-mnist"
SKIPPED = 77


def package_folder():
    """Where Debian's package put its files; None when it is not installed."""
    if not shutil.which("dpkg"):
        return None
    files = subprocess.run(["dpkg", "-L", PACKAGE], capture_output=True, text=True).stdout.splitlines()
    return next((pathlib.Path(file).parent for file in files if file.endswith("/train-images-idx3-ubyte.gz")), None)


root = pathlib.Path(sys.argv[1])
source = package_folder()
if source is None:
    print(f"skipped: Debian's package {PACKAGE} is not installed")
    sys.exit(SKIPPED)
sys.exit(subprocess.run([sys.executable, root / "tools/make_fashion_sample.py", "--source", source, "--check"]).returncode)
