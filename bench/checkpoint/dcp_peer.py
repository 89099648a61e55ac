"""The same measurements as sharded_speed.cpp with torch.distributed.checkpoint: dcp_peer.py FOLDER TENSORS KIB KIND,
started by ddprun. Rank 0 prints "metric|value" lines: seconds, the best of three."""

import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

folder, tensors, kibibytes, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("gloo")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(tensors):
            self.register_parameter(f"weight{i}", torch.nn.Parameter(torch.full((kibibytes, 256), float(i))))


def measured(action):
    dist.barrier()
    begin = time.perf_counter()
    action()
    dist.barrier()
    return time.perf_counter() - begin


model = Model()
state = {"model": model.state_dict()}
if kind == "sharded":
    model = fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optimizer_state}
save = load = 1e9
for round in range(3):
    path = f"{folder}/dcp-{round}"
    save = min(save, measured(lambda: dcp.save(state, checkpoint_id=path)))
    load = min(load, measured(lambda: dcp.load(state, checkpoint_id=path)))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(path)
if dist.get_rank() == 0:
    print(f"save|{save}\nload|{load}", flush=True)
dist.destroy_process_group()
