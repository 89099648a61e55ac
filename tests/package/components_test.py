"""COMPONENTS of the installed package: those without LibTorch are found without it; and what is said while configuring."""

import os
import re
import shutil
import unittest

import support


class Components(unittest.TestCase):
    def configure(self, components, *arguments, optional="", prefixes=(), check=True):
        """The messages, each on one line. Nothing leads to a LibTorch but `prefixes`."""
        hidden = {"CMAKE_PREFIX_PATH", "Torch_DIR", "Torch_ROOT", "VIRTUAL_ENV"}
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment["DDPRUN_CACHE"] = str(support.WORK / "no-such-cache")
        result = support.configure(
            support.HERE / "components", support.WORK / "build",
            "-D", f"CMAKE_PREFIX_PATH={';'.join(map(str, [support.PREFIX, *prefixes]))}",
            "-D", f"COMPONENTS={components}", "-D", f"OPTIONAL={optional}",
            *arguments, check=check, env=environment,
        )  # fmt: skip
        return " ".join(result.stdout.split())

    def test_monitor_needs_no_libtorch_and_watches_a_loop(self):
        self.configure("monitor", "-D", "CMAKE_BUILD_TYPE=Debug")
        support.run("cmake", "--build", support.WORK / "build")
        program = support.WORK / "build/components"
        self.assertNotIn("torch", support.run("ldd", program).stdout)
        run = support.WORK / "run"
        shutil.rmtree(run, ignore_errors=True)
        self.assertIn("100% 3/3", support.run(program, run, env=support.without_launcher_variables()).stdout)
        self.assertEqual(len(list(run.glob("events.out.tfevents.*"))), 1)

        # The same under a launcher: every rank would take itself for rank 0.
        launcher = support.PREFIX / "bin/ddprun"
        result = support.run(launcher, "--nproc_per_node=2", program, support.WORK / "no-run", check=False)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"error: rank [01] of 2: SummaryWriter: no group and no rank were given")
        self.assertFalse((support.WORK / "no-run").exists())

    def test_so_do_the_others_that_are_built_without_it(self):
        components = "base;comm_core;samplers_core;schedules;checkpoint_core;data_core"
        messages = self.configure(components + ";launcher")
        for component in components.split(";"):
            self.assertIn(f"there is ddprun::{component}", messages)

    def test_a_project_without_any_language_finds_the_launcher(self):
        source = support.WORK / "no-language"
        source.mkdir(parents=True, exist_ok=True)
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.20)\nproject(x NONE)\nfind_package(ddprun REQUIRED COMPONENTS launcher)\n"
            "get_target_property(place ddprun::ddprun LOCATION)\nmessage(STATUS \"it is ${place}\")\n"
        )
        messages = support.configure(source, support.WORK / "no-language-build", "-D", f"CMAKE_PREFIX_PATH={support.PREFIX}").stdout
        self.assertIn(f"it is {support.PREFIX}/bin/ddprun", messages)

    def test_a_project_without_cpp_is_told_that_the_libraries_are_for_it(self):
        source = support.WORK / "no-cpp"
        source.mkdir(parents=True, exist_ok=True)
        (source / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nproject(x NONE)\nfind_package(ddprun REQUIRED)\n")
        messages = support.configure(source, support.WORK / "no-cpp-build", "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}", check=False).stdout
        self.assertRegex(" ".join(messages.split()), r"its libraries are for C\+\+, which is not a language of this project: project\(\.\.\. LANGUAGES CXX\)")
        self.assertEqual(messages.count("CMake Error"), 1, messages)

    def test_a_project_without_cpp_may_ask_for_libraries_that_it_can_do_without(self):
        source = support.WORK / "optional"
        source.mkdir(parents=True, exist_ok=True)
        for language in ("NONE", "C"):
            for components in ("OPTIONAL_COMPONENTS monitor ddp launcher", "COMPONENTS launcher OPTIONAL_COMPONENTS monitor ddp"):
                with self.subTest(language=language, components=components):
                    (source / "CMakeLists.txt").write_text(
                        f"cmake_minimum_required(VERSION 3.20)\nproject(x {language})\nfind_package(ddprun REQUIRED {components})\n"
                        "foreach(name launcher monitor ddp)\n  message(STATUS \"${name}=${ddprun_${name}_FOUND}.\")\nendforeach()\n"
                    )
                    messages = support.configure(source, support.WORK / "optional-build", "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}").stdout
                    self.assertIn("launcher=TRUE.", messages)
                    for name in ("monitor", "ddp"):
                        self.assertRegex(messages, f"{name}=(FALSE)?\\.")
                    self.assertNotIn("optimisation", messages)

    def test_what_needs_libtorch_asks_for_it(self):
        for components in ["ddp", "monitor;samplers", ""]:
            messages = self.configure(components, check=False)
            self.assertIn("LibTorch was not found", messages)
        messages = self.configure("monitor", optional="samplers")
        self.assertIn("there is ddprun::monitor", messages)
        self.assertNotIn("there is ddprun::samplers", messages)

    def test_a_component_that_does_not_exist_is_named_with_those_that_do(self):
        messages = self.configure("monitr", check=False)
        self.assertIn("there is no component 'monitr'. This ddprun has: launcher, base, monitor,", messages)

    def test_the_libtorch_in_use_is_told_with_its_kind(self):
        messages = self.configure("samplers", prefixes=[support.LIBTORCH])
        kind = " with CUDA" if support.flag("LIBTORCH_IS_CUDA") else ", CPU"
        self.assertRegex(messages, rf"-- ddprun: LibTorch {re.escape(os.environ['LIBTORCH_VERSION'])}{kind}")

    def test_a_project_without_a_build_type_is_told_that_it_is_not_optimised(self):
        warning = "ddprun: CMAKE_BUILD_TYPE is not set, so this project is compiled without optimisation."
        self.assertIn(warning, self.configure("monitor"))
        for choice in ["CMAKE_BUILD_TYPE=Debug", "CMAKE_CXX_FLAGS=-O2"]:
            self.assertNotIn("CMAKE_BUILD_TYPE is not set", self.configure("monitor", "-D", choice))


support.main()
