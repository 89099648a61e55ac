"""Pictures and volumes against Pillow and nibabel: made-up files of every kind, and real ones from the folders that
DDPRUN_TEST_PHOTOS_DIR and DDPRUN_TEST_NIFTI_DIR name. Skipped without Pillow, nibabel and numpy."""

import os
import pathlib
import tempfile
import unittest

from decode import decode  # first: it knows whether the packages below are there

import nibabel
import numpy
from PIL import Image, ImageEnhance


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

    def test_colours_changed_exactly(self):
        path = self.folder / "colours.png"
        pixels = self.random.integers(0, 256, (200, 300, 3), numpy.uint8)
        pixels[:20] = pixels[:20, :, :1]  # greys
        pixels[20:24] = [[[255, 0, 0]], [[0, 255, 0]], [[0, 0, 255]], [[255, 255, 0]]]
        Image.fromarray(pixels).save(path)
        picture = Image.open(path)
        enhancers = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast, "saturation": ImageEnhance.Color}
        for name, enhancer in enhancers.items():
            for factor in (0.0, 0.3, 0.77, 1.0, 1.25, 1.9):
                expected = numpy.asarray(enhancer(picture).enhance(factor))
                numpy.testing.assert_array_equal(decode([path], f"{name}={factor}")[path], expected, f"{name} {factor}")
        for turns in (-0.5, -0.13, 0.0, 0.08, 0.5):
            hue, saturation, value = picture.convert("HSV").split()
            shifted = (numpy.asarray(hue).astype(int) + int(turns * 255)) % 256
            merged = Image.merge("HSV", (Image.fromarray(shifted.astype(numpy.uint8)), saturation, value)).convert("RGB")
            numpy.testing.assert_array_equal(decode([path], f"hue={turns}")[path], numpy.asarray(merged), f"hue {turns}")

    def test_resized_exactly(self):
        paths = []
        for height, width in ((1, 1), (23, 31), (200, 150), (64, 64), (3, 500)):
            paths.append(self.folder / f"{height}x{width}.png")
            Image.fromarray(self.random.integers(0, 256, (height, width, 3), numpy.uint8)).save(paths[-1])
        for height, width in ((224, 224), (1, 1), (7, 300), (32, 31), (64, 64)):
            for path, pixels in decode(paths, f"{height}x{width}").items():
                image = Image.open(path)
                # Across, then down, as every Pillow did before 13; newer ones begin with the other axis for some shapes.
                expected = image.resize((width, image.height), Image.BILINEAR).resize((width, height), Image.BILINEAR)
                numpy.testing.assert_array_equal(pixels, numpy.asarray(expected), f"{path} to {height}x{width}")
                at_once = numpy.asarray(image.resize((width, height), Image.BILINEAR)).astype(int)
                self.assertLessEqual(numpy.abs(at_once - pixels).max(), 1)

    def test_centre_crops_exactly(self):
        paths = []
        for height, width in ((300, 400), (401, 257), (100, 100), (256, 999)):
            paths.append(self.folder / f"{height}x{width}.png")
            Image.fromarray(self.random.integers(0, 256, (height, width, 3), numpy.uint8)).save(paths[-1])
        for path, pixels in decode(paths, "centre").items():
            image = Image.open(path)
            scaled = [256 if side == min(image.size) else int(256 * side / min(image.size)) for side in image.size]
            left, top = (int(round((side - 224) / 2.0)) for side in scaled)
            resized = image.resize((scaled[0], image.height), Image.BILINEAR).resize(scaled, Image.BILINEAR)
            expected = resized.crop((left, top, left + 224, top + 224))
            numpy.testing.assert_array_equal(pixels, numpy.asarray(expected), str(path))

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
                for version, kind, header in ((1, nibabel.Nifti1Image, nibabel.Nifti1Header), (2, nibabel.Nifti2Image, nibabel.Nifti2Header)):
                    image = kind(data, numpy.eye(4), header(endianness=order))
                    image.set_data_dtype(numpy.dtype(dtype).newbyteorder(order))
                    for extension in (".nii", ".nii.gz"):
                        paths.append(self.folder / f"{dtype}{'le' if order == '<' else 'be'}{version}{extension}")
                        nibabel.save(image, paths[-1])
        for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image):
            scaled = kind(self.random.random((6, 5, 4)), numpy.eye(4))
            scaled.set_data_dtype("i2")
            paths.append(self.folder / f"scaled{kind.__name__}.nii.gz")
            nibabel.save(scaled, paths[-1])
        self.check_nifti(paths)

    def test_nifti_series_exactly(self):
        paths = []
        for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image):
            for length in (1, 7):
                paths.append(self.folder / f"{kind.__name__}{length}.nii.gz")
                nibabel.save(kind((self.random.random((6, 5, 4, length)) * 100).astype("i2"), numpy.eye(4)), paths[-1])
        for path, volumes in decode(paths, "series").items():  # one behind the other, as if in depth
            expected = nibabel.load(path).get_fdata(dtype=numpy.float32).transpose(3, 2, 1, 0)
            self.assertTrue(numpy.array_equal(volumes, expected.reshape(volumes.shape)), path)

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
