"""docs/port.md: its changes, applied to the plain program in examples/port, give one that trains alone and on two ranks."""

import re
import shutil
import unittest

import support

PAGE = support.SOURCE / "docs/port.md"


def losses(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"epoch \d+: loss ([\d.e-]+)", output)]


def built(folder):
    # Not optimised, which takes half of the compiler's time.
    not_optimised = ("-D", "CMAKE_BUILD_TYPE=Release", "-D", "CMAKE_CXX_FLAGS_RELEASE=-O0")
    support.configure(folder, folder / "build", *not_optimised, "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}")
    support.run("cmake", "--build", folder / "build")
    return folder / "build/train"


class Port(unittest.TestCase):
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

    def test_the_ported_program_learns_what_the_plain_one_learns(self):
        # The plain one's own find_package(Torch) asks for a CUDA toolkit where LibTorch has CUDA; its source is what counts.
        self.apply(only="CMakeLists.txt")
        plain = losses(support.run(built(self.folder), cwd=self.folder, env=support.without_launcher_variables()).stdout)
        self.assertEqual(len(plain), 20)
        self.assertLess(plain[-1], 0.1)

        self.setUp()
        self.apply()
        train = built(self.folder)
        alone = losses(support.run(train, cwd=self.folder, env=support.without_launcher_variables()).stdout)
        self.assertEqual(len(alone), 20)
        self.assertLess(alone[-1], 0.1)

        (self.folder / "net.pt").unlink()
        result = support.run(support.PREFIX / "bin/ddprun", "-n", 2, train, cwd=self.folder)
        together = losses(result.stdout)
        self.assertEqual(len(together), 20, "rank 0 prints, the other does not")
        self.assertLess(together[-1], 0.1)
        self.assertTrue((self.folder / "net.pt").exists())

        shown = re.search(r"^\$ ddprun -n 2 build/train\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1].splitlines()
        printed = result.stdout.splitlines()
        self.assertEqual(shown[3], "...")
        for line, expected in zip(shown[:3] + shown[4:], printed[:3] + printed[-2:], strict=True):
            self.assertEqual(line.split("loss")[0], expected.split("loss")[0])
            self.assertAlmostEqual(losses(line)[0], losses(expected)[0], delta=0.02)


support.main()
