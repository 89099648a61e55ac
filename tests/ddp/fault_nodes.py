"""What the soak of faults starts beside the ranks: stores that a launcher would host, and nodes in network namespaces."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading

SERVER = pathlib.Path(__file__).with_name("store_server.py")

CAN_MAKE_NODES = os.geteuid() == 0 and shutil.which("ip") is not None and subprocess.run(
    ["ip", "netns", "list"], capture_output=True).returncode == 0


class StoreServer:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lock = threading.Lock()

    def __enter__(self):
        return self

    def new_port(self, host="127.0.0.1"):
        with self.lock:
            self.process.stdin.write(host + "\n")
            self.process.stdin.flush()
            return int(self.process.stdout.readline())

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()


class TwoNodes:
    """Two network namespaces and a wire between them: node 0 is 10.201.N.1, node 1 10.201.N.2."""

    used = 0
    lock = threading.Lock()

    def __init__(self):
        with TwoNodes.lock:
            TwoNodes.used += 1
            number = TwoNodes.used
        tag = f"df{os.getpid() % 100000}x{number}"
        subnet = f"10.201.{number % 250}"
        self.names = [f"{tag}a", f"{tag}b"]
        self.links = (f"{tag}p", f"{tag}q")
        self.address = f"{subnet}.1"
        try:
            for name in self.names:
                self.run("ip", "netns", "add", name)
            self.run("ip", "link", "add", self.links[0], "netns", self.names[0], "type", "veth", "peer", self.links[1],
                     "netns", self.names[1])
            for node, (name, link) in enumerate(zip(self.names, self.links)):
                self.run("ip", "-n", name, "addr", "add", f"{subnet}.{node + 1}/24", "dev", link)
                self.run("ip", "-n", name, "link", "set", link, "up")
                self.run("ip", "-n", name, "link", "set", "lo", "up")
        except subprocess.CalledProcessError:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def run(self, *command):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def cut(self):
        self.run("ip", "-n", self.names[0], "link", "set", self.links[0], "down")

    def prefix(self, node):
        return ["ip", "netns", "exec", self.names[node]]

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
