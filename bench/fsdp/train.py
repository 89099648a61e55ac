"""One rank of a job that trains fully sharded models on request: the same as train.cpp in Python."""

import datetime
import statistics
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

warnings.filterwarnings("ignore")


def sharded(count, width, rows):
    torch.manual_seed(1)
    net = nn.Sequential(*(nn.Linear(width, width) for _ in range(count)))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in [*net, net]:
        fully_shard(module, mesh=mesh)
    # The foreach form is the fewest calls that Python supports for all shards: fused SGD rejects DTensors.
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, foreach=True)
    x = torch.randn(rows, width)

    def step():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()

    return step


CASES = {"tiny200": (200, 8, 8), "wide4": (4, 4096, 8), "link": (12, 512, 512)}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
    steps = {}
    for line in sys.stdin:
        name, iterations = line.split()
        if name not in steps:
            steps[name] = sharded(*CASES[name])
        if name == "link":
            times = []
            for _ in range(2 + int(iterations)):
                dist.barrier()
                begin = time.monotonic()
                steps[name]()
                times.append(time.monotonic() - begin)
            print(statistics.median(times[2:]), flush=True)
            continue
        cpu, wall = time.process_time(), time.monotonic()
        for _ in range(int(iterations)):
            steps[name]()
        print(time.process_time() - cpu, time.monotonic() - wall, flush=True)
    dist.destroy_process_group()


main()
