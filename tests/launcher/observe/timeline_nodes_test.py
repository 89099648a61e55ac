"""Timelines of several nodes, also where they come and go, and where their clocks differ."""

import contextlib
import itertools
import os
import re
import shlex
import signal
import unittest

from elastic_nodes import ElasticTest, free_port
from harness import wait_until
from timeline_traces import PROGRAM, Recordings, Traces


class NodeTimelines(Recordings):
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
            # The error depends on how soon each node answered; the file states its bound.
            errors = {0: 0, **{int(rank): error for rank, error in self.trace()["ddprun"]["clock_error_us"].items()}}
            self.assertEqual(set(errors), {0, 1, 2})
            self.assertGreater(min(errors[1], errors[2]), 0)
            self.assertLess(max(errors.values()), 10_000_000)  # of clocks that are hundreds of seconds apart
            for number in range(40):
                calls = {event["pid"]: event for event in self.slices(name="all_reduce") if event["args"]["number"] == number}
                self.assertEqual(set(calls), {0, 1, 2})
                # No rank leaves before the last one has arrived.
                for late, early in itertools.permutations(calls, 2):
                    self.assertLess(calls[late]["ts"], calls[early]["ts"] + calls[early]["dur"] + errors[late] + errors[early], (skews, errors))
            self.assertRegex(self.explain().stdout, r"clocks of different hosts agree within [0-9.]+ \w+\n")
            os.remove(self.path("meeting"))


class ElasticTimelines(Traces, ElasticTest):
    def train(self, name):
        self.node(name, options=("--timeline", self.file, "--join_restart"), program=(
            "sh", "-c", f'mkdir -p {self.folder}/$TORCHELASTIC_RESTART_COUNT; exec {shlex.quote(PROGRAM)} {self.folder}/$TORCHELASTIC_RESTART_COUNT for_ever'))

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
