"""Who hosts the store, and ranks that never reach it."""

import os
import socket
import time

from harness import LauncherTest, free_port, main, shell, wait_until

# On a busy machine an interpreter starts within it.
TIMEOUT_S = 12

# A client that connects to the store and stays; as a child of the rank, or as the rank itself.
CONNECT = """
import os, signal, socket, struct
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
store.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + struct.pack("<BI", 13, 7))
assert store.recv(4) == struct.pack("<I", 7)
open(os.path.join(os.environ["DDPRUN_TEST_FOLDER"], "connected." + os.environ["RANK"]), "w")
signal.pause()
"""


class StartTimeout(LauncherTest):
    def test_the_ranks_that_never_came_are_named(self):
        self.write("connect.py", CONNECT)
        script = """
            case $RANK in
                0) exec python3 connect.py;;
                1) python3 connect.py; exit;;
                4) exit 0;;
            esac
            exec sleep 1000"""
        job = self.start("-n", "5", "--start-timeout", str(TIMEOUT_S), *shell(script))
        self.wait_for_files("connected.0", "connected.1")
        status, _, err = job.finish()
        self.assertEqual(status, 124, err)
        self.assertIn(f"ranks 2, 3 had not reached the store within the {TIMEOUT_S} s of --start_timeout", err)
        self.assert_nothing_left(job)

    def test_a_rank_that_came_and_disconnected_is_not_missing(self):
        self.write("connect.py", CONNECT.replace("signal.pause()", "import time\n"
                   "while not os.path.exists('leave'): time.sleep(0.01)\nstore.close()\nopen('left', 'w')\nsignal.pause()"))
        job = self.start("-n", "2", "--start-timeout", str(TIMEOUT_S), *shell("exec python3 connect.py"))
        self.wait_for_files("connected.0", "connected.1")
        begin = time.monotonic()
        wait_until(lambda: time.monotonic() - begin > 1.5, "several looks")
        self.write("leave", "")
        self.wait_for_files("left")
        # Well past the timeout both still run.
        wait_until(lambda: time.monotonic() - begin > TIMEOUT_S + 0.5, "the timeout's end")
        self.assertIsNone(job.process.poll())

    def test_a_daemon_comes_for_its_rank(self):
        daemon = """
import os, sys
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
""" + CONNECT
        self.write("daemon.py", daemon)
        begin = time.monotonic()
        job = self.start("-n", "2", "--start-timeout", str(TIMEOUT_S), *shell("python3 daemon.py; exec sleep 1000"))
        self.wait_for_files("connected.0", "connected.1")
        wait_until(lambda: time.monotonic() - begin > TIMEOUT_S + 0.5, "the timeout's end")
        self.assertIsNone(job.process.poll())

    # Clients that are gone before anybody looks at the kernel's tables from time to time.
    SHORT = """
import os, socket, struct, sys, time
how, count = sys.argv[1], int(sys.argv[2])
for _ in range(count):
    with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as store:
        if how == "ask":
            store.sendall(struct.pack("<BI", 0, 0x3C85F7CE) + struct.pack("<BI", 13, 7))
            assert store.recv(4) == struct.pack("<I", 7)
open("came." + os.environ["RANK"], "w")
"""

    def test_ranks_that_use_the_store_for_a_moment_have_come(self):
        self.write("short.py", self.SHORT + "import signal\nsignal.pause()\n")
        for how in ("ask", "leave"):
            script = f"[ $RANK -lt 2 ] || exec python3 short.py {how} 1\npython3 short.py {how} 1; :"
            begin = time.monotonic()
            job = self.start("-n", "4", "--start-timeout", str(TIMEOUT_S), *shell(script))
            came = [f"came.{rank}" for rank in range(4)]
            self.wait_for_files(*came)
            wait_until(lambda begin=begin: time.monotonic() - begin > TIMEOUT_S + 0.5, "the timeout's end")
            self.assertIsNone(job.process.poll(), how)
            job.clean_up()
            for name in came:
                os.remove(self.path(name))

    def test_one_rank_that_comes_often_does_not_stand_for_another(self):
        self.write("short.py", self.SHORT)
        status, _, err = self.run_job("-n", "2", "--start-timeout", str(TIMEOUT_S), *shell(
            "[ $RANK = 0 ] && python3 short.py ask 10\nexec sleep 1000"))
        self.assertEqual(status, 124, err)
        self.assertIn("rank 1 had not reached the store", err)
        self.wait_for_files("came.0")

    def test_without_the_option_nobody_needs_the_store(self):
        self.assertEqual(self.run_job("-n", "2", "true")[0], 0)


class StoreModes(LauncherTest):
    def variables(self, *options):
        status, _, err = self.run_job("-n", "2", *options, *shell(
            'echo "${TORCHELASTIC_USE_AGENT_STORE-unset} $MASTER_ADDR $MASTER_PORT" > seen.$RANK\n'
            "python3 -c 'import os, socket; socket.create_connection((\"127.0.0.1\", int(os.environ[\"MASTER_PORT\"])))' "
            "2>/dev/null && : > open.$RANK; exit 0"))
        self.assertEqual(status, 0, err)
        self.assertEqual(self.read("seen.0"), self.read("seen.1"))
        return self.read("seen.0").split()

    def test_rank_0_may_host_it(self):
        agent, address, port = self.variables("--store", "rank0")
        self.assertNotEqual(agent, "True")
        self.assertEqual(address, "127.0.0.1")
        self.assertGreater(int(port), 0)
        with socket.socket() as server:  # nobody listens there: rank 0 can
            server.bind(("127.0.0.1", int(port)))

    def test_rank_0_on_a_port_of_the_users_choice(self):
        port = free_port()
        self.assertEqual(self.variables("--store=rank0", "--master-port", str(port))[2], str(port))

    def test_ddprun_hosts_it_by_default(self):
        self.assertEqual(self.variables("--store", "agent")[0], "True")
        self.wait_for_files("open.0", "open.1")


if __name__ == "__main__":
    main()
