"""Checkpoints of ddprun in Python: reads what C++ programs save, and saves what they go on from.

    import ddprun_checkpoint

    run = ddprun_checkpoint.load("runs/cifar10")            # the newest; or one step-... folder, or a .pt file
    net.load_state_dict(run["model"])
    optimizer.load_state_dict(run["optimizer"])
    scheduler.load_state_dict(run["scheduler"])
    scaler.load_state_dict(run["scaler"])
    ddprun_checkpoint.set_rng_state(run["rng"][rank])

    ddprun_checkpoint.save("runs/cifar10", step=1200, model=net, optimizer=optimizer, scheduler=scheduler, scaler=scaler)

In C++ `CheckpointManager::load_latest()` and `load()` go on from there, and from a file that `save("run.pt", ...)` wrote.
Needs torch and safetensors. Nothing that a file holds is executed.
"""

import collections
import copy
import json
import pathlib

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.utils.data import DistributedSampler as _DistributedSampler

import ddprun_checkpoint_folder as folders

__all__ = ["load", "save", "flat_optimizer_state", "rng_state", "set_rng_state", "DistributedSampler"]

_OPTIMIZER = "ddprun.optimizer"
_DEFAULTS = {"maximize": False, "foreach": None, "differentiable": False, "fused": None}


def load(path, *, verify=True):
    """Everything that a checkpoint holds, as a dict; what it lacks is absent.

    `path` is a run's folder (its newest whole checkpoint), a step-... folder, or a .pt file. `verify` compares every byte
    of a folder with its checksum. 'model', 'optimizer', 'scaler' and 'scheduler' are ready for load_state_dict(), and so are
    those in 'optimizers' by name, and 'sampler' for DistributedSampler's here; 'rng' is a list of every rank's generators
    for set_rng_state(); 'step', 'world_size', 'metrics' and 'values' are plain; 'shared' and 'per_rank' are bytes of the C++
    program's own objects. Raises DamagedCheckpoint, OSError or what torch.load() raises.
    """
    path = pathlib.Path(path)
    if not path.is_dir():
        return torch.load(path, map_location="cpu", weights_only=True)
    if (path / folders.MANIFEST).exists() or folders._STEP.match(path.name):
        return _load_folder(path, verify)
    damages = []
    for folder in folders.steps(path):
        try:
            return _load_folder(folder, verify)
        except folders.DamagedCheckpoint as error:
            damages.append(str(error))
    raise folders.DamagedCheckpoint(f"{path} holds no whole checkpoint" + "".join(f"; {text}" for text in damages))


def save(path, *, step=0, model=None, optimizer=None, optimizers=None, scaler=None, scheduler=None, sampler=None,
         rng=True, values=None, shared=None, per_rank=None, metrics=None, world_size=None):
    """Saves a run for C++ and for load(); returns the path of what it wrote.

    `path` is the folder of a run, which gets a folder step-..., or a file that ends in .pt or .pth. Model, optimizers, scaler,
    scheduler and sampler are the objects or their state_dict()s. `rng`: True for this process's generators, or a list
    with those of every rank (rng_state(), gathered). One process of a job calls it.
    """
    path = pathlib.Path(path)
    if rng is True:
        rng = [rng_state()]
    rng = list(rng or [])
    world_size = world_size or len(rng) or len(per_rank or []) or 1
    named = {"": optimizer} if optimizer is not None else {}
    named.update(optimizers or {})
    objects = {key: _state(value) for key, value in
               (("scaler", scaler), ("scheduler", scheduler), ("sampler", sampler)) if value is not None}
    if path.suffix in (".pt", ".pth"):
        run = {"step": step, "world_size": world_size, "metrics": dict(metrics or {}), "values": dict(values or {}), **objects}
        for key, value in (("rng", rng), ("shared", shared), ("per_rank", per_rank)):
            if value:
                run[key] = value
        if model is not None:
            run["model"] = _state(model)
        if optimizer is not None:
            run["optimizer"] = _state(optimizer)
        if optimizers:
            run["optimizers"] = {name: _state(each) for name, each in optimizers.items()}
        torch.save(run, path)
        return path

    def write(folder):
        if model is not None:
            _save_tensors(folder / "model.safetensors", _state(model), tie=True)
        for name, each in named.items():
            tensors, groups = _named_optimizer(each, model)
            target = f"optim-{name}.safetensors" if name else "optim.safetensors"
            _save_tensors(folder / target, tensors, {_OPTIMIZER: json.dumps({"type": "", "param_groups": groups})})
        for key, state in objects.items():
            name = "schedule" if key == "scheduler" else key
            (folder / f"{name}.state").write_text(json.dumps(_plain(state), allow_nan=False))
        for name, state in (shared or {}).items():
            (folder / f"shared-{name}.state").write_bytes(state)
        ranks = {}
        for rank, devices in enumerate(rng):
            ranks.update({f"rank.{rank}.rng.{device}": state for device, state in devices.items()})
        for rank, own in enumerate(per_rank or []):
            ranks.update({f"rank.{rank}.object.{name}": torch.tensor(list(state), dtype=torch.uint8) for name, state in own.items()})
        _save_tensors(folder / "ranks.safetensors", ranks)
        (folder / "trainer.json").write_text(json.dumps(_plain(values or {}), indent=2, allow_nan=False) + "\n")

    return folders.commit(path, step, world_size, dict(metrics or {}), write)


