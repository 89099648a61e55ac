"""One rank of a job that trains models on request: the same as train.cpp, which describes the requests, in Python.
The answer to "overlap" contains only the time of a step. With the argument "cuda", one rank trains on the first GPU
over NCCL."""

import datetime
import pathlib
import resource
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "ddp"))
from parity_program import LeNet, ResNet18  # noqa: E402


def layers(count, width):
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(count)))


def images(batch):
    return torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))


CASES = {
    "linear1": lambda: (layers(1, 1), torch.randn(1, 1), None),
    "tiny200": lambda: (layers(200, 8), torch.randn(8, 8), None),
    "wide": lambda: (layers(4, 2048), torch.randn(2, 2048), None),
    "lenet16": lambda: (LeNet(), *images(16)),
    "lenet128": lambda: (LeNet(), *images(128)),
    "resnet18": lambda: (ResNet18(), *images(8)),
    "resnet18_32": lambda: (ResNet18(), *images(32)),
    "lenet512": lambda: (LeNet(), *images(512)),
    "resnet18_256": lambda: (ResNet18(), *images(256)),
}


device = torch.device("cuda", 0) if "cuda" in sys.argv[1:] else torch.device("cpu")


def finish():
    if device.type == "cuda":
        torch.cuda.synchronize()


def make_step(name):
    model, _, mode = name.partition("+")
    net, x, y = CASES[model]()
    net, x, y = net.to(device), x.to(device), None if y is None else y.to(device)
    wrapped = net if mode == "alone" else nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=mode == "views")
    is_fused = device.type == "cuda" or mode == "fused"
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=1e-3, momentum=0.9, fused=is_fused or None)

    def step():
        optimizer.zero_grad()
        output = wrapped(x)
        loss = output.square().mean() if y is None else F.cross_entropy(output, y)
        loss.backward()
        optimizer.step()

    return step


def overlap(iterations):
    net = nn.Sequential(*(module for _ in range(12) for module in (nn.Linear(512, 512), nn.ReLU())))
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    x = torch.randn(512, 512)
    times = []
    for step in range(3 + iterations):
        dist.barrier()
        begin = time.monotonic()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        times.append(time.monotonic() - begin)
    return statistics.median(times[3:])


def main():
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=datetime.timedelta(minutes=5))
    torch.manual_seed(dist.get_rank())
    steps = {}
    for line in sys.stdin:
        name, iterations = line.split()
        if name == "overlap":
            print(overlap(int(iterations)), flush=True)
            continue
        if name not in steps:
            steps[name] = make_step(name)
        step = steps[name]
        finish()
        cpu, wall = time.process_time(), time.monotonic()
        for _ in range(int(iterations)):
            step()
        finish()
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        print(cpu, wall, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
