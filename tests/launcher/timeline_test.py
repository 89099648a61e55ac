"""`ddprun --timeline`: what all ranks do and when, in one file that is valid whatever happens."""

import collections
import contextlib
import json
import os
import re
import signal
import subprocess
import time
import unittest

from elastic_nodes import ElasticTest, free_port
from harness import DDPRUN, LauncherTest, is_running, wait_until

PROGRAM = os.environ["TIMED_PROGRAM"]
TOOL = os.environ["TIMELINE_TOOL"]
WATCHED = os.environ["WATCHED_PROGRAM"]


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


class Timeline(Traces):
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

    # What is in it.

    def test_all_ranks_and_all_kinds_of_events_are_in_one_file(self):
        self.record()
        for rank in (0, 1):
            names = collections.Counter(event["name"] for event in self.slices(pid=rank))
            self.assertEqual((names["forward"], names["attention"], names["all_reduce"]), (20, 20, 20))
            self.assertEqual(sum(count for name, count in names.items() if name.startswith("step ")), 20)
            numbers = [event["args"]["number"] for event in self.slices(pid=rank, name="all_reduce")]
            self.assertEqual(sorted(numbers), list(range(20)))
        names = {event["args"]["name"] for event in self.trace()["traceEvents"] if event["name"] == "thread_name"}
        self.assertLessEqual({"main thread", "steps", "collectives"}, names)
        self.assertEqual(len([event for event in self.trace()["traceEvents"] if event["name"] == "loss"]), 40)
        self.assertEqual(self.lost(), 0)
        self.check_lanes()
        done = subprocess.run([TOOL, self.file], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"20 steps, from 0 to 19; a step takes ")

    def test_only_the_steps_that_were_asked_for_are_recorded(self):
        self.record("--timeline_steps", "5:8")
        self.assertEqual({event["args"]["step"] for event in self.slices(cat="step")}, {5, 6, 7})
        self.assertEqual(len(self.slices(name="forward")), 6)

    def test_without_the_option_nothing_is_written(self):
        status, _, err = self.begin(kind=("steps", "5")).finish()
        self.assertEqual(status, 0, err)
        self.assertFalse(os.path.exists(self.file))

    def test_hostile_names_are_valid_json(self):
        self.record(kind=("names",))
        names = [event["name"] for event in self.slices(pid=0)]
        self.assertIn('quote " and \\ back', names)
        self.assertIn("line\nbreak\ttab", names)
        self.assertIn("nul\ufffdbyte", names)
        self.assertIn("x" * 160, names)
        self.assertEqual(len(names), 8)
        self.assertEqual(subprocess.run([TOOL, self.file, "--svg", self.path("x.svg")], capture_output=True, timeout=60).returncode, 0)

    def test_a_job_without_steps_or_events_has_a_valid_file(self):
        self.record(kind=("idle",))
        self.assertEqual(self.slices(), [])
        status, _, _ = self.start("--timeline", self.file, "true", environment=self.variables).finish()
        self.assertEqual(status, 0)
        self.assertEqual(self.slices(), [])

    def test_restarts_are_in_the_same_file(self):
        script = self.write("job.sh", f"#!/bin/sh\n{PROGRAM} {self.folder}/$TORCHELASTIC_RESTART_COUNT steps 5\n"
                            "[ $TORCHELASTIC_RESTART_COUNT = 1 ]\n", executable=True)
        for attempt in ("0", "1"):
            os.mkdir(self.path(attempt))
        status, _, err = self.start("-n", "2", "--max_restarts", "1", "--timeline", self.file, script, environment=self.variables).finish()
        self.assertEqual(status, 0, err)
        self.assertEqual(len(self.slices(name="forward", pid=0)), 10)
        self.check_lanes()
        self.assertIn("10 steps, from 0 to 4, of restart 1 from 0 to 4; a step takes ", self.explain().stdout)

    def test_a_timeline_of_the_programs_own_keeps_what_was_before_a_restart_under_any_launcher(self):
        script = self.write("job.sh", f"#!/bin/sh\nfolder={self.folder}/$1\nmkdir -p $folder/$TORCHELASTIC_RESTART_COUNT\n"
                            f"cd $folder/$TORCHELASTIC_RESTART_COUNT && {PROGRAM} . own 5 ../own.json || exit 9\n"
                            # Whoever fails first ends the other, which must have written all it has.
                            "touch done.$RANK; until [ -e done.0 ] && [ -e done.1 ]; do sleep 0.05; done\n"
                            "[ $TORCHELASTIC_RESTART_COUNT = 1 ]\n", executable=True)
        commands = {"ddprun": [DDPRUN, "-n", "2", "--max_restarts", "1", script, "ddprun"]}
        if "TORCH_PYTHON" in os.environ:
            commands["torchrun"] = [os.environ["TORCH_PYTHON"], "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts",
                                    "1", "--monitor-interval", "0.1", "--no-python", script, "torchrun"]
        for launcher, command in commands.items():
            folder = self.path(launcher)
            os.mkdir(folder)
            done = subprocess.run(command, env=dict(os.environ, **self.variables), capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            files = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
            self.assertEqual(files, ["own.rank0.json", "own.rank0.restart1.json", "own.rank1.json", "own.rank1.restart1.json"])
            files = [os.path.join(folder, name) for name in files]
            for file in files:
                self.assertEqual(len(self.slices(file, name="forward")), 5)
            done = self.explain("merge", "-o", self.file, *files)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout, f"{self.file}: {len(self.events())} events\n")
            self.check_lanes()
            self.assertIn("10 steps, from 0 to 4, of restart 1 from 0 to 4; a step takes ", self.explain().stdout)

    def test_of_a_python_job_is_said_that_nothing_is_seen(self):
        script = self.write("train.py", "import os\nprint(f\"rank {os.environ['RANK']}\\n\", end='')\n")
        status, out, err = self.start("-n", "2", "--no_prefix", "--timeline", self.file, script, environment=self.variables).finish()
        self.assertEqual(status, 0, err)
        self.assertEqual(sorted(out.splitlines()), ["rank 0", "rank 1"])
        self.assertEqual(err.count(f"the timeline in {self.file} is empty: no rank has told anything"), 1, err)
        self.assertEqual(self.slices(), [])
        done = self.explain()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no rank did anything that it told", done.stdout)

    # More than there is room for.

    def test_a_million_ranges_in_a_second_are_recorded_or_counted(self):
        out, _ = self.record(kind=("ranges", "1000"), ranks=1)
        count = int(out.split()[1])
        self.assertEqual(len(self.slices(name="short")) + self.lost(), count)
        self.check_lanes()

    def test_more_threads_than_lanes_are_counted(self):
        self.record(kind=("threads", "200"), ranks=1)
        self.assertEqual(len(self.slices(name="work")) + self.lost(), 200)
        self.assertGreaterEqual(len(self.slices(name="work")), 64)

    def test_sixteen_ranks(self):
        self.record(ranks=16)
        self.assertEqual(len(self.slices(name="forward")), 16 * 20)
        self.check_lanes()

    # Whoever is killed.

    def test_what_a_killed_rank_had_recorded_is_there(self):
        job = self.begin("--timeline", self.file)
        self.wait_for_training(job)
        self.kill(self.ranks_of(job)[:1])
        self.assertNotEqual(job.finish()[0], 0)
        self.assertGreaterEqual(len(self.slices(name="forward", pid=0)), 3)
        self.assertGreaterEqual(len(self.slices(name="forward", pid=1)), 3)
        self.assertTrue([event for event in self.slices() if event.get("args", {}).get("unfinished")])
        self.check_lanes()

    def test_a_job_that_is_ended_by_a_signal_leaves_a_valid_file(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            job = self.begin("--timeline", self.file)
            self.wait_for_training(job)
            job.signal(number)
            job.finish()
            self.assertGreaterEqual(len(self.slices(name="forward")), 6)
            os.remove(self.path("meeting"))

    def test_a_killed_supervisor_leaves_a_valid_file(self):
        for _ in range(5):
            job = self.begin("--timeline", self.file)
            self.wait_for_training(job)
            wait_until(lambda: os.path.getsize(self.file) > 4000, "events in the file")
            self.kill([job.supervisor()])
            job.finish()
            self.assertTrue(self.slices(name="forward"))
            os.remove(self.path("meeting"))

    def test_when_everything_is_killed_the_file_can_be_read(self):
        job = self.begin("--timeline", self.file)
        self.wait_for_training(job)
        wait_until(lambda: os.path.getsize(self.file) > 4000, "events in the file")
        self.kill(job.members())
        job.process.wait()
        done = subprocess.run([TOOL, self.file], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_stopped_ddprun_holds_up_no_rank(self):
        job = self.begin("--timeline", self.file, kind=("steps", "400"))
        self.wait_for_training(job)
        supervisor = job.supervisor()
        ranks = self.ranks_of(job)
        os.kill(supervisor, signal.SIGSTOP)
        # They end, and wait for nobody but their parent.
        wait_until(lambda: not any(is_running(pid) for pid in ranks), "the end of the ranks")
        os.kill(supervisor, signal.SIGCONT)
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)
        self.assertEqual(len(self.slices(name="forward")) + len(self.slices(name="attention")) + self.lost() > 1000, True)

    # Files that cannot be written.

    def refuse(self, file, text, *options):
        status, _, err = self.run_job("--timeline", file, *options, "true", environment=self.variables)
        self.assertEqual(status, 125, err)
        self.assertIn(text, err)
        self.assertEqual(len(err.splitlines()), 1, err)

    def test_a_file_that_cannot_be_written_is_refused_at_once(self):
        self.refuse(self.folder, f"--timeline {self.folder}: Is a directory")
        self.refuse(self.path("no/such.json"), "No such file or directory")
        self.refuse("/dev/null", "no regular file")

    def test_two_jobs_do_not_write_one_file(self):
        job = self.begin("--timeline", self.file)
        self.wait_for_training(job)
        self.refuse(self.file, "another job writes its timeline there")
        job.signal(signal.SIGTERM)
        job.finish()
        self.assertTrue(self.slices())

    def test_a_relative_path_is_ddpruns(self):
        status, _, err = self.start("--timeline", "here.json", "--wdir", "/", PROGRAM, self.folder, "steps", "3",
                                    environment=self.variables, cwd=self.folder).finish()
        self.assertEqual(status, 0, err)
        self.assertEqual(len(self.slices(self.path("here.json"), name="forward")), 3)

    def test_a_full_disk_ends_the_timeline_and_not_the_training(self):
        disk = self.path("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        try:
            self.file = os.path.join(disk, "trace.json")
            out, err = self.record(kind=("steps", "300"))
            self.assertIn(f"the timeline in {self.file} ends here: No space left on device", err)
            self.assertEqual(err.count("ends here"), 1)
            self.assertTrue(self.slices(name="forward"))
        finally:
            subprocess.run(["umount", "-l", disk], check=False)

    def test_without_room_no_file_is_left_and_the_job_goes_on(self):
        disk = self.path("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        try:
            with contextlib.suppress(OSError), open(os.path.join(disk, "full"), "wb", 0) as full:
                while True:
                    full.write(bytes(4096))
            job = self.begin()
            self.wait_for_training(job)
            status, text = self.ask("start", "-o", os.path.join(disk, "trace.json"))
            self.assertEqual(status, 1)
            self.assertIn("No space left on device", text)
            self.assertEqual(os.listdir(disk), ["full"])
            self.assertEqual(self.ask("start", "-o", self.file)[0], 0)
        finally:
            subprocess.run(["umount", "-l", disk], check=False)

    def test_a_file_that_is_removed_or_emptied_ends_the_timeline_and_stop_says_so(self):
        job = self.begin()
        self.wait_for_training(job)
        for change, text in [(os.remove, "somebody has removed it"), (lambda file: os.truncate(file, 0), "somebody else has written to it")]:
            self.assertEqual(self.ask("start", "-o", self.file)[0], 0)
            wait_until(lambda: self.slices(name="forward"), "events in the file")
            change(self.file)
            status, out = self.ask("stop")
            self.assertEqual((status, out), (1, f"ddprun: the timeline in {self.file} has ended: {text}\n"))
        self.assertEqual(self.ask("start", "-o", self.file)[0], 0)
        wait_until(lambda: self.slices(name="forward"), "events in the file")
        self.assertEqual(self.ask("stop")[0], 0)

    def record_some(self, file):
        status, text = self.ask("start", "-o", file)
        self.assertEqual(status, 0, text)
        time.sleep(0.3)
        status, text = self.ask("stop")
        self.assertEqual(status, 0, text)
        return text

    def test_further_recordings_know_the_threads_and_spoil_no_earlier_one(self):
        job = self.begin()
        self.wait_for_training(job)
        first, second, moved, link = (self.path(name + ".json") for name in ("first", "second", "moved", "link"))
        for file in (first, second):
            self.record_some(file)
            self.assertFalse([event for event in self.trace(file)["traceEvents"] if event.get("tid") == 0], file)
            names = [event["args"]["name"] for event in self.trace(file)["traceEvents"] if event["name"] == "thread_name"]
            self.assertEqual(names.count("main thread"), 2)
        # The last one is gone on with, also by a link; the first one is neither overwritten nor gone on with.
        before = len(self.events(second))
        os.symlink(second, link)
        self.record_some(link)
        self.assertGreater(len(self.events(second)), before)
        before = len(self.events(first))
        status, text = self.ask("start", "-o", first)
        self.assertEqual((status, text), (1, f"ddprun: {first} has an earlier recording of this job; name another file\n"))
        self.assertEqual(len(self.events(first)), before)
        # What is moved away stays as it is, and a new file comes.
        os.rename(second, moved)
        before = os.path.getsize(moved)
        self.record_some(second)
        self.assertEqual(os.path.getsize(moved), before)
        self.assertTrue(self.slices(second, name="forward"))
        # Removed or replaced by the user's.
        os.remove(second)
        self.record_some(second)
        self.assertTrue(self.slices(second, name="forward"))
        with open(second, "a", encoding="utf-8") as file:
            file.write("junk\n")
        self.assertIn("has an earlier recording", self.ask("start", "-o", second)[1])
        self.assertEqual(self.ask("start", "-o", self.file)[0], 0)
        os.rename(self.file, moved)
        self.assertRegex(self.ask("stop")[1], rf"stopped; {moved} has \d+ events\n")

    def test_a_file_that_is_not_written_any_more_is_let_go(self):
        job = self.begin("--rdzv_id", "first")
        self.wait_for_training(job)
        self.record_some(self.file)
        supervisor = job.supervisor()
        self.assertNotIn(self.file, [os.readlink(f"/proc/{supervisor}/fd/{fd}") for fd in os.listdir(f"/proc/{supervisor}/fd")
                                     if os.path.lexists(f"/proc/{supervisor}/fd/{fd}")])

    def test_where_nothing_is_recorded_it_is_said_why(self):
        _, err = self.record("--timeline_steps", "5000:")
        self.assertIn(f"the timeline in {self.file} is empty: no rank came to step 5000; there were 20", err)
        done = subprocess.run(["bash", "-c", 'ulimit -f 1000; exec "$@"', "-", DDPRUN, "-n", "2", "--timeline", self.file, PROGRAM, self.folder,
                               "steps", "20"], env=dict(os.environ, **self.variables), capture_output=True, text=True, timeout=180)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nothing of ranks 0 and 1 is recorded: there is no memory for it", done.stderr)
        self.assertNotIn("is empty", done.stderr)

    def test_two_jobs_of_one_name_are_told_apart_by_their_processes(self):
        jobs = [self.start("--rdzv_id", "same", "sleep", "60", environment=self.variables) for _ in range(2)]
        wait_until(lambda: "name one by ddprun's process number" in self.ask("start", "same", "-o", self.file)[1], "two jobs")
        self.assertEqual(self.ask("start", str(jobs[0].process.pid), "-o", self.file)[0], 0)

    def test_the_jobs_own_output_is_no_place_for_it(self):
        with open(self.path("log"), "wb") as log:
            job = subprocess.Popen([DDPRUN, "--rdzv_id", "logged", PROGRAM, self.folder, "for_ever"], stdout=log, stderr=log,
                                   env=dict(os.environ, **self.variables))
        self.addCleanup(lambda: (job.terminate(), job.wait()))
        wait_until(lambda: self.ask("stop", "logged")[1] == "ddprun: no timeline is being recorded\n", "the job")
        for file in ("/dev/stdout", "log"):
            status, text = self.ask("start", "logged", "-o", file)
            self.assertEqual(status, 1)
            self.assertIn("the output of this process goes there", text)
        with open(self.path("log"), encoding="utf-8") as log:
            self.assertNotIn("traceEvents", log.read())

    def test_the_options_are_checked(self):
        for words, text in [(("--timeline_steps", "1:2"), "needs --timeline"),
                            (("--timeline", "x", "--timeline_steps", ":"), "expected FIRST:LAST"),
                            (("--timeline", "x", "--timeline_steps", "2:2"), "FIRST below LAST"),
                            (("--timeline", "x", "--timeline_steps", "a:b"), "expected FIRST:LAST")]:
            status, _, err = self.run_job(*words, "true")
            self.assertEqual(status, 125)
            self.assertIn(text, err)

    # At any time.

    def ask(self, *words):
        done = subprocess.run([DDPRUN, "timeline", *words], env=dict(os.environ, **self.variables), capture_output=True,
                              text=True, timeout=60, cwd=self.folder)
        return done.returncode, done.stdout + done.stderr

    def test_a_job_that_hangs_shows_what_is_open(self):
        self.start("-n", "2", "--hang_timeout", "0", WATCHED, self.folder, "--fault", "sleep_data", "--rank", "1",
                                        "--at", "3", environment=self.variables)

        def ranks():
            done = subprocess.run([DDPRUN, "status", "--json"], env=dict(os.environ, **self.variables), capture_output=True, text=True)
            return json.loads(done.stdout)["ranks"] if done.stdout else []

        wait_until(lambda: [rank.get("step") for rank in ranks()] == [3, 3] and ranks()[1]["phase"] == "data"
                   and (ranks()[0]["collective"] or {}).get("finished") is False, "the hang")
        self.assertEqual(self.ask("start", "-o", self.file)[0], 0)
        time.sleep(1)
        status, text = self.ask("stop")
        self.assertEqual(status, 0, text)
        data, = self.slices(pid=1, cat="data")
        wait, = self.slices(pid=0, cat="wait")
        call, = self.slices(pid=0, cat="collective")
        for event in (data, wait, call):
            self.assertTrue(event["args"]["unfinished"])
            self.assertGreater(event["dur"], 0.9e6)
        self.assertEqual(len(self.slices()), 4)  # and rank 0's phase
        self.check_lanes()
        self.assertRegex(self.explain().stdout, r"rank +data +backward +wait\n  0 +0.0 % +0.0 % +100.0 %\n  1 +100.0 % +0.0 % +0.0 %\n")

    def test_a_running_job_starts_and_stops_on_command(self):
        job = self.begin("--rdzv_id", "cifar")
        self.wait_for_training(job)
        self.assertEqual(self.ask("start")[0], 1)
        self.assertIn("name a file with -o", self.ask("start", "cifar")[1])
        status, text = self.ask("start", "cifar", "-o", "trace.json")
        self.assertEqual(status, 0, text)
        self.assertIn(f"recording to {self.file}", text)
        wait_until(lambda: len(self.slices(name="forward")) > 5, "events in the file")
        status, text = self.ask("stop")
        self.assertEqual(status, 0, text)
        self.assertRegex(text, rf"stopped; {self.file} has {len(self.events())} events\n")
        self.assertIn(f"2 ranks, {len(self.events())} events\n", self.explain().stdout)
        time.sleep(1)  # several times what the file lags behind
        count = len(self.slices(name="forward"))
        time.sleep(1)
        self.assertEqual(len(self.slices(name="forward")), count)
        self.assertEqual(self.ask("stop")[0], 1)
        self.assertEqual(self.ask("start")[0], 0)
        wait_until(lambda: len(self.slices(name="forward")) > count, "more events in the file")
        job.signal(signal.SIGTERM)
        job.finish()
        self.check_lanes()

    def test_the_words_are_checked(self):
        for words in [(), ("begin",), ("start", "a", "b"), ("stop", "-o", "x"), ("start", "-o")]:
            status, text = self.ask(*words)
            self.assertEqual(status, 125, words)
            self.assertIn("expected ddprun timeline start [JOB] [-o FILE]", text)
        self.assertEqual(self.ask("stop", "nobody")[0], 1)

    def test_what_is_open_when_it_is_stopped_ends_there(self):
        job = self.begin(kind=("waits",), ranks=1)
        wait_until(lambda: self.ask("start", "-o", "trace.json")[0] == 0, "the job")
        with open(self.path("go"), "w", encoding="ascii"):
            pass
        self.assertIn(b"waits", job.process.stdout.readline())
        status, text = self.ask("stop")
        self.assertEqual(status, 0, text)
        (slice,) = self.slices(name="long")
        self.assertTrue(slice["args"]["unfinished"])
        self.assertIn("has 1 events", text)
        job.signal(signal.SIGTERM)
        job.finish()
        self.assertEqual(len(self.slices(name="long")), 1)

    # Several nodes.

    def run_nodes(self, count, skews=None, options=()):
        port = str(free_port())
        jobs = []
        for node in range(count):
            clock = {"LD_PRELOAD": os.environ["SKEWED_CLOCK"], "SKEWED_STEADY_SECONDS": str(skews[node])} if skews else {}
            jobs.append(self.begin("--nnodes", str(count), "--node_rank", str(node), "--master_addr", "127.0.0.1",
                                   "--master_port", port, "--timeline", self.file, *options, kind=("steps", "40"), ranks=1,
                                   **clock))
        for job in jobs:
            status, _, err = job.finish()
            self.assertEqual(status, 0, err)

    def test_the_ranks_of_all_nodes_are_in_node_0s_file(self):
        self.run_nodes(3)
        self.assertEqual({event["pid"] for event in self.slices()}, {0, 1, 2})
        self.assertEqual(len(self.slices(name="forward")), 120)
        self.check_lanes()
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("trace")], ["trace.json"])

    def test_ranks_of_all_nodes_are_in_each_of_several_files(self):
        port = str(free_port())
        nodes = [self.begin("--nnodes", "2", "--node_rank", str(node), "--master_addr", "127.0.0.1", "--master_port", port, ranks=1)
                 for node in (0, 1)]
        self.wait_for_training(nodes[0])
        for name in ("first", "first", "second", "third"):
            file = self.path(name + ".json")
            status, text = self.ask("start", str(nodes[0].process.pid), "-o", file)
            self.assertEqual(status, 0, text)
            wait_until(lambda: {event["pid"] for event in self.slices(file, name="forward")} == {0, 1}, "events of both nodes")
            self.assertEqual(self.ask("stop", str(nodes[0].process.pid))[0], 0)
        wait_until(lambda: {event["pid"] for event in self.slices(file, cat="step")} == {0, 1}, "steps of both nodes")
        for name in ("first", "second", "third"):
            self.check_lanes(self.path(name + ".json"))

    def test_one_node_is_told_to_record_and_all_do(self):
        port = str(free_port())
        words = ["--nnodes", "2", "--master_addr", "127.0.0.1", "--master_port", port]
        nodes = [self.begin(*words, "--node_rank", "0", "--timeline", self.file, kind=("steps", "200"), ranks=1),
                 self.begin(*words, "--node_rank", "1", kind=("steps", "200"), ranks=1)]
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 0, err)
        self.assertEqual(len(self.slices(name="forward", pid=0)), 200)
        self.assertGreater(len(self.slices(name="forward", pid=1)), 100)  # from when it was told

    def test_beside_nodes_of_torchrun_each_ddprun_has_its_own_ranks(self):
        if "TORCH_PYTHON" not in os.environ:
            self.skipTest("no torchrun here")
        for node, name in ((0, "trace.json"), (1, "trace.node1.json")):
            words = ["--nnodes", "2", "--master_addr", "127.0.0.1", "--master_port", str(free_port())]
            own = self.begin(*words, "--node_rank", str(node), "--timeline", self.file, kind=("steps", "10"), ranks=1)
            other = self.start(*(["-m", "torch.distributed.run"] + words + ["--node_rank", str(1 - node), "--nproc_per_node", "1",
                                 "--no-python", PROGRAM, self.folder, "steps", "10"]), program=os.environ["TORCH_PYTHON"])
            status, _, err = own.finish(patience=120)
            self.assertEqual(status, 0, err)
            self.assertEqual(other.finish(patience=120)[0], 0)
            self.assertEqual({event["pid"] for event in self.slices(self.path(name))}, {node})
            self.assertEqual(len(self.slices(self.path(name), name="forward")), 10)
            os.remove(self.path("meeting"))

    def test_clocks_of_several_hosts_are_aligned(self):
        for skews in ((0, 1000, 250_000), (5000, 0, 100)):
            self.run_nodes(3, skews)
            for number in range(40):
                calls = [event for event in self.slices(name="all_reduce") if event["args"]["number"] == number]
                self.assertEqual(len(calls), 3)
                # Nobody leaves before the last has come, by a millisecond for what a loaded machine makes of a question.
                last_begin = max(call["ts"] for call in calls)
                first_end = min(call["ts"] + call["dur"] for call in calls)
                self.assertLess(last_begin, first_end + 1000, skews)
            os.remove(self.path("meeting"))

    # Without ddprun, and by the tool.

    def test_files_of_ranks_are_merged(self):
        self.record(kind=("steps", "5"))
        whole = self.trace()
        for rank in (0, 1):
            part = dict(whole, traceEvents=[])
            lines = [json.dumps(event) for event in whole["traceEvents"] if event["pid"] == rank]
            head = json.dumps({"displayTimeUnit": "ms", "otherData": part["otherData"]}, separators=(",", ":"))[:-1]
            self.write(f"part{rank}.json", head + ',"traceEvents":[\n' +
                       ",\n".join(line.replace('{"ph": ', '{"ph":') for line in lines) + '\n],"ddprun":{"lost_events":{}}}\n')
        done = subprocess.run([TOOL, "merge", "-o", self.path("joined.json"), self.path("part0.json"), self.path("part1.json")],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(map(json.dumps, self.trace(self.path("joined.json"))["traceEvents"])),
                         sorted(map(json.dumps, whole["traceEvents"])))
        done = subprocess.run([TOOL, "merge", "-o", self.path("joined.json"), self.path("part0.json"), self.file],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("rank 0 is in", done.stderr)
        os.symlink(self.path("part0.json"), self.path("link.json"))
        for other, why in (("part0.json", "part0.json: it is named twice"), ("link.json", "link.json: it is the same file as ")):
            before = self.read("joined.json")
            done = self.explain("merge", "-o", self.path("joined.json"), self.path("part0.json"), self.path(other))
            self.assertEqual(done.returncode, 1)
            self.assertIn(why, done.stderr)
            self.assertEqual(self.read("joined.json"), before)
        before = self.read("part0.json")
        done = self.explain("merge", "-o", self.path("link.json"), self.path("part1.json"), self.path("part0.json"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("it is one of the files to merge", done.stderr)
        self.assertEqual(self.read("part0.json"), before)

    def test_the_tool_says_what_is_wrong_with_a_file_and_with_its_words(self):
        self.write("empty", "")
        for words, status, text in (((self.path("none"),), 1, "none: it cannot be read: No such file or directory"),
                                    ((self.folder,), 1, "it cannot be read: Is a directory"),
                                    ((self.path("empty"),), 1, "empty: it is empty"),
                                    (("merge", "-o", self.path("out"), self.path("none")), 1, "No such file or directory"),
                                    (("merge", "-o", self.path("out")), 2, "FILES"), (("--what",), 2, "--what"), ((), 2, "FILE")):
            done = subprocess.run([TOOL, *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(text, done.stderr)
        for words in (("--help",), ("-h",), ("merge", "--help")):
            done = self.explain(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("Exit status: 0;" if words[0] != "merge" else "FILES", done.stdout)


class ElasticTimelines(Traces, ElasticTest):
    def train(self, name):
        self.node(name, options=("--timeline", self.file, "--join_restart"), program=(
            "sh", "-c", f'mkdir -p {self.folder}/$TORCHELASTIC_RESTART_COUNT; exec {PROGRAM} {self.folder}/$TORCHELASTIC_RESTART_COUNT for_ever'))

    def steps_of(self, file, restart):
        """Those that the file's last rank has told behind so many restarts."""
        if not os.path.exists(self.path(file)):
            return 0
        now = count = 0
        for event in self.trace(self.path(file))["traceEvents"]:
            if event["name"] == "process_name":
                found = event["args"]["name"].rpartition(", restart ")
                now = int(found[2]) if found[0] else 0
            count += event.get("cat") == "step" and now == restart
        return count

    def test_each_node_keeps_its_own_and_they_can_be_joined_whoever_came_and_went(self):
        for name in "abc":
            self.train(name)
        wait_until(lambda: all(self.steps_of(f"trace.node{node}.json", 0) > 3 for node in range(3)), "steps of three nodes")
        # By their numbers, the first of which coordinates.
        first, second, third = sorted("abc", key=lambda name: wait_until(lambda: re.search(r"\[(\d)\] trains", self.log(name)), "a line")[1])
        for pid in self.nodes[second].members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: all(self.steps_of(f"trace.node{node}.json", 1) > 3 for node in (0, 2)), "steps of the two that remain")
        self.train("d")  # in the place of a node that there was, and whose file must stay
        wait_until(lambda: self.steps_of("trace.node2.restart2.json", 2) > 3, "steps of the one that has come")
        self.nodes[first].signal(signal.SIGTERM)
        for name in (first, third, "d"):
            self.nodes[name].process.wait(timeout=60)
        files = sorted(name for name in os.listdir(self.folder) if name.startswith("trace."))
        self.assertEqual(files, ["trace.node0.json", "trace.node1.json", "trace.node2.json", "trace.node2.restart2.json"])
        done = self.explain("merge", "-o", self.file, *map(self.path, files))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.check_lanes()
        done = self.explain()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"3 ranks, .*\n\d+ steps, from 0 to \d+, of restart 1 from 0 to \d+, of restart 2 from 0 to \d+;")


if __name__ == "__main__":
    unittest.main(verbosity=2)
