"""A project that finds the installed package, and the README's program."""

import unittest

import support
from consumer import check_consumer, printed


class FindPackage(unittest.TestCase):
    def test_builds_and_runs_alone_and_under_the_installed_launcher(self):
        program = support.WORK / "readme.cpp"
        program.write_text(support.readme_program())
        build = support.WORK / "build"
        support.configure(
            support.HERE / "consumer", build,
            "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}", "-D", f"README_PROGRAM={program}",
        )  # fmt: skip
        support.run("cmake", "--build", build)
        launcher = support.PREFIX / "bin/ddprun"
        check_consumer(self, build, launcher)

        with self.subTest("the launcher is a target"):
            result = support.run("cmake", "--build", build, "--target", "launch")
            self.assertEqual([line[:2] for line in printed(result.stdout)], [(0, 2), (1, 2)], result.stdout)

        with self.subTest("the README's program prints what the README shows"):
            result = support.run(launcher, "--nproc_per_node=2", build / "readme_program")
            # Each rank prints one line; which comes first is not certain.
            readme = (support.SOURCE / "README.md").read_text()
            shown = readme.split("$ ddprun --nproc_per_node=2 ./train\n")[1].split("```")[0]
            self.assertEqual(sorted(result.stdout.splitlines()), sorted(shown.splitlines()))


support.main()
