"""How a job ends: one test per row of the table "Exit status" in docs/launcher.md that is not in exit_status_test.py, and
the report's details."""

import os
import resource
import signal
import time

from harness import LauncherTest, main, shell, wait_until

READY = ": > ready.$RANK; while :; do sleep 0.01; done"


class ToldToStop(LauncherTest):
    """`ends`: what rank 0 and rank 1 do when the signal comes."""

    def stopped(self, *ends, options=(), number=signal.SIGTERM):
        script = "".join(f"[ $RANK = {rank} ] && trap '{end}' TERM INT\n" for rank, end in enumerate(ends)) + READY
        job = self.start("-n", str(len(ends)), *options, *shell(script))
        self.wait_for_files(*[f"ready.{rank}" for rank in range(len(ends))])
        job.signal(number)
        status, _, err = job.finish()
        self.assert_nothing_left(job)
        for rank in range(len(ends)):
            os.remove(self.path(f"ready.{rank}"))
        return status, err

    def test_all_end_with_0(self):
        status, err = self.stopped("exit 0", "exit 0")
        self.assertEqual((status, "failed" in err), (0, False), err)

    def test_all_end_with_0_or_85(self):
        status, err = self.stopped("exit 85", "exit 0")
        self.assertEqual((status, "failed" in err), (85, False), err)

    def test_one_ends_with_something_else(self):
        for ends in (("exit 3", "exit 85"), ("kill -9 $$", "exit 0")):
            status, err = self.stopped(*ends)
            self.assertEqual((status, "failed" in err), (128 + signal.SIGTERM, False), err)
        self.assertEqual(self.stopped("exit 1", "exit 1", number=signal.SIGINT)[0], 128 + signal.SIGINT)

    def test_it_costs_no_restart(self):
        for end, expected in (("exit 0", 0), ("exit 85", 85), ("exit 7", 128 + signal.SIGTERM)):
            status, err = self.stopped(f"echo x >> ends; {end}", "exit 0", options=("--max-restarts", "3"))
            self.assertEqual(status, expected, err)
            self.assertEqual(self.read("ends"), "x\n")
            os.remove(self.path("ends"))

    def test_a_rank_that_had_failed_before_counts_and_is_not_restarted(self):
        script = """
            echo x >> runs.$RANK
            [ $RANK = 0 ] && { while [ ! -e ready.1 ]; do sleep 0.01; done; exit 7; }
            trap ': > told' TERM; trap ': > interrupted' INT; : > ready.1
            while [ ! -e finish ]; do sleep 0.01; done; exit 0"""
        job = self.start("-n", "2", "--max-restarts", "3", *shell(script))
        self.wait_for_files("told")
        job.signal(signal.SIGINT)
        self.wait_for_files("interrupted")  # the signal goes through the guardian, which may be late
        self.write("finish", "")
        status, _, err = job.finish()
        self.assertEqual(status, 7, err)
        self.assertEqual(self.read("runs.0"), "x\n")

    def test_status_85_with_restarts_is_a_failure_unless_told(self):
        status, _, err = self.run_job("--max-restarts", "1", *shell("echo x >> runs; exit 85"))
        self.assertEqual((status, self.read("runs")), (85, "x\nx\n"), err)

    def test_the_signals_can_be_chosen(self):
        options = ("--signals-to-handle", "SIGUSR1,SIGTERM")
        script = """
            trap ': > got.$RANK; exit 0' USR1
            echo $TORCHELASTIC_SIGNALS_TO_HANDLE > list
            """ + READY
        job = self.start("-n", "2", *options, *shell(script))
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGUSR1)
        self.assertEqual(job.finish()[0], 0)
        self.wait_for_files("got.0", "got.1")
        self.assertEqual(self.read("list"), "SIGUSR1,SIGTERM\n")

    def test_a_signal_that_is_not_chosen_ends_all_at_once(self):
        script = "trap '' INT HUP TERM\n" + READY
        job = self.start("-n", "2", "--signals-to-handle", "SIGTERM", *shell(script))
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGHUP)
        self.assertEqual(job.finish()[0], -signal.SIGHUP)
        wait_until(lambda: not job.members(), "the end of all processes")


class TorchrunsStatus(LauncherTest):
    def test_every_end_of_a_rank_is_1(self):
        for end in ("exit 7", "exit 85", "kill -SEGV $$"):
            status, _, err = self.run_job("-n", "2", "--exit-code", "torchrun", *shell(end))
            self.assertEqual(status, 1, err)
            self.assertIn("failed first", err)
        self.assertEqual(self.run_job("--exit-code=torchrun", "-n", "2", "true")[0], 0)

    def test_being_told_to_stop_is_1(self):
        job = self.start("-n", "2", "--exit-code=torchrun", *shell(": > ready.$RANK; exec sleep 1000"))
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.finish()[0], 1)

    def test_ddpruns_own_statuses_stay(self):
        self.assertEqual(self.run_job("--exit-code=torchrun", "--timeout", "0.2", "sleep", "1000")[0], 124)
        self.assertEqual(self.run_job("--exit-code=torchrun", "/no/such/program")[0], 127)


