"""Runs the example programs, alone or under ddprun, in a folder of their own."""

import json
import os
import random
import re
import struct
import subprocess
import tempfile
import unittest

DDPRUN = os.environ["DDPRUN"]
PROGRAM = os.environ["PROGRAM"]
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "PET_", "OMPI_", "PMI_", "SLURM_")
PATIENCE = 300  # seconds, for hangs

# Of what every program does by the same code of the library, one program's test is in every run, and the others' in the slow ones.
slow = unittest.skipUnless(os.environ.get("SLOW_TESTS"), "in slow runs")


class ExampleTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def settings(self, environment=None):
        """What every program is started with."""
        variables = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
        variables.update(environment or {})
        return {
            "cwd": self.folder,
            "env": variables,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "universal_newlines": True,
        }

    def run_command(self, command, environment=None):
        result = subprocess.run([str(part) for part in command], timeout=PATIENCE, **self.settings(environment))
        # ddprun puts the rank in front of each line.
        result.stdout, result.stderr = (re.sub(r"(?m)^\[\d+\] ", "", text) for text in (result.stdout, result.stderr))
        return result

    def run_ranks(self, ranks, *arguments):
        """Under ddprun, or alone with 0 ranks."""
        launcher = [DDPRUN, "--nproc_per_node", ranks] if ranks else []
        return self.run_command(launcher + [PROGRAM] + list(arguments))

    def succeed(self, ranks, *arguments):
        """The lines of standard output."""
        result = self.run_ranks(ranks, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.splitlines()

    def fail_with(self, ranks, message, *arguments):
        """Expects a non-zero exit and one line that says `message`."""
        result = self.run_ranks(ranks, *arguments)
        self.check_failure(result, message)
        return result

    def check_failure(self, result, message):
        self.assertNotEqual(result.returncode, 0, result.stdout)
        lines = [line for line in result.stderr.splitlines() if line.startswith("error:") and message in line]
        self.assertTrue(lines, f"no error line with {message!r} in:\n{result.stderr}")


def write_cifar10(folder, train, test, seed=0):
    """A folder in CIFAR-10's layout. The images of a class share a pattern, so that a network can learn them."""
    os.makedirs(folder, exist_ok=True)
    source = random.Random(seed)
    high_bits = int.from_bytes(b"\xc0" * 3072, "big")
    patterns = [source.getrandbits(3072 * 8) & high_bits for _ in range(10)]
    for name, count in (("data_batch_1.bin", train), ("test_batch.bin", test)):
        with open(os.path.join(folder, name), "wb") as file:
            for _ in range(count):
                label = source.randrange(10)
                noise = source.getrandbits(3072 * 8) & ~high_bits
                file.write(bytes([label]) + (patterns[label] | noise).to_bytes(3072, "big"))
    return folder


def read_safetensors(path):
    """{name: list of floats} of the float32 tensors in a file."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[8 + length + begin : 8 + length + end])
    return tensors


def write_safetensors(path, tensors):
    """`tensors`: {name: list of floats}, stored as float32 vectors."""
    header, content = {}, b""
    for name, values in tensors.items():
        piece = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(content), len(content) + len(piece)]}
        content += piece
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + content)


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()
