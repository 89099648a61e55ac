"""A rank on the second node. It measures the response time of the store, alternately over a direct connection and
through the proxy of its ddprun."""

import json
import os
import socket
import statistics
import struct
import time

ROUNDS, REQUESTS = 60, 50


def connect(address):
    host, port = address.rsplit(":", 1)
    store = socket.create_connection((host, int(port)))
    store.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    store.sendall(struct.pack("<BI", 0, 0x3C85F7CE))
    return store


def microseconds(store):
    add = b"\4" + struct.pack("<Q", 5) + b"count" + struct.pack("<q", 1)
    begin = time.perf_counter()
    for _ in range(REQUESTS):
        store.sendall(add)
        store.recv(8, socket.MSG_WAITALL)
    return (time.perf_counter() - begin) / REQUESTS * 1e6


if os.environ["RANK"] == "1":
    stores = [connect(os.environ["DDPRUN_STORE_PROXY"]), connect(os.environ["DDPRUN_STORE"])]
    table = [[microseconds(store) for store in stores] for _ in range(ROUNDS)]
    print(json.dumps([statistics.median(column) for column in zip(*table)]), flush=True)
