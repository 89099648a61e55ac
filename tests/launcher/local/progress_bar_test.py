"""The library's own progress bar under ddprun: rows at a terminal, lines in a pipe."""

import os
import re

from harness import LauncherTest, main
from live_rows_test import QUIET, Terminal

BAR = os.environ["BAR"]


class ProgressBar(LauncherTest):
    def test_at_a_terminal_each_bar_has_a_row_that_fits(self):
        for columns in (40, 80, 200):
            for ranks in (1, 2, 4):
                with self.subTest(columns=columns, ranks=ranks):
                    terminal = Terminal(columns)
                    all_there = self.path(f"all.{columns}.{ranks}")
                    job = self.start("-n", str(ranks), "--prefix", BAR, "25", all_there, stdin=terminal.slave, stdout=terminal.slave,
                                     stderr=terminal.slave, preexec_fn=terminal.own, environment=QUIET)
                    os.close(terminal.slave)
                    seen = set()
                    while job.process.poll() is None:
                        rows = tuple(terminal.text())
                        seen.add(rows)
                        if sum("steps:" in row for row in rows) == ranks:
                            self.write(os.path.basename(all_there), "")
                    terminal.reader.join(20)
                    os.close(terminal.master)
                    self.assertEqual(job.process.returncode, 0)
                    texts = [f"[{rank}] {text}" for rank in range(ranks) for text in ("epochs:", "steps:", "at a terminal", "half of it")]
                    # Never two states of one bar, and never a bar that is wrapped.
                    for rows in seen:
                        for rank in range(ranks):
                            for name in ("epochs", "steps"):
                                self.assertLessEqual(sum(row.startswith(f"[{rank}] {name}:") for row in rows), 1, rows)
                        for row in rows:  # the last one may not be complete yet
                            self.assertTrue(any(text.startswith(row) or row.startswith(text) for text in texts), rows)
                    self.assertTrue(any(sum("steps:" in row for row in rows) == ranks for rows in seen), seen)
                    expected = [f"[{rank}] {line}" for rank in range(ranks) for line in ("at a terminal", "epochs: 100%", "half of it")]
                    self.assertEqual(sorted(re.sub("%.*", "%", row) for row in terminal.text()), expected)

    def test_in_a_pipe_it_writes_lines(self):
        status, out, err = self.run_job("-n", "2", BAR, "30", environment=QUIET)
        self.assertEqual((status, out), (0, ""), err)
        self.assertNotRegex(err, "[\r\x1b]")
        lines = err.splitlines()
        for rank in (0, 1):
            own = [line for line in lines if line.startswith(f"[{rank}] ")]
            self.assertEqual(own[0], f"[{rank}] no terminal")
            self.assertTrue(any("steps: " in line for line in own), err)
            self.assertRegex(own[-1], r"epochs: 100%")


if __name__ == "__main__":
    main()
