"""Every installed header compiles alone, with nothing but the package's flags."""

import unittest

import support


class Headers(unittest.TestCase):
    def test_each_is_self_contained(self):
        root = support.PREFIX / "include/ddprun"
        headers = {str(header.relative_to(root)) for header in root.rglob("*.h")}
        headers.remove("ddp.h")  # the first include of the consumer, whose build is a test of its own
        headers = sorted(headers)
        self.assertGreater(len(headers), 5)
        build = support.WORK / "build"
        support.configure(
            support.HERE / "headers", build,
            "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}",
            "-D", f"USER_INCLUDES={support.CLI11_INCLUDES}", "-D", f"HEADERS={';'.join(headers)}",
        )  # fmt: skip
        support.run("cmake", "--build", build, "-j", "2", "--", "-k", "0")


support.main()
