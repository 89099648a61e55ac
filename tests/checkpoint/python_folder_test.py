"""The folders that Python's ddprun.checkpoint writes and reads: `python_folder_test.py TOOL`. Exit status 77 (skipped) without torch.

What must not be written, what is damaged, and what another process does meanwhile.
"""

import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

try:
    import torch
    import safetensors
    import safetensors.torch  # noqa: F401
except ImportError:
    print("skipped: this Python has no torch or no safetensors")
    sys.exit(77)

import pt_python

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import ddprun.checkpoint  # noqa: E402
import ddprun.checkpoint._folder  # noqa: E402
import ddprun.checkpoint._manifest  # noqa: E402

TOOL = sys.argv.pop(1)
torch.set_num_threads(1)


def verify(folder):
    subprocess.run([TOOL, "verify", folder], check=True, stdout=subprocess.DEVNULL, timeout=600)


class PythonFolderTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def test_the_former_name_gives_the_same_functions(self):
        former = importlib.import_module("ddprun_checkpoint")
        self.assertEqual(former.__all__, ddprun.checkpoint.__all__)
        for name in ddprun.checkpoint.__all__:
            self.assertIs(getattr(former, name), getattr(ddprun.checkpoint, name))

    def test_changed_byte_anywhere_in_a_folder_is_found(self):
        net = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        folder = ddprun.checkpoint.save(self.folder / "run", step=3, values={"best": 0.25}, model=net, optimizer=optimizer)
        for path in sorted(folder.iterdir()):
            data = bytearray(path.read_bytes())
            for position in range(0, len(data), max(1, len(data) // 7)):
                data[position] ^= 1 << position % 8
                path.write_bytes(data)
                with self.assertRaises(ddprun.checkpoint._folder.DamagedCheckpoint, msg=f"{path} {position}"):
                    ddprun.checkpoint.load(folder)
                data[position] ^= 1 << position % 8
            path.write_bytes(data)
        ddprun.checkpoint.load(folder)
        verify(folder)

    def test_hyper_parameters_that_are_no_finite_numbers_come_back(self):
        net = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        optimizer.param_groups[0].update(lr=float("inf"), weight_decay=float("nan"))
        for name in ("run", "run.pt"):
            path = ddprun.checkpoint.save(self.folder / name, step=3, values={}, model=net, optimizer=optimizer)
            group = ddprun.checkpoint.load(path)["optimizer"]["param_groups"][0]
            self.assertEqual((group["lr"], str(group["weight_decay"])), (float("inf"), "nan"), name)
        flat = ddprun.checkpoint.flat_optimizer_state(self.folder / "run")
        self.assertEqual(flat["param_groups.bias.lr"], float("inf"))
        # The tool makes a .pt file of the folder, and the file's numbers become texts of JSON again.
        for source, target in ((self.folder / "run", "through.pt"), ("through.pt", "one.safetensors"), ("one.safetensors", "back.pt")):
            source = next(source.glob("step-*")) if isinstance(source, pathlib.Path) else self.folder / source
            subprocess.run([TOOL, "convert", source, self.folder / target], check=True, capture_output=True, timeout=600)
        for name in ("through.pt", "back.pt"):
            group = torch.load(self.folder / name)["optimizer"]["param_groups"][0]
            self.assertEqual((group["lr"], str(group["weight_decay"])), (float("inf"), "nan"), name)

    def test_several_models_have_their_names_before_their_tensors(self):
        nets = {name: torch.nn.Linear(2, outputs) for name, outputs in (("generator", 2), ("critic", 1))}
        optimizers = {name: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for name, net in nets.items()}
        for name, net in nets.items():
            net(torch.ones(1, 2)).sum().backward()
            optimizers[name].step()
        for path in (self.folder / "run", self.folder / "run.pt"):
            target = ddprun.checkpoint.save(path, step=1, model=nets, optimizers=optimizers)
            run = ddprun.checkpoint.load(path)
            self.assertEqual(set(run["model"]), {"generator.weight", "generator.bias", "critic.weight", "critic.bias"})
            for name, net in nets.items():
                pt_python.same(dict(ddprun.checkpoint.model_part(run["model"], name)), dict(net.state_dict()))
                pt_python.same(run["optimizers"][name]["state"], optimizers[name].state_dict()["state"])
            with self.assertRaisesRegex(KeyError, "critic, generator"):
                ddprun.checkpoint.model_part(run["model"], "gen")
            if target.is_dir():
                self.assertIn('"critic.weight"', safetensors.safe_open(target / "optim-critic.safetensors", "pt").metadata()["ddprun.optimizer"])
            verify(target)
        with self.assertRaisesRegex(ValueError, "letters, digits"):
            ddprun.checkpoint.save(self.folder / "run", model={"a.b": nets["critic"]})

    def test_what_is_something_else_is_named(self):
        for name, content, what in (("a.pt", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"), ("b.pt", b"", "empty"),
                                    ("c.pt", b"\n<!DOCTYPE HTML>", "HTML page"), ("d.distcp", b"PK", "dcp_to_torch_save")):
            (self.folder / name).write_bytes(content)
            with self.assertRaisesRegex(ValueError, what):
                ddprun.checkpoint.load(self.folder / name)
        (self.folder / "dcp").mkdir()
        (self.folder / "dcp/.metadata").write_bytes(b"x")
        with self.assertRaisesRegex(ValueError, "dcp_to_torch_save"):
            ddprun.checkpoint.load(self.folder / "dcp")

    def test_what_is_no_regular_file_is_named_and_not_waited_for(self):
        net = torch.nn.Linear(3, 2)
        saved = ddprun.checkpoint.save(self.folder / "run", step=3, model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
        for path in sorted(saved.iterdir()):
            content = path.read_bytes()
            path.unlink()
            os.mkfifo(path)
            for where in (saved, saved.parent):
                with self.assertRaisesRegex(ddprun.checkpoint.DamagedCheckpoint, f"{path.name}.*expected a regular file|expected a regular file.*{path.name}"):
                    ddprun.checkpoint.load(where)
            path.unlink()
            path.write_bytes(content)
        os.mkfifo(self.folder / "run.pt")
        with self.assertRaisesRegex(OSError, "expected a regular file"):
            ddprun.checkpoint.load(self.folder / "run.pt")
        ddprun.checkpoint.load(saved)

    def test_manifest_s_numbers_are_compared_with_the_files(self):
        saved = ddprun.checkpoint.save(self.folder / "run", step=3, rng=[ddprun.checkpoint.rng_state()] * 3)
        manifest = ddprun.checkpoint._folder.read_manifest(saved)
        self.assertEqual(manifest["world_size"], 3)
        for world_size, message in ((0, "world_size 0: expected 1 to"), (-1, "world_size -1: expected 1 to"), (10**9, "world_size 1000000000: expected 1 to"),
                                    (2**63, "expected 1 to"), (3.0, "whole numbers"), (1, "'rank.1.rng.cpu'.*world_size 1"), (2, "'rank.2.rng.cpu'")):
            (saved / "MANIFEST.json").write_text(ddprun.checkpoint._folder.format_manifest(3, 1, world_size, {}, manifest["files"]))
            with self.assertRaisesRegex(ddprun.checkpoint.DamagedCheckpoint, message):
                ddprun.checkpoint.load(saved)
        (saved / "MANIFEST.json").write_text(ddprun.checkpoint._folder.format_manifest(3, 1, 5, {}, manifest["files"]))
        self.assertEqual([len(state) for state in ddprun.checkpoint.load(saved)["rng"]], [1, 1, 1, 0, 0])
        moved = saved.rename(self.folder / "moved")
        for step in (-1, 2**63):
            (moved / "MANIFEST.json").write_text(ddprun.checkpoint._folder.format_manifest(step, 1, 3, {}, manifest["files"]))
            with self.assertRaisesRegex(ddprun.checkpoint.DamagedCheckpoint, "not negative"):
                ddprun.checkpoint.load(moved)

    def test_cpp_accepts_manifests_with_any_metric(self):
        metrics = {"a": 0.1, "b": 1e-5, "c": 1e22, "d": 123456789012345680000.0, "e": -0.0, "f": 100000.0, "g": 1e5 + 0.5, "h": 5e-324,
                   "i": 1.7976931348623157e308, "j": float("nan"), "k": 3, "l": 1e15, "m": 0.0001, "n": 0.00012345}
        folder = ddprun.checkpoint.save(self.folder / "run", step=1, model={"w": torch.ones(2)}, metrics=metrics)
        verify(folder)

    def test_one_writer_at_a_time_and_readers_do_not_care(self):
        import fcntl
        saved = ddprun.checkpoint.save(self.folder / "run", step=1, model={"w": torch.ones(2)}, values={"best": float("-inf"), "n": 2**64 - 1})
        with open(saved.parent / "writer.lock", "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self.assertRaisesRegex(RuntimeError, "in use for saving by process"):
                ddprun.checkpoint.save(self.folder / "run", step=2, model={"w": torch.ones(2)})
            run = ddprun.checkpoint.load(self.folder / "run")
        self.assertEqual((run["step"], run["values"]), (1, {"best": float("-inf"), "n": 2**64 - 1}))
        self.assertEqual((saved.parent / "latest").read_text(), "step-00000001\n")

    def test_values_that_cpp_could_not_read_are_refused_before_anything_is_written(self):
        good = ddprun.checkpoint.save(self.folder / "run", step=1, model={"w": torch.ones(2)}, values={"n": -(2**63)})
        for value in (2**64, -(2**63) - 1, {"deep": [2**70]}, "\ud800"):
            with self.assertRaises(ValueError, msg=repr(value)):
                ddprun.checkpoint.save(self.folder / "run", step=2, model={"w": torch.ones(2)}, values={"x": value})
        self.assertEqual([path.name for path in good.parent.glob("step-*")], [good.name])
        self.assertEqual(ddprun.checkpoint.load(self.folder / "run")["values"], {"n": -(2**63)})

    def test_values_that_would_be_lost_are_refused_before_anything_is_written(self):
        lost = {"tensor": torch.ones(2), "object": {"deep": [object()]}, "keys": {1: "a", "1": "b"}}
        for name, value in lost.items():
            with self.subTest(name), self.assertRaisesRegex((TypeError, ValueError), "plain value|the same text"):
                ddprun.checkpoint.save(self.folder / "run", step=2, model={"w": torch.ones(2)}, values={name: value})
        self.assertEqual(list((self.folder / "run").glob("step-*")), [])
        kept = {"scalar": torch.tensor(0.5), "none": None, "keys": {1: "a"}}
        expected = {"scalar": 0.5, "none": None, "keys": {"1": "a"}}
        try:
            import numpy
        except ImportError:
            pass
        else:
            kept["numpy"], expected["numpy"] = numpy.float32(0.25), 0.25
        ddprun.checkpoint.save(self.folder / "run", step=3, model={"w": torch.ones(2)}, values=kept)
        self.assertEqual(ddprun.checkpoint.load(self.folder / "run")["values"], expected)

    def test_folder_under_another_step_s_name_is_not_taken(self):
        ddprun.checkpoint.save(self.folder / "run", step=1, model={"w": torch.ones(2)})
        second = ddprun.checkpoint.save(self.folder / "run", step=2, model={"w": torch.ones(2)})
        second.rename(second.with_name("step-00000009"))
        self.assertEqual(ddprun.checkpoint.load(self.folder / "run")["step"], 1)

    def test_what_its_writer_removes_or_replaces_while_it_is_read_is_passed_over(self):
        real = ddprun.checkpoint._folder.read_manifest
        for name, change in (
            ("removed", lambda run, folder: folder.rename(run / "removed")),
            ("replaced", lambda run, folder: ddprun.checkpoint.save(run, step=2, values={"now": 1})),
        ):
            with self.subTest(name):
                run = self.folder / f"meanwhile-{name}"
                for step in (1, 2):
                    ddprun.checkpoint.save(run, step=step)

                def changing(folder):
                    manifest = real(folder)
                    if folder.name == "step-00000002" and not (run / "step-00000003").exists():
                        change(run, folder)
                        ddprun.checkpoint.save(run, step=3)
                        raise ddprun.checkpoint.DamagedCheckpoint("torn")
                    return manifest

                with unittest.mock.patch.object(ddprun.checkpoint._folder, "read_manifest", changing):
                    self.assertEqual(ddprun.checkpoint.load(run)["step"], 3)

    def test_an_older_one_is_loaded_aloud_where_the_newest_cannot_be_read(self):
        run = self.folder / "unreadable"
        for step in (1, 2):
            ddprun.checkpoint.save(run, step=step)
        real = os.open

        def refusing(path, *arguments):
            if "step-00000002" in str(path) and not str(path).endswith("MANIFEST.json"):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *arguments)

        with unittest.mock.patch.object(os, "open", refusing), self.assertWarnsRegex(RuntimeWarning, "step-00000002/.* cannot be read: Permission denied"):
            self.assertEqual(ddprun.checkpoint.load(run)["step"], 1)

    def test_one_whose_place_is_empty_while_it_is_replaced_is_found(self):
        run = self.folder / "replaced"
        saved = ddprun.checkpoint.save(run, step=3)
        saved.rename(run / "step-00000003.old-0123456789abcdef")
        self.assertEqual(ddprun.checkpoint.load(run)["step"], 3)
        # A listing may miss both names.
        steps = ddprun.checkpoint._folder.steps
        missed = iter([[]])
        with unittest.mock.patch.object(ddprun.checkpoint._folder, "steps", lambda folder: next(missed, None) or steps(folder)):
            self.assertEqual(ddprun.checkpoint.load(run)["step"], 3)

    def test_what_is_opened_can_be_read_though_it_is_removed(self):
        run = self.folder / "removed"
        net = torch.nn.Linear(3, 2)
        saved = ddprun.checkpoint.save(run, step=4, model=net, optimizer=torch.optim.Adam(net.parameters()), values={"v": 1})
        real = ddprun.checkpoint._folder.crc32c

        def removing(data):
            shutil.rmtree(saved, ignore_errors=True)
            return real(data)

        with unittest.mock.patch.object(ddprun.checkpoint._folder, "crc32c", removing):
            loaded = ddprun.checkpoint.load(run)
        self.assertFalse(saved.exists())
        pt_python.same(dict(loaded["model"]), dict(net.state_dict()))
        self.assertEqual((loaded["step"], loaded["values"]), (4, {"v": 1}))

    def test_what_was_saved_last_is_the_newest(self):
        folder = self.folder / "run"
        for step, sequence in ((30, 1), (10, 2)):
            saved = ddprun.checkpoint.save(folder, step=step, model={"w": torch.ones(2)}, metrics={"loss": float("inf")})
            manifest = ddprun.checkpoint._folder.read_manifest(saved)
            (saved / "MANIFEST.json").write_text(ddprun.checkpoint._folder.format_manifest(
                step, sequence, 1, manifest["metrics"], manifest["files"]))
        self.assertEqual(ddprun.checkpoint.load(folder)["step"], 10)
        ddprun.checkpoint.save(folder, step=5, model={"w": torch.ones(2)})
        run = ddprun.checkpoint.load(folder)
        self.assertEqual(run["step"], 5)

    def test_checksum_is_that_of_the_book_for_any_length(self):
        manifest = ddprun.checkpoint._manifest
        self.assertEqual(manifest._native() is not None, "DDPRUN_SHM_LIBRARY" in os.environ)
        for native in {None, manifest._native()}:
            with unittest.mock.patch.object(manifest, "_native", lambda: native):
                self.assertEqual(manifest.crc32c(torch.tensor(list(b"123456789"), dtype=torch.uint8)), 0xE3069283)
                for size in (0, 1, 262143, 262144, 262145, 1 << 20, (1 << 21) + 12345):
                    data = (torch.arange(size) * 2654435761 >> 7).to(torch.uint8)
                    checksum = manifest.text_crc32c(bytes(data.tolist()))
                    self.assertEqual(manifest.crc32c(data), checksum, size)
                    blocks = manifest.crc32c_blocks(data)
                    self.assertEqual(len(blocks), -(-size // manifest.BLOCK))
                    self.assertEqual(manifest.crc32c_of_blocks(blocks, size), checksum, size)


if __name__ == "__main__":
    unittest.main()
