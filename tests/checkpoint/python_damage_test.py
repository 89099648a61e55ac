"""Damaged checkpoints of several ranks: `python_damage_test.py TOOL`. Exit status 77 (skipped) without torch.

ddprun.checkpoint.load() of a run must say which file is bad, and load the one before; ddprun-checkpoint verify must find the same. Most of
the damage is in folders with a manifest that fits, as an attacker would make them.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

try:
    import torch
    import safetensors  # noqa: F401
except ImportError:
    print("skipped: this Python has no torch or no safetensors")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import ddprun.checkpoint  # noqa: E402
import ddprun.checkpoint._folder as folders  # noqa: E402
import ddprun.checkpoint._json as checkpoint_json  # noqa: E402
import ddprun.checkpoint._sharded as sharded  # noqa: E402
import ddprun.checkpoint._states as states  # noqa: E402
from ddprun.checkpoint import DamagedCheckpoint  # noqa: E402
from ddprun.checkpoint._manifest import crc32c, crc32c_blocks, file_bytes, format_blocks, format_manifest  # noqa: E402
from ddprun.checkpoint._shards import parse  # noqa: E402

TOOL = sys.argv.pop(1)
RANKS = 3
SECOND = f"model-00002-of-0000{RANKS}.safetensors"
torch.set_num_threads(1)


class OneOf:
    """A rank, as the functions that write a rank's part need it."""

    def __init__(self, rank):
        self.rank, self.count = rank, RANKS


def save(run, step):
    """A checkpoint of RANKS ranks, written by this process alone."""
    net = torch.nn.Linear(40, 30)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.ones(1, 40)).sum().backward()
    optimizer.step()
    rest = {"values": {"best": 0.5}, "rng": [ddprun.checkpoint.rng_state()] * RANKS, "scaler": {"scale": 2.0}}
    with folders.staged(run, step) as new:
        records = [sharded._write_part(new.folder, part, *content, OneOf(rank))
                   for part, content in sharded._parts(net, {"": optimizer}).items() for rank in range(RANKS)]  # fmt: skip
        ddprun.checkpoint._write_folder(new.folder, rest, None, {})
        (new.folder / "block-checksums.txt").write_text(format_blocks({name: blocks for name, _, _, blocks in records}))
        return new.commit(RANKS, {}, {name: (size, crc) for name, size, crc, _ in records})


def reseal(folder, blocks=True):
    """Makes the manifest, and with `blocks` the checksums of blocks, those of the folder's files."""
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    paths = sorted(path for path in folder.iterdir() if path.name != "MANIFEST.json")
    if blocks:
        text = format_blocks({path.name: crc32c_blocks(file_bytes(path)) for path in paths if "-of-" in path.name})
        (folder / "block-checksums.txt").write_text(text)
    files = {path.name: (path.stat().st_size, crc32c(file_bytes(path))) for path in paths}
    (folder / "MANIFEST.json").write_text(format_manifest(manifest["step"], manifest["sequence"], manifest["world_size"], {}, files))


def change_header(path, change):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def replaced(path, make):
    path.unlink()
    make(path)


class PythonDamageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.good = pathlib.Path(temporary.name) / "good"
        for step in (2, 4):
            save(cls.good, step)

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def damaged(self, name, damage, blocks=None):
        """A copy of the run with damage to its newest checkpoint, whose manifest is made to fit if `blocks` says how."""
        run = self.folder / name.replace(" ", "-")
        shutil.copytree(self.good, run)
        damage(run / "step-00000004")
        if blocks is not None:
            reseal(run / "step-00000004", blocks)
        return run

    def falls_back(self, name, run, message, load=ddprun.checkpoint.load):
        """load() of the checkpoint says `message`; of the run it loads the one before, with that warning."""
        with self.subTest(name):
            with self.assertRaisesRegex(DamagedCheckpoint, message):
                load(run / "step-00000004")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", RuntimeWarning)
                self.assertEqual(load(run)["step"], 2)
            self.assertEqual(len(caught), 1, [str(each.message) for each in caught])
            self.assertRegex(str(caught[0].message), f"skipped a checkpoint: (?s:.*){message}")
            self.assertIn("step-00000004", str(caught[0].message))
            self.assertEqual(caught[0].filename, __file__)

    def verify(self, path):
        result = subprocess.run([TOOL, "verify", path], capture_output=True, text=True, timeout=60)
        return result.returncode, result.stdout + result.stderr

    def verify_refuses(self, name, run, message):
        """verify of the folder and verify of the run find the damage, and say the same of it."""
        for path in (run / "step-00000004", run):
            code, output = self.verify(path)
            self.assertEqual(code, 1, f"{name}: {output}")
            self.assertRegex(output, message, name)

    def test_a_good_run_is_loaded_and_verified_without_a_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(ddprun.checkpoint.load(self.good)["step"], 4)
        for path in (self.good, self.good / "step-00000004"):
            self.assertEqual(self.verify(path)[0], 0)

    def test_a_manifest_of_any_size_is_not_read_into_memory(self):
        run = self.damaged("huge", lambda folder: os.truncate(folder / "MANIFEST.json", 1 << 34))
        self.falls_back("huge", run, f"MANIFEST.json is damaged: it has {1 << 34} bytes, more than the {1 << 20} that are read")
        # The next save does not read it either.
        run = self.damaged("huge-older", lambda folder: os.truncate(folder.with_name("step-00000002") / "MANIFEST.json", 1 << 34))
        shutil.rmtree(run / "step-00000004")
        self.assertEqual(json.loads((ddprun.checkpoint.save(run, step=5) / "MANIFEST.json").read_text())["sequence"], 1)
        with self.assertRaisesRegex(ValueError, f"more than the {1 << 20} that are read"):
            ddprun.checkpoint.save(run, step=6, metrics={f"{i:0250}": 1 for i in range(5000)})

    def test_json_that_is_nested_too_deeply_is_refused_by_file(self):
        def deep_header(folder):
            (folder / SECOND).write_bytes((800000).to_bytes(8, "little") + b"[" * 800000)

        def deep_places(folder):
            change_header(folder / SECOND, lambda header: header["__metadata__"].update(DCP_SHARDING_INFO="[" * 200000))

        def deep_groups(folder):
            change_header(folder / f"optim-00001-of-0000{RANKS}.safetensors",
                          lambda header: header["__metadata__"].update({states.OPTIMIZER: "[" * 200000}))  # fmt: skip

        for name, damage, file in (("header", deep_header, rf"{SECOND} \(rank 1's part\)"), ("places", deep_places, rf"{SECOND} \(rank 1's part\)"),
                                   ("groups", deep_groups, "optim.safetensors"),
                                   ("values", lambda folder: (folder / "trainer.json").write_text('{"a":' * 200000), "trainer.json")):
            run = self.damaged(name, damage, blocks=True)
            self.falls_back(name, run, f"{file} .*nested too deeply")
        for name in ("header", "places"):
            self.verify_refuses(name, self.folder / name, rf"{SECOND} \(rank 1's part\)")
            load = lambda path: ddprun.checkpoint.load_sharded(path, model=torch.nn.Linear(40, 30))  # noqa: E731
            self.falls_back(name, self.folder / name, f"{SECOND} .*nested too deeply", load)

    def test_levels_of_json_are_counted_as_in_c(self):
        for text in ("[" * 64 + "]" * 64, '{"a":' * 64 + "1" + "}" * 64, '"' + "[" * 99 + '"', r'{"a\"[[":["\\",{"}":"]"}]}', "[" + "[]," * 99 + "[]]"):
            self.assertEqual(checkpoint_json.parse(text), json.loads(text))
        for text in ("[" * 65 + "]" * 65, '{"a":' * 65 + "1" + "}" * 65, "[" * 65, '[{"\\\\":' * 33):
            with self.assertRaisesRegex(ValueError, "nested too deeply"):
                checkpoint_json.parse(text.encode())
        deep = []
        for _ in range(65):
            deep = [deep]
        with self.assertRaisesRegex(ValueError, "nested too deeply"):
            ddprun.checkpoint.save(self.folder / "run", step=1, values={"deep": deep})

    def test_a_newest_checkpoint_without_a_readable_manifest_is_skipped_with_a_warning(self):
        manifest = "MANIFEST.json"
        for name, damage in (("missing", lambda folder: (folder / manifest).unlink()),
                             ("fifo", lambda folder: replaced(folder / manifest, os.mkfifo)),
                             ("loop", lambda folder: replaced(folder / manifest, lambda path: path.symlink_to(manifest))),
                             ("zeros", lambda folder: replaced(folder / manifest, lambda path: path.symlink_to("/dev/zero"))),
                             ("folder", lambda folder: replaced(folder / manifest, pathlib.Path.mkdir)),
                             ("no JSON", lambda folder: (folder / manifest).write_text("{")),
                             ("no object", lambda folder: (folder / manifest).write_text("[]")),
                             ("sequence", lambda folder: (folder / manifest).write_text((folder / manifest).read_text().replace('ence": 2', 'ence": 0')))):
            self.falls_back(name, self.damaged(name, damage), manifest)
        for name, make in (("folder is a file", pathlib.Path.touch), ("folder is a fifo", os.mkfifo), ("folder is a loop", lambda path: path.symlink_to(path.name))):
            run = self.damaged(name, lambda folder: (shutil.rmtree(folder), make(folder)))
            with self.subTest(name), self.assertWarnsRegex(RuntimeWarning, "skipped a checkpoint: .*step-00000004"):
                self.assertEqual(ddprun.checkpoint.load(run)["step"], 2)

        moved = (self.folder / "loop/step-00000004").rename(self.folder / "best")
        with self.assertRaisesRegex(DamagedCheckpoint, "best is not a complete checkpoint: .*MANIFEST.json"):
            ddprun.checkpoint.load(moved)

    def test_checksums_of_blocks_that_are_not_the_files_are_refused(self):
        def lines(change):
            def damage(folder):
                path = folder / "block-checksums.txt"
                path.write_text("".join(change(line) for line in path.read_text().splitlines(keepends=True)))
            return damage

        def second(make):
            return lines(lambda line: make(line) if line.startswith(SECOND) else line)

        cases = {
            "wrong": (second(lambda line: f"{SECOND} 00000000\n"), rf"has checksums of {SECOND} \(rank 1's part\) that are not"),
            "short": (second(lambda line: f"{SECOND} \n"), f"has 0 checksums of {SECOND}"),
            "long": (second(lambda line: line.replace("\n", "0" * 8 + "\n")), f"has 2 checksums of {SECOND}"),
            "lacking": (second(lambda line: ""), f"does not have {SECOND}"),
            "twice": (second(lambda line: f"{SECOND} \n" * 2), f"names {SECOND} twice"),
            "broken": (second(lambda line: line[:-2] + "\n"), "has a broken line"),
            "headless": (lines(lambda line: "" if line.startswith("ddprun") else line), "does not begin"),
        }
        for name, (damage, message) in cases.items():
            run = self.damaged(name, damage, blocks=False)
            self.falls_back(name, run, f"block-checksums.txt {message}")
            self.falls_back(name, run, f"block-checksums.txt {message}", ddprun.checkpoint.load_sharded)
            self.verify_refuses(name, run, "block-checksums.txt|CRC32C|blocks")
        run = self.damaged("none", lambda folder: (folder / "block-checksums.txt").unlink())
        self.falls_back("missing", run, "block-checksums.txt is missing; it holds checksums")
        run = self.folder / "none"
        manifest = folders.parse_manifest(run / "step-00000004")
        files = {name: record for name, record in manifest["files"].items() if name != "block-checksums.txt"}
        (run / "step-00000004/MANIFEST.json").write_text(format_manifest(4, 2, RANKS, {}, files))
        self.falls_back("unlisted", run, "hold chunks of tensors, but there is no block-checksums.txt")

    def test_files_that_belong_to_no_rank_are_refused(self):
        for name in (f"model-00004-of-0000{RANKS}", f"model-00000-of-0000{RANKS}", "optim-00001-of-00000"):
            self.assertIsNone(parse(f"{name}.safetensors"))
            run = self.damaged(name, lambda folder: shutil.copy(folder / SECOND, folder / f"{name}.safetensors"), blocks=True)
            self.falls_back(name, run, f"lists {name}.safetensors, which is not the file of any rank")
            self.verify_refuses(name, run, f"lists {name}.safetensors, which is not the file of any rank")
        run = self.damaged("both", lambda folder: shutil.copy(folder / SECOND, folder / "model.safetensors"), blocks=True)
        self.falls_back("both", run, f"lists both model.safetensors and model-00001-of-0000{RANKS}.safetensors")
        self.verify_refuses("both", run, f"lists both model.safetensors and model-00001-of-0000{RANKS}.safetensors")

    def test_verify_says_the_same_of_a_run_and_of_its_folders(self):
        run = self.folder / "renamed"
        shutil.copytree(self.good, run)
        shutil.rmtree(run / "step-00000004")
        (run / "step-00000002").rename(run / "step-00000004")
        self.verify_refuses("renamed", run, "manifest belongs to step 2")
        moved = (run / "step-00000004").rename(self.folder / "best")
        self.assertEqual(self.verify(moved)[0], 0)

    def test_what_is_in_the_place_of_a_shard_is_named_with_rank_and_tensor(self):
        for name, make in (("fifo", os.mkfifo), ("directory", pathlib.Path.mkdir), ("loop", lambda path: path.symlink_to(path.name)),
                           ("device", lambda path: path.symlink_to("/dev/zero"))):
            run = self.damaged(name, lambda folder: replaced(folder / SECOND, make))
            self.falls_back(name, run, rf"{SECOND} \(rank 1's part\) cannot be read: .*; it holds a part of '(weight|bias)'")
            self.verify_refuses(name, run, rf"{SECOND} \(rank 1's part\) is not a regular file; it held a part of '(weight|bias)'")

    def test_hugging_face_s_folder_holds_the_model_alone_and_the_tool_says_so(self):
        result = subprocess.run([TOOL, "convert", self.good / "step-00000004", self.folder / "hf", "--to", "safetensors"],
                                capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
        self.assertIn("left out optimizers, which need a .pt file, --to dcp or --to checkpoint (1): the main one\n", result.stderr)

    def test_what_a_file_held_is_named_by_its_kind(self):
        for name, what in (("trainer.json", "the values"), ("scaler.state", "the state of scaler"), ("ranks.safetensors", "random generators"),
                           ("block-checksums.txt", "checksums of the other files' blocks")):
            run = self.damaged(name, lambda folder: (folder / name).unlink())
            self.falls_back(name, run, f"{name} is missing; it holds {what}")


if __name__ == "__main__":
    unittest.main()
