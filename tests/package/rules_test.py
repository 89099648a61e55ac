"""Rules that concern every file: who includes whom, no path outside the project, no strays, sizes. And that the checks work."""

import dataclasses
import pathlib
import shutil
import sys
import tempfile
import unittest

import support

sys.path.insert(0, str(support.SOURCE / "tools"))
import check_includes  # noqa: E402
import walks  # noqa: E402


def check(tool: str, root):
    return support.run("python3", support.SOURCE / "tools" / tool, root, check=False)


class Rules(unittest.TestCase):
    def test_includes_follow_the_design(self):
        result = check("check_includes.py", support.SOURCE)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_no_file_depends_on_one_machine(self):
        result = check("check_tree.py", support.SOURCE)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_nothing_is_too_large_to_be_read_at_once(self):
        result = check("check_sizes.py", support.SOURCE)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_no_name_means_two_things(self):
        result = check("check_names.py", support.SOURCE)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_a_cpu_example_does_not_load_cudas_half_of_libtorch(self):
        program = support.path("PROGRAMS") / "cifar10"
        if not program.exists():
            self.skipTest("the examples are not built")
        dynamic = support.run("readelf", "-d", program).stdout
        self.assertIn("libtorch_cpu", dynamic)
        self.assertNotIn("torch_cuda", dynamic)


class WalksFollowCalls(unittest.TestCase):
    """The walk of a gradient names the files through which it really goes."""

    @classmethod
    def setUpClass(cls):
        cls.sources = walks.Sources(check_includes.Tree(support.SOURCE))
        design = (support.SOURCE / "docs/design.md").read_text()
        cls.walks = [walk for walk in walks.read_walks(design) if any(step.functions for step in walk.steps)]

    def violations(self, walk, steps):
        return list(walks.call_violations(self.sources, dataclasses.replace(walk, steps=steps)))

    def test_the_walk_of_a_gradient_is_there_and_true(self):
        self.assertIn("a gradient on the CPU", self.walks[0].name)
        for walk in self.walks:
            self.assertLessEqual(len({step.path for step in walk.steps}), 12)
            self.assertEqual(self.violations(walk, walk.steps), [])

    def test_a_file_that_is_left_out_is_missed(self):
        for walk in self.walks:
            for place, step in enumerate(walk.steps):
                with self.subTest(walk=walk.name, without=str(step.path), place=place):
                    self.assertNotEqual(self.violations(walk, walk.steps[:place] + walk.steps[place + 1 :]), [])

    def test_a_wrong_file_is_noticed(self):
        for walk in self.walks:
            for place, step in enumerate(walk.steps):
                for other in sorted((support.SOURCE / step.path).parent.glob("*.cpp")):
                    wrong = dataclasses.replace(step, path=other.relative_to(support.SOURCE))
                    if wrong == step:
                        continue
                    with self.subTest(walk=walk.name, instead_of=str(step.path), wrong=str(wrong.path)):
                        self.assertNotEqual(self.violations(walk, [*walk.steps[:place], wrong, *walk.steps[place + 1 :]]), [])

    def test_two_files_that_change_places_are_noticed(self):
        for walk in self.walks:
            for place in range(len(walk.steps) - 1):
                steps = list(walk.steps)
                steps[place], steps[place + 1] = steps[place + 1], steps[place]
                with self.subTest(walk=walk.name, place=place):
                    self.assertNotEqual(self.violations(walk, steps), [])


