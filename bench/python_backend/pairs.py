"""One rank of `run`: `pairs.py ROUNDS BYTES...` prints {"what", "shm", "gloo"} with the seconds of each round, for
each size and for training steps."""

import json
import statistics
import sys
import time

import ddprun  # noqa: F401
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BACKENDS = ("shm", "gloo")


def lenet():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 6, 5, padding=2), torch.nn.ReLU(), torch.nn.AvgPool2d(2), torch.nn.Conv2d(6, 16, 5), torch.nn.ReLU(), torch.nn.AvgPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(400, 120), torch.nn.ReLU(), torch.nn.Linear(120, 84), torch.nn.ReLU(), torch.nn.Linear(84, 10))


class Reduction:
    def __init__(self, group, size):
        self.group, self.tensor = group, torch.ones(size // 4)
        self.repeats = max(4, min(400, 2**27 // size))

    def __call__(self):
        dist.all_reduce(self.tensor, dist.ReduceOp.MAX, group=self.group)


class Step:
    repeats = 60

    def __init__(self, group):
        torch.manual_seed(1)
        self.model = DistributedDataParallel(lenet(), process_group=group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.images, self.labels = torch.randn(16, 1, 28, 28), torch.randint(10, (16,))

    def __call__(self):
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()


def seconds(call):
    for _ in range(3):
        call()
    times = []
    for _ in range(call.repeats):
        before = time.perf_counter()
        call()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def compare(what, rounds, calls):
    times = {name: [] for name in BACKENDS}
    for round_number in range(rounds):
        for name in BACKENDS if round_number % 2 == 0 else reversed(BACKENDS):
            times[name].append(seconds(calls[name]))
    if dist.get_rank() == 0:
        print(json.dumps({"what": what, **times}), flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    rounds = int(sys.argv[1])
    for size in map(int, sys.argv[2:]):
        compare(size, rounds, {name: Reduction(group, size) for name, group in groups.items()})
    compare("step", rounds, {name: Step(group) for name, group in groups.items()})
    dist.destroy_process_group()


main()
