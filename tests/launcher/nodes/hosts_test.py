"""Nodes on several hosts: network namespaces that this test joins by a switch, cables of which it pulls."""

import os
import shutil
import signal
import subprocess
import time
import unittest

from harness import DDPRUN, Job, LauncherTest, main, process_state, shell, wait_until
from hosts import Hosts, skip_reason

WHY_NOT = skip_reason()


class OnHosts(LauncherTest):
    count = 2
    kinds = (4, 6)

    def setUp(self):
        super().setUp()
        self.hosts = Hosts(self.count, self.kinds)
        self.addCleanup(self.remove_hosts)

    def remove_hosts(self):
        self.hosts.close()
        self.assertEqual(self.hosts.left(), [])

    def node(self, rank, *program, ranks=1, nnodes=None, port=29500, host=None, options=(), kind=4):
        host = rank if host is None else host
        place = ["--nnodes", str(nnodes or self.count), "--node-rank", str(rank), "--master-addr", self.hosts.address(0, kind),
                 "--master-port", str(port), "-n", str(ranks)]
        words = [*self.hosts.on(host), DDPRUN, *place, *options, *program]
        job = Job(words[1:], self.folder, program=words[0])
        self.addCleanup(job.clean_up)
        return job

    def end_well(self, nodes):
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 0, err)
            self.assert_nothing_left(node)

    def is_waiting(self, node):
        return process_state(node.supervisor()) == "S"

    def said(self, node, text):
        lines = []
        while not lines or text not in lines[-1]:
            lines.append(node.process.stderr.readline().decode())
            self.assertNotEqual(lines[-1], "", "it ended without saying so: " + "".join(lines))


