"""Sharded checkpoints of Python's, and what C++ and ddprun-checkpoint make of them: `sharded_test.py TOOL PROGRAM`, with the program
sharded_program.cpp. Exit status 77 (skipped) without torch.

Every form is read, and converted into every other; names and bits must stay.
"""

import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

try:
    import safetensors.torch
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
    from torch.distributed.checkpoint.state_dict import set_model_state_dict, set_optimizer_state_dict
    from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
except ImportError:
    print("skipped: this Python has no torch or no safetensors")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))
import ddprun.checkpoint  # noqa: E402
from ddprun.checkpoint._manifest import crc32c, crc32c_blocks, file_bytes, format_blocks, format_manifest, read_manifest  # noqa: E402
from sharded_net import make_plain  # noqa: E402

TOOL, PROGRAM = sys.argv.pop(1), sys.argv.pop(1)
RANKS = 3
torch.set_num_threads(1)
warnings.simplefilter("ignore")


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def start(stage, folder, ranks, form="fsdp"):
    """Runs sharded_ranks.py; raises with what a rank wrote when one fails."""
    command = [sys.executable, "-B", str(HERE / "sharded_ranks.py"), str(stage), str(folder)]
    processes = [subprocess.Popen([*command, str(rank), str(ranks), form], stderr=subprocess.PIPE, text=True) for rank in range(ranks)]
    errors = [process.communicate(timeout=600)[1] for process in processes]
    for process, error in zip(processes, errors):
        if process.returncode:
            raise AssertionError(error)


class ShardedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        start("write", cls.folder, RANKS)
        cls.reference = torch.load(cls.folder / "reference.pt")
        cls.sharded = cls.folder / "run" / "step-00000007"

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def setUp(self):
        self.out = pathlib.Path(tempfile.mkdtemp(dir=self.folder))

    def convert(self, source, name, *options):
        result = run("convert", source, self.out / name, *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.out / name

    def same_tensors(self, left, right):
        self.assertEqual(sorted(left), sorted(right))
        for name, tensor in right.items():
            self.assertEqual(left[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(left[name], tensor), name)

    def same_run(self, loaded):
        self.same_tensors(dict(loaded["model"]), self.reference["model"])
        state = {(number, field): each for number, fields in loaded["optimizer"]["state"].items() for field, each in fields.items()}
        self.same_tensors(state, self.reference["optimizer"])
        self.assertEqual([len(group["params"]) for group in loaded["optimizer"]["param_groups"]], [2, 4])
        self.assertEqual(loaded["step"], 7)

    def test_any_number_of_ranks_loads_what_others_saved(self):
        for ranks, form in ((1, "fsdp"), (2, "ddp"), (4, "fsdp"), (8, "fsdp")):
            start("run", self.folder, ranks, form)
        # Whole tensors, as the tool writes them, too.
        self.convert(self.sharded, "whole/step-00000007", "--to", "checkpoint")
        start(self.out / "whole", self.folder, 2)

    def test_what_fails_on_one_rank_fails_on_all_and_leaves_nothing(self):
        start("fail", self.out, 2)

    def test_files_and_ranks_that_are_missing_are_named_before_anything_is_changed(self):
        for name, missing, world_size in self.manifests():
            ends = self.with_manifest(self.out / name / "step-00000007", missing, world_size)
            with self.subTest(name), self.assertRaisesRegex(ddprun.checkpoint.DamagedCheckpoint, ends):
                ddprun.checkpoint.load(self.out / name / "step-00000007")
        start("refuse", self.out, 2)

    def manifests(self):
        """Names, files that are missing, and world sizes of manifests that are valid but for these."""
        for part in ("model", "optim"):
            for rank in range(RANKS):
                yield f"{part}{rank}", f"{part}-0000{rank + 1}-of-0000{RANKS}.safetensors", RANKS
        for world_size in (-1, 0, 1, 2, 4, 10**9, 2**63):
            yield f"world{world_size}", None, world_size

    def with_manifest(self, copy, missing, world_size):
        """Makes a copy with such a manifest; returns what the error says."""
        shutil.copytree(self.sharded, copy)
        files = dict(read_manifest(copy)["files"])
        if missing:
            (copy / missing).unlink()
            blocks = (copy / "block-checksums.txt").read_text().splitlines(keepends=True)
            (copy / "block-checksums.txt").write_text("".join(line for line in blocks if not line.startswith(missing)))
            del files[missing]
            text = file_bytes(copy / "block-checksums.txt")
            files["block-checksums.txt"] = text.numel(), crc32c(text)
        (copy / "MANIFEST.json").write_text(format_manifest(7, 1, world_size, {"loss": 0.25}, files))
        expected = rf"files are missing: {missing} \(rank \d's part\)" if missing else f"world_size {world_size}"
        (copy / "expected.txt").write_text(expected)
        return expected

    def test_load_puts_the_tensors_together(self):
        loaded = ddprun.checkpoint.load(self.folder / "run")
        self.same_run(loaded)
        self.assertEqual(loaded["per_rank"], [{"own": bytes([rank])} for rank in range(RANKS)])
        self.assertEqual((loaded["values"], loaded["metrics"], loaded["world_size"]), ({"best": 0.5}, {"loss": 0.25}, RANKS))
        flat = ddprun.checkpoint.flat_optimizer_state(self.folder / "run")
        self.assertEqual(flat["param_groups.fc.weight.initial_lr"], 0.1)

    def test_c_goes_on_from_python_and_python_from_c(self):
        for ranks, kind in ((2, "fully_shard"), (1, "replicated"), (8, "fully_shard")):
            target = self.out / f"{kind}{ranks}"
            subprocess.run([PROGRAM, self.folder / "run", target, str(ranks), kind], check=True, timeout=300)
            self.same_run(ddprun.checkpoint.load(target))
            self.assertEqual(run("verify", target).returncode, 0)
            self.same_run(torch.load(self.convert(target / "step-00000007", f"{kind}{ranks}.pt")))
        start(target, self.folder, 2)

    def test_every_form_becomes_a_pt_file(self):
        self.same_run(torch.load(self.convert(self.sharded, "run.pt")))
        self.same_run(torch.load(self.convert(self.folder / "nested", "nested.pt")))
        weights = torch.load(self.convert(self.folder / "hf", "hf.pt"))
        self.same_tensors(weights, {name: each for name, each in self.reference["model"].items() if name != "out.weight"})
        for name in ("flat", "nested"):
            self.same_tensors(torch.load(self.convert(self.folder / name, f"{name}_weights.pt", "--weights-only")), self.reference["model"])
        whole = self.convert(self.sharded, "run.safetensors")
        names = {name for name in safetensors.torch.load_file(whole) if not name.startswith("state.")}
        self.assertEqual(names, set(self.reference["model"]))

    def test_forms_go_through_each_other(self):
        self.convert(self.sharded, "a/step-00000007", "--to", "checkpoint")
        self.same_run(ddprun.checkpoint.load(self.out / "a"))
        self.convert(self.out / "a" / "step-00000007", "dcp", "--to", "dcp")
        self.convert(self.out / "dcp", "b/step-00000007", "--to", "checkpoint")
        loaded = ddprun.checkpoint.load(self.out / "b")
        self.same_run(loaded)
        self.assertEqual(loaded["scheduler"]["last_epoch"], 3)
        self.assertEqual(loaded["values"], {"best": 0.5})
        for folder in ("a", "b", "dcp", "a/step-00000007"):
            result = run("verify", self.out / folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("verified", result.stdout)

    def test_c_goes_on_from_dcp(self):
        for folder in (self.convert(self.sharded, "dcp", "--to", "dcp"), self.folder / "flat", self.folder / "nested"):
            for ranks, kind in ((2, "fully_shard"), (1, "replicated")):
                target = self.out / f"{folder.name}-{kind}"
                subprocess.run([PROGRAM, folder, target, str(ranks), kind], check=True, timeout=300)
                self.same_run(ddprun.checkpoint.load(target))

    def test_c_goes_on_from_a_checkpoint_that_was_dcp(self):
        self.convert(self.folder / "flat", "made/step-00000007", "--to", "checkpoint")
        for ranks, kind in ((2, "fully_shard"), (1, "replicated")):
            target = self.out / f"{kind}{ranks}"
            result = subprocess.run([PROGRAM, self.out / "made", target, str(ranks), kind], capture_output=True, text=True, timeout=300)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("the checkpoint holds no random-number states", result.stderr)
            self.same_run(ddprun.checkpoint.load(target))

    def test_c_finds_a_changed_bit_however_many_ranks_load(self):
        folder = self.convert(self.sharded, "dcp", "--to", "dcp")
        metadata = pickle.loads((folder / ".metadata").read_bytes())
        place = next(place for index, place in metadata.storage_data.items() if index.fqn == "model.embed.weight")
        file = folder / place.relative_path
        content = bytearray(file.read_bytes())
        value = self.reference["model"]["embed.weight"].numpy().tobytes()
        content[content.index(value, place.offset) + 5] ^= 1
        file.write_bytes(content)
        for ranks in (1, 2, 3):
            result = subprocess.run([PROGRAM, folder, self.out / "x", str(ranks), "fully_shard"], capture_output=True, text=True, timeout=300)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("embed.weight", result.stderr)

    def test_python_loads_the_dcp_folder(self):
        folder = self.convert(self.sharded, "dcp", "--to", "dcp")
        net, optimizer = make_plain()
        options = StateDictOptions(flatten_optimizer_state_dict=True)
        state = {"model": get_model_state_dict(net), "optim": get_optimizer_state_dict(net, optimizer, options=options), "step": 0}
        dcp.load(state, checkpoint_id=folder)
        set_model_state_dict(net, state["model"])
        set_optimizer_state_dict(net, optimizer, state["optim"], options=options)
        self.assertEqual(state["step"], 7)
        self.same_run({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": 7})
        # Without names Python's own numbers.
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, self.out / "numbered.pt")
        numbered = self.convert(self.out / "numbered.pt", "numbered", "--to", "dcp")
        dcp_to_torch_save(numbered, self.out / "back.pt")
        back = torch.load(self.out / "back.pt")
        self.same_tensors(back["model"], dict(net.state_dict()))
        self.assertEqual(sorted(back["optim"]), ["param_groups", "state"])

    def test_python_reads_the_sharded_folder_as_hugging_face_s(self):
        state = {name: torch.zeros_like(tensor) for name, tensor in self.reference["model"].items()}
        dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(self.sharded)))
        self.same_tensors(state, self.reference["model"])

    def test_consolidation_equals_python_s(self):
        ours = self.convert(self.sharded, "ours", "--to", "safetensors", "--max-file-size", "200")
        index = json.loads((ours / "model.safetensors.index.json").read_text())
        loaded = {name: safetensors.torch.load_file(ours / file)[name] for name, file in index["weight_map"].items()}
        self.same_tensors(loaded, self.reference["model"])
        self.assertEqual(index["metadata"]["total_size"], sum(tensor.nbytes for tensor in loaded.values()))
        self.assertEqual(sorted(os.listdir(ours)), sorted({*index["weight_map"].values(), "model.safetensors.index.json"}))
        for file in set(index["weight_map"].values()):
            tensors = safetensors.torch.load_file(ours / file)
            self.assertTrue(len(tensors) == 1 or sum(tensor.nbytes for tensor in tensors.values()) <= 200, file)
        # Python's takes folders of floating point numbers alone.
        shards, theirs = self.out / "shards", self.out / "theirs"
        shards.mkdir(), theirs.mkdir()
        for rank in range(RANKS):
            name = f"model-0000{rank + 1}-of-0000{RANKS}.safetensors"
            tensors = safetensors.torch.load_file(self.sharded / name)
            with safetensors.safe_open(self.sharded / name, "pt") as file:
                metadata = file.metadata()
            tensors.pop("bn.num_batches_tracked", None)
            safetensors.torch.save_file(tensors, shards / name, metadata)
        names = [name for name in self.reference["model"] if name != "bn.num_batches_tracked"]
        consolidate_safetensors_files(str(shards), str(theirs), dict.fromkeys(names, 1))
        (file,) = theirs.glob("*.safetensors")
        self.same_tensors(safetensors.torch.load_file(file), {name: self.reference["model"][name] for name in names})
        # And the tool reads what Python made of it.
        self.same_tensors(torch.load(self.convert(theirs, "theirs.pt")), {name: self.reference["model"][name] for name in names})

    def test_inspect_and_list_say_what_there_is(self):
        for path, kind in ((self.sharded, "sharded checkpoint of step 7, saved by 3 ranks, loss 0.25"),
                           (self.folder / "hf", "folder of Python's safetensors shards"),
                           (self.folder / "flat", "folder of torch.distributed.checkpoint")):  # fmt: skip
            for command in ("inspect", "list"):
                result = run(command, path)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn(kind, result.stdout)
                self.assertIn("embed.weight  float32 [7, 5]", result.stdout)
        self.assertRegex(run("list", self.folder / "run").stdout, r"step 7: \d+ bytes, 3 ranks, loss 0.25\n")
        self.assertRegex(run("verify", self.folder / "hf").stdout, "does not say how many there were, verified .structure only")
        self.assertIn("verified (its items: .metadata has no checksum)", run("verify", self.folder / "flat").stdout)

    def changes_found(self, source, copy):
        """The files and positions where a changed bit goes unnoticed."""
        for path in sorted(source.iterdir()):
            data = path.read_bytes()
            for position in range(0, len(data), max(1, len(data) // 9)):
                changed = bytearray(data)
                changed[position] ^= 1 << position % 8
                shutil.copytree(source, copy)
                (copy / path.name).write_bytes(changed)
                result = run("verify", copy)
                self.assertIn(result.returncode, (0, 1), f"{path} {position} {result.stderr}")
                if result.returncode == 0:
                    yield path.name, position
                shutil.rmtree(copy)

    def test_changed_bytes_are_found_wherever_they_are(self):
        self.assertEqual(list(self.changes_found(self.sharded, self.out / "step-00000007")), [])
        # DCP has no checksum for its metadata; and items of chunks without elements are not looked at.
        metadata = pickle.loads((self.folder / "flat" / ".metadata").read_bytes())
        unseen = []
        for index, place in metadata.storage_data.items():
            chunks = getattr(metadata.state_dict_metadata[index.fqn], "chunks", [])
            if any(chunk.offsets == index.offset and chunk.sizes.numel() == 0 for chunk in chunks):
                unseen.append((place.relative_path, range(place.offset, place.offset + place.length)))
        self.assertTrue(unseen)
        for name, position in self.changes_found(self.folder / "flat", self.out / "flat"):
            is_known = name == ".metadata" or any(name == file and position in places for file, places in unseen)
            self.assertTrue(is_known, f"{name} {position}")

    def test_missing_and_short_files_are_named_with_rank_and_tensor(self):
        copy = self.out / "step-00000007"
        name = f"model-00002-of-0000{RANKS}.safetensors"
        for command in ("inspect", "verify"):
            shutil.copytree(self.sharded, copy)
            (copy / name).unlink()
            result = run(command, copy)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, rf"{name} \(rank 1's part\).*'(embed|fc|large|out|bn)\.")
            shutil.copy(self.sharded / name, copy)
            with open(copy / name, "r+b") as file:
                file.truncate((copy / name).stat().st_size - 1)
            result = run(command, copy)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, rf"{name} \(rank 1's part\) has \d+ bytes, but \d+ were written; it lacks '")
            shutil.rmtree(copy)
        shutil.copytree(self.sharded, copy)
        (copy / name).unlink()
        result = run("list", self.out)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, rf"step 7: DAMAGED: .*{name} \(rank 1's part\).*'(embed|fc|large|out|bn)\.")
        shutil.rmtree(copy)
        with self.assertRaisesRegex(ddprun.checkpoint.DamagedCheckpoint, name):
            shutil.copytree(self.sharded, copy)
            (copy / name).unlink()
            ddprun.checkpoint.load(copy)

    def test_python_names_rank_and_tensor_of_what_is_lost(self):
        copy = self.out / "step-00000007"
        shutil.copytree(self.sharded, copy)
        path = copy / f"model-00002-of-0000{RANKS}.safetensors"
        whole = path.read_bytes()
        length = int.from_bytes(whole[:8], "little")
        name, entry = next((name, each) for name, each in json.loads(whole[8 : 8 + length]).items() if name != "__metadata__")
        at = 8 + length + entry["data_offsets"][0]
        named = rf"{path.name} \(rank 1's part\)"
        cases = {
            "missing": (None, rf"{named} is missing; it holds a part of '(embed|fc|large|out|bn)\."),
            "short": (whole[:-1], rf"{named} has {len(whole) - 1} bytes, but the manifest says {len(whole)}; it lacks '"),
            "empty": (b"", rf"{named} has 0 bytes, but the manifest says {len(whole)}; it held a part of '"),
            "long": (whole + b"x", rf"{named} has {len(whole) + 1} bytes, but the manifest says {len(whole)}; it held a part of '"),
            "header": (bytes([whole[0] ^ 255]) + whole[1:], rf"{named} is damaged: .*; the file holds a part of '"),
            "changed": (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], rf"{named} is damaged: .*; the first damaged bytes hold '"),
        }
        for case, (content, expected) in cases.items():
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_bytes(content)
            for load in (ddprun.checkpoint.load, ddprun.checkpoint.load_sharded):
                with self.subTest(case, load=load.__name__), self.assertRaisesRegex(ddprun.checkpoint.DamagedCheckpoint, expected):
                    load(copy)

    def test_python_names_file_and_tensor_of_headers_that_do_not_fit(self):
        def places(header, change):
            listed = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
            change(listed)
            header["__metadata__"]["DCP_SHARDING_INFO"] = json.dumps(listed)

        def at(**values):
            return lambda header: places(header, lambda listed: listed["large.weight"].update(values))

        cases = {
            "no place": lambda header: places(header, lambda listed: listed.pop("large.weight")),
            "place of nothing": lambda header: places(header, lambda listed: listed.update(other=dict(listed["large.weight"]))),
            "no list": lambda header: header["__metadata__"].update(DCP_SHARDING_INFO="[]"),
            "no JSON": lambda header: header["__metadata__"].update(DCP_SHARDING_INFO="{"),
            "text": at(saved_offsets="0"),
            "negative": at(saved_offsets=[-1, 0]),
            "another rank's": at(saved_offsets=[0, 0]),
            "outside": at(saved_offsets=[10**6, 0]),
            "huge": at(tensor_shape=[2**40, 2**20]),
            "dimensions": at(tensor_shape=[1]),
            "larger": at(tensor_shape=[10**6, 7]),
        }
        for case, change in cases.items():
            copy = self.out / case / "step-00000007"
            self.with_header(copy, change)
            for load in (ddprun.checkpoint.load, lambda path: ddprun.checkpoint.load_sharded(path, model=make_plain()[0])):
                with self.subTest(case), self.assertRaisesRegex(
                        ddprun.checkpoint.DamagedCheckpoint, r"(model-00002.*damaged: .*(header|'[\w.]+')|model.safetensors.*'large.weight')"):
                    load(copy)

    def with_header(self, copy, change):
        """Makes a copy of the checkpoint in which the header of a file of the model is changed, with checksums that fit."""
        shutil.copytree(self.sharded, copy)
        path = copy / f"model-00002-of-0000{RANKS}.safetensors"
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
        files = read_manifest(copy)["files"]
        blocks = copy / "block-checksums.txt"
        blocks.write_text(format_blocks({name: crc32c_blocks(file_bytes(copy / name)) for name in files if "-of-" in name}))
        files.update({each.name: (each.stat().st_size, crc32c(file_bytes(each))) for each in (path, blocks)})
        (copy / "MANIFEST.json").write_text(format_manifest(7, 1, RANKS, {"loss": 0.25}, files))

    def test_a_folder_appears_whole_or_not_at_all(self):
        existing = self.out / "there"
        existing.mkdir()
        for form in ("safetensors", "dcp", "checkpoint"):
            result = run("convert", self.sharded, existing, "--to", form)
            self.assertEqual(result.returncode, 1)
            self.assertIn("exists", result.stderr)
        copy = self.out / "step-00000007"
        shutil.copytree(self.sharded, copy)
        path = copy / f"model-00001-of-0000{RANKS}.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        for form, target in (("safetensors", "new"), ("dcp", "new"), ("checkpoint", "new/step-00000007")):
            result = run("convert", copy, self.out / target, "--to", form)
            self.assertEqual(result.returncode, 1)
            self.assertIn("CRC32C", result.stderr)
            self.assertFalse((self.out / target).exists())
            self.assertEqual([path.name for path in self.out.rglob("*.tmp-*")], [])
        result = run("convert", self.sharded, self.out / "step-00000008", "--to", "checkpoint")
        self.assertIn("must be named step-00000007", result.stderr)
        self.assertEqual(run("convert", self.sharded, self.out / "x", "--to", "zip").returncode, 2)
        self.assertIn("for a folder give --to", run("convert", self.sharded, self.out / "x").stderr)


if __name__ == "__main__":
    unittest.main()
