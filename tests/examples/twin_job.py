"""A Python twin's place in its job, which joins gloo where there are several ranks, and the file of its losses."""

import csv
import os
import sys

import torch.distributed as dist
from torch import nn


class TwinJob:
    def __init__(self):
        self.ranks, self.rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
        self.rows = []
        if self.ranks > 1:
            dist.init_process_group("gloo")

    def model(self, net):
        return nn.parallel.DistributedDataParallel(net) if self.ranks > 1 else net

    def sharded_model(self, net, block):
        """Divided over the ranks, of which there are several; each module of the class `block` is a unit."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (self.ranks,))
        for module in [*(each for each in net.modules() if isinstance(each, block)), net]:
            fully_shard(module, mesh=mesh)
        return net

    def add_loss(self, epoch, step, loss):
        """The mean over all ranks, all of which call it."""
        of_all = loss.detach().clone()
        if self.ranks > 1:
            dist.all_reduce(of_all)
            of_all /= self.ranks
        self.rows.append((epoch, step, of_all.item()))

    def end(self, losses_file):
        """The last that a twin calls: several ranks' processes end here."""
        if self.rank == 0 and losses_file:
            with open(losses_file, "w", newline="") as file:
                csv.writer(file).writerows([("epoch", "step", "loss"), *self.rows])
        if self.ranks > 1:
            dist.destroy_process_group()
            # Without taking the interpreter down, in which torch aborts at times: a thread of its own is still there.
            sys.stdout.flush()
            os._exit(0)
