"""What torchrun and mpirun do badly, row by row as it was measured with them, and where ddprun's behaviour is tested.

    a rank exits 1 or 7, crashes                    exit_status_test: status passed on, death by a signal
    ... and the others ignore TERM                  leftovers_test: after a failure when all ignore TERM
    TERM, INT to the launcher                       signals_test: reach every rank, 128 plus the number
    ... and the workers ignore it                   signals_test: killed after the grace time
    two INT half a second apart, ignored            signals_test: a second interrupt kills at once
    a crashed rank had a child; a grandchild        leftovers_test: after a crash, after TERM, when all ignore it
      ignores TERM or has called setsid
    kill -9 of the launcher                         leftovers_test: of either of its processes, and of both
    a node fails while the others run               nodes_test: stops all nodes with its status, both ways round
    root cause race                                 below; exit_status_test
    --tee of invalid UTF-8, partial lines, a last   output_test, log_files_test: every byte
      line without newline
    many ranks, few descriptors                     below; log_files_test: refused before the start
    full log disk, read-only log folder             log_files_test
    program missing or not executable, port taken   missing_program_test: one line each
    output into `head -1`                           below; output_test: a reader that goes away
    master's name unknown                           below; nodes_test: signals are answered meanwhile
    standard input                                  standard_input_test, terminal_test
    restart budget of a job that always crashes     below; job_options_test
    hangup under nohup                              signals_test
"""

import os
import re
import resource
import subprocess
import time

from harness import DDPRUN, LauncherTest, main, shell


class Conformance(LauncherTest):
    def test_the_root_cause_is_named_in_every_race(self):
        script = """
            trap '' TERM
            case $RANK in
                3) exit 3 ;;
                0) sleep 0.03; exit 1 ;;
                *) exec sleep 1000 ;;
            esac"""
        for _ in range(9):
            status, _, err = self.run_job("-n", "4", "--grace", "0.2", *shell(script))
            self.assertEqual(status, 3, err)
            self.assertIn("rank 3 failed first: it exited with status 3", err)

    def test_a_rank_that_takes_long_to_die_is_still_the_cause(self):
        """It writes down its failure, then tears down while the others see the connection close and fail."""
        script = """
            if [ $RANK = 1 ]; then
                printf '{"message": "out of data", "timestamp": %s}' $(date +%s.%N) > "$TORCHELASTIC_ERROR_FILE"
                : > failing
                trap '' TERM
                while [ ! -e seen.0 ]; do sleep 0.01; done
                exit 7
            fi
            while [ ! -e failing ]; do sleep 0.01; done
            : > seen.$RANK
            printf '{"message": "Connection closed by peer", "timestamp": %s}' $(date +%s.%N) > "$TORCHELASTIC_ERROR_FILE"
            exit 1"""
        status, _, err = self.run_job("-n", "2", *shell(script))
        self.assertEqual(status, 7, err)
        self.assertIn("rank 1 failed first", err)
        self.assertIn("out of data", err)

    def test_a_hundred_ranks_with_few_descriptors_lose_nothing_or_are_refused(self):
        for hard in (256, 4096):
            folder = self.path(f"logs.{hard}")
            status, out, err = self.run_job(
                "-n", "100", "--tee", "3", "--log-dir", folder, "sh", "-c", "echo out $RANK; echo err $RANK >&2", patience=60,
                preexec_fn=lambda hard=hard: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)),
            )  # fmt: skip
            if hard == 256:
                self.assertEqual((status, out), (125, ""), err)
                self.assertIn("ulimit -Hn", err)
                self.assertLessEqual(len(err.splitlines()), 3)
                continue
            self.assertEqual(status, 0, err)
            self.assertEqual(sorted(out.splitlines()), sorted(f"[{rank}] out {rank}" for rank in range(100)))
            logs = sorted(os.path.join(root, name) for root, _, names in os.walk(folder) for name in names if name.endswith(".log"))
            self.assertEqual(len(logs), 200)
            self.assertTrue(all(os.path.getsize(log) > 0 for log in logs))

    def test_a_pipe_that_closes_after_one_line_ends_the_job_quietly(self):
        job = self.start("-n", "4", "sh", "-c", "while echo line; do :; done")
        head = subprocess.run(["head", "-1"], stdin=job.process.stdout, stdout=subprocess.PIPE, timeout=20)
        job.process.stdout.close()
        job.process.stdout = None
        self.assertRegex(head.stdout, rb"\A\[[0-3]\] line\n\Z")
        status, _, err = job.finish()
        self.assertNotEqual(status, 0)
        self.assertLessEqual(len(err.splitlines()), 12, err)
        self.assert_nothing_left(job)

    def test_an_unknown_master_is_named_within_the_time_allowed(self):
        begin = time.monotonic()
        status, _, err = self.run_job("--nnodes", "2", "--node-rank", "1", "--master-addr", "no-such-host.invalid", "--join-timeout", "1",
                                      "true", patience=60)
        self.assertEqual(status, 124, err)
        self.assertIn("no-such-host.invalid", err)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertLessEqual(len(err.splitlines()), 3, err)

    def test_a_job_that_always_crashes_uses_its_budget_and_says_so(self):
        status, out, err = self.run_job("-n", "2", "--max-restarts", "3", *shell('echo "attempt $TORCHELASTIC_RESTART_COUNT"; exit $((RANK * 9))'))
        self.assertEqual(status, 9, err)
        self.assertEqual(sorted(set(re.findall(r"attempt \d", out))), [f"attempt {i}" for i in range(4)])
        self.assertIn("3 of 3", err)

    def test_a_thousand_ranks_start_and_end(self):
        status, _, err = self.run_job("-n", "1000", "/bin/true", environment={"OMP_NUM_THREADS": "1"}, patience=120)
        self.assertEqual((status, err), (0, ""))

    def test_the_terminals_end_does_not_end_a_job_under_nohup(self):
        job = subprocess.run(["nohup", DDPRUN, "-n", "2", "sh", "-c", 'kill -HUP $PPID; echo survived'], cwd=self.folder,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual((job.returncode, sorted(job.stdout.split())), (0, sorted(b"[0] survived [1] survived".split())), job.stderr)


if __name__ == "__main__":
    main()
