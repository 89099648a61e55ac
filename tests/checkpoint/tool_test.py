"""ddprun-checkpoint with files of the real PyTorch: `tool_test.py TOOL`. Exit status 77 (skipped) without torch."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

try:
    import torch
    import torch.distributed.checkpoint
except ImportError:
    print("skipped: this Python has no torch")
    sys.exit(77)

import pt_python

TOOL = sys.argv.pop(1)


def run(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def write_checkpoint(folder: pathlib.Path, ranks: int, values: bytes, step: int = 7, checksum: int | None = None):
    """A checkpoint of values alone, as CheckpointManager writes it."""
    folder.mkdir(parents=True)
    (folder / "trainer.json").write_bytes(values)
    text = (
        f'{{\n  "format": "ddprun-checkpoint",\n  "version": 2,\n  "step": {step},\n  "sequence": {step},\n'
        f'  "world_size": {ranks},\n  "metrics": {{}},\n  "files": {{\n'
        f'    "trainer.json": {{"size": {len(values)}, "crc32c": "{crc32c(values) if checksum is None else checksum:08x}"}}}},\n  "crc32c": "'
    )
    (folder / "MANIFEST.json").write_text(f'{text}{crc32c(text.encode()):08x}"\n}}\n')


class ToolTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        pt_python.write(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def convert(self, source, target, *options):
        result = run("convert", self.folder / source, self.folder / target, *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.folder / target

    def load(self, path):
        return torch.load(path, weights_only=True)

    def test_a_state_dict_survives_both_formats(self):
        self.convert("state_dict.pt", "there.safetensors")
        back = self.convert("there.safetensors", "back.pt")
        pt_python.same(dict(self.load(back)), dict(self.load(self.folder / "state_dict.pt")))
        net = pt_python.Net()
        net.load_state_dict(self.load(back))

    def test_every_dtype_and_stride_comes_back(self):
        expected = dict(self.load(self.folder / "every_dtype.pt"))
        pt_python.same(dict(self.load(self.convert("every_dtype.pt", "direct.pt"))), expected)
        self.convert("every_dtype.pt", "all.safetensors")
        pt_python.same(dict(self.load(self.convert("all.safetensors", "all.pt"))), expected)

    def test_tied_tensors_stay_tied(self):
        loaded = self.load(self.convert("every_dtype.pt", "tied.pt"))
        self.assertEqual(loaded["tied_a"].data_ptr(), loaded["tied_b"].data_ptr())

    def test_python_continues_with_an_optimizer_that_went_through_the_tool(self):
        for name, make in [("run.pt", lambda net: torch.optim.Adam([{"params": net.fc1.parameters()},
                                                                    {"params": net.fc2.parameters()}])),
                           ("sgd.pt", lambda net: torch.optim.SGD(net.parameters(), lr=1.0))]:
            results = []
            original = self.load(self.folder / name)
            for state in (original, self.load(self.convert(name, "through.pt"))):
                net = pt_python.Net()
                net.load_state_dict(state.get("model", state.get("state_dict")))
                optimizer = make(net)
                optimizer.load_state_dict(state.get("optimizer", state.get("optimizer_state_dict")))
                pt_python.train(net, optimizer, 4, 3)
                results.append(dict(net.state_dict()))
            pt_python.same(results[1], results[0])

    def test_weights_only_leaves_the_optimizer_out(self):
        loaded = self.load(self.convert("run.pt", "weights.pt", "--weights-only"))
        pt_python.same(dict(loaded), dict(self.load(self.folder / "state_dict.pt")))

    def test_weights_under_other_keys_are_asked_for_instead_of_left_out(self):
        state = dict(self.load(self.folder / "state_dict.pt"))
        optimizer = self.load(self.folder / "adam.pt")
        other = {name: tensor + 1 for name, tensor in state.items()}
        for number, (keys, run_state) in enumerate([
            (["model_state"], {"model_state": state}), (["params", "params_ema"], {"params": state, "params_ema": other}),
            (["generator"], {"generator": state}), (["ema"], {"ema": state}),
            (["nets.g", "nets.d"], {"nets": {"g": state, "d": other}}),
        ]):
            torch.save({"optimizer": optimizer, "epoch": 3, **run_state}, self.folder / f"keys{number}.pt")
            target = self.folder / f"keys{number}.safetensors"
            for options in (["--weights-only"], []):
                result = run("convert", self.folder / f"keys{number}.pt", target, *options)
                self.assertEqual(result.returncode, 1, keys)
                self.assertIn("some under " + ", ".join(f"'{key}'" for key in keys) + ": choose one with --key", result.stderr)
                self.assertFalse(target.exists())
            for suffix in (".safetensors", ".pt"):
                self.convert(f"keys{number}.pt", f"weights{number}{suffix}", "--weights-only", "--key", keys[0])
            pt_python.same(dict(self.load(self.folder / f"weights{number}.pt")), state)
            self.convert(f"weights{number}.safetensors", f"again{number}.pt")
            pt_python.same(dict(self.load(self.folder / f"again{number}.pt")), state)
            whole = self.load(self.convert(f"keys{number}.pt", f"whole{number}.pt", "--key", keys[0]))
            pt_python.same(dict(whole["model"]), state)
            self.assertEqual(whole["epoch"], 3)
            self.assertEqual(len(whole["optimizer"]["state"]), len(optimizer["state"]))
        # Without an optimizer, too; the dicts' keys become no part of the names.
        scalar = torch.tensor(0.5)
        for number, (keys, content) in enumerate([
            (["model_state"], {"model_state": state, "epoch": 1}), (["params", "params_ema"], {"params": state, "params_ema": other}),
            (["state.ema", "state.raw"], {"state": {"ema": state, "raw": other}}), (["ema"], {"ema": state, "loss": scalar}),
            (["g", "g_ema"], {"g": state, "g_ema": other, "optimizer_g": optimizer}),
            (["weights"], {"weights": state, "optimizer_main": optimizer}),
            (["model_state"], {"model_state": state, "best": torch.ones(2)}),
            (["ema", "raw"], {"fc.weight": torch.ones(2), "ema": state, "raw": other, "loss": scalar}),
        ]):
            torch.save(content, self.folder / f"nested{number}.pt")
            for suffix in (".safetensors", ".pt"):
                target = self.folder / f"nested{number}_weights{suffix}"
                result = run("convert", self.folder / f"nested{number}.pt", target, "--weights-only")
                self.assertEqual(result.returncode, 1, keys)
                self.assertIn("some under " + ", ".join(f"'{key}'" for key in keys) + ": choose one with --key", result.stderr)
                self.assertFalse(target.exists())
                for key, expected in zip(keys, (state, other)):
                    self.convert(f"nested{number}.pt", f"selected{suffix}", "--weights-only", "--key", key)
                    pt_python.same(dict(self.load(self.convert(f"selected{suffix}", "selected_again.pt"))), expected)
            if "optimizer_g" not in content:
                self.assertEqual(run("convert", self.folder / f"nested{number}.pt", self.folder / "x.pt").returncode, 1, keys)
        # A dict that the user has chosen may have dicts beside tensors of its own.
        torch.save({"net_g": {"scale": torch.ones(2), "encoder": state}}, self.folder / "chosen.pt")
        loaded = self.load(self.convert("chosen.pt", "chosen_out.pt", "--weights-only", "--key", "net_g"))
        self.assertEqual(sorted(loaded), sorted(["scale", *(f"encoder.{name}" for name in state)]))
        torch.save(torch.ones(2), self.folder / "tensor.pt")
        torch.save({"w": torch.ones(2)}, self.folder / "one.pt")
        for name, options in (("tensor.pt", []), ("tensor.pt", ["--weights-only"]), ("one.pt", ["--key", "w"])):
            result = run("convert", self.folder / name, self.folder / "unnamed.pt", *options)
            self.assertEqual(result.returncode, 1)
            self.assertIn("it is a tensor without a name: save a dict that has it", result.stderr)
            self.assertFalse((self.folder / "unnamed.pt").exists())
        # Models by name, each with its optimizer, and a state dict with a dict of extra state have one meaning.
        torch.save({"g": state, "d": other, "optimizer_g": optimizer, "optimizer_d": optimizer}, self.folder / "models.pt")
        loaded = self.load(self.convert("models.pt", "models_out.pt", "--weights-only"))
        self.assertEqual(sorted(loaded), sorted(f"{name}.{key}" for name in "dg" for key in state))
        torch.save({**state, "0._extra_state": {"scale": torch.ones(2)}}, self.folder / "extra.pt")
        self.assertEqual(len(self.load(self.convert("extra.pt", "extra_out.pt", "--weights-only"))), len(state) + 1)
        torch.save(optimizer, self.folder / "optimizer_alone.pt")
        result = run("convert", self.folder / "optimizer_alone.pt", self.folder / "x.pt", "--weights-only")
        self.assertEqual(result.returncode, 1)
        self.assertIn("no tensors of a model", result.stderr)
        self.convert("optimizer_alone.pt", "optimizer_again.pt")
        result = run("convert", self.folder / "keys0.pt", self.folder / "x.pt", "--key", "emma")
        self.assertIn("it has no entry 'emma'", result.stderr)

    def test_a_key_of_several_models_is_as_ambiguous_as_none(self):
        state = dict(self.load(self.folder / "state_dict.pt"))
        other = {name: tensor + 1 for name, tensor in state.items()}
        torch.save({"state": {"ema": other, "raw": state}}, self.folder / "two.pt")
        for options in (["--weights-only"], []):
            result = run("convert", self.folder / "two.pt", self.folder / "x.pt", "--key", "state", *options)
            self.assertEqual(result.returncode, 1)
            self.assertIn("some under 'state.ema', 'state.raw': choose one with --key", result.stderr)
            self.assertFalse((self.folder / "x.pt").exists())
        # The one under a usual key is meant; the other one is named.
        torch.save({"state": {"ema": other, "model": state}, "epoch": 3}, self.folder / "usual.pt")
        result = run("convert", self.folder / "usual.pt", self.folder / "usual_out.pt", "--key", "state", "--weights-only")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("skipped state.ema: a dict under an unknown key", result.stderr)
        pt_python.same(dict(self.load(self.folder / "usual_out.pt")), state)
        # With the usual key or without, a model whose parts have dicts of their own is one model.
        torch.save({"model": {"encoder": state, "decoder": other}}, self.folder / "parts.pt")
        for options in (["--key", "model"], []):
            loaded = self.load(self.convert("parts.pt", "parts_out.pt", "--weights-only", *options))
            self.assertEqual(sorted(loaded), sorted(f"{part}.{name}" for part in ("encoder", "decoder") for name in state))

    def test_a_key_selects_of_safetensors_files_too(self):
        state = dict(self.load(self.folder / "state_dict.pt"))
        torch.save({"model": {f"ema.{name}": tensor for name, tensor in state.items()}}, self.folder / "prefixed.pt")
        self.convert("prefixed.pt", "prefixed.safetensors")
        pt_python.same(dict(self.load(self.convert("prefixed.safetensors", "selected.pt", "--key", "ema"))), state)
        result = run("convert", self.folder / "prefixed.safetensors", self.folder / "x.pt", "--key", "em")
        self.assertIn("holds nothing under the key 'em'", result.stderr)

    def test_objects_of_other_classes_are_passed_over_and_named(self):
        import argparse, collections, datetime, decimal, enum, functools, pathlib as paths
        state = dict(self.load(self.folder / "state_dict.pt"))
        log = collections.defaultdict(list)
        log["loss"].append(0.5)
        objects = {"args": argparse.Namespace(lr=0.1, paths=["a"]), "when": datetime.datetime(2020, 1, 2),
                   "path": paths.PurePosixPath("a/b"), "exact": decimal.Decimal("0.1"), "call": functools.partial(max, 1)}
        try:
            import numpy
            objects.update(best=numpy.float64(0.5), array=numpy.arange(3), kind=numpy.dtype("f4"))
        except ImportError:
            pass
        torch.save({"state_dict": state, "log": log, **objects, "epoch": 3}, self.folder / "objects.pt")
        torch.save({**state, **objects}, self.folder / "among.pt")
        for protocol in (2, 4):
            torch.save({"state_dict": state, **objects}, self.folder / f"protocol{protocol}.pt", pickle_protocol=protocol)
        for name in ("objects", "among", "protocol2", "protocol4"):
            result = run("convert", self.folder / f"{name}.pt", self.folder / "plain.pt")
            self.assertEqual(result.returncode, 0, result.stderr)
            for key in objects:
                self.assertRegex(result.stderr, f"skipped {key}: an object of '", name)
            loaded = self.load(self.folder / "plain.pt")
            pt_python.same(dict(loaded["model"]) if name == "objects" else dict(loaded), state)
        self.assertIn("skipped args: an object of 'argparse.Namespace'",
                      run("convert", self.folder / "objects.pt", self.folder / "plain.pt").stderr)

    def test_lightning_s_checkpoints_are_whole_runs(self):
        net = pt_python.Net()
        sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(sgd, 3)
        pt_python.train(net, sgd, 0, 2)
        schedule.step()
        torch.save({"epoch": 1, "global_step": 20, "pytorch-lightning_version": "2.1.0", "state_dict": net.state_dict(),
                    "loops": {"fit_loop": {"state_dict": {}}}, "callbacks": {}, "optimizer_states": [sgd.state_dict()],
                    "lr_schedulers": [schedule.state_dict()]}, self.folder / "lightning.ckpt")
        loaded = self.load(self.convert("lightning.ckpt", "lightning.pt"))
        pt_python.same(loaded["optimizer"]["state"], sgd.state_dict()["state"])
        self.assertEqual(loaded["scheduler"]["last_epoch"], 1)
        pt_python.same(dict(loaded["model"]), dict(net.state_dict()))
        second = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
        torch.save({"state_dict": net.state_dict(), "optimizer_states": [sgd.state_dict(), second.state_dict()]},
                   self.folder / "two.ckpt")
        self.assertEqual(sorted(self.load(self.convert("two.ckpt", "two.pt"))["optimizers"]), ["0", "1"])

    def test_a_scripted_module_has_the_weights_of_its_state_dict(self):
        class Inner(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(2, 2)
                self.table = torch.ones(3)
                self.register_buffer("mean", torch.zeros(2))

            def forward(self, x):
                return self.fc(x) + self.mean + self.table.sum()

        class Outer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner, self.last, self.scale = Inner(), torch.nn.Linear(2, 1), torch.tensor(2.0)

            def forward(self, x):
                return self.last(self.inner(x)) * self.scale

        net = Outer()
        for name, scripted in (("scripted", torch.jit.script(net)), ("traced", torch.jit.trace(net, torch.ones(1, 2)))):
            scripted.save(self.folder / f"{name}.jit")
            result = run("convert", self.folder / f"{name}.jit", self.folder / f"{name}.pt")
            self.assertEqual(result.returncode, 0, result.stderr)
            pt_python.same(dict(self.load(self.folder / f"{name}.pt")), dict(net.state_dict()), name)
            for attribute in ("scale", "inner.table") if name == "scripted" else ():
                self.assertIn(f"skipped {attribute}: a TorchScript module's attribute", result.stderr)

    def test_models_in_several_files_are_read_by_index_and_by_folder(self):
        state = dict(self.load(self.folder / "state_dict.pt"))
        names = sorted(state)
        for ending, index in ((".safetensors", "model.safetensors.index.json"), (".pt", "pytorch_model.bin.index.json")):
            folder = self.folder / f"hf{ending}"
            folder.mkdir()
            shards = {"one": names[:3], "two": names[3:]}
            for shard, own in shards.items():
                torch.save({name: state[name] for name in own}, folder / f"{shard}.tmp.pt")
                self.convert(folder / f"{shard}.tmp.pt", folder / f"{shard}{ending}")
                (folder / f"{shard}.tmp.pt").unlink()
            places = {name: shard + ending for shard, own in shards.items() for name in own}
            (folder / index).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
            for source in (folder, folder / index):
                result = run("inspect", source)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(f"model in several files\n{len(names)} tensors", result.stdout)
                self.assertIn(": model in several files, verified", run("verify", source).stdout)
                self.assertEqual("no checksums" in run("verify", source).stdout, ending == ".safetensors")
                pt_python.same(dict(self.load(self.convert(source, f"joined{ending}.pt"))), state)
            places[names[0]] = index
            (folder / index).write_text(json.dumps({"weight_map": places}))
            result = run("inspect", folder)
            self.assertEqual(result.returncode, 1)
            self.assertIn("which is an index itself", result.stderr)
            places[names[0]] = "two" + ending
            (folder / index).write_text(json.dumps({"weight_map": places}))
            self.assertIn(f"lacks the tensor '{names[0]}'", run("inspect", folder).stderr)
        single = self.folder / "single"
        single.mkdir()
        self.convert("state_dict.pt", "single/model.safetensors")
        pt_python.same(dict(self.load(self.convert("single", "single.pt"))), state)

    def test_what_is_something_else_is_named(self):
        cases = {"pointer.safetensors": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
                 "page.pt": (b"<!DOCTYPE html><html>", "HTML page"), "empty.safetensors": (b"", "it is empty"),
                 "__0_0.distcp": (b"PK\3\4", "dcp_to_torch_save"), "index.json": (b'{"weight_map": {}}', "index of a model")}
        for name, (content, what) in cases.items():
            (self.folder / name).write_bytes(content)
            for command in ("inspect", "verify"):
                result = run(command, self.folder / name)
                self.assertEqual(result.returncode, 1)
                self.assertIn(what, result.stderr)
        dcp = self.folder / "dcp"
        dcp.mkdir()
        torch.distributed.checkpoint.save({"w": torch.ones(3)}, checkpoint_id=dcp, no_dist=True)
        self.assertIn("w  float32 [3]", run("inspect", dcp).stdout)
        for path in (next(dcp.glob("*.distcp")), dcp / ".metadata"):
            self.assertIn("give the folder that holds its .metadata", run("inspect", path).stderr)
        (dcp / ".metadata").unlink()
        for arguments in (["inspect", dcp], ["verify", dcp], ["convert", dcp, self.folder / "x.pt"]):
            self.assertIn("but not their .metadata, which is written last", run(*arguments).stderr)
        for protocol in (0, 1):
            torch.save({"w": torch.ones(2)}, self.folder / "old.pt", pickle_protocol=protocol, _use_new_zipfile_serialization=False)
            self.assertIn("torch.save wrote it with pickle protocol 0 or 1", run("inspect", self.folder / "old.pt").stderr)

    def test_what_is_no_plain_tensor_file_is_refused_with_its_reason(self):
        (self.folder / "tar.pt").write_bytes(b"\0" * 257 + b"ustar" + b"\0" * 1000)
        for name, reason in [("whole_module.pt", "save a state_dict() in Python instead of the whole object"),
                             ("tar.pt", "load it in Python with weights_only=False")]:
            result = run("verify", self.folder / name)
            self.assertEqual(result.returncode, 1)
            self.assertIn(reason, result.stderr)
        self.assertEqual(run("verify", self.folder / "absent").returncode, 1)
        result = run("convert", self.folder / "state_dict.pt", self.folder / "x.npz")
        self.assertIn("must end in", result.stderr)

    def test_a_changed_byte_anywhere_in_torch_s_own_file_is_found(self):
        path = self.folder / "changed.pt"
        data = bytearray((self.folder / "sgd.pt").read_bytes())
        for position in range(0, len(data), max(1, len(data) // 60)):
            data[position] ^= 1 << position % 8
            path.write_bytes(data)
            self.assertEqual(run("verify", path).returncode, 1, f"byte {position}")
            data[position] ^= 1 << position % 8

    def test_one_rank_is_one_rank_and_values_keep_their_kind(self):
        for ranks, text in [(1, "1 rank"), (2, "2 ranks")]:
            run_folder = self.folder / f"run-{ranks}"
            write_checkpoint(run_folder / "step-00000007", ranks, b'{"best": {"__float__": "-inf"}, "seed": 18446744073709551615}')
            self.assertIn(f"saved by {text}\n", run("inspect", run_folder / "step-00000007").stdout)
            self.assertRegex(run("inspect", run_folder).stdout, rf"bytes, {text}\n")
        values = self.load(self.convert("run-1/step-00000007", "values.pt"))["values"]
        self.assertEqual(values, {"best": float("-inf"), "seed": 2**64 - 1})

    def test_what_its_writer_removes_meanwhile_is_no_damage(self):
        folder = self.folder / "beside"
        values = b'{"text": "' + bytes(1_000_000).replace(b"\0", b"x") + b'"}'
        checksum = crc32c(values)
        ended = threading.Event()

        def save(step):
            write_checkpoint(folder / f"step-{step:08d}.tmp-0123456789abcdef", 1, values, step, checksum)
            (folder / f"step-{step:08d}.tmp-0123456789abcdef").rename(folder / f"step-{step:08d}")

        def keep_saving():
            step = 4
            while not ended.is_set():
                save(step)
                doomed = (folder / f"step-{step - 3:08d}").rename(folder / "doomed")
                shutil.rmtree(doomed)
                step += 1

        for step in range(1, 4):
            save(step)
        writer = threading.Thread(target=keep_saving)
        writer.start()
        try:
            for _ in range(100):
                result = run("verify", folder)
                self.assertNotIn("DAMAGED", result.stdout)
                if "try again" not in result.stderr:
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        finally:
            ended.set()
            writer.join()

    def test_what_an_optimizer_has_besides_comes_along_or_is_named(self):
        parameters = [(f"p{i}", torch.nn.Parameter(torch.ones(1, 2))) for i in range(20)]
        for make in (torch.optim.Adafactor, torch.optim.SGD):
            optimizer = make(parameters, lr=0.1)
            for _, parameter in parameters:
                parameter.grad = torch.ones(1, 2)
            optimizer.step()
            state = optimizer.state_dict()
            torch.save({"model": dict(parameters), "optimizer": state}, self.folder / "named.pt")
            groups = self.load(self.convert("named.pt", "named_out.pt"))["optimizer"]["param_groups"]
            # What Python's other optimizers have is added at its defaults.
            self.assertEqual(len(groups), 1)
            for key, value in state["param_groups"][0].items():
                self.assertEqual(groups[0][key], list(value) if isinstance(value, tuple) else value, key)
        state["state"].update({"mine": {"x": torch.ones(1)}, 0: {"flags": [True], "momentum_buffer": torch.ones(1, 2)}})
        state["param_groups"][0]["odd"] = {"a": 1}
        torch.save({"model": dict(parameters), "optimizer": state}, self.folder / "strange.pt")
        result = run("convert", self.folder / "strange.pt", self.folder / "strange_out.pt")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr.splitlines(), [
            "ddprun-checkpoint: skipped param_groups.0.odd: not a number, a text or a list of them",
            "ddprun-checkpoint: skipped state.#0.flags: neither a tensor nor a number",
            "ddprun-checkpoint: skipped state.mine: state of no parameter in its groups"])

    def test_optimizers_under_names_of_their_own_give_the_model_nothing(self):
        net = torch.nn.Linear(2, 2)
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        torch.save({"netG": net.state_dict(), "optimizer_G": optimizer.state_dict(), "opt": optimizer.state_dict()}, self.folder / "gan.pt")
        result = run("convert", self.folder / "gan.pt", self.folder / "gan_out.pt")
        self.assertEqual(result.stderr, "ddprun-checkpoint: skipped opt: a dict under an unknown key\n")
        loaded = self.load(self.folder / "gan_out.pt")
        self.assertEqual(list(loaded["model"]), ["netG.bias", "netG.weight"])
        self.assertEqual(list(loaded["optimizers"]), ["G"])
        torch.save({"optimizers": {"G": optimizer.state_dict()}}, self.folder / "alone.pt")
        self.assertEqual(list(self.load(self.convert("alone.pt", "alone_out.pt"))), ["optimizers"])

    def test_entries_of_a_file_that_are_not_converted_are_named(self):
        weights = torch.nn.Linear(2, 2).state_dict()
        torch.save({"model": weights, "state_dict": weights, "ema": weights, "args": {"lr": 0.1}, "losses": [1.0], "none": None,
                    "epoch": 3, "scheduler": "cosine", "lr_scheduler": {"last_epoch": 3}}, self.folder / "more.pt")
        result = run("convert", self.folder / "more.pt", self.folder / "more_out.pt")
        self.assertEqual(result.stderr.splitlines(), [
            "ddprun-checkpoint: skipped args: a dict under an unknown key",
            "ddprun-checkpoint: skipped ema: a dict under an unknown key",
            "ddprun-checkpoint: skipped losses: a list or tuple",
            "ddprun-checkpoint: skipped state_dict: a dict under an unknown key",
            "ddprun-checkpoint: left out values whose names are already used by other entries of the file (1): scheduler"])
        loaded = self.load(self.folder / "more_out.pt")
        self.assertEqual((loaded["epoch"], loaded["scheduler"]), (3, {"last_epoch": 3}))
        self.assertIn("losses  not read: a list or tuple", run("inspect", self.folder / "more.pt").stdout)

    def test_two_tensors_of_one_name_are_refused_with_it_and_nothing_is_written(self):
        both = {"a": {"b": torch.ones(2)}, "a.b": torch.zeros(2)}
        for name, content in [("both.pt", both), ("both_below.pt", {"model": dict(reversed(both.items())), "epoch": 3})]:
            torch.save(content, self.folder / name)
            for command in (["inspect"], ["verify"], ["convert"]):
                target = self.folder / "both.safetensors"
                result = run(*command, self.folder / name, *([target] if command == ["convert"] else []))
                self.assertEqual(result.returncode, 1)
                self.assertIn("two tensors of the name 'a.b'", result.stderr)
                self.assertFalse(target.exists())

    def test_inspect_lists_names_and_shapes(self):
        output = run("inspect", self.folder / "run.pt").stdout
        self.assertIn("fc2.weight  float32 [3, 8]", output)
        self.assertIn("state.#0.exp_avg", output)


if __name__ == "__main__":
    unittest.main()
