"""--debug: one rank under gdb, in ddprun's terminal. The gdb here is a stand-in that says how it was called."""

import fcntl
import os
import pty
import shutil
import sys
import termios

from harness import LauncherTest, main, shell

GDB = """#!/bin/sh
cd "$DDPRUN_TEST_FOLDER" || exit 99
printf '%s\\n' "$@" > arguments
echo "$RANK $TORCHELASTIC_RUN_ID" > rank.tmp; mv rank.tmp rank
[ -t 0 ] && [ -t 1 ] && : > at_terminal
read line || exit 98
echo "$line" > typed
exit 0
"""


class Debug(LauncherTest):
    def start_at_terminal(self, *arguments, **options):
        self.master, slave = pty.openpty()
        self.addCleanup(os.close, self.master)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.write("gdb", GDB, executable=True)
        environment = {"PATH": self.folder + os.pathsep + os.environ["PATH"], "PYTHON_EXEC": os.path.realpath(sys.executable)}
        job = self.start(*arguments, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal,
                         environment=environment, **options)
        os.close(slave)
        return job

    def arguments_of(self, *program, rank=1):
        job = self.start_at_terminal("-n", "2", "--debug", str(rank), *program)
        self.wait_for_files("rank")
        os.write(self.master, b"continue\n")
        self.assertEqual(job.finish()[0], 0)
        self.assertEqual(self.read("typed"), "continue\n")
        self.assertTrue(os.path.exists(self.path("at_terminal")))
        self.assertEqual(self.read("rank").split()[0], str(rank))
        return self.read("arguments").splitlines()

    def test_the_rank_runs_under_gdb_and_has_the_keyboard(self):
        self.assertEqual(self.arguments_of("true", "a b", "--x"), ["--args", shutil.which("true"), "a b", "--x"])

    def test_rank_0_as_well(self):
        self.assertEqual(self.arguments_of("/bin/true", rank=0), ["--args", "/bin/true"])

    def test_a_script_runs_in_its_interpreter(self):
        script = self.write("job.py", "pass\n")
        arguments = self.arguments_of(script, "1")
        self.assertEqual(arguments, ["--args", os.path.realpath(sys.executable), "-u", script, "1"])
        program = self.write("program", "#!/usr/bin/env sh\nexit 0\n", executable=True)
        os.remove(self.path("rank"))
        self.assertEqual(self.arguments_of(program, "1"), ["--args", "/usr/bin/env", "sh", program, "1"])

    def test_the_other_ranks_end_when_the_debugged_one_fails(self):
        job = self.start_at_terminal("-n", "2", "--debug", "0", *shell("exec sleep 1000"))
        self.wait_for_files("rank")
        os.write(self.master, b"\x04")  # the end of the input: this gdb fails
        self.assertEqual(job.finish()[0], 98)
        self.assert_nothing_left(job)

    def test_what_is_missing_is_one_line(self):
        self.write("gdb", GDB, executable=True)
        status, _, err = self.run_job("--debug", "0", "true")
        self.assertEqual((status, len(err.splitlines())), (125, 1))
        self.assertIn("terminal", err)
        job = self.start_at_terminal("-n", "2", "--debug", "2", "true")
        self.assertEqual(job.finish()[0], 125)
        empty = self.path("empty")
        os.mkdir(empty)
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        status, _, err = self.run_job("--debug", "0", "/bin/true", stdin=slave, environment={"PATH": empty})
        os.close(slave)
        self.assertEqual((status, len(err.splitlines())), (125, 1))
        self.assertIn("gdb, which is not in PATH", err)


if __name__ == "__main__":
    main()
