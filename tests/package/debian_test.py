"""The Debian package as a build of the launcher alone makes it, without LibTorch."""

import os
import shutil
import unittest

import debian
import support

BUILD = support.WORK / "build"


class Debian(debian.DebianPackage, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("dpkg-shlibdeps"):
            print("skipped: dpkg-dev, which finds out what the package depends on, is not installed")
            raise SystemExit(77)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        support.configure(support.SOURCE, BUILD, "-D", "CMAKE_BUILD_TYPE=Release", "-D", "DDPRUN_PACKAGE=ON", "-D", "DDPRUN_BUILD_LIBRARY=OFF",
                          "-D", "DDPRUN_BUILD_TESTS=OFF", "-D", "DDPRUN_BUILD_BENCH=OFF", env=environment)
        support.run("cmake", "--build", BUILD, env=environment)
        support.run("cpack", "-G", "DEB", "-B", support.WORK / "packed", cwd=BUILD, env=environment)
        cls.package, = (support.WORK / "packed").glob("*.deb")

    def setUp(self):
        self.root = self.unpacked(self.package, support.WORK / "root")

    def test_it_is_the_launcher_and_ddprun_timeline_which_need_the_c_library_alone(self):
        self.check_content(self.package, self.root, support.without_launcher_variables())

    def test_it_has_the_notice_of_whatever_is_in_its_programs(self):
        self.check_notices(self.root, BUILD)


support.main()
