"""Pictures and volumes against Pillow and nibabel: made-up files of every kind, and real ones from the folders that
DDPRUN_TEST_PHOTOS_DIR and DDPRUN_TEST_NIFTI_DIR name. Skipped without Pillow, nibabel and numpy."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

if not all(importlib.util.find_spec(name) for name in ("PIL", "nibabel", "numpy")):
    print("skipped: this Python has no Pillow, nibabel and numpy")
    sys.exit(77)

import nibabel
import numpy
from PIL import Image


def decode(paths):
    """{path: array}"""
    output = subprocess.run([os.environ["PROGRAM"], *map(str, paths)], stdout=subprocess.PIPE, check=True, timeout=100).stdout
    found, at = {}, 0
    for path in paths:
        end = output.index(b"\n", at)
        depth, height, width = map(int, output[at:end].split())
        at = end + 1
        dtype, shape = ("<f4", (depth, height, width)) if depth else ("u1", (height, width, 3))
        size = int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize
        found[path] = numpy.frombuffer(output[at : at + size], dtype).reshape(shape)
        at += size
    return found


class Decoders(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.random = numpy.random.default_rng(5)

    def test_png_of_every_mode_exactly(self):
        paths = []
        for mode, channels in (("RGB", 3), ("RGBA", 4), ("L", 1), ("LA", 2)):
            pixels = self.random.integers(0, 256, (23, 31, channels), numpy.uint8).squeeze()
            for interlace in (False, True):
                paths.append(self.folder / f"{mode}{interlace}.png")
                Image.fromarray(pixels, mode).save(paths[-1], interlace=interlace)
        palette = Image.fromarray(self.random.integers(0, 256, (20, 20, 3), numpy.uint8)).quantize(16)
        palette.save(self.folder / "palette.png")
        Image.fromarray(self.random.integers(0, 2, (20, 20), numpy.uint8) * 255).convert("1").save(self.folder / "bits.png")
        paths += [self.folder / "palette.png", self.folder / "bits.png"]
        for path, pixels in decode(paths).items():
            numpy.testing.assert_array_equal(pixels, numpy.asarray(Image.open(path).convert("RGB")), str(path))

    def check_jpegs(self, paths):
        for path, pixels in decode(paths).items():
            expected = numpy.asarray(Image.open(path).convert("RGB")).astype(int)
            self.assertEqual(pixels.shape, expected.shape)
            self.assertLessEqual(numpy.abs(pixels - expected).mean(), 1.0, path)

    def test_jpeg_of_every_kind_within_one_level(self):
        y, x = numpy.mgrid[0:67, 0:93]
        pixels = numpy.stack([128 + 100 * numpy.sin(x / 9), 128 + 100 * numpy.cos(y / 7), x + y], 2).astype(numpy.uint8)
        paths = []
        for quality in (30, 90):
            for sampling in (0, 1, 2):
                for progressive in (False, True):
                    paths.append(self.folder / f"{quality}-{sampling}-{progressive}.jpg")
                    Image.fromarray(pixels).save(paths[-1], quality=quality, subsampling=sampling, progressive=progressive)
        paths.append(self.folder / "grey.jpg")
        Image.fromarray(pixels[:, :, 0]).save(paths[-1])
        self.check_jpegs(paths)

    def test_nifti_exactly(self):
        paths = []
        for dtype in ("u1", "i2", "i4", "f4", "f8", "i1", "u2", "u4"):
            for order in "<>":
                data = (self.random.random((5, 4, 3)) * 100).astype(dtype)
                image = nibabel.Nifti1Image(data, numpy.eye(4), nibabel.Nifti1Header(endianness=order))
                image.set_data_dtype(numpy.dtype(dtype).newbyteorder(order))
                for extension in (".nii", ".nii.gz"):
                    paths.append(self.folder / f"{dtype}{'le' if order == '<' else 'be'}{extension}")
                    nibabel.save(image, paths[-1])
        scaled = nibabel.Nifti1Image(self.random.random((6, 5, 4)), numpy.eye(4))
        scaled.set_data_dtype("i2")
        paths.append(self.folder / "scaled.nii.gz")
        nibabel.save(scaled, paths[-1])
        self.check_nifti(paths)

    def check_nifti(self, paths):
        for path, values in decode(paths).items():
            expected = nibabel.load(path).get_fdata().astype(numpy.float32)
            numpy.testing.assert_array_equal(values, expected.transpose(2, 1, 0), str(path))

    @unittest.skipUnless(os.environ.get("DDPRUN_TEST_PHOTOS_DIR"), "DDPRUN_TEST_PHOTOS_DIR is not set")
    def test_real_photos(self):
        self.check_jpegs(sorted(pathlib.Path(os.environ["DDPRUN_TEST_PHOTOS_DIR"]).rglob("*.jpg")))

    @unittest.skipUnless(os.environ.get("DDPRUN_TEST_NIFTI_DIR"), "DDPRUN_TEST_NIFTI_DIR is not set")
    def test_real_volumes(self):
        self.check_nifti(sorted(pathlib.Path(os.environ["DDPRUN_TEST_NIFTI_DIR"]).rglob("*.nii*")))


unittest.main()
