"""What the tests of the larger programs share: their twins in Python, losses step by step, a job that is killed."""

import csv
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time

from support import DDPRUN, PATIENCE, PROGRAM, ExampleTest, read_bytes, read_safetensors

PYTHON = os.environ.get("TORCH_PYTHON") or None
HERE = pathlib.Path(__file__).resolve().parent
# Not image_folder's file of initial weights, which comes before any.
CHECKPOINT = re.compile(r"step-\d+$|line\.safetensors$")
EXAMPLES = HERE.parent.parent / "examples"


def losses(path):
    with open(path, newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def run_in_host(test, ranks, *command):
    """Runs a Python script as twin_host.py says and answers; the host is the class's, started when it is needed first."""
    cls = type(test)
    if not hasattr(cls, "host"):
        cls.host = subprocess.Popen([PYTHON, "-B", HERE / "twin_host.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                    env=test.settings({"OMP_NUM_THREADS": "1"})["env"])
        cls.addClassCleanup(cls.host.communicate)
    words = [str(word) for word in command]
    print(json.dumps({"ranks": ranks, "command": words, "folder": test.folder, "limit_s": PATIENCE}), file=cls.host.stdin, flush=True)
    return json.loads(cls.host.stdout.readline() or '{"status": 1, "output": "", "error": "it ended"}')


class ProgramTest(ExampleTest):
    """Of a program that has a `<name>_twin.py` here."""

    def twin(self, ranks, name, *arguments):
        """The lines that the twin prints. Skips the test where there is no Python with torch."""
        if PYTHON is None:
            self.skipTest("LibTorch is not part of a Python installation")
        result = run_in_host(self, ranks, HERE / f"{name}_twin.py", *arguments)
        if "ModuleNotFoundError" in result["error"]:
            self.skipTest(result["error"].splitlines()[-1])
        self.assertEqual(result["status"], 0, result["error"])
        return result["output"].splitlines()

    def check_close(self, ours, expected, tolerance, least=20):
        """Losses, step by step; relative to those that are above 1."""
        self.assertGreaterEqual(len(ours), least)
        self.assertEqual(len(ours), len(expected))
        for step, (a, b) in enumerate(zip(ours, expected)):
            self.assertLess(abs(a - b) / max(1.0, abs(b)), tolerance, f"step {step}: {a} and {b}")

    def check_same_weights(self, ours, expected):
        ours, expected = read_safetensors(ours), read_safetensors(expected)
        self.assertEqual(sorted(ours), sorted(expected))
        for name, values in expected.items():
            self.assertEqual(ours[name], values, name)

    def recorded(self, name, seed=True):
        """Options that write each step's loss into a table; with a seed for a run that begins, without for one that is resumed, which
        keeps it."""
        return (*(("--seed", "7") if seed else ()), "--step-losses", self.path(f"{name}.csv"))

    def check_same_losses(self, ours, expected):
        """Of two runs, each step once."""
        self.assertEqual(read_bytes(self.path(f"{ours}.csv")), read_bytes(self.path(f"{expected}.csv")))

    def kill_at_random(self, ranks, folder, *arguments):
        """Starts the program, and kills all of it when a checkpoint is there and a random time after it; anew, and sooner,
        where it had ended by then."""
        for part in (1, 0.5, 0.2, 0):
            if self.kill_within(part, ranks, folder, *arguments):
                return
            shutil.rmtree(self.path(folder))
        self.fail("the job was over each time before it was killed")

    def kill_at_each_save(self, ranks, folder, *arguments):
        """Runs the program to its end, and kills it as soon as there is a new checkpoint, again and again."""
        os.makedirs(self.path(folder), exist_ok=True)
        latest = pathlib.Path(self.path(folder, "latest"))
        settings = self.settings()
        settings.update(stdout=subprocess.DEVNULL)
        command = [DDPRUN, "--nproc_per_node", str(ranks), PROGRAM, *(str(argument) for argument in arguments), "--resume"]
        kills = 0
        while True:
            before = read_bytes(latest) if latest.exists() else b""
            with subprocess.Popen(command, **settings) as job:
                while job.poll() is None and (not latest.exists() or read_bytes(latest) == before):
                    time.sleep(0.0005)
                job.send_signal(signal.SIGKILL)
                error = job.stderr.read()
            if job.returncode != -signal.SIGKILL:
                self.assertEqual(job.returncode, 0, error)
                return kills
            kills += 1
            self.wait_for_free(folder)

    def kill_within(self, part, ranks, folder, *arguments):
        """True if it was still running."""
        os.makedirs(self.path(folder), exist_ok=True)
        settings = self.settings()
        settings.update(stdout=subprocess.DEVNULL)
        command = [DDPRUN, "--nproc_per_node", str(ranks), PROGRAM, *(str(argument) for argument in arguments)]
        begin = time.monotonic()
        with subprocess.Popen(command, **settings) as job:
            while job.poll() is None and not any(map(CHECKPOINT.match, os.listdir(self.path(folder)))):
                self.assertLess(time.monotonic() - begin, PATIENCE, "no checkpoint ever came")
                time.sleep(0.01)
            first = time.monotonic() - begin
            # A random moment is what is tested: some part of an epoch, of a save, of an evaluation.
            time.sleep(random.uniform(0, part * first))
            was_running = job.poll() is None
            job.send_signal(signal.SIGKILL)  # its other processes end the ranks
            job.stderr.read()  # to its end, which is that of the last of them
        return was_running

    def wait_for_free(self, folder):
        """Until nobody holds the checkpoints' lock."""
        import fcntl

        begin = time.monotonic()
        with open(self.path(folder, "writer.lock"), "r+") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    self.assertLess(time.monotonic() - begin, PATIENCE, "the killed job's ranks never ended")
                    time.sleep(0.01)
