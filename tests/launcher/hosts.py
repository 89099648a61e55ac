"""Several hosts on one machine: network namespaces on a switch, made and removed by the test that uses them."""

import os
import shutil
import subprocess

from netlink import Netlink


INTERRUPTIONS = ("link", "cable", "drop", "send", "receive")


def skip_reason():
    """Why there can be no hosts here, "" when there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no ip(8)"
    name = f"dtry{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        return "no network namespace can be made: " + made.stderr.strip()
    link = subprocess.run(["ip", "-n", name, "link", "add", "br0", "type", "bridge"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], check=False)
    return "" if link.returncode == 0 else "no bridge can be made: " + link.stderr.strip()


class Hosts:
    """`count` hosts; host N has the addresses 10.203.0.N+1 and fd00:ddd::N+1, unless it has only one of the kinds."""

    used = 0

    def __init__(self, count, kinds=(4, 6)):
        Hosts.used += 1
        self.tag = f"d{os.getpid()}x{Hosts.used}"
        self.switch = self.tag + "s"
        self.names = [f"{self.tag}h{host}" for host in range(count)]
        self.kinds = kinds
        self.netlinks = {}
        try:
            self.ip("netns", "add", self.switch)
            self.ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
            self.ip("-n", self.switch, "link", "set", "br0", "up")
            for host, name in enumerate(self.names):
                self.add(host, name)
                self.netlinks[name] = Netlink(name, ["eth0"])
            self.netlinks[self.switch] = Netlink(self.switch, [f"port{host}" for host in range(count)])
        except subprocess.CalledProcessError:
            self.close()
            raise

    def add(self, host, name):
        self.ip("netns", "add", name)
        self.ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", f"port{host}", "netns", self.switch)
        self.ip("-n", self.switch, "link", "set", f"port{host}", "master", "br0")
        self.ip("-n", self.switch, "link", "set", f"port{host}", "up")
        self.ip("-n", name, "link", "set", "lo", "up")
        if 4 in self.kinds:
            self.ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        if 6 in self.kinds:
            self.ip("-n", name, "addr", "add", f"{self.address(host, 6)}/64", "dev", "eth0", "nodad")
        self.ip("-n", name, "link", "set", "eth0", "up")

    def address(self, host, kind=4):
        return f"10.203.0.{host + 1}" if kind == 4 else f"fd00:ddd::{host + 1:x}"

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL)

    def on(self, host):
        """What to put in front of a command that is to run there."""
        return ["ip", "netns", "exec", self.names[host]]

    def cable(self, host, plugged):
        self.netlinks[self.switch].set_interface(f"port{host}", plugged)

    def interface(self, host, up):
        self.netlinks[self.names[host]].set_interface("eth0", up)

    def interrupt(self, kind, host, down):
        """INTERRUPTIONS has the kinds. With "drop" the switch drops what comes from there and goes there, with "send" and "receive" what a
        host sends, and is sent over IPv4, gets lost; nobody is told."""
        if kind == "link":
            self.interface(host, up=not down)
        elif kind == "cable":
            self.cable(host, plugged=not down)
        elif kind == "drop":
            self.netlinks[self.switch].set_forwarding(f"port{host}", not down)
        else:
            for other in set(range(len(self.names))) - {host}:
                sender, receiver = (host, other) if kind == "send" else (other, host)
                self.netlinks[self.names[sender]].set_neighbour(self.address(receiver), is_lost=down)

    def slow_down(self, host, rate, latency):
        subprocess.run(["tc", "-n", self.names[host], "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "4kb",
                        "latency", latency], check=True)

    def close(self):
        for netlink in self.netlinks.values():
            netlink.close()
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def left(self):
        listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
        return [line for line in listed.splitlines() if line.startswith(self.tag)]
