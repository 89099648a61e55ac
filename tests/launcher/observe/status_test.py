"""`ddprun status`, `ddprun top` and --metrics_port: what a job is doing, told to its user and to nobody else."""

import contextlib
import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import time
import unittest
import urllib.error
import urllib.request

from harness import DDPRUN, LauncherTest, free_port, process_state, wait_until

PROGRAM = os.environ["WATCHED_PROGRAM"]


class Status(LauncherTest):
    def setUp(self):
        super().setUp()
        self.runtime = self.path("runtime")
        os.mkdir(self.runtime)
        self.variables = {"XDG_RUNTIME_DIR": self.runtime}

    def start_training(self, *options, ranks=2, arguments=()):
        job = self.start("-n", str(ranks), *options, PROGRAM, self.folder, *arguments, environment=self.variables)
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
        self.assertIn("none of your jobs", err)

    def test_nobody_else_may_ask(self):
        self.start_training()
        path = self.sockets()[0]
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)

    def refuses_folder(self, why):
        status, _, err = self.run_job("--max_restarts", "1", "sh", "-c", "[ $TORCHELASTIC_RESTART_COUNT = 1 ]", environment=self.variables)
        self.assertEqual(status, 0, err)
        self.assertEqual(err.count("ddprun status cannot show this job"), 1, err)
        self.assertRegex(err, "ddprun: ddprun status cannot show this job: " + why)
        status, out, err = self.ask("status")
        self.assertEqual((status, out), (125, ""))
        self.assertRegex(err, "cannot search for jobs: " + why)

    def test_a_folder_that_others_can_enter_is_not_used_and_said_once(self):
        folder = os.path.join(self.runtime, "ddprun")
        os.mkdir(folder)
        os.chmod(folder, 0o755)
        self.refuses_folder(f"other users can access {folder}, whose mode is 755: chmod 700 {folder}, or set XDG_RUNTIME_DIR")
        self.assertEqual(self.sockets(), [])

    def test_what_is_no_folder_is_not_used_and_said_once(self):
        folder = os.path.join(self.runtime, "ddprun")
        os.symlink(self.folder, folder)
        self.refuses_folder(f"{folder} is not a folder but a file or a link: remove it")

    def test_a_folder_of_somebody_else_is_not_used_and_said_once(self):
        if os.geteuid() != 0:
            self.skipTest("only root can give a folder away")
        folder = os.path.join(self.runtime, "ddprun")
        os.mkdir(folder, 0o700)
        os.chown(folder, 4711, 4711)
        self.refuses_folder(f"{folder} belongs to another user, whose user ID is 4711: have it removed")
        self.assertEqual(self.sockets(), [])

    def test_a_job_is_found_however_long_its_socket_takes_to_listen(self):
        job = self.start("sleep", "60", environment=dict(self.variables, LD_PRELOAD=os.environ["SLOW_LISTEN"]))
        wait_until(lambda: self.documents() or job.process.poll() is not None, "the job")
        self.assertEqual([document["pid"] for document in self.documents()], [job.process.pid])
        self.assertEqual(len(self.sockets()), 1)

    def test_what_a_ddprun_leaves_that_was_killed_before_it_listened_is_removed(self):
        folder = os.path.join(self.runtime, "ddprun")
        os.mkdir(folder, 0o700)
        dead = subprocess.Popen(["true"])
        dead.wait()
        for name in (f"{dead.pid}.new", f"{dead.pid}.sock"):
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(os.path.join(folder, name))
        self.assertEqual(self.ask("status")[0], 1)
        self.assertEqual(self.sockets(), [])

    def test_of_a_stopped_ddprun_is_said_that_it_is_there_and_what_to_do(self):
        job = self.start("--rdzv_id", "cifar", "sleep", "600", environment=self.variables)
        wait_until(self.documents, "the job")
        supervisor = job.supervisor()
        os.kill(supervisor, signal.SIGSTOP)
        said = rf"ddprun {job.process.pid} does not answer: its process {supervisor} is stopped by a signal; .*`kill -CONT {supervisor}`"
        for words in (("status",), ("status", "cifar"), ("top", str(job.process.pid)), ("timeline", "start", "-o", "x")):
            status, out, err = self.ask(*words)
            self.assertEqual((status, out), (1, ""), words)
            self.assertRegex(err, said)
        status, out, err = self.ask("status", "--json")
        self.assertEqual(status, 1)
        document = json.loads(out)
        self.assertEqual((document["pid"], document["ranks"]), (job.process.pid, []))
        self.assertRegex("ddprun: " + document["problem"], said)
        for _ in range(30):  # more than its socket lets wait
            with socket.socket(socket.AF_UNIX) as client:
                client.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    client.connect(self.sockets()[0])
        self.assertRegex(self.ask("status")[2], said)
        os.kill(supervisor, signal.SIGCONT)
        wait_until(lambda: self.ask("status", "cifar")[0] == 0, "an answer")

    def test_a_job_that_answers_is_shown_beside_one_that_does_not(self):
        stopped = self.start("--rdzv_id", "one", "sleep", "600", environment=self.variables)
        self.start("--rdzv_id", "two", "sleep", "600", environment=self.variables)
        wait_until(lambda: len(self.documents()) == 2, "both jobs")
        os.kill(stopped.supervisor(), signal.SIGSTOP)
        status, out, err = self.ask("status")
        self.assertEqual(status, 1)
        self.assertIn("job two", out)
        self.assertIn(f"ddprun {stopped.process.pid} does not answer", err)
        status, out, err = self.ask("status", "two")
        self.assertEqual((status, err), (0, ""))

    def test_help_is_given_and_is_no_error(self):
        for words in (("status", "--help"), ("status", "cifar", "-h"), ("top", "--help"), ("timeline", "--help"),
                      ("timeline", "start", "--help")):
            status, out, err = self.ask(*words)
            self.assertEqual((status, err), (0, ""), words)
            self.assertIn(f"Usage: ddprun {words[0]}", out)
            for line in out.splitlines():
                self.assertLessEqual(len(line), 80)

    def test_of_a_rank_in_a_wrapper_its_program_is_shown(self):
        def ranks(**wanted):
            documents = self.documents()
            found = documents[0]["ranks"] if documents else []
            return found if found and all(rank.get(key, 0) > least for rank in found for key, least in wanted.items()) else None

        spin = "x = bytearray(150_000_000)\nfor i in range(0, len(x), 4096): x[i] = 1\nwhile True: pass"
        job = self.start("--no_python", "sh", "-c", f"python3 -c '{spin}'; true", environment=self.variables)
        (rank,) = wait_until(lambda: ranks(memory_bytes=150_000_000, cpu_share=0.05), "the program's memory and processor time")
        self.assertEqual(rank["processes"], 2)
        self.assertRegex(rank["process"], "running")
        job.signal(signal.SIGKILL)
        job.finish()
        job = self.start("-n", "2", "sh", "-c", f"{shlex.quote(PROGRAM)} {self.folder} --work compute --step_time 0.02; true", environment=self.variables)
        for rank in wait_until(lambda: ranks(step=5, cpu_share=0.05), "steps"):
            self.assertEqual(rank["processes"], 2)
            self.assertNotIn("do_wait", rank["process"])

    def test_phases_of_the_programs_own_have_their_names(self):
        port = free_port()
        self.start_training("--metrics_port", str(port), arguments=("--own", "augmentation", "--step_time", "0.02"))
        wait_until(lambda: all("augmentation" in rank["seconds_in_phases"] for rank in self.documents()[0]["ranks"]), "time there")
        self.assertNotIn("other phase", self.documents()[0]["ranks"][0]["seconds_in_phases"])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
            self.assertRegex(reply.read().decode(), r'(?m)^ddprun_phase_seconds_total\{.*,phase="augmentation"\} ')

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

    @unittest.skipUnless(os.geteuid() == 0, "only root sees others' jobs")
    def test_root_sees_the_jobs_of_all_users(self):
        own = self.start_training("--rdzv_id", "roots")
        folders = []
        for user in (1234, 1235):
            folder = self.path(f"of-{user}")
            os.mkdir(folder, 0o700)
            os.chown(folder, user, user)
            folders.append(folder)
        os.chmod(self.folder, 0o755)
        with tempfile.TemporaryDirectory() as place:  # where others may execute it
            os.chmod(place, 0o755)
            program = shutil.copy(DDPRUN, os.path.join(place, "ddprun"))
            jobs = []
            for user, folder in zip((1234, 1235), folders):
                jobs.append(self.start(f"--reuid={user}", f"--regid={user}", "--clear-groups", program, "-n", "1", "--rdzv_id", f"of{user}", "sleep", "600",
                                       program="setpriv", environment={"XDG_RUNTIME_DIR": folder, "TMPDIR": "/tmp"}, cwd="/"))
            seen = lambda: {(each["job"], each["user"]) for each in self.documents("--all_users") if each["job"] in ("roots", "of1234", "of1235")}
            wait_until(lambda: len(seen()) == 3, "all three jobs")
            self.assertEqual(seen(), {("roots", "root"), ("of1234", "1234"), ("of1235", "1235")})
            self.assertEqual([each["job"] for each in self.documents()], ["roots"])
            status, out, err = self.ask("top", "of1234", "--all-users")
            self.assertEqual(status, 0, err)
            self.assertRegex(out, r"\Auser 1234:\njob of1234 ")
            status, out, err = self.ask("stack", "of1234", "0", "--all_users")
            self.assertEqual(status, 0, err)
            self.assertIn("rank 0", out)
            status, _, err = self.ask("timeline", "stop", "of1234", "--all_users")
            self.assertEqual(status, 1, err)
            self.assertNotIn("expected ddprun timeline", err)
            status, _, err = self.ask("status", "of1234")
            self.assertEqual(status, 1)
            self.assertIn("--all_users", err)
            others = subprocess.run(["setpriv", "--reuid=1235", "--regid=1235", "--clear-groups", program, "status", "--all_users"], cwd="/",
                                    capture_output=True, text=True, timeout=60, env={**os.environ, "XDG_RUNTIME_DIR": folders[1]}, check=False)
            self.assertEqual(others.returncode, 0, others.stderr)
            self.assertIn("only root can see the jobs of other users", others.stderr)
            self.assertRegex(others.stdout, r"\Ajob of1235 ")
            self.assertNotIn("of1234", others.stdout)
            for job in jobs:
                job.signal(signal.SIGTERM)
                job.finish()
        self.assertTrue(own.members())

    def test_the_words_are_checked(self):
        for words in [("status", "--what"), ("status", "a", "b"), ("top", "--json")]:
            status, _, err = self.ask(*words)
            self.assertEqual(status, 125, words)
            self.assertIn("expected ddprun status [JOB] [--json]", err)
        for words in [("status", ""), ("top", "")]:  # a variable of a script may be empty
            self.assertEqual(self.ask(*words)[0], 125, words)
        self.assertEqual(self.ask("timeline", "stop", "")[0], 125)
        for words in [("stack", "--json"), ("stack", "cifar", "x"), ("stack", ""), ("stack", "cifar", "")]:
            status, _, err = self.ask(*words)
            self.assertEqual(status, 125, words)
            self.assertIn("expected ddprun stack [JOB] [RANK ...]", err)

    def test_a_program_of_that_name_is_started_by_its_path(self):
        self.write("status", "#!/bin/sh\necho mine\n", executable=True)
        status, out, _ = self.run_job("--no_prefix", self.path("status"))
        self.assertEqual((status, out), (0, "mine\n"))

    def test_metrics_are_served_on_loopback(self):
        port = free_port()
        self.start_training("--metrics_port", str(port), "--rdzv_id", 'a "b"')
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": "application/openmetrics-text"})
        with urllib.request.urlopen(asked, timeout=30) as reply:
            self.assertIn("application/openmetrics-text", reply.headers["Content-Type"])
            text = reply.read().decode()
        self.assertTrue(text.endswith("# EOF\n"))
        self.assertRegex(text, r'(?m)^ddprun_steps_total\{run="a \\"b\\"",rank="1",host="[^"]+"\} \d+$')
        self.assertRegex(text, r'(?m)^ddprun_value\{.*,name="loss"\} [\d.e-]+$')
        for line in text.splitlines():
            self.assertRegex(line, r"^(# (TYPE|UNIT|HELP|EOF).*|ddprun_[a-z_]+\{.*\} (NaN|[-+\d.e]+))$")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/secrets", timeout=30)
        self.assertEqual(refused.exception.code, 404)
        with open("/proc/net/tcp", encoding="ascii") as file:
            table = file.read()
        self.assertRegex(table, rf"0100007F:{port:04X} 00000000:0000 0A")
        self.assertNotRegex(table, rf"00000000:{port:04X} ")

    def test_promtool_accepts_the_metrics(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("promtool is not installed (Debian's package prometheus has it)")
        self.start_training("--metrics_port", "0", "--hang_timeout", "1", arguments=("--own", "augmentation"))
        with urllib.request.urlopen(self.documents()[0]["metrics"], timeout=30) as reply:
            text = reply.read()
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""), text.decode())

    def test_the_dashboard_asks_for_metrics_that_there_are(self):
        with open(os.path.join(os.path.dirname(__file__), "../../../docs/grafana.json"), encoding="utf-8") as file:
            dashboard = json.load(file)
        self.start_training("--metrics_port", "0")
        with urllib.request.urlopen(self.documents()[0]["metrics"], timeout=30) as reply:
            text = reply.read().decode()
        served = set(re.findall(r"(?m)^# TYPE (\w+) ", text))
        labels = set(re.findall(r'[{,](\w+)="', text))
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        self.assertGreater(len(queries), 5)
        asked = set(re.findall(r"ddprun_\w+", " ".join(queries) + json.dumps(dashboard["templating"])))
        self.assertLessEqual(asked, served)
        for panel in dashboard["panels"]:
            self.assertLessEqual(set(re.findall(r"{{(\w+)}}", panel["targets"][0]["legendFormat"])), labels)
        self.assertEqual(len({panel["id"] for panel in dashboard["panels"]}), len(dashboard["panels"]))

    def test_port_0_is_a_free_one_and_told(self):
        job = self.start_training("--metrics_port", "0")
        url = self.documents()[0]["metrics"]
        self.assertRegex(url, r"^http://127\.0\.0\.1:[1-9]\d*/metrics$")
        with urllib.request.urlopen(url, timeout=30) as reply:
            self.assertTrue(b"ddprun_steps_total" in reply.read())
        job.signal(signal.SIGTERM)
        self.assertIn(f"ddprun: metrics are served at {url}\n", job.finish()[2])

    def test_a_port_that_was_asked_for_is_in_the_document_alone(self):
        port = free_port()
        job = self.start_training("--metrics_port", str(port))
        self.assertEqual(self.documents()[0]["metrics"], f"http://127.0.0.1:{port}/metrics")
        job.signal(signal.SIGTERM)
        self.assertNotIn("served", job.finish()[2])
        self.start_training()
        self.assertIsNone(self.documents()[0]["metrics"])

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
                    self.assertIn(b"ddprun_steps_total", reply.read())
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

    def test_the_verdict_on_a_hang_stays_until_it_is_over(self):
        seen = self.path("hook")
        port = free_port()
        events = self.path("events")
        job = self.start("-n", "2", "--rdzv_id", "cifar", "--hang_timeout", "0.5", "--metrics_port", str(port), "--events", events,
                         "--on_hang_command", f'echo "$DDPRUN_HANG_JOB|$DDPRUN_HANG_KIND|$DDPRUN_HANG_RANKS|$DDPRUN_HANG_SINCE|$DDPRUN_HANG_MESSAGE" > {seen}.new; mv {seen}.new {seen}',
                         PROGRAM, self.folder, "--fault", "stop_data", "--rank", "1", "--at", "3", environment=self.variables)
        metrics = lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
        hang = wait_until(lambda: self.documents() and self.documents()[0]["hang"], "the verdict")
        self.assertEqual((hang["kind"], hang["ranks"], hang["waiting_rank"]), ("stopped", [1], 0))
        self.assertRegex(hang["message"], "^rank 1 has not entered .*stopped by a signal")
        self.assertGreaterEqual(hang["seconds"], 0.5)
        self.assertAlmostEqual(hang["since"], hang["reported"] - 0.5, delta=60)
        for word in ("status", "top"):
            self.assertRegex(self.ask(word)[1].splitlines()[1],
                             r"^no rank has made progress for [^;]*: rank 1 has not entered .*; it has been in data since "
                             r"\d\d:\d\d:\d\d; rank 0 waits for it$")
        self.assertRegex(metrics(), r'(?m)^ddprun_hang\{run="cifar",host="[^"]+"\} 1$')
        self.assertRegex(metrics(), r'(?m)^ddprun_hang_cause\{run="cifar",rank="1",host="[^"]+"\} 1$')
        self.assertRegex(metrics(), r'(?m)^ddprun_hang_cause\{run="cifar",rank="0",host="[^"]+"\} 0$')
        wait_until(lambda: os.path.exists(seen), "what the command wrote")
        with open(seen, encoding="utf-8") as file:
            self.assertRegex(file.read(), rf"^cifar\|stopped\|1\|{int(hang['since'])}\|rank 1 has not entered .*\n$")
        with open(events, encoding="utf-8") as file:
            event = next(each for each in map(json.loads, file) if each["event"] == "hang")
        self.assertEqual((event["kind"], event["ranks"], event["waiting_rank"]), ("stopped", [1], 0))
        # The event is of that moment; the document's sentence remains true.
        self.assertEqual(re.sub(r"for [\d.]+ s", "at", event["message"]), re.sub(r"since [\d:]+", "at", hang["message"]))
        self.assertAlmostEqual(event["since"], hang["since"], delta=0.001)
        os.kill(next(pid for pid in job.members() if process_state(pid) == "T"), signal.SIGCONT)
        wait_until(lambda: self.documents()[0]["hang"] is None, "the end of the hang")
        with open(events, encoding="utf-8") as file:
            end = next(each for each in map(json.loads, file) if each["event"] == "hang_over")
        self.assertEqual((end["ranks"], end["since"]), ([1], event["since"]))
        self.assertAlmostEqual(end["seconds"], end["time"] - end["since"], delta=0.1)
        self.assertNotIn("no rank has made progress", self.ask("status")[1])
        self.assertRegex(metrics(), r'(?m)^ddprun_hang\{.*\} 0$')
        self.assertNotRegex(metrics(), r'(?m)^ddprun_hang_cause\{.*\} 1$')

    def test_a_job_that_hangs_is_stopped_after_the_command_for_it_has_ended(self):
        seen = self.path("hook")
        status, _, err = self.run_job("-n", "2", "--hang_timeout", "0.5", "--on_hang", "stop", "--on_hang_command",
                                      f"sleep 1; ps -o pid= -C sleep | wc -l > {seen}; echo what the command prints", "sleep", "600")
        self.assertEqual(status, 124, err)
        self.assertIn("what the command prints", err)
        self.assertIn("ddprun: stopped because no rank made progress; the report above names the cause\n", err)
        with open(seen, encoding="utf-8") as file:
            self.assertGreaterEqual(int(file.read()), 2)

    def test_stacks_are_shown_at_any_time_and_equal_ones_once(self):
        job = self.start("-n", "4", "--rdzv_id", "cifar", PROGRAM, self.folder, "--fault", "mutex_data", "--rank", "2", "--at", "8",
                         environment=self.variables)
        def is_stuck():
            documents = self.documents()
            ranks = documents[0]["ranks"] if documents else []
            return len(ranks) == 4 and all(rank.get("step", 0) == 8 and rank["idle_seconds"] > 1 for rank in ranks)

        wait_until(is_stuck, "a deadlock")
        status, out, err = self.ask("stack", "cifar")
        self.assertEqual((status, err), (0, ""))
        groups = re.findall(r"(?m)^(rank.*):\n((?:    .*\n)+)", out)
        self.assertEqual(out, "".join(f"{title}:\n{lines}" for title, lines in groups))
        # The thread of the deadlock, the main thread that joins it, and the others that wait.
        self.assertRegex(next(lines for title, lines in groups if title.startswith("rank 2, main thread, ")), r"#\d+ .*Rank::deadlock\(")
        self.assertRegex(next(lines for title, lines in groups if title.startswith("rank 2, thread ")), r"#\d+ .*Rank::deadlock\(")
        self.assertRegex(next(lines for title, lines in groups if title.startswith("ranks 0, 1 and 3, main thread, ")),
                         r"#\d+ .*Rank::collective\(")
        self.assertRegex(self.ask("stack", "cifar", "2")[1], r"(?s)\Arank 2, main.*\nrank 2, thread ")
        self.assertNotIn("collective", self.ask("stack", "cifar", "2")[1])
        self.assertTrue(all(rank["runs"] for rank in self.documents()[0]["ranks"]))
        status, out, err = self.ask("stack", "cifar", "7")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("rank 7 is not on this node, which has ranks 0-3", err)
        self.assertIsNone(job.process.poll())

    def test_a_rank_without_a_handler_is_not_ended_by_being_asked_for_its_stack(self):
        job = self.start("-n", "2", "sleep", "600", environment=self.variables)
        wait_until(lambda: self.documents() and [rank.get("process") for rank in self.documents()[0]["ranks"]].count(None) == 0
                   and len(self.documents()[0]["ranks"]) == 2, "the ranks")
        status, out, err = self.ask("stack")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"\Aranks 0 and 1, main thread, sleeping.*:\n    no stack: it does not use ddprun's library\n\Z")
        self.assertTrue(all(rank["runs"] for rank in self.documents()[0]["ranks"]))
        self.assertIsNone(job.process.poll())

    def test_a_rank_that_has_ended_is_named_instead_of_its_stack(self):
        job = self.start("-n", "3", "sh", "-c", "[ $RANK = 0 ] || exit 0; exec sleep 600", environment=self.variables)
        wait_until(lambda: self.documents() and [rank["runs"] for rank in self.documents()[0]["ranks"]] == [True, False, False],
                   "the end of two ranks")
        status, out, err = self.ask("stack", str(job.process.pid), "1")
        self.assertEqual((status, out, err), (1, "", "ddprun: rank 1 has ended normally\n"))
        for ranks in ((), ("0", "1", "2")):
            status, out, err = self.ask("stack", str(job.process.pid), *ranks)
            self.assertEqual((status, err), (0, ""))
            self.assertRegex(out, r"(?s)\Arank 0, main thread, .*\nranks 1 and 2 have ended normally\n\Z")

    def test_an_ended_rank_is_in_its_phase_since_no_time(self):
        self.start("-n", "2", "sh", "-c", "[ $RANK = 0 ] || exit 0; exec sleep 600", environment=self.variables)
        wait_until(lambda: self.documents() and [rank["runs"] for rank in self.documents()[0]["ranks"]] == [True, False], "the end of rank 1")
        for word in ("status", "top"):
            self.assertRegex(self.ask(word)[1], r"(?m)^  1 +\S+ +\? +\? +\? +ended normally$")

    def test_while_a_restart_is_waited_for_that_is_said(self):
        self.start("-n", "1", "--max_restarts", "1", "--restart_backoff", "60", "false", environment=self.variables)
        wait_until(lambda: self.documents() and self.documents()[0]["restart_in_seconds"], "the wait")
        for word in ("status", "top"):
            self.assertRegex(self.ask(word)[1].splitlines()[1], r"^waits [\d.]+ s before restart 1$")

    def namespaced(self, *options):
        """A job that hangs in a PID namespace; its runtime folder is seen from outside."""
        unshare = ["--pid", "--fork", "--kill-child", *options]
        if subprocess.run(["unshare", *unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("no PID namespace can be made here")
        job = self.start(*unshare, DDPRUN, "-n", "2", PROGRAM, self.folder, "--fault", "sleep_data", "--rank", "1", "--at", "3",
                         program="unshare", environment=self.variables)
        wait_until(lambda: self.documents() and all(rank.get("step", 0) == 3 for rank in self.documents()[0]["ranks"]), "the fault")
        return job

    def test_functions_have_names_in_a_job_of_another_pid_namespace(self):
        self.namespaced("--mount-proc")
        status, out, err = self.ask("stack")
        self.assertEqual((status, err), (0, ""))
        self.assertRegex(out, r"(?m)^rank 1, main thread, .*:\n    #0 [^\n]*\n(    #.*\n)*    #\d+ .*Rank::train\(")

    def test_a_stopped_ddprun_of_another_pid_namespace_is_named_by_its_number_here(self):
        job = self.namespaced("--mount-proc")
        supervisor = job.children_of(job.supervisor())[0]  # below unshare
        os.kill(supervisor, signal.SIGSTOP)
        status, out, err = self.ask("status")
        self.assertEqual((status, out), (1, ""))
        self.assertEqual(err, f"ddprun: ddprun 1 does not answer: its process {supervisor} is stopped by a signal; its ranks may continue; "
                              f"`kill -CONT {supervisor}` resumes it\n")

    def test_without_a_view_of_its_pid_namespace_it_is_said_why_there_are_no_names(self):
        self.namespaced("--mount-proc")
        hidden = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", DDPRUN, "stack"], env=dict(os.environ, **self.variables),
                                capture_output=True, text=True, timeout=60)
        self.assertEqual(hidden.returncode, 0, hidden.stderr)
        self.assertRegex(hidden.stdout, r"\Ano function names: the job runs in another PID namespace; run ddprun stack there\nrank")
        self.assertRegex(hidden.stdout, r"(?m)^    #0 0x[0-9a-f]+$")

    def test_of_a_python_that_cannot_be_read_is_said_how_it_prints_its_stack(self):
        program = self.path("python3")  # as far as its name says
        shutil.copy(shutil.which("sleep"), program)
        self.start("--no_python", program, "600", environment=self.variables)
        wait_until(lambda: self.documents() and self.documents()[0]["ranks"] and self.documents()[0]["ranks"][0].get("process"), "the rank")
        self.assertRegex(self.ask("stack")[1], r"\n    no stack: ddprun cannot read those of this Python; after "
                                               r"faulthandler\.register\(\d+, all_threads=True\) it prints them itself\n\Z")

    def test_stacks_of_64_ranks_are_shown_and_all_continue(self):
        self.start_training(ranks=64, arguments=("--step_time", "0.05"))
        begin = time.monotonic()
        status, out, err = self.ask("stack")
        took = time.monotonic() - begin
        print(f"stacks of 64 ranks: {took:.2f} s")
        self.assertEqual((status, err), (0, ""))
        self.assertLess(took, 20)  # 2 s on a quiet machine
        self.assertRegex(out, r"(?m)^ranks? [-\d, and]+, main thread, .*:\n    #0 ")
        before = [rank["step"] for rank in self.documents()[0]["ranks"]]
        wait_until(lambda: all(rank["step"] > step for rank, step in zip(self.documents()[0]["ranks"], before)), "further steps of all")

    def shown_in(self, columns, word, rows=100):
        """What `ddprun <word>` shows at once on a terminal of so many columns."""
        primary, secondary = pty.openpty()
        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        asked = subprocess.Popen([DDPRUN, word], env=dict(os.environ, **self.variables), stdout=secondary)
        os.close(secondary)
        text = b""
        with contextlib.suppress(OSError):
            while text.count(b"\x1b[2J") < 2:
                text += os.read(primary, 4096)
        asked.kill()
        asked.wait()
        os.close(primary)
        lines = text.decode().replace("\x1b[H\x1b[2J", "\n").splitlines()
        for line in lines:
            self.assertLessEqual(len(line), columns, text)
        for screen in text.split(b"\x1b[2J"):
            self.assertLess(screen.count(b"\n"), rows)
        return " ".join(line.strip() for line in lines)

    def test_on_a_terminal_no_line_is_wider_than_that_and_nothing_is_left_out(self):
        self.start_training("--rdzv_id", "a_name_of_some_length" * 2)
        wait_until(lambda: all(rank.get("own_step_seconds") and rank["steps_per_second"] for rank in self.documents()[0]["ranks"]),
                   "times of steps")
        for columns in (20, 40, 80):
            for word in ("status", "top"):
                with self.subTest(columns=columns, word=word):
                    text = self.shown_in(columns, word)
                    parts = ("rank", "steps/s", "collective", "memory", "loss", "process")
                    for part in parts if word == "status" else ("rank", "phase"):
                        self.assertIn(part, text)

    def test_top_shows_no_more_lines_than_the_terminal_has(self):
        self.start_training(ranks=8)
        wait_until(lambda: len(self.documents()[0]["ranks"]) == 8, "eight ranks")
        text = self.shown_in(80, "top", rows=7)
        self.assertRegex(text, r"job .* ranks? .*q quit")

    def test_top_breaks_what_it_says_of_a_stopped_ddprun(self):
        job = self.start_training()
        supervisor = job.supervisor()
        os.kill(supervisor, signal.SIGSTOP)
        try:
            text = self.shown_in(40, "top")
        finally:
            os.kill(supervisor, signal.SIGCONT)
        self.assertRegex(text, rf"ddprun {job.process.pid} does not answer.* resumes it")

    def test_an_address_for_metrics_that_cannot_be_had_is_refused(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            status, _, err = self.run_job("--metrics_port", str(taken.getsockname()[1]), "true")
        self.assertEqual(status, 125)
        self.assertRegex(err, r"port \d+ is in use by another program; choose another one with --metrics_port")
        status, _, err = self.run_job("--metrics_port", "nowhere:1", "true")
        self.assertEqual(status, 125)
        self.assertIn("'nowhere' is not an address", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
