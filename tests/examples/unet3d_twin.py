"""The 3D U-Net program as Python users write it, for comparison: alone or under ddprun, on the CPU, without augmentation."""

import argparse
import math
import os

import nibabel
import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from twin_job import TwinJob


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm3d(outputs), nn.ReLU(),
        nn.Conv3d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm3d(outputs), nn.ReLU())  # fmt: skip


class UNet3d(nn.Module):
    def __init__(self, width, levels=3):
        super().__init__()
        self.levels = levels
        inputs = 1
        for i in range(levels + 1):
            setattr(self, f"encoder{i}", block(inputs, width << i))
            inputs = width << i
        for i in range(levels):
            setattr(self, f"up{i}", nn.ConvTranspose3d(2 * (width << i), width << i, 2, stride=2))
            setattr(self, f"decoder{i}", block(2 * (width << i), width << i))
        self.head = nn.Conv3d(width, 1, 1)

    def forward(self, x):
        across = []
        for i in range(self.levels + 1):
            if i > 0:
                x = torch.max_pool3d(x, 2)
            x = getattr(self, f"encoder{i}")(x)
            across.append(x)
        for i in reversed(range(self.levels)):
            x = getattr(self, f"decoder{i}")(torch.cat([across[i], getattr(self, f"up{i}")(x)], 1))
        return self.head(x)


def loss_of(logits, target):
    truth = target.unsqueeze(1).float()
    found = torch.sigmoid(logits)
    sums = [values.flatten(1).sum(1) for values in (found * truth, found, truth)]
    dice = (2 * sums[0] + 1) / (sums[1] + sums[2] + 1)
    return nn.functional.binary_cross_entropy_with_logits(logits, truth) + (1 - dice).mean()


class Volumes(Dataset):
    def __init__(self, root, part):
        folders = [os.path.join(root, kind + part) for kind in ("images", "labels")]
        self.files = [[os.path.join(folder, name) for folder in folders] for name in sorted(os.listdir(folders[0]))]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        # nibabel's axes are x, y, z; ours depth, height, width.
        image, label = (np.asarray(nibabel.load(file).dataobj).T.copy() for file in self.files[i])
        image = image.astype(np.float32).astype(np.float64)
        image = (image - image.mean()) * (1 / math.sqrt(((image - image.mean()) ** 2).mean()))
        return torch.from_numpy(image.astype(np.float32))[None], torch.from_numpy(label.astype(np.int64))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--weights")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--warmup-epochs", type=int, default=1)
    parser.add_argument("--milestones", default="12,16")
    parser.add_argument("--step-losses")
    args = parser.parse_args()
    job = TwinJob()
    torch.manual_seed(0)
    net = UNet3d(args.width)
    if args.weights:
        net.load_state_dict(load_file(args.weights))
    train, validation = Volumes(args.data_dir, "Tr"), Volumes(args.data_dir, "Val")
    sampler = DistributedSampler(train, num_replicas=job.ranks, rank=job.rank, seed=0)
    loader = DataLoader(train, args.batch_size, sampler=sampler)
    lr = args.lr * job.ranks
    optimizer = torch.optim.Adam(net.parameters(), lr)
    steps = len(loader)
    scheduler = torch.optim.lr_scheduler.ChainedScheduler([
        torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / job.ranks, total_iters=args.warmup_epochs * steps),
        torch.optim.lr_scheduler.MultiStepLR(optimizer, [int(m) * steps for m in args.milestones.split(",")]),
    ])  # fmt: skip
    model = job.model(net)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        net.train()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            job.add_loss(epoch, len(job.rows) + 1, loss)
        net.eval()
        if job.rank == 0:
            with torch.no_grad():
                both = size = 0
                for image, label in validation:
                    found = torch.sigmoid(net(image[None]))[0, 0] > 0.5
                    both += int((found & (label == 1)).sum())
                    size += int(found.sum()) + int(label.sum())
            print(f"epoch {epoch}: dice {2 * both / max(size, 1):.4f}")
    job.end(args.step_losses)


main()
