"""ddprun's exit status and its report."""

import json
import os
import re
import signal
import subprocess
import time

from harness import DDPRUN, LauncherTest, is_running, main, shell, wait_until


class ExitStatus(LauncherTest):
    def test_all_ranks_succeed(self):
        status, _, err = self.run_job("-n", "3", "/bin/true", environment={"OMP_NUM_THREADS": "1"})
        self.assertEqual((status, err), (0, ""))

    def test_the_failing_ranks_status_is_passed_on(self):
        for code in (1, 2, 3, 7, 42, 77, 85, 99, 100, 124, 125, 126, 127, 128, 130, 137, 200, 254, 255):
            status, _, err = self.run_job("-n", "2", *shell(f'[ "$RANK" = 0 ] || exit {code}'))
            self.assertEqual(status, code, err)
            self.assertIn(f"rank 1 failed first: it exited with status {code}", err)

    def test_a_single_ranks_status_is_passed_on(self):
        self.assertEqual(self.run_job("/bin/sh", "-c", "exit 9")[0], 9)

    def test_death_by_a_signal_is_128_plus_its_number(self):
        for number in (signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT, signal.SIGTERM, signal.SIGPIPE):
            status, _, err = self.run_job("-n", "2", *shell(f'[ "$RANK" = 0 ] || kill -{int(number)} $$'))
            self.assertEqual(status, 128 + number, err)
            self.assertIn(f"was killed by {number.name}", err)

    def test_limits_of_the_ranks_are_named_as_the_cause(self):
        spin = "sh", "-c", "while :; do :; done"
        for limit, program, status, text in (("-t 1", spin, 137, "limit of 1 s on CPU time (ulimit -t)"),
                                             ("-S -t 1", spin, 152, "limit of 1 s on CPU time (ulimit -t)"),
                                             ("-f 8", ("python3", "-c", "import signal as s; s.signal(s.SIGXFSZ, s.SIG_DFL); open('f', 'wb').write(b'x' * 99999)"),
                                              153, "on the size of files (ulimit -f)")):
            with self.subTest(limit=limit):
                done = subprocess.run(["sh", "-c", f'cd "$1" && shift && ulimit {limit} && exec "$@"', "sh", self.folder, DDPRUN, "-n", "1", *program],
                                      capture_output=True, text=True, timeout=120, check=False)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn("  hint:   it reached the ", done.stderr)
                self.assertIn(text, done.stderr)
                self.assertNotIn("out of memory", done.stderr)

    def test_a_missing_library_is_said_with_what_to_do(self):
        status, _, err = self.run_job("-n", "2", "sh", "-c", "echo 'a: error while loading shared libraries: libx.so' >&2; exit 127")
        self.assertEqual(status, 127)
        self.assertRegex(err, "  hint: .*LD_LIBRARY_PATH")

    def test_an_option_of_ddprun_behind_the_program_is_said(self):
        program = self.write("train.py", "import argparse\nargparse.ArgumentParser().parse_args()\n")
        status, _, err = self.run_job("-n", "2", program, "--nnodes", "1")
        self.assertEqual(status, 2)
        self.assertIn("hint:   --nnodes came after the program", err)

    def test_the_others_are_stopped_and_named(self):
        status, _, err = self.run_job("-n", "4", *shell('[ "$RANK" = 2 ] && exit 3\nexec sleep 100'))
        self.assertEqual(status, 3)
        self.assertIn("ranks 0, 1, 3 were stopped by ddprun", err)
        self.assertLessEqual(len(err.splitlines()), 10)

    def test_the_first_to_fail_is_blamed_and_not_the_lowest_rank(self):
        # Rank 3 fails; the others fail as a consequence, as soon as they can see it.
        script = """
            echo $$ > tmp.$RANK; mv tmp.$RANK pid.$RANK
            if [ "$RANK" = 3 ]; then
                while [ ! -e ready.0 ] || [ ! -e ready.1 ] || [ ! -e ready.2 ]; do :; done
                exit 33
            fi
            while [ ! -e pid.3 ]; do :; done
            trap '' TERM
            : > ready.$RANK
            while kill -0 "$(cat pid.3)" 2>/dev/null; do :; done
            exit 1"""
        for _ in range(10):
            status, _, err = self.run_job("-n", "4", *shell(script))
            self.assertEqual(status, 33, err)
            self.assertIn("rank 3 failed first", err)
            for name in os.listdir(self.folder):
                os.remove(self.path(name))

    def test_ranks_that_fail_at_once_in_any_order_give_the_first_ones_status(self):
        # Every rank fails right away with its own status; whichever is named must be the one whose status is returned.
        for _ in range(10):
            status, _, err = self.run_job("-n", "8", "/bin/sh", "-c", "exit $((RANK + 10))")
            named = int(re.search(r"rank (\d+) failed first", err).group(1))
            self.assertEqual(status, named + 10)

    def test_the_error_files_message_is_shown(self):
        record = json.dumps({"message": {"message": "ValueError: no such shard 17",
                                         "extraInfo": {"py_callstack": "...", "timestamp": str(int(time.time()))}}})
        self.write("record.json", record)
        status, _, err = self.run_job("-n", "2", *shell('[ "$RANK" = 1 ] || exec sleep 100\n'
                                                        'cp record.json "$TORCHELASTIC_ERROR_FILE"; exit 4'))
        self.assertEqual(status, 4)
        self.assertIn("ValueError: no such shard 17", err)

    def test_a_malformed_error_file_does_not_hide_the_failure(self):
        for text in ("", "{", "[]", "null", '{"message": 5}', "\\377\\376", '{"message": {"message": {}}}'):
            status, _, err = self.run_job("-n", "2", *shell(f"printf '{text}' > \"$TORCHELASTIC_ERROR_FILE\"; exit 6"))
            self.assertEqual(status, 6, err)
            self.assertIn("failed first: it exited with status 6", err)

    def test_an_earlier_error_file_outranks_an_earlier_exit(self):
        # Rank 1 writes down its error, then takes its time to end; rank 0 ends first because of it.
        script = """
            if [ "$RANK" = 1 ]; then
                trap '' TERM
                now=$(date +%s.%N)
                printf '{"message": "the culprit", "timestamp": %s}' "$now" > "$TORCHELASTIC_ERROR_FILE"
                : > written
                while [ ! -e ended ]; do :; done
                exit 51
            fi
            echo $$ > tmp; mv tmp pid
            while [ ! -e written ]; do :; done
            exit 50"""
        job = self.start("-n", "2", *shell(script))
        self.wait_for_files("pid", "written")
        wait_until(lambda: not is_running(int(self.read("pid"))), "rank 0's end")
        self.write("ended", "")
        status, _, err = job.finish()
        self.assertEqual(status, 51, err)
        self.assertIn("rank 1 failed first", err)
        self.assertIn("rank 0 exited with status 50", err)

    def test_error_messages_cannot_control_the_terminal(self):
        script = r"""printf '{"message": "a\\u001b[2Jb"}' > "$TORCHELASTIC_ERROR_FILE"; exit 5"""
        status, _, err = self.run_job(*shell(script))
        self.assertEqual(status, 5)
        self.assertNotIn("\x1b", err)
        self.assertIn("[2Jb", err)


if __name__ == "__main__":
    main()