def flat_optimizer_state(path, name="", *, verify=True):
    """The optimizer `name` (the main one by default) of a checkpoint's folder as torch.distributed.checkpoint flattens it:
    for set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(flatten_optimizer_state_dict=True)).
    Parameters go by the model's names. Raises ValueError for a state whose parameters have only numbers."""
    folder = pathlib.Path(path)
    if not (folder / folders.MANIFEST).exists():
        folder = folders.steps(folder)[0]
    folders.read_manifest(folder, verify)
    tensors, metadata = _read_tensors(folder / (f"optim-{name}.safetensors" if name else "optim.safetensors"))
    saved = json.loads(metadata[_OPTIMIZER])
    schedule = _schedule_file(folder)
    flat = dict(tensors)
    for number, group in enumerate(saved["param_groups"]):
        options = _python_group(saved["type"], group, {} if name else _schedule_options(schedule, number))
        for parameter in group["params"]:
            if parameter.startswith("#"):
                raise ValueError(f"{folder} only numbers the optimizer's parameters; save it with its model")
            flat.update({f"param_groups.{parameter}.{key}": value for key, value in options.items()})
    return flat


def rng_state():
    """This process's random generators: {'cpu': ByteTensor}, and 'cuda' of the current device where there is one."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state):
    """Lets the generators go on where rng_state(), or a rank in C++, was."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


class DistributedSampler(_DistributedSampler):
    """torch's sampler with the state of ddprun's: it goes on in mid-epoch, with any number of ranks."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._consumed = 0  # samples of this epoch that all ranks had used before this pass

    def __len__(self):
        left = max(0, len(self.dataset) - self._consumed)
        return left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)

    def __iter__(self):
        length = len(self.dataset)
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = torch.randperm(length, generator=generator).tolist()
        else:
            order = list(range(length))
        first = self._consumed + self.rank
        return iter([order[(first + i * self.num_replicas) % length] for i in range(len(self))])

    def set_epoch(self, epoch):
        if epoch != self.epoch:
            self._consumed = 0
        super().set_epoch(epoch)

    def state_dict(self, used=0):
        """The state after this rank has used `used` samples of the pass; a loader that reads ahead has taken more."""
        return {"seed": self.seed, "epoch": self.epoch, "consumed": self._consumed + used * self.num_replicas,
                "length": len(self.dataset)}

    def load_state_dict(self, state):
        """The next pass gives the rest of the state's epoch."""
        if state["consumed"] and state["length"] != len(self.dataset):
            raise ValueError(f"saved with {state['length']} samples per epoch, but here are {len(self.dataset)}")
        self.seed, self.epoch, self._consumed = state["seed"], state["epoch"], state["consumed"]


# -- Reading ----------------------------------------------------------------------------------------------------------


def _read_tensors(path):
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata() or {})
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    return tensors, metadata


def _load_folder(folder, verify):
    manifest = folders.read_manifest(folder, verify)
    run = {key: manifest[key] for key in ("step", "world_size", "metrics")}
    schedule = _schedule_file(folder)
    for name in manifest["files"]:
        stem = name.rpartition(".")[0]
        if name == "model.safetensors":
            tensors, metadata = _read_tensors(folder / name)
            # Tied weights are stored once; the metadata maps their other names to the first.
            tied = {alias: tensors[first] for alias, first in metadata.items() if first in tensors}
            run["model"] = collections.OrderedDict({**tied, **tensors})
        elif name == "optim.safetensors":
            run["optimizer"] = _numbered_optimizer(folder / name, schedule)
        elif name.startswith("optim-"):
            run.setdefault("optimizers", {})[stem[len("optim-"):]] = _numbered_optimizer(folder / name, None)
        elif name == "ranks.safetensors":
            _add_ranks(run, _read_tensors(folder / name)[0], manifest["world_size"])
        elif name == "trainer.json":
            run["values"] = json.loads((folder / name).read_text())
        elif name == "schedule.state" and schedule is not None:
            run["scheduler"] = _python_schedule(schedule)
        elif name.startswith("shared-"):
            run.setdefault("shared", {})[stem[len("shared-"):]] = (folder / name).read_bytes()
        elif name.endswith(".state"):
            state = (folder / name).read_bytes()
            parsed = _json_object(state)
            run["scheduler" if stem == "schedule" else stem] = state if parsed is None else parsed
    return run


