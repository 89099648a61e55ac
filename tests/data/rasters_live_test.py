"""PNG and TIFF files with their samples as they are: against torchvision's UNCHANGED, and against the numbers that were written."""

import importlib.util
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

if not all(importlib.util.find_spec(name) for name in ("PIL", "numpy", "torchvision")):
    print("skipped: this Python has no Pillow, numpy and torchvision")
    sys.exit(77)

import numpy
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_image

import made_png
import made_tiff


class Rasters(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.random = numpy.random.default_rng(58)

    def ask(self, contents):
        """For each file's bytes an array, or a line that begins with "error:"."""
        lines = []
        for number, content in enumerate(contents):
            (self.folder / f"{number}.picture").write_bytes(content)
            lines.append(f"raster {self.folder / f'{number}.picture'} {self.folder / f'{number}.npy'}\n")
        output = subprocess.run([os.environ["PROGRAM"]], input="".join(lines), text=True, stdout=subprocess.PIPE, check=True, timeout=100).stdout
        answers = output.splitlines()
        self.assertEqual(len(answers), len(lines))
        return [answer if answer.startswith("error:") else numpy.load(self.folder / f"{number}.npy") for number, answer in enumerate(answers)]

    def check(self, cases):
        """`cases`: a name, the file's bytes, and the array (C, H, W) that is expected."""
        for (name, _, expected), got in zip(cases, self.ask([content for _, content, _ in cases])):
            with self.subTest(name):
                self.assertNotIsInstance(got, str, got)
                self.assertEqual((got.dtype, got.shape), (expected.dtype, expected.shape))
                self.assertTrue(numpy.array_equal(got, expected, equal_nan=expected.dtype.kind == "f"))

    def test_png_is_torchvisions(self):
        cases = []
        for color_type, depths in made_png.DEPTHS.items():
            for depth, interlaced in itertools.product(depths, (False, True)):
                samples = self.random.integers(0, 1 << depth, (11, 13, made_png.CHANNELS[color_type]), numpy.int64)
                for name, extra in made_png.extras(color_type, depth).items():
                    content = made_png.png(samples, color_type, depth, interlaced=interlaced, extra=extra)
                    try:
                        expected = decode_image(torch.frombuffer(bytearray(content), dtype=torch.uint8), ImageReadMode.UNCHANGED).numpy()
                    except RuntimeError:
                        continue
                    if color_type == 3 and depth < 8:  # torchvision gives bytes of several indices, and memory that nobody wrote
                        expected = samples.astype("u1").transpose(2, 0, 1)
                    cases.append((f"{color_type} {depth} {interlaced} {name}", content, expected))
        self.assertGreater(len(cases), 50)
        self.check(cases)

    @unittest.skipUnless(os.environ["READS_TIFF"] == "1", "built without libtiff")
    def test_tiff_samples_are_what_was_written(self):
        cases = []
        whole = {1: "u1", 4: "u1", 8: "u1", 10: "u2", 12: "u2", 14: "u2", 16: "u2"}
        layouts = itertools.product((1, 3, 5), "<>", (None, (16, 16)), (False, True))
        for channels, order, tile, separate in layouts:
            for bits, dtype in whole.items():
                samples = self.random.integers(0, 1 << bits, (21, 19, channels), numpy.int64)
                content = made_tiff.tiff(samples, bits, order=order, tile=tile, separate=separate)
                cases.append((f"{channels} {order} {tile} {separate} {bits} bits", content, samples.astype(dtype).transpose(2, 0, 1)))
            for dtype in ("i1", "i2", "i4", "i8", "u4", "u8", "f2", "f4", "f8"):
                samples = self.random.normal(0, 50, (21, 19, channels)).astype(dtype)
                if dtype[0] == "f":
                    samples[:3, 0, 0] = [numpy.inf, numpy.nan, numpy.finfo(dtype).smallest_subnormal]
                content = made_tiff.tiff(samples, samples.itemsize * 8, order=order, tile=tile, separate=separate)
                expected = samples.astype("f4" if dtype == "f2" else dtype).transpose(2, 0, 1)
                cases.append((f"{channels} {order} {tile} {separate} {dtype}", content, expected))
        self.check(cases)

    @unittest.skipUnless(os.environ["READS_TIFF"] == "1", "built without libtiff")
    def test_tiff_is_pillows(self):
        cases = []
        for array in (self.random.normal(0, 9, (31, 17)).astype("f4"), self.random.integers(0, 65536, (31, 17)).astype("u2"), self.random.integers(-9, 9, (31, 17)).astype("i4")):
            for compression in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits"):
                path = self.folder / "pillow.tif"
                Image.fromarray(array).save(path, compression=compression)
                cases.append((f"{array.dtype} {compression}", path.read_bytes(), array[None]))
        self.check(cases)

    def test_other_files_are_refused(self):
        jpeg, short = self.folder / "a.jpg", made_png.png(numpy.zeros((9, 9, 1), int), 0, 16, interlaced=False, extra=[])[:-30]
        Image.new("RGB", (3, 3)).save(jpeg)
        for answer, words in zip(self.ask([jpeg.read_bytes(), b"", short]), ["got JPEG", "got another format", "PNG"]):
            self.assertIsInstance(answer, str)
            self.assertIn(words, answer)


unittest.main()
