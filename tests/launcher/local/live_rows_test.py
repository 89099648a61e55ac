"""Progress bars of several ranks on one terminal: redrawn in place at the bottom, finished lines above them."""

import fcntl
import os
import pty
import signal
import struct
import sys
import termios
import threading

from harness import DDPRUN, LauncherTest, is_running, main, process_state, wait_until
from screen_model import ScreenModel

# The test says what a rank writes, piece by piece: step.<n>.<rank> or step.<n> is Python text to be evaluated with
# `columns`, the width that the rank sees.
PROGRAM = """
import os, signal, sys, time
def columns():
    return os.get_terminal_size(1).columns
def wait_for(width):
    while columns() != width:
        time.sleep(0.005)
    return ""
folder, rank = os.environ["DDPRUN_TEST_FOLDER"], os.environ["RANK"]
step = 0
while True:
    for name in (f"{folder}/step.{step}.{rank}", f"{folder}/step.{step}"):
        if os.path.exists(name):
            with open(name, encoding="utf-8") as file:
                for piece in eval(file.read()):
                    os.write(1, piece.encode("utf-8", "surrogateescape"))
            open(f"{folder}/done.{step}.{rank}", "w").close()
            step += 1
            break
    else:
        time.sleep(0.005)
"""
QUIET = {"OMP_NUM_THREADS": "1", "TERM": "xterm-256color", "TMUX": "", "XTERM_VERSION": ""}
END = "(_ for _ in [sys.exit()])"
BAR = "['\\r\\x1b[K' + ('bar ' + rank + ' ' + '#' * 1000)[:columns()]]"


class Terminal:
    """A controlling terminal with a screen model behind it."""

    def __init__(self, columns, rows=24):
        self.master, self.slave = pty.openpty()
        self.name = os.ttyname(self.slave)
        self.lock = threading.Lock()
        self.model = ScreenModel(rows, columns)
        self.error = None
        self.resize(columns, tell=False)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            try:
                part = os.read(self.master, 65536)
            except OSError:
                return
            with self.lock:
                try:
                    self.model.feed(part)
                except AssertionError as error:
                    self.error = error

    def resize(self, columns, tell=True):
        with self.lock:
            fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.model.height, columns, 0, 0))
            if tell:
                self.model.resize(columns)

    def text(self):
        with self.lock:
            if self.error:
                raise self.error
            return self.model.text()

    def write(self, text):
        """Behind what others have written and the reader has perhaps not read yet."""
        terminal = os.open(self.name, os.O_WRONLY | os.O_NOCTTY)
        os.write(terminal, text)
        os.close(terminal)

    def own(self):
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)


