"""One rank of the training that a description tells, in Python: the twin of conformance_program.cpp, and its judge.

    conformance_twin.py DESCRIPTION FOLDER HOP

HOP -1 trains from the first step to the last; another one is that of the description's "hops", which continues from the checkpoint
FOLDER/run and saves one there. What is compared is appended to FOLDER/python.HOP.rank<rank>.
"""

import contextlib
import datetime
import json
import math
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F
from torch.optim import lr_scheduler, swa_utils

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).resolve().parent)]
import ddprun.checkpoint  # noqa: E402
import known  # noqa: E402
import libtorch_arithmetic  # noqa: E402
from net import DTYPES, Net, initialise, synchronise_batch_norms  # noqa: E402
from unusual_steps import unusual_step  # noqa: E402

DEADLINE_S = 120


class Records:
    """Each tensor as a line with its name, dtype and shape, and its bytes."""

    def __init__(self, path):
        self.file = open(path, "wb")

    def tensor(self, name, tensor):
        if tensor is None:
            self.file.write(f"{name}|none||0\n".encode())
            return
        tensor = tensor.detach()
        if tensor.is_sparse:
            tensor = tensor.to_dense()
        tensor = tensor.contiguous()
        content = tensor.view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        shape = ",".join(map(str, tensor.shape))
        self.file.write(f"{name}|{str(tensor.dtype).removeprefix('torch.')}|{shape}|{len(content)}\n".encode() + content)

    def number(self, name, value):
        self.tensor(name, torch.tensor(float(value), dtype=torch.float64))


class WaitingDDP(nn.parallel.DistributedDataParallel):
    """Python's starts the reduction of delayed parameters and never waits for it."""

    def _delayed_all_reduce_hook(self, grad):
        self._delay_grad_buffer.div_(dist.get_world_size(self.process_group))
        self.delayed_work = dist.all_reduce(self._delay_grad_buffer, group=self.process_group, async_op=True)
        return grad


def generator(seed):
    return torch.Generator().manual_seed(seed)


def draw_batch(case, seed, size):
    random = generator(seed)
    shape = [size, *case["input"]["shape"]]
    if case["input"]["kind"] == "tokens":
        x = torch.randint(0, case["input"]["words"], shape, generator=random)
    else:
        x = torch.randn(shape, generator=random)
    if case["loss"] == "cross_entropy":
        return x, torch.randint(0, 5, [size], generator=random)
    y = torch.randn([size, 5], generator=random)
    return x, (y > 0).float() if case["loss"] == "bce" else y


PARAMETER_HOOKS = {"scaled": lambda gradient: gradient * 0.75, "constant": lambda gradient: torch.full_like(gradient, 0.01),
                   "expanded": lambda gradient: gradient.new_full([], 0.005).expand_as(gradient)}
LOSSES = {"cross_entropy": F.cross_entropy, "mse": F.mse_loss, "smooth_l1": F.smooth_l1_loss, "bce": F.binary_cross_entropy_with_logits}


def make_schedule(optimizer, settings):
    name, args = settings["name"], dict(settings.get("args", {}))
    if name == "LambdaLR":
        return lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + args["rate"] * step))
    if name == "MultiplicativeLR":
        return lr_scheduler.MultiplicativeLR(optimizer, lambda step: args["factor"])
    if name == "SequentialLR":
        return lr_scheduler.SequentialLR(optimizer, [make_schedule(optimizer, part) for part in settings["parts"]], settings["milestones"])
    if name == "ChainedScheduler":
        return lr_scheduler.ChainedScheduler([make_schedule(optimizer, part) for part in settings["parts"]])
    return getattr(lr_scheduler, name)(optimizer, **args)


def make_ema(net, settings):
    functions = {
        "ema": {"avg_fn": swa_utils.get_ema_avg_fn(settings["decay"])},
        "multi_ema": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(settings["decay"])},
        "swa": {"avg_fn": swa_utils.get_swa_avg_fn()},
        "multi_swa": {"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()},
    }
    generator_state = torch.get_rng_state()  # a copy draws nothing
    copied = Net(net.layers)
    torch.set_rng_state(generator_state)
    for (_, parameter), (_, mine) in zip(net.named_parameters(), copied.named_parameters()):
        mine.requires_grad_(parameter.requires_grad)
    averaged = swa_utils.AveragedModel(nn.Module(), use_buffers=settings["buffers"], **functions[settings["function"]])
    averaged.module = copied  # a deep copy of the net would call the original's layers
    copied.load_state_dict(net.state_dict())
    return averaged


