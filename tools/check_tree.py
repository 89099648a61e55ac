"""Checks rules that concern every file of the project: `check_tree.py [project root]`.

  - no file names a path of one particular machine: the project depends on nothing outside itself. The one exception is the
    data folder that .ci/run looks for beside the checkout;
  - there are no .cu files: LibTorch's kernels suffice, so nobody needs nvcc;
  - copies between devices go through include/ddprun/detail/comm/device_copy.h, so that the host never reads one towards the CPU before it has ended;
  - every C++ source is built: the CMake files of its folder (or a Makefile), or of one above, name it (a test by what it tests);
  - a test's source is named <unit>_test, never test_<unit>, and the programs that tests start <name>_program;
  - nothing lies about that nobody meant to commit: no binary files but the examples' data, and no folder at the root that
    docs/design.md does not list. Of a checkout only what git tracks counts: users have folders of their own.
Prints one line per violation; the exit status is 1 if there is any.
"""

import pathlib
import re
import shutil
import subprocess
import sys

from report import report

NOT_OURS = {".git", "build", "runs", ".cache", "__pycache__", ".ccache", ".vscode", ".idea"}
# Written so that this file does not match itself.
SHARED = "shared" + "/"
OUTSIDE = re.compile(rf"(?<![\w.$}}])/(?:work|root|home|mnt|Users)/\w|\.\./{SHARED}|(?<![\w/]){SHARED}(?:data|conformance|hooks)")
# Those of the others are towards a device, or are waited for.
UNAWAITED = re.compile(r"non_blocking=\*/\s*(?!false)|\bnon_blocking\((?!false)|\bcopy_\([^;]*, *true\)|\.to\([^,;()]*, *true\)")
MAY_BE_UNAWAITED = {"include/ddprun/detail/comm/device_copy.h", "data/loading/device_loader.cpp", "checkpoint/copy_streams.cpp", "amp/scale_floor.cpp",
                    "fsdp/gradient_offload.cpp"}
# A line of the list of folders: four blanks and one or more names with a slash.
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
        if listed.returncode == 0:  # else this is another user's checkout
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
        is_library = path.suffix in {".h", ".cpp"} and name.parts[0] not in {"tests", "bench"}
        for number, line in enumerate(text.splitlines(), 1):
            if is_library and UNAWAITED.search(line) and name.as_posix() not in MAY_BE_UNAWAITED:
                yield f"{name}:{number}: a copy that nobody waits for; use include/ddprun/detail/comm/device_copy.h"
            if match := OUTSIDE.search(line):
                yield f"{name}:{number}: names a path outside the project ({match[0]}...)"


if __name__ == "__main__":
    sys.exit(report(violations, "no path outside the project, no .cu files, no copy of its own, no strays, every source is built"))
