"""Sharded checkpoints in Python: every rank of a job writes its part and reads its part. See ddprun.checkpoint.save_sharded() and
load_sharded().

Needs torch with torch.distributed, and safetensors. All ranks see the same file system.
"""

import contextlib
import json
import pathlib
import re
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor, Replicate, Shard

from . import _folder as folders
from . import _states as states
from ._headers import check_part
from ._manifest import BLOCKS, DamagedCheckpoint, crc32c_blocks, crc32c_of_blocks, file_bytes, format_blocks, read_manifest
from ._shards import part_of

_WRAPPERS = re.compile(r"_orig_mod\.|_checkpoint_wrapped_module\.")


class Ranks:
    """The ranks of a group, or this process alone."""

    def __init__(self, group):
        self.group = group
        self.is_alone = not (dist.is_available() and dist.is_initialized())
        self.rank = 0 if self.is_alone else dist.get_rank(group)
        self.count = 1 if self.is_alone else dist.get_world_size(group)

    def gather(self, value):
        """Every rank's value, on every rank."""
        values = [value] * self.count
        if not self.is_alone:
            dist.all_gather_object(values, value, group=self.group)
        return values

    def all(self, function):
        """What `function()` returns on each rank; where it fails on one, all raise an error of the worst kind with that rank."""
        try:
            mine = function(), None, None
        except Exception as error:  # noqa: BLE001: the others must not wait for this rank
            mine = None, str(error) or type(error).__name__, type(error)
        everyone = self.gather(mine)
        texts = [f"rank {rank}: {text}" for rank, (_, text, _) in enumerate(everyone) if text]
        if texts:
            kinds = {kind for _, _, kind in everyone if kind}
            kind = next((each for each in (DamagedCheckpoint, ValueError, TypeError) if kinds == {each}), RuntimeError)
            raise kind("; ".join(texts))
        return [value for value, _, _ in everyone]

    def first(self, function):
        """What `function()` returns on rank 0."""
        return self.all(lambda: function() if self.rank == 0 else None)[0]


# -- What is saved ----------------------------------------------------------------------------------------------------


def unwrapped(model):
    """The module in DistributedDataParallel, in a dict of modules each one's."""
    if states.are_models(model):
        return {name: unwrapped(each) for name, each in model.items()}
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model


class _Named:
    """A model whose parameters have the names that they have without compilers and wrappers of activations."""

    def __init__(self, model):
        self.model = model

    def named_parameters(self):
        return ((_WRAPPERS.sub("", name), each) for name, each in states.named_parameters(self.model))

    def state(self):
        return {_WRAPPERS.sub("", name): each for name, each in states.model_state(self.model).items() if isinstance(each, torch.Tensor)}


def _own_chunk(name, tensor):
    """What this rank writes of a DTensor: offsets and local tensor; None where another rank writes it."""
    placements = tensor.placements
    if not all(isinstance(each, (Shard, Replicate)) for each in placements):
        raise ValueError(f"{name!r} is a DTensor with placements {placements}: only Shard and Replicate are saved")
    local = tensor.to_local()
    coordinates = tensor.device_mesh.get_coordinate()
    if coordinates is None or any(at for at, each in zip(coordinates, placements) if each.is_replicate()):
        return None
    if tensor.numel() == 0:  # the shapes of the local tensors need not fit together then
        return None if any(coordinates) else ([0] * tensor.dim(), local.new_empty(tensor.shape))
    if local.numel() == 0:
        return None
    (chunk,) = tensor.__create_chunk_list__()
    return list(chunk.offsets), local


