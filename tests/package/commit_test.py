"""The commit that `ddprun --version` names: where it is from, and what is built anew when it changes (cmake/SourceCommit.cmake)."""

import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import time
import unittest

import support

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false")


class Commit(unittest.TestCase):
    def setUp(self):
        self.project = support.WORK / "project"
        shutil.rmtree(support.WORK, ignore_errors=True)
        (self.project / "cmake").mkdir(parents=True)
        for name in (".gitattributes", "cmake/commit.txt", "cmake/SourceCommit.cmake"):
            shutil.copy(support.SOURCE / name, self.project / name)
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "first")

    def git(self, *words):
        return support.run(*GIT, *words, cwd=self.project).stdout.strip()

    def written(self, project=None, **variables):
        project = project or self.project
        output = support.WORK / "commit.cpp"
        words = [f"-D{name}={value}" for name, value in variables.pop("definitions", {}).items()]
        support.run("cmake", "-D", f"SOURCE={project}", "-D", f"OUTPUT={output}", *words, "-P", project / "cmake/SourceCommit.cmake",
                    env={**os.environ, **variables})
        return re.search(r'= "(.*)";', output.read_text())[1]

    def test_of_a_checkout_it_is_gits(self):
        head = self.git("rev-parse", "HEAD")[:12]
        self.assertEqual(self.written(), head)
        self.assertEqual(self.written(GIT_DIR=str(support.SOURCE / ".git")), head)  # as in a hook of another repository
        (self.project / "untracked").write_text("")
        self.assertEqual(self.written(), head)
        (self.project / "cmake/commit.txt").write_text("changed\n")
        self.assertEqual(self.written(), head + ", with changes")

    def test_nothing_is_written_while_it_is_the_same(self):
        output = support.WORK / "commit.cpp"
        self.written()
        os.utime(output, (1, 1))
        self.written()
        self.assertEqual(output.stat().st_mtime, 1)
        self.git("commit", "-q", "--allow-empty", "-m", "second")
        self.written()
        self.assertGreater(output.stat().st_mtime, time.time() - 600)

    def test_an_archive_has_a_record_of_it(self):
        subprocess.run([*GIT, "archive", "--prefix=unpacked/", "-o", support.WORK / "sources.tar", "HEAD"], cwd=self.project, check=True)
        with tarfile.open(support.WORK / "sources.tar") as archive:
            archive.extractall(support.WORK / "elsewhere")
        head = self.git("rev-parse", "HEAD")[:12]
        unpacked = support.WORK / "elsewhere/unpacked"
        self.assertEqual(self.written(unpacked), head)
        # Within a repository of whoever packs it.
        subprocess.run([*GIT, "init", "-q"], cwd=unpacked, check=True)
        subprocess.run([*GIT, "add", "."], cwd=unpacked, check=True)
        subprocess.run([*GIT, "commit", "-q", "-m", "imported"], cwd=unpacked, check=True)
        self.assertEqual(self.written(unpacked), head)

    def test_without_git_it_is_unknown_or_what_is_named(self):
        copy = self.project / "vendored"  # below a checkout of somebody else's
        shutil.copytree(self.project / "cmake", copy / "cmake")
        self.assertEqual(self.written(copy), "unknown")
        self.assertEqual(self.written(copy, definitions={"COMMIT": "0123456789abcdef0123456789abcdef01234567"}), "0123456789ab")
        self.assertEqual(self.written(copy, definitions={"COMMIT": 'v1.2"; x'}), "v1.2x")

    def test_after_a_commit_one_source_is_compiled_and_one_program_linked(self):
        graph = (support.path("PROJECT_BINARY") / "build.ninja").read_text()
        rules = re.findall(r"^build ([^:\n]*):[^|\n]*\S*commit\.cpp(?:\.o)?\b", graph, re.MULTILINE)
        self.assertEqual(sorted(pathlib.Path(rule.split()[0]).name for rule in rules), ["commit.cpp.o", "ddprun", "ddprun_commit"], rules)

    def test_ddprun_prints_it(self):
        printed = support.run(support.path("PROGRAMS") / "ddprun", "--version").stdout
        self.assertRegex(printed, r"^ddprun \d+\.\d+\.\d+ \(commit ([0-9a-f]{12}(, with changes)?|unknown)\)\n$")


support.main()
