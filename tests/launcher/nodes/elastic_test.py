"""--nnodes MIN:MAX: what happens when nodes are lost, come late, wait as spares, or fail too often."""

import os
import random
import signal
import subprocess
import sys
import time

from elastic_nodes import ElasticTest, Rank
from harness import main, wait_until

SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
FAULTS = int(os.environ.get("FAULTS", "6"))


# Each rank meets all others at the round's store.
MEET = r"""
import os, socket, struct, sys, time
text = lambda data: struct.pack("<Q", len(data)) + data
os.chdir(os.environ["DDPRUN_TEST_FOLDER"])
place = os.environ["TORCHELASTIC_RESTART_COUNT"] + "." + os.environ["RANK"]
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
store.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + b"\4" + text(b"count") + struct.pack("<q", 1))
if struct.unpack("<q", store.recv(8, socket.MSG_WAITALL))[0] == int(os.environ["WORLD_SIZE"]):
    store.sendall(b"\1" + text(b"all") + text(b"yes"))
store.sendall(b"\6" + struct.pack("<Q", 1) + text(b"all"))
assert store.recv(1) == b"\0"
open("part." + place, "w").write(os.environ["MASTER_PORT"])
os.rename("part." + place, "met." + place)
while not os.path.exists("end"):
    if os.path.exists(f"fail.{os.environ['NODE']}.{os.environ['TORCHELASTIC_RESTART_COUNT']}"):
        sys.exit(7)
    time.sleep(0.02)
"""


