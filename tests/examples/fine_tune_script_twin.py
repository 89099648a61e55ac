"""fine_tune_script in Python, for comparison: DistributedDataParallel around a TorchScript module."""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from cifar10_twin import read
from twin_job import TwinJob


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.Linear(4 * 14 * 14, 10)

    def forward(self, x):
        return self.fc(nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2).flatten(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--make", action="store_true", help="only write an initial model there")
    parser.add_argument("--compare-with", help="another program's trained model")
    parser.add_argument("--data-dir")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--step-losses")
    args = parser.parse_args()
    if args.make:
        torch.manual_seed(0)
        torch.jit.script(Net()).save(args.model)
        return
    job = TwinJob()
    script = torch.jit.load(args.model)
    script.train()
    train = read(os.path.join(args.data_dir, "data_batch_1.bin"))
    sampler = DistributedSampler(train, num_replicas=job.ranks, rank=job.rank, seed=0)
    loader = DataLoader(train, args.batch_size, sampler=sampler)
    model = job.model(script)
    optimizer = torch.optim.SGD(script.parameters(), args.lr, momentum=args.momentum)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            job.add_loss(epoch, step, loss)
    if job.rank == 0:
        theirs = torch.jit.load(args.compare_with).state_dict()
        for name, tensor in script.state_dict().items():
            print(name, "equal" if torch.equal(theirs[name], tensor) else "different")
    job.end(args.step_losses)


if __name__ == "__main__":
    main()
