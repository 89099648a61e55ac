"""Checks of a built tests/package/consumer."""

import pathlib
import re
import unittest

import support


def printed(text: str) -> list[tuple[int, int, str]]:
    """(rank, size, weights' sum) of every line that the consumer printed, by rank."""
    return sorted((int(r), int(n), w) for r, n, w in re.findall(r"rank (\d+) of (\d+): (\S+)", text))


def check_consumer(test: unittest.TestCase, build, launcher):
    program = build / "consumer"
    with test.subTest("alone"):
        result = support.run(program, env=support.without_launcher_variables())
        test.assertEqual([line[:2] for line in printed(result.stdout)], [(0, 1)], result.stdout)

    with test.subTest("under the launcher"):
        result = support.run(launcher, "--nproc_per_node=2", program)
        lines = printed(result.stdout)
        test.assertEqual([line[:2] for line in lines], [(0, 2), (1, 2)], result.stdout)
        test.assertEqual(lines[0][2], lines[1][2], "the ranks' weights differ")
        test.assertAlmostEqual(float(lines[0][2]), 4, delta=0.5, msg="the model has not learnt to add")

    with test.subTest("a CPU program does not load CUDA's half of LibTorch"):
        test.assertNotIn("torch_cuda", support.run("readelf", "-d", program).stdout)

    if support.flag("LIBTORCH_HAS_CUDA"):
        with test.subTest("the CUDA part is on the program's run path, and complete"):
            runpath = re.search(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", support.run("readelf", "-d", program).stdout)
            folders = [pathlib.Path(folder) for folder in runpath[1].split(":")]
            plugins = [folder / "libddprun_comm_cuda.so" for folder in folders]
            plugin = next((file for file in plugins if file.exists()), None)
            test.assertIsNotNone(plugin, runpath[1])
            test.assertNotIn("not found", support.run("ldd", plugin).stdout)
