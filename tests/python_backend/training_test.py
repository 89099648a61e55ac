"""DistributedDataParallel, FSDP2, DTensor and DCP of Python on shm give gloo's bits: training_test.py."""

import pathlib
import tempfile
import unittest

import ddprun  # noqa: F401
import torch
import torch._dynamo  # noqa: F401  the first optimizer of each rank would import it
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ranks import results
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

SIZES = (1, 2, 3, 4)
STEPS = 6


def net(rank=0):
    torch.manual_seed(7 + rank)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 6, 5), torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(6 * 12 * 12, 84), torch.nn.ReLU(), torch.nn.Linear(84, 10))


def batches(rank):
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        yield torch.randn(4, 1, 28, 28, generator=generator), torch.randint(10, (4,), generator=generator)


def train(model, rank, optimizer):
    losses = []
    for images, labels in batches(rank):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def state_of(model):
    return {name: whole(tensor).clone() for name, tensor in model.state_dict().items()}


def parameters_of(model):
    """Without buffers, which differ between ranks: a checkpoint has those of one."""
    return {name: whole(tensor).detach().clone() for name, tensor in model.named_parameters()}


class Bits(unittest.TestCase):
    def check(self, body, sizes=SIZES):
        """`body(rank)` gives a list of tensors, equal in every bit with both backends."""
        for size in sizes:
            with self.subTest(size=size):
                gloo, shm = results(body, size, "gloo"), results(body, size, "shm")
                for rank, (ours, theirs) in enumerate(zip(shm, gloo)):
                    self.assertEqual(len(ours), len(theirs))
                    self.assertGreater(len(ours), 0)
                    for index, (one, other) in enumerate(zip(ours, theirs)):
                        self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
                        self.assertTrue(torch.equal(one, other), f"rank {rank} of {size}, tensor {index}")

    def test_data_parallel(self):
        def body(rank):
            model = DistributedDataParallel(net(rank), bucket_cap_mb=0.05)
            losses = train(model, rank, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9))
            return losses + list(state_of(model).values())

        self.check(body)

    def test_data_parallel_with_options(self):
        def body(rank):
            model = DistributedDataParallel(net(rank), gradient_as_bucket_view=True, find_unused_parameters=True, bucket_cap_mb=0.1)
            model.register_comm_hook(None, default_hooks.bf16_compress_hook)
            losses = train(model, rank, torch.optim.AdamW(model.parameters(), 0.01))
            return losses + list(state_of(model).values())

        self.check(body, (2, 3))

    def test_uneven_inputs(self):
        def body(rank):
            model = DistributedDataParallel(net())
            optimizer = torch.optim.SGD(model.parameters(), 0.05)
            with model.join():
                for count, (images, labels) in enumerate(batches(rank)):
                    if count > 2 * rank:
                        break
                    torch.nn.functional.cross_entropy(model(images), labels).backward()
                    optimizer.step()
            return list(state_of(model).values())

        self.check(body, (2, 3))

    def test_fully_sharded(self):
        def body(rank):
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            model = net()
            for module in (model[5], model[7]):
                fully_shard(module, mesh=mesh)
            fully_shard(model, mesh=mesh)
            optimizer = torch.optim.Adam(model.parameters(), 0.01)
            losses = train(model, rank, optimizer)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            return losses + [whole(norm)] + list(state_of(model).values())

        self.check(body)

    def test_hybrid_sharding(self):
        def body(rank):
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
            model = fully_shard(net(), mesh=mesh)
            losses = train(model, rank, torch.optim.SGD(model.parameters(), 0.05))
            return losses + list(state_of(model).values())

        self.check(body, (4,))

    def test_distributed_tensors(self):
        def body(rank):
            size = dist.get_world_size()
            mesh = init_device_mesh("cpu", (size,))
            torch.manual_seed(3)
            left, right = torch.randn(12, 24), torch.randn(24, 12)
            rows = distribute_tensor(left, mesh, [Shard(0)])
            columns = distribute_tensor(right, mesh, [Shard(0)])
            by_columns = rows.redistribute(mesh, [Shard(1)])
            product = by_columns @ columns
            partial = DTensor.from_local(left * (rank + 1), mesh, [Partial()])
            tensors = [by_columns.to_local(), product.full_tensor(), partial.redistribute(mesh, [Shard(0)]).to_local(),
                       partial.redistribute(mesh, [Replicate()]).to_local(), rows.sum().full_tensor(), rows.max().full_tensor()]
            return [tensor.clone() for tensor in tensors]

        self.check(body)

    def test_checkpoints(self):
        with tempfile.TemporaryDirectory() as name:
            def body(rank):
                folder = pathlib.Path(name) / f"{dist.get_backend()}-{dist.get_world_size()}"
                mesh = init_device_mesh("cpu", (dist.get_world_size(),))
                model = fully_shard(net(), mesh=mesh)
                train(model, rank, torch.optim.SGD(model.parameters(), 0.05))
                before = parameters_of(model)
                dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
                other = fully_shard(net(5), mesh=mesh)
                state = {"model": other.state_dict()}
                dcp.load(state, checkpoint_id=folder)
                other.load_state_dict(state["model"])
                after = parameters_of(other)
                assert all(torch.equal(before[key], after[key]) for key in before)
                return list(after.values())

            self.check(body)


if __name__ == "__main__":
    unittest.main()
