"""Nothing is left, neither a process nor a folder, whatever is killed: KILLS times (100) something at random at a random
time. SEED repeats a run."""

import concurrent.futures
import contextlib
import os
import random
import signal
import subprocess
import tempfile
import threading
import unittest

from harness import LauncherTest, main, wait_until

KILLS = int(os.environ.get("KILLS", "100"))
SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
AT_ONCE = 4
# Every rank has a helper in its group, one in a session of its own and a daemon, some of which ignore TERM.
PROGRAM = """
    $TRAP
    sh -c '$TRAP; exec sleep 1000' &
    setsid sh -c '$TRAP; exec sleep 1000' &
    (setsid sh -c 'sleep 1000 & sleep 1000' &)
    [ $FAILS = 1 ] && [ $RANK = 0 ] && [ $TORCHELASTIC_RESTART_COUNT != 2 ] && { sleep 0.02; exit 7; }
    [ $FLOODS = 1 ] && exec yes yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy
    exec sleep 1000
"""
VICTIMS = ("guardian", "sweeper", "supervisor", "guardian and supervisor", "guardian and sweeper", "sweeper and supervisor",
           "rank", "helper", "anything", "name")


class Case:
    """One job, and what happens to it."""

    def __init__(self, number):
        self.random = random.Random(f"{SEED} {number}")
        chance = lambda probability: int(self.random.random() < probability)
        self.victims = self.random.choice(VICTIMS)
        self.delay = self.random.choice((0, 0.01, 0.03, 0.1, 0.2)) * self.random.random()
        self.is_unread = chance(0.4)
        self.is_stopped_before = chance(0.3)
        self.ranks = self.random.choice((1, 2, 3))
        self.variables = {"FAILS": str(chance(0.3)), "FLOODS": str(chance(0.5)),
                          "TRAP": self.random.choice((":", 'trap "" TERM'))}
        self.text = f"case {number} of seed {SEED}: {vars(self)}"

    def arguments(self):
        options = ["-n", str(self.ranks), "--grace", "0.2"]
        if self.variables["FAILS"] == "1":
            options += ["--max-restarts", "2", "--restart-backoff", self.random.choice(("0", "0.05"))]
        return options + ["sh", "-c", PROGRAM.replace("$TRAP", self.variables["TRAP"])]

    def chosen(self, job):
        """The processes to kill, those that there are by now."""
        members = job.members()
        child = lambda pid: (job.children_of(pid) or [None])[0] if pid else None
        guardian = job.process.pid
        sweeper = child(guardian)
        supervisor = child(sweeper)
        named = {"guardian": guardian, "sweeper": sweeper, "supervisor": supervisor}
        if self.victims == "name":  # as killall does it
            return [pid for pid in members if name_of(pid) == "ddprun"]
        if self.victims not in ("rank", "helper", "anything"):
            return [named[name] for name in self.victims.split(" and ") if named[name]]
        ranks = job.children_of(supervisor) if supervisor else []
        others = [pid for pid in members if pid not in ranks and pid not in named.values()]
        groups = {"rank": ranks, "helper": others, "anything": members}
        found = groups[self.victims]
        return self.random.sample(found, min(len(found), self.random.choice((1, 1, 2)))) if found else []


def name_of(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    return None


def describe(pid):
    """Number, parent and name."""
    with contextlib.suppress(OSError, TypeError):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return f"{pid} below {file.read().rsplit(') ', 1)[1].split()[1]} {name_of(pid)}"
    return f"{pid} gone"


class RandomKills(LauncherTest):
    def run_case(self, number):
        case = Case(number)
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch, contextlib.ExitStack() as cleanups:
            output = subprocess.DEVNULL
            if case.is_unread:
                reader, output = os.pipe()
                cleanups.callback(os.close, reader)
                cleanups.callback(os.close, output)
            with self.lock:
                job = self.start(*case.arguments(), stdout=output, stderr=output,
                                 environment={"TMPDIR": scratch, **case.variables})
            pause = threading.Event()
            pause.wait(case.delay)
            if case.is_stopped_before:
                self.kill([job.process.pid], signal.SIGTERM)
                pause.wait(0.1 * case.random.random())
            chosen = case.chosen(job)
            case.random.shuffle(chosen)
            case.text += f"; killed: {[describe(pid) for pid in chosen]} of {[describe(pid) for pid in job.members()]}"
            for pid in chosen:
                self.kill([pid], signal.SIGKILL)
                pause.wait(case.random.choice((0, 0.002 * case.random.random())))
            # A rank that went is a failure, a helper is nothing: then the job is ended as a user would.
            pause.wait(0.05 * case.random.random())
            self.kill([job.process.pid], signal.SIGTERM)
            try:
                job.process.wait(30)
                wait_until(lambda: not job.members() and os.listdir(scratch) == [], "an end without leftovers", 30)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                left = [describe(pid) for pid in job.members()]
                raise AssertionError(f"{error}\nleft: {left} {os.listdir(scratch)}\n{case.text}") from error
            finally:
                job.clean_up()

    def kill(self, pids, number):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def test_nothing_is_left(self):
        self.lock = threading.Lock()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for done in concurrent.futures.as_completed([pool.submit(self.run_case, n) for n in range(KILLS)]):
                done.result()


if __name__ == "__main__":
    main()
