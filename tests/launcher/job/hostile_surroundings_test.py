"""Limits, closed descriptors, odd names and signals from outside: ddprun does its work, or says in one line what it lacks."""

import json
import os
import resource
import shlex
import shutil
import signal
import sys
import unittest

from harness import DDPRUN, Job, LauncherTest, is_running, main, process_state, shell, wait_until

# Each test says what ddprun says; that it is not about threads.
os.environ["OMP_NUM_THREADS"] = "1"
HAS_SANITIZERS = bool(os.environ.get("SANITIZERS"))


def limits(**values):
    """What a child does before its exec: each limit by the end of its name, as NOFILE=20."""

    def apply():
        for name, value in values.items():
            resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value))

    return apply


class OwnLines(LauncherTest):
    def assert_own_lines(self, err):
        """Nothing but complete lines of ddprun's own."""
        self.assertTrue(err.endswith("\n"), err)
        for line in err.splitlines():
            self.assertTrue(line.startswith("ddprun: "), err)
            self.assertNotIn("internal error", line)


class Limits(OwnLines):
    def test_any_small_number_of_open_files_is_enough_or_is_named(self):
        statuses = set()
        for files in list(range(3, 24, 2)) + [28, 32, 36, 64]:
            status, out, err = self.run_job("-n", "2", *shell("echo hello"), preexec_fn=limits(NOFILE=files))
            with self.subTest(files=files, err=err):
                statuses.add(status)
                if status == 0:
                    self.assertEqual(sorted(out.splitlines()), ["[0] hello", "[1] hello"])
                else:
                    self.assertIn(status, (125, 127))  # 127: even its libraries cannot be opened
                    self.assertEqual(out, "")
                    self.assertTrue(err)
        self.assertIn(0, statuses)
        self.assertIn(125, statuses)

    @unittest.skipIf(os.geteuid() != 0 or not shutil.which("setpriv"), "the limit counts all of a user's processes")
    @unittest.skipIf(HAS_SANITIZERS, "they start threads")
    def test_too_few_processes_are_named_and_nothing_is_left(self):
        os.chmod(self.folder, 0o777)
        shutil.copy(DDPRUN, self.path("ddprun"))
        user = str(1_000_000 + os.getpid())  # one who has no other process
        refused = 0
        for processes in range(1, 9):
            job = self.start("--reuid", user, "--regid", user, "--clear-groups", self.path("ddprun"), "-n", "3", "sleep", "0.01",
                             program="setpriv", environment={"TMPDIR": self.folder}, preexec_fn=limits(NPROC=processes))
            status, _, err = job.finish()
            with self.subTest(processes=processes, err=err):
                self.assertIn(status, (0, 125))
                if status == 125:
                    refused += 1
                    self.assertIn("cannot start a process", err)
                    self.assert_own_lines(err)
                self.assert_nothing_left(job)
        self.assertIn(refused, range(1, 8))
        self.assertEqual(os.listdir(self.folder), ["ddprun"])

    def test_files_of_no_size_do_not_end_ddprun_by_a_signal(self):
        status, out, err = self.run_job("-n", "2", *shell("echo hello"), preexec_fn=limits(FSIZE=0))
        self.assertEqual((status, sorted(out.splitlines()), err), (0, ["[0] hello", "[1] hello"], ""))
        events = self.path("events")
        status, _, err = self.run_job("--events", events, "true", preexec_fn=limits(FSIZE=0))
        self.assertEqual((status, err), (125, f"ddprun: --events {events}: File too large (limit on the size of files: ulimit -f)\n"))
        with open(self.path("output"), "wb") as output:
            status, _, err = self.run_job("-n", "2", *shell("echo hello"), stdout=output, preexec_fn=limits(FSIZE=4))
        self.assertEqual(status, 125)
        self.assertIn("cannot write to standard output: File too large", err)

    @unittest.skipIf(HAS_SANITIZERS, "their shadow memory needs more")
    def test_little_memory_is_enough_or_is_named(self):
        for mebibytes in (16, 32, 64, 256):
            status, _, err = self.run_job("-n", "2", "true", preexec_fn=limits(AS=mebibytes << 20))
            with self.subTest(mebibytes=mebibytes, err=err):
                self.assertIn(status, (0, 125, 126, 127))
                self.assertNotIn("internal error", err)
                if status:
                    self.assertTrue(err)


