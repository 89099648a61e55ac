"""When the CUDA part is loaded, what NCCL is told, and what is refused while a CUDA graph is captured; no GPU needed.

LEAN and EAGER are programs, without and with ddprun::cuda; PLUGIN stands in for libddprun_comm_cuda.so.
"""

import os
import subprocess
import unittest

LOADED = "the CUDA part is loaded"


def lines_of(program: str, mode: str, **variables: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    environment |= {"DDPRUN_CUDA": "1", "DDPRUN_CUDA_PLUGIN": os.environ["PLUGIN"]} | variables
    done = subprocess.run([os.environ[program], mode], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done
    return done.stdout.splitlines()


class Loading(unittest.TestCase):
    def test_a_program_that_never_asks_for_cuda_does_not_load_it(self):
        self.assertEqual(lines_of("LEAN", "nothing"), ["main"])

    def test_a_group_on_the_cpu_does_not_load_it(self):
        self.assertEqual(lines_of("LEAN", "gloo"), ["main", "device cpu"])

    def test_it_is_loaded_when_the_group_needs_a_device(self):
        self.assertEqual(lines_of("LEAN", "default"), ["main", LOADED, "device cuda:0"])

    def test_a_program_that_is_linked_for_cuda_loads_it_before_main(self):
        self.assertEqual(lines_of("EAGER", "nothing"), [LOADED, "main"])
        self.assertEqual(lines_of("EAGER", "default"), [LOADED, "main", "device cuda:0"])

    def test_variables_keep_it_away_from_both(self):
        for program in ("LEAN", "EAGER"):
            self.assertEqual(lines_of(program, "default", DDPRUN_CUDA="0"), ["main", "device cpu"])
            self.assertEqual(lines_of(program, "default", DDPRUN_CUDA="", CUDA_VISIBLE_DEVICES=""), ["main", "device cpu"])

    def test_too_late_is_an_error_that_says_what_to_do_and_no_quiet_training_on_the_cpu(self):
        main, sees, loaded, error = lines_of("LEAN", "asks")
        self.assertEqual([main, sees, loaded], ["main", "LibTorch sees CUDA: 0", LOADED])
        self.assertIn("error: CUDA was requested too late", error)
        for remedy in ("ddprun::cuda", "DDPRUN_CUDA OFF", "init_process_group first", "DDPRUN_CUDA=0"):
            self.assertIn(remedy, error)


class SubGroups(unittest.TestCase):
    def test_backends_know_their_ranks_in_the_job(self):
        lines = lines_of("EAGER", "groups")
        told = sorted(line for line in lines if line.startswith(("nccl", "gloo")))
        # torch.distributed leaves the list of the job's own group empty.
        self.assertEqual(told, sorted([f"nccl 0 (default_pg) rank {rank} of 3, members:" for rank in range(3)] + [
            "gloo 1, members: 0 2", "gloo 1, members: 0 2",
            "nccl 1 (sub-group) rank 0 of 2, members: 0 2", "nccl 1 (sub-group) rank 1 of 2, members: 0 2",
            "nccl 1 (sub-group) rank 0 of 1, members: 2"]))


    def test_communicators_are_parts_of_the_first_one_where_the_program_wants_it(self):
        def made(number, ranks, color, split):
            return [f"nccl {number} (sub-group) rank {rank} of {len(ranks)}, members: {' '.join(map(str, ranks))}"
                    + (f", color {color} of rank {of}'s communicator of 3" if split else "") for rank, of in enumerate(ranks)]

        def out(*ranks):
            return [f"nccl: rank {rank} is in no part" for rank in ranks]

        for variables in ({"DDPRUN_TEST_SPLITS": "1"}, {}, {"DDPRUN_TEST_SPLITS": "1", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}):
            split = len(variables) == 1
            told = [line for line in lines_of("EAGER", "split", **variables) if line.startswith("nccl") and "default_pg" not in line]
            expected = made(1, [0, 2], 1, split) + made(2, [0], 1, split) + made(3, [1, 2], 2, split) + made(7, [0, 1], 1, False)
            if split:  # else the mesh is connected at its first use
                expected += out(1, 2, 2) + made(4, [0], 0, True) + made(5, [1], 1, True) + made(6, [0, 1], 0, True)
            self.assertEqual(sorted(told), sorted(expected), variables)


class Backends(unittest.TestCase):
    def test_ranks_take_the_device_that_their_backends_are_for(self):
        lines = [line for line in lines_of("EAGER", "devices") if not line.startswith("nccl 0")]
        self.assertEqual(lines[2:], [
            "gloo: cpu, cpu by gloo, cuda by gloo",
            "cpu:gloo: cpu, cpu by gloo",
            "gloo: cpu, cpu by gloo, cuda by gloo",
            "cuda:gloo: cuda:0, cuda by gloo",
            "local: cuda:0, cpu by local, cuda by local",
            "nccl: cuda:0, cuda by nccl",
            "cpu:gloo,cuda:nccl: cuda:0, cpu by gloo, cuda by nccl",
            "counting: cpu, cpu by counting, cuda by counting",
            "cpu:counting,cuda:nccl: cuda:0, cpu by counting, cuda by nccl"])


class Capture(unittest.TestCase):
    def test_what_the_host_waits_for_is_refused(self):
        lines = dict(line.split(": ", 1) for line in lines_of("EAGER", "capture", DDPRUN_TEST_CAPTURES="1")[2:])
        for call in ("init_process_group", "barrier", "broadcast_string", "all_gather_uneven", "new_group"):
            self.assertIn("cannot be captured in a CUDA graph", lines[call], call)
        for call in ("all_reduce", "all_gather"):
            self.assertEqual(lines[call], "done")

    def test_nothing_is_refused_otherwise(self):
        for line in lines_of("EAGER", "capture")[2:]:
            self.assertTrue(line.endswith(": done"), line)


if __name__ == "__main__":
    unittest.main()
