"""ddprun's own optimizers give the bits of Python's loop form for random configurations: random_steps_test.py PROGRAM [SEEDS [FIRST]].

With DDPRUN_TEST_ON_DEVICES=1 the program's steps on a simulated device have those of Python's default on CUDA, foreach=True and
capturable=True, which Python computes on the CPU here. Lamb and Lion, which torch does not have, are compared with transcriptions of apex's kernels and of the paper's pseudo code."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch

from draw_steps import CAPTURABLE, NAMES, ON_DEVICES, allow_capturable_steps_on_the_cpu, draw_case, make, results, take_step

PROGRAM = sys.argv.pop(1)
SEEDS = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 12
FIRST = int(sys.argv.pop(1)) if len(sys.argv) > 1 else 1


def run(case):
    parameters, optimizer = make(case)
    for number in range(len(case["steps"])):
        take_step(case, number, parameters, optimizer)
    return results(parameters, optimizer)


class RandomSteps(unittest.TestCase):
    def compare(self, name):
        cases = [draw_case(name, seed) for seed in range(FIRST, FIRST + SEEDS)]
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "cases.json").write_text(json.dumps(cases))
            subprocess.run([PROGRAM, f"{folder}/cases.json", folder], check=True, env=dict(os.environ, OMP_NUM_THREADS="2"))
            torch.set_num_threads(2)
            different = []
            for number, case in enumerate(cases):
                content = pathlib.Path(folder, f"{number}.bin").read_bytes()
                different += self.differences(FIRST + number, run(case), content)
            if different:
                self.fail("\n".join(different))

    def differences(self, seed, expected, content):
        offset, different = 0, []
        for number, tensor in enumerate(expected):
            raw = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            own = content[offset : offset + len(raw)]
            offset += len(raw)
            if own == raw or not raw:
                continue
            got = torch.frombuffer(bytearray(own), dtype=tensor.dtype).view(tensor.shape)
            same = (got == tensor) | (got.isnan() & tensor.isnan())
            if not same.all():
                different.append(f"seed {seed}, tensor {number}: {(~same).sum().item()} of {tensor.numel()} numbers of {tensor.dtype} "
                                 f"{list(tensor.shape)} differ, at first {tensor[~same][0].item()} got {got[~same][0].item()}")
        if offset != len(content):
            different.append(f"seed {seed}: expected {offset} bytes, got {len(content)}")
        return different


if ON_DEVICES:
    allow_capturable_steps_on_the_cpu()
for each in CAPTURABLE if ON_DEVICES else NAMES:
    setattr(RandomSteps, f"test_{each}", lambda self, each=each: self.compare(each))

if __name__ == "__main__":
    unittest.main()
