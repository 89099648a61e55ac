"""Which GPUs and CPUs each rank gets."""

import os
import unittest

from harness import LauncherTest, main, shell

CPUS = sorted(os.sched_getaffinity(0))
SHOW = shell('echo "$LOCAL_RANK ${CUDA_VISIBLE_DEVICES-unset}" > gpus.$RANK')


class Gpus(LauncherTest):
    def run_with_gpus(self, count, *arguments, **environment):
        library = {"LD_LIBRARY_PATH": os.environ["FAKE_NVML"], "FAKE_GPUS": str(count), **environment}
        return self.run_job(*arguments, environment=library)

    def gpus_of(self, ranks):
        return [self.read(f"gpus.{rank}").strip() for rank in range(ranks)]

    def test_the_named_gpus_are_shown_and_each_gets_a_rank(self):
        status, _, err = self.run_with_gpus(8, "--gpus", "2,4,7", *SHOW, CUDA_VISIBLE_DEVICES="0")
        self.assertEqual(status, 0, err)
        self.assertEqual(self.gpus_of(3), ["0 2,4,7", "1 2,4,7", "2 2,4,7"])

    def test_the_number_of_ranks_can_be_another_one(self):
        status, _, err = self.run_with_gpus(8, "--gpus", "GPU-0003,1", "-n", "1", *SHOW)
        self.assertEqual(status, 0, err)
        self.assertEqual(self.gpus_of(1), ["0 GPU-0003,1"])

    def test_a_gpu_that_does_not_exist_is_one_line(self):
        for arguments, text in ((("--gpus", "0,4"), "there is no GPU 4; this machine has 4"),
                                (("--gpus", "1,GPU-0001"), "twice"),
                                (("--virtual-local-rank", "-n", "5"), "there are 4"),
                                (("--virtual-local-rank", "--gpus", "0,1", "-n", "3"), "there are 2")):
            status, _, err = self.run_with_gpus(4, *arguments, "true")
            self.assertEqual((status, len(err.splitlines())), (125, 1), err)
            self.assertIn(text, err)

    def test_virtual_local_ranks_see_one_gpu_each(self):
        for options, environment, expected in (
                ((), {}, ["0 0", "0 1"]),
                ((), {"CUDA_VISIBLE_DEVICES": "3,GPU-0002"}, ["0 3", "0 GPU-0002"]),
                (("--gpus", "1,3"), {}, ["0 1", "0 3"])):
            status, _, err = self.run_with_gpus(4, "--virtual-local-rank", "-n", "2", *options, *SHOW, **environment)
            self.assertEqual(status, 0, err)
            self.assertEqual(self.gpus_of(2), expected)


class Cpus(LauncherTest):
    def cpus_of(self, ranks, *options, **popen):
        status, _, err = self.run_job("-n", str(ranks), *options,
                                      *shell("grep Cpus_allowed_list /proc/self/status > cpus.$RANK"), **popen)
        self.assertEqual(status, 0, err)
        return [self.read(f"cpus.{rank}").split()[1] for rank in range(ranks)]

    def test_by_default_all_ranks_use_all(self):
        self.assertEqual(len(set(self.cpus_of(2))), 1)

    @unittest.skipUnless(len(CPUS) >= 2, "needs two CPUs")
    def test_each_rank_gets_its_own_share(self):
        shares = self.cpus_of(2, "--bind-to", "core")
        self.assertEqual(len(set(shares)), 2, shares)

    def test_only_usable_cpus_are_shared_out(self):
        only = {CPUS[-1]}
        shares = self.cpus_of(3, "--bind-to", "core", preexec_fn=lambda: os.sched_setaffinity(0, only))
        self.assertEqual(shares, [str(CPUS[-1])] * 3)

    def test_numa_gives_a_nodes_cpus_and_prefers_its_memory(self):
        shares = self.cpus_of(2, "--bind-to", "numa")
        self.assertTrue(all(shares))
        status, _, err = self.run_job("--bind-to", "numa", *shell("cp /proc/self/numa_maps maps 2>/dev/null || : > maps"))
        self.assertEqual(status, 0, err)
        if self.read("maps"):
            self.assertIn("prefer", self.read("maps"))

    def test_a_dry_run_shows_them(self):
        status, out, _ = self.run_job("--dry-run", "-n", "2", "--bind-to", "core", "true")
        self.assertEqual(status, 0)
        self.assertEqual(out.count("CPUs:"), 2)


if __name__ == "__main__":
    main()
