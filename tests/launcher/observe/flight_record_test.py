"""The last collectives of each rank in the log folder, as PyTorch's own analyser reads them."""

import glob
import json
import os
import pathlib
import pickle
import re
import subprocess
import unittest

from harness import LauncherTest

PROGRAM = os.environ["WATCHED_PROGRAM"]
TORCH_PYTHON = os.environ.get("TORCH_PYTHON")


def analysers():
    """The build's PyTorch, and of those that scripts/setup has installed beside it the oldest and the newest one."""
    beside = {}
    for file in glob.glob(os.path.join(os.path.dirname(TORCH_PYTHON), "..", "..", "venv*", "lib", "python*", "site-packages", "torch", "version.py")):
        version = re.search(r"__version__ = '(\d+)\.(\d+)", pathlib.Path(file).read_text(encoding="utf-8"))
        python = os.path.join(file.split("/lib/")[0], "bin", "python")
        if version and os.path.exists(python):
            beside[int(version[1]), int(version[2])] = python
    chosen = [beside[version] for version in sorted(beside)]
    return {os.path.realpath(os.path.dirname(python)): python for python in (TORCH_PYTHON, *chosen[:1], *chosen[-1:])}.values()


class FlightRecord(LauncherTest):
    def record(self, *fault, ranks=3):
        """The folder of the analyser's files, and what ddprun printed."""
        status, _, err = self.run_job("-n", str(ranks), "--log_dir", self.path("logs"), "--hang_timeout", "2", "--on_hang",
                                      "stop", "--grace", "5", PROGRAM, self.folder, *fault)
        self.assertEqual(status, 124, err)
        folder = glob.glob(self.path("logs/*/attempt_0/flight_record"))
        self.assertEqual(len(folder), 1, err)
        self.assertIn(folder[0], err)
        return folder[0], err

    def check_analysis(self, folder, *texts):
        if not TORCH_PYTHON:
            self.skipTest("no PyTorch")
        for python in analysers():
            with self.subTest(python=python):
                done = subprocess.run([python, "-m", "torch.distributed.flight_recorder.fr_trace", folder],
                                      capture_output=True, text=True, timeout=300, cwd=self.folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                for text in texts:
                    self.assertIn(text, done.stdout + done.stderr)

    def test_json_and_pickle_say_the_same(self):
        folder, _ = self.record("--fault", "sleep_data", "--rank", "1", "--at", "7")
        for rank in range(3):
            with open(os.path.join(folder, f"rank_{rank}"), "rb") as file:
                dump = pickle.load(file)
            with open(os.path.join(folder, "..", str(rank), "flight_record.json"), encoding="utf-8") as file:
                self.assertEqual(json.load(file), dump)
            self.assertEqual(dump["pg_config"], {"0": {"name": "0", "desc": "default_pg", "ranks": "[0,1,2]"}})
            calls = dump["entries"]
            # Eight reductions and one barrier, behind the fifth step; rank 1 has not come to the eighth.
            self.assertEqual(len(calls), 8 if rank == 1 else 9)
            self.assertEqual([call["collective_seq_id"] for call in calls], list(range(1, len(calls) + 1)))
            self.assertEqual(calls[0]["input_sizes"], [[2500, 2500]])
            self.assertEqual(calls[0]["input_dtypes"], ["Float"])
            self.assertEqual(calls[-1]["state"], "completed" if rank == 1 else "started")

    def test_pytorchs_analyser_finds_the_missing_rank(self):
        folder, _ = self.record("--fault", "sleep_data", "--rank", "1", "--at", "7")
        self.check_analysis(folder, "Not all ranks joining collective", "missing ranks: {1}")

    def test_pytorchs_analyser_finds_another_size(self):
        folder, err = self.record("--fault", "other_size", "--rank", "2", "--at", "7")
        self.assertIn("ranks have called different collectives as number 8", err)
        self.check_analysis(folder, "SIZE_OR_SYNTAX_MISMATCH")

    def test_a_failed_job_is_told_where_its_ranks_differ(self):
        status, _, err = self.run_job("-n", "3", "--log_dir", self.path("logs"), PROGRAM, self.folder, "--fault",
                                      "die_data", "--rank", "2", "--at", "7")
        self.assertEqual(status, 3, err)
        self.assertIn("collectives: ranks 0 and 1 had entered all_reduce #8 of 25.0 MB, and rank 2 had not", err)
        self.assertEqual(len(glob.glob(self.path("logs/*/attempt_0/flight_record/rank_*"))), 3)

    def test_without_a_log_folder_nothing_is_written(self):
        status, _, err = self.run_job("-n", "2", PROGRAM, self.folder, "--fault", "die_data", "--rank", "1", "--at", "3")
        self.assertEqual(status, 3, err)
        self.assertNotIn("flight_record", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
