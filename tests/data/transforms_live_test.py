"""Transforms give torchvision's pixels: transforms_live_test.py PROGRAM. Skipped where there is no torchvision."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import torch
    import torchvision
    from torchvision.transforms import v2
    from torchvision.transforms import functional
except ImportError as error:
    print(f"skipped: this Python has no torchvision (pip install torchvision): {error}")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)
SHAPES = ([3, 32, 32], [1, 7, 12], [3, 15, 8])
CASES = [
    {"kind": "rotate", "degrees": degrees, "bilinear": bilinear, "fill": fill, "shape": shape, "seed": 1}
    for degrees in (0, 13.7, -45, 90, 170.25, -300)
    for bilinear in (False, True)
    for fill in (0, 0.5)
    for shape in SHAPES
]  # fmt: skip
CASES += [{"kind": "center_crop", "size": size, "shape": shape, "seed": 2} for size in (1, 4, 7) for shape in SHAPES]
CASES += [{"kind": "normalize", "shape": [3, 9, 11], "seed": 3}]
CASES += [{"kind": "mix", "part": part, "target": [1, 9, 0, 3], "shape": [4, 3, 8, 8], "seed": 4} for part in (0, 0.3, 0.75, 1)]


def expected(case):
    data = torch.rand(case["shape"], generator=torch.Generator().manual_seed(case["seed"]))
    if case["kind"] == "rotate":
        mode = functional.InterpolationMode.BILINEAR if case["bilinear"] else functional.InterpolationMode.NEAREST
        return [functional.rotate(data, case["degrees"], mode, fill=[case["fill"]] * data.shape[0])]
    if case["kind"] == "center_crop":
        return [functional.center_crop(data, [case["size"]])]
    if case["kind"] == "normalize":
        return [functional.normalize(data, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
    mixing = v2.MixUp(num_classes=10)
    mixing._dist.sample = lambda shape: torch.tensor([case["part"]], dtype=torch.float64)
    return mixing(data, torch.tensor(case["target"]))


class Transforms(unittest.TestCase):
    def test_the_pixels_are_torchvisions(self):
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "cases.json").write_text(json.dumps(CASES))
            subprocess.run([PROGRAM, folder / "cases.json", folder], check=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
            actual = [numpy.fromfile(folder / f"{i}.bin", numpy.float32) for i in range(len(CASES))]
        for case, ours in zip(CASES, actual):
            with self.subTest(**case):
                theirs = numpy.concatenate([tensor.to(torch.float32).numpy().ravel() for tensor in expected(case)])
                self.assertEqual(ours.shape, theirs.shape)
                self.assertLessEqual(abs(ours - theirs).max(), 1e-6, f"torchvision {torchvision.__version__}")


if __name__ == "__main__":
    unittest.main()
