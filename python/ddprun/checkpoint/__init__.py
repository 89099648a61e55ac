"""Checkpoints of ddprun in Python: reads what C++ programs save, and saves what they can resume.

    import ddprun.checkpoint

    run = ddprun.checkpoint.load("runs/cifar10")            # the newest; or one step-... folder, or a .pt file
    net.load_state_dict(run["model"])
    optimizer.load_state_dict(run["optimizer"])
    scheduler.load_state_dict(run["scheduler"])
    scaler.load_state_dict(run["scaler"])
    ddprun.checkpoint.set_rng_state(run["rng"][rank])

    ddprun.checkpoint.save("runs/cifar10", step=1200, model=net, optimizer=optimizer, scheduler=scheduler, scaler=scaler)

In C++ `CheckpointManager::load_latest()` and `load()` resume from it, and from a file that `save("run.pt", ...)` wrote.
Needs torch and safetensors. Nothing that a file holds is executed.
"""

import collections
import contextlib
import pathlib
import re
import warnings

import torch

from . import _folder as folders
from . import _states as states
from ._folder import DamagedCheckpoint
from ._sampler import DistributedSampler
from ._shards import part_of

__all__ = ["load", "save", "load_sharded", "save_sharded", "model_part", "flat_optimizer_state", "rng_state", "set_rng_state", "DistributedSampler",
           "DamagedCheckpoint"]

# If a writer removes the newest checkpoint so many times in a row, the read is given up.
_LISTINGS = 100
_OF_RANK = re.compile(r"rank\.(\d{1,7})\.(\w+)\.(.+)")


def load(path, *, verify=True):
    """Everything that a checkpoint holds, as a dict; what it lacks is absent.

    `path` is a run's folder (its newest whole checkpoint, with a warning for each newer one that is skipped), a step-... folder, or
    a .pt file. `verify` compares every byte of a folder with its checksum. 'model' (of several models see model_part()), 'optimizer', 'scaler' and 'scheduler' are ready for load_state_dict(), and so are
    those in 'optimizers' by name, and 'sampler' for DistributedSampler's here; 'rng' is a list of every rank's generators
    for set_rng_state(); 'step', 'world_size', 'metrics' and 'values' are plain; 'shared' and 'per_rank' are bytes of the C++
    program's own objects. May be called beside a program that saves there: what is removed meanwhile is passed over.
    Raises DamagedCheckpoint, OSError, ValueError for a file that is something else, or what torch.load() raises.
    """
    path = pathlib.Path(path)
    _refuse_other(path)
    if not path.is_dir():
        return torch.load(path, map_location="cpu", weights_only=True)
    if folders.is_checkpoint(path):
        return _load_folder(path, verify)
    return _newest(path, lambda folder: _load_folder(folder, verify))


def save(path, *, step=0, model=None, optimizer=None, optimizers=None, scaler=None, scheduler=None, sampler=None,
         rng=True, values=None, shared=None, per_rank=None, metrics=None, world_size=None):
    """Saves a run for C++ and for load(); returns the path of what it wrote.

    `path` is the folder of a run, which gets a folder step-..., or a file that ends in .pt or .pth. Model, optimizers, scaler,
    scheduler and sampler are the objects or their state_dict()s; `model` may also be a dict of several modules by name. `rng`: True for this process's generators, or a list
    with those of every rank (rng_state(), gathered). One process of a job calls it.
    """
    path = pathlib.Path(path)
    if rng is True:
        rng = [rng_state()]
    rng = list(rng or [])
    run = {"step": step, "world_size": world_size or len(rng) or len(per_rank or []) or 1,
           "metrics": dict(metrics or {}), "values": dict(values or {})}
    for key, value in (("rng", rng), ("shared", shared), ("per_rank", per_rank)):
        if value:
            run[key] = value
    if model is not None:
        run["model"] = states.model_state(model)
    for key, value in (("scaler", scaler), ("scheduler", scheduler), ("sampler", sampler)):
        if value is not None:
            run[key] = states.state_of(value)
    named = {"": optimizer} if optimizer is not None else {}
    named.update(optimizers or {})
    if path.suffix in (".pt", ".pth"):
        if optimizer is not None:
            run["optimizer"] = states.state_of(optimizer)
        if optimizers:
            run["optimizers"] = {name: states.state_of(each) for name, each in optimizers.items()}
        torch.save(run, path)
        return path
    return folders.commit(path, step, run["world_size"], run["metrics"],
                          lambda folder: _write_folder(folder, run, model, named))


