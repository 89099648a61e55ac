"""Interruptions of the network between hosts, which are network namespaces on a switch: below --node_timeout no job ends,
above it all nodes end, or restart, together. FULL=1 is the whole matrix."""

import os
import re
import signal
import subprocess
import sys
import time
import unittest

import etcd_nodes
import ssh_hosts
from harness import LauncherTest, main, shell, wait_until
from hosts import INTERRUPTIONS, skip_reason
from interrupted_nodes import BUSY, NODES, QUIET, Nodes
from remote_hosts_test import OnNamespaces

WHY_NOT = skip_reason()
NO_SSH = ssh_hosts.skip_reason()
NO_ETCD = etcd_nodes.WHY_NOT
LENGTHS = (0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5) if os.environ.get("FULL") else (0.1, 0.3, 2)


class Survival(LauncherTest):
    def survive(self, cases):
        """Each job is interrupted as often as there are lengths, all at the same time."""
        jobs = [(Nodes(self, f"{number}{meeting}", meeting, BUSY if is_busy else QUIET), kind, place)
                for number, (meeting, kind, place, is_busy) in enumerate(cases)]
        for job, _, _ in jobs:
            job.wait_for_ranks()
        for length in LENGTHS:
            for job, kind, place in jobs:
                job.interrupt(kind, place, down=True)
            time.sleep(length)
            for job, kind, place in jobs:
                job.interrupt(kind, place, down=False)
            time.sleep(2.5)  # it takes up to 1 s until all are connected again
            for job, kind, place in jobs:
                for node in range(NODES):
                    self.assertTrue(job.is_there(node), f"{kind} at {place} for {length} s: node {node} has ended\n{job.log()}")
        for job, _, _ in jobs:
            job.end_ranks()
        for job, _, _ in jobs:
            job.end(0)
            self.assertFalse(os.path.exists(self.path(f"ready.{job.name}.1.0")), "there was a restart\n" + job.log())


class Short(Survival):
    def test_short_ones_end_no_job(self):
        self.survive([("static", "link", 0, True), ("static", "drop", "all", False), ("c10d", "send", 2, True),
                      ("elastic", "receive", 1, True), ("elastic", "cable", 0, False)])

    def test_many_short_ones_end_no_job(self):
        """An interface that goes down must not leave anything in the kernel that ends a connection the next time."""
        jobs = [Nodes(self, str(number), "c10d", BUSY, ["--node_timeout", "5"]) for number in range(5)]
        for job in jobs:
            job.wait_for_ranks()
        for _ in range(8):
            for job in jobs:
                job.interrupt("link", 0, down=True)
            time.sleep(0.5)
            for job in jobs:
                job.interrupt("link", 0, down=False)
            time.sleep(2.5)
        for job in jobs:
            job.end_ranks()
        for job in jobs:
            job.end(0)

    @unittest.skipIf(NO_ETCD, NO_ETCD)
    def test_short_ones_end_no_job_that_meets_at_etcd(self):
        self.survive([("etcd", "drop", 0, True), ("etcd", "link", "all", False), ("etcd", "send", 2, False)])

    def test_one_at_the_end_of_a_job_ends_it_well_everywhere(self):
        """The coordinator waits until all have heard that all have ended."""
        jobs = [Nodes(self, meeting, meeting) for meeting in ("static", "elastic")]
        for job in jobs:
            job.wait_for_ranks()
            job.interrupt("drop", 2, down=True)
            job.end_ranks()
        time.sleep(3)
        for job in jobs:
            self.assertTrue(job.is_there(0), job.log())
            job.interrupt("drop", 2, down=False)
        for job in jobs:
            job.end(0)

    def test_a_failure_during_one_is_the_same_everywhere(self):
        job = Nodes(self, "one", "static")
        job.wait_for_ranks()
        job.interrupt("drop", 3, down=True)
        time.sleep(0.5)
        os.kill(int(self.read("ready.one.0.1")), signal.SIGKILL)
        time.sleep(2.5)
        job.interrupt("drop", 3, down=False)
        job.end(137)
        for place in (0, 2, 3):
            self.assertIn("rank 1 ", self.read(f"log.one.{place}"))

    def test_a_busy_machine_ends_no_job(self):
        job = Nodes(self, "one", "static")
        job.wait_for_ranks()
        spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(60)]
        try:
            time.sleep(6)
            for node in range(NODES):
                self.assertTrue(job.is_there(node), job.log())
        finally:
            for spinner in spinners:
                spinner.kill()
                spinner.wait()
        job.end_ranks()
        job.end(0)

    def test_a_coordinator_that_was_frozen_for_long_meets_the_others_again(self):
        job = Nodes(self, "one", "elastic", options=("--node_timeout", "2", "--max_restarts", "5"))
        job.wait_for_ranks()
        supervisor = job.jobs[0].supervisor()
        os.kill(supervisor, signal.SIGSTOP)
        time.sleep(5)
        os.kill(supervisor, signal.SIGCONT)
        wait_until(lambda: any(os.path.exists(self.path(f"ready.one.{attempt}.3")) for attempt in range(1, 6)), job.log(), patience=60)
        job.end_ranks()
        job.end(0)

    def test_a_launcher_that_ends_is_noticed_at_once(self):
        for place in (2, 0):
            with self.subTest(place=place):
                job = Nodes(self, f"at{place}", "static")
                job.wait_for_ranks()
                supervisor = job.jobs[place].supervisor()
                others = job.others(place)
                os.kill(supervisor, signal.SIGKILL)
                begin = time.monotonic()
                wait_until(lambda job=job, others=others: all(f"stopped because of node {place}" in self.read(f"log.{job.name}.{node}")
                                                              for node in others), job.log())
                self.assertLess(time.monotonic() - begin, 4)  # less than --node_timeout, whatever the load; 0.1 s on a quiet machine
                job.end(1, others)


