"""ddprun at a real terminal: Ctrl-C, Ctrl-Z, typing."""

import fcntl
import os
import pty
import signal
import sys
import termios

from harness import DDPRUN, LauncherTest, main, process_state, shell, wait_until


class Terminal(LauncherTest):
    def start_at_terminal(self, *arguments, **options):
        self.master, slave = pty.openpty()
        self.addCleanup(lambda: os.close(self.master))

        def own_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        job = self.start(*arguments, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal, **options)
        os.close(slave)
        return job

    def type(self, data):
        os.write(self.master, data)

    def test_ctrl_c_reaches_each_rank_once(self):
        script = """
            trap 'echo x >> interrupts.$RANK; exit 0' INT
            : > ready.$RANK
            while :; do sleep 0.01; done"""
        job = self.start_at_terminal("-n", "2", *shell(script))
        self.wait_for_files("ready.0", "ready.1")
        self.type(b"\x03")
        self.assertEqual(job.finish()[0], 0)
        for rank in (0, 1):
            self.assertEqual(self.read(f"interrupts.{rank}"), "x\n")

    def test_ctrl_c_twice_kills(self):
        script = """
            trap ': > got.$RANK' INT
            : > ready.$RANK
            while :; do sleep 0.01; done"""
        job = self.start_at_terminal("-n", "2", "--grace", "1000", *shell(script))
        self.wait_for_files("ready.0", "ready.1")
        self.type(b"\x03")
        self.wait_for_files("got.0", "got.1")
        # Interrupts that come very close together count as one.
        wait_until(lambda: job.process.poll() is not None or self.type(b"\x03"), "ddprun's end")
        self.assertEqual(job.finish()[0], 128 + signal.SIGINT)
        self.assert_nothing_left(job)

    def test_what_is_typed_goes_to_rank_0(self):
        job = self.start_at_terminal("-n", "2", *shell("cat > typed.$RANK"))
        self.type(b"hello\n")
        wait_until(lambda: os.path.exists(self.path("typed.0")) and self.read("typed.0") == "hello\n", "the typed line")
        self.type(b"\x04")  # the end of the file
        self.assertEqual(job.finish()[0], 0)
        self.assertEqual(self.read("typed.1"), "")

    def test_what_is_typed_goes_to_all_ranks_when_asked(self):
        job = self.start_at_terminal("-n", "2", "--stdin=all", *shell("cat > typed.$RANK"))
        self.type(b"hello\n")
        for rank in (0, 1):
            wait_until(lambda: os.path.exists(self.path(f"typed.{rank}")) and self.read(f"typed.{rank}") == "hello\n", "the typed line")
        self.type(b"\x04")
        self.assertEqual(job.finish()[0], 0)

    def test_what_is_typed_arrives_after_fg(self):
        # The shell: it starts ddprun in the background, reads a line itself, and then gives it the terminal.
        shell_program = self.write("shell.py", '''
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: os.setpgid(0, 0))
def is_watched():  # the terminal, by ddprun
    folder = f"/proc/{job.pid}/fdinfo/"
    return any(text.split()[:2] == ["tfd:", "0"] for name in os.listdir(folder) for text in open(folder + name))
while not is_watched():
    time.sleep(0.01)
print("watched", flush=True)
while is_watched():  # what is typed is not for ddprun: it looks away
    time.sleep(0.01)
print("line", sys.stdin.readline(), flush=True)
os.tcsetpgrp(0, job.pid)
status = job.wait()
os.tcsetpgrp(0, os.getpgrp())
sys.exit(status)
''')
        job = self.start_at_terminal(shell_program, DDPRUN, "-n", "2", *shell(": > ready.$RANK; cat > typed.$RANK"), program=sys.executable)
        self.wait_for_files("ready.0", "ready.1")
        self.expect(b"watched")
        self.type(b"fg\n")
        self.expect(b"line fg")
        self.type(b"hello\n")
        wait_until(lambda: self.read("typed.0") == "hello\n", "the typed line")
        self.type(b"\x04")
        self.assertEqual(job.finish()[0], 0)

    def expect(self, text):
        """Reads from the terminal until it has shown `text`."""
        shown = b""
        while text not in shown:
            shown += os.read(self.master, 1000)

    def test_ctrl_z_suspends_everything_and_continuing_resumes_it(self):
        job = self.start_at_terminal("-n", "2", *shell(": > ready.$RANK; exec sleep 1000"))
        self.wait_for_files("ready.0", "ready.1")
        ranks = job.children_of(job.supervisor())
        self.type(b"\x1a")
        wait_until(lambda: all(process_state(pid) == "T" for pid in ranks + [job.process.pid]), "all suspended")
        job.signal(signal.SIGCONT)
        wait_until(lambda: all(process_state(pid) in "SR" for pid in ranks + [job.process.pid]), "all continued")
        self.type(b"\x03")
        self.assertEqual(job.finish()[0], 128 + signal.SIGINT)

    def test_closing_the_terminal_ends_the_job(self):
        job = self.start_at_terminal("-n", "2", *shell(": > ready.$RANK; exec sleep 1000"))
        self.wait_for_files("ready.0", "ready.1")
        os.close(self.master)
        self.master = os.open(os.devnull, os.O_RDONLY)
        self.assertEqual(job.finish()[0], 128 + signal.SIGHUP)
        self.assert_nothing_left(job)


if __name__ == "__main__":
    main()
