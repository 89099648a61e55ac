"""Makes a failing description smaller: one thing after another is left out for as long as it still fails alike."""

import copy
import time

# What an entry is set to where a training does without it.
SIMPLER = {
    ("hops",): None, ("join",): None, ("ema",): None, ("evaluate",): False, ("clip",): None, ("schedule",): None, ("scaler",): None,
    ("autocast",): None, ("hook",): None, ("frozen",): [], ("accumulate",): 1, ("zero_grad",): "none", ("backend",): "shm",
    ("loss",): "mse", ("optimizer", "second"): None, ("optimizer", "zero"): False, ("ddp", "bucket_cap_bytes"): 0, ("ddp", "views"): True,
    ("ddp", "python_views"): False, ("ddp", "own_engine"): None, ("ddp", "batched_grad_copy"): None, ("ddp", "lazy"): False,
    ("ddp", "broadcast_buffers"): True, ("ddp", "init_sync"): True, ("ddp", "auto_bucket"): False, ("ddp", "ignored"): [],
    ("freeze",): None, ("parameter_hooks",): [], ("ddp", "delayed"): None, ("ddp", "find_unused"): False, ("ddp", "static"): False,
}


def candidates(case):
    """Each is simpler in one thing, none in the other direction: this ends."""
    for path, value in SIMPLER.items():
        inner = case
        for key in path[:-1]:
            inner = inner[key]
        if inner[path[-1]] != value:
            smaller = copy.deepcopy(case)
            inner = smaller
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            yield smaller
    if case["ranks"] > 1:
        yield {**copy.deepcopy(case), "ranks": 1}
    if case["ranks"] > 2:
        yield {**copy.deepcopy(case), "ranks": 2}
    if case["data"]["kind"] != "drawn":
        yield {**copy.deepcopy(case), "data": {"kind": "drawn", "batch": case["data"]["batch"]}, "hops": None}
    for name in [name for name in case["optimizer"]["options"] if name != "lr"]:
        smaller = copy.deepcopy(case)
        del smaller["optimizer"]["options"][name]
        yield smaller
    if case["steps"] > 1 and not case["hops"]:
        yield {**copy.deepcopy(case), "steps": case["steps"] // 2}
    for number, layer in enumerate(case["layers"]):
        if layer["op"] == "region" and layer["save"]:
            smaller = copy.deepcopy(case)
            smaller["layers"][number]["save"] = []
            yield smaller
        if layer["op"] == "region":
            smaller = copy.deepcopy(case)
            smaller["layers"][number : number + 1] = smaller["layers"][number]["layers"]
            yield smaller
        if layer["op"] in ("dropout", "residual", "scale", "layer_norm", "cast", "again", "unused", "relu", "tanh", "sigmoid", "gelu", "silu",
                           "softplus", "leaky_relu"):
            smaller = copy.deepcopy(case)
            del smaller["layers"][number]
            yield smaller


def shrunk(case, what, verdict, is_alike, seconds):
    """The smallest case found within `seconds` for which `verdict` still is alike, and that verdict."""
    deadline = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for smaller in candidates(case):
            if time.monotonic() > deadline:
                return case, what
            other = verdict(smaller)
            if is_alike(other):
                case, what, found = smaller, other, True
                break
    return case, what
