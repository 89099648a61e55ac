"""One rank of the programs that sharded_test.py starts: `sharded_ranks.py STAGE FOLDER RANK RANKS FORM`.

STAGE is "write", which saves a run in every sharded form of Python's and its whole tensors as reference.pt; or "fail", where saving and
loading fail on some ranks; or "refuse", where no checkpoint in FOLDER is loaded; or the name of a folder that load_sharded() shall load. FORM is "fsdp" or "ddp".
"""

import pathlib
import re
import resource
import signal
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import ddprun.checkpoint  # noqa: E402
import ddprun.checkpoint._sharded  # noqa: E402
from sharded_net import Net, make_optimizer  # noqa: E402


def make(form, ranks):
    torch.manual_seed(3)
    net = Net()
    if form == "fsdp":
        fully_shard(net, mesh=init_device_mesh("cpu", (ranks,)))
        model = net
    else:
        model = torch.nn.parallel.DistributedDataParallel(net)
    return model, make_optimizer(net)


def whole(state):
    return {key: each.full_tensor() if hasattr(each, "full_tensor") else each.clone() for key, each in state.items()}


def content(model, optimizer):
    """The whole tensors of both."""
    fields = {(number, field): each for number, state in optimizer.state_dict()["state"].items() for field, each in state.items()}
    model = model.module if hasattr(model, "module") else model
    return {"model": whole(model.state_dict()), "optimizer": whole(fields)}


def write(folder, rank, ranks, form):
    model, optimizer = make(form, ranks)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.tensor([0, 1, 2, 3, step, 6])).square().sum().backward()
        optimizer.step()
        schedule.step()
    ddprun.checkpoint.save_sharded(folder / "run", step=7, model=model, optimizer=optimizer, scheduler=schedule, values={"best": 0.5},
                                   metrics={"loss": 0.25}, per_rank={"own": bytes([rank])})  # fmt: skip
    state = get_model_state_dict(model)
    untied = {name: each for name, each in state.items() if name != "out.weight"}  # which Python's writer refuses
    dcp.save(untied, storage_writer=dcp.HuggingFaceStorageWriter(str(folder / "hf"), save_distributed=True))
    for name, is_flat in (("flat", True), ("nested", False)):
        options = StateDictOptions(flatten_optimizer_state_dict=is_flat)
        both = {"model": state, "optim": get_optimizer_state_dict(model, optimizer, options=options), "step": 7}
        dcp.save(both, checkpoint_id=folder / name)
    reference = content(model, optimizer)
    if rank == 0:
        torch.save(reference, folder / "reference.pt")


def load(path, folder, rank, ranks, form):
    model, optimizer = make(form, ranks)
    run = ddprun.checkpoint.load_sharded(path, model=model, optimizer=optimizer)
    loaded, expected = content(model, optimizer), torch.load(folder / "reference.pt")
    for part in ("model", "optimizer"):
        assert loaded[part].keys() == expected[part].keys(), part
        for key, tensor in expected[part].items():
            assert torch.equal(loaded[part][key], tensor) and loaded[part][key].dtype == tensor.dtype, (part, key)
    assert run["step"] == 7 and run["values"] == {"best": 0.5} and run["metrics"] == {"loss": 0.25}
    if "scheduler" in run:
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        schedule.load_state_dict(run["scheduler"])
        assert schedule.last_epoch == 3
    assert [group["lr"] for group in optimizer.param_groups] == [0.1 * 0.1, 0.03 * 0.1]
    assert "model" not in run and "optimizer" not in run


def message(function):
    try:
        function()
    except Exception as error:  # noqa: BLE001: its class is part of the message
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it did not fail")


