"""The same as all_reduce.cpp with torch.distributed over gloo: `all_reduce.py BYTES...`."""

import statistics
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for size in map(int, sys.argv[1:]):
    tensor = torch.ones(size // 4)
    repeats = max(8, min(1000, 2**29 // max(size, 1)))
    for _ in range(5):
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    times = []
    for _ in range(repeats):
        before = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(1e6 * (time.perf_counter() - before))
    if dist.get_rank() == 0:
        print(size, round(statistics.median(times), 3), flush=True)
dist.destroy_process_group()
