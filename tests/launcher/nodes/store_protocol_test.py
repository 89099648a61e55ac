"""The store on the wire, with raw sockets: answers, refusals, and clients that mean harm."""

import os
import random
import resource
import select
import socket
import struct
import time
import unittest

from harness import LauncherTest, main, shell, wait_until

VALIDATE, SET, COMPARE_SET, GET, ADD, CHECK, WAIT, NUM_KEYS, DELETE, APPEND, MULTI_GET, MULTI_SET, CANCEL_WAIT, PING, \
    QUEUE_PUSH, QUEUE_POP, QUEUE_LEN, LIST_KEYS, BARRIER = range(19)
HELLO = struct.pack("<BI", VALIDATE, 0x3C85F7CE)


def text(data):
    return struct.pack("<Q", len(data)) + data


def keys(opcode, *names):
    return struct.pack("<BQ", opcode, len(names)) + b"".join(text(name) for name in names)


class Client:
    def __init__(self, port, hello=True):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        if hello:
            self.send(HELLO)

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError(data)
            data += part
        return data

    def integer(self):
        return struct.unpack("<q", self.receive(8))[0]

    def text(self):
        return self.receive(self.integer())

    def get(self, key):
        self.send(struct.pack("<B", GET) + text(key))
        return self.text()

    def set(self, key, value):
        self.send(struct.pack("<B", SET) + text(key) + text(value))

    def ping(self):
        self.send(struct.pack("<BI", PING, 77))
        return self.receive(4) == struct.pack("<I", 77)

    def is_closed(self):
        """Waits until the server closes this connection."""
        try:
            while True:
                if not self.socket.recv(65536):
                    return True
        except ConnectionResetError:
            return True

    def is_silent(self):
        return not select.select([self.socket], [], [], 0.05)[0]

    def close(self):
        self.socket.close()


