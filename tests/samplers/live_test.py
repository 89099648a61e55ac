"""The samplers' orders against PyTorch's own, for cases made up at random: `CASES` of them (default 10,000)."""

import math
import os
import random
import subprocess
import sys
import unittest
import warnings

try:
    import torch
    from torch.utils.data import DistributedSampler, RandomSampler, WeightedRandomSampler, random_split
except ImportError:
    print("skipped: this Python has no torch")
    sys.exit(77)

CASES = int(os.environ.get("CASES", "10000"))
SEED = 20250711


def generator(seed):
    made = torch.Generator()
    made.manual_seed(seed)
    return made


def seed_of(source):
    return source.choice([source.randrange(100), source.randrange(2**32), source.randrange(2**63)])


def distributed(source):
    n = source.choice([source.randrange(1, 40), source.randrange(1, 300)])
    world = source.randrange(1, 12)
    rank = source.randrange(world)
    shuffle, drop_last = source.random() < 0.8, source.random() < 0.5
    seed, epoch = seed_of(source) % 2**62, source.randrange(50)
    sampler = DistributedSampler(range(n), world, rank, shuffle, seed, drop_last)
    sampler.set_epoch(epoch)
    return f"distributed {n} {world} {rank} {int(shuffle)} {int(drop_last)} {seed} {epoch}", list(sampler)


def uniform(source):
    n = source.choice([source.randrange(1, 50), source.randrange(2**27, 2**40)])
    replacement = n > 1000 or source.random() < 0.5
    count, seed = source.randrange(1, 120), seed_of(source)
    sampler = RandomSampler(range(n), replacement, count, generator(seed))
    return f"random {n} {count} {int(replacement)} {seed}", list(sampler)


def weighted(source):
    n = source.randrange(1, 40)
    weights = [source.choice([0.0, 1.0, source.random(), source.expovariate(0.01)]) for _ in range(n - 1)] + [0.5]
    replacement = source.random() < 0.5
    positive = sum(weight > 0 for weight in weights)
    count, seed = source.randrange(1, (100 if replacement else positive) + 1), seed_of(source)
    sampler = WeightedRandomSampler(weights, count, replacement, generator(seed))
    text = " ".join(repr(weight) for weight in weights)
    return f"weighted {count} {int(replacement)} {seed} {n} {text}", list(sampler)


def split(source):
    n, seed, parts = source.randrange(1, 200), seed_of(source), source.randrange(2, 6)
    cuts = sorted(source.randrange(n + 1) for _ in range(parts - 1))
    numbers = [end - begin for begin, end in zip([0] + cuts, cuts + [n])]
    if sum(numbers) == 1 or source.random() < 0.5:  # whole numbers whose sum is 1 are fractions to Python
        # Fractions of one decimal often add up to 1 only as Python's sum() does it.
        numbers = source.choice([[number / n for number in numbers], [0.7, 0.2, 0.1], [0.1] * 10, [0.15, 0.35, 0.5]])
        if not (math.isclose(sum(numbers), 1) and sum(numbers) <= 1 and any(number % 1 for number in numbers)):
            numbers = [0.7, 0.3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parts without a sample
        parts = random_split(range(n), numbers, generator(seed))
    text = " ".join(repr(number) for number in numbers)
    return f"split {n} {seed} {len(numbers)} {text}", [index for part in parts for index in [*part.indices, -1]]


class Live(unittest.TestCase):
    def test_every_order_equals_pytorchs(self):
        source = random.Random(SEED)
        kinds = [distributed] * 7 + [split, uniform, weighted]
        cases = [source.choice(kinds)(source) for _ in range(CASES)]
        result = subprocess.run(
            [os.environ["PROGRAM"]], input="\n".join(case for case, _ in cases) + "\n", stdout=subprocess.PIPE,
            universal_newlines=True, check=True, timeout=100)
        lines = result.stdout.split("\n")[:-1]
        self.assertEqual(len(lines), CASES)
        for line, (case, order) in zip(lines, cases):
            self.assertEqual([int(word) for word in line.split()], order, case)
        print(f"{CASES} orders equal those of torch {torch.__version__}")


unittest.main()