class InTurn(torch.utils.data.Sampler):
    """One of torch's samplers, in whose order the ranks take turns."""

    def __init__(self, data, rank, ranks):
        self.data, self.rank, self.ranks = data, rank, ranks

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.data["length"] // self.ranks

    def __iter__(self):
        length, replacement = self.data["length"], self.data["replacement"]
        random = generator(self.data["seed"] + self.epoch)
        if self.data["sampler"] == "random":
            order = torch.utils.data.RandomSampler(range(length), replacement, length if replacement else None, random)
        else:
            order = torch.utils.data.WeightedRandomSampler([1.0 + i % 3 for i in range(length)], length, replacement, random)
        return iter(list(order)[self.rank :: self.ranks])


class Training:
    def __init__(self, case, hop, records):
        self.case, self.hop, self.records = case, hop, records
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.net = Net(case["layers"])
        self.net.layers = case["layers"]
        initialise(self.net, 1000 * case["seed"] + (97 * self.rank if case["ddp"]["init_sync"] else 0))
        for name in case["frozen"]:
            getattr(self.net, name).requires_grad_(False)
        if case["kind"] == "sync_bn":
            synchronise_batch_norms(self.net)
        self.model = self.wrap()
        torch.manual_seed(case["seed"] + self.rank)
        self.parameters = list(self.net.parameters())
        self.optimizer = self.make_optimizer()
        settings = case["scaler"]
        self.scaler = torch.amp.GradScaler("cpu", enabled=settings is not None,
                                           **({key: settings[key] for key in ("init_scale", "growth_interval")} if settings else {}))
        self.schedule = make_schedule(self.optimizer, case["schedule"]) if case["schedule"] else None
        self.ema = make_ema(self.net, case["ema"]) if case["ema"] else None
        self.step = self.micro = self.epoch = 0

    def wrap(self):
        options, net = dict(self.case["ddp"]), self.net
        if known.is_computed(self.case):
            options |= {"static": False, "find_unused": False}  # it reduces nothing
        if options["ignored"]:
            nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, options["ignored"])
        delayed = {}
        if options["delayed"]:
            delayed = {"delay_all_reduce_named_params": [(name, net.get_parameter(name)) for name in options["delayed"]["names"]],
                       "param_to_hook_all_reduce": net.get_parameter(options["delayed"]["trigger"])}
        cap = options["bucket_cap_bytes"]
        model = WaitingDDP(
            net, **delayed, gradient_as_bucket_view=options["python_views"], bucket_cap_mb=cap / 2**20 if cap else None,
            find_unused_parameters=options["find_unused"], static_graph=options["static"], broadcast_buffers=options["broadcast_buffers"],
            init_sync=options["init_sync"],
            # Only a torch that has them is asked for them.
            **({"batched_grad_copy": True} if options["batched_grad_copy"] or known.divides_by_three_of_four(self.case) else {}),
            **({"lazy_bucket_allocation": True} if options["lazy"] else {}))
        hook = self.case["hook"]
        if hook:
            # bf16 is refused without CUDA because of a check of NCCL's version, which gloo does not need.
            model._check_comm_hook = lambda hook: None
            hooks = {"allreduce": default_hooks.allreduce_hook, "fp16": default_hooks.fp16_compress_hook,
                     "bf16": default_hooks.bf16_compress_hook,
                     "fp16_wrapped": default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)}
            if hook.startswith("power_sgd"):
                state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=int(hook[-1]), start_powerSGD_iter=2)
                model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            else:
                model.register_comm_hook(None, hooks[hook])
        return model

    def make_optimizer(self):
        settings = self.case["optimizer"]
        options = dict(settings["options"])
        if settings["library"] == "ddp":
            options["fused"] = True
        elif settings["library"] == "own":
            options["foreach"] = False
        named = [(name, parameter) for name, parameter in self.net.named_parameters() if parameter.requires_grad]
        first = [parameter for _, parameter in named if not settings["second"] or parameter.dim() > 1]
        second = [parameter for _, parameter in named if settings["second"] and parameter.dim() <= 1]
        groups = [{"params": first}]
        if second:
            groups.append({"params": second, **settings["second"]})
        return getattr(torch.optim, settings["name"])(groups, **options)

    # Checkpoints.

    def parts(self):
        parts = {"model": self.net, "optimizer": self.optimizer}
        if self.schedule:
            parts["scheduler"] = self.schedule
        if self.case["scaler"]:
            parts["scaler"] = self.scaler
        if self.case["data"]["kind"] == "dataset":
            parts["sampler"] = self.sampler
        return parts

    def save(self, folder):
        rngs = [None] * self.ranks
        dist.all_gather_object(rngs, ddprun.checkpoint.rng_state())
        if self.rank == 0:
            ddprun.checkpoint.save(folder, step=self.step, values={"micro": self.micro, "epoch": self.epoch}, rng=rngs, **self.parts())
        dist.barrier()

    def load(self, folder):
        run = ddprun.checkpoint.load(folder)
        for name, part in self.parts().items():
            part.load_state_dict(run[name])
        ddprun.checkpoint.set_rng_state(run["rng"][self.rank])
        self.step, self.micro, self.epoch = run["step"], run["values"]["micro"], run["values"]["epoch"]

    # The loop.

    def train(self, last):
        self.last = last
        if self.case["data"]["kind"] == "dataset":
            self.epochs()
        elif self.case["join"]:
            for _ in range(2):
                steps = self.case["steps"] - self.case["join"]["less"] * (self.ranks - 1 - self.rank)
                with self.model.join(divide_by_initial_world_size=self.case["join"]["divide_by_initial"]):
                    for _ in range(max(1, steps)):
                        self.drawn_step()
            self.record("end")
        else:
            while self.step < last:
                self.drawn_step()
        if self.case["evaluate"]:
            self.evaluate()

    def drawn_step(self):
        accumulate, size = self.case["accumulate"], self.case["data"]["batch"]
        batches = [draw_batch(self.case, 1_000_003 * (self.micro + part) + 17 * self.rank + self.case["seed"], size) for part in range(accumulate)]
        self.one_step(batches)

    def make_loader(self):
        data = self.case["data"]
        x, y = draw_batch(self.case, self.case["seed"] + 5, data["length"])
        self.dataset = torch.utils.data.TensorDataset(x, y)
        if data["sampler"] != "distributed":
            self.sampler = InTurn(data, self.rank, self.ranks)
            return
        # Torch's own, but in a run that saves where it stands.
        sampler = torch.utils.data.DistributedSampler if self.hop < 0 else ddprun.checkpoint.DistributedSampler
        self.sampler = sampler(self.dataset, self.ranks, self.rank, shuffle=data["shuffle"], seed=data["seed"], drop_last=data["drop_last"])

    def epochs(self):
        data = self.case["data"]
        while self.step < self.last:
            self.sampler.set_epoch(self.epoch)
            loader = torch.utils.data.DataLoader(self.dataset, data["batch"], sampler=self.sampler, drop_last=data["drop_last_batch"],
                                                 generator=torch.Generator())
            waiting, used, left = [], 0, len(loader)
            for batch in loader:
                waiting.append(batch)
                left -= 1
                if len(waiting) == self.case["accumulate"] or not left:
                    self.one_step(waiting)
                    used += sum(len(x) for x, _ in waiting)
                    waiting = []
                    if self.step == self.last:
                        break
            if left:
                if self.hop >= 0:
                    self.sampler.load_state_dict(self.sampler.state_dict(used))
                return
            if self.schedule and self.case["schedule"]["per"] == "epoch":
                self.schedule.step()
            self.epoch += 1

    def forward(self, x):
        self.net.turn = 0 if self.micro % 4 == 3 else self.micro + self.rank
        self.micro += 1
        return self.model(x)

    def loss(self, x, y):
        dtype = self.case["autocast"]
        with torch.autocast("cpu", DTYPES[dtype]) if dtype else contextlib.nullcontext():
            return LOSSES[self.case["loss"]](self.forward(x), y)

    def one_step(self, batches):
        self.step += 1
        self.change_parameters()
        if self.case["unusual"]:
            unusual_step(self, self.case["unusual"])
        else:
            self.backward(batches)
        self.update()
        self.record(f"step{self.step}")

    def change_parameters(self):
        freeze = self.case["freeze"]
        if freeze:
            getattr(self.net, freeze["name"]).requires_grad_(not freeze["from"] <= self.step < freeze["to"])
        for hook in self.case["parameter_hooks"]:
            if hook["from"] == self.step:
                self.net.get_parameter(hook["name"]).register_hook(PARAMETER_HOOKS[hook["kind"]])

    def backward(self, batches):
        self.optimizer.zero_grad(set_to_none=self.case["zero_grad"] == "none")
        overflows = self.case["scaler"] and self.step in self.case["scaler"]["overflow_at"]
        for number, (x, y) in enumerate(batches):
            with self.model.no_sync() if number + 1 < len(batches) else contextlib.nullcontext():
                loss = self.loss(x, y)
                self.records.tensor(f"step{self.step}/loss{number}", loss)
                loss = loss / len(batches)
                self.scaler.scale(loss * math.inf if overflows else loss).backward()
            if self.case["ddp"]["delayed"] and number + 1 == len(batches):
                self.model.delayed_work.wait()
            self.last_loss = loss

    def update(self):
        for name, parameter in self.net.named_parameters():
            self.records.tensor(f"step{self.step}/gradient/{name}", parameter.grad)
        clip = self.case["clip"]
        if clip:
            if self.case["scaler"]:
                self.scaler.unscale_(self.optimizer)
            if clip["kind"] == "value":
                nn.utils.clip_grad_value_(self.parameters, clip["limit"])
            else:
                clip_norm = libtorch_arithmetic.clip_grad_norm_ if known.clips_by_libtorch(self.case) else nn.utils.clip_grad_norm_
                norm = clip_norm(self.parameters, clip["limit"], float(clip["norm_type"]))
                self.records.number(f"step{self.step}/norm", norm)
        as_libtorch = known.averages_by_mul_and_add(self.case)
        with libtorch_arithmetic.averages_by_mul_and_add(self.optimizer) if as_libtorch else contextlib.nullcontext():
            self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.step == 1 and known.first_momentum_is_unset(self.case):
            for state in self.optimizer.state.values():
                state["momentum_buffer"].zero_()
        if self.schedule and self.case["schedule"]["per"] == "step":
            if self.case["schedule"]["name"] == "ReduceLROnPlateau":
                metric = self.last_loss.detach().double()
                dist.all_reduce(metric)
                self.schedule.step((metric / self.ranks).item())
            else:
                self.schedule.step()
        if self.ema:
            self.ema.update_parameters(self.net)

    def record(self, place):
        for number, group in enumerate(self.optimizer.param_groups):
            self.records.number(f"{place}/lr{number}", group["lr"])
        for name, tensor in [*self.net.named_parameters(), *self.net.named_buffers()]:
            self.records.tensor(f"{place}/{name}", tensor)
        if self.case["scaler"]:
            self.records.number(f"{place}/scale", self.scaler.get_scale())
        for name, parameter in self.net.named_parameters():
            for key, value in sorted(self.optimizer.state.get(parameter, {}).items()):
                if value is not None:
                    value = torch.as_tensor(value)
                    self.records.tensor(f"{place}/state/{name}/{key}", value.double() if key == "step" else value)
        if self.ema:
            for name, tensor in [*self.ema.module.named_parameters(), *self.ema.module.named_buffers()]:
                self.records.tensor(f"{place}/ema/{name}", tensor)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        self.net.turn = 1
        x, _ = draw_batch(self.case, self.case["seed"] + 77, 6)
        self.records.tensor("evaluation", self.net(x))
        self.model.train()


def main():
    case, folder, hop = json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=DEADLINE_S))
    training = Training(case, hop, Records(folder / f"python.{hop}.rank{dist.get_rank()}"))
    if case["data"]["kind"] == "dataset":
        training.make_loader()
    if hop > 0:
        training.load(folder / "run")
    last = case["steps"] if hop < 0 else case["hops"][hop][1]
    training.train(last)
    if hop >= 0:
        training.save(folder / "run")
    training.records.file.close()
    dist.destroy_process_group()
    # Without taking the interpreter down, in which torch 2.15 aborts at times: a thread of its own is still there.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
