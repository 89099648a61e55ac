"""Signals to ddprun: forwarded to the ranks, bounded by the grace time, and its exit status."""

import os
import signal
import time

from harness import LauncherTest, main, process_state, shell, wait_until

OBEDIENT = """
    trap ': > got.$RANK; exit 0' {name}
    : > ready.$RANK
    while :; do sleep 0.01; done"""
STUBBORN = """
    trap ': > got.$RANK' INT TERM QUIT HUP
    : > ready.$RANK
    while :; do sleep 0.01; done"""


class Signals(LauncherTest):
    def ready(self, count=2):
        self.wait_for_files(*[f"ready.{rank}" for rank in range(count)])

    def test_int_term_quit_and_hup_reach_every_rank(self):
        for name in ("INT", "TERM", "QUIT", "HUP"):
            with self.subTest(name):
                job = self.start("-n", "2", *shell(OBEDIENT.format(name=name)))
                self.ready()
                job.signal(getattr(signal, "SIG" + name))
                status, _, err = job.finish()
                self.wait_for_files("got.0", "got.1")
                self.assertEqual(status, 0, err)  # told to stop, and every rank ended well
                self.assertNotIn("failed", err)
                self.assert_nothing_left(job)
                for rank in (0, 1):
                    for file in ("got", "ready"):
                        os.remove(self.path(f"{file}.{rank}"))

    def test_ranks_that_die_of_the_signal_give_128_plus_its_number(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            job = self.start("-n", "2", *shell("trap - INT TERM; : > ready.$RANK; exec sleep 100"))
            self.ready()
            job.signal(number)
            status, _, err = job.finish()
            self.assertEqual(status, 128 + number, err)
            self.assertNotIn("failed", err)
            self.assert_nothing_left(job)
            for rank in (0, 1):
                os.remove(self.path(f"ready.{rank}"))

    def test_saved_and_stopped_is_status_85(self):
        job = self.start("-n", "2", *shell("trap 'exit 85' TERM; : > ready.$RANK; while :; do sleep 0.01; done"))
        self.ready()
        job.signal(signal.SIGTERM)
        status, _, err = job.finish()
        self.assertEqual(status, 85, err)
        self.assertNotIn("failed", err)

    def test_status_85_without_being_told_to_stop_is_a_failure(self):
        status, _, err = self.run_job("-n", "2", *shell("exit 85"))
        self.assertEqual(status, 85)
        self.assertIn("failed first", err)

    def test_ranks_that_ignore_the_signal_are_killed_after_the_grace_time(self):
        job = self.start("-n", "2", "--grace", "0.5", *shell(STUBBORN))
        self.ready()
        begin = time.monotonic()
        job.signal(signal.SIGTERM)
        status, _, err = job.finish()
        took = time.monotonic() - begin
        self.assertEqual(status, 128 + signal.SIGTERM, err)
        self.assertGreaterEqual(took, 0.5)
        self.assertLess(took, 5)
        self.assert_nothing_left(job)

    def test_a_long_wait_is_announced_once(self):
        job = self.start("-n", "2", "--grace", "1.5", *shell(STUBBORN))
        self.ready()
        job.signal(signal.SIGTERM)
        _, _, err = job.finish()
        self.assertEqual(err.count("waiting up to"), 1)

    def test_a_second_interrupt_kills_at_once(self):
        job = self.start("-n", "2", "--grace", "1000", *shell(STUBBORN))
        self.ready()
        job.signal(signal.SIGINT)
        self.wait_for_files("got.0", "got.1")
        # Interrupts that come very close together count as one.
        wait_until(lambda: job.process.poll() is not None or job.signal(signal.SIGINT), "ddprun's end")
        status, _, err = job.finish()
        self.assertEqual(status, 128 + signal.SIGINT, err)
        self.assert_nothing_left(job)

    def test_term_is_forwarded_once_and_a_second_one_does_not_shorten_the_grace_time(self):
        script = """
            trap 'echo x >> got.$RANK' TERM
            trap ': > seen.$RANK' USR1
            : > ready.$RANK
            while [ ! -e finish ]; do sleep 0.01; done
            exit 0"""
        job = self.start("-n", "2", *shell(script))
        self.ready()
        job.signal(signal.SIGTERM)
        self.wait_for_files("got.0", "got.1")
        job.signal(signal.SIGTERM)
        job.signal(signal.SIGUSR1)
        self.wait_for_files("seen.0", "seen.1")
        self.write("finish", "")
        self.assertEqual(job.finish()[0], 0)
        for rank in (0, 1):
            self.assertEqual(self.read(f"got.{rank}"), "x\n")

    def test_user_signals_reach_the_ranks_and_end_nothing(self):
        script = """
            trap ': > usr1.$RANK' USR1
            trap ': > usr2.$RANK' USR2
            : > ready.$RANK
            while [ ! -e finish ]; do sleep 0.01; done"""
        job = self.start("-n", "2", *shell(script))
        self.ready()
        job.signal(signal.SIGUSR1)
        job.signal(signal.SIGUSR2)
        self.wait_for_files("usr1.0", "usr1.1", "usr2.0", "usr2.1")
        self.write("finish", "")
        self.assertEqual(job.finish()[0], 0)

    def test_user_signals_reach_the_program_behind_a_shell(self):
        program = self.write("handles.py", '''
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: open("usr1." + os.environ["RANK"], "w").close())
open("ready." + os.environ["RANK"], "w").close()
while not os.path.exists("finish"):
    time.sleep(0.01)
''')
        # Behind a shell, behind two, and beside a helper that would die of it.
        job = self.start("-n", "2", *shell(f"sleep 1000 & sh -c 'python3 {program}; exit 7'; kill $!; wait; exit 0"))
        self.ready()
        job.signal(signal.SIGUSR1)
        self.wait_for_files("usr1.0", "usr1.1")
        self.write("finish", "")
        status, _, err = job.finish()
        self.assertEqual((status, "failed" in err), (0, False), err)

    def test_user_signals_do_not_end_ranks_without_a_handler(self):
        job = self.start("-n", "2", *shell(": > ready.$RANK; while [ ! -e finish ]; do sleep 0.01; done"))
        self.ready()
        job.signal(signal.SIGUSR1)
        self.assertIn(b"was not passed on to rank", self.line_with(job, b"SIGUSR1"))
        job.signal(signal.SIGUSR1)
        job.signal(signal.SIGUSR2)
        self.assertIn(b"SIGUSR2 was not passed on", self.line_with(job, b"SIGUSR"))  # said once of each
        self.write("finish", "")
        self.assertEqual(job.finish()[0], 0)

    def test_a_rank_that_waits_for_a_user_signal_gets_it(self):
        begin = "import os, signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); "
        ready = "open('ready.' + os.environ['RANK'], 'w').close(); "
        poll = "\nwhile not signal.sigpending(): time.sleep(0.01)"  # as a signalfd would be read
        for program in (begin + ready + "signal.sigwait([signal.SIGTERM, signal.SIGUSR1])", begin + ready + poll):
            for script in ('exec python3 -c "$PROGRAM"', 'python3 -c "$PROGRAM"; exit $?'):
                job = self.start("-n", "2", *shell(script), environment={"PROGRAM": program})
                self.ready()
                job.signal(signal.SIGUSR1)
                self.assertEqual(job.finish()[0], 0, script)
                for rank in (0, 1):
                    os.remove(self.path(f"ready.{rank}"))

    def line_with(self, job, text):
        return next(line for line in job.process.stderr if text in line)

    def test_a_hangup_that_was_ignored_at_start_stays_ignored(self):
        script = ": > ready.$RANK\nwhile [ ! -e finish ]; do sleep 0.01; done"
        job = self.start("-n", "2", *shell(script), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.ready()
        job.signal(signal.SIGHUP)
        # A signal that is not ignored, sent later, arrives later: the hangup was dropped before.
        job.signal(signal.SIGCONT)
        self.write("finish", "")
        status, _, err = job.finish()
        self.assertEqual((status, "waiting" in err), (0, False))

    def test_workers_start_with_default_signals(self):
        status, out, _ = self.run_job("/bin/sh", "-c", "grep -E '^Sig(Blk|Ign)' /proc/self/status")
        self.assertEqual(status, 0)
        for line in out.splitlines():
            self.assertEqual(int(line.split()[1], 16), 0, line)

    def test_suspending_and_continuing_reaches_the_ranks(self):
        job = self.start("-n", "2", *shell(": > ready.$RANK; exec sleep 100"))
        self.ready()
        supervisor = job.supervisor()
        # In the middle of its exec a process has no environment, by which the harness knows it.
        wait_until(lambda: len(job.children_of(supervisor)) == 2, "both ranks")
        ranks = job.children_of(supervisor)
        job.signal(signal.SIGTSTP)
        wait_until(lambda: all(process_state(pid) == "T" for pid in ranks + [job.process.pid]), "all suspended")
        job.signal(signal.SIGCONT)
        wait_until(lambda: all(process_state(pid) in "SR" for pid in ranks + [job.process.pid]), "all continued")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.finish()[0], 128 + signal.SIGTERM)

    def test_suspended_ranks_can_be_stopped(self):
        job = self.start("-n", "2", *shell(": > ready.$RANK; kill -STOP $$; exec sleep 100"))
        self.ready()
        job.signal(signal.SIGTERM)
        self.assertEqual(job.finish()[0], 128 + signal.SIGTERM)
        self.assert_nothing_left(job)


if __name__ == "__main__":
    main()
