"""What the tests of docs/port.md share: its changes, applied to the plain program in examples/port."""

import re
import shutil
import unittest

import support

PAGE = support.SOURCE / "docs/port.md"


def losses(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"epoch \d+: loss ([\d.e-]+)", output)]


class PortTest(unittest.TestCase):
    def setUp(self):
        self.folder = support.WORK / "ported"
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(support.SOURCE / "examples/port", self.folder)

    def apply(self, only=""):
        changes = re.findall(r"^```diff\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        self.assertEqual([re.search(r"\+\+\+ b/(\S+)", change)[1] for change in changes], ["train.cpp", "CMakeLists.txt"])
        if not shutil.which("patch") and not shutil.which("git"):
            self.skipTest("neither patch nor git is here")
        tool = ["patch", "-p1", "--fuzz=0", "-i"] if shutil.which("patch") else ["git", "apply"]
        for change in changes:
            if only in change:
                file = self.folder / "change.diff"
                file.write_text(change)
                support.run(*tool, file, cwd=self.folder)

    def built(self):
        # Not optimised, which takes half of the compiler's time.
        not_optimised = ("-D", "CMAKE_BUILD_TYPE=Release", "-D", "CMAKE_CXX_FLAGS_RELEASE=-O0")
        build = self.folder / "build"
        support.configure(self.folder, build, *not_optimised, "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}")
        support.run("cmake", "--build", build)
        return build / "train"

    def check_it_learns_alone(self, train):
        result = support.run(train, cwd=self.folder, env=support.without_launcher_variables())
        alone = losses(result.stdout)
        self.assertEqual(len(alone), 20)
        self.assertLess(alone[-1], 0.1)
