"""Each command of each page is run, by this test or another, or commands.txt says why by none. A new command fails here until that is
said of it. Inline names of scripts, benchmarks and options of ddprun are looked up."""

import collections
import os
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ["PROJECT_SOURCE"])
PROGRAMS = pathlib.Path(os.environ["PROGRAMS"])
BINARY = pathlib.Path(os.environ["PROJECT_BINARY"])
LIST = SOURCE / "tests/docs/commands.txt"
# What begins a command in a block without a language. "ddprun:" begins what it prints.
BEGINNING = re.compile(
    r"(?:[A-Z_]+=\S*\s+)*(?:ddprun(?:-checkpoint|-curves|-timeline)?(?=\s|$)|scripts/\w+|tools/\S+|c(?:make|test) |python3? -|pip |srun |mpirun |torchrun |ssh |"
    r"\. <|\./\S+|build/\S+)")  # fmt: skip
PATIENCE = 120  # seconds, for hangs


def pages():
    listed = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").glob("*.md"))]
    return [page for page in listed if page.name != "messages.md"] + [SOURCE / "docs/messages.md"]


def commands(text: str):
    """The commands of a page, without comments: sh blocks, `$ ...` of console blocks, and indented lines that begin as commands do."""
    language = None
    for line in text.splitlines():
        if line.startswith("```"):
            language = (line[3:].strip() or "text") if language is None else None
            continue
        command = ""
        if language == "sh":
            command = line
        elif language == "console" and line.startswith("$ "):
            command = line[2:]
        elif language is None and line.startswith("    ") and BEGINNING.match(line.strip()):
            command = line.strip()
        command = re.sub(r"(^|\s)#\s.*$|\s+;\s*then.*$", "", command).strip()
        command = re.sub(r";\s*(?:then.*)?$", "", command)
        if command:
            yield command


def listed() -> dict[str, tuple[str, str]]:
    """(kind, argument) of each command in commands.txt."""
    found = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, _, command = line.partition(" | ")
            word, _, argument = kind.partition(" ")
            if command in found:
                raise ValueError(f"commands.txt has {command!r} twice")
            found[command] = (word, argument)
    return found


class Listed(unittest.TestCase):
    def test_each_command_says_who_runs_it(self):
        known = listed()
        seen = collections.Counter()
        for page in pages():
            for command in commands(page.read_text()):
                seen[command] += 1
                self.assertIn(command, known, f"{page.name}: say in tests/docs/commands.txt who runs this")
        self.assertEqual(sorted(set(known) - set(seen)), [], "these are on no page any more")
        self.assertGreater(len(seen), 50)

    def test_who_is_said_to_run_it_exists(self):
        listing = subprocess.run(["ctest", "--test-dir", BINARY, "-N"], capture_output=True, text=True, check=True).stdout
        tests = {re.sub(r"_\d+$", "", name) for name in re.findall(r"Test\s+#\d+: (\S+)", listing)}
        for command, (kind, argument) in listed().items():
            with self.subTest(command=command):
                self.assertIn(kind, ("run", "test", "script", "not"))
                if kind == "test":
                    self.assertIn(argument, tests)
                elif kind == "script":
                    self.assertTrue((SOURCE / "scripts" / argument).exists())
                elif kind == "not":
                    self.assertTrue(argument, "a reason")

    def test_what_a_script_writes_has_output(self):
        page = (SOURCE / "docs/programs.md").read_text()
        for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            self.assertTrue([line for line in block.splitlines() if not line.startswith("$ ")], block)

    def test_the_help_of_each_program_fits_a_terminal_of_80_columns(self):
        words = [("ddprun",), ("ddprun-curves",), *(("ddprun-checkpoint", *sub) for sub in [(), ("inspect",), ("verify",), ("convert",)])]
        words += [(name,) for name in ("toy_linear", "cifar10", "contrastive", "dcgan", "horovod_style", "image_folder", "imagenet", "unet3d", "text")]
        for name, *rest in words:
            text = subprocess.run([PROGRAMS / name, *rest, "--help"], capture_output=True, text=True, check=True).stdout
            self.assertEqual([line for line in text.splitlines() if len(line) > 80 and not line.startswith("Usage:")], [], name)  # a path in it

    def test_the_files_that_recipes_name_exist(self):
        text = (SOURCE / "CONTRIBUTING.md").read_text()
        recipes = text[text.index("## Add a launcher option") :]
        names = [name for name in re.findall(r"`([a-z]\w*/[\w/.-]+\.\w+)`", recipes) if "/x." not in name]  # x stands for the reader's own
        self.assertGreater(len(names), 60)
        for name in names:
            with self.subTest(file=name):
                self.assertTrue((SOURCE / name).is_file() or (SOURCE / "include" / name).is_file())

    def test_inline_names_exist(self):
        helped = subprocess.run([PROGRAMS / "ddprun", "--help"], capture_output=True, text=True, check=True).stdout
        options = set(re.findall(r"--(\w+)", helped))
        for page in pages():
            prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
            for code in re.findall(r"`([^`\n]+)`", prose):
                with self.subTest(page=page.name, code=code):
                    if match := re.match(r"((?:scripts|tools|bench|tests|examples|cmake)/[\w/.-]*\w)(?=\s|$)", code):
                        self.assertTrue((SOURCE / match[1]).exists())
                    if match := re.match(r"scripts/bench (\w+)", code):
                        self.assertTrue((SOURCE / "bench" / match[1] / "run").exists())
                    if match := re.match(r"ddprun ((?:-\S+ ?)+)", code):
                        for option in re.findall(r"--([\w-]+)", match[1]):
                            self.assertIn(option.replace("-", "_"), options)