def _row(tensor, position, share):
    """The first row at or behind `share` bytes of a list in which the tensor begins at `position`."""
    rows = tensor.shape[0] if tensor.dim() else 1
    bytes_of_row = max(1, tensor.numel() * tensor.element_size() // max(1, rows))
    return min(rows, max(0, -(-(share - position) // bytes_of_row)))


def _own_chunks(tensors, ranks):
    """By name this rank's chunk of each tensor, and where it lies. Tensors that all ranks hold are divided by bytes."""
    chunks, whole = {}, []
    for name, tensor in sorted(tensors.items()):
        tensor = tensor.detach()
        if isinstance(tensor, DTensor):
            own = _own_chunk(name, tensor)
            if own is not None:
                chunks[name] = (*own, list(tensor.shape))
        else:
            whole.append((name, tensor))
    total = sum(max(1, tensor.numel() * tensor.element_size()) for _, tensor in whole)
    position = 0
    for name, tensor in whole:
        begin = _row(tensor, position, total * ranks.rank // ranks.count)
        end = _row(tensor, position, total * (ranks.rank + 1) // ranks.count)
        position += max(1, tensor.numel() * tensor.element_size())
        if tensor.numel() == 0:
            if ranks.rank == 0:
                chunks[name] = [0] * tensor.dim(), tensor, list(tensor.shape)
        elif begin < end:
            offsets = [begin] + [0] * (tensor.dim() - 1) if tensor.dim() else []
            chunks[name] = offsets, tensor[begin:end] if tensor.dim() else tensor, list(tensor.shape)
    return chunks


def _write_part(folder, part, tensors, metadata, ranks):
    """This rank's file of a part; returns its name, size, checksum and those of its blocks."""
    chunks = _own_chunks(tensors, ranks)
    information = {name: {"saved_offsets": offsets, "tensor_shape": shape} for name, (offsets, _, shape) in chunks.items()}
    header = {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(information)}
    if ranks.rank == 0:
        header.update(metadata)
    path = folder / f"{part}-{ranks.rank + 1:05d}-of-{ranks.count:05d}.safetensors"
    with folders.naming(path):
        try:
            save_file({name: local.cpu().contiguous().clone() for name, (_, local, _) in chunks.items()}, path, header)
        except SafetensorError as error:
            raise RuntimeError(f"{path} cannot be written: {error}") from error
        blocks = crc32c_blocks(file_bytes(path))
        folders.sync(path)
    size = path.stat().st_size
    return path.name, size, crc32c_of_blocks(blocks, size), blocks


def _parts(model, optimizers):
    parts = {"model": (_Named(model).state(), {})} if model is not None else {}
    for name, optimizer in optimizers.items():
        tensors, groups = states.named_optimizer(optimizer, None if model is None else _Named(model))
        metadata = {states.OPTIMIZER: states.to_json({"type": "", "param_groups": groups})}
        parts[f"optim-{name}" if name else "optim"] = tensors, metadata
    return parts


def save(directory, run, model, optimizers, write_rest, ranks):
    """Writes the checkpoint and returns its folder; `write_rest(folder)` writes everything else, on rank 0. Every rank calls it."""
    parts, staged = {}, None

    def prepare():
        parts.update(_parts(unwrapped(model), optimizers))
        return run["step"], [(part, name, list(tensor.shape), str(tensor.dtype)) for part, (tensors, _) in sorted(parts.items())
                             for name, tensor in sorted(tensors.items())]  # fmt: skip

    def begin():
        nonlocal staged
        staged = stack.enter_context(folders.staged(pathlib.Path(directory), run["step"]))
        return staged.folder

    def commit(records):
        with folders.naming(staged.folder):
            write_rest(staged.folder)
            text = format_blocks({name: blocks for name, _, _, blocks in records})
            (staged.folder / BLOCKS).write_text(text)
            return staged.commit(ranks.count, run["metrics"], {name: (size, crc) for name, size, crc, _ in records})

    lists = ranks.all(prepare)
    for rank, each in enumerate(lists):
        if each != lists[0]:
            raise ValueError(f"rank {rank} saves a different step or different tensors than rank 0: all ranks must hold the same model and optimizers")
    with contextlib.ExitStack() as stack:
        folder = ranks.first(begin)
        written = ranks.all(lambda: [_write_part(folder, part, *content, ranks) for part, content in parts.items()])
        return ranks.first(lambda: commit([record for records in written for record in records]))


# -- What is loaded ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _folder_of_part(paths, part):
    """A folder of one part's files alone, as Python's reader takes it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, path in paths.items():
            if part_of(name) == part:
                (folder / name).symlink_to(path)
        yield folder


def _stored(reader, paths, part):
    """What the files of a part hold, by name."""
    check_part(paths, part)
    try:
        return reader.read_metadata().state_dict_metadata
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise DamagedCheckpoint(f"torch cannot read the headers of {part}: {type(error).__name__}: {error}") from error


def _prepared(paths, part, targets_of, stack, ranks):
    """Opens a part; `targets_of(metadata of all, texts of the header)` returns the tensors to read into, by name. Returns the function
    that reads: nothing is changed before all parts are prepared."""
    targets, opened = {}, []

    def prepare():
        if not any(part_of(name) == part for name in paths):
            raise ValueError(f"the checkpoint holds no {part}: it was saved without that part of the state")
        reader = dcp.HuggingFaceStorageReader(str(stack.enter_context(_folder_of_part(paths, part))))
        targets.update(targets_of(_stored(reader, paths, part), states.texts_of_part(paths, part)))
        opened.append(reader)

    def read():
        if targets:
            dcp.load(targets, storage_reader=opened[0], process_group=ranks.group, no_dist=ranks.is_alone)

    ranks.all(prepare)
    return read


def _prepared_model(paths, model, stack, ranks):
    named = _Named(model)

    def targets_of(stored, texts):
        state = named.state()
        # Tied weights may be stored once; the others' memory is the same.
        targets = {name: tensor for name, tensor in state.items() if texts.get(name) not in stored or name in stored}
        missing, unexpected = sorted(targets.keys() - stored.keys()), sorted(stored.keys() - state.keys())
        if missing or unexpected:
            raise ValueError(f"the checkpoint lacks the model's {missing[:8]}, or has {unexpected[:8]}, which the model does not have")
        for name, tensor in targets.items():
            if stored[name].size != tensor.shape or stored[name].properties.dtype != tensor.dtype:
                raise ValueError(f"{name!r} is {stored[name].properties.dtype} of {list(stored[name].size)} in the checkpoint, "
                                 f"but {tensor.dtype} of {list(tensor.shape)} in the model")
        return targets

    return _prepared(paths, "model.safetensors", targets_of, stack, ranks)


def _prepared_optimizer(paths, part, model, optimizer, schedule, stack, ranks):
    names = {id(parameter): name for name, parameter in _Named(model).named_parameters()}
    groups = [[names.get(id(parameter)) for parameter in group["params"]] for group in optimizer.param_groups]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = {name: number for number, name in enumerate(name for group in groups for name in group)}
    if None in numbers:
        raise ValueError("the optimizer has parameters that the model does not have")
    fields, options = {}, {}

    def targets_of(stored, texts):
        saved = states.saved_groups(texts, part, stored)
        for position, group in enumerate(saved["param_groups"]):
            python = states.python_group(saved["type"], group, states.schedule_options(schedule, position))
            options.update({name: python for name in group["params"]})
        if numbers.keys() != options.keys():
            raise ValueError(f"the optimizer's parameters are not the checkpoint's: {sorted(numbers.keys() ^ options.keys())[:8]}")
        targets = {}
        for key, entry in stored.items():
            name = next((name for name in states.possible_parameters(key) if name in numbers), None)
            if name is None:
                continue
            parameter = parameters[numbers[name]].detach()
            if parameter.shape == entry.size:
                target = torch.empty_like(parameter, dtype=entry.properties.dtype)
            else:
                target = torch.empty(entry.size, dtype=entry.properties.dtype)
            targets[key] = fields.setdefault(numbers[name], {})[key[len(f"state.{name}."):]] = target
        return targets

    read_tensors = _prepared(paths, part, targets_of, stack, ranks)

    def read():
        read_tensors()
        listed, number = [], 0
        for group in groups:
            listed.append({**options[group[0]], "params": list(range(number, number + len(group)))})
            number += len(group)
        optimizer.load_state_dict({"state": dict(sorted(fields.items())), "param_groups": listed})

    return read


def verify_share(folder, ranks):
    """Compares the files of the checkpoint with their checksums, each on one rank."""
    files = read_manifest(folder)["files"]
    own = sorted(files)[ranks.rank :: ranks.count]
    with folders.opened(folder, True, {name: files[name] for name in own}):
        pass


def load(paths, model, optimizers, schedule, ranks):
    """Loads a checkpoint's files into the model and the optimizers by name."""
    model = unwrapped(model)
    with contextlib.ExitStack() as stack:
        reads = [] if model is None else [_prepared_model(paths, model, stack, ranks)]
        for name, optimizer in optimizers.items():
            part = f"optim-{name}.safetensors" if name else "optim.safetensors"
            reads.append(_prepared_optimizer(paths, part, model, optimizer, None if name else schedule, stack, ranks))
        for read in reads:
            read()