def _json_object(text):
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _schedule_file(folder):
    path = folder / "schedule.state"
    return _json_object(path.read_bytes()) if path.exists() else None


def _add_ranks(run, tensors, world_size):
    for name, tensor in tensors.items():
        _, rank, kind, rest = name.split(".", 3)
        if kind == "rng":
            run.setdefault("rng", [{} for _ in range(world_size)])[int(rank)][rest] = tensor
        else:
            objects = run.setdefault("per_rank", [{} for _ in range(world_size)])
            objects[int(rank)][rest] = bytes(tensor.tolist())


def _python_group(kind, group, extra):
    """A group's hyper-parameters as Python's optimizer of that type has them."""
    options = dict(_DEFAULTS)
    if kind in ("Adam", "AdamW"):
        options.update(capturable=False, decoupled_weight_decay=kind == "AdamW")
    options.update({key: value for key, value in group.items() if key != "params"})
    options.update(extra)
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    return options


def _numbered_optimizer(path, schedule):
    """As Optimizer.state_dict() is: parameters are numbered through all groups."""
    tensors, metadata = _read_tensors(path)
    saved = json.loads(metadata[_OPTIMIZER])
    state, groups, number = {}, [], 0
    for position, group in enumerate(saved["param_groups"]):
        numbers = []
        for parameter in group["params"]:
            prefix = f"state.{parameter}."
            own = {name[len(prefix):]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            own = {field: tensor for field, tensor in own.items() if "." not in field}
            if own:
                state[number] = own
            numbers.append(number)
            number += 1
        groups.append({**_python_group(saved["type"], group, _schedule_options(schedule, position)), "params": numbers})
    return {"state": state, "param_groups": groups}


def _parts(schedule):
    yield schedule
    for part in schedule.get("_schedulers", []):
        yield from _parts(part)


def _schedule_options(schedule, number):
    """What Python's schedulers keep in an optimizer's group."""
    if not schedule or "schedule" not in schedule or number >= len(schedule["groups"]):
        return {}
    options = {"initial_lr": schedule["groups"][number]["initial_lr"]}
    for part in _parts(schedule["schedule"]):
        if number < len(part.get("groups", [])):
            options.update(part["groups"][number])
    return options


def _python_schedule(state):
    """As the state_dict() of Python's class, without hyper-parameters if C++ saved it: those are the program's."""
    state = copy.deepcopy(state)
    schedule = state.get("schedule", state)
    groups = state.get("groups", schedule.get("base_lrs", []))
    for part in _parts(schedule):
        if part.pop("type", None) in ("LambdaLR", "MultiplicativeLR"):
            part.setdefault("lr_lambdas", [None] * len(groups))
        part.pop("groups", None)
        if isinstance(part.get("milestones"), dict):  # JSON has no whole numbers as keys
            part["milestones"] = collections.Counter({int(key): count for key, count in part["milestones"].items()})
    if "schedule" in state:
        schedule["_last_lr"] = [group["lr"] for group in groups]
    return schedule


# -- Writing ----------------------------------------------------------------------------------------------------------


def _state(thing):
    return thing.state_dict() if hasattr(thing, "state_dict") else thing


def _plain(value):
    """`value` as JSON holds it; what cannot be there (functions, infinity) is null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return None
    return value if isinstance(value, (bool, int, float, str)) else None


def _save_tensors(path, tensors, metadata=None, *, tie=False):
    """With `tie`, tensors that are the same memory are stored once, under the first of their names."""
    metadata, stored, first = dict(metadata or {}), {}, {}
    for name, tensor in sorted(tensors.items()):
        tensor = tensor.detach()
        key = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tie and tensor.numel() and key in first:
            metadata[name] = first[key]
            continue
        first[key] = name
        stored[name] = tensor.cpu().contiguous().clone()
    save_file(stored, path, metadata or None)


def _named_optimizer(optimizer, model):
    """Tensors and groups under the model's names, where model and optimizer are the objects themselves."""
    state = _state(optimizer)
    names = {}
    if isinstance(model, torch.nn.Module) and hasattr(optimizer, "param_groups"):
        by_parameter = {id(parameter): name for name, parameter in model.named_parameters()}
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        names = {number: by_parameter[id(parameter)] for number, parameter in enumerate(parameters) if id(parameter) in by_parameter}
    tensors, groups, position = {}, [], 0
    for group in state["param_groups"]:
        listed = []
        for number in group["params"]:
            name = names.get(position, f"#{position}")
            listed.append(name)
            position += 1
            for field, value in state["state"].get(number, {}).items():
                if value is not None:
                    tensors[f"state.{name}.{field}"] = torch.as_tensor(value, dtype=None if isinstance(value, torch.Tensor) else torch.float32)
        options = {key: _plain(value) for key, value in group.items() if key not in ("params", "param_names")}
        groups.append({**{key: value for key, value in options.items() if value is not None}, "params": listed})
    return tensors, groups
