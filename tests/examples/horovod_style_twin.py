"""The Horovod-style program in Python, for comparison. Horovod itself need not be there: its optimizer averages the ranks' gradients
before each step, and that is what stands here."""

import argparse

import torch
import torch.distributed as dist
from torch import nn

from twin_job import TwinJob


def stream_of(seed, rank):
    """The seed that ddp::seed_per_rank() gives a rank."""

    def mix(value):
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
        return value ^ (value >> 31)

    value = mix((mix(seed) + rank + 1) % 2**64)
    return value - 2**64 if value >= 2**63 else value  # as manual_seed() takes it


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--all-ranks", type=int, help="in one process: the points of so many ranks")
    parser.add_argument("--step-losses")
    args = parser.parse_args()
    job = TwinJob()
    torch.manual_seed(42)
    net = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.5)
    ranks = range(args.all_ranks) if args.all_ranks else [job.rank]
    streams = [torch.Generator().manual_seed(stream_of(42, rank)) for rank in ranks]
    for step in range(args.steps):
        points = torch.cat([torch.rand(16, 2, generator=stream) for stream in streams])
        targets = (points * torch.tensor([2.0, -1.0])).sum(1, keepdim=True) + 0.5
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(points), targets)
        loss.backward()
        for parameter in net.parameters():
            if job.ranks > 1:
                dist.all_reduce(parameter.grad)
                parameter.grad /= job.ranks
        optimizer.step()
        job.add_loss(0, step, loss)
    if job.rank == 0:
        print("weight", *(f"{value:.6f}" for value in net.weight[0].tolist()), "bias", f"{net.bias.item():.6f}")
    job.end(args.step_losses)


if __name__ == "__main__":
    main()
