"""Measures a step of torch.optim.NAME on 400 small tensors. Prints the median milliseconds of the faster
implementation (loop or foreach)."""

import statistics
import sys
import time

import torch

name = sys.argv[1]
torch.set_num_threads(1)
shape = (8, 8) if name in ("Adafactor", "Muon") else (64,)


def median(**options):
    parameters = [torch.randn(shape, requires_grad=True) for _ in range(400)]
    for parameter in parameters:
        parameter.grad = torch.randn(shape)
    optimizer = getattr(torch.optim, name)(parameters, **options)
    times = []
    for _ in range(40):
        begin = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[3:]) * 1000


print(median() if name == "Muon" else min(median(foreach=False), median(foreach=True)))
