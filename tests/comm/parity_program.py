"""One rank of a job that parity_test.py has drawn, in Python: parity_program.py CASES RESULT. See parity_program.cpp."""

import json
import math
import os
import pathlib
import sys

import torch
import torch.distributed as dist

OPS = {
    "sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}


def values(seed, rank, shape, dtype):
    whole = ((torch.arange(math.prod(shape)) * 7919 + rank * 104729 + seed * 31) % 2001 - 1000).view(shape)
    eighths = whole.double() / 8
    if dtype == torch.complex64:
        return torch.complex(eighths, eighths + 1).to(dtype)
    if dtype == torch.bool:
        return (whole % 2).to(dtype)
    return (eighths if dtype.is_floating_point else whole).to(dtype)


class Case:
    def __init__(self, spec):
        self.spec, self.rank, self.size = spec, dist.get_rank(), dist.get_world_size()
        self.seed, self.root, self.dtype, self.shape = spec["seed"], spec["root"], getattr(torch, spec["dtype"]), spec["shape"]
        self.is_root = self.rank == self.root
        self.op = OPS[spec["op"]]

    def mine(self, *rows):
        return values(self.seed, self.rank, [*rows, *self.shape], self.dtype)

    def empty(self, *rows):
        return torch.zeros([*rows, *self.shape], dtype=self.dtype)

    def all_reduce(self):
        tensor = self.mine()
        return dist.all_reduce(tensor, self.op, async_op=True), [tensor]

    def reduce(self):
        tensor = self.mine()
        return dist.reduce(tensor, self.root, self.op, async_op=True), [tensor] if self.is_root else []

    def broadcast(self):
        tensor = self.mine()
        return dist.broadcast(tensor, self.root, async_op=True), [tensor]

    def all_gather(self):
        gathered = self.empty(self.size)
        return dist.all_gather_into_tensor(gathered.view(-1), self.mine().view(-1), async_op=True), [gathered]

    def gather(self):
        gathered = self.empty(self.size)
        parts = list(gathered.unbind()) if self.is_root else None
        return dist.gather(self.mine(), parts, self.root, async_op=True), [gathered] if self.is_root else []

    def scatter(self):
        tensor = self.empty()
        parts = list(self.mine(self.size).unbind()) if self.is_root else None
        return dist.scatter(tensor, parts, self.root, async_op=True), [tensor]

    def reduce_scatter(self):
        mine = self.empty(1)
        return dist.reduce_scatter_tensor(mine, self.mine(self.size), self.op, async_op=True), [mine]

    def all_to_all(self):
        received = self.empty(self.size)
        return dist.all_to_all_single(received, self.mine(self.size), async_op=True), [received]

    def ring(self):
        received, tag = self.empty(), self.seed
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, self.mine(), (self.rank + 1) % self.size, tag=tag),
            dist.P2POp(dist.irecv, received, (self.rank - 1) % self.size, tag=tag)
        ])
        return works, [received]

    def broadcast_coalesced(self):
        first = self.mine(self.size)
        tensors = [
            first, values(self.seed + 1, self.rank, [], torch.int64), first.transpose(0, -1),
            values(self.seed + 2, self.rank, [5, 3], self.dtype)
        ]
        dist._broadcast_coalesced(dist.group.WORLD, tensors, self.spec["buffer"], self.root)
        return [], tensors

    def all_gather_uneven(self):
        parts = [self.empty(rows) for rows in self.spec["rows"]]
        for rank, part in enumerate(parts):  # as broadcasts, since gloo's all_gather needs equal sizes
            if rank == self.rank:
                part.copy_(self.mine(part.shape[0]))
            dist.broadcast(part, rank)
        return [], parts

    def all_to_all_uneven(self):
        counts = self.spec["counts"]
        received_counts = [row[self.rank] for row in counts]
        received = self.empty(sum(received_counts))
        dist.all_to_all_single(received, self.mine(sum(counts[self.rank])), received_counts, counts[self.rank])
        return [], [received]


def as_json(tensors):
    result = []
    for tensor in tensors:
        plain = tensor.contiguous()
        real = torch.view_as_real(plain) if plain.is_complex() else plain
        data = bytes(real.flatten().view(torch.uint8).tolist()) if real.numel() else b""
        result.append({"dtype": str(plain.dtype).removeprefix("torch."), "shape": list(plain.shape), "bytes": data.hex()})
    return result


def results_of(window):
    started = []
    for spec in window["cases"]:
        case = Case(spec)
        try:
            started.append(getattr(case, spec["operation"])())
        except RuntimeError:
            started.append(None)
    results = ["error"] * len(started)
    for i in window["order"]:
        if started[i] is None:
            continue
        works, tensors = started[i]
        try:
            for work in works if isinstance(works, list) else [works]:
                work.wait()
            results[i] = as_json(tensors)
        except RuntimeError:
            pass
    return results


def main():
    cases = json.loads(pathlib.Path(sys.argv[1]).read_text())
    backend = os.environ.get("PARITY_BACKEND", "gloo")
    if backend == "shm":
        import ddprun  # noqa: F401
    dist.init_process_group(backend)
    if backend == "shm" and "memfd:ddprun ranks" not in pathlib.Path("/proc/self/maps").read_text():
        raise AssertionError("the ranks share no memory")
    results = [result for window in cases["windows"] for result in results_of(window)]
    pathlib.Path(sys.argv[2]).write_text(json.dumps(results))
    dist.destroy_process_group()
    # Without taking the interpreter down, in which torch 2.15 aborts at times: a thread of its own is still there.
    os._exit(0)


if __name__ == "__main__":
    main()