class TwoHosts(OnHosts):
    def test_a_node_without_a_network_waits_for_one(self):
        self.hosts.interface(1, up=False)
        early = self.node(1, "true")
        self.said(early, "waiting for node 0 (Network is unreachable)")
        self.hosts.interface(1, up=True)
        self.end_well([early, self.node(0, "true")])

    def test_node_0_says_once_that_others_can_join_where_there_is_no_secret(self):
        self.write("secret", "sixteen bytes or more")
        line = f"ddprun: anyone who can connect to {self.hosts.address(0)} port 29500 can join this job: "
        for options, lines in (((), [1, 0]), (("--max_restarts", "1"), [1, 0]), (("--rdzv_secret_file", self.path("secret")), [0, 0])):
            nodes = [self.node(rank, *shell("[ $TORCHELASTIC_RESTART_COUNT = $TORCHELASTIC_MAX_RESTARTS ]"), options=options) for rank in range(2)]
            ends = [node.finish() for node in nodes]
            self.assertEqual([status for status, _, _ in ends], [0, 0], ends)
            self.assertEqual([err.count(line) for _, _, err in ends], lines, ends)

    def test_a_host_that_does_not_answer_yet_is_waited_for(self):
        self.hosts.cable(0, plugged=False)
        nodes = [self.node(rank, "true") for rank in (1, 0)]
        self.said(nodes[0], "waiting for node 0 (")
        self.hosts.cable(0, plugged=True)
        self.end_well(nodes)

    def test_a_cable_that_is_pulled_ends_the_job_on_both_sides(self):
        nodes = [self.node(rank, *shell(": > ready.$RANK; exec sleep 1000"), options=("--node-timeout", "1")) for rank in range(2)]
        self.wait_for_files("ready.0", "ready.1")
        begin = time.monotonic()
        self.hosts.cable(1, plugged=False)
        for node, text in zip(nodes, ("the launcher of node 1 (host", "the connection to node 0 broke")):
            status, _, err = node.finish()
            self.assertEqual(status, 1, err)
            self.assertIn(text, err)
            self.assertIn("cannot be reached", err)
            self.assert_nothing_left(node)
        self.assertLess(time.monotonic() - begin, 12)  # 1.2 s on a quiet machine

    def test_a_short_interruption_ends_nothing(self):
        nodes = [self.node(rank, *shell(": > ready.$RANK; until [ -e end ]; do sleep 0.05; done")) for rank in range(2)]
        self.wait_for_files("ready.0", "ready.1")
        self.hosts.cable(1, plugged=False)
        time.sleep(2)
        self.hosts.cable(1, plugged=True)
        self.write("end", "")
        self.end_well(nodes)

    def test_two_jobs_at_once_do_not_meet(self):
        jobs = [self.node(rank, *shell(f'echo "$WORLD_SIZE" > {port}.$RANK'), port=port, ranks=port - 29499)
                for port in (29500, 29501) for rank in range(2)]
        self.end_well(jobs)
        self.assertEqual([self.read("29500.1"), self.read("29501.3")], ["2\n", "4\n"])

    @unittest.skipIf(shutil.which("ss") is None, "there is no ss(8)")
    def test_the_store_listens_at_the_address_of_node_0_only(self):
        node = self.node(0, "true")
        listing = lambda: subprocess.run([*self.hosts.on(0), "ss", "-Hltn"], check=True, capture_output=True, text=True).stdout
        places = {line.split()[3].rsplit(":", 1)[0] for line in wait_until(listing, "the store").splitlines()}
        self.assertEqual(places, {"10.203.0.1"})
        self.end_well([node, self.node(1, "true")])

    def test_an_address_that_is_not_the_nodes_own_is_said(self):
        node = self.node(0, "true", host=1)
        self.said(node, "10.203.0.1 is not an address of this machine: the store listens on all addresses")

    def test_a_second_node_0_on_another_host_is_noticed_at_once_by_all(self):
        for first, second in ((0, 1), (1, 0)):
            begin = time.monotonic()
            early = self.node(0, "true", nnodes=3, host=first)
            other = self.node(1, "true", nnodes=3, host=0)
            if first == 1:
                self.said(early, "10.203.0.1 is not an address of this machine")
            else:
                wait_until(lambda early=early: self.is_waiting(early), "the launcher to wait")
            late = self.node(0, "true", nnodes=3, host=second)
            for node in (early, late, other):
                status, _, err = node.finish()
                self.assertEqual(status, 125, err)
                self.assertIn("--node_rank 0 is used twice: by host ", err)
                self.assert_nothing_left(node)
            self.assertLess(time.monotonic() - begin, 10)  # 0.2 s on a quiet machine

    def test_a_slow_link_is_no_failure(self):
        self.hosts.slow_down(1, "64kbit", "200ms")
        self.end_well([self.node(rank, "sleep", "3") for rank in range(2)])

    def named(self, host, command, names=""):
        """`command` on a host that knows these names, lines of /etc/hosts."""
        path = self.write(f"names.{host}.{len(os.listdir(self.folder))}", "127.0.0.1 localhost\n" + names)
        words = [*self.hosts.on(host), "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', path, DDPRUN, *command]
        job = Job(words[1:], self.folder, program=words[0])
        self.addCleanup(job.clean_up)
        return job

    def test_an_address_without_a_route_or_a_host_is_passed_over(self):
        for dead in ("fd00:dead::1", "fd00:ddd::99", "10.203.0.99"):
            names = f"{dead} master\n10.203.0.1 master\n"
            begin = time.monotonic()
            self.end_well([self.named(rank, ["--nnodes", "2", "--node-rank", str(rank), "--master-addr", "master", "-n", "1", "true"], names)
                           for rank in (0, 1)])
            self.assertLess(time.monotonic() - begin, 20, dead)  # 0.6 s on a quiet machine

    def test_nodes_without_numbers_are_ordered_by_the_names_of_their_hosts(self):
        words = ["--nnodes", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", self.hosts.address(0) + ":29400", "--node-order", "host", "-n",
                 "1", *shell('hostname > rank.$RANK')]
        nodes = []
        for host, name in ((0, "ccc"), (1, "aaa"), (1, "bbb")):
            command = [*self.hosts.on(host), "unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$0" "$@"', DDPRUN, *words]
            nodes.append(Job(command[1:], self.folder, program=command[0]))
            self.addCleanup(nodes[-1].clean_up)
        self.end_well(nodes)
        self.assertEqual([self.read(f"rank.{rank}") for rank in range(3)], ["aaa\n", "bbb\n", "ccc\n"])

    def test_the_same_command_on_each_host(self):
        words = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", self.hosts.address(0) + ":29400", "-n", "2",
                 *shell('echo $GROUP_RANK > rank.$RANK')]
        nodes = []
        for host in (1, 0):
            command = [*self.hosts.on(host), DDPRUN, *words]
            nodes.append(Job(command[1:], self.folder, program=command[0]))
            self.addCleanup(nodes[-1].clean_up)
        self.end_well(nodes)
        self.assertEqual([self.read(f"rank.{rank}") for rank in range(4)], ["0\n", "0\n", "1\n", "1\n"])


class HowSoon(OnHosts):
    count = 3

    def soonest_end(self, strike, victim):
        """Seconds from the fault to the last end of a rank elsewhere."""
        script = 'trap "date +%s.%N > part.$RANK; mv part.$RANK stopped.$RANK; exit 0" TERM\n: > ready.$RANK\nwhile :; do sleep 0.01; done'
        nodes = [self.node(rank, *shell(script), options=("--node-timeout", "1")) for rank in range(3)]
        self.wait_for_files(*[f"ready.{rank}" for rank in range(3)])
        begin = time.time()
        strike(nodes[victim])
        others = [f"stopped.{rank}" for rank in range(3) if rank != victim]
        self.wait_for_files(*others)
        took = max(float(self.read(name)) for name in others) - begin
        self.hosts.cable(victim, plugged=True)
        for node in nodes:
            node.clean_up()
        for name in os.listdir(self.folder):
            os.remove(self.path(name))
        return took

    def test_what_is_lost_is_known_on_all_other_nodes_soon_after_node_timeout(self):
        freeze = lambda node: os.kill(node.supervisor(), signal.SIGSTOP)
        for victim in (0, 2):
            pull = lambda node, victim=victim: self.hosts.cable(victim, plugged=False)
            for strike in (freeze, pull):
                times = sorted(self.soonest_end(strike, victim) for _ in range(3))
                self.assertLess(times[1], 3.0, times)  # 1.2 s on a quiet machine


class OnlyNewAddresses(OnHosts):
    kinds = (6,)

    def test_nodes_meet_where_there_is_only_ipv6(self):
        self.end_well([self.node(rank, "true", kind=6) for rank in (1, 0)])


class OnlyOldAddresses(OnHosts):
    kinds = (4,)

    def test_nodes_meet_where_there_is_only_ipv4(self):
        self.end_well([self.node(rank, "true") for rank in (1, 0)])


class FourHosts(OnHosts):
    count = 4

    def test_uneven_nodes_are_numbered_in_order_whoever_comes_last(self):
        for last in (0, 2):
            nodes = {rank: self.node(rank, *shell('echo "$GROUP_RANK $WORLD_SIZE" > rank.$RANK'), ranks=rank + 1)
                     for rank in range(4) if rank != last}
            for node in nodes.values():
                wait_until(node.supervisor, "the launcher")
            nodes[last] = self.node(last, *shell('echo "$GROUP_RANK $WORLD_SIZE" > rank.$RANK'), ranks=last + 1)
            self.end_well(nodes.values())
            found = [self.read(f"rank.{rank}") for rank in range(10)]
            self.assertEqual(found, [f"{group} 10\n" for group in (0, 1, 1, 2, 2, 2, 3, 3, 3, 3)])
            for name in os.listdir(self.folder):
                os.remove(self.path(name))

    def test_a_node_that_never_comes_is_named_by_all(self):
        nodes = [self.node(rank, "true", options=("--join-timeout", "10")) for rank in (0, 1, 3)]  # starting takes seconds on a busy machine
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 124, err)
            self.assertIn("node 2 did not arrive at 10.203.0.1 port 29500 within the ", err)

    def test_a_lost_worker_launcher_and_host_are_named_alike_by_all_others(self):
        for victim in (0, 1, 3):
            nodes = [self.node(rank, *shell(": > ready.$RANK; exec sleep 1000")) for rank in range(4)]
            self.wait_for_files(*[f"ready.{rank}" for rank in range(4)])
            os.kill(nodes[victim].supervisor(), signal.SIGKILL)
            for rank, node in enumerate(nodes):
                if rank == victim:
                    continue
                status, _, err = node.finish()
                self.assertEqual(status, 1, err)
                self.assertIn(f"stopped because of node {victim}: ", err)
            for name in os.listdir(self.folder):
                os.remove(self.path(name))


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped: " + WHY_NOT)
        raise SystemExit(77)
    main()
