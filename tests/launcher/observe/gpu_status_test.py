"""What each rank's GPU is doing, from a stand-in for the driver's library: in status and metrics, and as a reason."""

import contextlib
import json
import os
import re
import signal
import subprocess

from hang_nodes_test import supervisors_of
from harness import DDPRUN, LauncherTest, main, wait_until

PROGRAM = os.environ["WATCHED_PROGRAM"]


class GpuStatus(LauncherTest):
    def start_training(self, *arguments, **environment):
        os.makedirs(self.path("runtime"), exist_ok=True)
        self.variables = {"XDG_RUNTIME_DIR": self.path("runtime")}
        return self.start("-n", "2", PROGRAM, self.folder, *arguments,
                          environment={**self.variables, "LD_LIBRARY_PATH": os.environ["FAKE_NVML"], "FAKE_GPUS": "4", **environment})

    def ask(self, *words):
        return subprocess.run([DDPRUN, "status", *words], env=dict(os.environ, **self.variables), capture_output=True, text=True,
                              timeout=60).stdout

    def ranks(self):
        return [rank for line in self.ask("--json").splitlines() for rank in json.loads(line)["ranks"]]

    def gpus(self):
        wait_until(lambda: self.ranks() and all("gpu" in rank for rank in self.ranks()), "figures of the GPUs")
        return [rank["gpu"] for rank in self.ranks()]

    def test_use_and_memory_are_those_of_the_ranks_own_gpu(self):
        self.start_training()
        gpus = self.gpus()
        self.assertEqual([gpu["uuid"] for gpu in gpus], ["GPU-0000-fake", "GPU-0001-fake"])
        self.assertEqual([gpu["use_percent"] for gpu in gpus], [0, 10])
        self.assertEqual([gpu["memory_bytes"] for gpu in gpus], [1_000_000_000, 2_000_000_000])
        self.assertEqual(gpus[0]["memory_total_bytes"], 80_000_000_000)
        self.assertRegex(self.ask(), r"collective +GPU +memory")
        self.assertIn("10 %, 2.0 GB", self.ask())

    def test_visible_devices_are_followed(self):
        self.start_training(CUDA_VISIBLE_DEVICES="3,GPU-0002")
        self.assertEqual([gpu["uuid"] for gpu in self.gpus()], ["GPU-0003-fake", "GPU-0002-fake"])

    def test_without_a_driver_or_with_one_that_hangs_there_is_nothing_and_no_harm(self):
        for manner in ("hangs", "crashes", ""):
            job = self.start_training("--seconds", "4", **({"FAKE_DRIVER": manner} if manner else {"LD_LIBRARY_PATH": ""}))
            status, _, err = job.finish()
            self.assertEqual(status, 0, err)
            self.assertNotIn("left", err)
            os.remove(self.path("meeting"))

    def test_the_process_that_asks_goes_with_the_job(self):
        job = self.start_training()
        self.gpus()
        for pid in supervisors_of(job):
            with contextlib.suppress(ProcessLookupError):  # the first of them ends the others
                os.kill(pid, signal.SIGKILL)
        job.process.wait()
        wait_until(lambda: not job.members(), "the end of all")

    def test_a_gpu_that_is_too_hot_is_a_reason(self):
        job = self.start_training("--slow", "forward", "--slow_by", "0.4", "--rank", "1", "--step_time", "0.01", FAKE_HOT_GPU="1")
        line = next(line for line in iter(job.process.stderr.readline, b"") if b"delays the others" in line).decode()
        self.assertIn("rank 1", line)
        self.assertTrue(re.search(r"in forward: .*; its GPU is too hot \(92 degrees, 900 MHz\)$", line.strip()), line)
        job.process.terminate()
        job.finish()


main()
