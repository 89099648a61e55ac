"""The store on the wire, with raw sockets: answers, refusals, and clients that mean harm."""

import os
import random
import resource
import select
import socket
import struct
import time

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
        self.assertEqual(err.count("does not begin as a torch store client"), 4, err)

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


class OutOfDescriptors(LauncherTest):
    def test_silent_connections_make_room_for_real_ones(self):
        job = self.start(*shell('echo $MASTER_PORT > port.tmp; mv port.tmp port\n'
                                'while [ ! -e finish ]; do sleep 0.01; done'),
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
        self.wait_for_files("port")
        port = int(self.read("port"))
        for _ in range(100):
            self.addCleanup(Client(port, hello=False).close)
        client = Client(port)
        self.addCleanup(client.close)
        self.assertTrue(client.ping())
        self.write("finish", "")
        self.assertEqual(job.finish()[0], 0)


if __name__ == "__main__":
    main()
