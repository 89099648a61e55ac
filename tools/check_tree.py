"""Checks rules that apply to every file of the project: `check_tree.py [project root]`.

  - no file contains a path of a particular machine: the project depends on nothing outside itself. The only exception
    is the data folder that .ci/run looks for beside the checkout;
  - there are no .cu files: LibTorch's kernels suffice, so nobody needs nvcc;
  - copies between devices use include/ddprun/detail/comm/device_copy.h, so that the host never reads a copy to the CPU
    before it is complete;
  - every C++ source is built: a CMake file (or a Makefile) in its folder or in a folder above names it (for a test: the
    name of what it tests);
  - every Python file and script can be parsed, since some are run only at night;
  - the source of a test is named <unit>_test, never test_<unit>, and a program that tests start <name>_program;
  - nothing is committed by mistake: there are no binary files except the data of the examples, and no folders at the
    root that docs/design.md does not list. In a checkout, only files that git tracks are checked, because users may
    have additional folders.
Prints one line per violation; the exit status is 1 if there are any.
"""

import ast
import pathlib
import re
import shutil
import subprocess
import sys

from report import report

NOT_OURS = {".git", "build", "runs", ".cache", "__pycache__", ".ccache", ".vscode", ".idea"}
# Split, so that this file does not match its own patterns.
SHARED = "shared" + "/"
OUTSIDE = re.compile(rf"(?<![\w.$}}])/(?:work|root|home|mnt|Users)/\w|\.\./{SHARED}|(?<![\w/]){SHARED}(?:data|conformance|hooks)")
# Non-blocking copies. In the files below except device_copy.h they go to a device, or the host waits for them.
UNAWAITED = re.compile(r"non_blocking=\*/\s*(?!false)|\bnon_blocking\((?!false)|\bcopy_\([^;]*, *true\)|\.to\([^,;()]*, *true\)")
MAY_BE_UNAWAITED = {"include/ddprun/detail/comm/device_copy.h", "data/loading/device_loader.cpp", "checkpoint/copy_streams.cpp", "amp/scale_floor.cpp",
                    "fsdp/gradient_offload.cpp"}
# A line of the list of folders: four spaces and one or more names with a slash.
FOLDER_LINE = re.compile(r"^    ((?:\w+/ *)+)", re.MULTILINE)
BINARY_DATA = ("examples", "data")
EXCEPTION = (pathlib.PurePath(".ci/run"), f"../{SHARED}data/cifar10")


def files(folder: pathlib.Path):
    for path in sorted(folder.iterdir()):
        if path.name in NOT_OURS:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from files(path)
        elif path.is_file():
            yield path


def tracked_files(root: pathlib.Path) -> list[pathlib.PurePath]:
    if (root / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
        if listed.returncode == 0:  # fails if the checkout belongs to another user
            return [pathlib.PurePath(name) for name in listed.stdout.split("\0") if (root / name).is_file()]
    return [path.relative_to(root) for path in files(root)]


def strays(root: pathlib.Path):
    design = (root / "docs/design.md").read_text()
    listed = {name for line in FOLDER_LINE.findall(design) for name in re.findall(r"(\w+)/", line)}
    names = tracked_files(root)
    for folder in sorted({name.parts[0] for name in names if len(name.parts) > 1 and not name.parts[0].startswith(".")} - listed):
        yield f"{folder}/: docs/design.md lists no such folder"
    for name in names:
        if name.parts[:2] != BINARY_DATA and b"\0" in (root / name).read_bytes()[:8000]:
            yield f"{name}: a binary file"


def is_built(source: pathlib.Path, root: pathlib.Path) -> bool:
    names = {re.escape(name) for name in (source.name, source.stem, source.stem.removesuffix("_test"))}
    word = re.compile(rf"(?<![\w-])(?:{'|'.join(names)})(?![\w-])")
    for folder in source.parents:
        if any(word.search(rules.read_text()) for rules in [*folder.glob("CMakeLists.txt"), *folder.glob("*.cmake"), *folder.glob("Makefile")]):
            return True
        if folder == root:
            return False
    return False


def syntax_error(path: pathlib.Path, text: str):
    if path.suffix != ".py" and not re.match(r"#!.*\bpython", text):
        return None
    try:
        ast.parse(text)
    except SyntaxError as error:
        return error
    return None


def violations(root: pathlib.Path):
    yield from strays(root)
    for path in files(root):
        name = path.relative_to(root)
        if path.suffix == ".cu":
            yield f"{name}: CUDA sources need nvcc; use LibTorch's kernels"
        if name.parts[0] == "tests" and name.name.startswith("test_"):
            yield f"{name}: a test is named <unit>_test, a program that tests start <name>_program"
        if path.suffix == ".cpp" and not is_built(path, root):
            yield f"{name}: no CMake file or Makefile of its folders names it"
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if name == EXCEPTION[0]:
            text = text.replace(EXCEPTION[1], "")
        if error := syntax_error(path, text):
            yield f"{name}:{error.lineno}: not valid Python: {error.msg}"
        is_library = path.suffix in {".h", ".cpp"} and name.parts[0] not in {"tests", "bench"}
        for number, line in enumerate(text.splitlines(), 1):
            if is_library and UNAWAITED.search(line) and name.as_posix() not in MAY_BE_UNAWAITED:
                yield f"{name}:{number}: a copy that nobody waits for; use include/ddprun/detail/comm/device_copy.h"
            if match := OUTSIDE.search(line):
                yield f"{name}:{number}: names a path outside the project ({match[0]}...)"


if __name__ == "__main__":
    sys.exit(report(violations, "no path outside the project, no .cu files, no copy of its own, no strays, every source is built, every script parses"))
