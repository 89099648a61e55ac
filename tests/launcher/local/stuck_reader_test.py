"""A reader of ddprun's output that takes nothing: it holds up neither the end of the job nor that of ddprun."""

import os
import signal
import subprocess
import time

from harness import LauncherTest, main, shell, wait_until

FLOOD = ": > ready.$RANK; exec yes"
STUBBORN_FLOOD = "trap '' TERM; : > ready.$RANK; while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done"
LIMIT = 20  # seconds for what takes less than one on a quiet machine


class StuckReader(LauncherTest):
    def start_unread(self, *arguments, error_too=True):
        """`arguments` with an output that is full and that nobody reads, as in `ddprun ... 2>&1 | sleep 99`."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        filled = 0
        try:
            while True:
                filled += os.write(writer, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        job = self.start(*arguments, stdout=writer, stderr=writer if error_too else subprocess.PIPE)
        os.close(writer)
        return job

    def assert_ends(self, job, status):
        self.assertEqual(job.process.wait(LIMIT), status)
        self.assert_nothing_left(job)

    def test_kill_9_of_ddprun(self):
        for ranks in ("1", "2"):
            job = self.start_unread("-n", ranks, *shell(FLOOD))
            self.wait_for_files("ready.0")
            job.signal(signal.SIGKILL)
            job.process.wait()
            wait_until(lambda job=job: not job.members(), "the end of all processes")
            os.remove(self.path("ready.0"))

    def test_kill_9_of_the_supervising_process(self):
        job = self.start_unread("-n", "1", *shell(FLOOD))
        self.wait_for_files("ready.0")
        os.kill(job.supervisor(), signal.SIGKILL)
        self.assert_ends(job, 125)

    def test_one_rank_that_ignores_term_is_killed_after_the_grace_time(self):
        job = self.start_unread("-n", "1", "--grace", "1.5", *shell(STUBBORN_FLOOD))
        self.wait_for_files("ready.0")
        job.signal(signal.SIGTERM)
        self.assert_ends(job, 128 + signal.SIGTERM)

    def test_term_ends_ranks_that_are_passed_on(self):
        job = self.start_unread("-n", "2", "--grace", "1", *shell(FLOOD))
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGTERM)
        self.assert_ends(job, 128 + signal.SIGTERM)

    def test_a_time_limit_ends_ranks_that_are_passed_on(self):
        job = self.start_unread("-n", "2", "--grace", "1", "--timeout", "0.5", *shell(FLOOD))
        self.assert_ends(job, 124)

    def test_a_time_limit_ends_the_wait_for_the_reader(self):
        job = self.start_unread("-n", "2", "--grace", "0.5", "--timeout", "1", "echo", "x")
        self.assert_ends(job, 125)  # the ranks ended well, but their output was lost

    def test_a_failure_ends_the_job_and_ddprun(self):
        job = self.start_unread("-n", "2", "--grace", "1", *shell("[ $RANK = 0 ] && exit 6\n" + FLOOD))
        self.assert_ends(job, 6)

    def test_a_failure_is_followed_by_the_restarts(self):
        job = self.start_unread("-n", "2", "--grace", "0.5", "--max-restarts", "2",
                                *shell(": > run.$TORCHELASTIC_RESTART_COUNT; yes | head -n 1000; exit 6"))
        self.assert_ends(job, 6)
        # By one rank at least: the other may be stopped before it begins.
        self.assertEqual(sorted(name for name in os.listdir(self.folder) if name.startswith("run.")), ["run.0", "run.1", "run.2"])

    def test_what_is_dropped_is_counted(self):
        job = self.start_unread("-n", "2", "--grace", "0.5", *shell("echo lost; " + FLOOD), error_too=False)
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGTERM)
        _, _, err = job.finish()
        self.assertRegex(err, r"output was lost: \d+ bytes were dropped")

    def test_a_second_interrupt_ends_the_wait(self):
        job = self.start_unread("-n", "2", "--grace", "1000", *shell("trap 'exit 0' TERM; " + FLOOD.replace("exec ", "")))
        self.wait_for_files("ready.0", "ready.1")
        job.signal(signal.SIGINT)
        self.assertIsNone(job.process.poll())
        wait_until(lambda: job.process.poll() is not None or job.signal(signal.SIGINT), "ddprun's end")
        self.assert_nothing_left(job)

    def test_a_slow_reader_of_a_job_that_ended_well_loses_nothing(self):
        lines = 40000
        total = 2 * lines * len("[0] 0123456789\n")
        job = self.start("-n", "2", "--grace", "0.1", *shell(f"yes 0123456789 | head -n {lines}; : > done.$RANK"))
        out = b""
        unread = 100_000  # more than a pipe holds, so that ddprun stays, and less than would hold up the ranks
        while len(out) < total - unread:
            out += os.read(job.process.stdout.fileno(), min(1 << 16, total - unread - len(out)))
        self.wait_for_files("done.0", "done.1")
        wait_until(lambda: not job.children_of(job.supervisor()), "the ranks' end")
        begin = time.monotonic()
        wait_until(lambda: time.monotonic() - begin > 1.5, "much more than the grace time")
        rest, err = job.process.communicate(timeout=LIMIT)
        self.assertEqual((job.process.returncode, len(out + rest)), (0, total), err)


if __name__ == "__main__":
    main()
