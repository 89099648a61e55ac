"""`cmake --install` into a folder that the other package tests use, and what must and must not be in there."""

import re
import shutil
import subprocess
import unittest

import support


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(support.PREFIX, ignore_errors=True)
        support.run("cmake", "--install", support.path("PROJECT_BINARY"), "--prefix", support.PREFIX)

    def test_installs_launcher_library_headers_and_licence(self):
        for name in ["bin/ddprun", "bin/ddprun-curves", "bin/ddprun-timeline", "include/ddprun/ddp.h", "lib*/**/libddprun_comm.a", "share/doc/ddprun/LICENSE",
                     "share/ddprun/python/ddprun/__init__.py", "share/ddprun/python/ddprun/checkpoint/__init__.py", "share/ddprun/python/ddprun_checkpoint.py"]:
            self.assertEqual(len(list(support.PREFIX.glob(name))), 1, name)

    def test_libraries_tell_their_include_folder_to_a_cmake_that_knows_no_file_sets(self):
        for file in support.PREFIX.glob("lib*/**/ddprun*Targets.cmake"):
            for name, properties in re.findall(r"add_library\(ddprun::(\w+) STATIC IMPORTED\)\n\nset_target_properties\((.*?)\n\)", file.read_text(), re.DOTALL):
                self.assertIn('INTERFACE_INCLUDE_DIRECTORIES "${_IMPORT_PREFIX}/include"', properties, name)

    def test_the_manual_page_and_the_completions_are_those_of_the_installed_launcher(self):
        for kind, name in (("man", "man/man1/ddprun.1"), ("bash", "bash-completion/completions/ddprun"),
                           ("zsh", "zsh/site-functions/_ddprun"), ("fish", "fish/vendor_completions.d/ddprun.fish")):
            printed = subprocess.run([support.PREFIX / "bin/ddprun", "--generate", kind], capture_output=True, check=True).stdout
            self.assertEqual((support.PREFIX / "share" / name).read_bytes(), printed)

    def test_the_launcher_can_be_installed_alone(self):
        folder = support.WORK / "launcher alone"
        shutil.rmtree(folder, ignore_errors=True)
        support.run("cmake", "--install", support.path("PROJECT_BINARY"), "--prefix", folder, "--component", "launcher")
        self.assertEqual(sorted(str(path.relative_to(folder)) for path in folder.glob("**/*") if path.is_file()), [
            "bin/ddprun", "bin/ddprun-timeline", "share/bash-completion/completions/ddprun", "share/fish/vendor_completions.d/ddprun.fish",
            "share/man/man1/ddprun.1", "share/zsh/site-functions/_ddprun"])  # fmt: skip
        dynamic = support.run("readelf", "-d", folder / "bin/ddprun").stdout
        self.assertNotRegex(dynamic, r"NEEDED.*(libstdc|libgcc|torch)")
        self.assertNotRegex(dynamic, r"RPATH|RUNPATH")

    def test_an_installed_launcher_leads_cmake_to_the_package(self):
        asked = subprocess.run([support.PREFIX / "bin/ddprun", "--cmake-prefix-path"], capture_output=True, check=True, text=True)
        self.assertEqual(asked.stdout, f"{support.PREFIX.resolve()}\n")
        self.assertIn("there is no PyTorch below", asked.stderr)

    def test_the_cuda_part_is_a_library_of_its_own(self):
        found = list(support.PREFIX.glob("lib*/**/libddprun_comm_cuda.so"))
        self.assertEqual(len(found), 1 if support.flag("LIBTORCH_HAS_CUDA") else 0)

    def test_exported_files_name_no_folder_of_this_machine(self):
        folders = [support.SOURCE, support.path("PROJECT_BINARY"), support.LIBTORCH, support.PREFIX]
        files = list(support.PREFIX.glob("lib*/**/*.cmake"))
        self.assertGreater(len(files), 3)
        for file in files:
            for folder in folders:
                self.assertNotIn(str(folder), file.read_text(), file.name)

    def test_exported_targets_need_only_libtorch_and_system_libraries(self):
        text = "".join(file.read_text() for file in support.PREFIX.glob("lib*/**/ddprun*Targets*.cmake"))
        targets = set(re.findall(r"\b([A-Za-z]\w*)::", text))
        optional = {"TIFF", "WebP"}
        self.assertEqual(targets - {"ddprun"} - optional, {"LibTorch", "Threads", "ZLIB", "PNG", "JPEG"})
        config = next(support.PREFIX.glob("lib*/cmake/ddprun/ddprunConfig.cmake")).read_text()
        looked_for = re.search(r"IN ITEMS ([\w;]*)\)", config)[1].split(";")
        self.assertEqual(set(looked_for) - {""}, targets & optional)

    def test_no_installed_header_includes_a_backend(self):
        headers = list(support.PREFIX.glob("include/ddprun/**/*.h"))
        self.assertGreater(len(headers), 5)
        for header in headers:
            for include in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', header.read_text(), re.MULTILINE):
                self.assertNotRegex(include, r"c10d|csrc/distributed|gloo|nccl|cuda", header.name)

    def test_the_command_lines_headers_alone_include_cli11(self):
        including = [header.name for header in support.PREFIX.glob("include/ddprun/**/*.h") if "<CLI/" in header.read_text()]
        self.assertEqual(sorted(including), ["command_line.h", "option_checks.h"])
        for header in support.PREFIX.glob("include/ddprun/**/*.h"):
            if header.name not in including:
                self.assertNotRegex(header.read_text(), f"include <.*({'|'.join(including)})>", f"{header.name} would need CLI11 too")


support.main()
