"""A TCP port for a test's own programs."""

import pathlib
import random
import socket


def free_port() -> int:
    """One that nobody has right now, below those that the kernel gives to whoever asks for none: a connection of another test could
    have one of these before the program does."""
    lowest_given = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.SystemRandom().sample(range(min(10000, lowest_given // 2), lowest_given), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("of 100 ports none is free")
