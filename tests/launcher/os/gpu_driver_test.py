"""On a machine with a GPU: the launcher and the real driver."""

import subprocess
import unittest

from harness import LauncherTest, main


class GpuDriver(LauncherTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise unittest.SkipTest(f"no GPU: {error}") from None
        cls.uuids = [line.split("UUID: ")[1].rstrip(")") for line in listing.splitlines() if line.startswith("GPU ")]

    def test_one_rank_per_gpu_and_every_job_ends(self):
        for _ in range(10):
            status, out, err = self.run_job("-n", "gpu", "--no-prefix", "sh", "-c", "sleep 0.2; echo $WORLD_SIZE")
            self.assertEqual((status, out), (0, f"{len(self.uuids)}\n" * len(self.uuids)), err)

    def test_a_job_without_a_number_of_ranks_ends(self):
        for _ in range(10):
            self.assertEqual(self.run_job("sleep", "0.2")[0], 0)

    def test_a_uuid_or_index_can_be_chosen_and_none_is_one_line(self):
        for shown in ("0", self.uuids[0]):
            status, out, err = self.run_job("-n", "gpu", "echo", "x", environment={"CUDA_VISIBLE_DEVICES": shown})
            self.assertEqual((status, out), (0, "x\n"), err)
        status, _, err = self.run_job("-n", "gpu", "true", environment={"CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual((status, len(err.splitlines())), (125, 1), err)

    def test_the_report_of_a_failed_rank_names_its_gpu(self):
        status, _, err = self.run_job("-n", "gpu", "sh", "-c", "exit 3")
        self.assertEqual(status, 3)
        self.assertRegex(err, rf"where: .*GPU 0 \(.*, {self.uuids[0]}\)")

    def test_check_names_the_driver_and_every_gpu(self):
        status, out, err = self.run_job("--check")
        self.assertEqual(status, 0, err)
        self.assertRegex(out, rf"GPUs: {len(self.uuids)}, driver \d+\.\d+")
        for uuid in self.uuids:
            self.assertIn(uuid, out)


if __name__ == "__main__":
    main()
