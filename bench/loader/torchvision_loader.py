"""The same work as loader.cpp with PyTorch's DataLoader and torchvision's transforms: `torchvision_loader.py
[folder] WORKERS SECONDS FOLDER`. With `folder`, FOLDER is an image folder and pictures are cropped to 224 pixels."""

import pathlib
import sys
import time

import numpy
import torch
from PIL import Image
from torchvision import datasets, transforms


class Cifar10(torch.utils.data.Dataset):
    def __init__(self, folder):
        files = sorted(pathlib.Path(folder).glob("data_batch_*.bin"))
        records = numpy.concatenate([numpy.fromfile(file, numpy.uint8).reshape(-1, 3073) for file in files])
        self.labels = records[:, 0].astype(int)
        self.images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy()
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
            ]
        )

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def image_folder(root):
    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    steps.append(transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    return datasets.ImageFolder(root, transforms.Compose(steps))


def main():
    is_folder = sys.argv[1] == "folder"
    workers, seconds, root = int(sys.argv[-3]), float(sys.argv[-2]), sys.argv[-1]
    torch.set_num_threads(1)
    dataset, batch_size = (image_folder(root), 32) if is_folder else (Cifar10(root), 128)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    sum(len(target) for _, target in loader)
    images, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        images += sum(len(target) for _, target in loader)
    print(images / (time.monotonic() - start))


main()