class ChecksFindViolations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("docs/design.md", "# Design\n\n    include/ ddp/ comm/ checkpoint/    what they are\n    tests/ docs/ scripts/\n\n    ddp, checkpoint → comm → LibTorch      launcher → std, POSIX\n")

    def write(self, name: str, text: str):
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def assert_reports(self, tool: str, *expected: str):
        result = check(tool, self.root)
        self.assertEqual(result.returncode, 1, result.stdout)
        for text in expected:
            self.assertIn(text, result.stdout)
        self.assertEqual(len(result.stdout.splitlines()), len(expected), result.stdout)

    def test_allowed_includes_pass(self):
        self.write("include/ddprun/ddp/core.h", "#include <ddprun/comm/group.h>\n#include <ATen/Tensor.h>\n")
        self.write("include/ddprun/comm/group.h", "")
        self.write("include/ddprun/checkpoint/checkpoint.h", "")
        self.write("include/ddprun/ddp.h", "#include <ddprun/checkpoint/checkpoint.h>\n#include <ddprun/comm/group.h>\n#include <ddprun/ddp/core.h>\n")
        self.write("ddp/core.cpp", '#include "ddprun/ddp/core.h"\n#include "ddp/parts.h"\n')
        self.write("ddp/parts.h", "")
        self.write("comm/nccl.cpp", "#include <c10/cuda/CUDAGuard.h>\n#include <torch/csrc/distributed/c10d/Store.hpp>\n")
        result = check("check_includes.py", self.root)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_an_arrow_that_the_design_does_not_draw(self):
        self.write("include/ddprun/ddp/core.h", "")
        self.write("ddp/parts.h", "")
        self.write("include/ddprun/comm/group.h", "// a comment\n#include <ddprun/ddp/core.h>\n")
        self.write("checkpoint/file.cpp", '#  include "ddp/parts.h"\n')
        self.assert_reports("check_includes.py", "group.h:2", "checkpoint/file.cpp:1")

    def test_public_headers_are_spelled_as_such_and_include_no_private_one(self):
        self.write("comm/store.h", "")
        self.write("include/ddprun/comm/group.h", '#include "comm/store.h"\n')
        self.write("ddp/core.cpp", '#include "comm/group.h"\n')
        self.write("include/ddprun/ddp/parts.h", "// Internal: parts of what users include.\n")
        self.assert_reports("check_includes.py", "ddp/core.cpp:1", "group.h:1", "ddprun/ddp/parts.h: says")

    def test_detail_headers_belong_to_their_folder(self):
        self.write("docs/design.md", "    ddp, checkpoint → comm → LibTorch\n    inside comm: core < group\n")
        self.write("include/ddprun/comm/group.h", "#include <ddprun/detail/comm/parts.h>\n")
        self.write("include/ddprun/detail/comm/parts.h", "#include <ddprun/detail/ddp/core.h>\n")
        self.write("include/ddprun/detail/comm/core/text.h", "#include <ddprun/detail/comm/group/state.h>\n")
        self.write("include/ddprun/detail/comm/group/state.h", "")
        self.write("include/ddprun/detail/ddp/core.h", "#include <ddprun/comm/group.h>\n")
        self.assert_reports("check_includes.py", "detail/comm/parts.h:1", "detail/comm/core/text.h:1")

    def test_public_headers_are_few_and_each_is_named(self):
        self.write("include/ddprun/ddp.h", "#include <ddprun/comm/group.h>\n#include <ddprun/detail/comm/parts.h>\n")
        self.write("include/ddprun/comm/group.h", "")
        self.write("include/ddprun/comm/named.h", "")
        self.write("include/ddprun/comm/forgotten.h", "")
        self.write("include/ddprun/detail/comm/parts.h", "")
        self.write("docs/page.md", "`<ddprun/comm/named.h>` and `<ddprun/detail/comm/parts.h>`\n")
        self.write("examples/train.cpp", "#include <ddprun/detail/comm/parts.h>\n")
        named = ("ddp.h: names ddprun/detail", "docs/page.md: names ddprun/detail", "examples/train.cpp: names ddprun/detail", "comm/forgotten.h: neither")
        self.assert_reports("check_includes.py", *named)
        for number in range(102):
            self.write(f"include/ddprun/comm/named_{number}.h", "")
        self.write("docs/many.md", "".join(f"`<ddprun/comm/named_{number}.h>`\n" for number in range(102)))
        self.assert_reports("check_includes.py", *named, "106 public headers; at most 105")

    def test_sub_folders_include_those_below_them(self):
        self.write("docs/design.md", "    ddp, checkpoint → comm → LibTorch\n    inside comm: core < group < reducer\n")
        self.write("comm/core/text.h", '#include "comm/reducer/engine.h"\n')
        self.write("comm/reducer/engine.h", '#include "comm/core/text.h"\n')
        self.write("comm/group/group.cpp", '#include "ddprun/comm/group.h"\n#include <ddprun/comm/hook.h>\n')
        self.write("include/ddprun/comm/group.h", "")
        self.write("include/ddprun/comm/hook.h", "#include <ddprun/comm/reducer.h>\n")
        self.write("include/ddprun/comm/reducer.h", "")
        self.write("comm/reducer/reducer.cpp", "#include <ddprun/comm/group.h>\n")
        self.write("comm/other/file.h", "")
        self.assert_reports("check_includes.py", "comm/core/text.h:1", "comm/group/group.cpp:2", "comm/other")

    def test_sub_folders_of_sub_folders_and_limits_of_folders_and_arrows(self):
        order = "\n    ddp → comm      launcher → std\n    inside launcher{}: os < plan < job\n    inside launcher/os: system < network, terminal\n"
        self.write("docs/design.md", order.format(" (at most 3 folders, 2 arrows)"))
        self.write("launcher/os/system/line.h", "")
        self.write("launcher/os/version.h.in", "")
        self.write("launcher/os/network/address.h", '#include "launcher/os/system/line.h"\n')
        self.write("launcher/plan/host.h", '#include "launcher/os/network/address.h"\n#include "launcher/os/version.h"\n')
        self.write("launcher/job/job_run.h", '#include "launcher/plan/host.h"\n')
        self.assertEqual(check("check_includes.py", self.root).returncode, 0)
        self.write("launcher/job/run.h", '#include "launcher/os/version.h"\n')
        self.assert_reports("check_includes.py", "launcher: 3 arrows between its folders, more than 2")
        self.write("docs/design.md", order.format(" (at most 2 folders, 3 arrows)"))
        self.assert_reports("check_includes.py", "launcher: 3 folders, more than 2")
        self.write("docs/design.md", order.format(""))
        self.write("launcher/os/system/line.h", '#include "launcher/os/terminal/row.h"\n')
        self.write("launcher/os/terminal/row.h", '#include "launcher/os/network/address.h"\n#include "launcher/plan/host.h"\n')
        self.write("launcher/os/other/file.h", "")
        self.assert_reports("check_includes.py", "os/system/line.h:1: includes launcher/os/terminal/row.h, which is not below",
                            "os/terminal/row.h:1: includes launcher/os/network/address.h, which is beside",
                            "os/terminal/row.h:2: includes launcher/plan/host.h, which is not below", "no layer for launcher/os/other")

    def test_a_backend_outside_comm_and_libtorch_in_the_launcher(self):
        self.write("ddp/core.cpp", "#include <torch/csrc/distributed/c10d/reducer.hpp>\n")
        self.write("launcher/job/launch.h", "#include <ATen/Tensor.h>\n")
        self.assert_reports("check_includes.py", "ddp/core.cpp:1", "launcher/job/launch.h:1")

    def test_a_walk_that_is_too_long_climbs_or_names_what_is_not_there(self):
        for name in ("low/a.h", "high/b.h", "main.cpp"):
            self.write("launcher/" + name, "")
        floors = "\n    inside launcher: low < high\n\n    ddp → comm\n\n## Walks\n"
        down = "    down (at most 3, no climb): launcher/main.cpp,\n        launcher/high/b.h, launcher/low/a.h\n"
        self.write("docs/design.md", floors + down)
        self.assertEqual(check("check_includes.py", self.root).returncode, 0)
        self.write("docs/design.md", floors + down.replace("at most 3", "at most 2")
                   + "    up (at most 9, no climb): launcher/low/a.h, launcher/high/b.h\n    gone (at most 9): launcher/c.h\n")
        self.assert_reports("check_includes.py", "down has 3 files", "up climbs at launcher/high/b.h", "names launcher/c.h")

    def test_a_readme_that_says_something_else_than_the_arrows(self):
        self.write("ddp/README.md", "# ddp\n\nMay include: LibTorch, comm.\n")
        self.assertEqual(check("check_includes.py", self.root).returncode, 0)
        self.write("ddp/README.md", "# ddp\n\nMay include: LibTorch.\n")
        self.assert_reports("check_includes.py", "ddp/README.md: docs/design.md allows: May include: LibTorch, comm.")

    def test_a_walk_by_includes_through_a_file_that_nothing_in_it_includes(self):
        self.write("launcher/main.cpp", '#include "launcher/job.h"\n')
        self.write("launcher/job.h", "")
        self.write("launcher/job.cpp", '#include "launcher/job.h"\n')
        self.write("launcher/end.h", '#include "launcher/job.h"\n')
        self.write("launcher/other.cpp", "")
        walk = "\n    ddp → comm      launcher → std\n\n## Walks\n    one (at most 4, no climb, by includes): launcher/main.cpp, launcher/job.cpp, launcher/end.h"
        self.write("docs/design.md", walk + "\n")
        self.assertEqual(check("check_includes.py", self.root).returncode, 0)
        self.write("docs/design.md", walk + ", launcher/other.cpp\n")
        self.assert_reports("check_includes.py", "the walk of one: launcher/other.cpp includes no file before it")

    def test_a_walk_through_the_call_of_a_template(self):
        self.write("launcher/main.cpp", "template <typename T>\nvoid use(T& job) {\n  job.run();\n}\n")
        self.write("launcher/job.cpp", "void Job::run() {\n}\n")
        walk = "\n    ddp → comm      launcher → std\n\n## Walks\n    one (at most 4, by includes): launcher/main.cpp, launcher/job.cpp via "
        self.write("docs/design.md", walk + "run\n")
        self.assertEqual(check("check_includes.py", self.root).returncode, 0)
        self.write("docs/design.md", walk + "stop\n")
        self.assert_reports("check_includes.py", "launcher/job.cpp defines no stop(), or no file before it calls that")
        self.write("launcher/main.cpp", "")
        self.write("docs/design.md", walk + "run\n")
        self.assert_reports("check_includes.py", "launcher/job.cpp defines no run(), or no file before it calls that")

    def test_paths_of_one_machine_and_cuda_sources(self):
        self.write("scripts/run", "echo\ncat /" + "home/somebody/data\n")
        self.write("ddp/kernel.cu", "")
        self.write("build/out", "/" + "root/x\n")
        self.assert_reports("check_tree.py", "scripts/run:2", "ddp/kernel.cu")

    def test_a_copy_that_nobody_waits_for(self):
        self.write("CMakeLists.txt", "add_library(ddp ddp/core.cpp comm.cpp)\n")
        self.write("ddp/core.cpp", "x.to(device, /*non_blocking=*/true);\nx.to(device, dtype, /*non_blocking=*/false);\ny.copy_(x, true);\n")
        self.write("include/ddprun/detail/comm/device_copy.h", "x.to(device, /*non_blocking=*/true);\n")
        self.write("tests/some.h", "x.to(device, /*non_blocking=*/true);\n")
        self.assert_reports("check_tree.py", "ddp/core.cpp:1", "ddp/core.cpp:3")

    def test_a_source_that_nothing_builds(self):
        self.write("tests/CMakeLists.txt", "ddprun_test(known SOURCES known_test.cpp)\n")
        self.write("tests/known_test.cpp", "")
        self.write("tests/forgotten_test.cpp", "")
        self.assert_reports("check_tree.py", "tests/forgotten_test.cpp")

    def test_a_script_that_does_not_parse(self):
        self.write("scripts/run", "#!/usr/bin/env python3\nfor x in 1 if 2:\n")
        self.write("scripts/shell", "#!/bin/sh\nfor x in 1; do\n")
        self.write("scripts/one.py", "def\n")
        self.assert_reports("check_tree.py", "scripts/one.py:1", "scripts/run:2")

    def test_a_test_with_a_name_of_another_form_is_reported(self):
        self.write("tests/test_names.py", "")
        self.assert_reports("check_tree.py", "tests/test_names.py")

    def test_strays_but_not_a_users_own_folders(self):
        self.write("--list/events.out", "")
        self.write("ddp/core.o", "\x7fELF\0")
        self.write("comm/words.txt", "text")
        self.assert_reports("check_tree.py", "--list/", "ddp/core.o")
        if shutil.which("git"):
            git = ("git", "-C", self.root)
            support.run(*git, "init", "-q")
            support.run(*git, "add", "docs", "comm")
            self.assertEqual(check("check_tree.py", self.root).returncode, 0)
            support.run(*git, "add", "ddp")
            self.assert_reports("check_tree.py", "ddp/core.o")

    def test_a_folder_a_file_and_functions_that_are_too_large(self):
        for number in range(61):
            self.write(f"comm/{number}.h", "")
            self.write(f"tests/{number}.h", "\n" * 401)
        self.write("ddp/long.h", "\n" * 401)
        members = "class B {\n public:\n  B() : x_{1}, y_(2) {\n" + "    ++x_;  // {\n" * 59 + "  }\n\n private:\n  int x_{0};\n};\n"
        template = "template <typename T>\nint f(T x) {\n" + "  g('{', \"{\");\n" * 58 + "}\n"
        self.write("ddp/functions.h", "namespace a {\n" + members + template + template.replace("  g", "  g();\n  g", 1) + "}\n")
        branches = "int f(int x) {\n" + "  if (x == 1'000 || g(\"if (x) {\")) ++x;\n" * 10 + "}\n"
        self.write("ddp/branches.cpp", branches)
        self.write("ddp/script.py", "def f(x):\n" + "    if x and f(x):\n        x += 1\n" * 10)
        self.assert_reports("check_sizes.py", "comm: 61 files", "ddp/long.h: 401 lines", "ddp/functions.h:4: B() has 61 lines",
                            "ddp/functions.h:69: f() has 61 lines", "ddp/functions.h:130: f() has 62 lines", "ddp/branches.cpp:1: f() has a complexity of 21", "ddp/script.py:1: f()")

    def test_a_class_in_two_sources(self):
        first = "namespace ddp {\nint Engine::run() {\n  return 1;\n}\nEngine::~Engine() {\n}\nint run() {\n  return 2;\n}\n}\n"
        self.write("comm/engine.cpp", first)
        self.write("comm/other.cpp", first.replace("Engine", "Other"))
        self.write("ddp/engine.cpp", first.replace("namespace ddp", "namespace ddp::other"))
        self.assertEqual(check("check_sizes.py", self.root).returncode, 0)
        self.write("comm/engine_drive.cpp", "namespace ddp {\nvoid Engine::drive() {\n}\n}\n")
        self.assert_reports("check_sizes.py", "ddp::Engine: its functions are in comm/engine.cpp and in comm/engine_drive.cpp")

    def test_a_checkout_is_checked_where_there_is_no_git(self):
        self.write(".git/config", "")
        self.write("comm/group.h", "")
        for tool in ("check_tree.py", "check_sizes.py"):
            with self.subTest(tool):
                command = [sys.executable, support.SOURCE / "tools" / tool, self.root]
                result = support.run(*command, check=False, env={"PATH": str(self.root)})
                self.assertEqual(result.returncode, 0, result.stdout)

    def test_a_type_that_two_headers_define_is_found(self):
        self.write("comm/place.h", "namespace ddp {\nstruct Place {\n  int node;\n};\nstruct Other;\n}  // namespace ddp\n")
        self.write("ddp/place.h", "namespace ddp {\nstruct Other;\nclass Place : public Base {\n};\n}  // namespace ddp\n")
        self.write("ddp/inner.h", "namespace ddp::inner {\nstruct Place {};\n}  // namespace ddp::inner\n")
        self.assert_reports("check_names.py", "ddp::Place is defined in comm/place.h and in ddp/place.h")

    def test_helpers_of_one_name_in_sources_that_may_be_compiled_as_one_are_found(self):
        self.write("comm/CMakeLists.txt", "ddprun_library(comm SOURCES a.cpp in/b.cpp)\nddprun_use_precompiled_headers(ddprun_comm groups)\n")
        begin, end = "namespace ddp {\nnamespace {\n", "}  // namespace\n}  // namespace ddp\n"
        self.write("comm/a.cpp", f"{begin}using Clock = int;\nint f(int x) {{ return x; }}\nint h(int few) {{ return few; }}\nint g() {{ return '{{'; }}\nconstexpr int kTwo = 2;\n{end}")
        self.write("comm/in/b.cpp", f"{begin}using Clock = int;\nint f(long x) {{ return 1; }}\nint h(int many) {{ return many; }}\nint g() {{ return 2; }}\nconstexpr long kTwo = 2;\n{end}")
        both = "is in the anonymous namespaces of comm/a.cpp and of comm/in/b.cpp"
        self.assert_reports("check_names.py", f"comm: g {both}", f"comm: h {both}", f"comm: kTwo {both}")

    def test_so_are_constants_that_parentheses_initialize(self):
        self.write("data/CMakeLists.txt", "ddprun_library(data SOURCES a.cpp b.cpp)\nddprun_use_precompiled_headers(ddprun_data tensors)\n")
        for name in "ab":
            self.write(f"data/{name}.cpp", f'namespace ddp {{\nnamespace {{\nconstexpr std::string_view kMagic("{name}", 1);\n}}\n}}\n')
        self.assert_reports("check_names.py", "data: kMagic is in the anonymous namespaces of data/a.cpp and of data/b.cpp")

    def test_so_are_helpers_of_a_program_of_several_sources(self):
        self.write("tools/CMakeLists.txt", "ddprun_executable(\n  tool\n  SOURCES a.cpp\n          b.cpp\n  LINK x)\nset_target_properties(tool PROPERTIES UNITY_BUILD ON)\n")
        for name in "ab":
            self.write(f"tools/{name}.cpp", "namespace ddp {\nnamespace {\nint f() { return 1; }\n}\n}\n")
        self.assert_reports("check_names.py", "tool: f is in the anonymous namespaces of tools/a.cpp and of tools/b.cpp")

    def test_so_are_types_of_one_name_that_mean_two_things(self):
        self.write("timeline/CMakeLists.txt", "add_library(\n  ddprun_timelines STATIC\n  a.cpp\n  b.cpp)\nddprun_use_precompiled_headers(ddprun_timelines standard)\n")
        self.write("timeline/a.cpp", "namespace ddp {\nnamespace {\nusing Clock = int;\nusing Words = int;\nint a;\n}\n}\n")
        self.write("timeline/b.cpp", "namespace ddp {\nnamespace {\nusing Clock = int;\nclass Words {\n};\n}\nint b;\n}\n")
        self.assert_reports("check_names.py", "timelines: Words is in the anonymous namespaces of timeline/a.cpp and of timeline/b.cpp")

    def test_so_is_a_helper_of_a_name_that_a_header_has(self):
        self.write("comm/CMakeLists.txt", "ddprun_library(comm SOURCES a.cpp)\nddprun_use_precompiled_headers(ddprun_comm groups)\n")
        self.write("comm/a.cpp", "namespace ddp {\nnamespace {\nusing Place = int;\nusing Other = int;\nint f() { return 1; }\n}\n}\n")
        self.write("base/place.h", "namespace ddp {\nstruct Place {\n};\nint f(int);\nnamespace inner {\nstruct Other {\n};\n}\n}\n")
        self.assert_reports("check_names.py", "comm: Place is in the anonymous namespace of comm/a.cpp and in base/place.h")

    def test_helpers_of_one_name_in_tests_of_one_program_are_found_whatever_they_take(self):
        self.write(
            "tests/comm/CMakeLists.txt",
            "foreach(name IN ITEMS a b)\n  ddprun_test(${name} IN comm LABEL comm SOURCES ${name}_test.cpp LINK x)\nendforeach()\n"
            "ddprun_test(c IN comm LABEL comm SOURCES ../c_test.cpp LINK x)\nddprun_test(d LABEL comm SOURCES d_test.cpp LINK x)\n",
        )
        for name, types in (("comm/a", "int x"), ("comm/b", "long x"), ("c", "char x"), ("comm/d", "int x")):
            self.write(f"tests/{name}_test.cpp", f'namespace {{\nint f({types}) {{ return 1; }}\nTEST_CASE("{name}") {{ f(1); }}\n}}\n')
        self.assert_reports("check_names.py", "test_comm_comm: f is in the anonymous namespaces of tests/c_test.cpp and of tests/comm/a_test.cpp "
                            "and of tests/comm/b_test.cpp")

    def test_so_is_a_helper_of_a_test_of_a_name_that_a_header_of_tests_has(self):
        self.write("tests/comm/CMakeLists.txt", "ddprun_test(a IN comm LABEL comm SOURCES a_test.cpp LINK x)\n")
        self.write("tests/comm/a_test.cpp", "namespace ddp {\nnamespace {\nint in_child(int x) { return x; }\n}\n}\n")
        self.write("tests/comm/in_child.h", "namespace ddp {\ninline int in_child(long x) { return 1; }\n}\n")
        self.assert_reports("check_names.py", "test_comm_comm: in_child is in the anonymous namespace of tests/comm/a_test.cpp and in "
                            "tests/comm/in_child.h")

    def test_so_are_those_of_programs_that_tests_start(self):
        self.write("tests/comm/CMakeLists.txt", "ddprun_test_executable(a SOURCE a_program.cpp LINK x)\n")
        self.write("tests/ddp/CMakeLists.txt", "ddprun_test_executable(b SOURCE b_program.cpp LINK x)\n")
        for name in ("comm/a", "ddp/b"):
            self.write(f"tests/{name}_program.cpp", "namespace {\nvoid run() {}\n}\nint main(int, char**) { run(); }\n")
        self.assert_reports("check_names.py", "test_executables: run is in the anonymous namespaces of tests/comm/a_program.cpp and of "
                            "tests/ddp/b_program.cpp")


