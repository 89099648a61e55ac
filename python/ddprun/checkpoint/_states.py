"""How ddprun.checkpoint's files hold states: tensors in safetensors files, all else as JSON, and what Python's classes make of
it. Needs torch and safetensors."""

import collections
import contextlib
import copy
import json
import math
import re

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from . import _json
from ._headers import check_part
from ._manifest import DamagedCheckpoint
from ._shards import owner, part_of

OPTIMIZER = "ddprun.optimizer"  # the metadata key of an optimizer's groups
_DEFAULTS = {"maximize": False, "foreach": None, "differentiable": False, "fused": None}
_CAPTURABLE = {"Adam", "AdamW", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"}
_LISTS = ("old_dirs", "old_stps", "ro")  # of LBFGS; files hold each tensor as <list>.<index>
_FLOAT = "__float__"  # {"__float__": "inf"}: numbers that JSON does not have


@contextlib.contextmanager
def _opened(path, name):
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise DamagedCheckpoint(f"{name}{owner(name)} is damaged: {error}") from error


def read_tensors(path, name):
    """The tensors and texts of a file of this name."""
    with _opened(path, name) as file:
        metadata = dict(file.metadata() or {})
        tensors = {each: file.get_tensor(each) for each in file.keys()}
    return tensors, metadata


def texts_of_part(paths, part):
    """The texts in the headers of a part's files."""
    texts = {}
    for name, path in paths.items():
        if part_of(name) == part:
            with _opened(path, name) as file:
                texts.update(file.metadata() or {})
    return texts


def saved_groups(texts, part, names):
    """The class and the groups of an optimizer, from the texts in the headers of its files, which hold tensors of these names."""
    if OPTIMIZER not in texts:
        raise DamagedCheckpoint(f"{part} has no metadata {OPTIMIZER!r}, which hold the hyper-parameters of an optimizer")
    foreign = next((name for name in names if not name.startswith("state.")), None)
    if foreign is not None:
        raise DamagedCheckpoint(f"{part} holds {foreign!r}, which is not a state of an optimizer")
    try:
        saved = from_json(texts[OPTIMIZER])
    except ValueError as error:
        raise DamagedCheckpoint(f"{part} has metadata {OPTIMIZER!r} that cannot be read: {error}") from error
    groups = saved.get("param_groups") if isinstance(saved, dict) and isinstance(saved.get("type"), str) else None
    if not isinstance(groups, list) or not all(isinstance(group, dict) and _are_texts(group.get("params")) for group in groups):
        raise DamagedCheckpoint(f"{part} has metadata {OPTIMIZER!r} that are not the class and the groups of an optimizer")
    return saved


def _are_texts(values):
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def read_part(paths, part):
    """The tensors and texts of a part of a run by its file's name; of a sharded one each tensor is put together."""
    if part in paths:
        return read_tensors(paths[part], part)
    check_part(paths, part)
    tensors, texts = {}, texts_of_part(paths, part)
    for file in sorted(name for name in paths if part_of(name) == part):
        chunks, header = read_tensors(paths[file], file)
        for name, place in _json.parse(header.get("DCP_SHARDING_INFO", "{}")).items():
            whole = tensors.setdefault(name, torch.empty(place["tensor_shape"], dtype=chunks[name].dtype))
            for dimension, offset in enumerate(place["saved_offsets"]):
                whole = whole.narrow(dimension, offset, chunks[name].shape[dimension])
            whole.copy_(chunks[name])
    texts.pop("DCP_SHARDING_INFO", None)
    return dict(sorted(tensors.items())), texts


def possible_parameters(key):
    """The parameters whose state `key` may be: "state.fc.weight.exp_avg" is of "fc.weight", if there is one."""
    parts = key.split(".")
    return (".".join(parts[1:end]) for end in range(len(parts) - 1, 1, -1)) if parts[0] == "state" else ()


def json_object(text):
    try:
        parsed = from_json(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def python_group(kind, group, extra):
    """A group's hyper-parameters as Python's optimizer of that type has them."""
    # Files hold no options that are None.
    options = {"maximize": False, "line_search_fn": None} if "tolerance_grad" in group else dict(_DEFAULTS)
    if "ns_coefficients" in group:
        options["adjust_lr_fn"] = None
    if kind in _CAPTURABLE:
        options["capturable"] = False
    if kind in ("Adam", "AdamW"):
        options["decoupled_weight_decay"] = kind == "AdamW"
    options.update({key: value for key, value in group.items() if key != "params"})
    options.update(extra)
    for name in ("betas", "etas", "step_sizes", "eps", "ns_coefficients"):
        if isinstance(options.get(name), list):
            options[name] = tuple(options[name])
    return options


def _lbfgs_state(fields):
    """With the lists and numbers of Python's LBFGS. The last bits of dot products depend on how memory is aligned, so tensors are copied
    out of the file's."""
    fields = {field: tensor.clone() for field, tensor in fields.items()}
    state = {field: tensor for field, tensor in fields.items() if "." not in field}
    for field in ("func_evals", "n_iter"):
        state[field] = int(state[field])
    if "d" in state:
        for field in ("t", "prev_loss"):
            state[field] = float(state[field])
        for name in _LISTS:
            numbers = sorted(int(field.split(".")[1]) for field in fields if field.startswith(f"{name}."))
            state[name] = [fields[f"{name}.{number}"] for number in numbers]
    return state


def numbered_optimizer(tensors, metadata, part, schedule):
    """As Optimizer.state_dict() is: parameters are numbered through all groups."""
    saved = saved_groups(metadata, part, tensors)
    state, groups, number = {}, [], 0
    for position, group in enumerate(saved["param_groups"]):
        numbers = []
        for parameter in group["params"]:
            prefix = f"state.{parameter}."
            own = {name[len(prefix):]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            own = {field: tensor for field, tensor in own.items() if "." not in field or field.split(".")[0] in _LISTS}
            if own:
                state[number] = _lbfgs_state(own) if "func_evals" in own else own
            numbers.append(number)
            number += 1
        groups.append({**python_group(saved["type"], group, schedule_options(schedule, position)), "params": numbers})
    return {"state": state, "param_groups": groups}


def _parts(schedule):
    yield schedule
    for part in schedule.get("_schedulers", []):
        yield from _parts(part)


def schedule_options(schedule, number):
    """What Python's schedulers keep in an optimizer's group."""
    if not schedule or "schedule" not in schedule or number >= len(schedule["groups"]):
        return {}
    options = {"initial_lr": schedule["groups"][number]["initial_lr"]}
    for part in _parts(schedule["schedule"]):
        if number < len(part.get("groups", [])):
            options.update(part["groups"][number])
    return options


def python_schedule(state):
    """As the state_dict() of Python's class, without hyper-parameters if C++ saved it: those are the program's. The class's name
    stays as "type", an attribute that Python does not read: C++ knows the schedule by it when the state comes back."""
    state = copy.deepcopy(state)
    schedule = state.get("schedule", state)
    groups = state.get("groups", schedule.get("base_lrs", []))
    for part in _parts(schedule):
        if part.get("type") in ("LambdaLR", "MultiplicativeLR"):
            part.setdefault("lr_lambdas", [None] * len(groups))
        part.pop("groups", None)
        if isinstance(part.get("milestones"), dict):  # JSON has no whole numbers as keys
            part["milestones"] = collections.Counter({int(key): count for key, count in part["milestones"].items()})
    if "schedule" in state:
        schedule["_last_lr"] = [group["lr"] for group in groups]
    return schedule


def state_of(thing):
    return thing.state_dict() if hasattr(thing, "state_dict") else thing


def are_models(model):
    """Whether that is a dict of modules by name, as C++'s TrainingState::model takes several."""
    return isinstance(model, dict) and bool(model) and all(isinstance(each, torch.nn.Module) for each in model.values())


def model_state(model):
    """A model's state; of a dict of modules all of them, with each one's name and a dot before its names."""
    if not are_models(model):
        return state_of(model)
    for name in model:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise ValueError(f"a model's name in a checkpoint consists of letters, digits, _ and -, but one is {name!r}")
    return collections.OrderedDict((f"{name}.{key}", value) for name, each in model.items() for key, value in each.state_dict().items())


def named_parameters(model):
    if not are_models(model):
        return model.named_parameters() if hasattr(model, "named_parameters") else []
    return ((f"{name}.{key}", value) for name, each in model.items() for key, value in each.named_parameters())


def plain(value, all_of_it=False):
    """`value` as JSON holds it; what cannot be there (functions, tensors of several elements) is null, or refused where
    `all_of_it` counts."""
    if isinstance(value, dict):
        items = {str(key): plain(item, all_of_it) for key, item in value.items()}
        if len(items) < len(value):
            raise ValueError(f"some of the keys {', '.join(map(repr, value))} have the same text, and JSON has only texts as keys: rename one")
        return items
    if isinstance(value, (list, tuple)):
        return [plain(item, all_of_it) for item in value]
    if hasattr(value, "item") and getattr(value, "size", None) == 1 or isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()  # also of NumPy's numbers
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError(f"the whole number {value} does not fit into 64 bits, so C++ could not read it: save it as text")
    if isinstance(value, str):
        value.encode()  # UnicodeEncodeError, a ValueError, for half of a surrogate pair
    if isinstance(value, (bool, int, float, str)):
        return value
    if all_of_it and value is not None:
        raise TypeError(f"a {type(value).__name__} is not a plain value: save numbers, texts, lists and dicts of them")
    return None


def to_json(value, indent=None, all_of_it=False):
    text = json.dumps(plain(value, all_of_it), indent=indent, allow_nan=False)
    _json.check_levels(text)
    return text


def state_to_json(state):
    """Of a scaler, a scheduler or a sampler. Infinities are left out: they stand for a value that there is not yet."""
    return to_json({key: value for key, value in state.items() if not (isinstance(value, float) and not math.isfinite(value))})


def from_json(text):
    """What to_json() wrote, or C++."""
    return _json.parse(text, object_hook=lambda item: float(item[_FLOAT]) if set(item) == {_FLOAT} else item)


def save_tensors(path, tensors, metadata=None, *, tie=False):
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


def _as_tensor(value):
    """Numbers as float32, as step counters are, where that holds them."""
    if isinstance(value, torch.Tensor):
        return value
    exact = torch.as_tensor(value, dtype=torch.float64)
    return exact.float() if exact.float().double() == exact or exact.isnan() else exact


def named_optimizer(optimizer, model):
    """Tensors and groups under the model's names, where model and optimizer are the objects themselves."""
    state = state_of(optimizer)
    names = {}
    if hasattr(optimizer, "param_groups"):
        by_parameter = {id(parameter): name for name, parameter in named_parameters(model)}
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
                if isinstance(value, list):  # LBFGS's `al` is written anew by each step
                    tensors.update({f"state.{name}.{field}.{i}": each for i, each in enumerate(value) if field in _LISTS})
                elif value is not None:
                    tensors[f"state.{name}.{field}"] = _as_tensor(value)
        options = {key: plain(value) for key, value in group.items() if key not in ("params", "param_names")}
        groups.append({**{key: value for key, value in options.items() if value is not None}, "params": listed})
    return tensors, groups