class StoreProtocol(LauncherTest):
    def setUp(self):
        super().setUp()
        self.job = self.start(*shell('echo $MASTER_PORT > port.tmp; mv port.tmp port\n'
                                     'while [ ! -e finish ]; do sleep 0.01; done'))
        self.wait_for_files("port")
        self.port = int(self.read("port"))

    def connect(self, **options):
        client = Client(self.port, **options)
        self.addCleanup(client.close)
        return client

    def finish(self):
        """The store still answers, and the job ends well; returns what ddprun said."""
        self.assertTrue(self.connect().ping())
        self.write("finish", "")
        status, _, err = self.job.finish()
        self.assertEqual(status, 0, err)
        return err

    def memory(self, kind):
        """Kilobytes of the process that holds the store."""
        with open(f"/proc/{self.job.supervisor()}/status", encoding="ascii") as file:
            return int(next(line for line in file if line.startswith(kind)).split()[1])

    def test_every_operation_answers(self):
        client, other = self.connect(), self.connect()
        self.assertTrue(client.ping())
        client.set(b"/a", b"1\0\xff")
        self.assertEqual(client.get(b"/a"), b"1\0\xff")
        client.send(struct.pack("<B", COMPARE_SET) + text(b"/a") + text(b"1\0\xff") + text(b"2"))
        self.assertEqual(client.text(), b"2")
        client.send(struct.pack("<B", ADD) + text(b"/n") + struct.pack("<q", -3))
        self.assertEqual(client.integer(), -3)
        client.send(keys(CHECK, b"/a", b"/n"))
        self.assertEqual(client.receive(1), b"\0")
        client.send(keys(CHECK, b"/a", b"/missing"))
        self.assertEqual(client.receive(1), b"\1")
        client.send(keys(WAIT, b"/a", b"/later"))
        self.assertTrue(client.is_silent())
        other.set(b"/later", b"")
        self.assertEqual(client.receive(1), b"\0")
        client.send(keys(WAIT, b"/never") + struct.pack("<B", CANCEL_WAIT))
        self.assertEqual(client.receive(1), b"\1")
        client.send(struct.pack("<B", NUM_KEYS))
        self.assertEqual(client.integer(), 3)
        client.send(struct.pack("<B", DELETE) + text(b"/later"))
        self.assertEqual(client.integer(), 1)
        client.send(struct.pack("<B", APPEND) + text(b"/a") + text(b"34"))
        client.send(keys(MULTI_GET, b"/a", b"/missing"))
        self.assertEqual((client.text(), client.text()), (b"234", b""))
        client.send(struct.pack("<BQ", MULTI_SET, 1) + text(b"/m") + text(b"x"))
        self.assertEqual(client.get(b"/m"), b"x")
        client.send(struct.pack("<B", QUEUE_PUSH) + text(b"/q") + text(b"e"))
        client.send(struct.pack("<B", QUEUE_LEN) + text(b"/q"))
        self.assertEqual(client.integer(), 1)
        client.send(struct.pack("<B", QUEUE_POP) + text(b"/q"))
        self.assertEqual((client.integer(), client.text()), (1, b"e"))
        client.send(struct.pack("<B", QUEUE_POP) + text(b"/q"))
        self.assertEqual(client.integer(), 0)
        client.send(struct.pack("<B", LIST_KEYS))
        self.assertEqual({client.text() for _ in range(client.integer())}, {b"/a", b"/n", b"/m"})
        for peer in (client, other):
            peer.send(struct.pack("<B", BARRIER) + text(b"/b") + struct.pack("<q", 2))
        self.assertEqual((client.receive(1), other.receive(1)), (b"\0", b"\0"))
        self.finish()

    def test_many_requests_in_one_write(self):
        client = self.connect()
        count = 20000
        client.send(b"".join(struct.pack("<B", ADD) + text(b"/n") + struct.pack("<q", 1) for _ in range(count)))
        self.assertEqual([client.integer() for _ in range(count)], list(range(1, count + 1)))
        self.finish()

    def test_requests_byte_by_byte(self):
        client = self.connect(hello=False)
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in HELLO + struct.pack("<B", SET) + text(b"/k") + text(b"value") + struct.pack("<B", GET) + text(b"/k"):
            client.send(bytes([byte]))
        self.assertEqual(client.text(), b"value")
        self.finish()

    def test_large_values(self):
        client, other = self.connect(), self.connect()
        value = os.urandom(1 << 20) * 32
        client.set(b"/big", value)
        self.assertTrue(client.ping())
        self.assertEqual(other.get(b"/big"), value)
        self.finish()

    def test_strangers_are_refused_with_one_line(self):
        for data in (b"GET / HTTP/1.1\r\n\r\n", struct.pack("<BI", VALIDATE, 1), b"\x16\x03\x01", b"\xff" * 100):
            client = self.connect(hello=False)
            client.send(data)
            self.assertTrue(client.is_closed())
        err = self.finish()
        self.assertEqual(err.count("the store closed the connection of 127.0.0.1"), 4, err)
        self.assertEqual(err.count("are not those of a torch store client"), 4, err)

    def test_unknown_operations_are_refused_by_number(self):
        client = self.connect()
        client.send(struct.pack("<B", 19))
        self.assertTrue(client.is_closed())
        self.assertIn("unknown operation 19", self.finish())

    def test_a_flood_of_strangers_does_not_flood_the_log(self):
        for _ in range(100):
            client = self.connect(hello=False)
            client.send(b"\xff")
            self.assertTrue(client.is_closed())
        self.assertLessEqual(len(self.finish().splitlines()), 10)

    def test_huge_announcements_are_refused_and_allocate_nothing(self):
        before = self.memory("VmHWM")
        for data in (struct.pack("<BQ", GET, 1 << 62), struct.pack("<BQ", GET, (1 << 64) - 1),
                     struct.pack("<BQ", WAIT, 1 << 40), struct.pack("<BQ", MULTI_SET, 1 << 63),
                     struct.pack("<B", SET) + text(b"/k") + struct.pack("<Q", 1 << 33)):
            client = self.connect()
            client.send(data)
            self.assertTrue(client.is_closed())
        # Within the limits a length is believed, but only what arrives is kept.
        silent = [self.connect() for _ in range(50)]
        for client in silent:
            client.send(struct.pack("<B", SET) + text(b"/k") + struct.pack("<Q", 60 << 20) + b"x")
            client.send(b"y")
        self.assertTrue(self.connect().ping())
        self.assertLess(self.memory("VmHWM") - before, 16 << 10)
        self.finish()

    def test_adding_to_text_closes_only_that_connection(self):
        client, other = self.connect(), self.connect()
        client.set(b"/t", b"text")
        client.send(struct.pack("<B", ADD) + text(b"/t") + struct.pack("<q", 1))
        self.assertTrue(client.is_closed())
        self.assertEqual(other.get(b"/t"), b"text")
        self.finish()

    def test_a_client_that_does_not_read_blocks_nobody_and_costs_no_memory(self):
        greedy, other = self.connect(), self.connect()
        greedy.set(b"/big", b"x" * (8 << 20))
        self.assertTrue(greedy.ping())
        before = self.memory("VmRSS")
        request = struct.pack("<B", GET) + text(b"/big")
        greedy.socket.setblocking(False)
        sent = 0
        try:
            while sent < 64 << 20:
                sent += greedy.socket.send(request * 1000)
        except BlockingIOError:
            pass  # the server stopped reading
        self.assertLess(sent, 64 << 20)
        self.assertEqual(other.get(b"/none"), b"")
        self.assertLess(self.memory("VmRSS") - before, 8 << 10)
        greedy.close()
        self.assertEqual(other.get(b"/none"), b"")
        self.finish()

    def test_lists_of_keys_that_nobody_reads_cost_no_memory(self):
        client = self.connect()
        names = [b"/%05d" % i + b"k" * 994 for i in range(20000)]
        for begin in range(0, len(names), 1000):
            part = names[begin:begin + 1000]
            client.send(struct.pack("<BQ", MULTI_SET, len(part)) + b"".join(text(name) + text(b"") for name in part))
        self.assertTrue(client.ping())
        before = self.memory("VmRSS")
        lazy = [self.connect() for _ in range(40)]
        for other in lazy:
            other.send(struct.pack("<B", LIST_KEYS) * 40)
        for _ in range(3):
            client.send(struct.pack("<B", NUM_KEYS))
            self.assertEqual(client.integer(), len(names))
        self.assertLess(self.memory("VmRSS") - before, 64 << 10)
        for _ in range(2):
            self.assertEqual(sorted(lazy[7].text() for _ in range(lazy[7].integer())), names)
        self.finish()

    def test_a_new_key_is_in_the_next_list(self):
        client, lazy = self.connect(), self.connect()
        value = struct.pack("<B", LIST_KEYS)
        for number in range(3):
            client.set(b"/%d" % number + b"k" * 1000, b"")
            self.assertTrue(client.ping())
            lazy.send(value)
            self.assertEqual(lazy.integer(), number + 1)
            for _ in range(number + 1):
                lazy.text()
        client.send(struct.pack("<B", DELETE) + text(b"/1" + b"k" * 1000))
        self.assertEqual(client.integer(), 1)
        lazy.send(value)
        self.assertEqual({lazy.text()[:2] for _ in range(lazy.integer())}, {b"/0", b"/2"})
        self.finish()

    @unittest.skipIf(os.environ.get("SANITIZERS"), "sanitizers reserve address space")
    def test_out_of_memory_closes_the_connection_that_asked(self):
        client, other = self.connect(), self.connect()
        client.set(b"/kept", b"value")
        self.assertTrue(client.ping())
        limit = (self.memory("VmSize") << 10) + (24 << 20)
        resource.prlimit(self.job.supervisor(), resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        try:
            client.set(b"/large", bytes(60 << 20))
            self.assertTrue(client.is_closed())
        except (BrokenPipeError, ConnectionResetError):
            pass
        self.assertEqual(other.get(b"/kept"), b"value")
        other.set(b"/small", b"x" * (1 << 20))
        self.assertTrue(other.ping())
        err = self.finish()
        self.assertIn("not enough memory", err)
        self.assertEqual(err.count("closed the connection"), 1, err)

    def test_replies_held_back_arrive_when_the_client_reads_again(self):
        client = self.connect()
        value = os.urandom(1 << 20) * 3
        client.set(b"/big", value)
        client.send((struct.pack("<B", GET) + text(b"/big")) * 40)
        client.send(struct.pack("<BI", PING, 5))
        for _ in range(40):
            self.assertEqual(client.text(), value)
        self.assertEqual(client.receive(4), struct.pack("<I", 5))
        self.finish()

    def test_thousands_of_half_open_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        crowd = [self.connect(hello=False) for _ in range(3000)]
        for client in crowd[::2]:
            client.send(HELLO[:3])
        begin = time.monotonic()
        self.assertTrue(self.connect().ping())
        self.assertLess(time.monotonic() - begin, 2)
        self.finish()

    def test_random_bytes(self):
        source = random.Random(20240607)
        for _ in range(200):
            client = self.connect(hello=False)
            data = HELLO if source.random() < 0.9 else b""
            for _ in range(source.randrange(8)):
                data += bytes([source.randrange(20)])
                data += struct.pack("<Q", source.choice((0, 1, 2, 5, 100, 1 << 20, 1 << 63)))
                data += source.randbytes(source.randrange(40))
            try:
                client.send(data)
            except OSError:
                pass
            client.close()
        self.finish()

    def test_waiting_clients_that_vanish_are_forgotten(self):
        for _ in range(50):
            client = self.connect()
            client.send(keys(WAIT, *[b"/%d" % i for i in range(100)]))
            client.close()
        other = self.connect()
        other.send(struct.pack("<BQ", MULTI_SET, 100) + b"".join(text(b"/%d" % i) + text(b"") for i in range(100)))
        self.assertTrue(other.ping())
        self.finish()

    def test_the_port_is_on_loopback_only(self):
        with open("/proc/net/tcp", encoding="ascii") as file:
            listening = [line.split() for line in file.readlines()[1:]]
        addresses = [fields[1].split(":")[0] for fields in listening
                     if fields[3] == "0A" and int(fields[1].split(":")[1], 16) == self.port]
        self.assertEqual(addresses, ["0100007F"])
        self.finish()


# A client in a rank, without a library.
RANK_CLIENT = """
import os, socket, struct, sys, time
def connect():
    store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=15)
    store.sendall(struct.pack("<BI", 0, 0x3C85F7CE))
    return store
def ping(store):
    store.sendall(struct.pack("<BI", 13, 7))
    return store.recv(4) == struct.pack("<I", 7)
def set_key(store, key, value):
    store.sendall(struct.pack("<BQ", 1, len(key)) + key + struct.pack("<Q", len(value)) + value)
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.01)
"""


class OutOfDescriptors(LauncherTest):
    def start_with(self, limit, *arguments):
        job = self.start(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
        self.wait_for_files("port")
        return job, int(self.read("port"))

    def test_silent_connections_make_room_for_real_ones(self):
        job, port = self.start_with(40, *shell('echo $MASTER_PORT > port.tmp; mv port.tmp port\n'
                                               'while [ ! -e finish ]; do sleep 0.01; done'))
        for _ in range(100):
            self.addCleanup(Client(port, hello=False).close)
        client = Client(port)
        self.addCleanup(client.close)
        self.assertTrue(client.ping())
        self.write("finish", "")
        self.assertEqual(job.finish()[0], 0)

    def test_strangers_that_speak_the_protocol_do_not_keep_the_ranks_out(self):
        self.write("rank.py", RANK_CLIENT + """
early = connect()
assert ping(early)
open("early." + os.environ["RANK"], "w")
if os.environ["RANK"] == "0":
    open("port.tmp", "w").write(os.environ["MASTER_PORT"])
    os.rename("port.tmp", "port")
wait_for("crowd")
late = [connect() for _ in range(3)]
assert all(ping(store) for store in late) and ping(early)
""")
        job, port = self.start_with(256, "-n", "3", "--wdir", self.folder, "python3", "rank.py")
        self.wait_for_files("early.0", "early.1", "early.2")
        for number in range(300):
            stranger = Client(port)
            self.addCleanup(stranger.close)
            if number % 2 == 0:
                stranger.set(b"/stranger", b"x")
        self.write("crowd", "")
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)
        self.assertIn("few descriptors are left", err)

    def test_a_rank_with_many_connections_does_not_keep_the_others_out(self):
        self.write("rank.py", RANK_CLIENT + """
if os.environ["RANK"] == "0":
    with open("port.tmp", "w") as file:
        file.write(os.environ["MASTER_PORT"])
    os.rename("port.tmp", "port")
    many = []
    for _ in range(230):
        many.append(connect())
    open("many", "w")
    wait_for("came")
else:
    wait_for("many")
    assert ping(connect())
    open("came", "w")
""")
        job, _ = self.start_with(256, "-n", "2", "--wdir", self.folder, "python3", "rank.py")
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)