class LiveRows(LauncherTest):
    def begin(self, columns, *options, ranks=2, rows=24, environment=None, run_by=()):
        self.terminal = Terminal(columns, rows)
        self.addCleanup(os.close, self.terminal.master)
        self.steps = 0
        self.ranks = ranks
        command = [*run_by, DDPRUN, "-n", str(ranks), *options, self.write("rank.py", PROGRAM)]
        terminal = self.terminal.slave
        self.job = self.start(*command[1:], program=command[0], stdin=terminal, stdout=terminal, stderr=terminal,
                              preexec_fn=self.terminal.own, environment={**QUIET, **(environment or {})})
        os.close(self.terminal.slave)
        self.terminal.slave = os.dup(self.terminal.master)

    def step(self, text, **of_ranks):
        """All ranks write `text`, but for those that have one of their own: r0=..., r1=..."""
        number, self.steps = self.steps, self.steps + 1
        for rank in range(self.ranks):
            own = of_ranks.get(f"r{rank}", text)
            self.write(f"step.{number}.{rank}", own)
        if text != END:
            self.wait_for_files(*(f"done.{number}.{rank}" for rank in range(self.ranks)))

    def shows(self, *rows):
        """Waits until exactly these rows are on the screen and in its history."""
        try:
            wait_until(lambda: self.terminal.text() == list(rows), "the screen", patience=20)
        except AssertionError:
            self.assertEqual(self.terminal.text(), list(rows))

    def bar(self, rank, columns, prefix=None):
        prefix = f"[{rank}] " if prefix is None else prefix
        return (prefix + f"bar {rank} " + "#" * 1000)[:columns]

    def finish(self):
        self.step(END)
        status = self.job.process.wait(20)
        self.terminal.reader.join(20)  # ends when nobody has the terminal open and everything is read
        return status

    def test_each_rank_has_a_row_of_the_width_that_is_left(self):
        for columns in (40, 80, 200):
            for ranks in (1, 2, 4):
                with self.subTest(columns=columns, ranks=ranks):
                    self.begin(columns, "--prefix", ranks=ranks)
                    everyone = range(ranks)
                    for _ in range(3):
                        self.step(BAR)
                        self.shows(*(self.bar(rank, columns) for rank in everyone))
                    above = []
                    for number in range(3):
                        # As tqdm.write: the bar away, a line, the bar again. Ranks one after the other.
                        for rank in everyone:
                            line = f"['\\r' + ' ' * columns() + '\\rline {number} of ' + rank + '\\n', *{BAR}]"
                            self.step("[]", **{f"r{rank}": line})
                            above.append(f"[{rank}] line {number} of {rank}")
                            self.shows(*above, *(self.bar(rank, columns) for rank in everyone))
                    self.assertEqual(self.finish(), 0)
                    self.assertEqual(sorted(self.terminal.text()), sorted(above + [self.bar(rank, columns) for rank in everyone]))
                    for name in os.listdir(self.folder):
                        os.remove(self.path(name))

    def test_rows_follow_the_window(self):
        self.begin(80, ranks=4)
        above = [f"[{rank}] hello" for rank in range(4)]
        for rank in range(4):
            self.step("[]", **{f"r{rank}": f"['hello\\n', *{BAR}]"})
            self.shows(*above[:rank + 1], *(self.bar(shown, 80) for shown in range(rank + 1)))
        for columns in (40, 200, 60, 33, 80):
            self.terminal.resize(columns)
            wait_until(lambda: all(len(row) <= columns for row in self.terminal.text()), "rows that fit")
            self.step(f"[wait_for({columns - 4}), *{BAR}]")
            self.shows(*above, *(self.bar(rank, columns) for rank in range(4)))
        self.assertEqual(self.finish(), 0)
        self.assertEqual(sorted(self.terminal.text()), sorted([*above, *(self.bar(rank, 80) for rank in range(4))]))

    def test_a_terminal_that_cuts_rows_loses_no_line_when_it_becomes_narrower(self):
        self.begin(80, environment={"TERM": "linux"})
        # With both rows there nothing more is on its way to the terminal, for which it had another width.
        self.step(f"['hello\\n', *{BAR}]", r1="['\\rx']")
        self.shows("[0] hello", self.bar(0, 80), "[1] x")
        with self.terminal.lock:
            self.terminal.model.columns = 40
            self.terminal.model.lines = [line[:40] for line in self.terminal.model.lines]
        self.terminal.resize(40, tell=False)
        self.step(BAR)
        self.shows("[0] hello", self.bar(0, 40), self.bar(1, 40))
        self.assertEqual(self.finish(), 0)

    def test_bars_that_go_down_and_up_again_have_a_row_each(self):
        # As ddp::ProgressBar and tqdm draw an inner one: in one write, or in several.
        self.begin(60)
        for number in range(5):
            inner = "'\\n', '\\rinner %d of ' + rank + '\\x1b[K', '\\x1b[A'" % number
            self.step(f"['\\router {number}', {inner}]", r1=f"[''.join(['\\router {number}', {inner}])]")
            self.shows(*(f"[{rank}] {bar} {number}{end}" for rank in (0, 1) for bar, end in (("outer", ""), ("inner", f" of {rank}"))))
        self.step("['\\n\\r\\x1b[K\\x1b[A', '\\router done\\n', 'after\\n']")
        self.assertEqual(self.finish(), 0)
        self.assertEqual(sorted(self.terminal.text()), [f"[{rank}] {line}" for rank in (0, 1) for line in ("after", "outer done")])

    def test_a_finished_bar_on_standard_error_stands_above_the_line_that_follows_it(self):
        # As a training's epoch: its bar's last state, its line on standard output, the next epoch's bar.
        self.begin(60)
        above = []
        for number in range(20):
            bar = lambda text: f"lambda: str(os.write(2, b'\\r{text}\\x1b[K'))[:0]"
            close = "lambda: str(os.write(2, b'\\n'))[:0]"
            line = f"lambda: 'epoch {number}\\n'"
            self.step("[]", r0=f"(write() for write in ({bar(f'bar {number} 99%')}, {bar(f'bar {number} 100%')}, {close}, {line}, {bar('next')}))")
            above += [f"[0] bar {number} 100%", f"[0] epoch {number}"]
            self.shows(*above, "[0] next")
        self.assertEqual(self.finish(), 0)

    def test_a_program_whose_cursor_stays_below_its_rows_keeps_them(self):
        self.begin(60, rows=12)
        frame = "'\\r\\x1b[2K\\x1b[1A\\x1b[2K' * 2 + 'a %d\\n' % n + 'b %d\\n' % n + 'c %d' % n"
        for number in range(4):
            self.step("[(lambda n: %s)(%d)]" % (frame, number), r1="['\\r']")
            self.shows(*(f"[0] {row} {number}" for row in "abc"))
        self.assertEqual(self.finish(), 0)
        self.shows("[0] a 3", "[0] b 3", "[0] c 3")

    def test_sequences_of_a_rank_do_not_leave_its_rows(self):
        self.begin(60)
        self.step("['first\\n', '\\rbar']", r1="['\\rbar']")
        self.shows("[0] first", "[0] bar", "[1] bar")
        hostile = ("\\x1b[99A\\x1b[2J", "\\x1b[H", "\\x1b[5;5H\\x1b[1J", "\\x1bc", "\\x1b7\\x1b8\\x1bM", "\\x1b[?1049h\\x1b[?25l", "\\x1b]0;title\\x07",
                   "\\x1b[3S\\x1b[2L\\x1b[r", "\\b\\b\\b\\b\\x1b[99D\\x07\\x0b\\x0c", "\\x1bP$q\\x1b\\\\")
        above = ["[0] first"]
        for number, sequence in enumerate(hostile):
            self.step("[]", r0=f"['{sequence}\\rnow {number}\\x1b[K']")
            self.shows(*above, f"[0] now {number}", "[1] bar")
            # Finished at once, too.
            self.step("[]", r1=f"['\\x1b[K\\r{sequence}\\r\\x1b[Kline {number}\\n\\rbar']")
            above.append(f"[1] line {number}")
            self.shows(*above, f"[0] now {number}", "[1] bar")
        self.assertEqual(self.finish(), 0)

    def test_wide_characters_are_two_columns(self):
        self.begin(20)
        self.step("['\\r' + '数据' * 8, '\\rab']", r1="['\\r' + 'x' + '数据' * 8]")
        self.shows("[0] ab" + "据数据数据数据", "[1] x" + "数据数据数据数")
        self.assertEqual(self.finish(), 0)

    def test_more_rows_than_the_terminal_has(self):
        self.begin(40, ranks=8, rows=5)
        self.step(BAR)
        self.shows(*(self.bar(rank, 40) for rank in range(3)), "... and 5 more rows")
        self.assertEqual(self.finish(), 0)
        self.assertEqual(sorted(self.terminal.text()), [self.bar(rank, 40) for rank in range(8)])

    def test_the_report_on_a_failure_stands_below_what_was_shown(self):
        self.begin(80)
        self.step(BAR)
        self.shows(self.bar(0, 80), self.bar(1, 80))
        self.write("step.1.1", "[os._exit(7)]")
        self.assertEqual(self.job.process.wait(20), 7)
        wait_until(lambda: len(self.terminal.text()) > 2, "the report on the terminal")
        text = self.terminal.text()
        self.assertEqual(sorted(text[:2]), [self.bar(0, 80), self.bar(1, 80)])
        self.assertEqual(text[2], "ddprun: rank 1 failed first: it exited with status 7")
        self.assertEqual(sum("bar" in row for row in text), 2, text)

    def test_a_rank_that_ends_leaves_its_row_above_the_others(self):
        self.begin(80)
        self.step(BAR)
        self.write("step.1.0", "['' for _ in [open(folder + '/pid', 'w').write(str(os.getpid())), sys.exit()]]")
        wait_until(lambda: os.path.exists(self.path("pid")) and self.read("pid"), "rank 0's number")
        wait_until(lambda: not is_running(self.read("pid")), "the end of rank 0")
        self.shows(self.bar(0, 80), self.bar(1, 80))
        self.write("step.1.1", "['\\rstill here\\x1b[K']")
        self.shows(self.bar(0, 80), "[1] still here")
        self.write("step.2.1", END)
        self.assertEqual(self.job.process.wait(20), 0)
        self.shows(self.bar(0, 80), "[1] still here")

    def test_suspended_and_continued(self):
        self.begin(80)
        self.step(BAR)
        self.shows(self.bar(0, 80), self.bar(1, 80))
        os.write(self.terminal.master, b"\x1a")
        wait_until(lambda: process_state(self.job.process.pid) == "T", "ddprun to be suspended")
        self.terminal.write(b"\n[1]+  Stopped\n$ fg\n")  # as the shell does
        self.job.signal(signal.SIGCONT)
        self.step("['\\rlater\\x1b[K']")
        self.shows(self.bar(0, 80), self.bar(1, 80), "", "[1]+  Stopped", "$ fg", "[0] later", "[1] later")
        self.assertEqual(self.finish(), 0)

    def test_in_the_background_there_are_lines_but_no_rows(self):
        # The shell: it starts ddprun in the background, and brings it to the foreground when it is told to.
        shell_program = self.write("shell.py", """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: os.setpgid(0, 0))
while not os.path.exists(os.environ["DDPRUN_TEST_FOLDER"] + "/fg"):
    time.sleep(0.01)
os.tcsetpgrp(0, job.pid)
status = job.wait()
os.tcsetpgrp(0, os.getpgrp())
sys.exit(status)
""")
        self.begin(80, run_by=(sys.executable, shell_program))
        line = f"['\\r\\x1b[Kline\\n', *{BAR}]"
        self.step("[]", r0=line)
        self.shows("[0] line")
        self.step("[]", r1=line)
        self.shows("[0] line", "[1] line")
        self.write("fg", "")
        wait_until(lambda: self.step(BAR) or len(self.terminal.text()) > 2, "rows")
        self.shows("[0] line", "[1] line", self.bar(0, 80), self.bar(1, 80))
        self.assertEqual(self.finish(), 0)

    def test_plain_lines_pass_as_they_are(self):
        self.begin(80)
        self.step("['a\\tb \\x1b[31mred\\x1b[0m\\r\\n', 'no end']", r1="[]")
        self.step("[]", r1="['mine\\n']")
        # A ddprun that gets no time reads to rank 0's end before it sees rank 1's line.
        wait_until(lambda: "[1] mine" in self.terminal.text(), "rank 1's line", patience=20)
        self.assertEqual(self.finish(), 0)
        self.assertEqual(self.terminal.text()[-1], "[0] no end")

    def test_a_dumb_terminal_gets_lines(self):
        self.begin(80, environment={"TERM": "dumb"})
        self.step("['10%\\r20%\\n']")
        self.assertEqual(self.finish(), 0)
        self.assertEqual(sorted(self.terminal.text()), ["[0] 20%", "[1] 20%"])


if __name__ == "__main__":
    main()