class StandardDescriptors(LauncherTest):
    def test_any_of_them_may_be_closed(self):
        for mask in range(8):
            closed = [fd for fd in range(3) if mask >> fd & 1]
            name = self.path(f"ranks_{mask}")

            def close(closed=closed):
                for fd in closed:
                    os.close(fd)

            with self.subTest(closed=closed):
                status, out, err = self.run_job(
                    "-n", "2", *shell(f"echo out; echo err >&2; : >{name}_$RANK; [ $RANK = 0 ] && exit 0; "
                                      f"while [ ! -e {name}_0 ]; do sleep 0.01; done; exit 3"), preexec_fn=close)
                self.assertEqual(status, 3)
                self.assertTrue(os.path.exists(name + "_0") and os.path.exists(name + "_1"))
                if 1 not in closed:
                    self.assertEqual(sorted(out.splitlines()), ["[0] out", "[1] out"])
                if 2 not in closed:
                    self.assertIn("rank 1 failed first: it exited with status 3", err)

    def test_a_descriptor_open_for_the_wrong_direction_is_said_or_does_not_matter(self):
        with open(self.write("only", "text"), "rb") as only_to_read, open(self.path("file"), "wb") as only_to_write:
            status, _, err = self.run_job("-n", "2", *shell("echo hello"), stdout=only_to_read)
            self.assertEqual(status, 125)
            self.assertIn("cannot write to standard output: Bad file descriptor", err)
            status, _, _ = self.run_job("-n", "2", *shell("exit 4"), stderr=only_to_read)
            self.assertEqual(status, 4)
            status, out, _ = self.run_job("--stdin", "all", "-n", "2", *shell("cat; echo end"), stdin=only_to_write)
            self.assertEqual((status, sorted(out.splitlines())), (0, ["[0] end", "[1] end"]))


class TemporaryFiles(OwnLines):
    def test_a_folder_that_is_none_is_named_and_nothing_starts(self):
        self.write("file", "")
        for folder in (self.path("missing"), self.path("file"), "/proc/self/nothing", "/dev/null", "x" * 5000):
            job = self.start("-n", "2", *shell("echo started"), environment={"TMPDIR": folder})
            status, out, err = job.finish()
            with self.subTest(folder=folder[:80]):
                self.assertEqual((status, out), (125, ""))
                self.assertEqual(err.count("\n"), 1)
                self.assertIn("TMPDIR", err)
                self.assert_own_lines(err)
                self.assert_nothing_left(job)

    def test_of_a_name_of_100_kb_the_beginning_and_the_end_are_shown_and_what_is_wrong_with_it(self):
        for variable, name in (("TMPDIR", "TMPDIR"), ("PET_LOG_DIR", "--log_dir"), ("PET_NNODES", "PET_NNODES")):
            status, out, err = self.run_job("-n", "1", "--tee", "3", "echo", "started", environment={variable: "begin" + "x" * 100000 + "end"})
            with self.subTest(variable):
                self.assertNotEqual(status, 0)
                self.assertEqual((out, err.count("\n")), ("", 1))
                self.assertLess(len(err), 20000)
                for part in (name, "beginxxx", " bytes) ... x", "xxxend"):
                    self.assertIn(part, err)

    def test_a_relative_or_empty_one_works_wherever_the_ranks_go(self):
        os.mkdir(self.path("here"))
        for value in ("here", ""):
            status, out, err = self.run_job(
                "-n", "2", "sh", "-c", 'cd / && printf text >"$TORCHELASTIC_ERROR_FILE" && exit 5',
                environment={"TMPDIR": value}, cwd=self.folder)
            self.assertEqual((status, out), (5, ""))
            self.assertIn("    text\n", err)
        self.assertEqual(os.listdir(self.path("here")), [])

    def test_a_working_folder_that_is_gone_does_not_hinder(self):
        os.mkdir(self.path("gone"))
        script = f"cd {self.path('gone')} && rmdir {self.path('gone')} && exec {shlex.quote(DDPRUN)} -n 2 echo hello"
        job = Job(["-c", script], self.folder, program="/bin/sh")
        self.addCleanup(job.clean_up)
        status, out, err = job.finish()
        self.assertEqual((status, sorted(out.splitlines())), (0, ["[0] hello", "[1] hello"]), err)

    def test_what_ranks_put_there_goes_but_not_what_it_points_to(self):
        os.mkdir(self.path("kept"))
        self.write("kept/file", "kept")
        os.mkdir(self.path("temporary"))
        status, _, err = self.run_job(
            "-n", "1", "sh", "-c",
            f'cd "$(dirname "$TORCHELASTIC_ERROR_FILE")" && ln -s {self.path("kept")} link && mkdir -p a/b/c && mkfifo a/pipe '
            f'&& ln -s {self.path("kept")}/file "$TORCHELASTIC_ERROR_FILE" && exit 6',
            environment={"TMPDIR": self.path("temporary")})
        self.assertEqual(status, 6)
        self.assertIn("    kept\n", err)
        self.assertEqual(os.listdir(self.path("temporary")), [])
        self.assertEqual(self.read("kept/file"), "kept")

    def test_an_error_file_of_any_kind_holds_nobody(self):
        for make in ('mkfifo "$TORCHELASTIC_ERROR_FILE"', 'mkdir "$TORCHELASTIC_ERROR_FILE"',
                     'ln -s /dev/zero "$TORCHELASTIC_ERROR_FILE"', 'ln -s loop "$TORCHELASTIC_ERROR_FILE"',
                     'printf "\\377\\000\\033[2Jtext" >"$TORCHELASTIC_ERROR_FILE"'):
            status, _, err = self.run_job("-n", "1", "sh", "-c", make + " && exit 7")
            with self.subTest(make=make):
                self.assertEqual(status, 7)
                self.assertIn("rank 0 failed first: it exited with status 7", err)
                self.assertNotIn("\x1b", err)