def fail(folder, rank, ranks, form):
    model, optimizer = make(form, ranks)
    path = folder / "failing"
    save = lambda **more: ddprun.checkpoint.save_sharded(path, **{"step": 1, "model": model, "optimizer": optimizer, **more})  # noqa: E731
    assert save() == path / "step-00000001"
    write_part = ddprun.checkpoint._sharded._write_part

    def full_disk(*arguments):
        raise OSError(28, "No space left on device")

    if rank == ranks - 1:
        ddprun.checkpoint._sharded._write_part = full_disk
    assert message(save).startswith(f"RuntimeError: rank {ranks - 1}: [Errno 28]")
    ddprun.checkpoint._sharded._write_part = write_part
    # As a full disk: no file may be longer.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for limit in (0, 100):
        for full in range(ranks):
            if rank == full:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            text = message(save)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert re.match(rf"RuntimeError: rank {full}: .*{path}/step-00000001\.tmp-\w+/model-0000{full + 1}-of-0000{ranks}\.safetensors", text), text
    assert "rank 1 saves a different step" in message(lambda: save(step=rank))
    assert message(lambda: save(step=-1)).startswith("ValueError: rank 0:")
    assert message(lambda: save(values={"a": object()} if rank == 0 else None)).startswith("TypeError: rank 0:")
    dist.barrier()
    assert sorted(each.name for each in path.iterdir()) == ["latest", "step-00000001", "writer.lock"]
    # Damage of one file is seen by one rank, and named on all.
    saved = path / "step-00000001" / f"optim-0000{ranks}-of-0000{ranks}.safetensors"
    if rank == 0:
        data = bytearray(saved.read_bytes())
        data[-1] ^= 1
        saved.write_bytes(data)
    dist.barrier()
    load = lambda which: ddprun.checkpoint.load_sharded(path, model=which, optimizer=optimizer)  # noqa: E731
    assert message(lambda: load(model)).startswith("DamagedCheckpoint:") and saved.name in message(lambda: load(model))
    dist.barrier()
    if rank == 0:  # what killed jobs leave
        (path / "step-00000002.tmp-0123456789abcdef").mkdir()
        (path / "latest.tmp-0123456789abcdef").write_text("step-00000001")
        saved.parent.rename(path / "step-00000001.old-0123456789abcdef")
    dist.barrier()
    save()
    assert sorted(each.name for each in path.iterdir()) == ["latest", "step-00000001", "writer.lock"]
    keep_hollow(folder / "hollow", ranks, form)
    other = torch.nn.Linear(2, 3)
    assert "ValueError" in message(lambda: load(other)) and "fc.weight" in message(lambda: load(other))
    load(model)


def keep_hollow(path, ranks, form):
    """Parameters without elements are saved and loaded."""
    hollow = torch.nn.ParameterDict({"rows": torch.ones(3, 0), "columns": torch.ones(0, 3), "full": torch.ones(3, 2)})
    if form == "fsdp":
        fully_shard(hollow, mesh=init_device_mesh("cpu", (ranks,)))
    ddprun.checkpoint.save_sharded(path, step=1, model=hollow)
    ddprun.checkpoint.load_sharded(path, model=hollow)
    loaded = ddprun.checkpoint.load(path)["model"]
    assert {name: list(each.shape) for name, each in loaded.items()} == {"rows": [3, 0], "columns": [0, 3], "full": [3, 2]}


def refuse(folder, rank, ranks, form):
    """Every checkpoint in a folder has a manifest that is not to be loaded, and a text of the error."""
    model, optimizer = make(form, ranks)
    before = content(model, optimizer)
    for path in sorted(folder.glob("*/step-*")):
        for verify in (True, False):
            load = lambda: ddprun.checkpoint.load_sharded(path, model=model, optimizer=optimizer, verify=verify)  # noqa: B023, E731
            text = message(load)
            assert text.startswith("DamagedCheckpoint:"), text
            assert re.search((path / "expected.txt").read_text(), text), text
    # One without the optimizer's state is refused before the model is loaded.
    target = folder / "without"
    other, _ = make(form, ranks)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    ddprun.checkpoint.save_sharded(target, step=1, model=other)
    text = message(lambda: ddprun.checkpoint.load_sharded(target, model=model, optimizer=optimizer))
    assert text.startswith("ValueError:") and "holds no optim.safetensors" in text, text
    after = content(model, optimizer)
    for part in ("model", "optimizer"):
        assert before[part].keys() == after[part].keys()
        assert all(torch.equal(tensor, after[part][key]) for key, tensor in before[part].items()), part


def main():
    stage, folder, rank, ranks, form = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store-{pathlib.Path(stage).name}-{ranks}-{form}", rank=rank, world_size=ranks)
    if stage == "write":
        write(folder, rank, ranks, form)
    elif stage == "fail":
        fail(folder, rank, ranks, form)
    elif stage == "refuse":
        refuse(folder, rank, ranks, form)
    else:
        load(folder / stage, folder, rank, ranks, form)
    dist.destroy_process_group()


main()
