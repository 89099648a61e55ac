"""docs/messages.md explains each message of library and launcher, and the check would notice one that is missing."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PROJECT_SOURCE"])
PROGRAMS = pathlib.Path(os.environ["PROGRAMS"])
sys.path.insert(0, str(SOURCE / "tools"))
from cpp_messages import messages  # noqa: E402
from messages import FOLDERS  # noqa: E402


def tool(*arguments, root=SOURCE):
    return subprocess.run([sys.executable, "-B", SOURCE / "tools/messages.py", "--root", root, *arguments], capture_output=True, text=True)


class Page(unittest.TestCase):
    def test_it_explains_each_message(self):
        result = tool()
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_it_knows_what_the_programs_really_print(self):
        def printed(environment, *command):
            variables = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "RANK", "WORLD", "LOCAL_", "MASTER_"))}
            result = subprocess.run(command, capture_output=True, text=True, env=variables | environment, stdin=subprocess.DEVNULL)
            self.assertNotEqual(result.returncode, 0)
            return result.stderr.splitlines()[-1]

        ddprun = PROGRAMS / "ddprun"
        cases = [
            ("The program cannot be started", printed({}, ddprun, "./no_such_program")),
            ("Options of ddprun", printed({}, ddprun, "--nproc_per_nodes", "2", "true")),
            ("Options of ddprun", printed({}, ddprun, "--grace", "soon", "true")),
            ("Options of ddprun", printed({}, ddprun, "--prefix", "--no_prefix", "true")),
            ("Hosts of -H", printed({}, ddprun, "-H", "127.0.0.1:1", "--stdin", "5", "true")),
            ("ddprun status", printed({}, ddprun, "status", "no_such_job")),
        ]
        if (PROGRAMS / "toy_linear").exists():
            cases += [
                ("Which rank", printed({"RANK": "1"}, PROGRAMS / "toy_linear")),
                ("Which rank", printed({"RANK": "0", "WORLD_SIZE": "2"}, PROGRAMS / "toy_linear")),
                ("A backend", printed({}, PROGRAMS / "toy_linear", "--backend", "mpi")),
            ]
        for section, line in cases:
            with self.subTest(line=line):
                found = subprocess.run([ddprun, "--explain", line], capture_output=True, text=True)
                self.assertEqual(found.returncode, 0, found.stderr)
                self.assertTrue(found.stdout.startswith(section), found.stdout)

    def test_ddprun_has_the_page_and_says_when_it_knows_nothing(self):
        def explained(text):
            return subprocess.run([PROGRAMS / "ddprun", "--explain", text], capture_output=True, text=True)

        self.assertIn("docs/launcher.md#options", explained("unknown option '--x'").stdout)
        nothing = explained("the moon has two sides")
        self.assertEqual((nothing.returncode, nothing.stdout), (125, ""))
        self.assertIn("no message of this ddprun has these words", nothing.stderr)


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in FOLDERS:
            if (SOURCE / name).is_dir():
                shutil.copytree(SOURCE / name, self.root / name)
        (self.root / "docs").mkdir()
        shutil.copy(SOURCE / "docs/messages.md", self.root / "docs")

    def assert_reports(self, *expected):
        result = tool(root=self.root)
        self.assertEqual(result.returncode, 1, result.stdout)
        for text in expected:
            self.assertIn(text, result.stdout)

    def append(self, name, code):
        with open(self.root / name, "a") as file:
            file.write(code)

    def test_a_new_message_is_known(self):
        self.append("base/rank_info.cpp", 'void f(int n) { throw std::runtime_error("the moon has " + std::to_string(n) + " sides"); }\n')
        data = self.root / "explanations.cpp"
        self.assertEqual(tool("--cpp", data, "--depfile", self.root / "explanations.d", root=self.root).returncode, 0)
        section = data.read_text().partition('{"Which rank a process is",')[2].partition("\n    {")[0]
        self.assertIn("the moon has … sides", section)
        self.assertIn(f"{self.root}/base/rank_info.cpp", (self.root / "explanations.d").read_text())

    def test_a_source_of_no_section(self):
        (self.root / "base/moon").mkdir()
        self.append("base/moon/sides.cpp", 'const char* text = "the moon has two sides";\n')
        self.assert_reports("base/moon/sides.cpp has messages, and no section")

    def test_this_rank_in_a_message_that_others_quote(self):
        self.append("base/rank_info.cpp", 'const char* moon = "the moon of this rank has sides";\n')
        self.assert_reports("base/rank_info.cpp: a message must name the rank")

    def test_a_section_of_no_source(self):
        (self.root / "base/rank_option.cpp").unlink()
        self.assert_reports("no source with a message is base/rank_option.cpp")


class Messages(unittest.TestCase):
    def assert_found(self, code, *expected):
        self.assertEqual(list(messages(code)), list(expected))

    def test_parts_are_put_together(self):
        self.assert_found('throw E("cannot open " + path.string() + ": " + reason(errno, "of it") + "; see "\n  "the log");', "cannot open …: …; see the log", "of it")
        self.assert_found('fail(std::string("a") + name + " b", "second");', "a… b", "second")
        self.assert_found('TORCH_CHECK(n > 0, "expected ", n, " of them");', "…expected … of them")
        self.assert_found('out << "rank " << rank << ": " << text << "\\n";', "…rank …: … ")

    def test_alternatives_are_texts_of_their_own(self):
        self.assert_found('throw E(is_full ? "no room" : "no file " + name);', "no room", "no file …")

    def test_what_is_no_text_of_the_program_is_left_out(self):
        self.assert_found('#include "a b c.h"\n// "a comment"\n/* "and another" */ char c = \'"\'; static_assert(x, "for the compiler");')
        self.assert_found('auto s = R"x(a "raw" text)x";', 'a "raw" text')


if __name__ == "__main__":
    unittest.main(verbosity=2)
