"""What cannot work is refused while configuring, with a sentence that says what to do."""

import os
import re
import shlex
import shutil
import unittest

import support


def refusal(test: unittest.TestCase, source, name, *arguments, **options) -> str:
    """The message of a configuration that must fail, on one line: CMake breaks lines where it likes."""
    result = support.configure(source, support.WORK / name, *arguments, check=False, **options)
    test.assertNotEqual(result.returncode, 0, result.stdout)
    return re.sub(r"\s+", " ", result.stdout)


def fake_libtorch(name: str, version: str, cuda: bool):
    """As much of a LibTorch as the configuration looks at."""
    root = support.WORK / name
    shutil.rmtree(root, ignore_errors=True)
    header = root / "include/torch/headeronly/version.h"
    torch_h = root / "include/torch/csrc/api/include/torch/torch.h"
    for file in [header, torch_h, root / "lib/libtorch_cpu.so"] + [root / "lib/libtorch_cuda.so"] * cuda:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    names = ["MAJOR", "MINOR", "PATCH"]
    header.write_text("".join(f"#define TORCH_VERSION_{n} {v}\n" for n, v in zip(names, version.split("."))))
    return root


PROJECT_ONLY = [
    word for part in ["EXAMPLES", "TESTS", "BENCH"] for word in ["-D", f"DDPRUN_BUILD_{part}=OFF"]
]  # fmt: skip


