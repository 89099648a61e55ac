"""Hosts stores as a launcher does, one for each line read, which is its address; prints its port. Ends with its input."""

import sys

import torch.distributed as dist

stores = []
for line in sys.stdin:
    stores.append(dist.TCPStore(line.strip(), 0, is_master=True, wait_for_workers=False))
    print(stores[-1].port, flush=True)