class Elastic(ElasticTest):
    def tearDown(self):
        self.nothing_is_left()

    def start_three(self, **options):
        self.node("a", **options)
        wait_until(self.listens, "the coordinator")
        self.node("b", **options)
        self.node("c", **options)
        first = self.wait_for_three(options.get("ranks", 1))
        return first

    def listens(self):
        with open("/proc/net/tcp", encoding="ascii") as table:
            return any(f":{self.port:04X} 00000000:0000 0A" in line for line in table)

    def wait_for_three(self, ranks=1):
        """The round with all; b and c may have come in either order."""
        self.wait_for_round(0, 3 * ranks - 1)
        self.wait_for_round(0, ranks)
        second = self.read(f"round.0.{ranks}").split()[5]
        order = ["a", "b", "c"] if second == "b" else ["a", "c", "b"]
        self.round(0, order, ranks)
        return order

    def test_a_lost_node_means_a_restart_with_those_that_remain(self):
        order = self.start_three(ranks=2)
        before = self.round(0, order, 2)
        begin = time.monotonic()
        self.kill(order[1])
        after = self.round(1, ["a", order[2]], 2)
        self.assertLess(time.monotonic() - begin, 20)  # 0.6 s on a quiet machine
        self.assertNotEqual(before[0].port, after[0].port)  # a store of its own
        self.assertEqual(after[0].max_restarts, 5)
        self.said("a", "restart 1: 2 nodes and 4 ranks")
        self.said(order[2], "the launcher of host " + order[1])
        self.finish_well("a", order[2])

    def test_a_rank_that_fails_restarts_all_nodes_its_own_too(self):
        order = self.start_three()
        self.write("fail.b.0", "")
        self.round(1, order)
        self.finish_well("a", "b", "c")
        self.assertIn("failed first", self.log("b"))

    def test_a_frozen_launcher_is_left_behind_and_comes_back_when_it_is_itself_again(self):
        order = self.start_three(options=("--join_restart",))
        frozen, other = order[1], order[2]
        pid = self.nodes[frozen].supervisor()
        os.kill(pid, signal.SIGSTOP)
        self.round(1, ["a", other])
        os.kill(pid, signal.SIGCONT)
        self.round(2, ["a", other, frozen])
        self.finish_well("a", other, frozen)

    def test_a_coordinator_that_is_killed_before_the_first_round_is_waited_for(self):
        options = {"nnodes": "3:4", "options": ("--last_call", "1")}
        for name in "ab":
            self.node(name, **options)
        self.said("b", "2 of 3 to 4 nodes have joined")
        self.kill("a")
        self.assertNotEqual(self.nodes["a"].finish()[0], 0)
        for name in "cd":
            self.node(name, **options)
        for place in range(3):
            self.wait_for_round(0, place)
        self.finish_well("b", "c", "d")

    def test_a_node_that_was_frozen_when_the_job_ended_ends_as_the_others_did(self):
        order = self.start_three(options=("--node_timeout", "2"))
        pid = self.nodes[order[2]].supervisor()
        os.kill(pid, signal.SIGSTOP)
        self.round(1, order[:2])
        self.write("end", "")
        self.end(order[1])
        os.kill(pid, signal.SIGCONT)
        self.end(order[2], order[0])
        self.said(order[2], "the job has ended successfully without this node")

    def test_a_node_that_waits_for_others_says_so_and_ends_when_it_is_told_to(self):
        self.node("a")
        self.said("a", "1 of 2 to 3 nodes has joined")
        self.nodes["a"].signal(signal.SIGTERM)
        self.end("a", status=143)

    def test_below_the_fewest_nodes_the_job_ends_by_words_that_say_so(self):
        options = {"nnodes": "2:3", "options": ("--last_call", "0", "--join_timeout", "2")}
        self.node("a", **options)
        wait_until(self.listens, "the coordinator")
        self.node("b", **options)
        self.round(0, ["a", "b"])
        self.kill("b")
        self.end("a", status=124)
        self.assertIn("1 of 2 to 3 nodes has joined, and no others joined within --join_timeout", self.log("a"))

    def test_below_the_fewest_nodes_another_one_is_waited_for(self):
        options = {"nnodes": "2:3", "options": ("--last_call", "0")}
        self.node("a", **options)
        wait_until(self.listens, "the coordinator")
        self.node("b", **options)
        self.round(0, ["a", "b"])
        self.kill("b")
        self.said("a", "waiting for more nodes at .*1 of 2 to 3 nodes has joined")
        self.node("c", **options)
        self.round(1, ["a", "c"])
        self.finish_well("a", "c")

    def test_a_late_node_is_taken_in_at_the_next_restart(self):
        options = {"options": ("--last_call", "0")}
        self.node("a", **options)
        wait_until(self.listens, "the coordinator")
        self.node("b", **options)
        self.round(0, ["a", "b"])
        self.node("c", **options)
        self.said("c", "the job runs with 2 nodes: this node waits for its next restart")
        self.assertFalse(os.path.exists(self.path("round.1.0")))
        self.write("fail.b.0", "")
        self.round(1, ["a", "b", "c"])
        self.finish_well("a", "b", "c")

    def test_with_join_restart_a_late_node_is_taken_in_at_once_without_a_restart_of_the_budget(self):
        options = {"options": ("--last_call", "0", "--join_restart"), "restarts": 0}
        self.node("a", **options)
        wait_until(self.listens, "the coordinator")
        self.node("b", **options)
        self.round(0, ["a", "b"])
        self.node("c", **options)
        self.round(1, ["a", "b", "c"])
        self.assertIn("stopped to continue with other nodes: a node has joined on host c", self.log("b"))
        self.finish_well("a", "b", "c")

    def test_a_spare_waits_and_takes_the_place_of_a_lost_node(self):
        order = self.start_three()
        self.node("d")
        self.said("d", "as many as --nnodes allows: this node waits as a spare")
        self.kill(order[2])
        self.round(1, ["a", order[1], "d"])
        self.finish_well("a", order[1], "d")

    def test_a_spare_that_was_not_needed_ends_well_with_the_job(self):
        self.start_three()
        self.node("d")
        self.said("d", "spare")
        self.finish_well("a", "b", "c", "d")
        self.assertIn("the job has ended successfully without this node", self.log("d"))

    def test_a_spare_ends_with_the_status_of_a_job_that_fails(self):
        self.start_three(restarts=0)
        self.node("d", restarts=0)
        self.said("d", "spare")
        self.write("fail.b.0", "")
        self.end("a", "b", "c", "d", status=7)
        self.assertIn("the job is not restarted: --max_restarts is 0", self.log("c"))

    def test_a_host_that_fails_again_and_again_is_left_out(self):
        order = self.start_three(options=("--host_failures", "2"))
        self.write("fail.b.0", "")
        self.round(1, order)
        self.write("fail.b.1", "")
        self.round(2, ["a", "c"])
        self.end("b", status=1)
        self.assertIn("host b has failed 2 times and is left out of the job", self.log("b"))
        again = self.node("b", options=("--host_failures", "2"))
        self.assertEqual(again.finish()[0], 1)
        self.finish_well("a", "c")

    def test_ranks_of_other_nodes_reach_the_store_of_each_round_by_their_launchers(self):
        script = self.write("meet.py", MEET)
        self.node("a", program=(sys.executable, script), options=("--store_proxy", "all"))
        wait_until(self.listens, "the coordinator")
        for name in "bc":
            self.node(name, program=(sys.executable, script), options=("--store_proxy", "all"))
        for round_number in range(2):
            self.wait_for_files(*[f"met.{round_number}.{rank}" for rank in range(3)])
            ports = {int(self.read(f"met.{round_number}.{rank}")) for rank in range(3)}
            self.assertEqual(len(ports), 3)  # the store's own, and two proxies'
            self.write(f"fail.b.{round_number}", "")
        self.finish_well("a", "b", "c")

    def test_a_budget_of_restarts_within_an_hour_ends_a_job_that_fails_too_often(self):
        order = self.start_three(options=("--restarts_per_hour", "1"))
        self.write("fail.b.0", "")
        self.round(1, order)
        self.write("fail.c.1", "")
        self.end("a", "b", "c", status=7)
        for name in order:
            self.assertIn("not restarted: it was restarted 1 times within an hour, as often as --restarts_per_hour", self.log(name))

    def test_the_loss_of_the_coordinator_ends_the_job_on_all_nodes_by_words_that_say_so(self):
        self.start_three()
        self.node("d")
        self.said("d", "spare")
        self.kill("a")
        self.end("b", "c", "d", status=1)
        for name in "bcd":
            self.assertIn("it coordinates the job, which ends with it", self.log(name))

    def test_a_launcher_is_lost_by_the_end_of_any_of_its_processes(self):
        order, number = self.start_three(restarts=9, options=("--join_restart",)), 0
        for process in ("guardian", "sweeper", "supervisor"):
            with self.subTest(process=process):
                os.kill(self.processes(order[1])[process], signal.SIGKILL)
                self.round(number + 1, ["a", order[2]])
                self.assertNotEqual(self.nodes[order[1]].finish()[0], 0)
                new = f"after_{process}"
                self.node(new, restarts=9, options=("--join_restart",))
                order, number = ["a", order[2], new], number + 2
                self.round(number, order)
        self.finish_well(*order)

    def test_the_coordinator_is_lost_by_the_end_of_any_of_its_processes(self):
        for process in ("guardian", "sweeper", "supervisor"):
            with self.subTest(process=process):
                self.start_three()
                os.kill(self.processes("a")[process], signal.SIGKILL)
                self.end("b", "c", status=1)
                for name in "bc":
                    self.assertRegex(self.log(name), "it coordinates the job, which ends with it|one of ddprun's processes on host .* was killed")
                self.assertNotEqual(self.nodes["a"].finish()[0], 0)
                for name in os.listdir(self.folder):
                    os.remove(self.path(name))

    def test_a_node_that_is_told_to_stop_leaves_and_the_others_go_on_without_losing_a_restart(self):
        order = self.start_three(restarts=0)
        self.nodes[order[1]].signal(signal.SIGTERM)
        self.end(order[1], status=143)
        self.round(1, ["a", order[2]])
        self.finish_well("a", order[2])

    def test_the_coordinator_that_is_told_to_stop_stops_the_job(self):
        self.start_three()
        self.nodes["a"].signal(signal.SIGTERM)
        self.end("a", "b", "c", status=143)

    def test_a_node_that_was_started_otherwise_is_refused_and_the_others_go_on(self):
        self.start_three()
        odd = self.node("d", nnodes="1:3")
        self.assertEqual(odd.finish()[0], 125)
        self.assertIn("was started with --nnodes 1:3", self.log("d"))
        self.finish_well("a", "b", "c")

    def test_nodes_of_different_sizes_get_consecutive_ranks_in_each_round(self):
        self.node("a", options=("--last_call", "0"), ranks=1)
        wait_until(self.listens, "the coordinator")
        self.node("b", options=("--last_call", "0"), ranks=3)
        for rank in range(4):
            self.wait_for_round(0, rank)
        self.assertEqual([self.read(f"round.0.{rank}").split()[5] for rank in range(4)], ["a", "b", "b", "b"])
        self.write("fail.a.0", "")
        self.wait_for_round(1, 3)
        self.finish_well("a", "b")

    def test_whatever_happens_to_nodes_the_others_run_on_densely_or_end_alike(self):
        dice = random.Random(SEED)
        for number in range(FAULTS):
            with self.subTest(seed=SEED, number=number):
                self.one_life(dice)
            self.nothing_is_left()
            for name in os.listdir(self.folder):
                os.remove(self.path(name))
            self.nodes = {}

    def runs_alone(self):
        path = self.path("round.0.0")
        return os.path.exists(path) and Rank(self.read("round.0.0")).groups == 1

    def one_life(self, dice):
        """Three nodes, of which two meet faults at any moment, one after the other; the coordinator stays."""
        begin = ("a", "b", "c")
        for name in begin:
            self.node(name, nnodes="1:3", options=("--last_call", "1", "--join_timeout", "20"))
            if name == "a":
                wait_until(self.listens, "the coordinator")
        frozen = []
        for name in dice.sample("bc", 2):
            time.sleep(dice.random() * 1.5)
            kind = dice.choice(["kill", "freeze", "guardian", "rank"])
            if kind == "kill":
                self.kill(name)
            elif kind == "guardian":
                os.kill(self.nodes[name].process.pid, signal.SIGKILL)
            elif kind == "freeze":
                frozen.append(self.nodes[name].supervisor())
                os.kill(frozen[-1], signal.SIGSTOP)
            else:
                for number in range(4):
                    self.write(f"fail.{name}.{number}", "")
        # On a busy machine neither of them may have come before the last call was over: then nothing is lost with them.
        wait_until(lambda: "restart " in self.log("a") or self.runs_alone() or time.sleep(0.02), "a restart\n" + self.logs())
        self.write("end", "")
        self.end("a")
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        for name in "bc":
            try:
                self.nodes[name].finish()
            except subprocess.TimeoutExpired:
                self.fail(f"{name} does not end\n{self.logs()}")


if __name__ == "__main__":
    main()
