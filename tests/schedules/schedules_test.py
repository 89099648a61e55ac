"""Every value of every schedule equals Python's over 200 steps: schedules_test.py PROGRAM Golden|Live.

Golden compares with the lists in expected.json, Live with those that the installed torch gives now.
"""

import json
import pathlib
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)


class Lists:
    def test_every_schedule_gives_pythons_values(self):
        actual = json.loads(subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout)
        expected = self.expected()
        self.assertEqual(actual.keys(), expected.keys())
        for name, lists in expected.items():
            for kind, groups in lists.items():
                for i, values in enumerate(groups):
                    with self.subTest(name=name, kind=kind, group=i):
                        self.assertEqual(len(actual[name][kind][i]), len(values))
                        for step, (got, wanted) in enumerate(zip(actual[name][kind][i], values)):
                            if abs(got - wanted) > 1e-12:
                                self.fail(f"step {step}: {got!r} instead of {wanted!r}")

    def test_the_schedules_move(self):
        for name, lists in self.expected().items():
            self.assertGreater(len(set(lists["lr"][0])), 1, name)


class Golden(Lists, unittest.TestCase):
    def expected(self):
        return json.loads(pathlib.Path(__file__).with_name("expected.json").read_text())


class Live(Lists, unittest.TestCase):
    def expected(self):
        from python_lists import lists

        return lists(PROGRAM)


if __name__ == "__main__":
    unittest.main()