def save_sharded(path, *, step=0, model=None, optimizer=None, optimizers=None, scaler=None, scheduler=None, sampler=None,
                 rng=True, values=None, shared=None, per_rank=None, metrics=None, group=None):
    """Saves a run of several ranks, each of which writes its part; returns the path of the step-... folder.

    Every rank of `group` calls it, and all see the folder `path`. Of DTensors (fully_shard()) each rank writes its shards, of what all
    have an even share. Arguments as those of save(), but `rng` and `per_rank` are this rank's. Raises the same error on all ranks.
    """
    from . import _sharded as sharded

    ranks = sharded.Ranks(group)
    own = ranks.gather((rng_state() if rng is True else rng or {}, dict(per_rank or {})))
    run = {"step": step, "world_size": ranks.count, "metrics": dict(metrics or {}), "values": dict(values or {}), "shared": dict(shared or {}),
           "rng": [state for state, _ in own], "per_rank": [objects for _, objects in own]}
    for key, value in (("scaler", scaler), ("scheduler", scheduler), ("sampler", sampler)):
        if value is not None:
            run[key] = states.state_of(value)
    named = {**({"": optimizer} if optimizer is not None else {}), **(optimizers or {})}
    return sharded.save(path, run, model, named, lambda folder: _write_folder(folder, run, None, {}), ranks)


def load_sharded(path, *, model=None, optimizer=None, optimizers=None, verify=True, group=None):
    """Loads a checkpoint into a model and optimizers on several ranks, of which each reads its part; any number may have saved it.

    `path` is a run's folder (its newest whole checkpoint) or a step-... folder. Every rank of `group` calls it. Parameters may be DTensors
    (fully_shard()) or whole. Returns the rest of what load() returns, for the caller to load. `verify`: each file is compared with its
    checksum by one rank. Raises the same error on all ranks, DamagedCheckpoint or ValueError for another model.
    """
    from . import _sharded as sharded

    ranks = sharded.Ranks(group)
    named = {**({"": optimizer} if optimizer is not None else {}), **(optimizers or {})}
    path = pathlib.Path(path)
    is_one = folders.is_checkpoint(path)
    candidates = [path] if is_one else ranks.first(lambda: folders.steps(path))
    damages = []
    for folder in candidates:
        try:
            if verify:
                ranks.all(lambda: sharded.verify_share(folder, ranks))
            run = _load_part(sharded, folder, model, named, ranks)
        except DamagedCheckpoint as error:
            damages.append(str(error))
            continue
        if ranks.rank == 0:
            _warn_of(damages, 3)
        return run
    raise DamagedCheckpoint(f"{path} holds no complete checkpoint" + "".join(f"; {text}" for text in damages))


def _load_part(sharded, folder, model, optimizers, ranks):
    opened = []
    with contextlib.ExitStack() as stack:
        ranks.all(lambda: opened.extend(stack.enter_context(folders.opened(folder, False))))
        manifest, paths = opened
        rest = {name: path for name, path in paths.items() if not part_of(name).startswith(("model.", "optim"))}
        run = {}
        ranks.all(lambda: run.update(_run_of(manifest, rest)))
        sharded.load(paths, model, optimizers, _schedule_of(paths), ranks)
        return run


def model_part(state, name):
    """Of a run's 'model' with several models the one of that name, for load_state_dict(). Raises KeyError naming what there is."""
    part = collections.OrderedDict((key[len(name) + 1:], value) for key, value in state.items() if key.startswith(f"{name}."))
    if not part:
        raise KeyError(f"the checkpoint has no model {name!r}; its models: {', '.join(sorted({key.split('.')[0] for key in state})) or 'none'}")
    return part


