"""The twin of fsdp_program.cpp: fsdp_program.py CASES RESULT."""

import json
import math
import os
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard

warnings.filterwarnings("ignore")


def values_of(shape, seed, divisor):
    number = torch.arange(math.prod(shape))
    return ((number * 7919 + seed * 104729).remainder(2001) - 1000).double().div(divisor).float().view(shape)


class Part(torch.nn.Module):
    def __init__(self, inputs, outputs, has_bias):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = torch.nn.Parameter(torch.zeros(outputs)) if has_bias else None

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight, self.bias)


class Layer(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.kind, self.c = spec["kind"], None
        if self.kind in ("embedding", "norm"):
            self.weight = torch.nn.Parameter(torch.zeros(spec["out"]) if self.kind == "norm" else torch.zeros(spec["in"], spec["out"]))
            if self.kind == "norm":
                self.bias = torch.nn.Parameter(torch.zeros(spec["out"]))
            return
        self.a = Part(spec["in"], spec["out"], spec["bias"])
        if self.kind == "block":
            self.c = Part(spec["out"], spec["out"], spec["bias"])
        if self.kind == "unused":
            self.unused = torch.nn.Parameter(torch.zeros(spec["out"]))

    def forward(self, x):
        if self.kind == "embedding":
            return torch.nn.functional.embedding(x, self.weight)
        if self.kind == "norm":
            return torch.nn.functional.layer_norm(x, (self.weight.shape[0],), self.weight, self.bias)
        hidden = self.a(x).relu()
        return hidden + self.c(hidden).relu() if self.c is not None else hidden


class Net(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.order = []
        for layer in spec["layers"]:
            if layer["kind"] == "again":
                self.order.append(self.order[layer["layer"]])
                continue
            name = f"l{len(self.order)}"
            self.add_module(name, Layer(layer))
            self.order.append(name)
        self.head = Part(spec["width"], 3, True) if spec["head"] else None
        with torch.no_grad():
            for seed, (name, parameter) in enumerate(self.named_parameters(), spec["seed"]):
                parameter.copy_(values_of(parameter.shape, seed, 3000 if "bias" not in name else 10000))
                parameter.requires_grad_(name not in spec["frozen"])

    def forward(self, x):
        for name in self.order:
            x = getattr(self, name)(x)
        return self.head(x) if self.head is not None else x


def apply_settings(net, spec):
    units = [module for module in net.modules() if isinstance(module, FSDPModule)]
    for unit in units:
        if spec["divide"] is not None:
            unit.set_gradient_divide_factor(spec["divide"])
        unit.set_force_sum_reduction_for_comms(spec["only_sums"])
    net.set_reduce_scatter_unused_params(spec["reduce_unused"])
    if spec["reshard_all"] is not None:
        net.set_reshard_after_forward(spec["reshard_all"])
    for name, reshards in spec["unit_reshard"]:
        net.get_submodule(name).set_reshard_after_forward(reshards, recurse=False)
    for name in spec["no_unshard"]:
        net.get_submodule(name).set_unshard_in_backward(False)
    for name, others in spec["forward_prefetch"]:
        net.get_submodule(name).set_modules_to_forward_prefetch([net.get_submodule(other) for other in others])
    for name, others in spec["backward_prefetch"]:
        net.get_submodule(name).set_modules_to_backward_prefetch([net.get_submodule(other) for other in others])


def run(spec):
    rank, size = dist.get_rank(), dist.get_world_size()
    net = Net(spec)
    replicas = spec["replicas"]
    mesh = init_device_mesh("cpu", (replicas, size // replicas), mesh_dim_names=("replicate", "shard")) if replicas else init_device_mesh("cpu", (size,))
    dtypes = {key: getattr(torch, value) for key, value in spec["policy"].items()}
    # Ours is of the whole model; Python's would be of each unit.
    of_output = {"output_dtype": dtypes.pop("output_dtype")} if "output_dtype" in dtypes else {}
    options = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(**dtypes)}
    named = dict(net.named_parameters())
    ignored = [named[name] for name in named if name in spec["ignored"]]
    options["ignored_params"] = set(ignored)
    if spec["offload"]:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if spec["reshard_after_forward"] is not None:
        options["reshard_after_forward"] = spec["reshard_after_forward"]
    # From the inside to the outside.
    for names in sorted(spec["units"], key=lambda names: -names[0].count(".")):
        modules = [net.get_submodule(name) for name in names]
        fully_shard(modules if len(modules) > 1 else modules[0], **options)
    fully_shard(net, **options | {"mp_policy": MixedPrecisionPolicy(**dtypes, **of_output)})
    apply_settings(net, spec)
    shards = [parameter for name, parameter in net.named_parameters() if name not in spec["ignored"]]
    if spec["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(shards, 0.1, momentum=0.9, weight_decay=0.01)
    else:
        optimizer = torch.optim.AdamW(shards, 0.01, fused=True)

    def data(step, micro):
        seed = 1000 + step * 64 + micro * 16 + rank
        if spec["layers"][0]["kind"] != "embedding":
            return values_of((spec["batch"], spec["layers"][0]["in"]), seed, 900)
        return (torch.arange(spec["batch"]) * 7 + seed).remainder(spec["layers"][0]["in"])

    def forward(step, micro):
        net.set_reshard_after_backward(spec["reshards"])
        x = data(step, micro)
        if spec["input_grad"] and x.is_floating_point():
            x.requires_grad_()
        y = net(x)
        return (y * y).float().mean()

    def backward(loss, micro):
        is_last = micro + 1 == spec["micro"]
        net.set_requires_gradient_sync(is_last or spec["accumulate"] != "keep")
        net.set_requires_all_reduce(is_last or spec["accumulate"] != "partial")
        net.set_is_last_backward(is_last or not spec["says_last"])
        loss.backward()

    results = []
    for step in range(spec["steps"]):
        optimizer.zero_grad()
        for unit, is_async in spec["unshard"]:
            net.get_submodule(unit).unshard(async_op=is_async)
        losses = []
        for micro in range(spec["micro"]):
            losses.append(forward(step, micro))
            if not spec["interleaved"]:
                backward(losses[-1], micro)
        if spec["interleaved"]:
            for micro, loss in enumerate(losses):
                backward(loss, micro)
        results += [loss.detach() for loss in losses]
        if spec["evaluates"]:
            with torch.no_grad():
                results.append(net(data(step, 3)).float().sum())
        if spec["evaluates"] or not spec["reshards"]:  # else Python would use the old root after the step
            for module in net.modules():
                if hasattr(module, "reshard"):
                    module.reshard()
        if spec["clip"]:
            results.append(torch.nn.utils.clip_grad_norm_(shards, spec["clip"], spec["norm_type"] or math.inf).full_tensor())
        optimizer.step()
    for parameter in shards:
        results.append(parameter.to_local().detach())
        results.append(parameter.grad.to_local() if parameter.grad is not None else torch.ones(0))
    for parameter in ignored:
        results.append(parameter.detach())
        results.append(parameter.grad if parameter.grad is not None else torch.ones(0))
    return results


def as_json(tensors):
    result = []
    for tensor in tensors:
        tensor = tensor.detach().contiguous()
        data = bytes(tensor.flatten().view(torch.uint8).tolist()) if tensor.numel() else b""
        result.append({"shape": list(tensor.shape), "bytes": data.hex()})
    return result


def main():
    torch.set_num_threads(1)
    cases = json.loads(pathlib.Path(sys.argv[1]).read_text())
    dist.init_process_group("gloo")
    results = [as_json(run(spec)) for spec in cases["programs"]]
    pathlib.Path(sys.argv[2]).write_text(json.dumps(results))
    dist.destroy_process_group()
    # Without taking the interpreter down, in which torch 2.15 aborts at times: a thread of its own is still there.
    os._exit(0)


if __name__ == "__main__":
    main()
