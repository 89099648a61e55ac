"""Each job of the workflows is one call of scripts/ci, which accepts it; the PyTorch versions are those of tools/torch_versions.py."""

import json
import re
import shlex
import sys
import unittest

import support

try:
    import yaml
except ImportError:
    print("skipped: Python has no module yaml (Debian: python3-yaml)")
    sys.exit(77)

sys.path.insert(0, str(support.SOURCE / "tools"))
import torch_versions  # noqa: E402

WORKFLOWS = sorted((support.SOURCE / ".github/workflows").glob("*.yml"))


def calls(workflow: dict):
    """The commands of a workflow's jobs, one list for each job, with every value of a matrix."""
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {"": [""]})
        ((name, values),) = matrix.items()
        for value in values:
            lines = [line for step in job["steps"] if "run" in step for line in step["run"].splitlines()]
            yield [line.replace("${{ matrix.%s }}" % name, value) for line in lines]


def dry_run(*words: str):
    return support.run("scripts/ci", "--dry-run", *words, cwd=support.SOURCE, check=False)


class Workflows(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.jobs = [lines for file in WORKFLOWS for lines in calls(yaml.safe_load(file.read_text()))]
        listed = support.run("scripts/ci", "--list", cwd=support.SOURCE).stdout
        cls.names = {line.split()[0] for line in listed.splitlines()}
        presets = json.loads((support.SOURCE / "CMakePresets.json").read_text())
        cls.presets = {preset["name"] for preset in presets["testPresets"]}

    def test_each_job_is_one_call_of_the_script(self):
        self.assertGreater(len(WORKFLOWS), 1)
        for lines in self.jobs:
            with self.subTest(lines=lines):
                self.assertEqual(len(lines), 1)
                self.assertRegex(lines[0], r"^scripts/ci [\w. -]+$")

    def test_the_script_accepts_each_job_and_all_its_jobs_are_called(self):
        called = set()
        for (line,) in self.jobs:
            words = shlex.split(line)[1:]
            called.add(words[0])
            with self.subTest(job=words):
                result = dry_run(*words)
                self.assertEqual(result.returncode, 0, result.stdout)
                commands = [shlex.split(command.removeprefix("+ ")) for command in result.stdout.splitlines()]
                self.assertTrue(any(self.check(command) for command in commands), result.stdout)
        self.assertEqual(called, self.names)

    def check(self, command: list[str]) -> bool:
        """True for a script of the project, which must exist and know the options."""
        words = [word for word in command if word != "env" and not re.match(r"[A-Z_]+=", word)]
        if not re.match(r"(?:scripts|\.ci)/", words[0]):
            return False
        script = support.SOURCE / words[0]
        self.assertTrue(script.is_file() and script.stat().st_mode & 0o100, script)
        if words[0] == "scripts/test":
            usage = support.run(script, "--help").stdout
            for word, value in zip(words[1:], [*words[2:], ""]):
                if word.startswith("--"):
                    self.assertIn(word, usage)
                if word == "--preset":
                    self.assertIn(value, self.presets)
        return True

    def test_what_is_no_job_is_refused(self):
        for words in [(), ("no-such-job",), ("torch",), ("torch", "2.10.0"), ("docs", "more")]:
            with self.subTest(words=words):
                self.assertEqual(dry_run(*words).returncode, 1)

    def test_the_versions_of_pytorch_are_those_of_the_one_list(self):
        tested = [line.split()[-1] for (line,) in self.jobs if line.startswith("scripts/ci torch ")]
        self.assertEqual(tested, torch_versions.VERSIONS)
        minors = [version.rpartition(".")[0] for version in torch_versions.VERSIONS]
        known = re.findall(r"^  (2\.\d+)\.\*\) cuda_version=", (support.SOURCE / "scripts/setup").read_text(), re.MULTILINE)
        self.assertEqual(known, minors[::-1])
        self.assertIn(f'"{minors[-1]} to {minors[0]}"', (support.SOURCE / "cmake/LibTorch.cmake").read_text())
        self.assertIn(f"torch_usual={torch_versions.VERSIONS[0]}\n", (support.SOURCE / "scripts/common.sh").read_text())


support.main()
