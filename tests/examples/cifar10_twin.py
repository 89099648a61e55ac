"""The CIFAR-10 program as Python users write it, for comparison: alone or under ddprun, on the CPU."""

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from twin_job import TwinJob


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(16 * 5 * 5, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def read(file):
    with open(file, "rb") as binary:
        records = torch.frombuffer(bytearray(binary.read()), dtype=torch.uint8).view(-1, 3073)
    return TensorDataset((records[:, 1:].reshape(-1, 3, 32, 32) / 255 - 0.5) / 0.5, records[:, 0].long())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir")
    parser.add_argument("--pretrained")
    parser.add_argument("--make-weights", action="store_true", help="only write initial weights there")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--step-losses")
    args = parser.parse_args()
    torch.manual_seed(0)
    net = LeNet()
    if args.make_weights:
        torch.save(net.state_dict(), args.pretrained)
        return
    net.load_state_dict(torch.load(args.pretrained))
    job = TwinJob()
    train, test = (read(os.path.join(args.data_dir, name)) for name in ("data_batch_1.bin", "test_batch.bin"))
    sampler = DistributedSampler(train, num_replicas=job.ranks, rank=job.rank, seed=0)
    loader = DataLoader(train, args.batch_size, sampler=sampler)
    model = job.model(net)
    optimizer = torch.optim.SGD(net.parameters(), args.lr, momentum=args.momentum)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            job.add_loss(epoch, step, loss)
        if job.rank == 0:
            with torch.no_grad():
                right = sum(int((net(images).argmax(1) == labels).sum()) for images, labels in DataLoader(test, 50))
            print(f"epoch {epoch}: right {right} of {len(test)}")
    job.end(args.step_losses)


if __name__ == "__main__":
    main()
