"""--rdzv_backend etcd with a real etcd: the job survives the loss of whichever node coordinates it."""

import base64
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import socketserver
import threading
import time

from etcd_nodes import WHY_NOT, EtcdTest, Server
from harness import main, wait_until


class Proxy(socketserver.StreamRequestHandler):
    """Sends each request to etcd, and returns the reply unless the server's `loses` says that it gets lost."""

    def handle(self):
        head = b"".join(iter(self.rfile.readline, b"\r\n"))
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        body = self.rfile.read(int(length[1]) if length else 0)
        with socket.create_connection(("127.0.0.1", self.server.etcd)) as etcd:
            etcd.sendall(head + b"\r\n" + body)
            reply = b"".join(iter(lambda: etcd.recv(65536), b""))
        if not self.server.loses(head + body):
            self.wfile.write(reply)


class Etcd(EtcdTest):
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

    def test_without_etcd_each_node_says_what_it_waits_for(self):
        self.server.stop()
        self.etcd_node("a", options=("--join_timeout", "6"))
        self.end("a", status=124)
        self.assertIn("were not found at etcd at 127.0.0.1 port", self.log("a"))
        self.assertIn("Connection refused", self.log("a"))

    def test_an_etcd_without_its_gateway_is_named_with_what_it_lacks(self):
        self.server.stop()
        self.server = Server(self.path("other"), self.port, "--enable-grpc-gateway=false")
        self.addCleanup(self.server.stop)
        self.etcd_node("a")
        self.end("a", status=125)
        self.assertRegex(self.log("a"), r"it is etcd 3\.\S+ without the JSON form of its API v3: start it with --enable-grpc-gateway=true")

    def test_an_etcd_that_wants_passwords_is_named_so(self):
        self.server.ask_for_passwords()
        self.etcd_node("a")
        self.end("a", status=125)
        self.assertIn("it requires a user and a password, which ddprun cannot send", self.log("a"))

    def test_both_names_of_the_backend_are_one(self):
        for name, backend in zip("abc", ("etcd-v2", "etcd", "etcd-v2")):
            self.etcd_node(name, options=("--rdzv_backend", backend))
        order = self.names_in(0, 3)
        self.assertIn("--rdzv_backend etcd-v2 is treated as etcd: ddprun uses the API v3 of etcd 3.4 or newer", self.log("a"))
        self.assertNotIn("API v3", self.log("b"))
        self.finish_well(*order)

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

    @contextlib.contextmanager
    def losing_replies(self, loses):
        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
            proxy.daemon_threads, proxy.etcd, proxy.loses = True, self.port, loses
            threading.Thread(target=proxy.serve_forever, daemon=True).start()
            self.addCleanup(proxy.shutdown)
            yield ("--rdzv_endpoint", f"127.0.0.1:{proxy.server_address[1]}", "--last_call")

    def test_replies_that_get_lost_change_nothing(self):
        # Not every third one: nodes that ask equally often would lose the same reply each time.
        chance = random.Random(1)
        with self.losing_replies(lambda request: chance.random() < 1 / 3) as endpoint:
            order = self.start_three(options=(*endpoint, "100"))
            self.kill(order[0])
            self.assertEqual(set(self.names_in(1, 2)), set(order[1:]))
            wait_until(lambda: self.server.keys()["history"]["restarts"] == 1, "the history")
            self.finish_well(*order[1:])
            self.assertEqual(self.server.keys(), {})

    def test_a_node_knows_its_own_record_after_any_replies_that_get_lost(self):
        key = base64.b64encode(b"/ddprun/none/coordinator").decode()
        requests = []

        def loses(request):
            kind = "grant" if b"/lease/grant" in request else "write" if f'"request_put":{{"key":"{key}"'.encode() in request else "look"
            requests.append(kind)
            # The first write, and the lease for the second one.
            return (kind == "write" and requests.count("write") == 1) or (kind == "grant" and requests.count("grant") == 2)

        with self.losing_replies(loses) as endpoint:
            self.etcd_node("a", nnodes="1:2", options=(*endpoint, "0.01"))
            self.wait_for_round(0, 0)
            # It would look 75 times if it waited for the end of the lease of its own first record.
            self.assertEqual(requests[:6], ["look", "grant", "write", "look", "grant", "look"])
            self.assertLess(requests.count("look"), 20, requests)
            self.finish_well("a")

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