@unittest.skipIf(os.environ.get("SANITIZERS"), "sanitizers reserve address space")
class OutOfMemory(LauncherTest):
    """The store's own bound, which is half of the address space where that is limited."""

    def run_limited(self, program, *options):
        self.write("rank.py", RANK_CLIENT + program)
        limit = 614400 << 10
        job = self.start("--wdir", self.folder, *options, "sh", "-c",
                         "setsid sh -c ': > helper; exec sleep 1000' & while [ ! -e helper ]; do sleep 0.01; done; "
                         "exec python3 rank.py", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        result = job.finish(60)
        self.assert_nothing_left(job)
        return result

    def test_a_full_store_says_so_and_goes_on(self):
        status, out, err = self.run_limited("""
first = connect()
set_key(first, b"/kept", b"value")
store, number = connect(), 0
try:
    for number in range(12):
        set_key(store, b"/%d" % number, bytes(60 << 20))
        if not ping(store):
            break
except OSError:
    pass
print(number)
assert ping(first)
first.sendall(struct.pack("<BQ", 3, 5) + b"/kept")
assert first.recv(13)[8:] == b"value"
for done in range(number):  # deleting makes room
    first.sendall(struct.pack("<BQ", 8, 2) + b"/%d" % done)
    assert first.recv(8)
again = connect()
set_key(again, b"/again", bytes(60 << 20))
assert ping(again)
""")
        self.assertEqual(status, 0, err)
        self.assertGreaterEqual(int(out), 3)
        self.assertLess(int(out), 6)
        self.assertRegex(err, r"the store is full: \d+ of 300 MiB")

    def test_requests_that_are_never_complete_count_too(self):
        status, _, err = self.run_limited("""
stores = []
refused = 0
for number in range(14):
    store = connect()
    try:
        store.sendall(struct.pack("<BQ", 1, 2) + b"/k" + struct.pack("<Q", 60 << 20) + bytes(55 << 20))
    except OSError:
        refused += 1
    stores.append(store)
assert ping(connect())
assert refused > 0
""")
        self.assertEqual(status, 0, err)
        self.assertIn("the store is full", err)


if __name__ == "__main__":
    main()
