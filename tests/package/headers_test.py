"""Every installed header compiles alone, with nothing but the package's flags."""

import concurrent.futures
import functools
import json
import pathlib
import re
import shlex
import subprocess
import unittest

import support

# LibTorch's headers that take longest to parse, each before those that it includes.
PRECOMPILED = {
    "all_operators": "torch/types.h",
    "optimizers": "torch/optim/optimizer.h",
    "tensors": "ATen/core/Tensor.h",
}


# What each source ends with: the first error, and so the last, of one whose headers are fine.
END = "all headers were taken"


@functools.cache
def includes(header: pathlib.Path) -> list[str]:
    return re.findall(r"^#include <([^>]+)>", header.read_text(), re.MULTILINE)


@functools.cache
def places(name: str, folders: tuple[pathlib.Path, ...]) -> list[pathlib.Path]:
    return [folder / name for folder in folders if (folder / name).exists()][:1]


def seen_by(header: pathlib.Path, folders: tuple[pathlib.Path, ...]) -> set[str]:
    """What a header includes, it and those that it includes, as they are written; standard headers are not followed."""
    seen, waiting = set(), [header]
    while waiting:
        for name in includes(waiting.pop()):
            if name not in seen and "/" in name:
                waiting += places(name, folders)
            seen.add(name)
    return seen


def chains(members: dict[str, set[str]]) -> list[list[str]]:
    """Headers, with what each has seen, in as few sources as can be: what stands before a header there is among what it includes by
    itself, so that it is none the better for it. (The least number of paths that cover the order: a maximum matching.)"""
    after = {}

    def match(header: str, tried: set[str]) -> bool:
        # Sorted: the same sources each time, which the compiler cache finds again.
        for smaller in sorted((members.keys() & members[header]) - tried):
            tried.add(smaller)
            if smaller not in after or match(after[smaller], tried):
                after[smaller] = header
                return True
        return False

    for header in members:
        match(header, set())
    before = {header: smaller for smaller, header in after.items()}
    result = []
    for last in members.keys() - after.keys():
        chain = [last]
        while chain[0] in before:
            chain.insert(0, before[chain[0]])
        result.append(chain)
    return sorted(result)


def fault(entry: dict[str, str]) -> str:
    """What the compiler has against a source of compile_commands.json before its end, or nothing."""
    command = shlex.split(entry["command"])
    result = subprocess.run(command, cwd=entry["directory"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    first = re.search(r"^.*(?:error|warning): .*$", result.stderr, re.MULTILINE)
    return "" if first and first[0].endswith(f"error: #error {END}") else result.stderr or f"{command} found no error"


class Headers(unittest.TestCase):
    def test_a_chain_holds_what_a_header_includes_before_it(self):
        self.assertEqual(chains({"a": set(), "b": {"a"}, "c": {"a", "b"}, "d": {"a"}}), [["a", "b", "c"], ["d"]])

    def test_each_is_self_contained(self):
        include = support.PREFIX / "include"
        libtorch = support.LIBTORCH / "include"
        folders = (include, libtorch, libtorch / "torch/csrc/api/include")
        headers = sorted((include / "ddprun").rglob("*.h"))
        headers.remove(include / "ddprun/ddp.h")  # the first include of the consumer, whose build is a test of its own
        # A precompiled header only stands in for what the header includes by itself.
        sets = {name: {} for name in [*PRECOMPILED, "others"]}
        for header in headers:
            seen = seen_by(header, folders)
            name = next((name for name, first in PRECOMPILED.items() if first in seen), "others")
            sets[name][str(header.relative_to(include))] = seen
        for name, members in sets.items():
            self.assertGreater(len(members), 4, name)
        sources = {name: [",".join(chain) for chain in chains(members)] for name, members in sets.items()}
        self.assertEqual(sorted(",".join(",".join(each) for each in sources.values()).split(",")),
                         [str(header.relative_to(include)) for header in headers])  # fmt: skip
        build = support.WORK / "build"
        support.configure(
            support.HERE / "headers", build,
            "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}", "-D", f"USER_INCLUDES={support.CLI11_INCLUDES}",
            "-D", f"SETS={';'.join(sets)}", *(word for name, members in sources.items() for word in ("-D", f"HEADERS_{name}={';'.join(members)}")),
            *(word for name, first in PRECOMPILED.items() for word in ("-D", f"PRECOMPILED_{name}={first}")), "-D", f"END={END}",
        )  # fmt: skip
        support.run("cmake", "--build", build, "-j", "2")
        entries = [entry for entry in json.loads((build / "compile_commands.json").read_text()) if "cmake_pch" not in entry["file"]]
        self.assertEqual(len(entries), sum(map(len, sources.values())) + 1)
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            faults = list(filter(None, threads.map(fault, entries)))
        self.assertFalse(faults, "\n\n".join(faults))


support.main()
