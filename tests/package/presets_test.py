"""The presets that developers use beside release: they are configured, and compile every source by itself."""

import json
import unittest

import support


class Presets(unittest.TestCase):
    def test_those_without_precompiled_headers_are_configured_with_tests_and_benchmarks(self):
        presets = json.loads((support.SOURCE / "CMakePresets.json").read_text())["configurePresets"]
        without = [p["name"] for p in presets if p.get("cacheVariables", {}).get("CMAKE_DISABLE_PRECOMPILE_HEADERS") == "ON"]
        self.assertEqual(without, ["debug", "asan", "tsan"])
        for preset in without[:2]:  # tsan has one flag for another of asan's
            with self.subTest(preset):
                build = support.WORK / preset
                support.configure(
                    support.SOURCE, build, "--preset", preset, "-D", f"DDPRUN_LIBTORCH={support.LIBTORCH}",
                    "-D", "DDPRUN_BUILD_TESTS=ON", "-D", "DDPRUN_BUILD_BENCH=ON",
                )  # fmt: skip
                steps = (build / "build.ninja").read_text()
                self.assertNotIn("cmake_pch", steps)
                self.assertIn("test_comm_core", steps)


support.main()
