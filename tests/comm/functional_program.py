"""The twin of functional_program.cpp: functional_program.py CASES RESULT."""

import json
import os
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as of_nn

warnings.filterwarnings("ignore")
REDUCTIONS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
SINGLE = {name: getattr(functional, name + ("_single" if hasattr(functional, name + "_single") else "_tensor")) for name in ("all_gather", "reduce_scatter")}
GATHER_LIST = getattr(functional, "all_gather_single_coalesced", None) or functional.all_gather_into_tensor_coalesced
SCATTER_LIST = getattr(functional, "reduce_scatter_single_coalesced", None) or functional.reduce_scatter_tensor_coalesced


def plain(tensor):
    return functional.wait_tensor(tensor) if isinstance(tensor, functional.AsyncCollectiveTensor) else tensor


def leaf_of(leaf):
    number = torch.arange(torch.Size(leaf["shape"]).numel())
    whole = (number * 7919 + dist.get_rank() * 104729 + leaf["seed"] * 31).remainder(leaf["range"]) - leaf["range"] // 2
    values = whole.double() / 8
    if leaf["nan"]:
        values = torch.where((number + dist.get_rank()) % leaf["nan"] == 0, float("nan"), values)
    return values.view(leaf["shape"]).to(getattr(torch, leaf["dtype"])).requires_grad_(leaf["grad"])


class Contiguous(torch.autograd.Function):
    """torch.distributed.nn sends tensors and gradients as they are in memory, whose order may differ between ranks."""

    @staticmethod
    def forward(context, tensor):
        return tensor.contiguous().clone()

    @staticmethod
    def backward(context, gradient):
        return gradient.contiguous()


def outputs_with_root(step, of):
    op, size, rank = step["op"], dist.get_world_size(), dist.get_rank()
    if op == "broadcast":
        return [of_nn.broadcast(of[0], step["root"])]
    if op == "reduce":
        # What Python leaves on the other ranks is unspecified; zeros with the same gradient here.
        reduced = of_nn.reduce(of[0], step["root"], REDUCTIONS[step["reduction"]])
        return [reduced if rank == step["root"] else reduced.masked_fill(torch.ones_like(reduced, dtype=torch.bool), 0)]
    if op == "gather":
        return [torch.cat(of_nn.gather(of[0], step["root"]))]
    return [of_nn.scatter([part.contiguous() for part in of[0].chunk(size)], step["root"])]


def outputs_of(step, values):
    of = [values[i] for i in step["of"]]
    if step["op"] in ("broadcast", "reduce", "gather", "scatter"):
        return [Contiguous.apply(output) for output in outputs_with_root(step, [Contiguous.apply(of[0])])]
    group, op, reduction, rank = dist.group.WORLD, step["op"], step["reduction"], dist.get_rank()
    if op == "all_reduce":
        return [functional.all_reduce(of[0], reduction, group)]
    if op in SINGLE:
        return [SINGLE[op](of[0], *([reduction] if op == "reduce_scatter" else []), step["dim"], group)]
    if op == "all_to_all":
        return [functional.all_to_all_single(of[0], None, None, group)]
    if op == "all_to_all_split":
        sent = step["splits"]
        return [functional.all_to_all_single(of[0], [row[rank] for row in sent], sent[rank], group)]
    if op == "all_reduce_coalesced":
        return functional.all_reduce_coalesced(of, reduction, group)
    if op == "all_gather_coalesced":
        return GATHER_LIST(of, group)
    if op == "reduce_scatter_coalesced":
        return SCATTER_LIST(list(of), reduction, [0] * len(of), group)
    if op == "multiply":
        return [of[0] * of[1]]
    if op == "tanh":
        return [of[0].tanh()]
    if op == "transpose":
        return [of[0].transpose(0, -1)]
    return [of[0].unsqueeze(0).expand_as(of[1])]


def weighted_sum(tensors):
    total, weight = torch.zeros((), dtype=torch.double), 0.5
    for tensor in tensors:
        if tensor is not None:
            total = total + (tensor * tensor).sum().double() * weight
        weight += 0.25
    return total


def run(spec):
    values = [leaf_of(leaf) for leaf in spec["leaves"]]
    leaves = [value for value in values if value.requires_grad]
    for step in spec["steps"]:
        values += [plain(value) for value in outputs_of(step, values)]
    results = list(values)
    gradients = torch.autograd.grad(weighted_sum(values), leaves, create_graph=spec["second"], allow_unused=True)
    results += gradients
    if spec["second"]:
        results += torch.autograd.grad(weighted_sum(gradients), leaves, allow_unused=True)
    return results


def as_json(tensors):
    result = []
    for tensor in tensors:
        if tensor is None:
            result.append(None)
            continue
        tensor = plain(tensor).detach().contiguous()
        tensor = tensor.masked_fill(tensor.isnan(), float("nan"))  # sums may give any
        data = bytes(tensor.flatten().view(torch.uint8).tolist()) if tensor.numel() else b""
        result.append({"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "bytes": data.hex()})
    return result


def main():
    cases = json.loads(pathlib.Path(sys.argv[1]).read_text())
    dist.init_process_group("gloo")
    results = []
    for spec in cases["programs"]:
        try:
            results.append(as_json(run(spec)))
        except RuntimeError:
            if not spec["fails"]:
                raise
            results.append("error")
    pathlib.Path(sys.argv[2]).write_text(json.dumps(results))
    dist.destroy_process_group()
    # Without taking the interpreter down, in which torch 2.15 aborts at times: a thread of its own is still there.
    os._exit(0)


if __name__ == "__main__":
    main()
