"""The twin of mesh_program.cpp: mesh_program.py CASES RESULT."""

import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def facts_of(cases):
    names = list(cases["names"])
    mesh = init_device_mesh("cpu", tuple(cases["shape"]), mesh_dim_names=tuple(names))
    facts = {"coordinate": list(mesh.get_coordinate()), "ranks": mesh.mesh.flatten().tolist()}
    groups = {name: mesh.get_group(name) for name in names}
    if cases["flatten"]:
        part = mesh[tuple(cases["flatten"])]
        facts["slice"] = {"coordinate": list(part.get_coordinate()), "ranks": part.mesh.flatten().tolist()}
        for flat in (part._flatten(), part._flatten("again")):
            groups[flat.mesh_dim_names[0]] = flat.get_group()
    for number in range(cases["rounds"]):
        for name, group in groups.items():
            tensor = torch.full((3,), dist.get_rank() * (number + 1.0), dtype=torch.double)
            dist.all_reduce(tensor, group=group)
            gathered = torch.empty(dist.get_world_size(group), dtype=torch.double)
            dist.all_gather_into_tensor(gathered, torch.full((1,), float(dist.get_rank()), dtype=torch.double), group=group)
            facts.setdefault(name, []).append({"rank": dist.get_rank(group), "sum": tensor[0].item(), "gathered": gathered.tolist()})
    return facts


def main():
    cases = json.loads(pathlib.Path(sys.argv[1]).read_text())
    dist.init_process_group("gloo")
    pathlib.Path(sys.argv[2]).write_text(json.dumps(facts_of(cases)))
    dist.destroy_process_group()
    # Without taking the interpreter down, in which torch 2.15 aborts at times: a thread of its own is still there.
    os._exit(0)


if __name__ == "__main__":
    main()