class Names(OwnLines):
    ODD = b"\xff\xfe \xc3\x28\t\x1b[31m'\"\\$x\n\xe4"

    def test_arguments_and_variables_that_are_not_utf_8_are_untouched(self):
        status, out, err = self.run_job(
            "-n", "1", "-x", b"DDPRUN_TEST_ODD=" + self.ODD, "--rdzv_id", b"\xff\xfe", "--role", b"\xe4\xf6",
            sys.executable, "-c",
            "import os, sys; os.write(1, b'|'.join([os.fsencode(sys.argv[1])] + "
            "[os.environb[n] for n in (b'DDPRUN_TEST_ODD', b'DDPRUN_TEST_ALSO', b'TORCHELASTIC_RUN_ID', b'ROLE_NAME')]))",
            self.ODD, environment={"DDPRUN_TEST_ALSO": os.fsdecode(self.ODD)})
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(os.fsencode(out), b"|".join([self.ODD, self.ODD, self.ODD, b"\xff\xfe", b"\xe4\xf6"]))

    def test_a_program_and_a_folder_of_any_name_are_found(self):
        folder = os.path.join(os.fsencode(self.folder), self.ODD)
        os.mkdir(folder)
        program = os.path.join(folder, b"p" * 255)
        with open(program, "wb") as file:
            file.write(b"#!/bin/sh\necho ran\n")
        os.chmod(program, 0o755)
        for arguments in ([program], ["--wdir", folder, b"./" + b"p" * 255], ["-x", "PATH", b"p" * 255]):
            environment = {"PATH": os.fsdecode(folder) + ":" + os.environ["PATH"]} if arguments[0] == "-x" else {}
            self.assertEqual(self.run_job("-n", "1", *arguments, environment=environment), (0, "ran\n", ""))

    def test_what_ddprun_says_of_an_odd_name_is_one_line_without_control_characters(self):
        odd = "no\nsuch\x1b[2J\x9bthing\r"
        for words in ([odd], ["--wdir", odd, "true"], ["--" + odd, "true"], ["--stdin", odd, "true"], ["-H", odd, "true"],
                      ["--nnodes", "2", "--rdzv_endpoint", odd, "--rdzv_backend", "c10d", "--join_timeout", "0.1", "true"],
                      ["-n", "2", "--tee", "3", "--log_dir", self.path("a" + odd), "true"]):
            _, _, err = self.run_job(*words)
            with self.subTest(words=words, err=err):
                self.assert_own_lines(err)
                for character in "\x1b\r\x9b":
                    self.assertNotIn(character, err)

    def test_a_name_that_no_file_can_have_is_one_line(self):
        for name, status in (("p" * 256, 126), ("./" + "p" * 256, 126), ("/" + "d/" * 3000 + "p", 126), ("p\x1b[2Jq", 127)):
            got, out, err = self.run_job("-n", "2", name)
            with self.subTest(name=name[:20], err=err[:300]):
                self.assertIn(got, (status, 127))
                self.assertEqual((out, err.count("\n")), ("", 1))

    def test_events_and_reports_of_odd_bytes_stay_whole_lines(self):
        events = self.path("events")
        error = "printf '\\377\\033[31m\\nline\\302\\2332J' >\"$TORCHELASTIC_ERROR_FILE\"; exit 3"
        status, _, err = self.run_job("--events", events, "-n", "1", "sh", "-c", error)
        self.assertEqual(status, 3)
        self.assertNotIn("\x1b", err)
        self.assertNotIn("\x9b", err)
        with open(events, "rb") as file:
            lines = [json.loads(line.decode("utf-8")) for line in file]
        self.assertEqual([line["event"] for line in lines], ["start", "exit", "failure", "end"])


