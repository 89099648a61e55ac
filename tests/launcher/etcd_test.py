"""--rdzv_backend etcd with a real etcd: the job survives the loss of whichever node coordinates it."""

import base64
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
import urllib.request

from elastic_nodes import ElasticTest, free_port
from harness import main, wait_until


SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
FAULTS = int(os.environ.get("FAULTS", "2"))
KILLS = int(os.environ.get("KILLS", "2"))
ETCD = os.environ.get("ETCD", "etcd")


def obstacle():
    if shutil.which(ETCD) is None:
        return "there is no etcd (Debian's package etcd-server)"
    text = subprocess.run([ETCD, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"etcd Version: (\d+)\.(\d+)", text)
    return "" if version and tuple(map(int, version.groups())) >= (3, 4) else "this etcd is older than 3.4"


WHY_NOT = obstacle()


class Server:
    """An etcd on loopback, in a folder of its own."""

    def __init__(self, folder, port, *options):
        self.url = f"http://127.0.0.1:{port}"
        peer = f"http://127.0.0.1:{free_port()}"
        self.command = [ETCD, "--data-dir", folder, "--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--name",
                        "one", "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}",
                        *options]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self.is_healthy, "etcd")

    def is_healthy(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as reply:
                return json.load(reply)["health"] == "true"
        except OSError:
            return False

    def ask(self, path, **content):
        request = urllib.request.Request(self.url + path, json.dumps(content).encode())
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.load(reply)

    def keys(self, job="none"):
        """What is below the job's name, by the last parts of the keys."""
        name = f"/ddprun/{job}/"
        text = lambda data: base64.b64encode(data.encode()).decode()
        found = self.ask("/v3/kv/range", key=text(name), range_end=text(name[:-1] + "0")).get("kvs", [])
        return {base64.b64decode(item["key"]).decode()[len(name):]: json.loads(base64.b64decode(item["value"])) for item in found}

    def ask_for_passwords(self):
        self.ask("/v3/auth/user/add", name="root", password="secret")
        self.ask("/v3/auth/role/add", name="root")
        self.ask("/v3/auth/user/grant", user="root", role="root")
        self.ask("/v3/auth/enable")

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
        return ("--rdzv_backend", "etcd", "--rdzv_endpoint", f"127.0.0.1:{self.port}")

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

    def test_an_etcd_that_is_away_for_ten_seconds_stops_nothing(self):
        order = self.start_three()
        os.kill(self.server.process.pid, signal.SIGSTOP)
        time.sleep(10)  # shorter than the lease: nothing to wait for
        os.kill(self.server.process.pid, signal.SIGCONT)
        time.sleep(6)
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

    def test_an_etcd_without_its_gateway_is_named_with_what_it_lacks(self):
        self.server.stop()
        self.server = Server(self.path("other"), self.port, "--enable-grpc-gateway=false")
        self.addCleanup(self.server.stop)
        self.etcd_node("a")
        self.end("a", status=125)
        self.assertRegex(self.log("a"), r"it is etcd 3\.\S+ without its API v3 as JSON: start it with --enable-grpc-gateway=true")

    def test_an_etcd_that_wants_passwords_is_named_so(self):
        self.server.ask_for_passwords()
        self.etcd_node("a")
        self.end("a", status=125)
        self.assertIn("it wants a user and a password, and ddprun has none", self.log("a"))

    def test_both_names_of_the_backend_are_one(self):
        for name, backend in zip("abc", ("etcd-v2", "etcd", "etcd-v2")):
            self.etcd_node(name, options=("--rdzv_backend", backend))
        order = self.names_in(0, 3)
        self.assertIn("--rdzv_backend etcd-v2 is etcd here: with API v3, of etcd 3.4 or newer", self.log("a"))
        self.assertNotIn("API v3", self.log("b"))
        self.finish_well(*order)

    def processes(self, name):
        job = self.nodes[name]
        return {"guardian": job.process.pid, "sweeper": job.sweeper(), "supervisor": job.supervisor()}

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
        self.said("a", "1 of 2 to 3 nodes is there")
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

    def test_a_coordinator_that_is_told_to_stop_between_rounds_hands_its_role_on(self):
        for name in "ab":
            self.etcd_node(name, nnodes="2")
        order = self.names_in(0, 2)
        self.kill(order[1])
        self.said(order[0], "waiting for more nodes")
        self.nodes[order[0]].signal(signal.SIGTERM)
        self.end(order[0], status=143)
        self.assertEqual(set(self.server.keys()), {"history"})
        self.assertEqual(self.server.keys()["history"]["host"], "")
        for name in "cd":
            self.etcd_node(name, nnodes="2")
        self.assertEqual(set(self.names_in(1, 2)), {"c", "d"})
        self.assertEqual(self.server.keys()["history"]["restarts"], 1)
        self.finish_well("c", "d")

    def test_a_node_that_cannot_start_does_not_coordinate(self):
        self.etcd_node("x", program=("/no/such/program",))
        for name in "abc":
            self.etcd_node(name)
        order = self.names_in(0, 3)
        self.assertEqual(set(order), set("abc"))
        self.assertNotEqual(self.nodes["x"].finish()[0], 0)
        self.finish_well(*order)

    def test_an_etcd_that_is_started_again_is_used_as_before(self):
        order = self.start_three()
        self.server.stop()
        self.server.start()
        self.kill(order[0])
        self.assertEqual(set(self.names_in(1, 2)), set(order[1:]))
        self.finish_well(*order[1:])

    def test_an_etcd_that_has_lost_everything_is_told_again(self):
        order = self.start_three()
        token = self.server.keys()["coordinator"]["token"]
        self.server.stop()
        shutil.rmtree(self.path("etcd"))
        self.server.start()
        wait_until(lambda: set(self.server.keys()) == {"coordinator", "history"}, "both keys")
        self.assertEqual(self.server.keys()["coordinator"]["token"], token)
        self.kill(order[0])
        self.assertEqual(set(self.names_in(1, 2)), set(order[1:]))
        self.finish_well(*order[1:])


if __name__ == "__main__":
    if WHY_NOT:
        print("skipped: " + WHY_NOT)
        raise SystemExit(77)
    main()
