"""The net of a description in Python, as net.h builds it in C++: the same names, order and operators."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}

MODULES = {
    "linear": lambda s: nn.Linear(s["width"], s["out"], s["bias"]),
    "torch_linear": lambda s: nn.Linear(s["width"], s["out"], s["bias"]),
    "conv": lambda s: nn.Conv2d(s["width"], s["out"], s["kernel"], s["stride"], s["padding"], groups=s["groups"], bias=s["bias"]),
    "conv1d": lambda s: nn.Conv1d(s["width"], s["out"], s["kernel"], padding=s["kernel"] // 2),
    "batch_norm1d": lambda s: nn.BatchNorm1d(s["width"], affine=s["affine"], track_running_stats=s["track"], momentum=s["momentum"]),
    "batch_norm2d": lambda s: nn.BatchNorm2d(s["width"], affine=s["affine"], track_running_stats=s["track"], momentum=s["momentum"]),
    "group_norm": lambda s: nn.GroupNorm(s["groups"], s["width"]),
    "layer_norm": lambda s: nn.LayerNorm([s["width"]]),
    "embedding": lambda s: nn.Embedding(s["words"], s["width"], padding_idx=s["padding"], sparse=s["sparse"]),
    "embedding_bag": lambda s: nn.EmbeddingBag(s["words"], s["width"], mode=s["mode"]),
    "lstm": lambda s: nn.LSTM(s["width"], s["hidden"], s["depth"], bidirectional=s["both"], batch_first=True),
    "gru": lambda s: nn.GRU(s["width"], s["hidden"], s["depth"], bidirectional=s["both"], batch_first=True),
    "rnn": lambda s: nn.RNN(s["width"], s["hidden"], s["depth"], bidirectional=s["both"], batch_first=True),
    "attention": lambda s: nn.MultiheadAttention(s["width"], s["heads"]),
    "encoder_layer": lambda s: nn.TransformerEncoderLayer(s["width"], s["heads"], s["hidden"], s["p"]),
}
# How a module is called, where it is not with one tensor.
CALLS = {
    "conv1d": lambda module, x: module(x.transpose(1, 2)).transpose(1, 2),
    "lstm": lambda module, x: module(x)[0],
    "gru": lambda module, x: module(x)[0],
    "rnn": lambda module, x: module(x)[0],
    "attention": lambda module, x: module(x, x, x)[0],
}
FUNCTIONS = {
    "relu": torch.relu,
    "relu_": torch.relu_,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "leaky_relu": F.leaky_relu,
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "global_pool": lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1),
    "mean_time": lambda x: x.mean(1),
    "last_time": lambda x: x[:, -1],
}


class Net(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.turn = 0
        self.steps = self.sequence(layers)

    def forward(self, x):
        return self.steps(x)

    def sequence(self, layers):
        steps = [self.step(layer) for layer in layers]

        def run(x):
            for step in steps:
                x = step(x)
            return x

        return run

    def step(self, layer):
        op = layer["op"]
        if op in FUNCTIONS:
            return FUNCTIONS[op]
        if op in MODULES:
            self.add_module(layer["name"], MODULES[op](layer))
            return self.call(op, layer["name"])
        return getattr(self, op)(layer)

    def call(self, op, name):
        module = getattr(self, name)
        return (lambda x: CALLS[op](module, x)) if op in CALLS else (lambda x: module(x))

    def dropout(self, layer):
        return lambda x: F.dropout(x, layer["p"], self.training)

    def scale(self, layer):
        self.register_parameter(layer["name"], nn.Parameter(torch.zeros(layer["shape"])))
        return lambda x: x * getattr(self, layer["name"])

    def again(self, layer):
        module = getattr(self, layer["layer"])
        if layer["alias"]:
            self.add_module(layer["name"], module)
        return lambda x: module(x)

    def decode(self, layer):
        table = getattr(self, layer["layer"])
        return lambda x: F.linear(x, table.weight)

    def residual(self, layer):
        inner = self.sequence(layer["layers"])
        return lambda x: x + inner(x)

    def region(self, layer):
        from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts  # takes a second to import

        inner = self.sequence(layer["layers"])
        more = {}
        if layer["save"]:
            saved = [getattr(torch.ops.aten, name).default for name in layer["save"]]
            more["context_fn"] = lambda: create_selective_checkpoint_contexts(saved)
        return lambda x: checkpoint(inner, x, use_reentrant=False, early_stop=layer["early_stop"], **more)

    def cast(self, layer):
        before = set(dict(self.named_children()))
        inner = self.sequence(layer["layers"])
        dtype = DTYPES[layer["dtype"]]
        for name, module in self.named_children():
            if name not in before:
                module.to(dtype)
        return lambda x: inner(x.to(dtype)).to(torch.float32)

    def branches(self, layer):
        branches = [self.sequence(branch) for branch in layer["branches"]]
        return lambda x: branches[self.turn % len(branches)](x)

    def unused(self, layer):
        self.sequence(layer["layers"])
        return lambda x: x


@torch.no_grad()
def initialise(net, seed):
    for number, (name, parameter) in enumerate(net.named_parameters()):
        values = torch.rand(parameter.shape, generator=torch.Generator().manual_seed(seed + number)) * 2 - 1
        if parameter.dim() > 1:
            values = values / math.sqrt(parameter.numel() // parameter.size(0))
        elif name.endswith("bias"):
            values = values * 0.1
        else:
            values = values * 0.1 + 1
        parameter.copy_(values)


class SummedOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(context, group, x):
        context.group = group
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=context.group)
        return None, gradient


class SyncBatchNorm(nn.BatchNorm2d):
    """From sums over all ranks in float64, since torch's needs a GPU: a judge of values, not of bits."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        wide = x.double()
        sums = torch.cat([wide.sum((0, 2, 3)), wide.square().sum((0, 2, 3)), torch.tensor([wide.numel() / wide.size(1)], dtype=torch.float64)])
        sums = SummedOverRanks.apply(self.group, sums)
        count = sums[-1]
        mean = sums[: self.num_features] / count
        variance = sums[self.num_features : -1] / count - mean.square()
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean.float(), self.momentum)
            self.running_var.lerp_((variance * count / (count - 1)).float(), self.momentum)
        shape = [1, -1, 1, 1]
        y = (wide - mean.view(shape)) / torch.sqrt(variance.view(shape) + self.eps)
        if self.affine:
            y = y * self.weight.view(shape) + self.bias.view(shape)
        return y.float()


def synchronise_batch_norms(net):
    """Before it is wrapped; to be called by every rank."""
    group = dist.new_group()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.__class__ = SyncBatchNorm
            module.group = group
