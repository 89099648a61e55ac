"""Several nodes: launchers on this machine that meet as if they were on different ones."""

import os
import signal
import socket
import time

from harness import LauncherTest, main, process_state, shell, wait_until


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nodes(LauncherTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def node(self, rank, nnodes, ranks, *program, options=()):
        return self.start("--nnodes", str(nnodes), "--node-rank", str(rank), "--master-addr", "127.0.0.1", "--master-port",
                          str(self.port), "-n", str(ranks), *options, *program)

    def test_ranks_are_numbered_over_uneven_nodes(self):
        script = ('echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_RANK '
                  '$ROLE_WORLD_SIZE $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_RUN_ID" > rank.$RANK')
        nodes = [self.node(rank, 3, ranks, *shell(script)) for rank, ranks in ((2, 1), (1, 3), (0, 2))]
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 0, err)
        expected = {0: "0 0 6 2 0", 1: "1 1 6 2 0", 2: "2 0 6 3 1", 3: "3 1 6 3 1", 4: "4 2 6 3 1", 5: "5 0 6 1 2"}
        for rank, text in expected.items():
            self.assertEqual(self.read(f"rank.{rank}"), f"{text} 3 {rank} 6 127.0.0.1 {self.port} none\n")

    def test_a_failure_stops_all_nodes_with_its_status(self):
        script = ": > ready.$RANK\n[ $RANK = {} ] || exec sleep 1000\nwhile [ ! -e go ]; do sleep 0.01; done; exit 44"
        for failing in (0, 3):
            nodes = [self.node(rank, 3, 2, *shell(script.format(failing))) for rank in range(3)]
            self.wait_for_files(*[f"ready.{rank}" for rank in range(6)])
            begin = time.monotonic()
            self.write("go", "")
            for rank, node in enumerate(nodes):
                status, _, err = node.finish()
                self.assertEqual(status, 44, err)
                if rank == failing // 2:
                    self.assertIn(f"rank {failing} failed first: it exited with status 44", err)
                else:
                    self.assertIn(f"stopped because of node {failing // 2}: rank {failing} on host", err)
                self.assert_nothing_left(node)
            self.assertLess(time.monotonic() - begin, 5)
            for name in os.listdir(self.folder):
                os.remove(self.path(name))

    def test_stopping_one_node_stops_all(self):
        nodes = [self.node(rank, 2, 1, *shell(": > ready.$RANK; exec sleep 1000")) for rank in range(2)]
        self.wait_for_files("ready.0", "ready.1")
        nodes[1].signal(signal.SIGTERM)
        for node in nodes:
            self.assertEqual(node.finish()[0], 128 + signal.SIGTERM)
            self.assert_nothing_left(node)

    def test_when_node_0_is_killed_the_others_stop(self):
        nodes = [self.node(rank, 2, 1, *shell(": > ready.$RANK; exec sleep 1000")) for rank in range(2)]
        self.wait_for_files("ready.0", "ready.1")
        nodes[0].signal(signal.SIGKILL)
        status, _, err = nodes[1].finish()
        self.assertEqual(status, 1, err)
        self.assertIn("the connection to node 0 broke", err)
        self.assert_nothing_left(nodes[1])

    def test_node_0_waits_for_nodes_that_take_longer(self):
        script = "[ $RANK = 0 ] && exit 0\n: > ready\nwhile [ ! -e finish ]; do sleep 0.01; done"
        nodes = [self.node(rank, 2, 1, *shell(script)) for rank in range(2)]
        self.wait_for_files("ready")
        wait_until(lambda: not nodes[0].children_of(nodes[0].supervisor()), "rank 0's end")
        self.assertIsNone(nodes[0].process.poll())
        self.write("finish", "")
        self.assertEqual([node.finish()[0] for node in nodes], [0, 0])

    def test_missing_nodes_are_named_at_the_timeout(self):
        nodes = [self.node(rank, 4, 1, "/bin/true", options=("--join-timeout", "0.5")) for rank in (0, 2)]
        status, _, err = nodes[0].finish()
        self.assertEqual(status, 124)
        self.assertIn("node 1, 3 did not arrive", err)
        self.assertEqual(nodes[1].finish()[0], 124)

    def test_a_node_that_came_and_left_is_told_from_those_that_never_came(self):
        nodes = [self.node(0, 3, 1, "/bin/true", options=("--join-timeout", "2"))]
        self.node(1, 3, 1, "/bin/true", options=("--join-timeout", "0.3")).finish()
        status, _, err = nodes[0].finish()
        self.assertEqual(status, 124)
        self.assertRegex(err, r"node 2 did not arrive at this node's port \d+ in time; node 1 had arrived, and left")

    def test_a_node_that_left_is_named_when_all_others_are_there(self):
        nodes = [self.node(rank, 3, 1, "/bin/true", options=("--join-timeout", "2")) for rank in (0,)]
        self.node(2, 3, 1, "/bin/true", options=("--join-timeout", "0.3")).finish()
        nodes.append(self.node(1, 3, 1, "/bin/true", options=("--join-timeout", "30")))
        status, _, err = nodes[0].finish()
        self.assertEqual(status, 124)
        self.assertRegex(err, r"node 2 had arrived at this node's port \d+, and left before all nodes were there")
        nodes[1].finish()

    def test_without_node_0_the_reason_is_given(self):
        status, _, err = self.node(1, 2, 1, "/bin/true", options=("--join-timeout", "0.3")).finish()
        self.assertEqual(status, 124)
        self.assertIn("node 0 (Connection refused) did not arrive at 127.0.0.1", err)

    def test_signals_are_answered_while_waiting(self):
        for rank in (0, 1):
            for number in (signal.SIGINT, signal.SIGTERM):
                node = self.node(rank, 2, 1, "/bin/true")
                node.supervisor()
                wait_until(lambda: self.is_waiting(node), "the launcher to wait")
                node.signal(number)
                self.assertEqual(node.finish()[0], 128 + number)

    def is_waiting(self, node):
        return process_state(node.supervisor()) == "S"

    def test_signals_are_answered_while_a_name_is_looked_up(self):
        node = self.start("--nnodes", "2", "--node-rank", "1", "--master-addr", "no-such-host.invalid", "-n", "1", "true")
        wait_until(lambda: self.is_waiting(node), "the launcher to wait")
        node.signal(signal.SIGTERM)
        self.assertEqual(node.finish()[0], 128 + signal.SIGTERM)
        self.assert_nothing_left(node)

    def test_a_taken_port_is_one_line(self):
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", self.port))
            taken.listen()
            status, _, err = self.node(0, 2, 1, "/bin/true").finish()
        self.assertEqual(status, 125)
        self.assertIn(f"port {self.port} is in use", err)

    def test_other_nodes_need_the_address_of_node_0(self):
        status, _, err = self.run_job("--nnodes", "2", "--node-rank", "1", "/bin/true")
        self.assertEqual((status, len(err.splitlines())), (125, 1))
        self.assertIn("--master_addr", err)


if __name__ == "__main__":
    main()
