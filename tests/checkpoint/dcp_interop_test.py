"""Folders of torch.distributed.checkpoint, both ways: `dcp_interop_test.py PROGRAM`. Exit status 77 (skipped) without torch.

Python saves with 1 to 4 ranks and dcp_program reads every tensor, whole and in boxes; dcp_program writes and Python reads.
"""

import json
import math
import multiprocessing
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import unittest
import warnings

try:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
except ImportError:
    print("skipped: this Python has no torch with torch.distributed")
    sys.exit(77)

# The ranks import this file too, in a server that forks them and does nothing else.
PROGRAM = sys.argv.pop(1) if __name__ == "__main__" else None
torch.set_num_threads(1)
warnings.filterwarnings("ignore")
DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16,
          "int64": torch.int64, "int32": torch.int32, "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8,
          "bool": torch.bool, "complex64": torch.complex64, "uint16": torch.uint16, "float8_e4m3fn": torch.float8_e4m3fn}  # fmt: skip


def raw(tensor):
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


def run_rank(rank, world, folder, work, arguments):
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    try:
        work(*arguments)
    finally:
        dist.destroy_process_group()


def on_ranks(world, work, *arguments):
    """Runs work(*arguments) in `world` processes of one group."""
    context = multiprocessing.get_context("forkserver")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=run_rank, args=(rank, world, folder, work, arguments)) for rank in range(world)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(300)
    if any(rank.exitcode != 0 for rank in ranks):
        raise AssertionError(f"ranks ended with {[rank.exitcode for rank in ranks]}")