class ReplacedWhileRunning(LauncherTest):
    def test_the_program_and_ddprun_itself_may_be_replaced(self):
        shutil.copy(DDPRUN, self.path("ddprun"))
        program = self.write("program", "#!/bin/sh\ncd \"$DDPRUN_TEST_FOLDER\"\n: >old_$RANK\n"
                             "while [ ! -e go ]; do sleep 0.01; done\nexit 0\n", executable=True)
        job = self.start("-n", "2", program, program=self.path("ddprun"))
        self.wait_for_files("old_0", "old_1")
        for name in ("program", "ddprun"):
            os.rename(self.path(name), self.path(name + "_before"))
            self.write(name, "#!/bin/sh\nexit 9\n", executable=True)
        self.write("go", "")
        self.assertEqual(job.finish(), (0, "", ""))

    def test_the_next_attempt_runs_what_is_there_then(self):
        program = self.write("program", "#!/bin/sh\ncd \"$DDPRUN_TEST_FOLDER\"\nprintf '#!/bin/sh\\necho new\\n' >next\n"
                             "chmod +x next\nmv next program\nexit 3\n", executable=True)
        status, out, _ = self.run_job("-n", "1", "--max_restarts", "1", program)
        self.assertEqual((status, out), (0, "new\n"))

    def test_a_program_that_is_gone_at_the_restart_is_named(self):
        program = self.write("program", "#!/bin/sh\nrm \"$0\"\nexit 3\n", executable=True)
        status, _, err = self.run_job("-n", "1", "--max_restarts", "1", program)
        self.assertEqual(status, 127)
        self.assertIn(f"cannot execute {program}: No such file or directory", err)


class Stopped(LauncherTest):
    WORKER = "trap 'exit 0' TERM; echo $$ >pid_$RANK; mv pid_$RANK ready_$RANK; while :; do sleep 0.02; done"

    def start_ranks(self, *options, ranks=2):
        job = self.start("-n", str(ranks), *options, *shell(self.WORKER))
        self.wait_for_files(*[f"ready_{rank}" for rank in range(ranks)])
        return job

    def ranks(self, job):
        return wait_until(lambda: job.children_of(job.supervisor()), "the ranks")

    def test_a_stopped_rank_is_continued_to_be_told_to_stop(self):
        job = self.start_ranks("--grace", "60")
        for rank in self.ranks(job):
            os.kill(rank, signal.SIGSTOP)
            wait_until(lambda rank=rank: process_state(rank) == "T", "a stopped rank")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.finish()[0], 0)
        self.assert_nothing_left(job)

    def test_a_stopped_rank_is_ended_when_another_one_fails(self):
        job = self.start("-n", "2", "--grace", "60", *shell(
            "if [ $RANK = 1 ]; then while [ ! -e go ]; do sleep 0.02; done; exit 7; fi; " + self.WORKER))
        self.wait_for_files("ready_0")
        stopped = int(self.read("ready_0"))
        os.kill(stopped, signal.SIGSTOP)
        wait_until(lambda: process_state(stopped) == "T", "a stopped rank")
        self.write("go", "")
        self.assertEqual(job.finish()[0], 7)
        self.assert_nothing_left(job)

    def test_every_process_of_ddprun_may_be_stopped_for_a_while(self):
        for which in ("guardian", "sweeper", "supervisor"):
            with self.subTest(which=which):
                job = self.start_ranks()
                pid = {"guardian": lambda: job.process.pid, "sweeper": job.sweeper, "supervisor": job.supervisor}[which]()
                os.kill(pid, signal.SIGSTOP)
                wait_until(lambda: process_state(pid) == "T", "a stopped process")
                job.signal(signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)
                self.assertEqual(job.finish()[0], 0)
                self.assert_nothing_left(job)
                for rank in range(2):
                    os.unlink(self.path(f"ready_{rank}"))

    def test_a_stopped_rank_goes_with_ddprun(self):
        for which in ("guardian", "sweeper", "supervisor"):
            with self.subTest(which=which):
                job = self.start_ranks()
                ranks = self.ranks(job)
                os.kill(ranks[0], signal.SIGSTOP)
                wait_until(lambda: process_state(ranks[0]) == "T", "a stopped rank")
                pid = {"guardian": lambda: job.process.pid, "sweeper": job.sweeper, "supervisor": job.supervisor}[which]()
                os.kill(pid, signal.SIGKILL)
                job.process.wait(20)
                wait_until(lambda: not any(is_running(rank) for rank in ranks), "the end of all ranks")
                wait_until(lambda: job.members() == [], "the end of all processes")
                for rank in range(2):
                    os.unlink(self.path(f"ready_{rank}"))


if __name__ == "__main__":
    main()