class Long(LauncherTest):
    """Interruptions that are longer than the limit."""

    def test_a_long_one_ends_a_job_on_all_nodes(self):
        jobs = [(Nodes(self, f"{meeting}{place}", meeting, options=("--node_timeout", "2")), place)
                for meeting, place in (("static", 0), ("static", 2), ("elastic", 0))]
        for job, place in jobs:
            job.wait_for_ranks()
            job.interrupt("drop", place, down=True)
        time.sleep(6)
        for job, place in jobs:
            job.interrupt("drop", place, down=False)
        for job, place in jobs:
            job.end(1)
            others = job.others(place)
            # Those that are connected to the coordinator name the one that is not.
            named = {tuple(re.findall(r"stopped because of node (\d)", self.read(f"log.{job.name}.{node}"))) for node in others}
            self.assertEqual(len(named), 1, job.log())

    def test_a_job_ends_well_only_where_all_nodes_hear_of_it(self):
        """The ranks of all nodes end well while the coordinator hears the others, and they do not hear it; or one does not."""
        jobs = [(Nodes(self, f"{meeting}{place}", meeting, options=("--node_timeout", "2")), place)
                for meeting, place in (("static", 0), ("c10d", 0), ("elastic", 0), ("static", 2))]
        for job, place in jobs:
            job.wait_for_ranks()
            job.interrupt("send" if place == 0 else "receive", place, down=True)
            job.end_ranks()
        for job, place in jobs:
            job.end(1)
            self.assertRegex(self.read(f"log.{job.name}.0"), r"did not confirm the end of the job|it has sent nothing for")

    @unittest.skipIf(NO_ETCD, NO_ETCD)
    def test_a_node_that_is_cut_off_for_good_from_etcd_too_ends(self):
        job = Nodes(self, "one", "etcd", options=("--node_timeout", "2", "--max_restarts", "5"))
        job.wait_for_ranks()
        job.interrupt("drop", 2, down=True)
        job.wait_for_ranks(1, 3)
        begin = time.monotonic()
        job.end(1, [2])
        self.assertLess(time.monotonic() - begin, 100)  # 15 s on a quiet machine, and not --join_timeout
        self.assertIn("this node was cut off from the job: there was no answer from etcd", self.read("log.one.2"))
        job.end_ranks()
        job.end(0, [0, 1, 3])

    @unittest.skipIf(NO_ETCD, NO_ETCD)
    def test_a_coordinator_that_nobody_finds_again_ends_with_etcd_too(self):
        """It reaches etcd, and the others reach nobody."""
        job = Nodes(self, "one", "etcd", options=("--node_timeout", "2", "--max_restarts", "5"))
        job.wait_for_ranks()
        coordinator = next(place for place in range(NODES) if "who can connect to etcd" in self.read(f"log.one.{place}"))
        for place in range(NODES):
            if place != coordinator:
                job.interrupt("drop", place, down=True)
        begin = time.monotonic()
        job.end(1)
        self.assertLess(time.monotonic() - begin, 150)  # 22 s on a quiet machine, and not --join_timeout

    @unittest.skipIf(NO_ETCD, NO_ETCD)
    def test_after_its_coordinator_was_cut_off_a_job_at_etcd_restarts_with_all_nodes(self):
        """The node that takes its place waits for 3 s for it, so a busy machine may need several attempts."""
        for attempt in range(4):
            job = Nodes(self, f"try{attempt}", "etcd", options=("--node_timeout", "2", "--max_restarts", "5"))
            job.wait_for_ranks()
            logs = [f"log.{job.name}.{place}" for place in range(NODES)]
            hosts = lambda logs=logs: [place for place, log in enumerate(logs) if "who can connect to etcd" in self.read(log)]
            first = hosts()
            job.interrupt("drop", first[0], down=True)
            wait_until(lambda hosts=hosts, first=first: hosts() != first, job.log())
            job.interrupt("drop", first[0], down=False)
            job.wait_for_ranks(1, 3)
            job.end_ranks()
            job.end(0)
            if os.path.exists(self.path(f"ready.{job.name}.1.3")):
                return
        self.fail("never with all nodes\n" + job.log())

    def test_after_a_long_one_an_elastic_job_restarts_with_all_nodes(self):
        jobs = [(Nodes(self, f"at{place}", "elastic", options=("--node_timeout", "2", "--max_restarts", "5", "--join_restart")), place)
                for place in (0, 2)]
        for job, place in jobs:
            job.wait_for_ranks()
            job.interrupt("drop", place, down=True)
        time.sleep(6)
        for job, place in jobs:
            job.interrupt("drop", place, down=False)
        for job, place in jobs:
            # Where it is at a member, a round of the others comes first, and it is taken in again by --join_restart.
            wait_until(lambda job=job: any(os.path.exists(self.path(f"ready.{job.name}.{attempt}.3")) for attempt in range(1, 6)),
                       "a round of all\n" + job.log(), patience=90)
            job.end_ranks()
        for job, place in jobs:
            job.end(0)

    def test_a_coordinator_that_nobody_finds_again_ends_when_the_others_have_ended(self):
        job = Nodes(self, "one", "elastic", options=("--node_timeout", "2", "--max_restarts", "5"))
        job.wait_for_ranks()
        job.interrupt("drop", 0, down=True)
        begin = time.monotonic()
        job.end(1)
        self.assertLess(time.monotonic() - begin, 100)  # 16 s on a quiet machine, and not --join_timeout
        self.assertIn("has had no connection to any other node for so long that the other nodes have ended", self.read("log.one.0"))
        for place in (1, 2, 3):
            self.assertIn("was lost, and not found again", self.read(f"log.one.{place}"))

    def test_a_node_that_is_back_soon_after_it_was_given_up_names_the_same_cause(self):
        job = Nodes(self, "one", "static")
        job.wait_for_ranks()
        job.interrupt("drop", 2, down=True)
        wait_until(lambda: "stopped because of node 2" in self.read("log.one.1"), job.log(), patience=60)
        job.interrupt("drop", 2, down=False)
        job.end(1)
        for place in range(NODES):
            self.assertIn("stopped because of node 2: the launcher of node 2 (host", self.read(f"log.one.{place}"), job.log())


