"""`ddprun --timeline`: what all ranks do and when, in one file that is valid whatever happens."""

import collections
import json
import os
import shlex
import signal
import subprocess
import time
import unittest

from harness import DDPRUN, is_running, wait_until
from timeline_traces import PROGRAM, TOOL, Recordings

WATCHED = os.environ["WATCHED_PROGRAM"]


class Timeline(Recordings):
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
        script = self.write("job.sh", f"#!/bin/sh\n{shlex.quote(PROGRAM)} {self.folder}/$TORCHELASTIC_RESTART_COUNT steps 5\n"
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
                            f"cd $folder/$TORCHELASTIC_RESTART_COUNT && {shlex.quote(PROGRAM)} . own 5 ../own.json || exit 9\n"
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
        self.assertEqual(err.count(f"the timeline in {self.file} is empty: no rank recorded anything"), 1, err)
        self.assertEqual(self.slices(), [])
        done = self.explain()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no rank recorded anything", done.stdout)

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

    # At any time.

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
        for other, why in (("part0.json", "part0.json: it is given twice"), ("link.json", "link.json: it is the same file as ")):
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
