"""Every installed header compiles alone, with nothing but the package's flags."""

import pathlib
import re
import unittest

import support

# LibTorch's headers that take longest to parse, the one that has another among its includes first.
PRECOMPILED = {"modules": "torch/nn/module.h", "tensors": "ATen/core/Tensor.h"}


def seen_by(header: pathlib.Path, include: pathlib.Path) -> set[str]:
    """What an installed header includes, it and those of ours that it includes, as they are written."""
    seen, waiting = set(), [header]
    while waiting:
        for name in re.findall(r"^#include <([^>]+)>", waiting.pop().read_text(), re.MULTILINE):
            if name not in seen and name.startswith("ddprun/"):
                waiting.append(include / name)
            seen.add(name)
    return seen


class Headers(unittest.TestCase):
    def test_each_is_self_contained(self):
        include = support.PREFIX / "include"
        headers = sorted((include / "ddprun").rglob("*.h"))
        headers.remove(include / "ddprun/ddp.h")  # the first include of the consumer, whose build is a test of its own
        # A precompiled header only stands in for what the header includes by itself.
        sets = {name: [] for name in [*PRECOMPILED, "others"]}
        for header in headers:
            seen = seen_by(header, include)
            name = next((name for name, first in PRECOMPILED.items() if first in seen), "others")
            sets[name].append(str(header.relative_to(include)))
        for name, members in sets.items():
            self.assertGreater(len(members), 5, name)
        build = support.WORK / "build"
        support.configure(
            support.HERE / "headers", build,
            "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}", "-D", f"USER_INCLUDES={support.CLI11_INCLUDES}",
            *(word for name, members in sets.items() for word in ("-D", f"HEADERS_{name}={';'.join(members)}")),
            *(word for name, first in PRECOMPILED.items() for word in ("-D", f"PRECOMPILED_{name}={first}")),
        )  # fmt: skip
        support.run("cmake", "--build", build, "-j", "2", "--", "-k", "0")


support.main()
