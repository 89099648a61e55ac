"""One rank of a training job whose every number is determined: the twin of parity_program.cpp, which says what it does.

    parity_program.py CASES FOLDER TIMEOUT_S
"""

import contextlib
import datetime
import math
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from resnet import ResNet  # noqa: E402


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2, 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2, 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def ResNet18():
    return ResNet([2, 2, 2, 2], 10)


# Small models, each about one feature, as in parity_program.cpp.
FEATURES = 8


def features(images):
    return images.flatten(1)[:, :FEATURES]


class Tiny200(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(FEATURES, 10)  # registered first, as in C++, where members are constructed first
        for i in range(200):
            self.add_module(f"layer{i}", nn.Linear(FEATURES, FEATURES))

    def forward(self, images):
        x = features(images)
        for i in range(200):
            x = x + torch.tanh(getattr(self, f"layer{i}")(x)) * 0.05
        return self.head(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(FEATURES, 10)
        self.first = nn.Linear(FEATURES, FEATURES)
        self.second = self.first

    def forward(self, images):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(features(images))))))


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.trained = nn.Linear(FEATURES, FEATURES)
        self.frozen = nn.Linear(FEATURES, FEATURES).requires_grad_(False)
        self.head = nn.Linear(FEATURES, 10)

    def forward(self, images):
        return self.head(torch.tanh(self.frozen(torch.tanh(self.trained(features(images))))))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn = 0
        self.first = nn.Linear(FEATURES, FEATURES)
        self.second = nn.Linear(FEATURES, FEATURES)
        self.third = nn.Linear(FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, 10)

    def forward(self, images):
        branch = [self.first, self.second, self.third][self.turn % 3]
        return self.head(torch.tanh(branch(features(images))))


class Static(nn.Module):
    def __init__(self):
        super().__init__()
        self.never = nn.Linear(FEATURES, FEATURES)
        self.twice = nn.Linear(FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, 10)

    def forward(self, images):
        return self.head(torch.tanh(self.twice(torch.tanh(self.twice(features(images))))))


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(FEATURES, 16)
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, images):
        return self.head(torch.tanh(self.norm(self.body(features(images)))))


class Sparse(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2 * FEATURES, 6, sparse=True)
        self.head = nn.Linear(6, 10)

    def forward(self, images):
        rows = (features(images) > 0).long() + torch.arange(FEATURES, device=images.device) * 2
        return self.head(self.table(rows).sum(1))


MODELS = {
    "lenet": LeNet,
    "resnet18": ResNet18,
    "tiny200": Tiny200,
    "tied": Tied,
    "frozen": Frozen,
    "branches": Branches,
    "static": Static,
    "normed": Normed,
    "sparse": Sparse,
}


def register_hook(model, name):
    # bf16 is refused without CUDA because of a check of NCCL's version, which gloo does not need.
    model._check_comm_hook = lambda hook: None
    hooks = {
        "fp16": (None, default_hooks.fp16_compress_hook),
        "bf16": (None, default_hooks.bf16_compress_hook),
        "allreduce": (None, default_hooks.allreduce_hook),
        "fp16_wrapped": (None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
    }
    if name.startswith("power_sgd"):
        rank = int(name.removeprefix("power_sgd"))
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=5)
        hooks[name] = (state, powerSGD_hook.powerSGD_hook)
    if name in hooks:
        model.register_comm_hook(*hooks[name])


def read_cases(path):
    for line in pathlib.Path(path).read_text().splitlines():
        name, *words = line.split()
        yield name, dict(word.split("=") for word in words)


def generator(seed):
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def initialise(model, rank):
    random = generator(7 + rank)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            fan_in = parameter.numel() // parameter.size(0)
            parameter.copy_((torch.rand(parameter.shape, generator=random) * 2 - 1) / math.sqrt(fan_in))
        elif name.endswith("bias"):
            parameter.zero_()


def draw(step, part, size):
    random = generator(1_000_003 * step + 17 * part + 1)
    return torch.randn(size, 3, 32, 32, generator=random), torch.randint(0, 10, (size,), generator=random)


def save(model, path):
    tensors = [*model.parameters(), *model.buffers()]
    path.write_bytes(b"".join(tensor.detach().cpu().contiguous().numpy().tobytes() for tensor in tensors))


