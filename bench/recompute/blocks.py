"""The same as blocks.cpp with Python's torch.utils.checkpoint."""

import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

BLOCKS, WIDTH, HIDDEN = 24, 256, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return x + self.second(F.gelu(self.first(self.norm(x))))


def forward(blocks, x, is_region):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False) if is_region else block(x)
    return x


def live_bytes(blocks, x, is_region):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        y = forward(blocks, x, is_region)
    y.pow(2).mean().backward()
    return sum(event.nbytes() for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]")


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    torch.set_num_threads(1)
    torch.manual_seed(1)
    blocks = [Block() for _ in range(BLOCKS)]
    x = torch.rand(256, WIDTH)
    times = {False: [], True: []}
    for i in range(steps + 1):
        for is_region in (False, True):
            begin = time.perf_counter()
            forward(blocks, x, is_region).pow(2).mean().backward()
            if i > 0:
                times[is_region].append((time.perf_counter() - begin) * 1000)
    for is_region in (False, True):
        name = "region" if is_region else "plain"
        print(name, live_bytes(blocks, x, is_region), f"{sorted(times[is_region])[steps // 2]:.3f}")


main()
