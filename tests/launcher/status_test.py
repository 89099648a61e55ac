"""`ddprun status`, `ddprun top` and --metrics_port: what a job is doing, told to its user and to nobody else."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import termios
import unittest
import urllib.error
import urllib.request

from harness import DDPRUN, LauncherTest, wait_until

PROGRAM = os.environ["WATCHED_PROGRAM"]


class Status(LauncherTest):
    def setUp(self):
        super().setUp()
        self.runtime = self.path("runtime")
        os.mkdir(self.runtime)
        self.variables = {"XDG_RUNTIME_DIR": self.runtime}

    def start_training(self, *options, ranks=2):
        job = self.start("-n", str(ranks), *options, PROGRAM, self.folder, environment=self.variables)
        wait_until(lambda: self.documents() and all(rank.get("step", 0) > 3 for rank in self.documents()[0]["ranks"])
                   and self.documents()[0]["ranks"], "steps of all ranks")
        return job

    def ask(self, *words):
        done = subprocess.run([DDPRUN, *words], env=dict(os.environ, **self.variables), capture_output=True, text=True,
                              timeout=60)
        return done.returncode, done.stdout, done.stderr

    def documents(self, *words):
        return [json.loads(line) for line in self.ask("status", "--json", *words)[1].splitlines()]

    def sockets(self):
        folder = os.path.join(self.runtime, "ddprun")
        return [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.exists(folder) else []

    def test_every_rank_is_told_of(self):
        job = self.start_training("--rdzv_id", "cifar")
        # Phases are timed by the kernel's tick: some steps pass before each has had one.
        def timed():
            document = self.documents()[0]
            return document if all("forward" in rank["seconds_in_phases"] for rank in document["ranks"]) else None

        document = wait_until(timed, "time in forward")
        self.assertEqual((document["job"], document["pid"], document["world_size"]), ("cifar", job.process.pid, 2))
        self.assertEqual(document["program"][0], PROGRAM)
        for number, rank in enumerate(document["ranks"]):
            self.assertEqual(rank["rank"], number)
            self.assertTrue(rank["runs"])
            self.assertIn("loss", rank["values"])
            self.assertGreater(rank["memory_bytes"], 0)
            self.assertGreater(rank["collectives"], 3)
            self.assertGreater(rank["seconds_in_phases"]["forward"], 0)
        wait_until(lambda: all((rank["steps_per_second"] or 0) > 0 for rank in self.documents()[0]["ranks"]), "a rate of steps")
        status, out, _ = self.ask("status")
        self.assertEqual(status, 0)
        self.assertRegex(out, rf"job cifar \(ddprun {job.process.pid} on .*\) for .*: {PROGRAM}")
        self.assertRegex(out, r"rank +host +phase +since +step +steps/s +own +waits +loss +collective +memory +process")
        self.assertEqual(self.ask("top")[1].splitlines()[1].split()[:2], ["rank", "host"])  # once, where there is no terminal

    def test_a_job_is_found_by_its_name_and_by_its_process(self):
        first = self.start_training("--rdzv_id", "one")
        self.start("--rdzv_id", "two", "sleep", "60", environment=self.variables)
        wait_until(lambda: len(self.documents()) == 2, "two jobs")
        self.assertEqual([each["job"] for each in self.documents("two")], ["two"])
        self.assertEqual([each["job"] for each in self.documents(str(first.process.pid))], ["one"])
        status, out, err = self.ask("status", "three")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("no job 'three'", err)

    def test_without_a_job_it_says_so(self):
        status, out, err = self.ask("status")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("no job of yours", err)

    def test_nobody_else_may_ask(self):
        self.start_training()
        path = self.sockets()[0]
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)

    def test_a_folder_that_others_can_enter_is_not_used(self):
        os.mkdir(os.path.join(self.runtime, "ddprun"), 0o755)
        os.chmod(os.path.join(self.runtime, "ddprun"), 0o755)
        status, _, err = self.run_job("true", environment=self.variables)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(self.sockets(), [])

    def test_the_socket_goes_with_the_job(self):
        job = self.start_training()
        self.assertEqual(len(self.sockets()), 1)
        job.signal(signal.SIGTERM)
        job.finish()
        self.assertEqual(self.sockets(), [])

    def test_what_a_killed_ddprun_leaves_is_removed_by_the_next_who_looks(self):
        job = self.start_training()
        for pid in job.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        job.process.wait()
        wait_until(lambda: not job.members(), "the end of all")
        self.assertEqual(self.ask("status")[0], 1)
        self.assertEqual(self.sockets(), [])

    def test_who_connects_and_says_nothing_holds_up_nothing(self):
        self.start_training()
        idle = []
        for _ in range(40):
            client = socket.socket(socket.AF_UNIX)
            client.connect(self.sockets()[0])
            idle.append(client)
        for client in idle:
            client.close()
        wait_until(lambda: self.documents(), "an answer")

    def test_the_words_are_checked(self):
        for words in [("status", "--what"), ("status", "a", "b"), ("top", "--json")]:
            status, _, err = self.ask(*words)
            self.assertEqual(status, 125, words)
            self.assertIn("expected ddprun status [JOB] [--json]", err)

    def test_a_program_of_that_name_is_started_by_its_path(self):
        self.write("status", "#!/bin/sh\necho mine\n", executable=True)
        status, out, _ = self.run_job("--no_prefix", self.path("status"))
        self.assertEqual((status, out), (0, "mine\n"))

    def test_metrics_are_served_on_loopback(self):
        port = free_port()
        self.start_training("--metrics_port", str(port), "--rdzv_id", 'a "b"')
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
            self.assertIn("application/openmetrics-text", reply.headers["Content-Type"])
            text = reply.read().decode()
        self.assertTrue(text.endswith("# EOF\n"))
        self.assertRegex(text, r'(?m)^ddprun_steps_total\{job="a \\"b\\"",rank="1",host="[^"]+"\} \d+$')
        self.assertRegex(text, r'(?m)^ddprun_value\{.*,name="loss"\} [\d.e-]+$')
        for line in text.splitlines():
            self.assertRegex(line, r"^(# (TYPE|HELP|EOF).*|ddprun_[a-z_]+\{.*\} (NaN|[-+\d.e]+))$")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/secrets", timeout=30)
        self.assertEqual(refused.exception.code, 404)
        with open("/proc/net/tcp", encoding="ascii") as file:
            table = file.read()
        self.assertRegex(table, rf"0100007F:{port:04X} 00000000:0000 0A")
        self.assertNotRegex(table, rf"00000000:{port:04X} ")

    def test_many_that_connect_and_say_nothing_keep_nobody_out(self):
        port = free_port()
        self.start_training("--metrics_port", str(port))
        with contextlib.ExitStack() as silent:
            for _ in range(40):
                client = silent.enter_context(socket.create_connection(("127.0.0.1", port)))
                client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
                status = silent.enter_context(socket.socket(socket.AF_UNIX))
                status.connect(self.sockets()[0])
                status.sendall(b"stat")
            before = self.documents()[0]["ranks"][0]["step"]
            for _ in range(3):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
                    self.assertIn(b"# EOF", reply.read())
            wait_until(lambda: self.documents()[0]["ranks"][0]["step"] > before, "steps meanwhile")

    def test_own_and_waited_time_of_a_step_are_told(self):
        port = free_port()
        self.start_training("--metrics_port", str(port))
        wait_until(lambda: all(rank.get("own_step_seconds") for rank in self.documents()[0]["ranks"]), "times of steps")
        for rank in self.documents()[0]["ranks"]:
            self.assertGreater(rank["own_step_seconds"], 0)
            self.assertGreaterEqual(rank["waited_step_seconds"], 0)
            self.assertIsNone(rank["holds_up"])
        self.assertRegex(self.ask("status")[1], r"steps/s +own +waits +loss")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
            text = reply.read().decode()
        self.assertRegex(text, r'(?m)^ddprun_own_step_seconds\{.*rank="1".*\} [\d.e-]+$')
        self.assertRegex(text, r'(?m)^ddprun_waited_step_seconds\{.*rank="0".*\} [\d.e-]+$')

    def test_top_cuts_its_lines_off_at_the_terminals_width(self):
        self.start_training()
        primary, secondary = pty.openpty()
        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        top = subprocess.Popen([DDPRUN, "top"], env=dict(os.environ, **self.variables), stdout=secondary)
        os.close(secondary)
        text = b""
        with contextlib.suppress(OSError):
            while text.count(b"rank") < 2:
                text += os.read(primary, 4096)
        top.kill()
        top.wait()
        os.close(primary)
        lines = text.decode().replace("\x1b[H\x1b[2J", "").splitlines()
        self.assertTrue(any(line.startswith("  rank") for line in lines), text)
        for line in lines:
            self.assertLessEqual(len(line), 40)

    def test_an_address_for_metrics_that_cannot_be_had_is_refused(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            status, _, err = self.run_job("--metrics_port", str(taken.getsockname()[1]), "true")
        self.assertEqual(status, 125)
        self.assertRegex(err, r"port \d+ is in use by another program; choose another one with --metrics_port")
        status, _, err = self.run_job("--metrics_port", "nowhere:1", "true")
        self.assertEqual(status, 125)
        self.assertIn("'nowhere' is no address", err)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


if __name__ == "__main__":
    unittest.main(verbosity=2)
