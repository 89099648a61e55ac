"""Jobs that meet at a real etcd on loopback."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request

from elastic_nodes import ElasticTest, free_port
from harness import wait_until


ETCD = os.environ.get("ETCD", "etcd")


def skip_reason():
    if shutil.which(ETCD) is None:
        return "there is no etcd (Debian's package etcd-server)"
    text = subprocess.run([ETCD, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"etcd Version: (\d+)\.(\d+)", text)
    return "" if version and tuple(map(int, version.groups())) >= (3, 4) else "this etcd is older than 3.4"


WHY_NOT = skip_reason()


def etcd_command(folder, url):
    peer = f"http://127.0.0.1:{free_port()}"
    return [ETCD, "--data-dir", folder, "--listen-client-urls", url, "--advertise-client-urls", url, "--name", "one",
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"]


class Server:
    """An etcd on loopback, in a folder of its own."""

    def __init__(self, folder, port, *options):
        self.url = f"http://127.0.0.1:{port}"
        self.command = [*etcd_command(folder, self.url), *options]
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
        """What a job that runs has below its name, by the last parts of the keys."""
        return {name: value for name, value in self.all_keys(job).items() if name != "end"}

    def all_keys(self, job="none"):
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


class EtcdTest(ElasticTest):
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
        options["options"] = ("--local_addr", f"127.0.{self.next_address // 250}.{self.next_address % 250 + 1}", *options.get("options", ()))
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
