"""toy_linear in Python, for comparison."""

import argparse

import torch
from torch import nn
from torch.utils.data import DistributedSampler

from twin_job import TwinJob


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--step-losses")
    args = parser.parse_args()
    job = TwinJob()
    data = torch.tensor([1.0, 2.0, 3.0, 4.0])
    sampler = DistributedSampler(data, num_replicas=job.ranks, rank=job.rank)
    torch.manual_seed(0)
    net = nn.Linear(1, 1)
    model = job.model(net)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        x = data[list(sampler)].unsqueeze(1)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), 2 * x + 1)
        loss.backward()
        optimizer.step()
        job.add_loss(epoch, epoch, loss)
    if job.rank == 0:
        print("weight", f"{net.weight.item():.9g}", "bias", f"{net.bias.item():.9g}")
    job.end(args.step_losses)


if __name__ == "__main__":
    main()
