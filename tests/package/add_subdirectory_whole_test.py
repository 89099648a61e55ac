"""A project that has ddprun's sources as a subdirectory compiles all of them and trains."""

import unittest

import support
from consumer import check_consumer


class AddSubdirectoryWhole(unittest.TestCase):
    def test_builds_and_runs_alone_and_under_the_launcher(self):
        build = support.WORK / "build"
        support.configure(
            support.HERE / "consumer", build,
            "-D", f"DDPRUN_SOURCE={support.SOURCE}", "-D", f"CMAKE_PREFIX_PATH={support.LIBTORCH}",
            "-D", "CMAKE_BUILD_TYPE=Release",
        )  # fmt: skip
        # Not the launcher once more: it knows nothing of the project that it is in.
        support.run("cmake", "--build", build, "--target", "consumer")
        check_consumer(self, build, support.path("PROGRAMS") / "ddprun")


support.main()
