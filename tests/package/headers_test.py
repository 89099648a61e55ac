"""Every installed header compiles alone, with nothing but the package's flags."""

import functools
import pathlib
import re
import unittest

import support

# LibTorch's headers that take longest to parse, each before those that it includes.
PRECOMPILED = {
    "modules": "torch/nn/module.h",
    "optimizers": "torch/optim/optimizer.h",
    "samplers": "torch/data/samplers/base.h",
    "tensors": "ATen/core/Tensor.h",
}


@functools.cache
def includes(header: pathlib.Path) -> list[str]:
    return re.findall(r"^#include <([^>]+)>", header.read_text(), re.MULTILINE)


def seen_by(header: pathlib.Path, folders: list[pathlib.Path]) -> set[str]:
    """What a header includes, it and those that it includes, as they are written; standard headers are not followed."""
    seen, waiting = set(), [header]
    while waiting:
        for name in includes(waiting.pop()):
            if name not in seen and "/" in name:
                waiting += [folder / name for folder in folders if (folder / name).exists()][:1]
            seen.add(name)
    return seen


class Headers(unittest.TestCase):
    def test_each_is_self_contained(self):
        include = support.PREFIX / "include"
        libtorch = support.LIBTORCH / "include"
        folders = [include, libtorch, libtorch / "torch/csrc/api/include"]
        headers = sorted((include / "ddprun").rglob("*.h"))
        headers.remove(include / "ddprun/ddp.h")  # the first include of the consumer, whose build is a test of its own
        # A precompiled header only stands in for what the header includes by itself.
        sets = {name: [] for name in [*PRECOMPILED, "others"]}
        for header in headers:
            seen = seen_by(header, folders)
            name = next((name for name, first in PRECOMPILED.items() if first in seen), "others")
            sets[name].append(str(header.relative_to(include)))
        for name, members in sets.items():
            self.assertGreater(len(members), 4, name)
        build = support.WORK / "build"
        support.configure(
            support.HERE / "headers", build,
            "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}", "-D", f"USER_INCLUDES={support.CLI11_INCLUDES}",
            "-D", f"SETS={';'.join(sets)}", *(word for name, members in sets.items() for word in ("-D", f"HEADERS_{name}={';'.join(members)}")),
            *(word for name, first in PRECOMPILED.items() for word in ("-D", f"PRECOMPILED_{name}={first}")),
        )  # fmt: skip
        support.run("cmake", "--build", build, "-j", "2", "--", "-k", "0")


support.main()
