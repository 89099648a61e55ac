"""A project that has ddprun's sources as a subdirectory: it compiles them as ddprun's own build has, and what it makes runs."""

import json
import re
import shlex
import unittest

import support


def cached(name: str) -> str:
    """A setting of the project's own build."""
    found = re.search(rf"^{name}:\w+=(.*)$", (support.path("PROJECT_BINARY") / "CMakeCache.txt").read_text(), re.MULTILINE)
    return found[1] if found else ""


def commands(database, build, prefix=""):
    """{object file: words of its compiler's command}, as if the build folder were "BUILD", without what is for ddprun's own build
    alone (warnings are errors) and what is for users alone (no warnings)."""
    found = {}
    for entry in json.loads(database.read_text()):
        words = [word.replace(str(build), "BUILD") for word in shlex.split(entry["command"])]
        at = words.index("-o") + 1
        words[at] = words[at].removeprefix(prefix)
        found[words[at]] = [word for word in words if word not in ("-Werror", "-w")]
    return found


class AddSubdirectory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.build = support.WORK / "build"
        same = ("CMAKE_BUILD_TYPE", "CMAKE_DISABLE_PRECOMPILE_HEADERS", "DDPRUN_CUDA", "DDPRUN_PACKAGE", "DDPRUN_UNITY_BUILD")
        support.configure(
            support.HERE / "consumer", cls.build,
            "-D", f"DDPRUN_SOURCE={support.SOURCE}", "-D", f"CMAKE_PREFIX_PATH={support.LIBTORCH}", "-D", "CMAKE_EXPORT_COMPILE_COMMANDS=ON",
            *(f"-D{name}={cached(name)}" for name in same), "-D", "CMAKE_CXX_FLAGS_INIT=",
        )  # fmt: skip

    def test_every_source_is_compiled_as_in_ddpruns_own_build(self):
        own = commands(support.path("PROJECT_BINARY") / "compile_commands.json", support.path("PROJECT_BINARY"))
        theirs = commands(self.build / "compile_commands.json", self.build / "ddprun", "ddprun/")
        ours = {name: words for name, words in theirs.items() if not re.match(r"CMakeFiles/(consumer|part)\.dir", name)}
        self.assertGreater(len(ours), 50)  # with DDPRUN_UNITY_BUILD sixteen are one
        self.assertEqual({name: words for name, words in ours.items() if words != own.get(name)}, {})

    def test_a_whole_trainer_links_every_library_and_libtorch(self):
        link = support.run("ninja", "-C", self.build, "-t", "commands", "-s", "consumer").stdout
        for library in ("comm", "data_parallel", "samplers", "data_core", "checkpoint", "optim", "amp", "syncbn", "horovod", "metrics", "monitor", "nn"):
            self.assertRegex(link, rf"libddprun_{library}\.a\b")
        self.assertIn(str(support.LIBTORCH / "lib/libtorch_cpu.so"), link)
        self.assertNotIn("torch_cuda", link)

    def test_a_project_with_stricter_warnings_another_standard_and_unity_builds_takes_it_as_it_is(self):
        build = support.WORK / "strict"
        support.configure(
            support.HERE / "consumer", build, "-D", f"DDPRUN_SOURCE={support.SOURCE}", "-D", f"CMAKE_PREFIX_PATH={support.LIBTORCH}",
            "-D", "CMAKE_BUILD_TYPE=Release", "-D", "CMAKE_CXX_FLAGS_RELEASE=-O0", "-D", "CMAKE_CXX_STANDARD=23", "-D", "CMAKE_UNITY_BUILD=ON", "-D", "BUILD_SHARED_LIBS=ON",
            "-D", "CMAKE_CXX_FLAGS=-Wall -Wextra -Wconversion -Wsign-conversion -Wuseless-cast -Werror",
        )  # fmt: skip
        # What is soon compiled, and what it makes runs.
        self.assertNotIn("warning", support.run("cmake", "--build", build, "--target", "part").stdout)
        printed = support.run(build / "part", env=support.without_launcher_variables()).stdout
        self.assertIn("the sum of all indices is 45", printed)


support.main()
