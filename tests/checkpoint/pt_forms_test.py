""".pt files in every form that torch.load(weights_only=True) takes: `pt_forms_test.py TOOL PROGRAM`. Exit status 77 (skipped)
without torch.

What torch loads is compared, bit for bit, with what ddprun-checkpoint (TOOL) and the library (PROGRAM) make of the same file.
"""

import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

try:
    import torch
except ImportError:
    print("skipped: this Python has no torch")
    sys.exit(77)

import pt_eras
import pt_forms
import pt_python

TOOL, PROGRAM = sys.argv.pop(1), sys.argv.pop(1)
CASES = int(os.environ.get("CASES", "40"))
warnings.filterwarnings("ignore")  # prototypes, storages


def run(*command) -> subprocess.CompletedProcess:
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment, timeout=600)


class PtFormsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.cases = []

    def add(self, name, state, expected, save=torch.save, pack=None):
        """A file, and what it must hold."""
        path = self.folder / f"{name}.pt"
        save(state, path)
        if pack:
            pack(path, path.with_suffix(".packed"))
            path = path.with_suffix(".packed")
        loaded = torch.load(path, weights_only=False)  # newer versions take jagged tensors only so
        for key, tensor in expected.items():  # the file is one that torch takes
            pt_python.same({key: loaded[key].detach().resolve_conj().resolve_neg()}, {key: tensor}, name)
        self.cases.append((name, path, expected, state))

    def check(self):
        pairs = []
        for name, path, expected, state in self.cases:
            target = self.folder / f"{name}.tool.pt"
            result = run(TOOL, "convert", path, target)
            self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")
            pt_python.same(torch.load(target), expected, f"{name} by the tool")
            for odd in set(state) & set(pt_forms.odd_tensors()):
                self.assertIn(f"skipped {odd}", result.stderr, name)
            pairs += [path, self.folder / f"{name}.library.pt"]
        result = run(PROGRAM, *pairs)
        self.assertEqual(result.returncode, 0, result.stderr)
        for name, path, expected, state in self.cases:
            pt_python.same(torch.load(self.folder / f"{name}.library.pt"), expected, f"{name} by the library")
            for odd in set(state) & set(pt_forms.odd_tensors()):
                self.assertIn(f"{path}: {odd}", result.stdout)

    def test_odd_items_do_not_keep_the_others_from_being_read(self):
        for seed in range(CASES):
            state, expected = pt_forms.random_state(seed)
            self.add(f"random{seed}", state, expected)
        everything = dict(pt_forms.odd_tensors(), **pt_forms.odd_values(), weight=torch.ones(3))
        self.add("everything", everything, {"weight": torch.ones(3)})
        self.check()

    def test_the_legacy_format_is_read(self):
        def save(state, path):
            torch.save(state, path, _use_new_zipfile_serialization=False)
        for seed in range(CASES):
            state, expected = pt_forms.random_state(1000 + seed, legacy=True)
            self.add(f"legacy{seed}", state, expected, save)
        self.check()

    def test_files_of_every_era_and_protocol_are_read(self):
        shared = torch.arange(6.0)
        tensors = collections.OrderedDict(
            (f"conv{i}.weight", torch.arange(8.0).view(2, 4)[:, i:]) for i in range(3))  # views of one storage each
        tensors.update(tied=shared, again=shared, part=shared[2:5], half=torch.ones(3).half(), count=torch.tensor(7),
                       empty=torch.zeros(0, 2))
        tensors.update((f"layer{i}.bias", torch.full((3,), float(i))) for i in range(300))  # numbers above 255
        tensors._metadata = collections.OrderedDict([("", {"version": 1})])
        for name, save in pt_eras.eras().items():
            self.add(name, tensors, dict(tensors), save)
        self.check()

    def test_whole_checkpoints_of_every_era_keep_their_values(self):
        weight = torch.arange(6.0)
        values = {"epoch": 3, "seed": 5_000_000_000, "best": 0.25, "model": collections.OrderedDict(w=weight),
               "note": "of 2018", "done": False}
        for name, save in pt_eras.eras().items():
            save(values, self.folder / f"{name}.pt")
            result = run(TOOL, "convert", self.folder / f"{name}.pt", self.folder / "target.pt")
            self.assertEqual(result.returncode, 0, f"{name}: {result.stderr}")
            loaded = torch.load(self.folder / "target.pt")
            pt_python.same(loaded.pop("model"), {"w": weight}, name)
            self.assertEqual(loaded, {key: value for key, value in values.items() if key != "model"}, name)

    def test_archives_that_were_packed_anew_are_read(self):
        for seed, (name, pack) in enumerate(pt_forms.repackers().items()):
            state, expected = pt_forms.random_state(2000 + seed)
            self.add(name, state, expected, pack=pack)
        self.check()

    def test_files_without_checksums_are_read_and_said_to_have_none(self):
        torch.serialization.set_crc32_options(False)
        try:
            for seed in range(5):
                state, expected = pt_forms.random_state(3000 + seed)
                self.add(f"unchecked{seed}", state, expected)
        finally:
            torch.serialization.set_crc32_options(True)
        self.check()
        self.assertIn("it has no checksums", run(TOOL, "verify", self.folder / "unchecked0.pt").stdout)
        torch.save({"a": torch.ones(1)}, self.folder / "checked.pt")
        self.assertNotIn("checksums", run(TOOL, "verify", self.folder / "checked.pt").stdout)

    def test_damage_in_packed_and_legacy_files_is_refused_or_changes_no_value(self):
        state = {"a": torch.arange(64.0), "b": torch.arange(10)}
        torch.save(state, self.folder / "source.pt")
        ways = pt_forms.repackers()
        for name in ("deflated", "piped_stored", "appended"):
            path = self.folder / f"{name}.packed"
            ways[name](self.folder / "source.pt", path)
            data = bytearray(path.read_bytes())
            for position in range(0, len(data), max(1, len(data) // 40)):
                data[position] ^= 1 << position % 8
                path.write_bytes(data)
                target = self.folder / "target.pt"
                result = run(TOOL, "convert", path, target)
                data[position] ^= 1 << position % 8
                if result.returncode == 0:
                    pt_python.same(torch.load(target), state, f"{name}, byte {position}")

    def test_inspect_names_what_is_not_read(self):
        torch.save({"a": torch.ones(1), "odd": torch.eye(2).to_sparse()}, self.folder / "odd.pt")
        output = run(TOOL, "inspect", self.folder / "odd.pt").stdout
        self.assertIn("odd  not read: a sparse tensor (torch.sparse_coo)", output)


class _SparseFile:
    """Takes what torch.save writes; large pieces, which are zeros here, become holes."""

    def __init__(self, path):
        self.file = open(path, "wb")

    def write(self, data):
        size = len(data)
        if size > 1 << 20:
            self.file.seek(size, os.SEEK_CUR)
        else:
            self.file.write(bytes(data))
        return size

    def flush(self):
        self.file.flush()


class LargeFileTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def test_what_torch_saves_above_four_gigabytes_is_read(self):
        path = self.folder / "large.pt"
        for sizes in ([(1 << 30) + 1000], [1 << 29, 1 << 29]):  # one storage above the limit; headers alone
            state = {f"large{i}": torch.zeros(size) for i, size in enumerate(sizes)}
            state["behind"] = torch.arange(5.0)
            state["after"] = torch.zeros(0)
            # torch takes 20 seconds for the checksums of 4 GiB.
            torch.serialization.set_crc32_options(os.environ.get("LARGE_CHECKSUMS") == "1")
            file = _SparseFile(path)
            try:
                torch.save(state, file)
            finally:
                torch.serialization.set_crc32_options(True)
            file.file.close()
            result = run(TOOL, "inspect", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("behind  float32 [5]", result.stdout)
            for i, size in enumerate(sizes):
                self.assertIn(f"large{i}  float32 [{size}]", result.stdout)

    def test_torch_reads_what_is_written_above_four_gigabytes(self):
        path = self.folder / "ours.pt"
        result = run(PROGRAM, "--large", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        loaded = torch.load(path, mmap=True, weights_only=True)
        self.assertEqual(loaded["behind"].tolist(), [1, 2, 3])
        self.assertEqual(loaded["large"].numel(), (1 << 30) + 256)
        self.assertEqual(loaded["large"][[0, 1 << 29, -1]].tolist(), [0, 0, 0])


if __name__ == "__main__":
    unittest.main()