class TorchVersions(unittest.TestCase):
    """The page of what was tested with which PyTorch."""

    REPORT = """<testsuite><testcase name="a.b" status="run"/><testcase name="c.d" status="notrun"><skipped/></testcase>{}</testsuite>"""

    def rows(self, root, version, report):
        file = root / "report.xml"
        file.write_text(report)
        support.run("python3", support.SOURCE / "tools/torch_versions.py", "--record", version, file, root)
        lines = (root / "docs/versions.md").read_text().splitlines()
        return {line.split("|")[1].strip(): line.split("|")[2:-1] for line in lines if line.startswith("| 2.")}

    def test_a_run_is_recorded_beside_those_before_and_newest_versions_come_first(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "docs").mkdir()
            rows = self.rows(root, "2.12.1", self.REPORT.format(""))
            self.assertEqual([cell.strip() for cell in rows["2.12.1"]][1:], ["1, and 1 skipped", "all passed"])
            failed = '<testcase name="z.y" status="fail"><failure/></testcase>'
            rows = self.rows(root, "2.16.0", self.REPORT.format(failed))
            self.assertEqual(list(rows)[:2], ["2.16.0", "2.15.0"])
            self.assertEqual(rows["2.16.0"][-1].strip(), "failed: z.y")
            self.assertIn("all passed", rows["2.12.1"][-1])
            self.assertIn("no test ran", self.rows(root, "2.11.0", "<testsuite/>")["2.11.0"][-1])

    def test_the_page_names_every_version_that_setup_takes(self):
        page = (support.SOURCE / "docs/versions.md").read_text()
        for minor in range(11, 16):
            self.assertIn(f"| 2.{minor}.", page)


support.main()
