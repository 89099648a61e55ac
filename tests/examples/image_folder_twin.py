"""The image-folder program as Python users write it, for comparison: alone or under ddprun, on the CPU."""

import argparse
import math
import os
import pathlib
import sys

import torch
from PIL import Image
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from resnet import ResNet  # noqa: E402
from twin_job import TwinJob  # noqa: E402


def make_net(name, classes):
    net = ResNet({"resnet18": [2, 2, 2, 2], "resnet34": [3, 4, 6, 3]}[name], classes)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net


def split(root, ratio, seed):
    """The files and labels for training and for validation: a part of each class, chosen by the seed."""
    train, validation = [], []
    for label, name in enumerate(sorted(os.listdir(root))):
        files = sorted(os.path.join(root, name, file) for file in os.listdir(os.path.join(root, name)))
        order = torch.randperm(len(files), generator=torch.Generator().manual_seed(seed + label)).tolist()
        taken = set(order[: int(len(files) * ratio)])
        for i, file in enumerate(files):
            (validation if i in taken else train).append((file, label))
    return train, validation


class Pictures(Dataset):
    def __init__(self, files, size):
        self.files, self.size, self.side = files, size, size * 256 // 224

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        file, label = self.files[i]
        picture = Image.open(file).convert("RGB")
        width, height = picture.size
        least = min(width, height)
        scaled = [self.side if side == least else self.side * side // least for side in (width, height)]
        picture = picture.resize(scaled, Image.BILINEAR)
        left, top = (round((side - self.size) / 2.0) for side in scaled)
        picture = picture.crop((left, top, left + self.size, top + self.size))
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(self.size, self.size, 3)
        values = pixels.permute(2, 0, 1).contiguous().float().div(255)
        mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        return (values - mean[:, None, None]) / deviation[:, None, None], label


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-path")
    parser.add_argument("--net", default="resnet34")
    parser.add_argument("--weights")
    parser.add_argument("--make-weights", type=int, help="only write initial weights for so many classes there")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--lrf", type=float, default=0.1)
    parser.add_argument("--val-ratio", type=float, default=0.2)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--step-losses")
    parser.add_argument("--freeze-layers", action="store_true")
    parser.add_argument("--syncBN", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.make_weights:
        torch.save(make_net(args.net, args.make_weights).state_dict(), args.weights)
        return
    job = TwinJob()
    train, validation = split(args.data_path, args.val_ratio, 0)
    classes = len({label for _, label in train})
    sampler = DistributedSampler(train, num_replicas=job.ranks, rank=job.rank, seed=0)
    batches = BatchSampler(sampler, args.batch_size, drop_last=True)
    loader = DataLoader(Pictures(train, args.image_size), batch_sampler=batches)

    net = make_net(args.net, classes)
    known = torch.load(args.weights)
    own = net.state_dict()
    net.load_state_dict({k: v for k, v in known.items() if own[k].shape == v.shape}, strict=False)
    if args.freeze_layers:
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(name.startswith("fc."))
    model = job.model(net)
    lr = args.lr * job.ranks
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr, momentum=0.9, weight_decay=0.005)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda x: ((1 + math.cos(x * math.pi / args.epochs)) / 2) * (1 - args.lrf) + args.lrf
    )
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        net.train()
        for step, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            job.add_loss(epoch, step, loss)
            optimizer.step()
        scheduler.step()
        net.eval()
        with torch.no_grad():
            right = sum(int(net(x[None]).argmax() == y) for x, y in Pictures(validation, args.image_size)) if job.rank == 0 else 0
        if job.rank == 0:
            print(f"[epoch {epoch}] accuracy: {round(right / max(len(validation), 1), 3)}")
    job.end(args.step_losses)


if __name__ == "__main__":
    main()
