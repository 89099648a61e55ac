"""Jobs whose ranks write sharded checkpoints are killed with SIGKILL, one rank, all of them or the launcher, at random instants, and
started again: whatever is listed is whole, no saved step is lost, and the end has the bits of a run that nobody disturbed. KILLS says
how often. Arguments: ddprun, sharded_kill_program, ddprun-checkpoint."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

DDPRUN, PROGRAM, TOOL = sys.argv[1:4]
RANKS, STEPS = 3, 40
HANG = 600  # seconds; a busy disk needs a minute for an undisturbed run


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Job:
    def __init__(self, folder, mode):
        self.folder = folder
        for file in folder.glob("rank-*.pid"):
            file.unlink()
        self.process = subprocess.Popen(
            [DDPRUN, f"--nproc_per_node={RANKS}", "-x", "OMP_NUM_THREADS=1", PROGRAM, folder, str(STEPS), mode],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.saved, self.final = 0, None
        self.has_saved = threading.Event()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            words = line.split()
            if "saved" in words:
                self.saved = int(words[-1])
                self.has_saved.set()
            elif "final" in words:
                self.final = int(words[-1])

    def ranks(self):
        return [int(text) for file in sorted(self.folder.glob("rank-*.pid")) if (text := file.read_text().strip())]

    def kill(self, what):
        ranks = self.ranks()
        victims = {"rank": [random.choice(ranks)] if ranks else [], "ranks": ranks, "launcher": [self.process.pid]}[what]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait(self):
        """Until no process of the job is left."""
        self.process.wait(HANG)
        end = time.monotonic() + HANG
        while any(is_alive(pid) for pid in self.ranks()):
            assert time.monotonic() < end, "ranks outlive the job"
            time.sleep(0.01)
        self.reader.join(HANG)


def steps_of(folder):
    return sorted(int(entry.name[5:]) for entry in (folder / "run").glob("step-????????"))


def verify(folder):
    if not steps_of(folder):
        return
    result = subprocess.run([TOOL, "verify", folder / "run"], capture_output=True, text=True, timeout=HANG)
    assert result.returncode == 0, result.stdout + result.stderr


def main():
    kills = int(os.environ.get("KILLS", "12"))
    random.seed(int(os.environ.get("SEED", "1")))
    for mode in ("now", "async"):
        with tempfile.TemporaryDirectory() as undisturbed:
            job = Job(pathlib.Path(undisturbed), mode)
            job.wait()
            assert job.process.returncode == 0 and job.final is not None
            expected = job.final
        done = 0
        while done < kills // 2:
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                newest = 0
                while True:
                    job = Job(folder, mode)
                    if done < kills // 2:
                        job.has_saved.wait(HANG)
                        time.sleep(random.random() * 0.3)
                        is_running = job.process.poll() is None
                        job.kill(random.choice(["rank", "ranks", "launcher"]))
                        done += is_running
                    job.wait()
                    verify(folder)
                    steps = steps_of(folder)
                    # An asynchronous save is on disk when the next one has begun.
                    least = max(newest, job.saved - (mode == "async"))
                    newest = steps[-1] if steps else 0  # the first asynchronous save may not have ended
                    assert newest >= least, f"{mode}: step {least} was saved, but {steps} are there"
                    if job.final is not None:
                        assert job.final == expected, f"{mode}: the end has other bits than the undisturbed run's"
                        break
        print(f"{mode}: {done} kills", flush=True)


main()
