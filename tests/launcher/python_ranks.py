"""Ranks in Python that hang: `python_ranks.py FAULT RANK [import]`. They train with gloo; in step 3 the rank does what FAULT says."""

import os
import sys

FAULT, CULPRIT = sys.argv[1], int(sys.argv[2])
if sys.argv[3:] == ["import"]:
    import ddprun  # noqa: F401

import fcntl
import signal
import threading
import time

import torch
import torch.distributed as dist

STEP, STEPS = 3, 6
FOLDER = os.environ["DDPRUN_TEST_FOLDER"]
LOCK = threading.Lock()


class Samples(torch.utils.data.Dataset):
    def __init__(self, hangs):
        self.hangs = hangs

    def __len__(self):
        return 100

    def __getitem__(self, index):
        if self.hangs and index == STEP:
            read_sample()
        return torch.ones(4)


def read_sample():
    time.sleep(3600)


def sleep():
    time.sleep(3600)


def loop():
    while True:
        pass


def wait_for_input():
    read_end, _write_end = os.pipe()
    os.dup2(read_end, 0)
    input()


def wait_for_lock():
    with LOCK:
        LOCK.acquire()


def read_blocked_file():
    path = os.path.join(FOLDER, "fifo")
    os.mkfifo(path)
    with open(path) as file:  # nobody writes
        file.read()


def wait_for_file_lock():
    with open(os.path.join(FOLDER, "lock"), "w") as file:
        if os.fork() == 0:
            time.sleep(3600)
        with open(file.name) as other:
            fcntl.flock(file, fcntl.LOCK_EX)
            fcntl.flock(other, fcntl.LOCK_EX)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def end():
    os._exit(0)


def other_collective(value):
    dist.all_gather([torch.zeros(8) for _ in range(dist.get_world_size())], torch.zeros(8))
    return value


FAULTS = {"sleep": sleep, "loop": loop, "input": wait_for_input, "lock": wait_for_lock, "file": read_blocked_file,
          "file_lock": wait_for_file_lock, "stop": stop, "end": end}


def main():
    dist.init_process_group("gloo")
    last = dist.new_group()
    torch.set_num_threads(1)
    rank = dist.get_rank()
    is_culprit = rank == CULPRIT
    samples = Samples(is_culprit and FAULT == "worker")
    loader = iter(torch.utils.data.DataLoader(samples, num_workers=1) if FAULT == "worker" else samples)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    value = torch.ones(2)
    for step in range(STEPS):
        batch = next(loader)
        optimizer.zero_grad()
        net(batch).sum().backward()
        optimizer.step()
        if is_culprit and step == STEP and FAULT in FAULTS:
            FAULTS[FAULT]()
        if is_culprit and step == STEP and FAULT == "other_collective":
            value = other_collective(value)
        elif not (is_culprit and step == STEPS - 1 and FAULT == "too_few"):
            dist.all_reduce(value)
    dist.barrier(group=last)
    dist.destroy_process_group()


main()
