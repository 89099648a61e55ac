"""The product as scripts/demo builds it from nothing, many sources as one, compiles without a warning and trains."""

import unittest

import support


class QuickBuild(unittest.TestCase):
    def test_the_product_compiles_as_many_sources_in_one_and_trains(self):
        build = support.WORK / "build"
        support.configure(
            support.SOURCE, build,
            "-D", f"DDPRUN_LIBTORCH={support.LIBTORCH}", "-D", "CMAKE_BUILD_TYPE=Release", "-D", "DDPRUN_UNITY_BUILD=ON",
            "-D", "DDPRUN_BUILD_TESTS=OFF", "-D", "DDPRUN_BUILD_BENCH=OFF", "-D", "DDPRUN_WARNINGS_AS_ERRORS=ON",
        )  # fmt: skip
        support.run("cmake", "--build", build, "--target", "product")
        programs = build / "bin"
        said = support.run(programs / "ddprun", "--nproc_per_node=2", programs / "toy_linear", cwd=support.WORK).stdout
        self.assertIn("rank 1 of 2", said)


support.main()
