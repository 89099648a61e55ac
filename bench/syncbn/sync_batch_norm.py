"""Measures Python's SyncBatchNorm on CUDA in the same way as sync_batch_norm.cpp."""

import statistics
import sys
import time

import torch
import torch.distributed as dist

CHANNELS, WARM_UP, ROUNDS = 64, 10, 60


def main():
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("gloo")
    memory_format = torch.channels_last if "channels_last" in sys.argv else torch.contiguous_format
    x = torch.randn(32, CHANNELS, 32, 32, device=device).contiguous(memory_format=memory_format).requires_grad_()
    dy = torch.randn(32, CHANNELS, 32, 32, device=device).contiguous(memory_format=memory_format)
    norm = torch.nn.SyncBatchNorm(CHANNELS).to(device)
    times = []
    for _ in range(WARM_UP + ROUNDS):
        torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        x.grad = None
        norm.zero_grad()
        norm(x).backward(dy)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    if dist.get_rank() == 0:
        print(f"synchronised {statistics.median(times[WARM_UP:]):.4f}", flush=True)
    dist.destroy_process_group()


main()
