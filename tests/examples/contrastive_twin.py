"""The SimCLR program as Python users write it, for comparison: alone or under ddprun, on the CPU. Its views are drawn by the C++ program's
random numbers, so that weights and losses can have the same bits."""

import argparse
import json
import math
import os

import torch
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from twin_job import TwinJob

# all_gather_single is its name since 2.15; the gradient was in a function of its own before.
all_gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor_autograd
MASK = 2**64 - 1


def mix(value):
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


class SampleRandom:
    def __init__(self, seed, epoch, index):
        self.state = mix(mix(mix(seed) ^ epoch) ^ index)

    def bits(self):
        self.state = mix(self.state)
        return self.state

    def uniform(self, least=0.0, most=1.0):
        return least + (most - least) * ((self.bits() >> 11) * 2.0**-53)

    def below(self, count):
        return (self.bits() >> 32) * count >> 32


def view(image, random):
    size = image.shape[1]
    side = round(size * math.sqrt(random.uniform(0.25, 1)))
    top, left = random.below(size - side + 1), random.below(size - side + 1)
    part = image[None, :, top : top + side, left : left + side]
    image = nn.functional.interpolate(part, size=(size, size), mode="bilinear", align_corners=False)[0] * random.uniform(0.6, 1.4)
    return image.flip(-1) if random.uniform() < 0.5 else image


class TwoViews(Dataset):
    def __init__(self, file, seed):
        with open(file, "rb") as binary:
            records = torch.frombuffer(bytearray(binary.read()), dtype=torch.uint8).view(-1, 3073)
        self.images = records[:, 1:].reshape(-1, 3, 32, 32) / 255
        self.seed, self.epoch = seed, 0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return [view(self.images[index], SampleRandom(2 * self.seed + i, self.epoch, index)) for i in (0, 1)]


class ContrastiveNet(nn.Module):
    def __init__(self, features=128, embedding=32):
        super().__init__()

        layers = []
        for inputs, outputs in ((3, 32), (32, 64), (64, features)):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU()]
        self.encoder = nn.Sequential(*layers)
        self.projector = nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, embedding))

    def forward(self, images):
        return self.projector(self.encoder(images).mean((2, 3)))


def contrastive_loss(embeddings, temperature, job):
    own = nn.functional.normalize(embeddings)
    all_views = all_gather(own, 0, torch.distributed.group.WORLD) if job.ranks > 1 else own
    count = len(own)
    row = torch.arange(count)
    self_of, other = row + job.rank * count, (row + count // 2) % count + job.rank * count
    similarities = own.mm(all_views.t()) / temperature
    return nn.functional.cross_entropy(similarities.scatter(1, self_of[:, None], -math.inf), other)


def save(net, path):
    """As safetensors."""
    header, content = {}, b""
    for name, tensor in net.state_dict().items():
        piece = tensor.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(content), len(content) + len(piece)]}
        content += piece
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + content)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--temperature", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step-losses")
    parser.add_argument("--weights", help="where the weights go")
    args = parser.parse_args()
    job = TwinJob()
    torch.manual_seed(args.seed)
    net = ContrastiveNet()
    model = job.model(net)
    optimizer = torch.optim.SGD(net.parameters(), args.lr, momentum=args.momentum)
    views = TwoViews(os.path.join(args.data_dir, "data_batch_1.bin"), args.seed)
    sampler = DistributedSampler(views, num_replicas=job.ranks, rank=job.rank, seed=args.seed)
    loader = DataLoader(views, args.batch_size, sampler=sampler, drop_last=True)
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        views.epoch = epoch
        for first, second in loader:
            optimizer.zero_grad()
            loss = contrastive_loss(model(torch.cat([first, second])), args.temperature, job)
            loss.backward()
            optimizer.step()
            job.add_loss(epoch, step, loss)
            step += 1
    if job.rank == 0 and args.weights:
        save(net, args.weights)
    job.end(args.step_losses)


if __name__ == "__main__":
    main()