@unittest.skipIf(NO_SSH, NO_SSH)
class Ssh(OnNamespaces):
    """One command for three hosts, each reached by ssh: the channels and the launchers' sessions are interrupted."""

    kinds = (4,)

    # With traffic: each rank prints numbers, none of which may be missing.
    COUNT = "n=0; while [ ! -e end ]; do echo $n; n=$((n + 1)); : > ready.$RANK; sleep 0.05; done; echo bye $n"

    def test_interruptions_end_no_job(self):
        job = self.job("-H", "localhost:1,10.203.0.2:1,10.203.0.3:1", *shell(self.COUNT))
        self.wait_for_files("ready.0", "ready.1", "ready.2")
        for kind in INTERRUPTIONS if os.environ.get("FULL") else ("cable",):
            for host in (0, 1):
                for length in LENGTHS:
                    self.hosts.interrupt(kind, host, down=True)
                    time.sleep(length)
                    self.hosts.interrupt(kind, host, down=False)
                    time.sleep(1.5)
                    self.assertIsNone(job.process.poll(), f"{kind} at {host} for {length} s ended the job")
        self.write("end", "")
        status, out, err = job.finish()
        self.assertEqual(status, 0, err)
        for rank in range(3):
            lines = re.findall(rf"^\[{rank}\] (.*)$", out, re.M)
            count = int(lines[-1].removeprefix("bye "))
            self.assertEqual(lines, [*map(str, range(count)), f"bye {count}"])

    def test_a_users_short_patience_with_the_connection_does_not_count(self):
        for sshd in self.sshds:
            with open(sshd.path("ssh_config"), "a", encoding="utf-8") as file:
                file.write("\nServerAliveInterval 1\nServerAliveCountMax 1\n")
        job = self.job("-H", "localhost:1,10.203.0.2:1", *shell(": > ready.$RANK; until [ -e end ]; do sleep 0.05; done"))
        self.wait_for_files("ready.0", "ready.1")
        self.hosts.cable(1, plugged=False)
        time.sleep(4)
        self.hosts.cable(1, plugged=True)
        self.write("end", "")
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)


class Full(Survival):
    def test_no_job_ends_below_the_limit(self):
        for meeting in ("static", "c10d", "elastic", *(() if NO_ETCD else ("etcd",))):
            for kind in INTERRUPTIONS:
                with self.subTest(meeting=meeting, kind=kind):
                    self.survive([(meeting, kind, place, is_busy) for place in (0, 2, "all") for is_busy in (False, True)])
                    self.doCleanups()
                    self.setUp()


if os.environ.get("FULL"):
    del Short, Long
else:
    del Full

if __name__ == "__main__":
    if WHY_NOT:
        print("skipped: " + WHY_NOT)
        raise SystemExit(77)
    main()
