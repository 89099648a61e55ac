"""--rdzv_backend etcd: launchers that are killed in any of their processes, frozen, or cannot start their ranks."""

import os
import random
import shutil
import signal
import time

from etcd_nodes import WHY_NOT, EtcdTest
from harness import main, wait_until

SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
FAULTS = int(os.environ.get("FAULTS", "1"))
KILLS = int(os.environ.get("KILLS", "2"))


class EtcdDeaths(EtcdTest):
    def test_whichever_nodes_are_lost_or_frozen_the_one_that_is_left_ends_well(self):
        dice = random.Random(SEED)
        for number in range(FAULTS):
            with self.subTest(seed=SEED, number=number):
                self.one_life(dice)
            self.nothing_is_left()
            for name in os.listdir(self.folder):
                if name != "etcd":
                    os.remove(self.path(name))
            self.nodes = {}
            wait_until(lambda: not self.server.keys(), "the end of the job's keys")

    def one_life(self, dice):
        for name in "abc":
            self.etcd_node(name, nnodes="1:3")
        self.names_in(0, 3)
        frozen, lost = [], dice.sample("abc", 2)
        for name in lost:
            time.sleep(dice.random() * 3)
            pid = self.nodes[name].supervisor()
            kind = dice.choice(["kill", "freeze", "guardian"])
            if kind == "freeze":
                frozen.append(pid)
                os.kill(pid, signal.SIGSTOP)
            else:
                os.kill(pid if kind == "kill" else self.nodes[name].process.pid, signal.SIGKILL)
        left = next(name for name in "abc" if name not in lost)
        self.said(left, r"restart \d+: 1 node and 1 rank")
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
        self.write("end", "")
        self.end(left)
        for name in lost:
            self.nodes[name].finish()

    def test_no_death_of_a_launcher_ends_the_job_whichever_of_its_processes_is_killed(self):
        options = {"nnodes": "1:3", "restarts": 1000, "options": ("--join_restart",)}
        for name in "abc":
            self.etcd_node(name, **options)
        order, number = self.names_in(0, 3), 0
        for kill in range(6 * KILLS):
            place, process = kill % 2, ("guardian", "sweeper", "supervisor")[kill // 2 % 3]
            lost = order[place]
            with self.subTest(process=process, coordinator=place == 0, kill=kill):
                os.kill(self.processes(lost)[process], signal.SIGKILL)
                left = self.names_in(number + 1, 2)
                self.assertEqual(set(left), set(order) - {lost}, self.logs())
                self.assertNotEqual(self.nodes[lost].finish()[0], 0)
                wait_until(lambda: self.server.keys().get("history", {}).get("restarts") == kill + 1, "the count of failures")
                new = f"n{kill}"
                self.etcd_node(new, **options)
                order, number = self.names_in(number + 2, 3), number + 2
        self.finish_well(*order)

    def test_a_coordinator_that_is_lost_before_the_first_round_takes_no_restart(self):
        self.etcd_node("a", restarts=0)
        self.said("a", "1 of 2 to 3 nodes has joined")
        self.kill("a")
        for name in "bcd":
            self.etcd_node(name, restarts=0)
        order = self.names_in(0, 3)
        self.assertEqual(self.server.keys()["history"]["restarts"], 0)
        self.finish_well(*order)

    def test_a_coordinator_without_its_guardian_takes_a_restart_and_none_is_left_for_the_next(self):
        order = self.start_three(nnodes="1:3", restarts=1)
        self.nodes[order[0]].signal(signal.SIGKILL)
        second = self.names_in(1, 2)
        self.nodes[second[0]].signal(signal.SIGKILL)
        self.end(second[1], status=1)
        self.said(second[1], "the job is not restarted: it was restarted 1 times, as often as --max_restarts allows")
        self.assertEqual(self.server.keys(), {})

    def test_a_coordinator_that_cannot_start_its_ranks_leaves_and_the_others_continue(self):
        """Its disk is full, or it has no memory: here the folder of its logs is gone when the second round begins."""
        self.etcd_node("a", options=("--log_dir", self.path("logs"), "--tee", "3"))
        self.said("a", "1 of 2 to 3 nodes has joined")
        for name in "bc":
            self.etcd_node(name)
        order = self.names_in(0, 3)
        self.assertEqual(order[0], "a")
        shutil.rmtree(self.path("logs"))
        self.write("logs", "a file")
        self.write("fail.b.0", "")
        left = self.names_in(2, 2)
        self.assertEqual(set(left), {"b", "c"})
        self.assertEqual(self.server.keys()["history"]["restarts"], 2)
        self.end("a", status=125)
        self.finish_well("b", "c")

    def test_a_coordinator_that_is_frozen_is_replaced_and_joins_again_when_it_is_itself(self):
        order = self.start_three(options=("--join_restart",))
        pid = self.nodes[order[0]].supervisor()
        os.kill(pid, signal.SIGSTOP)
        others = self.names_in(1, 2)
        self.assertEqual(set(others), set(order[1:]))
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.names_in(2, 3), [*others, order[0]])
        self.finish_well(*order)

    def test_a_node_that_was_frozen_when_the_job_ended_ends_as_the_others_did(self):
        for status in (0, 7):
            order = self.start_three(restarts=1)
            pid = self.nodes[order[2]].supervisor()
            os.kill(pid, signal.SIGSTOP)
            left = self.names_in(1, 2)
            if status == 0:
                self.finish_well(*left)
            else:
                self.write(f"fail.{left[1]}.1", "")
                self.end(*left, status=7)
            self.assertEqual(set(self.server.all_keys()), {"end"})
            os.kill(pid, signal.SIGCONT)
            self.end(order[2], status=status)
            self.said(order[2], "the job has ended successfully without this node" if status == 0 else "the job has ended: rank 1")
            for name in os.listdir(self.folder):
                if name != "etcd":
                    os.remove(self.path(name))

    def test_how_a_job_has_ended_is_kept_for_a_minute_and_not_for_the_next_job(self):
        self.start_three()
        self.finish_well("a", "b", "c")
        self.assertEqual(self.server.all_keys()["end"], {"text": "the job has ended successfully without this node", "status": 0})
        leases = self.server.ask("/v3/lease/leases")["leases"]
        left = [int(self.server.ask("/v3/lease/timetolive", ID=lease["ID"], keys=True)["TTL"])
                for lease in leases if self.server.ask("/v3/lease/timetolive", ID=lease["ID"], keys=True).get("keys")]
        self.assertEqual(len(left), 1)
        self.assertLessEqual(left[0], 60)
        os.remove(self.path("end"))
        for name in ("round.0.0", "round.0.1", "round.0.2"):
            os.remove(self.path(name))
        self.start_three()
        self.assertNotIn("end", self.server.all_keys())
        self.finish_well("a", "b", "c")


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped: " + WHY_NOT)
        raise SystemExit(77)
    main()
