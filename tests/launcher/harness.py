"""Runs the ddprun under test and finds every process that belongs to a test, by a mark in its environment."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from free_port import free_port  # noqa: E402, F401

DDPRUN = os.environ["DDPRUN"]
# CTest sets it for every test; a user's shell does not.
os.environ.pop("OMP_NUM_THREADS", None)
# A shell's background processes begin with these ignored, and so would every job.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
PATIENCE = 180.0  # seconds until a condition that should come true soon is given up


def wait_until(condition, what, patience=PATIENCE):
    """Returns the first true value of condition()."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience} s: {what}")
        time.sleep(0.002)


def process_state(pid):
    """The state letter of /proc/<pid>/stat, None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return chr(file.read().rsplit(b") ", 1)[1][0])
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_running(pid):
    return process_state(pid) not in (None, "Z", "X")


def open_sockets():
    """Inodes of all sockets of this network namespace that a process has open, listening ones among them."""
    found = set()
    for table, column in (("tcp", 9), ("tcp6", 9), ("udp", 9), ("udp6", 9), ("unix", 6)):
        with contextlib.suppress(OSError), open(f"/proc/net/{table}", encoding="utf-8", errors="replace") as file:
            found.update(int(line.split()[column]) for line in file.readlines()[1:])
    return found - {0}  # those that only wait for their time to be over belong to nobody


def processes_with(mark):
    """Pids of all living processes whose environment holds the text."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read() and is_running(int(name)):
                    found.append(int(name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            pass
    return found


class Job:
    """One ddprun. `arguments` are its own and the program's; workers find `folder` as DDPRUN_TEST_FOLDER."""

    def __init__(self, arguments, folder, environment=None, program=DDPRUN, **popen):
        self.mark = "DDPRUN_TEST_MARK=" + uuid.uuid4().hex
        variables = dict(os.environ)
        for name in [name for name in variables if name.startswith(("PET_", "TORCHELASTIC_"))]:
            del variables[name]
        variables.pop("CUDA_VISIBLE_DEVICES", None)
        variables["DDPRUN_TEST_FOLDER"] = folder
        variables.update(environment or {})
        name, value = self.mark.split("=")
        variables[name] = value
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("stdout", subprocess.PIPE)
        popen.setdefault("stderr", subprocess.PIPE)
        self.process = subprocess.Popen([program] + list(arguments), env=variables, **popen)

    def members(self):
        """Pids of all living processes of this job, ddprun's own included."""
        return processes_with(self.mark)

    def sockets(self):
        """Inodes of all sockets that its processes have now."""
        found = set()
        for pid in self.members():
            with contextlib.suppress(OSError):
                for name in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        target = os.readlink(f"/proc/{pid}/fd/{name}")
                        if target.startswith("socket:["):
                            found.add(int(target[8:-1]))
        return found

    def children_of(self, pid):
        found = []
        for member in self.members():
            with contextlib.suppress(OSError, IndexError):
                with open(f"/proc/{member}/stat", "rb") as file:
                    if int(file.read().rsplit(b") ", 1)[1].split()[1]) == pid:
                        found.append(member)
        return found

    def sweeper(self):
        return wait_until(lambda: self.children_of(self.process.pid), "the sweeping process")[0]

    def supervisor(self):
        return wait_until(lambda: self.children_of(self.sweeper()), "the supervising process")[0]

    def signal(self, number):
        os.kill(self.process.pid, number)

    def finish(self, patience=PATIENCE):
        """Waits for the end; returns (exit status, stdout, stderr), as text with any byte kept."""
        out, err = self.process.communicate(timeout=patience)
        decode = lambda data: None if data is None else data.decode("utf-8", "surrogateescape")
        return self.process.returncode, decode(out), decode(err)

    def clean_up(self):
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


class LauncherTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ddprun_test_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, *arguments, **options):
        job = Job(arguments, self.folder, **options)
        self.addCleanup(job.clean_up)
        return job

    def run_job(self, *arguments, patience=PATIENCE, **options):
        return self.start(*arguments, **options).finish(patience)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, executable=False):
        """Programs that wait for the file see it whole."""
        unfinished = self.path(f"{name}.unfinished")
        with open(unfinished, "w", encoding="utf-8") as file:
            file.write(text)
        if executable:
            os.chmod(unfinished, 0o755)
        os.replace(unfinished, self.path(name))
        return self.path(name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8", errors="surrogateescape") as file:
            return file.read()

    def wait_for_files(self, *names):
        for name in names:
            wait_until(lambda name=name: os.path.exists(self.path(name)), f"file {name}")

    def assert_nothing_left(self, job):
        self.assertEqual(job.members(), [], "processes were left behind")

    def assert_closed(self, sockets):
        """What a job had open, which has ended."""
        wait_until(lambda: not sockets & open_sockets(), "the end of its sockets")


def shell(script):
    """A worker: a shell that runs `script`, with the test's folder as its working folder."""
    return ("sh", "-c", 'cd "$DDPRUN_TEST_FOLDER" || exit 99\n' + script)


main = unittest.main
