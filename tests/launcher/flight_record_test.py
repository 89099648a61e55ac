"""The last collectives of each rank in the log folder, as PyTorch's own analyser reads them."""

import glob
import json
import os
import pickle
import subprocess
import unittest

from harness import LauncherTest

PROGRAM = os.environ["WATCHED_PROGRAM"]
TORCH_PYTHON = os.environ.get("TORCH_PYTHON")


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

    def analyse(self, folder):
        if not TORCH_PYTHON:
            self.skipTest("no PyTorch")
        done = subprocess.run([TORCH_PYTHON, "-m", "torch.distributed.flight_recorder.fr_trace", folder],
                              capture_output=True, text=True, timeout=300, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout + done.stderr

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
        text = self.analyse(folder)
        self.assertIn("Not all ranks joining collective", text)
        self.assertIn("missing ranks: {1}", text)

    def test_pytorchs_analyser_finds_another_size(self):
        folder, err = self.record("--fault", "other_size", "--rank", "2", "--at", "7")
        self.assertIn("ranks have called different collectives as number 8", err)
        self.assertIn("SIZE_OR_SYNTAX_MISMATCH", self.analyse(folder))

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
