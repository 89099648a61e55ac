"""Several nodes: launchers on this machine that meet as if they were on different ones."""

import json
import os
import re
import resource
import signal
import socket
import time
import unittest

from harness import DDPRUN, LauncherTest, free_port, main, process_state, shell, wait_until


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

    def test_too_few_open_files_for_so_many_nodes_are_said_before_any_comes(self):
        node = self.start("-c", 'ulimit -n 200; exec "$@"', "sh", DDPRUN, "--nnodes", "100", "--node_rank", "0", "--master_addr",
                          "127.0.0.1", "--master_port", str(self.port), "true", program="/bin/sh")
        status, _, err = node.finish()
        self.assertEqual(status, 125, err)
        self.assertIn("--nnodes 100 needs 264 open files on the node with the store, whose limit is 200 (ulimit -Hn)", err)

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

    def test_all_nodes_print_the_whole_report_on_the_first_failure(self):
        error = '{"message": {"message": "ValueError: no such shard", "extraInfo": {"timestamp": "1"}}}'
        script = (": > ready.$RANK\n[ $RANK = FAILING ] || exec sleep 1000\nwhile [ ! -e go ]; do sleep 0.01; done\n"
                  f"echo 'some last words' >&2\necho '{error}' > $TORCHELASTIC_ERROR_FILE\nkill -SEGV $$")
        for failing in (1, 4):
            nodes = [self.node(rank, 3, 2, *shell(script.replace("FAILING", str(failing)))) for rank in range(3)]
            self.wait_for_files(*[f"ready.{rank}" for rank in range(6)])
            self.write("go", "")
            reports = []
            for node in nodes:
                status, _, err = node.finish()
                self.assertEqual(status, 128 + signal.SIGSEGV, err)
                self.assertIn(f"rank {failing}", err)
                self.assertIn("was killed by SIGSEGV", err)
                reports.append(re.search(r"  when:   .*\n  where:  .*\n(.*\n)*?(?=  others|\Z)", err)[0])
            self.assertEqual(len(set(reports)), 1, reports)
            self.assertIn(f"where:  host {socket.gethostname()}, local rank {failing % 2}, process ", reports[0])
            self.assertIn("    ValueError: no such shard\n", reports[0])
            self.assertIn("    some last words\n", reports[0])
            for name in os.listdir(self.folder):
                os.remove(self.path(name))

    def test_all_nodes_of_a_job_that_was_stopped_end_alike(self):
        end = 'trap "exit {}" TERM INT\n: > ready.$RANK\nwhile :; do sleep 0.01; done'
        for ends, number, expected in (((0, 0, 0), signal.SIGTERM, 0), ((85, 0, 85), signal.SIGTERM, 85), ((0, 85, 7), signal.SIGTERM, 143),
                                       ((85, 3, 85), signal.SIGINT, 130)):
            for told in ((1,), (0, 1, 2)):
                nodes = [self.node(rank, 3, 1, *shell(end.format(ends[rank]))) for rank in range(3)]
                self.wait_for_files(*[f"ready.{rank}" for rank in range(3)])
                for rank in told:
                    nodes[rank].signal(number)
                ended = [node.finish() for node in nodes]
                self.assertEqual([status for status, _, _ in ended], [expected] * 3, ended)
                for name in os.listdir(self.folder):
                    os.remove(self.path(name))

    def test_a_stopped_job_ends_with_its_slowest_node_whichever_that_is(self):
        script = 'trap "while [ ! -e end.$RANK ]; do sleep 0.01; done; exit 85" TERM\n: > ready.$RANK\nwhile :; do sleep 0.01; done'
        for slowest in range(3):
            nodes = [self.node(rank, 3, 1, *shell(script)) for rank in range(3)]
            self.wait_for_files(*[f"ready.{rank}" for rank in range(3)])
            nodes[1].signal(signal.SIGTERM)
            for rank in range(3):
                if rank != slowest:
                    self.write(f"end.{rank}", "")
                    wait_until(lambda rank=rank: not nodes[rank].children_of(nodes[rank].supervisor()), "its rank's end")
            self.assertEqual([node.process.poll() for node in nodes], [None] * 3)
            self.write(f"end.{slowest}", "")
            self.assertEqual([node.finish()[0] for node in nodes], [85] * 3)
            for name in os.listdir(self.folder):
                os.remove(self.path(name))

    def test_a_secret_that_others_can_read_is_warned_of(self):
        if "built without libsodium" in self.run_job("--check")[1]:
            self.skipTest("this ddprun was built without libsodium")
        secret = self.write("secret", "a secret of many bytes\n")
        for mode, is_exposed in ((0o600, False), (0o644, True), (0o660, True)):
            os.chmod(secret, mode)
            nodes = [self.node(rank, 2, 1, "true", options=("--rdzv-secret-file", secret)) for rank in range(2)]
            for node in nodes:
                status, _, err = node.finish()
                self.assertEqual(status, 0, err)
                self.assertEqual(f"has the mode {mode:04o}, so other users may be able to read the secret" in err, is_exposed, err)

    def test_when_node_0_is_killed_the_others_stop(self):
        nodes = [self.node(rank, 2, 1, *shell(": > ready.$RANK; exec sleep 1000")) for rank in range(2)]
        self.wait_for_files("ready.0", "ready.1")
        nodes[0].signal(signal.SIGKILL)
        status, _, err = nodes[1].finish()
        self.assertEqual(status, 1, err)
        # What is left of node 0 may still be able to say it.
        self.assertRegex(err, "because of node 0: (the connection to node 0 broke|one of ddprun's processes on host .* was killed)")
        self.assert_nothing_left(nodes[1])

    def test_node_0_without_an_address_says_that_the_others_need_one(self):
        status, _, err = self.run_job("--nnodes", "2", "--node_rank", "0", "--master_port", "0", "--join_timeout", "1", "true")
        self.assertEqual(status, 124)
        self.assertIn("(the other nodes need --master_addr ", err)

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

    def lines_of(self, node, text):
        """Reads what `node` says until a line with `text`."""
        lines = []
        while not lines or text not in lines[-1]:
            lines.append(node.process.stderr.readline().decode())
            self.assertNotEqual(lines[-1], "", "it ended without saying so: " + "".join(lines))
        return lines

    def come_and_go(self, node_0, rank, nnodes):
        node = self.node(rank, nnodes, 1, "/bin/true")
        wait_until(lambda: self.is_waiting(node), "the launcher to wait")
        wait_until(lambda: self.established(node), "its connection")
        node.signal(signal.SIGTERM)
        self.assertEqual(node.finish()[0], 128 + signal.SIGTERM)
        self.lines_of(node_0, f"node {rank} (host {socket.gethostname()}) left before all had arrived")

    def established(self, node):
        """Its supervisor has a connection that is not the store's."""
        with open(f"/proc/{node.supervisor()}/net/tcp", encoding="ascii") as table:
            ports = {int(line.split()[2].split(":")[1], 16) for line in table.readlines()[1:] if line.split()[3] == "01"}
        return bool(ports - {self.port})

    def test_a_node_that_came_and_left_is_told_from_those_that_never_came(self):
        node_0 = self.node(0, 3, 1, "/bin/true", options=("--join-timeout", "10"))
        self.come_and_go(node_0, 1, 3)
        status, _, err = node_0.finish()
        self.assertEqual(status, 124)
        self.assertRegex(err, r"node 2 did not arrive at 127.0.0.1 port \d+ within the .* of --join_timeout; node 1 had arrived, and left")

    def test_a_node_that_left_is_named_when_all_others_are_there(self):
        node_0 = self.node(0, 3, 1, "/bin/true", options=("--join-timeout", "10"))
        self.come_and_go(node_0, 2, 3)
        node_1 = self.node(1, 3, 1, "/bin/true")
        for node in (node_0, node_1):
            status, _, err = node.finish()
            self.assertEqual(status, 124, err)
            self.assertRegex(err, r"node 2 had arrived at 127.0.0.1 port \d+, and left before all nodes were there")

    def test_node_0_that_is_killed_before_all_have_arrived_can_be_started_again(self):
        node_0 = self.node(0, 3, 1, "/bin/true")
        node_1 = self.node(1, 3, 1, "/bin/true")
        self.lines_of(node_1, "waiting for node 2")  # node 0 has told it
        os.kill(node_0.supervisor(), signal.SIGKILL)
        self.assertNotEqual(node_0.finish()[0], 0)
        node_2 = self.node(2, 3, 1, "/bin/true")
        node_0 = self.node(0, 3, 1, "/bin/true")
        for node in (node_0, node_1, node_2):
            status, _, err = node.finish()
            self.assertEqual(status, 0, err)

    def test_a_node_that_cannot_start_ends_all_of_them_at_once(self):
        for troubled in (0, 2):
            begin = time.monotonic()
            nodes = [self.node(rank, 3, 1, "no-such-program" if rank == troubled else "/bin/true") for rank in range(3)]
            for rank, node in enumerate(nodes):
                status, _, err = node.finish()
                self.assertEqual(status, 127, err)
                self.assertIn("no-such-program", err)
                if rank != troubled:
                    self.assertIn(f"node {troubled} (host {socket.gethostname()}) could not start: ", err)
            self.assertLess(time.monotonic() - begin, 20)  # not the time for joining

    def test_two_nodes_that_cannot_start_end_with_one_status(self):
        self.write("plain", "not a program")
        for first, second in (("./nothing", self.path("plain")), (self.path("plain"), "./nothing")):
            nodes = [self.node(rank, 2, 1, program) for rank, program in enumerate((first, second))]
            statuses = {node.finish()[0] for node in nodes}
            self.assertEqual(len(statuses), 1, statuses)
            self.assertIn(statuses.pop(), (126, 127))

    def test_a_node_that_fails_when_all_have_met_ends_them(self):
        self.write("file", "")
        nodes = [self.node(rank, 2, 1, "sleep", "1000", options=("--log-dir", self.path("file")) if rank else ())
                 for rank in range(2)]
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 125, err)
            self.assert_nothing_left(node)

    def test_a_node_rank_that_was_given_twice_is_noticed(self):
        nodes = [self.node(rank, 3, 1, "/bin/true") for rank in (0, 1, 1)]
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 125, err)
            self.assertIn("--node_rank 1 is used twice", err)

    def test_other_numbers_of_nodes_are_noticed(self):
        nodes = [self.node(rank, 2 + rank, 1, "/bin/true") for rank in (0, 1)]
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 125, err)
            self.assertRegex(err, r"node 1 \(host .*\) was started with --nnodes 3, node 0 \(host .*\) with --nnodes 2")

    def test_the_time_of_one_node_ends_all(self):
        nodes = [self.node(rank, 2, 1, "sleep", "1000", options=("--timeout", "1") if rank else ()) for rank in range(2)]
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 124, err)
            self.assertIn("--timeout expired", err)

    def test_a_failed_job_is_started_again_on_all_nodes(self):
        script = ('echo $TORCHELASTIC_RESTART_COUNT >> attempts.$RANK\n'
                  'if [ $RANK = 2 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then\n'
                  'until [ -s attempts.0 ] && [ -s attempts.1 ] && [ -s attempts.3 ]; do sleep 0.01; done; exit 3; fi\n'
                  '[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 1000\nexit 0')
        nodes = [self.node(rank, 2, 2, *shell(script), options=("--max-restarts", "1")) for rank in range(2)]
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 0, err)
            self.assertIn("restart 1 of 1", err)
        self.assertEqual([self.read(f"attempts.{rank}") for rank in range(4)], ["0\n1\n"] * 4)

    def test_restarts_that_are_used_up_end_all_nodes(self):
        nodes = [self.node(rank, 2, 1, *shell("[ $RANK = 1 ] && exit 3; exec sleep 1000"), options=("--max-restarts", "2"))
                 for rank in range(2)]
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 3, err)
            self.assertIn("restart 2 of 2", err)
            self.assert_nothing_left(node)

    def test_a_stop_of_one_node_is_not_restarted(self):
        nodes = [self.node(rank, 2, 1, *shell(": > ready.$RANK; exec sleep 1000"), options=("--max-restarts", "2"))
                 for rank in range(2)]
        self.wait_for_files("ready.0", "ready.1")
        nodes[1].signal(signal.SIGTERM)
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 128 + signal.SIGTERM)
            self.assertNotIn("restarting", err)

    def test_a_launcher_that_is_killed_ends_all_others_at_once_and_a_frozen_one_after_node_timeout(self):
        for victim, number in ((0, signal.SIGKILL), (2, signal.SIGKILL), (0, signal.SIGSTOP), (2, signal.SIGSTOP)):
            options = ("--node-timeout", "1") if number == signal.SIGSTOP else ()
            nodes = [self.node(rank, 3, 1, *shell(": > ready.$RANK; exec sleep 1000"), options=options) for rank in range(3)]
            self.wait_for_files(*[f"ready.{rank}" for rank in range(3)])
            begin = time.monotonic()
            os.kill(nodes[victim].supervisor(), number)
            for rank, node in enumerate(nodes):
                if rank == victim:
                    continue
                status, _, err = node.finish()
                self.assertEqual(status, 1, err)
                self.assertIn("the connection to node 0 broke" if victim == 0 else f"the launcher of node {victim} (host", err)
                self.assert_nothing_left(node)
            self.assertLess(time.monotonic() - begin, 10)  # 1.2 s on a quiet machine
            nodes[victim].clean_up()
            for name in os.listdir(self.folder):
                os.remove(self.path(name))

    def test_nodes_meet_soon_whichever_comes_last(self):
        for last in range(4):
            nodes = [self.node(rank, 4, 1, "true", options=("--events", self.path(f"{last}.{rank}"))) for rank in range(4)
                     if rank != last]
            for node in nodes:
                wait_until(lambda node=node: self.is_waiting(node), "the launcher to wait")
            begin = time.time()
            nodes.append(self.node(last, 4, 1, "true", options=("--events", self.path(f"{last}.{last}"))))
            for node in nodes:
                status, _, err = node.finish()
                self.assertEqual(status, 0, err)
            starts = [json.loads(self.read(f"{last}.{rank}").splitlines()[0]) for rank in range(4)]
            self.assertEqual([event["event"] for event in starts], ["start"] * 4)
            self.assertLess(max(event["time"] for event in starts) - begin, 0.5)  # 0.05 s on a quiet machine

    def test_the_same_command_on_each_node(self):
        script = 'echo "$RANK $WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE" > rank.$RANK'
        nodes = [self.start("--nnodes", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{self.port}", "-n", "2",
                            *shell(script)) for _ in range(3)]
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 0, err)
        for rank in range(6):
            self.assertEqual(self.read(f"rank.{rank}"), f"{rank} 6 {rank // 2} 3\n")

    def test_an_endpoint_that_nobody_knows_is_not_waited_for_longer_than_the_nodes_are(self):
        begin = time.monotonic()
        status, _, err = self.run_job("--nnodes", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint", "no-such-host.invalid:29400",
                                      "--join_timeout", "6", "true")
        self.assertEqual(status, 124, err)
        self.assertIn("--rdzv_endpoint: the name no-such-host.invalid cannot be resolved yet", err)
        self.assertIn("--rdzv_endpoint: the name no-such-host.invalid could not be resolved within the ", err)
        self.assertLess(time.monotonic() - begin, 40)  # 6 s on a quiet machine

    def test_nodes_meet_at_the_loopback_address_of_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError:
            self.skipTest("there is no ::1")
        nodes = [self.start("--nnodes", "2", "--node-rank", str(rank), "--master-addr", "::1", "--master-port", str(self.port), "-n", "1",
                            *shell('echo "$MASTER_ADDR" > address.$RANK')) for rank in (1, 0)]
        for node in nodes:
            status, _, err = node.finish()
            self.assertEqual(status, 0, err)
        self.assertEqual([self.read(f"address.{rank}") for rank in range(2)], ["::1\n"] * 2)

    def test_a_rank_that_is_writing_its_core_file_is_blamed_and_not_the_one_that_lost_it(self):
        with open("/proc/sys/kernel/core_pattern", encoding="ascii") as pattern:
            if pattern.read().startswith("|") or resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
                self.skipTest("no core files are written here")
        self.write("crash.py", "import os, signal, time\nmemory = b'x' * 400_000_000\nopen('pid', 'w').write(str(os.getpid()))\n"
                   "while not os.path.exists('go'): time.sleep(0.01)\nos.kill(os.getpid(), signal.SIGSEGV)")
        script = ("case $RANK in\n2) ulimit -c unlimited; exec python3 crash.py;;\n1) until [ -s pid ]; do sleep 0.01; done; : > go\n"
                  "until grep -q 'CoreDumping:.*1' /proc/$(cat pid)/status; do [ -e /proc/$(cat pid) ] || exit 99; done\n"
                  ": > dumping; echo 'RuntimeError: Connection closed by peer' >&2; exit 1;;\nesac; exec sleep 1000")
        nodes = [self.node(rank, 3, 1, *shell(script)) for rank in range(3)]
        for node in nodes:
            status, _, err = node.finish()
            if not os.path.exists(self.path("dumping")):
                self.skipTest("the core file was written too soon")
            self.assertEqual(status, 128 + signal.SIGSEGV, err)
            self.assertRegex(err, "rank 2 (failed first|on host .* was killed by SIGSEGV)")

    @unittest.skipIf(os.environ.get("SANITIZERS"), "sanitizers have to be the first library")
    def test_the_first_failure_is_the_first_one_also_where_clocks_differ_by_minutes(self):
        """Node 0 hears of two failures at once, as it was held up; the later one has the earlier time, by its node's clock."""
        script = ": > ready.$RANK\nwhile [ ! -e go.$RANK ]; do sleep 0.01; done; : > gone.$RANK; exit 4$RANK"
        for skews in ((0, 300, -300), (0, -300, 300), (-600, 0, 0)):
            nodes = []
            for rank, skew in enumerate(skews):
                clock = {"LD_PRELOAD": os.environ["SKEWED_CLOCK"], "SKEWED_CLOCK_SECONDS": str(skew)}
                place = ("--nnodes", "3", "--node-rank", str(rank), "--master-addr", "127.0.0.1", "--master-port", str(self.port))
                nodes.append(self.start(*place, "-n", "1", "--node-timeout", "5", *shell(script), environment=clock))
            self.wait_for_files(*[f"ready.{rank}" for rank in range(3)])
            time.sleep(1.2)  # each clock was asked for
            frozen = nodes[0].supervisor()
            os.kill(frozen, signal.SIGSTOP)
            for rank in (1, 2):
                self.write(f"go.{rank}", "")
                self.wait_for_files(f"gone.{rank}")
                time.sleep(0.2)  # by which one is earlier
            os.kill(frozen, signal.SIGCONT)
            for node in nodes:
                status, _, err = node.finish()
                self.assertEqual(status, 41, (skews, err))
                self.assertRegex(err, "rank 1 (failed first|on host .* exited with status 41)")
            for name in os.listdir(self.folder):
                os.remove(self.path(name))

    def test_without_node_0_the_reason_is_given(self):
        status, _, err = self.node(1, 2, 1, "/bin/true", options=("--join-timeout", "0.3")).finish()
        self.assertEqual(status, 124)
        self.assertIn("node 0 (Connection refused) did not answer at 127.0.0.1", err)

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