class WaitingDDP(nn.parallel.DistributedDataParallel):
    """Python's starts the reduction of delayed parameters and never waits for it."""

    def _delayed_all_reduce_hook(self, grad):
        self._delay_grad_buffer.div_(dist.get_world_size(self.process_group))
        self.delayed_work = dist.all_reduce(self._delay_grad_buffer, group=self.process_group, async_op=True)
        return grad


def train(name, settings, folder):
    rank = dist.get_rank()
    net = MODELS[settings["model"]]()
    device = "cuda:0" if settings["device"] == "cuda" else "cpu"
    initialise(net, rank)
    net.to(device)
    cap = int(settings["bucket_cap_bytes"])
    sizes = settings["bucket_cap_bytes_list"]
    names = ["fc3.weight", "fc3.bias", "fc2.bias"]
    delayed = {
        "delay_all_reduce_named_params": [(name, net.get_parameter(name)) for name in names],
        "param_to_hook_all_reduce": net.get_parameter("conv1.weight"),
    } if settings["delayed"] == "1" else {}
    model = WaitingDDP(
        net,
        **delayed,
        gradient_as_bucket_view=settings["views"] == "1",
        # Only a torch that has them is asked for them.
        **({"batched_grad_copy": True} if settings["batched"] == "1" else {}),
        **({"lazy_bucket_allocation": True} if settings["lazy"] == "1" else {}),
        **({"bucket_cap_mb_list": [int(size) / 2**20 for size in sizes.split(",")]} if sizes != "no" else {}),
        **({"forward_sync_buffers": settings["forward_sync"] == "1"} if settings["forward_sync"] != "-1" else {}),
        bucket_cap_mb=(cap // 2**20 if delayed else cap / 2**20) if cap > 0 else None,
        find_unused_parameters=settings["find_unused"] == "1",
        static_graph=settings["static"] == "1",
    )
    register_hook(model, settings["hook"])
    optimizer = torch.optim.SGD(model.parameters(), lr=float(settings["lr"]), momentum=0.9)
    mixed = settings["amp"] == "1"
    scaler = torch.amp.GradScaler("cuda", enabled=mixed)
    save_at = {int(step) for step in settings["save_at"].split(",")}
    accumulate = int(settings["accumulate"])

    def run(first, last):
        for step in range(first, last + 1):
            optimizer.zero_grad(set_to_none=settings["set_to_none"] == "1")
            for micro in range(accumulate):
                number = (step - 1) * accumulate + micro
                images, labels = draw(number, rank, int(settings["batch"]))
                images, labels = images.to(device), labels.to(device)
                net.turn = 0 if number % 4 == 3 else number + rank
                with model.no_sync() if micro + 1 < accumulate else contextlib.nullcontext():
                    with torch.autocast("cuda", torch.float16) if mixed else contextlib.nullcontext():
                        loss = F.cross_entropy(model(images), labels)
                    scaler.scale(loss / accumulate).backward()
                if delayed:
                    model.delayed_work.wait()
            scaler.step(optimizer)
            scaler.update()
            if settings["join"] == "no" and step in save_at:
                save(net, folder / f"{name}.step{step}.rank{rank}")

    steps = max(save_at)
    if settings["join"] == "no":
        run(1, steps)
    else:
        for epoch in (0, 1):
            inputs = steps - 2 * (dist.get_world_size() - 1 - rank)
            with model.join(divide_by_initial_world_size=settings["join"] == "initial"):
                run(epoch * steps + 1, epoch * steps + inputs)
        save(net, folder / f"{name}.step{steps}.rank{rank}")
    facts = model._get_ddp_logging_data()
    buckets = facts.get("rebuilt_bucket_sizes", "").split(", ")
    print(f"{name}: rebuilt={facts.get('has_rebuilt_buckets')} buckets={len(buckets)}", flush=True)


def main():
    torch.set_num_threads(1)
    cases = list(read_cases(sys.argv[1]))
    backend = "gloo"
    if cases[0][1]["device"] == "cuda":  # NCCL for a rank alone, gloo for ranks that share the first GPU
        torch.cuda.set_device(0)
        torch.backends.cudnn.deterministic = True
        backend = "cpu:gloo,cuda:nccl" if os.environ["WORLD_SIZE"] == "1" else "gloo"
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(sys.argv[3])))
    for name, settings in cases:
        train(name, settings, pathlib.Path(sys.argv[2]))
    dist.destroy_process_group()
    # Without taking the interpreter down, in which torch 2.15 aborts at times: a thread of its own is still there.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
