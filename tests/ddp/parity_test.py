"""The same training in Python's DDP, in ours and in jobs that mix both: equal bits, and N ranks follow one process.

    parity_test.py PROGRAM [Parity|Features|Slow ...]    with an interpreter that has torch
"""

import os
import sys
import unittest

import numpy
from parity_jobs import CASES, CPP, DELAYED, DELAYED_MIXED, FEATURES, LENET, LENET_VARIANTS, ON_GPU, PYTHON, RESNET, SINCE, THREE, Job
import torch
import torch._dynamo  # what the twins need for their optimizers
from torch.distributed import TCPStore


def assert_same_bits(test, job, python):
    expected = python.all_weights()
    actual = job.all_weights()
    test.assertEqual(expected.keys(), {name: None for name in actual if name in expected}.keys())
    for name, weights in expected.items():
        with test.subTest(name):
            test.assertEqual(len(actual[name]), len(weights))
            if actual[name] != weights:
                bytes_of = [numpy.frombuffer(content, numpy.uint8) for content in (actual[name], weights)]
                different = numpy.count_nonzero(bytes_of[0] != bytes_of[1])
                test.fail(f"{different} of {len(weights)} bytes differ from Python's")


class Features(unittest.TestCase):
    STEPS = int(os.environ.get("STEPS", "10"))

    def check(self, cases, size):
        cases = {name: {**case, "save_at": self.STEPS} for name, case in cases.items()}
        python, cpp = (Job(type(self), [command] * size, cases) for command in (PYTHON, CPP))
        self.assertEqual(len(python.all_weights()), size * len(cases))
        assert_same_bits(self, cpp, python)
        for name in cases:  # a comparison of numbers that never moved, or became NaN, would prove nothing
            weights = numpy.frombuffer(cpp.weights(name, self.STEPS), numpy.float32)
            self.assertTrue(numpy.isfinite(weights[: len(weights) // 2]).all(), name)

    def test_every_feature_gives_pythons_bits_on_two_ranks(self):
        self.check(FEATURES, 2)

    def test_options_of_newer_versions_give_pythons_bits(self):
        minor = int(torch.__version__.split(".")[1])
        cases = {name: case for since, of_version in SINCE.items() if minor >= since for name, case in of_version.items()}
        if not cases:
            self.skipTest(f"torch {torch.__version__} has none of them")
        self.check(cases, 2)
        self.check(cases, 3)

    def test_buckets_joins_and_unused_parameters_give_pythons_bits_on_three_ranks(self):
        self.check({name: FEATURES[name] for name in THREE}, 3)


class Delayed(unittest.TestCase):
    def test_delayed_parameters_give_pythons_bits_also_in_mixed_jobs(self):
        python = Job(type(self), [PYTHON, PYTHON], DELAYED_MIXED)
        self.assertEqual(len(python.all_weights()), 2 * len(DELAYED_MIXED))
        for ranks in ([PYTHON, CPP], [CPP, PYTHON]):
            assert_same_bits(self, Job(type(self), ranks, DELAYED_MIXED), python)
        cpp = Job(type(self), [CPP, CPP], DELAYED)
        for rank in (0, 1):
            self.assertEqual(cpp.weights("delayed", 20, rank), python.weights("delayed", 20, rank))

    def test_options_that_python_has_not_are_refused_by_every_cpp_rank_and_name_python_s(self):
        for option, case in (("bucket_ends", {"bucket_end": "fc1.weight"}), ("kAutoBucketCap", {"bucket_cap_bytes": -1})):
            job = Job(type(self), [CPP, PYTHON, CPP], {"odd": case}, timeout_s=20, expect_success=False)
            self.assertEqual(job.statuses, [1, 1, 1])
            for rank in (0, 2):
                self.assertIn(f"rank {rank} of 3: DistributedDataParallel: {option} needs this library on every rank, but rank 1 "
                              "runs Python", job.errors[rank])


class Gpu(unittest.TestCase):
    """On a machine with a GPU."""

    def check(self, ranks):
        python = Job(type(self), [PYTHON] * len(ranks), ON_GPU, may_warn=True)
        self.assertEqual(len(python.all_weights()), len(ranks) * len(ON_GPU))
        cpp = Job(type(self), ranks, ON_GPU, may_warn=True)
        assert_same_bits(self, cpp, python)
        for name in ON_GPU:
            weights = numpy.frombuffer(cpp.weights(name, 50), numpy.float32)
            self.assertTrue(numpy.isfinite(weights[: len(weights) // 2]).all(), name)

    def test_one_rank_on_nccl_gives_pythons_bits(self):
        self.check([CPP])

    def test_two_ranks_that_share_a_gpu_over_gloo_give_pythons_bits(self):
        self.check([CPP, CPP])

    def test_a_mixed_job_on_a_gpu_gives_pythons_bits(self):
        self.check([PYTHON, CPP])


class Slow(unittest.TestCase):
    def test_resnet18_gives_pythons_bits_over_50_steps_also_in_mixed_jobs(self):
        python = Job(type(self), [PYTHON, PYTHON], RESNET)
        for ranks in ([CPP, CPP], [PYTHON, CPP], [CPP, PYTHON]):
            assert_same_bits(self, Job(type(self), ranks, RESNET), python)


class Parity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Both with a store of ours, to see their keys; in the mixed jobs rank 0 hosts it.
        python_store, cpp_store = (TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(2))
        cls.python = Job(cls, [PYTHON, PYTHON], CASES, python_store)
        cls.cpp = Job(cls, [CPP, CPP], CASES | LENET_VARIANTS)
        # On gloo, as Python: ranks of this library alone would share memory.
        Job(cls, [CPP, CPP], {"small_buckets": CASES["small_buckets"]}, cpp_store, more_environment={"DDPRUN_CPU_BACKEND": "gloo"})
        cls.python_keys = set(python_store.list_keys())
        cls.cpp_keys = set(cpp_store.list_keys())

    def assert_same_bits(self, job):
        self.assertEqual(len(self.python.all_weights()), 2 * (len(CASES) + 1))
        assert_same_bits(self, job, self.python)

    def test_all_ranks_in_cpp_give_pythons_bits(self):
        self.assert_same_bits(self.cpp)

    def test_python_as_rank_0_and_cpp_as_rank_1_give_the_same_bits(self):
        self.assert_same_bits(Job(type(self), [PYTHON, CPP], CASES))

    def test_cpp_as_rank_0_and_python_as_rank_1_give_the_same_bits(self):
        self.assert_same_bits(Job(type(self), [CPP, PYTHON], CASES))

    def test_bucket_views_and_both_kinds_of_zero_grad_make_no_difference(self):
        for variant in LENET_VARIANTS:
            for step in (10, 50):
                for rank in (0, 1):
                    same = self.cpp.weights(variant, step, rank) == self.cpp.weights("lenet", step, rank)
                    self.assertTrue(same, f"{variant} after step {step}, rank {rank}")

    def test_the_cases_train_and_use_the_buckets_they_are_about(self):
        self.assertNotEqual(self.cpp.weights("lenet", 10), self.cpp.weights("lenet", 50))
        self.assertIn("small_buckets: rebuilt=1 buckets=4", self.python.output[0])
        self.assertIn("accumulate: rebuilt=1 buckets=3", self.python.output[0])
        self.assertIn("resnet18: rebuilt=1 buckets=3", self.python.output[0])

    def test_ranks_agree_on_the_parameters(self):
        self.assertEqual(self.cpp.weights("lenet", 50, rank=0), self.cpp.weights("lenet", 50, rank=1))
        # Batch norm's statistics are each rank's own after a step; they lie behind the parameters.
        first, second = (self.cpp.weights("resnet18", 5, rank) for rank in (0, 1))
        parameters = 4 * 11_181_642
        self.assertEqual(first[:parameters], second[:parameters])
        self.assertNotEqual(first[parameters:], second[parameters:])

    def test_two_ranks_follow_one_process_with_twice_the_batch(self):
        alone = Job(type(self), [CPP], {"lenet": {**LENET, "replaces": 2}})
        for step, bound in ((10, 1e-5), (50, 1e-3)):
            one = numpy.frombuffer(alone.weights("lenet", step), numpy.float32).astype(numpy.float64)
            two = numpy.frombuffer(self.cpp.weights("lenet", step), numpy.float32).astype(numpy.float64)
            relative = numpy.linalg.norm(one - two) / numpy.linalg.norm(one)
            print(f"relative difference after step {step}: {relative:.2e}", file=sys.stderr)
            self.assertLess(relative, bound)
            self.assertGreater(relative, 0, "a comparison with itself would prove nothing")

    def test_n_ranks_follow_one_process_that_accumulates_n_micro_batches(self):
        case = {"lenet": {**LENET, "accumulate": 2, "micro_is_rank": 1}}
        alone = Job(type(self), [CPP], case)
        for step in (10, 50):
            one, two = (numpy.frombuffer(job.weights("lenet", step), numpy.float32) for job in (alone, self.cpp))
            relative = numpy.linalg.norm(one - two) / numpy.linalg.norm(one)
            print(f"relative difference to accumulation after step {step}: {relative:.2e}", file=sys.stderr)
            self.assertLess(relative, 1e-5)

    def test_collectives_compared_by_torch_distributed_debug_change_no_bit(self):
        detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
        cases = {"small_buckets": CASES["small_buckets"]}
        # Without Python's ranks: their DDP crashes in c10d's logger with gloo and DETAIL (2.11).
        job = Job(type(self), [CPP, CPP], cases, expect_success=False, more_environment=detail)
        self.assertEqual(job.statuses, [0, 0], job.errors)
        for rank in (0, 1):
            self.assertEqual(job.weights("small_buckets", 20, rank), self.python.weights("small_buckets", 20, rank))

    def test_torch_distributed_debug_names_both_collectives_that_do_not_match(self):
        cases = {"small_buckets": {**CASES["small_buckets"], "odd": 1}}
        detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
        job = Job(type(self), [CPP, CPP], cases, timeout_s=20, expect_success=False, more_environment=detail)
        self.assertEqual(job.statuses, [1, 1])
        for errors in job.errors:
            self.assertRegex(errors, "(?s)mismatch between collectives.*(ALLREDUCE.*BROADCAST|BROADCAST.*ALLREDUCE)")

    def test_a_missing_rank_is_named_and_pythons_ranks_are_not(self):
        job = Job(type(self), [CPP, PYTHON], CASES, size=3, timeout_s=20, expect_success=False)
        self.assertEqual(job.statuses, [1, 1])
        self.assertRegex(job.errors[0], r"error: rank 0 of 3: could not connect .*; never arrived: rank 2\n")

    def test_cpp_ranks_use_pythons_keys_in_the_store(self):
        self.assertIn("default_pg/0//cpu//0/1", self.python_keys)
        self.assertEqual({key for key in self.cpp_keys if not key.startswith("ddprun/")}, self.python_keys)


if __name__ == "__main__":
    unittest.main(verbosity=2)
