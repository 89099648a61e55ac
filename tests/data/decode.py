"""Lets the readers read files, for comparison with Python's. Without Pillow, nibabel and numpy importing it ends the test as skipped."""

import importlib.util
import os
import subprocess
import sys

if not all(importlib.util.find_spec(name) for name in ("PIL", "nibabel", "numpy")):
    print("skipped: this Python has no Pillow, nibabel and numpy")
    sys.exit(77)

import numpy


def decode(paths, *how):
    """{path: array}"""
    output = subprocess.run([os.environ["PROGRAM"], *how, *map(str, paths)], stdout=subprocess.PIPE, check=True, timeout=100).stdout
    found, at = {}, 0
    for path in paths:
        end = output.index(b"\n", at)
        depth, height, width = map(int, output[at:end].split())
        at = end + 1
        dtype, shape = ("<f4", (depth, height, width)) if depth else ("u1", (height, width, 3))
        size = int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize
        found[path] = numpy.frombuffer(output[at : at + size], dtype).reshape(shape)
        at += size
    return found
