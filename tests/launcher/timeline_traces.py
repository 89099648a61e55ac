"""What timelines of jobs are looked at with."""

import collections
import contextlib
import json
import os
import signal
import subprocess
import time

from harness import DDPRUN, LauncherTest

PROGRAM = os.environ["TIMED_PROGRAM"]
TOOL = os.environ["TIMELINE_TOOL"]


class Traces(LauncherTest):
    """What is in timelines."""

    def setUp(self):
        super().setUp()
        self.file = self.path("trace.json")
        self.variables = {"XDG_RUNTIME_DIR": self.folder}

    def trace(self, file=None):
        """Of a running job it may be met in the middle of a write, but not for long."""
        for last in (False, False, True):
            try:
                with open(file or self.file, encoding="utf-8") as source:
                    return json.load(source)
            except json.JSONDecodeError:
                if last:
                    raise
                time.sleep(0.1)

    def slices(self, file=None, **wanted):
        return [event for event in self.trace(file)["traceEvents"]
                if event["ph"] == "X" and all(event.get(key) == value for key, value in wanted.items())]

    def events(self, file=None):
        """All but what only names ranks and lanes."""
        return [event for event in self.trace(file)["traceEvents"] if event["ph"] != "M"]

    def explain(self, *words):
        return subprocess.run([TOOL, *(words or (self.file,))], capture_output=True, text=True, timeout=60)

    def lost(self):
        return sum(self.trace()["ddprun"]["lost_events"].values())

    def check_lanes(self, file=None):
        """Within a lane, slices lie within each other or beside each other."""
        lanes = collections.defaultdict(list)
        for event in self.slices(file):
            begin = round(event["ts"] * 1000)
            lanes[event["pid"], event["tid"]].append((begin, -(begin + round(event["dur"] * 1000)), event["name"]))
        for lane in lanes.values():
            stack = []
            for begin, end, name in sorted(lane):
                while stack and -stack[-1] <= begin:
                    stack.pop()
                if stack:
                    self.assertLessEqual(-end, -stack[-1], name)
                stack.append(end)


class Recordings(Traces):
    """Of jobs that ddprun records."""

    def begin(self, *options, kind=("for_ever",), ranks=2, **more):
        job = self.start("-n", str(ranks), "--no_prefix", *options, PROGRAM, self.folder, *kind,
                         environment=dict(self.variables, **more))
        return job

    def record(self, *options, kind=("steps", "20"), ranks=2, **more):
        status, out, err = self.begin("--timeline", self.file, *options, kind=kind, ranks=ranks, **more).finish()
        self.assertEqual(status, 0, err)
        return out, err

    def wait_for_training(self, job):
        self.assertIn(b"trains", job.process.stdout.readline())

    def kill(self, pids):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def ranks_of(self, job):
        found = []
        for pid in job.members():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().startswith(PROGRAM.encode() + b"\0"):
                    found.append(pid)
        return found

    def ask(self, *words):
        done = subprocess.run([DDPRUN, "timeline", *words], env=dict(os.environ, **self.variables), capture_output=True,
                              text=True, timeout=60, cwd=self.folder)
        return done.returncode, done.stdout + done.stderr
