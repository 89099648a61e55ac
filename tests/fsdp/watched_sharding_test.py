"""A fully sharded model in ddprun's reports: the unit whose all-gather a rank waits in."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launcher"))
from harness import LauncherTest  # noqa: E402

PROGRAM = os.environ["PROGRAM"]


class WatchedSharding(LauncherTest):
    def test_the_hang_report_names_the_unit(self):
        status, _, err = self.run_job("-n", "2", "--hang_timeout", "4", "--on_hang", "stop", "--grace", "5", PROGRAM, patience=120)
        self.assertEqual(status, 124, err)
        self.assertRegex(err, r"rank 1 has not entered all_gather #\d+ \(parameters of unit second\).* \(step 2\); it has been in forward for ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
