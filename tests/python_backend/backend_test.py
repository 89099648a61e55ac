"""The backend shm of torch.distributed, as Python uses it: backend_test.py."""

import contextlib
import datetime
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

import ddprun  # noqa: F401  before torch: it registers when torch is imported
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks import outcomes, results, shares_memory
from torch.distributed.distributed_c10d import _coalescing_manager

CPU = torch.device("cpu")


def ranks_tensor(rank, count=6):
    return torch.arange(count, dtype=torch.float32) + 10 * rank


def python(code, **variables):
    """A Python of its own, since this one has registered the backend."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ, **variables), timeout=300)


class Registration(unittest.TestCase):
    def test_import_before_and_after_torch(self):
        for order in ("import ddprun, torch.distributed as dist", "import torch.distributed as dist, ddprun",
                      "import torch, ddprun, torch.distributed as dist"):
            ended = python(order + "; print(dist.Backend.SHM, dist.Backend('SHM'), dist.Backend.backend_capability['shm'])")
            self.assertEqual(ended.stdout, "shm shm ['cpu']\n", ended.stderr)

    def test_import_does_not_import_torch(self):
        ended = python("import ddprun, sys; print('torch' in sys.modules)")
        self.assertEqual(ended.stdout, "False\n", ended.stderr)

    def test_the_default_of_the_cpu_stays(self):
        self.assertEqual(dist.Backend.default_device_backend_map["cpu"], "gloo")

    def test_a_missing_library_is_explained(self):
        code = ("import ddprun, torch.distributed as dist\n"
                "dist.init_process_group('shm', store=dist.HashStore(), rank=0, world_size=1)")
        ended = python(code, DDPRUN_SHM_LIBRARY="/nowhere/library.so")
        self.assertIn("RuntimeError: DDPRUN_SHM_LIBRARY=/nowhere/library.so: there is no such file", ended.stderr)
        without = python("from ddprun._backend import library_path; library_path('1.2.3+cpu')", DDPRUN_SHM_LIBRARY="")
        self.assertIn("and this is torch 1.2.3+cpu: install the wheel of ddprun that was built for it", without.stderr)


class Groups(unittest.TestCase):
    def test_names(self):
        def body(rank):
            group = dist.group.WORLD
            backend = group._get_backend(CPU)
            return dist.get_backend(), backend.name(), backend.rank(), backend.size(), backend.options._timeout, shares_memory()

        self.assertEqual(results(body, 2), [("shm", "shm", rank, 2, datetime.timedelta(seconds=60), True) for rank in range(2)])

    def test_with_another_backend_for_cuda(self):
        def body(rank):
            tensor = ranks_tensor(rank)
            dist.all_reduce(tensor)
            return tensor, dist.get_backend_config()

        for tensor, config in results(body, 2, "cpu:shm,cuda:gloo"):
            self.assertEqual(tensor.tolist(), (ranks_tensor(0) + ranks_tensor(1)).tolist())
            self.assertEqual(config, "cpu:shm,cuda:gloo")

    def test_sub_groups(self):
        def body(rank):
            groups = [dist.new_group([0, 2]), dist.new_group([1, 3], backend="gloo"), dist.new_group([3, 2, 1])]
            values = []
            for members, group in zip(([0, 2], [1, 3], [1, 2, 3]), groups):
                if rank in members:
                    tensor = ranks_tensor(rank)
                    dist.all_reduce(tensor, group=group)
                    values.append((dist.get_backend(group), tensor.tolist()))
            dist.barrier()  # rank 0 has the store, by which the others may still be connecting
            return values

        def total(*ranks):
            return sum(ranks_tensor(rank) for rank in ranks).tolist()

        found = results(body, 4)
        self.assertEqual(found[0], [("shm", total(0, 2))])
        self.assertEqual(found[3], [("gloo", total(1, 3)), ("shm", total(1, 2, 3))])

    def test_split_group(self):
        def body(rank):
            group = dist.split_group(split_ranks=[[0, 3], [1, 2]])
            tensor = ranks_tensor(rank)
            dist.all_reduce(tensor, group=group)
            dist.barrier()
            return tensor.tolist(), dist.get_backend(group), group._get_backend(CPU).options.global_ranks_in_group

        found = results(body, 4)
        for rank, members in enumerate(([0, 3], [1, 2], [1, 2], [0, 3])):
            self.assertEqual(found[rank], (sum(ranks_tensor(other) for other in members).tolist(), "shm", members))

    def test_sequence_numbers(self):
        def body(rank):
            backend = dist.group.WORLD._get_backend(CPU)
            first = backend._get_sequence_number_for_group()
            for _ in range(3):
                dist.all_reduce(torch.ones(1))
            return backend._get_sequence_number_for_group() - first

        self.assertEqual(results(body, 2), [3, 3])


def wait_in_callbacks(rank):
    numbers = [torch.full((10,), float(number)) for number in range(8)]
    order = []

    def then(number):
        def call(_):
            if rank == 1:
                time.sleep(0.05)  # the others wait in their callbacks
            order.append(number)
            inner = dist.all_reduce(numbers[number + 1], async_op=True).get_future()
            if number < 4:
                inner = inner.then(then(number + 2))
            return inner.wait()

        return call

    late = dist.all_reduce(torch.ones(100000), async_op=True).get_future()
    dist.all_reduce(numbers[0], async_op=True).get_future().then(then(0)).wait()
    late.wait()
    return order, [tensor[0].item() for tensor in numbers]


def waited_in_callbacks(size):
    return [0, 2, 4], [float(number * (size if number in (1, 3, 5) else 1)) for number in range(8)]


class Calls(unittest.TestCase):
    def test_coalescing(self):
        def body(rank):
            with_device, fast = ([ranks_tensor(rank), torch.ones(3) * rank] for _ in range(2))
            with _coalescing_manager(device=CPU, async_ops=True) as manager:
                for tensor in with_device:
                    dist.group.WORLD.allreduce([tensor])
            manager.wait()
            with _coalescing_manager():
                for tensor in fast:
                    dist.all_reduce(tensor)
            received = torch.zeros(6)
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, ranks_tensor(rank), 1 - rank),
                                            dist.P2POp(dist.irecv, received, 1 - rank)])
            for work in works:
                work.wait()
            return [tensor.tolist() for tensor in with_device], [tensor.tolist() for tensor in fast], received.tolist()

        total = [(ranks_tensor(0) + ranks_tensor(1)).tolist(), [1.0] * 3]
        self.assertEqual(results(body, 2), [(total, total, ranks_tensor(1).tolist()), (total, total, ranks_tensor(0).tolist())])

    def test_sums_of_lists_have_gloos_bits(self):
        def body(rank):
            numbers = torch.Generator().manual_seed(rank)
            size = dist.get_world_size()
            sums = []
            for count in (1, 33, 1000, 70001):
                parts = [torch.randn(count, generator=numbers) for _ in range(size)]
                sums.append(torch.empty(count))
                dist.reduce_scatter(sums[-1], parts)
                sums.append(torch.empty(count))
                dist.reduce_scatter_tensor(sums[-1], torch.cat(parts))
                tensors = [torch.randn(n, generator=numbers) for n in (count, 3, 7)]
                complexes = [torch.randn(n, generator=numbers, dtype=torch.complex64) for n in (count, 5)]
                works = []
                for each in (tensors, complexes):
                    with _coalescing_manager(async_ops=True) as manager:
                        for tensor in each:
                            dist.all_reduce(tensor)
                    works.append(manager)
                for work in works:
                    work.wait()
                sums += tensors + complexes
            return sums

        for size in (2, 3, 4):
            for rank, (ours, theirs) in enumerate(zip(results(body, size), results(body, size, "gloo"))):
                for number, (one, other) in enumerate(zip(ours, theirs)):
                    self.assertTrue(torch.equal(one, other), f"rank {rank} of {size}, tensor {number} of {one.numel()}")

    def test_a_callback_may_wait_for_other_collectives(self):
        self.assertEqual(results(wait_in_callbacks, 2, timeout_s=20), [waited_in_callbacks(2)] * 2)

    def test_a_graph_finds_that_outputs_have_overwritten_what_it_saved(self):
        def body(rank):
            found = {}
            size = dist.get_world_size()
            x = torch.full((3,), 5.0)
            with torch.inference_mode():
                dist.all_gather([torch.zeros(3) for _ in range(size)], torch.ones(3))
            calls = {"all_gather": lambda outputs, _: dist.all_gather(outputs, x), "gather": lambda outputs, _: dist.gather(x, None if rank else outputs),
                     "all_to_all": lambda outputs, _: dist.all_to_all(outputs, [x] * size),
                     "reduce_scatter": lambda outputs, _: dist.reduce_scatter(outputs[0], [x] * size),
                     "all_gather_into_tensor": lambda _, whole: dist.all_gather_into_tensor(whole, x),
                     "reduce_scatter_tensor": lambda outputs, _: dist.reduce_scatter_tensor(outputs[0], torch.ones(3 * size)),
                     "all_reduce": lambda outputs, _: dist.all_reduce(outputs[0]), "broadcast": lambda outputs, _: dist.broadcast(outputs[0], 0)}
            for name, call in calls.items():
                outputs, whole = [torch.ones(3) for _ in range(size)], torch.ones(3 * size)
                weight = torch.ones(3, requires_grad=True)
                loss = (weight * (whole[:3] if "into" in name else outputs[0])).sum()
                call(outputs, whole)
                try:
                    loss.backward()
                    found[name] = weight.grad.tolist()
                except RuntimeError as error:
                    found[name] = "modified by an inplace operation" in str(error)
            return found

        ours = results(body, 2)
        self.assertEqual(ours, results(body, 2, "gloo"))
        self.assertIs(ours[0]["all_gather"], True)

    def test_ranks_and_sizes_that_are_not_there_are_refused(self):
        def body(rank):
            tensor = torch.full((3,), float(rank))
            errors = []
            for call in (lambda: dist.broadcast(tensor, 7), lambda: dist.reduce(tensor, 7), lambda: dist.gather(tensor, None, 7), lambda: dist.scatter(tensor, None, 7),
                         lambda: dist.recv(tensor, 7), lambda: dist.send(tensor, 7), lambda: dist.all_to_all_single(tensor, tensor.clone(), [4, -1], [4, -1])):
                try:
                    call()
                    errors.append("no error")
                except RuntimeError as error:
                    errors.append(str(error).splitlines()[0])
            dist.barrier()
            return errors, tensor.tolist()

        expected = [f"shm: {name}: expected a root from 0 to 1, got 7" for name in ("broadcast", "reduce", "gather", "scatter")]
        expected += [f"shm:{name}: expected a rank from 0 to 1, got 7" for name in ("recv", "send")]
        expected += ["shm: alltoall: expected counts of at least 0, got -1 for rank 1"]
        self.assertEqual(results(body, 2), [(expected, [float(rank)] * 3) for rank in range(2)])

    def test_functional_collectives_by_group_name(self):
        def body(rank):
            name = dist.group.WORLD.group_name
            total = functional.all_reduce(ranks_tensor(rank), "sum", name)
            gathered = functional.all_gather_tensor(ranks_tensor(rank), 0, name)
            part = functional.reduce_scatter_tensor(gathered, "sum", 0, name)
            exchanged = functional.all_to_all_single(gathered, None, None, name)
            return [tensor.wait() if hasattr(tensor, "wait") else tensor for tensor in (total, gathered, part, exchanged)]

        shm, gloo = results(body, 3), results(body, 3, "gloo")
        for ours, theirs in zip(shm, gloo):
            for one, other in zip(ours, theirs):
                self.assertTrue(torch.equal(one, other))

    def test_objects_and_any_source(self):
        def body(rank):
            everything = [None] * dist.get_world_size()
            dist.all_gather_object(everything, {"rank": rank, "text": "x" * 1000 * rank})
            told = [f"from {rank}"]
            dist.broadcast_object_list(told, src=2)
            sources = []
            if rank == 0:
                for _ in range(2):
                    tensor = torch.zeros(2)
                    source = dist.recv(tensor)
                    sources.append((source, tensor.tolist()))
            else:
                dist.send(torch.full((2,), float(rank)), 0)
            dist.barrier()
            return [one["rank"] for one in everything], told, sorted(sources)

        found = results(body, 3)
        self.assertEqual([one[:2] for one in found], [([0, 1, 2], ["from 2"])] * 3)
        self.assertEqual(found[0][2], [(1, [1.0, 1.0]), (2, [2.0, 2.0])])

    def test_the_gil_is_released_in_waits(self):
        def body(rank):
            ticks = 0
            if rank == 1:
                time.sleep(1)
                dist.all_reduce(torch.ones(1))
                return ticks
            has_ended = threading.Event()

            def count():
                nonlocal ticks
                while not has_ended.wait(0.01):
                    ticks += 1

            thread = threading.Thread(target=count)
            thread.start()
            dist.all_reduce(torch.ones(1))
            has_ended.set()
            thread.join()
            return ticks

        self.assertGreater(results(body, 2)[0], 5)

    def test_monitored_barrier(self):
        def body(rank):
            dist.monitored_barrier()
            dist.monitored_barrier(wait_all_ranks=True)
            try:
                if rank != 1:
                    dist.monitored_barrier(timeout=datetime.timedelta(seconds=0.5))
            except RuntimeError as error:
                return str(error)
            return None

        first, absent, last = results(body, 3)
        self.assertIn("[Rank 0]: Rank 1 failed to pass monitoredBarrier in 500 ms", first)
        self.assertIsNone(absent)
        self.assertIn("Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0", last)

    def test_debug_mode(self):
        def body(rank):
            dist.set_debug_level_from_env()
            dist.init_process_group("shm", timeout=datetime.timedelta(seconds=60))
            tensor = ranks_tensor(rank)
            dist.all_reduce(tensor)
            try:
                dist.all_reduce(torch.ones(1 + rank))
            except RuntimeError as error:
                return tensor.tolist(), "Detected mismatch between collectives" in str(error)
            return None

        for result in results(body, 2, "", TORCH_DISTRIBUTED_DEBUG="DETAIL"):
            self.assertEqual(result, ((ranks_tensor(0) + ranks_tensor(1)).tolist(), True))


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.tensor([index])


class Processes(unittest.TestCase):
    def test_workers_of_a_loader_are_harmless(self):
        def body(rank):
            dist.all_reduce(torch.ones(1))
            pending = torch.ones(4)
            work = dist.all_reduce(pending, async_op=True)  # the backend has a thread now
            loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork")
            values = []
            for _ in range(2):
                for batch in loader:
                    tensor = batch.float().sum()
                    dist.all_reduce(tensor)
                    values.append(tensor.item())
            work.wait()
            return values, pending.tolist()

        for values, pending in results(body, 2):
            self.assertEqual(values, [2.0 * sum(range(at, at + 4)) for at in range(0, 32, 4)] * 2)
            self.assertEqual(pending, [2.0] * 4)

    def test_a_forked_process_cannot_use_the_group_nor_harm_it(self):
        def body(rank):
            dist.all_reduce(torch.ones(1))
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                text = "no error"
                with contextlib.suppress(BaseException):
                    try:
                        dist.all_reduce(torch.ones(1))
                    except RuntimeError as error:
                        text = str(error)
                    dist.destroy_process_group()
                os.write(writing, text.encode())
                os._exit(0)
            os.close(writing)
            _, status = os.waitpid(child, 0)
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            return status, os.read(reading, 10000).decode(), tensor.item(), os.getpid()

        for rank, (status, text, value, process) in enumerate(results(body, 2)):
            self.assertEqual((status, value), (0, 2.0))
            self.assertIn(f"rank {rank} of 2: a process that was forked from rank {rank} (process {process}) cannot use that rank's group", text)

    def test_survivors_are_told_who_was_killed(self):
        before = set(os.listdir("/dev/shm"))

        def body(rank):
            dist.all_reduce(torch.ones(1))
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                dist.all_reduce(torch.ones(1))
            except RuntimeError as error:
                return str(error)
            return None

        found = outcomes(body, 3)
        self.assertEqual([one.status for one in found], [0, -signal.SIGKILL, 0], [one.errors for one in found])
        for rank in (0, 2):
            self.assertRegex(found[rank].result, r"rank 1 \(process \d+\) has died")
        self.assertEqual(set(os.listdir("/dev/shm")), before)

    def test_ranks_of_a_sub_group_are_called_by_their_numbers_in_the_job(self):
        def body(rank):
            group = dist.new_group([1, 2])
            store = dist.distributed_c10d._get_default_store()  # which rank 0 has to keep
            if rank == 0:
                store.wait(["end"], datetime.timedelta(seconds=60))
                return None
            dist.all_reduce(torch.ones(1), group=group)
            if rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                dist.all_reduce(torch.ones(1), group=group)
            except RuntimeError as error:
                return str(error)
            finally:
                store.set("end", "")
            return None

        self.assertRegex(outcomes(body, 3)[1].result, r"rank 2 \(process \d+\) has died")

    def test_a_timeout_names_the_late_rank(self):
        def body(rank):
            dist.all_reduce(torch.ones(1))
            if rank == 1:
                time.sleep(4)
                return None
            try:
                dist.all_reduce(torch.ones(1))
            except RuntimeError as error:
                return str(error)
            return None

        self.assertRegex(outcomes(body, 2, timeout_s=1)[0].result, r"timed out after 1000 ms waiting for rank 1 \(process")


class Hosts(unittest.TestCase):
    def sum_over(self, size, backend="shm", **variables):
        def body(rank):
            tensor = ranks_tensor(rank, 1000)
            dist.all_reduce(tensor)
            gathered = [torch.zeros(3) for _ in range(dist.get_world_size())]
            dist.all_gather(gathered, ranks_tensor(rank, 3))
            return tensor, gathered, shares_memory()

        found = outcomes(body, size, backend, **variables)
        expected = sum(ranks_tensor(rank, 1000) for rank in range(size))
        for rank, one in enumerate(found):
            self.assertEqual(one.status, 0, one.errors)
            self.assertTrue(torch.equal(one.result[0], expected))
            for other, part in enumerate(one.result[1]):
                self.assertTrue(torch.equal(part, ranks_tensor(other, 3)), rank)
        return found

    def lines(self, outcome):
        return [line for line in outcome.errors.splitlines() if line.startswith("ddprun: ")]

    def test_each_rank_on_a_host_of_its_own(self):
        found = self.sum_over(2, DDPRUN_SHM_HOST=["one", "two"])
        self.assertEqual([one.result[2] for one in found], [False, False])
        self.assertEqual(self.lines(found[0]), ["ddprun: the ranks share no memory and use gloo: each rank is on a different host"])
        self.assertEqual(self.lines(found[1]), [])

    def test_two_ranks_on_each_host(self):
        found = self.sum_over(4, DDPRUN_SHM_HOST=["one", "two", "one", "two"])
        self.assertEqual([one.result[2] for one in found], [True] * 4)
        self.assertEqual([line for one in found for line in self.lines(one)], [])

    def test_callbacks_of_ranks_on_two_hosts_may_wait(self):
        found = results(wait_in_callbacks, 4, timeout_s=20, DDPRUN_SHM_HOST=["one", "two", "one", "two"])
        self.assertEqual(found, [waited_in_callbacks(4)] * 4)

    def test_a_rank_without_the_backend(self):
        found = self.sum_over(3, ["shm", "gloo", "shm"])
        self.assertEqual([one.result[2] for one in found], [False] * 3)
        self.assertEqual(self.lines(found[0]), ["ddprun: the ranks share no memory and use gloo: rank 1 uses the backend gloo of torch.distributed"])


if __name__ == "__main__":
    unittest.main()
