"""--nproc_per_node=gpu and auto, with a stand-in for the driver's library."""

import os

from harness import LauncherTest, main

SHOW = ("--no-prefix", "sh", "-c", "echo $WORLD_SIZE")


class GpuCount(LauncherTest):
    def count(self, kind, gpus, **environment):
        library = {"LD_LIBRARY_PATH": os.environ["FAKE_NVML"], "FAKE_GPUS": str(gpus), **environment}
        status, out, err = self.run_job("--nproc-per-node", kind, *SHOW, environment=library)
        self.assertEqual(status, 0, err)
        lines = out.split()
        self.assertEqual(lines, [str(len(lines))] * len(lines))
        return len(lines)

    def test_one_rank_per_visible_gpu(self):
        self.assertEqual(self.count("gpu", 3), 3)
        self.assertEqual(self.count("auto", 3), 3)
        self.assertEqual(self.count("gpu", 8, CUDA_VISIBLE_DEVICES="1,GPU-0005,7"), 3)

    def test_auto_takes_the_cpus_when_there_is_no_gpu(self):
        self.assertEqual(self.count("auto", 0), len(os.sched_getaffinity(0)))
        self.assertEqual(self.count("auto", 2, CUDA_VISIBLE_DEVICES=""), len(os.sched_getaffinity(0)))

    def test_one_rank_beside_idle_gpus_is_remarked(self):
        fake = {"LD_LIBRARY_PATH": os.environ["FAKE_NVML"], "FAKE_GPUS": "4"}
        status, out, err = self.run_job("echo", "x", environment=fake)
        self.assertEqual((status, out), (0, "x\n"))
        self.assertIn("1 rank is started, but 4 GPUs are visible; --nproc_per_node=gpu starts one on each", err)
        for arguments, environment in ((("-n", "1"), fake), ((), {**fake, "FAKE_GPUS": "1"}),
                                       ((), {**fake, "CUDA_VISIBLE_DEVICES": "2"})):
            self.assertEqual(self.run_job(*arguments, "true", environment=environment), (0, "", ""))

    def test_the_drivers_threads_take_no_rank_s_end_away(self):
        library = {"LD_LIBRARY_PATH": os.environ["FAKE_NVML"], "FAKE_GPUS": "2"}
        for _ in range(8):
            # Long enough for the launcher to be asleep, so that it is woken by nothing but the end.
            self.assertEqual(self.run_job("-n", "gpu", "sleep", "0.3", environment=library)[0], 0)

    def test_a_driver_that_crashes_or_is_silent_is_named(self):
        fake = {"LD_LIBRARY_PATH": os.environ["FAKE_NVML"], "FAKE_GPUS": "2"}
        status, _, err = self.run_job("-n", "gpu", "true", environment={**fake, "FAKE_DRIVER": "crashes"})
        self.assertEqual((status, len(err.splitlines())), (125, 1), err)
        self.assertIn("libnvidia-ml.so.1) was ended by signal 11", err)
        # Who did not ask for GPUs gets his rank, soon.
        for manner in ("crashes", "hangs"):
            self.assertEqual(self.run_job("echo", "x", environment={**fake, "FAKE_DRIVER": manner}), (0, "x\n", ""))

    def test_gpu_without_any_is_one_line(self):
        status, _, err = self.run_job("-n", "gpu", *SHOW, environment={"LD_LIBRARY_PATH": os.environ["FAKE_NVML"],
                                                                       "FAKE_GPUS": "2", "CUDA_VISIBLE_DEVICES": "5"})
        self.assertEqual((status, len(err.splitlines())), (125, 1))
        self.assertIn("none of the 2 GPUs is visible with CUDA_VISIBLE_DEVICES=5", err)


if __name__ == "__main__":
    main()
