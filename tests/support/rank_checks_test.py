"""Assertions of threads reach Catch2's report, and none is lost: rank_checks_test.py PROGRAM."""
import signal
import subprocess
import sys
import unittest

program = sys.argv.pop()


def run(*arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)


class RankChecks(unittest.TestCase):
    def test_what_holds_passes_and_is_counted(self):
        result = run("what holds in threads is counted")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("4017 assertions in 1 test case", result.stdout)

    def test_failures_are_told_with_place_expression_values_and_notes(self):
        result = run("failures of threads are told with their values")
        self.assertNotEqual(result.returncode, 0)
        for text in ("rank_checks_program.cpp:", "RANK_CHECK( i + 10 == 10 )", "11 == 10", "thread 1",
                     '"1" contains: "0"', "RANK_CHECK_FALSE( i == 1 )"):
            self.assertIn(text, result.stdout)
        self.assertNotIn("thread 0", result.stdout)
        self.assertIn("4 passed | 3 failed", result.stdout)

    def test_a_requirement_ends_its_thread_alone(self):
        result = run("a requirement ends its thread alone")
        self.assertIn("RANK_REQUIRE( i == 0 )", result.stdout)
        self.assertIn("3 passed | 1 failed", result.stdout)

    def test_on_the_main_thread_failures_are_told_at_once(self):
        result = run("on the main thread failures are told at once")
        self.assertIn("2 == 3", result.stdout)
        self.assertIn("4 == 5", result.stdout)
        self.assertNotIn("not reached", result.stdout)

    def test_what_nobody_reports_fails_the_program(self):
        result = run("what nobody reports fails the program")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("RANK_CHECK( i == 7 ): 0 == 7", result.stderr)

    def test_the_frameworks_own_assertions_end_the_program_in_a_thread(self):
        result = run("Catch2's own assertions end the program in a thread")
        self.assertEqual(result.returncode, -signal.SIGABRT)
        self.assertIn("CHECK is not for threads: use RANK_CHECK", result.stderr)


if __name__ == "__main__":
    unittest.main()