class Net(torch.nn.Module):
    """Uneven and, with 3 and 4 ranks, empty shards; tied, frozen and 0-d parameters; buffers of other dtypes."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 5)
        self.fc = torch.nn.Linear(5, 3)
        self.small = torch.nn.Linear(3, 2)
        self.frozen = torch.nn.Linear(2, 2, bias=False)
        self.frozen.weight.requires_grad_(False)
        self.head = torch.nn.Linear(5, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("ramp", torch.linspace(0, 1, 5).to(torch.bfloat16))

    def forward(self, x):
        y = self.embedding(x)
        return self.frozen(self.small(self.fc(y))).sum() + self.head(y).sum()


def trained(kind, sharded):
    net = Net()
    if sharded:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for module in (net.fc, net.small):
            fully_shard(module, mesh=mesh)
        fully_shard(net, mesh=mesh)
    groups = [{"params": [p for p in net.fc.parameters()], "lr": 0.25}, {"params": [*net.embedding.parameters(), *net.small.parameters()]}]  # fmt: skip
    optimizer = (torch.optim.AdamW(groups, lr=0.01, weight_decay=0.125, amsgrad=True) if kind == "adamw"
                 else torch.optim.SGD(groups, lr=0.01, momentum=0.9))  # fmt: skip
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer, [torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=3), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)], [2])  # fmt: skip
    for _ in range(3):
        net(torch.arange(7)).backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    return net, optimizer, scheduler


def save_run(folder, kind, sharded, flattened, above):
    net, optimizer, scheduler = trained(kind, sharded)
    model, optim = get_state_dict(net, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=flattened))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=True)
    state = {"model": model, "optim": optim, "scheduler": scheduler.state_dict(), "scaler": scaler.state_dict(),
             "epoch": 4, "global_step": 12, "best": 0.5, "name": "tiny", "worst": math.inf,
             "other": {"a": [1, 2], "t": torch.ones(2)}, "parts": (1, 2)}  # fmt: skip
    dcp.save({above: state} if above else state, checkpoint_id=folder)


def save_bare(folder, sharded):
    net, _, _ = trained("sgd", sharded)
    dcp.save(net.state_dict(), checkpoint_id=folder)


def save_raw_optimizer(folder):
    """As programs without get_state_dict() do: parameters by number."""
    net, optimizer, _ = trained("adamw", False)
    dcp.save({"state_dict": net.state_dict(), "optimizer_g": optimizer.state_dict(), "optimizers": [optimizer.state_dict()]},
             checkpoint_id=folder)  # fmt: skip


def save_strided(folder):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    columns = dist.tensor.distribute_tensor(torch.arange(35.0).reshape(5, 7), mesh, [dist.tensor.Shard(1)])
    state = {"columns": columns, "turned": torch.arange(12.0).reshape(3, 4).T, "piece": torch.arange(100)[5:9],
             "large": torch.arange(60000, dtype=torch.float64), "turned_large": torch.arange(60000).reshape(300, 200).T,
             "expanded": torch.ones(1, 3).expand(4, 3), "empty": torch.empty(0, 3),
             "conjugate": torch.tensor([1 + 2j]).conj(), "negative": torch.tensor([1 + 2j]).conj().imag}  # fmt: skip
    dcp.save(state, checkpoint_id=folder, storage_writer=dcp.FileSystemWriter(folder, thread_count=2))


def save_safetensors(folder):
    from torch.distributed.checkpoint.filesystem import SerializationFormat

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {"model": {"w": dist.tensor.distribute_tensor(torch.arange(35.0).reshape(5, 7), mesh, [dist.tensor.Shard(0)]),
                       "b": torch.arange(3)}, "epoch": 2}  # fmt: skip
    writer = dcp.FileSystemWriter(folder, serialization_format=SerializationFormat.SAFETENSORS)
    dcp.save(state, checkpoint_id=folder, storage_writer=writer)


class DcpInteropTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def call(self, *arguments):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout) if done.stdout else None

    def refused(self, *arguments):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def python_sees(self, folder):
        dcp_to_torch_save(folder, self.folder / "all.pt")
        return torch.load(self.folder / "all.pt", weights_only=False)

    def check_tensors(self, folder, expected):
        """expected: tensors by part and name. All are there, whole and in random boxes."""
        for seed in ("", "1", "2"):
            places = self.call("dump", folder, self.folder / "blob", *([seed] if seed else []))
            blob = (self.folder / "blob").read_bytes()
            self.assertEqual({part: set(tensors) for part, tensors in places.items()},
                             {part: set(tensors) for part, tensors in expected.items() if tensors})  # fmt: skip
            for part, tensors in places.items():
                for name, place in tensors.items():
                    tensor = expected[part][name]
                    self.assertEqual((place["dtype"], place["shape"]), (str(tensor.dtype)[6:], list(tensor.shape)), name)
                    for dimension, (offset, size) in enumerate(zip(place["offsets"], place["sizes"])):
                        tensor = tensor.narrow(dimension, offset, size)
                    tensor = tensor.resolve_conj().resolve_neg().contiguous()
                    bytes_read = blob[place["begin"] : place["begin"] + place["size"]]
                    self.assertEqual(bytes_read, raw(tensor) if tensor.numel() else b"", f"{part} {name} {seed}")

    def check_run(self, world, kind, sharded, flattened, above=""):
        folder = self.folder / f"{kind}{world}{sharded}{flattened}{above}"
        on_ranks(world, save_run, folder, kind, sharded, flattened, above)
        saved = self.python_sees(folder)
        saved = saved[above] if above else saved
        optim = saved["optim"]
        if flattened:
            states = {key: value for key, value in optim.items() if key.startswith("state.")}
        else:
            states = {f"state.{name}.{field}": value for name, own in optim["state"].items() for field, value in own.items()}
        states = {name: value for name, value in states.items() if isinstance(value, torch.Tensor)}
        self.check_tensors(folder, {"model.safetensors": saved["model"], "optim.safetensors": states})
        found = self.call("list", folder)
        groups = json.loads(found["parts"]["optim.safetensors"]["metadata"]["ddprun.optimizer"])["param_groups"]
        self.assertEqual([group["params"] for group in groups],
                         [["fc.weight", "fc.bias"], ["embedding.weight", "small.weight", "small.bias"]])  # fmt: skip
        for index, group in enumerate(groups):
            name = group.pop("params")[0]
            own = ({key.rsplit(".", 1)[1]: value for key, value in optim.items() if key.startswith(f"param_groups.{name}.")}
                   if flattened else optim["param_groups"][index])  # fmt: skip
            own = {key: list(value) if isinstance(value, tuple) else value for key, value in own.items()}
            self.assertEqual(group, {key: value for key, value in own.items() if key != "params" and value is not None})
        values = json.loads(found["texts"]["trainer.json"])
        self.assertEqual(values, {"epoch": 4, "global_step": 12, "best": 0.5, "name": "tiny", "step": 12,
                                  "worst": {"__float__": "inf"}})  # fmt: skip
        self.assertEqual(json.loads(found["texts"]["scaler.state"]), saved["scaler"])
        schedule = json.loads(found["texts"]["schedule.state"])
        self.assertEqual(schedule["last_epoch"], 3)
        self.assertEqual(schedule["_schedulers"][1]["gamma"], 0.5)
        below = "app." if above else ""
        self.assertEqual(set(found["skipped"]), {below + "other.a", below + "other.t", "parts"})

    def test_one_rank_without_sharding(self):
        self.check_run(1, "adamw", False, False)

    def test_two_ranks_replicated_and_flattened(self):
        self.check_run(2, "adamw", False, True)

    def test_two_ranks_sharded_below_one_key(self):
        self.check_run(2, "sgd", True, False, "app")

    def test_three_ranks_sharded(self):
        self.check_run(3, "adamw", True, False)

    def test_four_ranks_sharded_and_flattened(self):
        self.check_run(4, "adamw", True, True)
        self.check_run(4, "sgd", True, True)

    def test_bare_model(self):
        on_ranks(2, save_bare, self.folder / "bare", True)
        self.check_tensors(self.folder / "bare", {"model.safetensors": self.python_sees(self.folder / "bare")})

    def test_numbered_parameters_and_several_optimizers(self):
        on_ranks(1, save_raw_optimizer, self.folder / "raw")
        saved = self.python_sees(self.folder / "raw")
        states = {f"state.#{number}.{field}": value for number, own in saved["optimizer_g"]["state"].items() for field, value in own.items()}  # fmt: skip
        self.check_tensors(self.folder / "raw", {"model.safetensors": saved["state_dict"], "optim-g.safetensors": states,
                                                 "optim.safetensors": states})  # fmt: skip

    def test_strides_dtypes_threads_and_shards_of_columns(self):
        on_ranks(3, save_strided, self.folder / "strided")
        self.check_tensors(self.folder / "strided", {"model.safetensors": self.python_sees(self.folder / "strided")})

    def test_safetensors_items(self):
        on_ranks(2, save_safetensors, self.folder / "st")
        expected = {"w": torch.arange(35.0).reshape(5, 7), "b": torch.arange(3)}
        self.check_tensors(self.folder / "st", {"model.safetensors": expected})
        self.assertEqual(json.loads(self.call("list", self.folder / "st")["texts"]["trainer.json"])["epoch"], 2)

    def test_metadata_of_every_pickle_protocol_and_pathlib(self):
        folder = self.folder / "one"
        on_ranks(1, save_run, folder, "sgd", False, False, "")
        found = self.call("list", folder)
        metadata = pickle.loads((folder / ".metadata").read_bytes())
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            data = pickle.dumps(metadata, protocol)
            (folder / ".metadata").write_bytes(data)
            self.assertEqual(self.call("list", folder), found, protocol)
        # Python 3.13 has the classes in another module.
        data = pickle.dumps(metadata, 2).replace(b"cpathlib\nPosixPath\n", b"cpathlib._local\nPosixPath\n")
        self.assertIn(b"pathlib._local", data)
        (folder / ".metadata").write_bytes(data)
        self.assertEqual(self.call("list", folder), found)

    def test_missing_short_and_foreign_folders_are_refused_by_name(self):
        folder = self.folder / "two"
        on_ranks(2, save_run, folder, "sgd", True, False, "")
        data = (folder / "__1_0.distcp").read_bytes()
        (folder / "__1_0.distcp").write_bytes(data[:-1])
        self.assertRegex(self.refused("list", folder), r"__1_0.distcp of rank 1 is too short: .*needs \d+ from byte")
        (folder / "__1_0.distcp").unlink()
        self.assertRegex(self.refused("list", folder), r"__1_0.distcp of rank 1 is missing, which holds '")
        (folder / ".metadata").rename(folder / "__0.metadata")
        self.assertIn("__0.metadata, the metadata of a single rank", self.refused("list", folder))
        (folder / ".metadata").write_bytes(b"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00id\x85R.")
        self.assertIn("asks for 'posix.system'", self.refused("list", folder))

    def spec(self, generator, world):
        """Tensors of every dtype in random shards, some empty, and values."""
        tensors, blob, expected = [], bytearray(), {}
        shapes = [[], [1], [5], [3, 4], [0, 3], [7, 1, 2], [64, 33]]
        for index, (name, dtype) in enumerate(DTYPES.items()):
            for shape in shapes:
                count = math.prod(shape) * dtype.itemsize
                data = bytes(generator.randrange(2 if name == "bool" else 256) for _ in range(count))
                tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
                path = ["model", f"t{index}.{len(expected)}"]
                if shape and generator.random() < 0.6:
                    step = -(-shape[0] // world)
                    cuts = [min(rank * step, shape[0]) for rank in range(world + 1)]
                    places = [{"rank": rank, "offsets": [cuts[rank]] + [0] * (len(shape) - 1),
                               "sizes": [cuts[rank + 1] - cuts[rank], *shape[1:]]} for rank in range(world)]  # fmt: skip
                else:
                    places = [{"rank": generator.randrange(world), "offsets": [0] * len(shape), "sizes": shape}]
                tensors.append({"path": path, "dtype": name, "shape": shape, "begin": len(blob), "places": places})
                blob += data
                expected[path[1]] = tensor
        values = [[["step"], 7], [["text"], "ä\n"], [["optim", "param_groups"], [{"lr": 0.1, "betas": [0.9, 0.99], "params": ["a", "b"]}]],
                  [["nested"], {"list": [1, [2, 3], None], "infinite": {"__float__": "-inf"}, "deep": {"x": {"y": True}}}],
                  [["large"], 2**63 + 5], [["negative"], -(2**40)]]  # fmt: skip
        return {"tensors": tensors, "values": values}, bytes(blob), expected

    def write(self, world, seed):
        spec, blob, expected = self.spec(random.Random(seed), world)
        folder = self.folder / f"ours{world}"
        (self.folder / "spec").write_text(json.dumps(spec))
        (self.folder / "blob").write_bytes(blob)
        self.call("write", self.folder / "spec", self.folder / "blob", folder)
        return folder, expected

    def test_python_reads_what_the_program_writes(self):
        for world in (1, 3, 4):
            folder, expected = self.write(world, world)
            whole = self.python_sees(folder)
            for name, tensor in expected.items():
                self.assertEqual(whole["model"][name].dtype, tensor.dtype)
                self.assertEqual(raw(whole["model"][name]) if tensor.numel() else b"", raw(tensor) if tensor.numel() else b"", name)
            self.assertEqual((whole["step"], whole["text"], whole["large"], whole["negative"]), (7, "ä\n", 2**63 + 5, -(2**40)))
            self.assertEqual(whole["optim"]["param_groups"], [{"lr": 0.1, "betas": (0.9, 0.99), "params": ["a", "b"]}])
            self.assertEqual(whole["nested"], {"list": [1, [2, 3], None], "infinite": -math.inf, "deep": {"x": {"y": True}}})
            self.assertEqual(os.listdir(folder).count(".metadata"), 1)
            # dcp.load() into a state dict of its own.
            target = {"model": {name: torch.zeros_like(tensor) for name, tensor in expected.items()}, "step": 0,
                      "optim": {"param_groups": [{"lr": 0.0, "betas": (0.0, 0.0), "params": []}]}}  # fmt: skip
            dcp.load(target, checkpoint_id=folder)
            for name, tensor in expected.items():
                if tensor.numel():
                    self.assertEqual(raw(target["model"][name]), raw(tensor), name)
            self.assertEqual(target["step"], 7)
            self.assertEqual(target["optim"]["param_groups"][0]["params"], ["a", "b"])
            self.check_tensors(folder, {"model.safetensors": expected, "optim.safetensors": {}})

    def test_python_reads_boxes_of_what_the_program_writes(self):
        folder, expected = self.write(3, 9)
        on_ranks(2, load_sharded, folder, expected)


def load_sharded(folder, expected):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    wanted = {name: tensor for name, tensor in expected.items() if tensor.dim() > 0 and tensor.numel() and tensor.dtype == torch.float32}  # fmt: skip
    target = {"model": {name: dist.tensor.distribute_tensor(torch.zeros_like(tensor), mesh, [dist.tensor.Shard(tensor.dim() - 1)]) for name, tensor in wanted.items()}}  # fmt: skip
    dcp.load(target, checkpoint_id=folder)
    for name, tensor in wanted.items():
        assert raw(target["model"][name].full_tensor()) == raw(tensor), name


if __name__ == "__main__":
    multiprocessing.set_forkserver_preload(["torch.distributed.fsdp", "torch.distributed.checkpoint.format_utils"])
    unittest.main(verbosity=2)
