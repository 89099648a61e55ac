"""Ranks of several nodes that get nowhere: one table over all of them, and the culprit is named wherever it runs."""

import os
import random
import re
import signal
import struct
import unittest

from elastic_nodes import free_port
from harness import LauncherTest, wait_until

PROGRAM = os.environ["WATCHED_PROGRAM"]
TIMES = int(os.environ.get("FAULTS", "1"))


class HangsAcrossNodes(LauncherTest):
    def start_nodes(self, nodes, *arguments, options=(), of_node=None):
        port = str(free_port())
        return [self.start("--nnodes", str(nodes), "--node_rank", str(node), "--master_addr", "127.0.0.1", "--master_port", port,
                           "-n", "2", "--grace", "5", *options, *(of_node or {}).get(node, ()), PROGRAM, self.folder, *arguments)
                for node in range(nodes)]

    def entered(self, rank):
        """How many collectives this rank has entered."""
        try:
            with open(self.path("meeting"), "rb") as file:
                return struct.unpack_from("Q", file.read(), 8 * rank)[0]
        except (OSError, struct.error):
            return 0

    def reports(self, jobs):
        ends = [job.finish(patience=120) for job in jobs]
        if os.path.exists(self.path("meeting")):
            os.remove(self.path("meeting"))
        return [(status, err) for status, _, err in ends]

    def test_node_0_shows_all_ranks_and_every_node_names_the_culprit(self):
        for _ in range(TIMES):
            nodes = random.randint(2, 3)
            rank = random.randrange(2 * nodes)
            jobs = self.start_nodes(nodes, "--fault", "sleep_data", "--rank", str(rank), "--at", "7",
                                    options=("--hang_timeout", "3", "--on_hang", "stop"))
            reports = self.reports(jobs)
            for node, (status, err) in enumerate(reports):
                self.assertEqual(status, 124, err)
                self.assertRegex(err, rf"ddprun: rank {rank} has not entered .*it has been in data for .* wait for it", f"node {node}")
                self.assertNotIn("does not report its ranks", err)
                rows = re.findall(r"^  (\d+) +\S+ +(?:backward|data)", err, re.MULTILINE)
                self.assertEqual(rows, [str(each) for each in range(2 * nodes)] if node == 0 else [], err)
            # Whoever has the culprit has its stack.
            self.assertRegex(reports[rank // 2][1], rf"stack of rank {rank}:\n    #0 ")

    def test_a_node_that_only_waits_for_work_elsewhere_is_no_hang(self):
        # Rank 0 goes through phases alone while all others wait for it, longer than the limit.
        jobs = self.start_nodes(2, "--alone", "6", "--steps", "40", options=("--hang_timeout", "1.5"))
        for status, err in self.reports(jobs):
            self.assertEqual(status, 0, err)
            self.assertNotIn("progress", err)

    def test_a_node_that_is_not_asked_to_watch_still_says_what_it_sees(self):
        jobs = self.start_nodes(2, "--fault", "sleep_forward", "--rank", "1", "--at", "4",
                                of_node={0: ("--hang_timeout", "0"), 1: ("--hang_timeout", "2", "--on_hang", "stop")})
        (_, first), (_, second) = self.reports(jobs)
        self.assertNotIn("has made progress", first)
        self.assertRegex(second, r"rank 1 has not entered .*it has been in forward for")
        self.assertRegex(second, r"(?m)^  3 +\S+ +backward")

    def test_a_node_whose_ddprun_is_frozen_is_left_out_and_holds_nobody_up(self):
        jobs = self.start_nodes(3, "--fault", "sleep_data", "--rank", "1", "--at", "7",
                                options=("--hang_timeout", "8", "--node_timeout", "60"),
                                of_node={2: ("--hang_timeout", "0")})
        wait_until(lambda: self.entered(5) >= 8, "ranks that train")
        supervisors = wait_until(lambda: supervisors_of(jobs[2]), "the supervisor of node 2")
        for pid in supervisors:
            os.kill(pid, signal.SIGSTOP)
        line = next(line for line in iter(jobs[0].process.stderr.readline, b"") if b"has not entered" in line)
        self.assertRegex(line.decode(), r"rank 1 has not entered .*; node 2 did not report its ranks")
        for pid in supervisors:
            os.kill(pid, signal.SIGCONT)
        for job in jobs:
            job.process.terminate()
        self.reports(jobs)

    def test_a_straggler_on_another_node_is_named_by_node_0(self):
        # What else the machine does decides how even the others are, so it may be missed but for the last try.
        for seconds in ("22", "30", "60"):
            jobs = self.start_nodes(2, "--slow", "data", "--slow_by", "0.4", "--rank", "3", "--step_time", "0.01", "--seconds", seconds)
            (status, first), (_, second) = self.reports(jobs)
            self.assertEqual(status, 0, first)
            named = re.search(r"rank 3 \(\S+\) delays the others in data", first)
            if named:
                break
        self.assertTrue(named, first)
        self.assertIn("efficiency", first)
        self.assertNotIn("delays the others", second)
        self.assertNotIn("efficiency", second)


def supervisors_of(job):
    """The processes of ddprun itself."""
    found = []
    for pid in job.members():
        try:
            if os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(os.environ["DDPRUN"]):
                found.append(pid)
        except OSError:
            pass
    return found


if __name__ == "__main__":
    unittest.main(verbosity=2)
