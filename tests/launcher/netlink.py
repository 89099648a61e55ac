"""Interfaces, ports of a bridge and neighbours of a network namespace are changed at once. An ip(8) for each change takes longer than a
short interruption is to last, and seconds on a busy machine."""

import ctypes
import os
import socket
import struct

CLONE_NEWNET = 0x40000000
NEWLINK, SETLINK, NEWNEIGH, DELNEIGH = 16, 19, 28, 29
REQUEST, ACK, REPLACE, CREATE = 1, 4, 0x100, 0x400
NOWHERE = bytes.fromhex("020000000099")  # an address that no interface has


def attribute(kind, content):
    return (struct.pack("=HH", 4 + len(content), kind) + content).ljust((4 + len(content) + 3) // 4 * 4, b"\0")


class Netlink:
    """Of a namespace in /run/netns, with the named interfaces."""

    def __init__(self, namespace, interfaces):
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net", "rb") as own, open(f"/run/netns/{namespace}", "rb") as other:
            if libc.setns(other.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            try:
                self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
                self.indices = {name: socket.if_nametoindex(name) for name in interfaces}
            finally:
                if libc.setns(own.fileno(), CLONE_NEWNET) != 0:
                    os.abort()

    def close(self):
        self.socket.close()

    def ask(self, kind, flags, content):
        """The kernel answers when it is done."""
        self.socket.send(struct.pack("=IHHII", 16 + len(content), kind, REQUEST | ACK | flags, 0, 0) + content)
        error = -struct.unpack_from("=i", self.socket.recv(65536), 16)[0]
        if error:
            raise OSError(error, os.strerror(error))

    def set_interface(self, name, up):
        self.ask(NEWLINK, 0, struct.pack("=BxHiII", 0, 0, self.indices[name], int(up), 1))

    def set_forwarding(self, port, forwards):
        """A port of a bridge that does not forward drops what comes and what goes; nobody is told."""
        state = attribute(1, bytes([3 if forwards else 0]))
        self.ask(SETLINK, 0, struct.pack("=BxHiII", socket.AF_BRIDGE, 0, self.indices[port], 0, 0) + attribute(12 | 0x8000, state))

    def set_neighbour(self, address, is_lost, interface="eth0"):
        """What is sent to this IPv4 address gets lost."""
        head = struct.pack("=BxxxiHBB", socket.AF_INET, self.indices[interface], 0x80 if is_lost else 0, 0, 0)
        content = head + attribute(1, socket.inet_aton(address)) + (attribute(2, NOWHERE) if is_lost else b"")
        self.ask(NEWNEIGH if is_lost else DELNEIGH, REPLACE | CREATE if is_lost else 0, content)
