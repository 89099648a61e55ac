"""--rdzv_backend etcd-v2 with a real etcd: the job survives the loss of whichever node coordinates it."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

from elastic_nodes import ElasticTest, free_port
from harness import main, wait_until


SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
FAULTS = int(os.environ.get("FAULTS", "2"))


def obstacle():
    if shutil.which("etcd") is None:
        return "there is no etcd (Debian's package etcd-server)"
    text = subprocess.run(["etcd", "--help"], capture_output=True, text=True, check=False)
    return "" if "--enable-v2" in text.stdout + text.stderr else "this etcd has no API v2"


WHY_NOT = obstacle()


class Server:
    """An etcd on loopback, in a folder of its own."""

    def __init__(self, folder, port, v2=True):
        self.url = f"http://127.0.0.1:{port}"
        peer = f"http://127.0.0.1:{free_port()}"
        self.process = subprocess.Popen(
            ["etcd", "--data-dir", folder, "--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--name", "one",
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}",
             f"--enable-v2={str(v2).lower()}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self.is_healthy, "etcd")

    def is_healthy(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as reply:
                return json.load(reply)["health"] == "true"
        except OSError:
            return False

    def keys(self, job="none"):
        try:
            with urllib.request.urlopen(f"{self.url}/v2/keys/ddprun/{job}", timeout=5) as reply:
                nodes = json.load(reply)["node"].get("nodes", [])
        except urllib.error.HTTPError:
            return {}
        return {node["key"].rsplit("/", 1)[1]: json.loads(node["value"]) for node in nodes}

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Etcd(ElasticTest):
    def setUp(self):
        super().setUp()
        self.server = Server(self.path("etcd"), self.port)
        self.addCleanup(self.server.stop)
        self.next_address = 0

    def tearDown(self):
        self.nothing_is_left()

    def meeting_options(self):
        return ("--rdzv_backend", "etcd-v2", "--rdzv_endpoint", f"127.0.0.1:{self.port}")

    def etcd_node(self, name, **options):
        """Each node has an address of its own, by which the others find it."""
        self.next_address += 1
        options["options"] = ("--local_addr", f"127.0.0.{self.next_address}", *options.get("options", ()))
        return self.node(name, **options)

    def start_three(self, **options):
        """Returns the names by the nodes' numbers."""
        for name in "abc":
            self.etcd_node(name, **options)
        for place in range(3):
            self.wait_for_round(0, place)
        order = [self.read(f"round.0.{place}").split()[5] for place in range(3)]
        self.round(0, order)
        return order

    def names_in(self, number, size):
        for place in range(size):
            self.wait_for_round(number, place)
        return [self.read(f"round.{number}.{place}").split()[5] for place in range(size)]

    def test_a_job_leaves_no_key_behind(self):
        self.start_three()
        # The history is written while the ranks start.
        wait_until(lambda: set(self.server.keys()) == {"coordinator", "history"}, "both keys")
        self.finish_well("a", "b", "c")
        self.assertEqual(self.server.keys(), {})

    def test_a_failed_job_leaves_no_key_behind_either(self):
        self.start_three(restarts=0)
        self.write("fail.b.0", "")
        self.end("a", "b", "c", status=7)
        self.assertEqual(self.server.keys(), {})

    def test_a_lost_node_that_does_not_coordinate_costs_no_lease(self):
        order = self.start_three()
        begin = time.monotonic()
        self.kill(order[1])
        self.assertEqual(self.names_in(1, 2), [order[0], order[2]])
        self.assertLess(time.monotonic() - begin, 20)  # 0.6 s on a quiet machine
        self.finish_well(order[0], order[2])

    def test_the_loss_of_the_coordinator_moves_its_role_to_another_node(self):
        order = self.start_three(restarts=1)
        before = self.server.keys()["coordinator"]
        self.kill(order[0])
        self.assertEqual(set(self.names_in(1, 2)), set(order[1:]))
        self.assertNotEqual(self.server.keys()["coordinator"]["token"], before["token"])
        # All that there were; it is written while the ranks start.
        wait_until(lambda: self.server.keys()["history"]["restarts"] == 1, "the history")
        self.write(f"fail.{order[1]}.1", "")
        self.end(*order[1:], status=7)
        self.said(order[1], "not restarted: it was restarted 1 times, as often as --max_restarts allows")

    def test_the_loss_of_coordinators_is_limited_as_that_of_other_nodes_is(self):
        order = self.start_three(nnodes="1:3", restarts=1)
        self.kill(order[0])
        second = self.names_in(1, 2)
        self.kill(second[0])
        self.end(second[1], status=1)
        self.said(second[1], "the job is not restarted: it was restarted 1 times, as often as --max_restarts allows")
        self.assertEqual(self.server.keys(), {})

    def test_a_coordinator_that_is_frozen_is_replaced_and_joins_again_when_it_is_itself(self):
        order = self.start_three(options=("--join_restart",))
        pid = self.nodes[order[0]].supervisor()
        os.kill(pid, signal.SIGSTOP)
        others = self.names_in(1, 2)
        self.assertEqual(set(others), set(order[1:]))
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.names_in(2, 3), [*others, order[0]])
        self.finish_well(*order)

    def test_a_coordinator_that_is_told_to_stop_hands_its_role_on_without_losing_a_restart(self):
        order = self.start_three(restarts=0)
        begin = time.monotonic()
        self.nodes[order[0]].signal(signal.SIGTERM)
        self.end(order[0], status=143)
        self.assertEqual(set(self.names_in(1, 2)), set(order[1:]))
        self.assertLess(time.monotonic() - begin, 30)  # 1 s on a quiet machine: no lease has to end
        self.assertEqual(self.server.keys()["history"]["restarts"], 0)
        self.finish_well(*order[1:])

    def test_a_fixed_number_of_nodes_waits_for_the_one_that_is_missing(self):
        for name in "ab":
            self.etcd_node(name, nnodes="2")
        first = self.names_in(0, 2)
        self.kill(first[0])
        self.etcd_node("c", nnodes="2")
        self.assertEqual(set(self.names_in(1, 2)), {first[1], "c"})
        self.finish_well(first[1], "c")

    def test_an_etcd_that_is_away_for_a_moment_stops_nothing(self):
        order = self.start_three()
        os.kill(self.server.process.pid, signal.SIGSTOP)
        time.sleep(1.5)  # shorter than the lease: nothing to wait for
        os.kill(self.server.process.pid, signal.SIGCONT)
        time.sleep(1.5)
        self.assertFalse(os.path.exists(self.path("round.1.0")), self.logs())
        self.finish_well(*order)

    def test_a_launcher_without_the_secret_takes_no_part(self):
        self.write("secret", "sixteen bytes or more")
        secret = ("--rdzv_secret_file", self.path("secret"))
        for name in "abc":
            self.etcd_node(name, options=secret)
        order = self.names_in(0, 3)
        self.etcd_node("d")
        self.end("d", status=125)
        self.assertIn("has no --rdzv_secret_file", self.log("d"))
        self.finish_well(*order)

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

    def test_without_etcd_each_node_says_what_it_waits_for(self):
        self.server.stop()
        self.etcd_node("a", options=("--join_timeout", "6"))
        self.end("a", status=124)
        self.assertIn("was not found at etcd at 127.0.0.1 port", self.log("a"))
        self.assertIn("Connection refused", self.log("a"))

    def test_an_etcd_without_the_api_v2_is_named_with_what_it_lacks(self):
        self.server.stop()
        self.server = Server(self.path("other"), self.port, v2=False)
        self.addCleanup(self.server.stop)
        self.etcd_node("a", options=("--join_timeout", "6"))
        self.end("a", status=124)
        self.assertIn("start it with --enable-v2=true", self.log("a"))


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped: " + WHY_NOT)
        raise SystemExit(77)
    main()
