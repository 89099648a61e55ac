"""A compiler without a shared C++ runtime: what it makes has LibTorch's nevertheless, and not two."""

import os
import unittest

import support

COMPILER = """#!/bin/sh
[ "$1" = -print-file-name=libstdc++.so ] && { echo libstdc++.so; exit; }
exec "$REAL_COMPILER" "$@" -static-libstdc++
"""


class StaticRuntime(unittest.TestCase):
    def test_a_program_ends_as_it_should(self):
        if not support.flag("COMPILER_IS_GNU"):
            self.skipTest("GCC's affair")
        compiler = support.WORK / "g++"
        compiler.write_text(COMPILER)
        compiler.chmod(0o755)
        environment = {**os.environ, "REAL_COMPILER": os.environ["COMPILER"]}
        build = support.WORK / "build"
        support.configure(
            support.HERE / "static_runtime", build, "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}",
            "-D", f"CMAKE_CXX_COMPILER={compiler}", "-D", "CMAKE_CXX_COMPILER_LAUNCHER=", env=environment,
        )  # fmt: skip
        support.run("cmake", "--build", build, env=environment)
        self.assertIn("ATen/Parallel", support.run(build / "program").stdout)


support.main()