class Project(unittest.TestCase):
    @unittest.skipUnless(support.flag("LIBTORCH_HAS_CUDA"), "this LibTorch has no CUDA")
    def test_another_nccl_header_than_libtorch_was_built_with(self):
        real = next(support.LIBTORCH.parent.glob("nvidia/nccl/include/nccl.h"), None)
        if real is None:
            self.skipTest("this LibTorch has no NCCL headers beside it")
        text, count = re.subn(r"(define NCCL_PATCH) \d+", r"\1 99", real.read_text())
        self.assertEqual(count, 1)
        doctored = support.WORK / "nccl/include/nccl.h"
        doctored.parent.mkdir(parents=True, exist_ok=True)
        doctored.write_text(text)
        message = refusal(
            self, support.SOURCE, "nccl-build", *PROJECT_ONLY,
            "-D", f"DDPRUN_LIBTORCH={support.LIBTORCH}", "-D", f"NCCL_ROOT={support.WORK / 'nccl'}",
        )  # fmt: skip
        self.assertRegex(message, r"nccl\.h is NCCL \d+\.\d+\.99, but this LibTorch was built with \d+\.\d+\.\d+")
        self.assertIn("Set NCCL_ROOT to NCCL", message)

    def test_the_nccl_inside_an_unzipped_libtorch_is_known_by_its_banner(self):
        root = fake_libtorch("torch-unzipped", "2.15.0", cuda=True)
        texts = ["ProcessGroupNCCL::shrink requires NCCL version 2.27.0 or later. Found version: ", "NCCL version %d.%d", "NCCL version 2.30.7+cuda13.3"]
        (root / "lib/libtorch_cuda.so").write_bytes(b"\x7fELF" + b"".join(b"\0" + text.encode() + b"\0\n" for text in texts))
        header = support.WORK / "nccl-2.28.9/include/nccl.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text("#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n")
        message = refusal(self, support.SOURCE, "unzipped-build", *PROJECT_ONLY,
                          "-D", f"DDPRUN_LIBTORCH={root}", "-D", f"NCCL_ROOT={header.parents[1]}")  # fmt: skip
        self.assertIn("nccl.h is NCCL 2.28.9, but this LibTorch was built with 2.30.7", message)

    def test_no_libtorch_names_the_choices(self):
        names = {"CMAKE_PREFIX_PATH", "Torch_DIR", "Torch_ROOT", "VIRTUAL_ENV"}
        environment = {name: value for name, value in os.environ.items() if name not in names}
        environment["DDPRUN_CACHE"] = str(support.WORK / "no-such-cache")
        message = refusal(self, support.SOURCE, "none-build", *PROJECT_ONLY, env=environment)
        self.assertIn("LibTorch was not found", message)
        for choice in ["scripts/setup", 'CMAKE_PREFIX_PATH="/path/to/libtorch"', "Torch_DIR=", "DDPRUN_BUILD_LIBRARY=OFF"]:
            self.assertIn(choice, message)

    def test_another_version_of_libtorch(self):
        root = fake_libtorch("torch-2.10", "2.10.1", cuda=False)
        message = refusal(self, support.SOURCE, "version-build", *PROJECT_ONLY, "-D", f"CMAKE_PREFIX_PATH={root}")
        self.assertIn("LibTorch 2.10.1", message)
        self.assertIn("is built for 2.11 to 2.15", message)
        self.assertNotIn("DDPRUN_TRY_NEWER_LIBTORCH", message)

    def test_a_place_that_is_named_and_holds_none(self):
        for name in ("Torch_DIR", "Torch_ROOT"):
            with self.subTest(name):
                message = refusal(self, support.SOURCE, "named-build", *PROJECT_ONLY, "-D", f"{name}=/no/such")
                self.assertIn(f"{name}=/no/such leads to no LibTorch", message)

    def test_scripts_setup_refuses_what_contradicts_itself_or_leads_nowhere(self):
        root = fake_libtorch("torch-2.13", "2.13.0", cuda=False)
        for variables, expected in (
            ({"CMAKE_PREFIX_PATH": str(root), "DDPRUN_TORCH": "2.12.1"},
             f"DDPRUN_TORCH asks for 2.12.1, but CMAKE_PREFIX_PATH names a LibTorch 2.13.0 at {root}"),
            ({"Torch_ROOT": "/no/such"}, "Torch_ROOT=/no/such leads to no LibTorch"),
            ({"Torch_DIR": "/no/such"}, "Torch_DIR=/no/such leads to no LibTorch"),
            ({"DDPRUN_TORCH": "2.15.0;ls"}, "DDPRUN_TORCH is '2.15.0;ls', which is not a version such as 2.15.0"),
            ({"DDPRUN_WARNINGS_AS_ERRORS": "maybe"}, "DDPRUN_WARNINGS_AS_ERRORS is 'maybe': expected ON or OFF"),
            ({"DDPRUN_CACHE": "/proc/no/such"}, "DDPRUN_CACHE=/another/folder scripts/setup"),
            ({"DDPRUN_TORCH": "2.16.0"}, "DDPRUN_TRY_NEWER_LIBTORCH=ON CMAKE_PREFIX_PATH=/path/to/libtorch scripts/setup"),
        ):  # fmt: skip
            with self.subTest(variables):
                names = {"CMAKE_PREFIX_PATH", "Torch_DIR", "Torch_ROOT", "VIRTUAL_ENV", "DDPRUN_TORCH"}
                kept = {name: value for name, value in os.environ.items() if name not in names}
                result = support.run(support.SOURCE / "scripts/setup", env={**kept, "DDPRUN_CACHE": str(support.WORK / "setup"), **variables}, check=False)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(expected, result.stdout)
        result = support.run(support.SOURCE / "scripts/setup", "--all", "--parity", check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("one argument is expected, but there are 2: --all --parity", result.stdout)

    def test_switches_that_say_nothing(self):
        for arguments, expected in (
            (["-D", "DDPRUN_CUDA=maybe"], "DDPRUN_CUDA is 'MAYBE': expected AUTO (when LibTorch has CUDA), ON or OFF"),
            (["-D", "DDPRUN_BUILD_LIBRARY=OFF", "-D", "DDPRUN_BUILD_LAUNCHER=OFF"], "there is nothing to build"),
        ):
            with self.subTest(arguments):
                self.assertIn(expected, refusal(self, support.SOURCE, "switches-build", *PROJECT_ONLY, *arguments))
        build = support.WORK / "without-cuda"
        for word in ["0", "off"] if support.flag("LIBTORCH_IS_CUDA") else []:
            with self.subTest(word):
                result = support.configure(support.SOURCE, build, *PROJECT_ONLY, "-D", f"DDPRUN_LIBTORCH={support.LIBTORCH}", "-D", f"DDPRUN_CUDA={word}")
                self.assertIn("with CUDA, which ddprun is built without", result.stdout)

    def test_an_environment_whose_version_does_not_fit_is_passed_over_aloud(self):
        root = fake_libtorch("venv/lib/python3.11/site-packages/torch", "2.16.0", cuda=False)
        fake_libtorch("cache/venv-2.15.0/lib/python3.11/site-packages/torch", "2.15.0", cuda=False)
        environment = {**os.environ, "VIRTUAL_ENV": str(support.WORK / "venv"), "DDPRUN_CACHE": str(support.WORK / "cache")}
        for name in ("CMAKE_PREFIX_PATH", "Torch_DIR", "Torch_ROOT"):
            environment.pop(name, None)
        result = support.configure(support.SOURCE, support.WORK / "passed-build", *PROJECT_ONLY, check=False, env=environment)
        said = " ".join(result.stdout.split())
        self.assertIn(f"LibTorch 2.16.0 at {root} was passed over", said)
        self.assertIn(f"LibTorch 2.15.0, CPU: {support.WORK / 'cache'}", said)

    def test_a_version_that_is_newer_than_all_known_ones(self):
        root = fake_libtorch("torch-2.16", "2.16.0", cuda=False)
        message = refusal(self, support.SOURCE, "version-build", *PROJECT_ONLY, "-D", f"CMAKE_PREFIX_PATH={root}")
        self.assertIn("LibTorch 2.16.0", message)
        self.assertIn("-DDDPRUN_TRY_NEWER_LIBTORCH=ON", message)


class Consumer(unittest.TestCase):
    def refusal(self, root, *arguments) -> str:
        return refusal(
            self, support.HERE / "consumer", "consumer-build", "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{root}", *arguments
        )

    def test_another_version_of_libtorch(self):
        other = "2.13.0" if os.environ["LIBTORCH_VERSION"].startswith("2.12.") else "2.12.0"
        root = fake_libtorch("torch-other", other, cuda=support.flag("LIBTORCH_IS_CUDA"))
        message = self.refusal(root)
        self.assertRegex(message, rf"was built with LibTorch 2\.\d+ with(out)? CUDA, but .* is {re.escape(other)}")
        self.assertIn("Point CMAKE_PREFIX_PATH at", message)
        place, prefix = (str(path).replace("'", "'\\''") for path in (root, support.PREFIX))  # as a shell takes them
        self.assertIn(f"CMAKE_PREFIX_PATH='{place}' scripts/setup cmake --install build/release --prefix '{prefix}'", message)

    def test_whoever_follows_the_advice_goes_on_in_the_same_build_folder(self):
        root = fake_libtorch("torch-other", os.environ["LIBTORCH_VERSION"], cuda=not support.flag("LIBTORCH_IS_CUDA"))
        build = support.WORK / "corrected"
        message = refusal(self, support.HERE / "components", build, "-D", "COMPONENTS=samplers", "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{root}")
        self.assertIn("Point CMAKE_PREFIX_PATH at", message)
        corrected = support.run("cmake", "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}", build).stdout
        self.assertIn("there is ddprun::samplers", corrected)
        # What was named once stays where nothing else is named, and where it is given itself.
        self.assertIn(str(support.LIBTORCH), support.run("cmake", "-D", f"CMAKE_PREFIX_PATH={support.PREFIX}", build).stdout)
        given = f"DDPRUN_LIBTORCH={support.LIBTORCH}"
        support.configure(support.HERE / "components", build, "-D", "COMPONENTS=samplers", "-D", given, "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{root}")

    def test_of_several_installed_ones_the_error_names_all(self):
        several = support.WORK / "several"
        shutil.rmtree(several, ignore_errors=True)
        shutil.copytree(support.PREFIX, several)
        flavour = next(several.glob("lib*/cmake/ddprun/torch-*"))
        for version in ["2.9", "2.10"]:
            other = shutil.copytree(flavour, flavour.with_name(f"torch-{version}-cpu"))
            (other / "ddprunFlavour.cmake").write_text(
                f'set(_ddprun_flavour_kind "{version} without CUDA")\nset(_ddprun_flavour_has_cuda FALSE)\n'
            )
        arguments = ["-D", f"CMAKE_PREFIX_PATH={several};{fake_libtorch('torch-other', '2.16.0', cuda=False)}",
                     "-D", "DDPRUN_TRY_NEWER_LIBTORCH=ON"]  # fmt: skip
        message = refusal(self, support.HERE / "consumer", "consumer-build", *arguments)
        self.assertRegex(message, r"was built with LibTorch 2\.9 without CUDA, 2\.10 without CUDA, 2\.1\d with")
        self.assertIn("in ddprun's sources: DDPRUN_TRY_NEWER_LIBTORCH=ON CMAKE_PREFIX_PATH=", message)

        with self.subTest("and the one that fits is taken"):
            self.assertRegex(self.found_in(several, support.LIBTORCH), rf"ddprun::samplers at {several}/lib\w*/ddprun/{flavour.name}/")

    def test_without_a_libtorch_the_advice_keeps_the_package_in_sight(self):
        names = {"CMAKE_PREFIX_PATH", "Torch_DIR", "Torch_ROOT", "VIRTUAL_ENV"}
        environment = {name: value for name, value in os.environ.items() if name not in names}
        environment["DDPRUN_CACHE"] = str(support.WORK / "no-such-cache")
        message = refusal(self, support.HERE / "consumer", "consumer-build", "-D", f"CMAKE_PREFIX_PATH={support.PREFIX}", env=environment)
        self.assertIn(f'-DCMAKE_PREFIX_PATH="{support.PREFIX};/path/to/libtorch"', message)

    def test_without_any_libraries_for_libtorch_that_is_said_and_the_advice_is_a_shell_s(self):
        bare = support.WORK / "bare"
        shutil.rmtree(bare, ignore_errors=True)
        shutil.copytree(support.PREFIX, bare)
        for flavour in bare.glob("lib*/cmake/ddprun/torch-*"):
            shutil.rmtree(flavour)
        root = fake_libtorch("it's torch", os.environ["LIBTORCH_VERSION"], cuda=False)
        message = refusal(self, support.HERE / "consumer", "consumer-build", "-D", f"CMAKE_PREFIX_PATH={bare};{root}")
        self.assertIn(f"no libraries of this ddprun for LibTorch are at {bare}, but {root} is", message)
        # A line of its own each, which CMake breaks nowhere.
        unbroken = support.run("cmake", "-D", f"CMAKE_PREFIX_PATH={bare};{root}", support.WORK / "consumer-build", check=False).stdout
        commands = [shlex.split(line) for line in unbroken.splitlines() if line.startswith("    ") and ("scripts/setup" in line or "--install" in line)]
        self.assertEqual(commands, [[f"CMAKE_PREFIX_PATH={root}", "scripts/setup"], ["cmake", "--install", "build/release", "--prefix", str(bare)]])

    def test_libraries_of_another_ddprun_in_the_same_place_are_not_taken(self):
        older = support.WORK / "older"
        shutil.rmtree(older, ignore_errors=True)
        shutil.copytree(support.PREFIX, older)
        flavour = next(older.glob("lib*/cmake/ddprun/torch-*"))
        arguments = ["-D", f"CMAKE_PREFIX_PATH={older};{support.LIBTORCH}"]
        for headers in ["set(_ddprun_headers 0123)\n", None]:
            with self.subTest(headers):
                (flavour / "ddprunHeaders.cmake").unlink()
                if headers:
                    (flavour / "ddprunHeaders.cmake").write_text(headers)
                message = refusal(self, support.HERE / "consumer", "consumer-build", *arguments)
                self.assertIn(f"{flavour} is of another ddprun, whose headers are not there any more", message)

    def test_a_place_that_holds_none_is_refused_where_one_was_found_before(self):
        build = support.WORK / "again"
        for name in ("Torch_DIR", "Torch_ROOT"):
            self.found_in(support.PREFIX, support.LIBTORCH, build)
            with self.subTest(name):
                result = support.run("cmake", "-S", support.HERE / "components", "-B", build, "-D", f"{name}=/no/such", check=False)
                self.assertNotEqual(result.returncode, 0)
                self.assertIn(f"{name}=/no/such leads to no LibTorch", " ".join(result.stdout.split()))

    def found_in(self, prefix, libtorch, build=support.WORK / "found") -> str:
        """What is said of a project that finds ddprun there."""
        arguments = ["-D", "COMPONENTS=samplers", "-D", f"CMAKE_PREFIX_PATH={prefix};{libtorch}"]
        return " ".join(support.configure(support.HERE / "components", build, *arguments).stdout.split())

    def test_one_that_is_newer_than_all_known_is_taken_where_ddprun_was_built_with_it(self):
        newer = support.WORK / "newer"
        shutil.rmtree(newer, ignore_errors=True)
        shutil.copytree(support.PREFIX, newer)
        flavour = next(newer.glob("lib*/cmake/ddprun/torch-*"))
        flavour.rename(flavour.with_name("torch-2.16-cpu"))
        (flavour.with_name("torch-2.16-cpu") / "ddprunFlavour.cmake").write_text(
            'set(_ddprun_flavour_kind "2.16 without CUDA")\nset(_ddprun_flavour_has_cuda FALSE)\n'
        )
        root = fake_libtorch("torch-newer", "2.16.3", cuda=False)
        self.assertIn(f"LibTorch 2.16.3, CPU: {root}", self.found_in(newer, root))

    def test_a_libtorch_that_differs_in_cuda(self):
        has_cuda = support.flag("LIBTORCH_IS_CUDA")
        message = self.refusal(fake_libtorch("torch-other", os.environ["LIBTORCH_VERSION"], cuda=not has_cuda))
        expected = r"with CUDA, but .* without CUDA\." if has_cuda else r"without CUDA, but .* with CUDA\."
        self.assertRegex(message, rf"was built with LibTorch 2\.\d+ {expected}")
        self.assertIn("or build ddprun with this one", message)

    def test_a_machine_without_the_libraries_that_ddprun_reads_pictures_with(self):
        config = next(support.PREFIX.glob("lib*/cmake/ddprun/ddprunConfig.cmake")).read_text()
        used = [name for name in re.search(r"IN ITEMS ([\w;]*)\)", config)[1].split(";") if name]
        if not used:
            self.skipTest("built without libtiff and libwebp")
        for name in used:
            message = self.refusal(support.LIBTORCH, "-D", f"CMAKE_DISABLE_FIND_PACKAGE_{name}=ON")
            library = f"lib{name.lower()}"
            self.assertIn(f"this ddprun was built with {library}, which was not found. Install {library}-dev", message)
        all_missing = self.refusal(support.LIBTORCH, *(word for name in used for word in ("-D", f"CMAKE_DISABLE_FIND_PACKAGE_{name}=ON")))
        for name in used:
            self.assertIn(f"lib{name.lower()}-dev", all_missing)


support.main()