_OTHERS = ((b"version https://git-lfs.github.com/spec/", "a Git LFS pointer, which stands for the file itself: run `git lfs pull`"),
           (b"<!doctype html", "an HTML page: the download brought a web page instead of the file"), (b"<html", "an HTML page"),
           (b"\x1f\x8b", "packed with gzip: unpack it first"))  # fmt: skip
_DCP = ("of torch.distributed.checkpoint, which is not supported here; "
        "ddprun-checkpoint convert makes a .pt file of it, and so does "
        "torch.distributed.checkpoint.format_utils.dcp_to_torch_save(folder, 'model.pt')")


def _refuse_other(path):
    """Raises an error that names files and folders whose content does not match their names."""
    if (path / ".metadata").is_file() and not (path / folders.MANIFEST).exists():
        raise ValueError(f"{path} is a folder {_DCP}")
    if path.is_dir():
        return
    if path.suffix == ".distcp" or path.name == ".metadata":
        raise ValueError(f"{path} is a file {_DCP}")
    beginning = folders.regular_bytes(path, 4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    for known, what in _OTHERS:
        if beginning.lower().startswith(known):
            raise ValueError(f"{path} is {what}")


def _write_folder(folder, run, model, optimizers):
    if "model" in run:
        states.save_tensors(folder / "model.safetensors", run["model"], tie=True)
    for name, each in optimizers.items():
        tensors, groups = states.named_optimizer(each, model)
        target = f"optim-{name}.safetensors" if name else "optim.safetensors"
        states.save_tensors(folder / target, tensors, {states.OPTIMIZER: states.to_json({"type": "", "param_groups": groups})})
    for key, name in (("scaler", "scaler"), ("scheduler", "schedule"), ("sampler", "sampler")):
        if key in run:
            (folder / f"{name}.state").write_text(states.state_to_json(run[key]))
    for name, state in run.get("shared", {}).items():
        (folder / f"shared-{name}.state").write_bytes(state)
    ranks = {}
    for rank, devices in enumerate(run.get("rng", [])):
        ranks.update({f"rank.{rank}.rng.{device}": state for device, state in devices.items()})
    for rank, own in enumerate(run.get("per_rank", [])):
        ranks.update({f"rank.{rank}.object.{name}": torch.tensor(list(state), dtype=torch.uint8) for name, state in own.items()})
    states.save_tensors(folder / "ranks.safetensors", ranks)
    (folder / "trainer.json").write_text(states.to_json(run["values"], indent=2, all_of_it=True) + "\n")


def flat_optimizer_state(path, name="", *, verify=True):
    """The optimizer `name` (the main one by default) of a checkpoint's folder as torch.distributed.checkpoint flattens it:
    for set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(flatten_optimizer_state_dict=True)).
    Parameters go by the model's names. Raises ValueError for a state whose parameters have only numbers."""
    path = pathlib.Path(path)
    if folders.is_checkpoint(path):
        return _flat_optimizer_of(path, name, verify)
    return _newest(path, lambda folder: _flat_optimizer_of(folder, name, verify))


def _flat_optimizer_of(folder, name, verify):
    file = f"optim-{name}.safetensors" if name else "optim.safetensors"
    with folders.opened(folder, verify) as (_, paths):
        if not any(part_of(each) == file for each in paths):
            raise FileNotFoundError(f"{folder} has no {file}")
        tensors, metadata = states.read_part(paths, file)
        schedule = _schedule_of(paths)
    saved = states.saved_groups(metadata, file, tensors)
    flat = dict(tensors)
    for number, group in enumerate(saved["param_groups"]):
        options = states.python_group(saved["type"], group, {} if name else states.schedule_options(schedule, number))
        for parameter in group["params"]:
            if parameter.startswith("#"):
                raise ValueError(f"{folder} names the optimizer's parameters by numbers only; save the optimizer together with its model")
            flat.update({f"param_groups.{parameter}.{key}": value for key, value in options.items()})
    return flat


def rng_state():
    """This process's random generators: {'cpu': ByteTensor}, and 'cuda' of the current device where there is one."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state):
    """Restores the generators to the state that rng_state(), or a rank in C++, saved."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def _warn_of(damages, level):
    for text in damages:
        warnings.warn(f"skipped a checkpoint: {text}", RuntimeWarning, stacklevel=level)


def _newest(run, read):
    """The result of `read(folder)` for a run's newest complete checkpoint; warns about those that it skips."""
    for _ in range(_LISTINGS):
        listing, damages = folders.listing(run), []
        for folder, _ in listing:
            try:
                result = read(folder)
            except DamagedCheckpoint as error:
                damages.append(str(error))
                if folders.listing(run) != listing:
                    break  # its writer may have removed or replaced it, and have saved newer ones
                continue
            _warn_of(damages, 4)
            return result
        if folders.listing(run) == listing:
            raise DamagedCheckpoint(f"{run} holds no complete checkpoint" + "".join(f"; {text}" for text in damages))
    raise DamagedCheckpoint(f"{run} changed during each of {_LISTINGS} searches for its newest complete checkpoint: try again"
                            + "".join(f"; {text}" for text in damages))


def _load_folder(folder, verify):
    with folders.opened(folder, verify) as (manifest, paths):
        return _run_of(manifest, paths)


def _run_of(manifest, paths):
    run = {key: manifest[key] for key in ("step", "world_size", "metrics")}
    schedule = _schedule_of(paths)
    for part in sorted({part_of(name) for name in paths}):
        with _naming(part):
            _add_part(run, paths, part, schedule)
    for name, path in paths.items():
        stem = name.rpartition(".")[0]
        if name.endswith(".safetensors") and name != "ranks.safetensors":
            continue
        if name == "ranks.safetensors":
            _add_ranks(run, states.read_tensors(path, name)[0], manifest["world_size"])
        elif name == "trainer.json":
            with _naming(name):
                run["values"] = states.from_json(path.read_bytes())
        elif name == "schedule.state" and schedule is not None:
            with _naming(name):
                run["scheduler"] = states.python_schedule(schedule)
        elif name.startswith("shared-"):
            run.setdefault("shared", {})[stem[len("shared-"):]] = path.read_bytes()
        elif name.endswith(".state"):
            state = path.read_bytes()
            parsed = states.json_object(state)
            run["scheduler" if stem == "schedule" else stem] = state if parsed is None else parsed
    return run


def _add_part(run, paths, part, schedule):
    if part == "model.safetensors":
        tensors, metadata = states.read_part(paths, part)
        # Tied weights may be stored once; the metadata maps their other names to the first.
        tied = {alias: tensors[first] for alias, first in metadata.items() if first in tensors}
        run["model"] = collections.OrderedDict({**tied, **tensors})
    elif part == "optim.safetensors":
        run["optimizer"] = states.numbered_optimizer(*states.read_part(paths, part), part, schedule)
    elif part.startswith("optim-"):
        name = part.removesuffix(".safetensors")[len("optim-"):]
        run.setdefault("optimizers", {})[name] = states.numbered_optimizer(*states.read_part(paths, part), part, None)


@contextlib.contextmanager
def _naming(file):
    """Raises DamagedCheckpoint, naming the file, for what its content is not expected to be."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise DamagedCheckpoint(f"{file} cannot be read: {type(error).__name__}: {error}") from error


def _schedule_of(paths):
    path = paths.get("schedule.state")
    return states.json_object(path.read_bytes()) if path else None


def _add_ranks(run, tensors, world_size):
    for name, tensor in tensors.items():
        match = _OF_RANK.fullmatch(name)
        if not match or int(match[1]) >= world_size:
            raise DamagedCheckpoint(f"ranks.safetensors has {name!r}, but the manifest has world_size {world_size}: expected rank.0 to rank.{world_size - 1}")
        if match[2] == "rng":
            run.setdefault("rng", [{} for _ in range(world_size)])[int(match[1])][match[3]] = tensor
        else:
            objects = run.setdefault("per_rank", [{} for _ in range(world_size)])
            objects[int(match[1])][match[3]] = bytes(tensor.tolist())
