"""The ranks' output when ddprun's own is a terminal: they see one too, raw, as large as ours, one per stream."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading

from harness import DDPRUN, LauncherTest, main, shell, wait_until

QUIET = {"OMP_NUM_THREADS": "1", "TERM": "xterm"}
ABOUT = "import os; print(*(int(os.isatty(fd)) for fd in (0, 1, 2)), file=open(os.environ['DDPRUN_TEST_FOLDER'] + '/about.' + os.environ['RANK'], 'w'))"


class Screen:
    """A terminal's user: reads all that comes. `raw`: what programs write comes unchanged."""

    def __init__(self, raw=True, rows=24, columns=80):
        self.master, self.terminal = pty.openpty()
        if raw:
            settings = termios.tcgetattr(self.terminal)
            settings[1] &= ~termios.OPOST
            termios.tcsetattr(self.terminal, termios.TCSANOW, settings)
        self.resize(rows, columns)
        self.seen = b""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def resize(self, rows, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while True:
            try:
                part = os.read(self.master, 65536)
            except OSError:  # the last writer is gone
                return
            self.seen += part

    def finish(self):
        """All that was written, once nobody can write any more."""
        os.close(self.terminal)
        self.reader.join(20)
        os.close(self.master)
        return self.seen


class PseudoTerminal(LauncherTest):
    def on_screen(self, *arguments, raw=True, patience=20, environment=None, **streams):
        """Runs a job with its output on a terminal; returns (status, what the terminal got)."""
        screen = Screen(raw)
        streams = streams or {"stdout": screen.terminal, "stderr": screen.terminal}
        streams = {name: screen.terminal if fd == "screen" else fd for name, fd in streams.items()}
        status, self.out, self.err = self.run_job(*arguments, patience=patience, environment=environment or QUIET, **streams)
        return status, screen.finish()

    def test_the_ranks_see_a_terminal_where_ddprun_has_one(self):
        script = ("python3", "-c", ABOUT)
        self.assertEqual(self.on_screen("-n", "2", *script)[0], 0)
        self.assertEqual([self.read(f"about.{rank}") for rank in (0, 1)], ["0 1 1\n"] * 2)
        self.on_screen("-n", "2", *script, stdout="screen", stderr=subprocess.PIPE)
        self.assertEqual(self.read("about.1"), "0 1 0\n")
        self.on_screen("-n", "2", *script, stdout=subprocess.PIPE, stderr="screen")
        self.assertEqual(self.read("about.1"), "0 0 1\n")
        self.run_job("-n", "2", *script, environment=QUIET)
        self.assertEqual(self.read("about.1"), "0 0 0\n")

    def test_one_rank_writes_to_the_terminal_itself(self):
        screen = Screen()
        name = os.ttyname(screen.terminal)
        self.run_job("sh", "-c", "readlink /proc/$$/fd/2 > $DDPRUN_TEST_FOLDER/link", stderr=screen.terminal, environment=QUIET)
        screen.finish()
        self.assertEqual(self.read("link").strip(), name)

    def test_without_pseudo_terminals_there_are_pipes(self):
        # Where the container has no /dev/ptmx: here another device is in its place.
        hide = ["unshare", "-Urm", "sh", "-c", 'mount --bind /dev/null /dev/ptmx && exec "$@"', "sh"]
        try:
            if subprocess.run([*hide, "true"], capture_output=True, check=False).returncode != 0:
                self.skipTest("no mounts of our own here")
        except FileNotFoundError:
            self.skipTest("no unshare")
        screen = Screen()
        done = subprocess.run([*hide, DDPRUN, "-n", "2", "python3", "-c", ABOUT + "; print('x')"], stdout=screen.terminal, check=False,
                              stdin=subprocess.DEVNULL, timeout=20, env={**os.environ, **QUIET, "DDPRUN_TEST_FOLDER": self.folder})
        self.assertEqual((done.returncode, sorted(screen.finish().splitlines())), (0, [b"[0] x", b"[1] x"]))
        self.assertEqual(self.read("about.0"), "0 0 0\n")

    def test_streams_of_a_terminal_stay_apart(self):
        errors = Screen()
        status, out = self.on_screen("-n", "2", *shell("echo out; echo err >&2"), stdout="screen", stderr=errors.terminal)
        self.assertEqual((status, sorted(out.splitlines())), (0, [b"[0] out", b"[1] out"]))
        self.assertEqual(sorted(errors.finish().splitlines()), [b"[0] err", b"[1] err"])

    def test_lines_appear_at_once(self):
        # The C library buffers by lines at a terminal only; nothing is flushed here.
        program = "import os, sys, time\nprint('first', os.environ['RANK'])\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        screen = Screen()
        job = self.start("-n", "2", "python3", "-c", program, self.path("go"), stdout=screen.terminal, environment=QUIET)
        wait_until(lambda: b"[0] first 0" in screen.seen and b"[1] first 1" in screen.seen, "both lines")
        self.write("go", "")
        self.assertEqual(job.finish()[0], 0)
        screen.finish()

    def test_every_byte_arrives_untranslated(self):
        with open(self.path("data"), "wb") as file:
            file.write(bytes(byte for byte in range(256) if byte not in b"\r\n") + b"\nx\ty\r\n" + b"last, without newline")
        status, out = self.on_screen("--prefix={rank}>", "cat", self.path("data"))
        with open(self.path("data"), "rb") as file:
            lines = file.read().split(b"\n")
        self.assertEqual((status, out.split(b"\n")), (0, [b"0>" + line for line in lines]))

    def test_the_last_bytes_of_a_rank_that_ends_at_once_are_not_lost(self):
        script = "i=0; while [ $i -lt 300 ]; do echo $RANK-$i; i=$((i+1)); done; printf end"
        for _ in range(10):
            status, out = self.on_screen("-n", "4", *shell(script))
            self.assertEqual(status, 0)
            for rank in range(4):
                expected = [b"[%d] %d-%d" % (rank, rank, i) for i in range(300)] + [b"[%d] end" % rank]
                self.assertEqual([line for line in out.split(b"\n") if line.startswith(b"[%d]" % rank)], expected)

    def test_much_output(self):
        status, out = self.on_screen("-n", "2", *shell("seq 200000"), patience=60)
        self.assertEqual(status, 0)
        for rank in (0, 1):
            numbers = [line[4:] for line in out.splitlines() if line.startswith(b"[%d] " % rank)]
            self.assertEqual(numbers, [b"%d" % i for i in range(1, 200001)])

    def test_progress_lines_keep_their_carriage_returns_where_rows_cannot_be_redrawn(self):
        status, out = self.on_screen("-n", "2", "--local-ranks-filter=1", *shell("printf '10%%\\r20%%\\rdone\\n'"),
                                     environment={**QUIET, "TERM": "dumb"})
        self.assertEqual((status, out), (0, b"[1] 10%\r[1] 20%\r[1] done\n"))

    def test_a_cooked_terminal_translates_once(self):
        status, out = self.on_screen("--prefix", "echo", "x", raw=False)
        self.assertEqual((status, out), (0, b"[0] x\r\n"))

    def test_log_files_of_a_terminal_hold_what_was_written(self):
        status, out = self.on_screen("-n", "2", "--output-filename", self.path("out"), "echo", "x")
        self.assertEqual((status, sorted(out.splitlines())), (0, [b"[0] x", b"[1] x"]))
        self.assertEqual(self.read("out/rank.1/stdout"), "x\n")

    def test_a_redirected_stream_is_no_terminal(self):
        self.on_screen("-n", "2", "--output-filename", self.path("out"), "--local-ranks-filter=0", "python3", "-c", ABOUT)
        self.assertEqual([self.read(f"about.{rank}") for rank in (0, 1)], ["0 1 1\n", "0 0 0\n"])

    def test_the_window_has_our_size_less_the_prefix_and_follows_it(self):
        program = self.write("window.py", """
import os, signal, sys, time
folder, rank = os.environ["DDPRUN_TEST_FOLDER"], os.environ["RANK"]
def note(name):
    size = os.get_terminal_size(1)
    with open(f"{folder}/{name}.{rank}.tmp", "w") as file:
        file.write(f"{size.lines} {size.columns}")
    os.rename(f"{folder}/{name}.{rank}.tmp", f"{folder}/{name}.{rank}")
    if name == "second":
        os._exit(0)
signal.signal(signal.SIGWINCH, lambda *_: note("second"))
note("first")
while True:
    time.sleep(0.05)
""")
        screen = Screen(rows=33, columns=111)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(screen.terminal, termios.TIOCSCTTY, 0)

        job = self.start("-n", "2", program, stdin=screen.terminal, stdout=screen.terminal, stderr=screen.terminal,
                         preexec_fn=own_terminal, environment=QUIET)
        self.wait_for_files("first.0", "first.1")
        self.assertEqual([self.read("first.0"), self.read("first.1")], ["33 107"] * 2)
        screen.resize(44, 122)  # the kernel tells the terminal's foreground group
        self.assertEqual(job.process.wait(20), 0)
        self.assertEqual([self.read("second.0"), self.read("second.1")], ["44 118"] * 2)
        screen.finish()

    def test_a_terminal_that_goes_away_costs_the_output_but_not_the_job(self):
        # Ending the job is the hang-up signal's task (terminal_test.py), and that may be ignored.
        master, terminal = pty.openpty()
        job = self.start("-n", "2", *shell("while [ ! -e gone ]; do echo x; sleep 0.01; done; echo last; : > ended.$RANK"),
                         stdout=terminal, environment=QUIET)
        os.close(terminal)
        os.read(master, 100)
        os.close(master)
        self.write("gone", "")
        status, _, err = job.finish()
        self.assertEqual(status, 125, err)
        self.assertIn("output was lost", err)
        self.wait_for_files("ended.0", "ended.1")

    def test_a_stopped_terminal_stops_the_ranks_and_costs_no_memory(self):
        master, terminal = pty.openpty()  # nobody reads
        job = self.start("-n", "2", "yes", stdout=terminal, environment=QUIET)
        os.close(terminal)
        ranks = wait_until(lambda: (lambda found: len(found) == 2 and found)(job.children_of(job.supervisor())), "the ranks")

        def written():
            counts = []
            for pid in ranks:
                with open(f"/proc/{pid}/io", encoding="ascii") as file:
                    counts.append(re.search(r"wchar: (\d+)", file.read()).group(1))
            return counts

        last = []

        def is_still():
            now = written()
            last.append(now)
            return len(last) > 20 and last[-20:] == [now] * 20 and min(map(int, now)) > 10000

        wait_until(is_still, "the ranks to wait for their reader")
        with open(f"/proc/{job.supervisor()}/status", encoding="ascii") as file:
            self.assertLess(int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1)), 32 << 10)
        job.signal(signal.SIGINT)
        wait_until(lambda: len(job.children_of(job.supervisor())) == 0 or job.process.poll() is not None, "the ranks' end")
        os.close(master)
        self.assertEqual(job.finish()[0], 128 + signal.SIGINT)


if __name__ == "__main__":
    main()
