"""A program is built with what pkg-config says of the installed package: by Make, and by Meson where that is installed."""

import os
import re
import shutil
import unittest

import support

PROJECT = support.HERE / "pkg_config"


class PkgConfig(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The package is moved first: nothing in it may depend on the folder that it was installed into.
        cls.prefix = support.WORK / "moved"
        shutil.rmtree(cls.prefix, ignore_errors=True)
        for folder in support.PREFIX.iterdir():
            if folder.name in ("bin", "include") or folder.name.startswith("lib"):
                shutil.copytree(folder, cls.prefix / folder.name, copy_function=os.link)
        [file] = cls.prefix.glob("lib*/**/ddprun.pc")
        cls.environment = support.without_launcher_variables() | {"PKG_CONFIG_PATH": str(file.parent)}

    def ask(self, *question) -> str:
        return support.run("pkg-config", *question, "ddprun", env=self.environment).stdout

    def check(self, program):
        """Alone, and on two ranks of the installed launcher."""
        shown = r"^(?:\[0\] )?ddprun {}: {} of {} .*rank"
        version = self.ask("--modversion").strip()
        alone = support.run(program, env=self.environment).stdout
        self.assertRegex(alone, shown.format(version, 1, 1))
        launched = support.run(self.prefix / "bin/ddprun", "--nproc_per_node=2", program, env=self.environment).stdout
        self.assertRegex(launched, re.compile(shown.format(version, 2, 2), re.MULTILINE))

    def test_the_file_names_no_folder_but_its_own_and_libtorch(self):
        flags = self.ask("--cflags", "--libs").replace("\\ ", " ")  # a folder with a blank
        self.assertIn(f"-I{self.prefix}/", flags.replace(str(self.prefix / "lib/pkgconfig/../.."), str(self.prefix)))
        self.assertNotIn(str(support.PREFIX), flags)
        self.assertEqual(self.ask("--variable=libtorch").strip(), str(support.LIBTORCH.resolve()))
        other = self.ask("--define-variable=libtorch=/other/libtorch", "--cflags", "--libs")
        self.assertIn("/other/libtorch/lib/libtorch_cpu.so", other)
        self.assertNotIn(str(support.LIBTORCH.resolve()), other)
        header = (self.prefix / "include/ddprun/version.h").read_text()
        self.assertIn(f'"{self.ask("--modversion").strip()}"', header)

    def test_make(self):
        build = support.WORK / "make"
        shutil.rmtree(build, ignore_errors=True)
        shutil.copytree(PROJECT, build)
        compiler = f"{os.environ['COMPILER_LAUNCHER']} {os.environ['COMPILER']}".strip()
        support.run("make", "-C", build, f"CXX={compiler}", env=self.environment)
        self.check(build / "train")

    @unittest.skipIf(shutil.which("meson") is None, "meson is not installed")
    def test_meson(self):
        build = support.WORK / "meson"
        shutil.rmtree(build, ignore_errors=True)
        compiler = f"{os.environ['COMPILER_LAUNCHER']} {os.environ['COMPILER']}".strip()
        support.run("meson", "setup", build, PROJECT, env=self.environment | {"CXX": compiler})
        support.run("meson", "compile", "-C", build, env=self.environment)
        self.check(build / "train")


support.main()