class Culprit(LauncherTest):
    """A rank whose peer went away ends first, and says so."""

    VICTIM = "while [ ! -e closed ]; do sleep 0.01; done; echo 'RuntimeError: Connection closed by peer' >&2; exit 1"

    def test_the_one_that_takes_2_s_to_tear_down_is_blamed(self):
        for end, status in (("exit 9", 9), ("kill -SEGV $$", 139)):
            script = f"[ $RANK = 2 ] || {{ {self.VICTIM}; }}\n: > closed; sleep 2; {end}"
            job_status, _, err = self.run_job("-n", "3", *shell(script))
            self.assertEqual(job_status, status, err)
            self.assertIn("rank 2 failed first", err)
            self.assertEqual(err.count("its connection to another rank was closed"), 2, err)
            os.remove(self.path("closed"))

    def test_one_that_does_not_end_is_stopped_after_a_while(self):
        script = f"[ $RANK = 1 ] || {{ {self.VICTIM}; }}\n: > closed; exec sleep 1000"
        job = self.start("-n", "2", *shell(script))
        status, _, err = job.finish()
        self.assertEqual(status, 1, err)
        self.assertIn("rank 1 was stopped by ddprun", err)
        self.assert_nothing_left(job)

    REFUSED = "echo 'ConnectionRefusedError: [Errno 111] Connection refused' >&2; exit 3"

    def test_a_refused_connection_of_one_alone_stops_the_others_soon(self):
        begin = time.monotonic()
        status, _, err = self.run_job("-n", "4", *shell(f"[ $RANK = 2 ] && {{ {self.REFUSED}; }}\nexec sleep 1000"))
        self.assertEqual(status, 3, err)
        self.assertIn("rank 2 failed first", err)
        self.assertLess(time.monotonic() - begin, 3.5)  # half a second on a quiet machine

    def test_a_refused_connection_waits_for_one_that_has_written_down_its_failure(self):
        script = f"""
            if [ $RANK = 1 ]; then
                echo '{{"message": "the cause"}}' > "$TORCHELASTIC_ERROR_FILE"; : > written; sleep 1.5; exit 7
            fi
            while [ ! -e written ]; do sleep 0.01; done
            {self.REFUSED}"""
        status, _, err = self.run_job("-n", "2", *shell(script))
        self.assertEqual(status, 7, err)
        self.assertIn("rank 1 failed first", err)

    def test_a_failure_of_another_kind_stops_all_at_once(self):
        script = f"[ $RANK = 2 ] && exec sleep 1000\n[ $RANK = 1 ] || {{ {self.VICTIM}; }}\n: > closed; sleep 0.5; exit 6"
        status, _, err = self.run_job("-n", "3", *shell(script))
        self.assertEqual(status, 6, err)
        self.assertIn("rank 2 was stopped by ddprun", err)


class Report(LauncherTest):
    def test_the_attempt_is_named(self):
        status, _, err = self.run_job("--max-restarts", "1", *shell("exit 5"))
        self.assertEqual(status, 5)
        self.assertEqual(err.count("of restart 1"), 1, err)

    def test_a_kill_that_ddprun_did_not_send_gets_a_hint(self):
        status, _, err = self.run_job("-n", "2", *shell("[ $RANK = 1 ] && kill -9 $$\nexec sleep 1000"))
        self.assertEqual(status, 137)
        self.assertIn("rank 1 failed first: it was killed by SIGKILL", err)
        self.assertIn("hint:", err)
        self.assertLessEqual(len(err.splitlines()), 10)

    def test_a_crash_says_where_the_core_file_is_or_why_there_is_none(self):
        with open("/proc/sys/kernel/core_pattern", encoding="ascii") as file:
            pattern = file.read()
        if pattern.startswith("|"):
            self.skipTest("core files go to a program here")
        no_core = lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        status, _, err = self.run_job(*shell("kill -SEGV $$"), preexec_fn=no_core)
        self.assertEqual(status, 139)
        self.assertIn("ulimit -c", err)
        if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY or "/" in pattern:
            return
        allow = lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        # A program under a sanitizer otherwise takes core files from itself, and so from its children.
        sanitizers = {"ASAN_OPTIONS": "disable_coredump=0", "TSAN_OPTIONS": "disable_coredump=0"}
        status, _, err = self.run_job("--wdir", self.folder, *shell("kill -SEGV $$"), preexec_fn=allow,
                                      environment=sanitizers)
        self.assertIn("(core dumped)", err)
        self.assertIn("core file: " + self.folder, err)


if __name__ == "__main__":
    main()
