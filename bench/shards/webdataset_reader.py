"""Reads archives of samples once with webdataset from PyPI: webdataset_reader.py PATTERN WORKERS prints samples per
second."""

import sys
import time

import torch
import webdataset


def size_and_class(sample):
    return torch.tensor(float(len(sample["bin"]))), torch.tensor(int(sample["cls"]))


def main():
    dataset = webdataset.WebDataset(sys.argv[1], shardshuffle=False, empty_check=False).shuffle(100).map(size_and_class).batched(16)
    loader = webdataset.WebLoader(dataset, num_workers=int(sys.argv[2]), batch_size=None)
    begin = time.monotonic()
    samples = sum(len(target) for _, target in loader)
    print(samples / (time.monotonic() - begin))


main()
