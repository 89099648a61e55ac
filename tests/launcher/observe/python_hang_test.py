"""Ranks in Python that hang, with `import ddprun` and without: the one that causes it is named, with its line."""

import os
import re
import sys
import unittest

from harness import LauncherTest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(os.path.dirname(HERE), "python_ranks.py")
PACKAGE = os.environ["PYTHON_PACKAGE"]
# Far above what a step takes, and the ranks are not all equally fast to begin.
TIMEOUT = os.environ.get("HANG_TIMEOUT", "4")
CULPRIT = 1
# The function in which the rank is.
PLACES = {"sleep": "sleep", "loop": "loop", "lock": "wait_for_lock", "input": "wait_for_input", "file": "read_blocked_file",
          "file_lock": "wait_for_file_lock", "stop": "stop", "worker": "read_sample"}  # fmt: skip
QUICK = ("sleep", "loop", "lock", "worker", "other_collective")
ALL = (*PLACES, "other_collective", "too_few")


def faults():
    return ALL if os.environ.get("ALL_FAULTS") else QUICK


class PythonHangs(LauncherTest):
    def report(self, fault, *arguments):
        environment = {"PYTHONPATH": PACKAGE, "DDPRUN_TEST_FOLDER": self.folder}
        status, _, err = self.run_job("-n", "3", "--hang_timeout", TIMEOUT, "--on_hang", "stop", "--grace", "2", sys.executable, PROGRAM, fault,
                                      str(CULPRIT), *arguments, environment=environment, patience=300)
        for name in ("fifo", "lock"):
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))
        if fault == "end":
            return err
        self.assertEqual(status, 124, err)
        self.assertEqual(err.count("no rank has made progress for"), 1, err)
        return err

    def check_line(self, fault, report):
        stack = report[report.index(f"stack of rank {CULPRIT}:"):].partition("stack of rank 0:")[0]
        self.assertRegex(stack, rf"#\d+ {PLACES[fault]} \({re.escape(PROGRAM)}:\d+\)", report)

    def test_without_import_the_rank_is_named_with_its_line(self):
        for fault in faults():
            with self.subTest(fault=fault):
                report = self.report(fault)
                if fault in ("other_collective", "too_few"):
                    call, line = (("all_gather", "other_collective") if fault == "other_collective" else ("barrier", "main"))
                    self.assertRegex(report, rf"ddprun: rank 1 is in {call} at {line} \(.*:\d+\); ranks 0 and 2 are in all_reduce at main ")
                    continue
                if fault == "stop":
                    self.assertRegex(report, r"ddprun: rank 1 is stopped by a signal; it is at stop \(")
                else:
                    self.assertRegex(report, r"ddprun: rank 1 is (sleeping|running)[^;]*; ranks 0 and 2 are in (all_reduce|backward) at main .*wait for it")
                self.check_line(fault, report)

    def test_with_import_the_rank_is_named_with_its_phase_and_its_line(self):
        for fault in faults():
            with self.subTest(fault=fault):
                report = self.report(fault, "import")
                self.assertNotIn("not seen", report)
                if fault == "other_collective":
                    self.assertRegex(report, r"different collectives as number \d+; rank 1: all_gather of Float \[8\]; ranks 0 and 2: all_reduce \(sum\) of Float \[2\]")
                    continue
                if fault == "too_few":  # the others have not used the other group
                    self.assertRegex(report, r"rank 1 has not entered all_reduce .* with barrier #\d+ in group 1 under way")
                    continue
                # All steps before the fault have ended, and of the fault's step the optimizer's, but for the loader.
                steps = 3 if fault == "worker" else 4
                self.assertRegex(report, rf"ddprun: rank 1 has not entered all_reduce #\d+( of 8 bytes)? \(step {steps}\);.* wait for it")
                where = "data" if fault == "worker" else "between phases"
                self.assertRegex(report, rf"it has been (in )?{where} for")
                self.check_line(fault, report)

    def test_a_rank_that_has_ended_is_named(self):
        for arguments in ((), ("import",)):
            with self.subTest(arguments=arguments):
                self.assertIn("rank 1 ended with status 0 while other ranks still needed it", self.report("end", *arguments))

    def test_a_rank_that_never_joins_is_named(self):
        script = self.write("train.py", "import os, sys, time\nsys.argv[1:] and __import__('ddprun')\nimport torch.distributed as dist\n"
                            "if os.environ['RANK'] == '1':\n    time.sleep(3600)\ndist.init_process_group('gloo')\n")
        for arguments in ((), ("import",)):
            with self.subTest(arguments=arguments):
                status, _, err = self.run_job("-n", "3", "--hang_timeout", TIMEOUT, "--on_hang", "stop", "--grace", "2", sys.executable, script,
                                              *arguments, environment={"PYTHONPATH": PACKAGE}, patience=300)
                self.assertEqual(status, 124, err)
                self.assertRegex(err, rf"ddprun: rank 1 .*at <module> \({re.escape(script)}:5\)", err)

    def test_ranks_that_all_compute_are_not_reported(self):
        script = self.write("train.py", "import sys, time\nsys.argv[1:] and __import__('ddprun')\nend = time.monotonic() + 6\n"
                            "while time.monotonic() < end: pass\n")
        for arguments in ((), ("import",)):
            status, _, err = self.run_job("-n", "2", "--hang_timeout", "1", "--on_hang", "stop", sys.executable, script, *arguments,
                                          environment={"PYTHONPATH": PACKAGE})
            self.assertEqual(status, 0, err)
            self.assertNotIn("progress", err)

    def test_a_rank_that_works_vouches_for_those_that_wait(self):
        # It writes, or touches new memory, or its thread waits for others.
        works = {"writes": "file.write('x' * 5000); file.flush()", "allocates": "memory = mmap.mmap(-1, 4096); memory[0] = 1; memory.close()", "waits": "time.sleep(0.0005); sum(range(3000))"}
        for name, work in works.items():
            with self.subTest(work=name):
                script = self.write("train.py", "import mmap, os, time\nif os.environ['RANK'] == '1': time.sleep(5); raise SystemExit\n"
                                    f"file = open(os.devnull, 'w')\nend = time.monotonic() + 6\nwhile time.monotonic() < end: {work}\n")
                status, _, err = self.run_job("-n", "2", "--hang_timeout", "1.5", "--on_hang", "stop", sys.executable, script)
                self.assertEqual(status, 0, err)
                self.assertNotIn("no rank has made progress", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
