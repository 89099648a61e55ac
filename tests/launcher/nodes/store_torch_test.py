"""The store with the real client: every operation of torch.distributed.TCPStore."""

import datetime
import threading
import unittest

from torch.distributed import DistStoreError, PrefixStore, TCPStore

from harness import LauncherTest, main, shell


class StoreWithTorch(LauncherTest):
    def setUp(self):
        super().setUp()
        self.job = self.start(*shell('echo $MASTER_PORT > port.tmp; mv port.tmp port\n'
                                     'while [ ! -e finish ]; do sleep 0.01; done'))
        self.wait_for_files("port")
        self.port = int(self.read("port"))
        self.store = self.connect()

    def connect(self, seconds=20, **options):
        return TCPStore("127.0.0.1", self.port, is_master=False, timeout=datetime.timedelta(seconds=seconds), **options)

    def tearDown(self):
        self.write("finish", "")
        status, _, err = self.job.finish()
        self.assertEqual(status, 0, err)
        self.assertNotIn("closed the connection", err)

    def test_set_and_get(self):
        self.store.set("key", "value")
        self.assertEqual(self.store.get("key"), b"value")
        self.store.set("key", b"\0\xff" * 1000)
        self.assertEqual(self.connect().get("key"), b"\0\xff" * 1000)
        self.store.set("", "")
        self.assertEqual(self.store.get(""), b"")

    def test_get_waits_for_the_key(self):
        timer = threading.Timer(0.05, lambda: self.connect().set("late", "x"))
        timer.start()
        self.assertEqual(self.store.get("late"), b"x")
        timer.join()

    def test_get_times_out_and_the_connection_goes_on(self):
        store = self.connect(seconds=1)
        with self.assertRaisesRegex(DistStoreError, "timeout"):
            store.get("never")
        store.set("key", "value")
        self.assertEqual(store.get("key"), b"value")

    def test_add(self):
        self.assertEqual(self.store.add("count", 5), 5)
        self.assertEqual(self.connect().add("count", -7), -2)
        self.assertEqual(self.store.get("count"), b"-2")

    def test_wait_and_check(self):
        self.assertFalse(self.store.check(["a", "b"]))
        self.store.set("a", "")
        self.store.set("b", "")
        self.assertTrue(self.store.check(["a", "b"]))
        self.store.wait(["a", "b"])
        with self.assertRaisesRegex(DistStoreError, "timeout"):
            self.store.wait(["a", "never"], datetime.timedelta(milliseconds=100))
        self.assertTrue(self.store.check(["a"]))

    def test_compare_set(self):
        self.assertEqual(self.store.compare_set("key", "", "first"), b"first")
        self.assertEqual(self.store.compare_set("key", "wrong", "second"), b"first")
        self.assertEqual(self.store.compare_set("key", "first", "second"), b"second")
        self.assertEqual(self.store.compare_set("missing", "expected", "x"), b"expected")

    def test_delete_and_num_keys(self):
        before = self.store.num_keys()
        self.store.set("key", "value")
        self.assertEqual(self.store.num_keys(), before + 1)
        self.assertTrue(self.store.delete_key("key"))
        self.assertFalse(self.store.delete_key("key"))
        self.assertEqual(self.store.num_keys(), before)

    def test_append(self):
        self.store.append("key", "a")
        self.store.append("key", "bc")
        self.assertEqual(self.store.get("key"), b"abc")

    def test_multi_set_and_get(self):
        self.store.multi_set(["a", "b"], ["1", "2"])
        self.assertEqual(self.store.multi_get(["b", "a"]), [b"2", b"1"])

    def test_queues(self):
        other = self.connect()
        self.assertEqual(self.store.queue_len("queue"), 0)
        self.store.queue_push("queue", b"1")
        self.store.queue_push("queue", b"2")
        self.assertEqual(self.store.queue_len("queue"), 2)
        self.assertEqual(other.queue_pop("queue"), b"1")
        self.assertEqual(other.queue_pop("queue", block=False), b"2")
        with self.assertRaisesRegex(Exception, "empty"):
            other.queue_pop("queue", block=False)
        timer = threading.Timer(0.05, lambda: self.connect().queue_push("queue", b"3"))
        timer.start()
        self.assertEqual(self.store.queue_pop("queue"), b"3")
        timer.join()

    def test_list_keys(self):
        self.store.set("x", "")
        self.store.set("y", "")
        self.assertEqual(sorted(self.store.list_keys()), ["x", "y"])

    def test_prefixes(self):
        PrefixStore("outer", self.store).set("key", "value")
        self.assertEqual(self.store.get("outer/key"), b"value")

    def test_many_clients_at_once(self):
        counts = []

        def client():
            store = self.connect()
            for _ in range(50):
                store.add("sum", 1)
            store.set(f"done/{len(counts)}", "")
            counts.append(store.add("clients", 1))
            while store.add("clients", 0) < 16:
                pass

        threads = [threading.Thread(target=client) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(self.store.add("sum", 0), 16 * 50)
        self.assertEqual(sorted(counts), list(range(1, 17)))

    @unittest.skipUnless(hasattr(TCPStore, "barrier"), "this torch's store has no barrier")
    def test_barrier(self):
        threads = [threading.Thread(target=lambda: self.connect().barrier("b", 3)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            self.assertFalse(thread.is_alive())


if __name__ == "__main__":
    main()