class Run(unittest.TestCase):
    """What commands.txt says is run here."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "RANK", "WORLD", "LOCAL_", "MASTER_"))}
        cls.environment = variables | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(cls.folder)}
        (cls.folder / "build").mkdir()
        for name in ("train", "build/train"):
            (cls.folder / name).write_text('#!/bin/sh\necho "trained as rank $RANK of $WORLD_SIZE: $*"\n')
            (cls.folder / name).chmod(0o755)
        program = 'import os, sys\nprint(f"trained as rank {os.environ[\'RANK\']} of {os.environ[\'WORLD_SIZE\']}: {\' \'.join(sys.argv[1:])}")\n'
        (cls.folder / "package").mkdir()
        for name in ("train.py", "package/__init__.py", "package/train.py"):
            (cls.folder / name).write_text("" if "__init__" in name else program)
        cls.train_cifar10()

    @classmethod
    def train_cifar10(cls):
        """Leaves runs/cifar10 with a checkpoint and a curve, step-00001200 and model.pt."""
        cls.shell("cifar10 --epochs 2 --checkpoint-dir runs/cifar10 --tensorboard runs/cifar10")
        step = sorted((cls.folder / "runs/cifar10").glob("step-*"))[-1]
        (cls.folder / "step-00001200").symlink_to(step)
        cls.shell(f"ddprun-checkpoint convert {step} model.pt")

    @classmethod
    def shell(cls, command):
        result = subprocess.run(["bash", "-c", command], cwd=cls.folder, env=cls.environment, stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, timeout=PATIENCE)  # fmt: skip
        if result.returncode != 0:
            raise AssertionError(f"{command}\nended with {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout

    def test_each_does_what_the_page_says(self):
        done = 0
        for command, (kind, _) in listed().items():
            if kind != "run" or command.startswith("ddprun status"):
                continue
            with self.subTest(command=command):
                output = self.shell(re.sub(r"\s*\[.*\]$", "", command))  # without what is optional
                done += 1
                if match := re.search(r"(?:-n |--nproc_per_node=)(\d+)", command):
                    lines = re.findall(r"trained as rank \d+ of (\d+): (.*)", output)
                    arguments = re.search(r"train(?:\.py)?\s*(.*)$", command)[1]
                    self.assertEqual(lines, [(match[1], arguments)] * int(match[1]), output)
        self.assertGreater(done, 10)
        for made in ("curves.png", "run.pt", "model.safetensors"):
            self.assertTrue((self.folder / made).stat().st_size > 0, made)

    def test_status_shows_a_job(self):
        job = subprocess.Popen([PROGRAMS / "ddprun", "--rdzv_id", "cifar", "sleep", "600"], cwd=self.folder, env=self.environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            end = time.monotonic() + PATIENCE
            while subprocess.run([PROGRAMS / "ddprun", "status", "cifar"], env=self.environment, capture_output=True).returncode != 0:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
            for command, (kind, _) in listed().items():
                if kind == "run" and command.startswith("ddprun status"):
                    with self.subTest(command=command):
                        self.assertIn("cifar", self.shell(command))
        finally:
            job.terminate()
            job.wait()


class Finding(unittest.TestCase):
    def test_commands_are_found_where_they_stand(self):
        text = "```sh\nscripts/demo     # this\n```\n\n    ddprun -n 2 ./a # two\n    ddprun: it failed\n\n```console\n$ b --c\nsaid b\n```\n```text\nscripts/no\n```\n"
        self.assertEqual(list(commands(text)), ["scripts/demo", "ddprun -n 2 ./a", "b --c"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
