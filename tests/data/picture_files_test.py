"""Picture files of every kind, byte by byte against Pillow's convert("RGB"), what torchvision's ImageFolder sees."""

import io
import itertools
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from decode import decode  # first: it knows whether the packages below are there

import numpy
from PIL import Image, features

import made_bmp
import made_gif
import made_png
import made_tiff

READS_TIFF = os.environ["READS_TIFF"] == "1"
READS_WEBP = os.environ["READS_WEBP"] == "1"
READS_AVIF = os.environ.get("READS_AVIF") == "1"
READS_JPEG2000 = os.environ.get("READS_JPEG2000") == "1"


class PictureFiles(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.random = numpy.random.default_rng(7)
        self.paths = []

    def integers(self, shape, bits):
        return self.random.integers(0, 1 << bits, shape, numpy.int64)

    def add(self, name: str, content: bytes):
        self.paths.append(self.folder / re.sub(r"[^\w.+-]", "_", name))
        self.paths[-1].write_bytes(content)

    def save(self, name: str, picture: Image.Image, **options):
        self.paths.append(self.folder / name)
        picture.save(self.paths[-1], **options)

    def check(self, most=0):
        """Every file added, against Pillow; `most` levels between."""
        self.assertTrue(self.paths)
        for path, pixels in decode(self.paths).items():
            with Image.open(path) as picture:
                expected = numpy.asarray(picture.convert("RGB"))
            with self.subTest(path.name):
                self.assertEqual(pixels.shape, expected.shape)
                self.assertLessEqual(numpy.abs(pixels.astype(int) - expected).max(), most)

    def photograph(self, height, width):
        y, x = numpy.mgrid[0:height, 0:width]
        colors = numpy.stack([100 * numpy.sin(x / 17 + y / 31), 90 * numpy.cos(x / 15), (3 * x + 5 * y) % 256 - 128], -1)
        return Image.fromarray(numpy.clip(colors + 128 + self.random.normal(0, 5, colors.shape), 0, 255).astype("u1"))

    @unittest.skipUnless(READS_AVIF and features.check("avif"), "without libavif")
    def test_avif_is_pillows(self):
        photograph = self.photograph(61, 83)
        for sampling, quality in itertools.product(("4:4:4", "4:2:2", "4:2:0", "4:0:0"), (30, 90)):
            self.save(f"{sampling.replace(':', '')}_{quality}.avif", photograph, quality=quality, subsampling=sampling, speed=8)
        self.save("limited.avif", photograph, range="limited", speed=8)
        self.save("opacity.avif", photograph.convert("RGBA"), speed=8)
        self.check(most=1)  # another libavif may round otherwise

    @unittest.skipUnless(READS_JPEG2000 and features.check("jpg_2000"), "without OpenJPEG")
    def test_jpeg_2000_is_pillows(self):
        photograph = self.photograph(61, 83)
        for mode, is_irreversible, extension in itertools.product(("L", "LA", "RGB", "RGBA"), (False, True), ("jp2", "j2k")):
            self.save(f"{mode}_{is_irreversible}.{extension}", photograph.convert(mode), irreversible=is_irreversible)
        self.save("tiles.jp2", photograph, tile_size=(32, 32))
        self.save("small.jp2", photograph, quality_mode="rates", quality_layers=[40])
        self.check(most=1)

    def test_png_of_every_kind_whatever_its_chunks_say_about_colours(self):
        for color_type, depths in made_png.DEPTHS.items():
            for depth, interlaced in itertools.product(depths, (False, True)):
                samples = self.integers((11, 13, made_png.CHANNELS[color_type]), depth)
                for name, extra in made_png.extras(color_type, depth).items():
                    if (color_type, depth) == (0, 16):
                        continue  # below
                    content = made_png.png(samples, color_type, depth, interlaced, extra)
                    self.add(f"{color_type}-{depth}-{interlaced}-{name}.png", content)
        self.check()

    def test_grey_of_16_bits_keeps_the_upper_eight(self):
        # Pillow's convert("RGB") makes 255 of everything above, which leaves a white picture.
        samples = self.integers((11, 13, 1), 16)
        for interlaced, (name, extra) in itertools.product((False, True), made_png.extras(0, 16).items()):
            self.add(f"{interlaced}-{name}.png", made_png.png(samples, 0, 16, interlaced, extra))
        for order in "<>" if READS_TIFF else "":
            self.add(f"{ord(order)}.tif", made_tiff.tiff(samples, bits=16, order=order))
        for path, pixels in decode(self.paths).items():
            numpy.testing.assert_array_equal(pixels, (samples >> 8).repeat(3, 2), path.name)

    def test_jpeg_in_cmyk_and_ycck(self):
        y, x = numpy.mgrid[0:61, 0:83]
        inks = numpy.stack([128 + 100 * numpy.sin(x / 9), 128 + 100 * numpy.cos(y / 7), x + y, 2 * x], 2).astype(numpy.uint8)
        for quality, subsampling, progressive in itertools.product((40, 95), (0, 2), (False, True)):
            file = io.BytesIO()
            Image.fromarray(inks, "CMYK").save(file, "jpeg", quality=quality, subsampling=subsampling, progressive=progressive)
            cmyk = file.getvalue()
            name = f"{quality}-{subsampling}-{progressive}"
            self.add(f"cmyk-{name}.jpg", cmyk)
            adobe = cmyk.index(b"\xff\xee\0\x0eAdobe")
            self.assertEqual(cmyk[adobe + 15], 0)
            self.add(f"ycck-{name}.jpg", cmyk[: adobe + 15] + b"\2" + cmyk[adobe + 16 :])
            self.add(f"unmarked-{name}.jpg", cmyk[:adobe] + cmyk[adobe + 16 :])
        for path in self.paths:
            with Image.open(path) as picture:
                self.assertEqual(picture.mode, "CMYK")
        self.check()

    def test_bmp_of_every_kind(self):
        for mode in ("1", "L", "RGB", "RGBA"):
            picture = Image.fromarray(self.integers((9, 13, 4), 8).astype(numpy.uint8), "RGBA").convert(mode)
            self.save(f"pillow-{mode}.bmp", picture)
        self.save("pillow-P.bmp", Image.fromarray(self.integers((9, 13, 3), 8).astype(numpy.uint8)).quantize(200))
        for width in (1, 7, 8, 13):
            for bits in (1, 4, 8, 16, 24, 32):
                pixels = made_bmp.rows(self.integers((9, width), bits), bits)
                for header_bytes in (12, 40, 64, 124):
                    self.add(f"{bits}-{width}-{header_bytes}.bmp", made_bmp.bmp(9, width, bits, pixels, header_bytes=header_bytes))
                self.add(f"{bits}-{width}-top.bmp", made_bmp.bmp(-9, width, bits, pixels))
        layouts = {
            16: [(0xF800, 0x7E0, 0x1F), (0x7C00, 0x3E0, 0x1F)],
            32: [(0xFF0000, 0xFF00, 0xFF), (0xFF000000, 0xFF0000, 0xFF00), (0xFF000000, 0xFF00, 0xFF), (0, 0, 0)],
        }
        for bits, masks in ((bits, masks) for bits, several in layouts.items() for masks in several):
            pixels = made_bmp.rows(self.integers((9, 13), bits), bits)
            masks_then_pixels = b"".join(mask.to_bytes(4, "little") for mask in masks)
            self.add(f"{bits}-{masks}.bmp", made_bmp.bmp(9, 13, bits, pixels, 3, palette=masks_then_pixels))
            self.add(f"{bits}-{masks}-v4.bmp", made_bmp.bmp(9, 13, bits, pixels, 3, masks=masks, header_bytes=108))
        few = made_bmp.rows(self.integers((9, 13), 2), 8)
        self.add("few.bmp", made_bmp.bmp(9, 13, 8, few, colors=4))
        self.check()

    def test_gif_of_every_kind(self):
        for colors, interlace in itertools.product((2, 4, 7, 16, 256), (False, True)):
            picture = Image.fromarray(self.integers((37, 53, 3), 8).astype(numpy.uint8)).quantize(colors)
            self.save(f"{colors}-{interlace}.gif", picture, interlace=interlace)
            self.save(f"{colors}-{interlace}-transparent.gif", picture, interlace=interlace, transparency=1)
        large = Image.fromarray(self.integers((300, 200), 8).astype(numpy.uint8))  # the table of codes is full several times
        self.save("grey.gif", large)
        self.save("plain.gif", Image.new("L", (200, 100), 7))
        self.save("animated.gif", large.quantize(50), save_all=True, append_images=[Image.new("L", (200, 300), 9)], comment=b"x" * 600)
        plain = self.paths[-2].read_bytes()
        screen, picture = plain[:13], plain[plain.index(b",\0\0\0\0") :]
        for name, flags, palette in (("none", 0, b""), ("short", 0x81, bytes(range(12))), ("whole", 0x87, bytes(range(255, -1, -1)) * 3)):
            colours = bytes([screen[10] & 0x78 | flags])
            self.add(f"palette-{name}.gif", screen[:10] + colours + screen[11:] + palette + picture)
            own = picture[:9] + bytes([picture[9] & 0x78 | flags]) + palette + picture[10:]
            self.add(f"own-palette-{name}.gif", screen[:10] + b"\0" + screen[11:] + own)
            apart = picture[:1] + b"\5\0\7\0" + picture[5:]  # beyond the screen, and not at its corner
            self.add(f"apart-{name}.gif", screen[:10] + colours + screen[11:] + palette + apart)
            control = b"!\xf9\4\1\0\0\3\0"  # the third colour is transparent
            self.add(f"apart-transparent-{name}.gif", screen[:10] + colours + screen[11:] + palette + control + apart)
        self.check()

    def test_gif_of_every_size_of_code(self):
        # Pillow takes indices of 0 to 12 bits, and of each the lower eight.
        palette = bytes(self.integers(768, 8).astype(numpy.uint8))
        for bits, flags in itertools.product(range(13), (0, 0x40)):
            clear = 1 << bits
            noise = [int(value) for value in self.integers(61 * 47, bits)]
            pairs = [(code, bits + 1) for value in noise for code in (clear, value)] + [(clear + 1, bits + 1)]
            self.add(f"cleared-{bits}-{flags}.gif", made_gif.gif(61, 47, bits, made_gif.packed(pairs), palette, flags))
            if bits >= 2:
                runs = [value // 3 for value in range(61 * 47 // 2)] + noise
                indices = [value % clear for value in runs[: 61 * 47]]
                self.add(f"strings-{bits}-{flags}.gif", made_gif.gif(61, 47, bits, made_gif.lzw(indices, bits), palette, flags))
        self.check()

    def test_gif_whose_codes_mean_nothing_is_refused_as_by_pillow(self):
        for bits, codes in ((11, [2048, 5, 2051]), (11, [2048, 2049]), (12, [4096, 7, 4099]), (8, [256, 300]), (13, [8192, 1])):
            self.add(f"{bits}.gif", made_gif.gif(1, 9, bits, made_gif.packed([(code, bits + 1) for code in codes])))
            with self.assertRaises(Exception), Image.open(self.paths[-1]) as picture:
                picture.convert("RGB")
            with self.assertRaises(subprocess.CalledProcessError):
                decode(self.paths[-1:])

    def test_bmp_in_run_lengths(self):
        rle8 = bytes([5, 7, 0, 3, 1, 2, 3, 0, 5, 9, 0, 0, 13, 4, 0, 0, 0, 4, 6, 5, 4, 3, 9, 8, 0, 0, 0, 1])
        self.add("rle8.bmp", made_bmp.bmp(3, 13, 8, rle8, 1))
        self.add("rle8-top.bmp", made_bmp.bmp(-3, 13, 8, rle8, 1))
        jumps = bytes([13, 4, 0, 0, 2, 3, 0, 2, 3, 1, 4, 5, 0, 0, 13, 6, 0, 1])
        self.add("jumps.bmp", made_bmp.bmp(4, 13, 8, jumps, 1))
        self.add("unended.bmp", made_bmp.bmp(2, 13, 8, bytes([13, 4, 0, 0, 13, 5]), 1))
        rle4 = bytes([5, 0x7A, 0, 5, 0x12, 0x34, 0x50, 0, 3, 0x99, 0, 0, 13, 0x4B, 0, 0, 0, 3, 0x65, 0x40, 10, 8, 0, 0, 0, 1])
        self.add("rle4.bmp", made_bmp.bmp(3, 13, 4, rle4, 2))
        self.check()

    def test_pnm_of_every_kind(self):
        for most in (1, 15, 100, 255):
            values = self.random.integers(0, most + 1, (7, 10, 3), numpy.int64)
            text = " ".join(map(str, values.ravel()))
            half = text.index(" ", len(text) // 2)
            self.add(f"p6-{most}.ppm", b"P6 10\t7\n# said by hand\n%d\n" % most + values.astype(numpy.uint8).tobytes())
            self.add(f"p3-{most}.ppm", f"P3\n10 7\n{most}\n{text[:half]} # half\n{text[half:]}\n".encode())
            self.add(f"p5-{most}.pgm", b"P5\n30\n7\n%d\n" % most + values.astype(numpy.uint8).tobytes())
            self.add(f"p2-{most}.pgm", f"P2\n30 7\n{most}\n{text}\n".encode())
        for most in (256, 1000, 40000, 65535):
            values = self.random.integers(0, most + 1, (7, 10, 3), numpy.int64)
            self.add(f"p6-{most}.ppm", b"P6\n10 7\n%d\n" % most + values.astype(">u2").tobytes())
            self.add(f"p3-{most}.ppm", f"P3\n10 7\n{most}\n{' '.join(map(str, values.ravel()))}\n".encode())
        bits = self.integers((7, 13), 1)
        self.add("p4.ppm", b"P4\n13 7\n" + numpy.packbits(bits.astype(bool), axis=1).tobytes())
        self.add("p1.ppm", b"P1\n# bits\n13 7\n" + b"\n".join(b"".join(b"%d" % bit for bit in row) for row in bits))
        self.check()

    def test_grey_of_a_pgm_is_scaled_from_its_greatest_value(self):
        # Pillow's convert("RGB") clips what has more than 8 bits.
        for most in (256, 1000, 65535):
            values = self.random.integers(0, most + 1, (7, 10), numpy.int64)
            self.add(f"p5-{most}.pgm", b"P5\n10 7\n%d\n" % most + values.astype(">u2").tobytes())
            expected = numpy.round(values / most * 255).astype(numpy.uint8)
            numpy.testing.assert_array_equal(decode(self.paths[-1:])[self.paths[-1]], expected[:, :, None].repeat(3, 2))

    @unittest.skipUnless(READS_WEBP, "built without libwebp")
    def test_webp_of_every_kind(self):
        y, x = numpy.mgrid[0:61, 0:83]
        pixels = numpy.stack([128 + 100 * numpy.sin(x / 9), 128 + 100 * numpy.cos(y / 7), x + y, 3 * x], 2).astype(numpy.uint8)
        noise = self.integers((61, 83, 4), 8).astype(numpy.uint8)
        for mode in ("RGB", "RGBA", "L"):
            for name, content in (("smooth", pixels), ("noise", noise)):
                picture = Image.fromarray(content, "RGBA").convert(mode)
                self.save(f"{mode}-{name}-lossless.webp", picture, lossless=True, exact=True)
                for quality in (20, 90):
                    self.save(f"{mode}-{name}-{quality}.webp", picture, quality=quality, exact=True)
        frames = [Image.fromarray(content, "RGBA") for content in (pixels, noise)]
        for lossless in (False, True):
            self.save(f"frames-{lossless}.webp", frames[0], save_all=True, append_images=frames[1:], lossless=lossless)
        self.check()

    @unittest.skipUnless(READS_TIFF, "built without libtiff")
    def test_tiff_as_pillow_writes_it(self):
        pixels = Image.fromarray(self.integers((37, 45, 4), 8).astype(numpy.uint8), "RGBA")
        modes = {mode: pixels.convert(mode) for mode in ("1", "L", "LA", "RGB", "RGBA", "RGBX")}
        modes["P"] = pixels.convert("RGB").quantize(100)
        modes["CMYK"] = Image.fromarray(self.integers((37, 45, 4), 8).astype(numpy.uint8), "CMYK")
        for mode, picture in modes.items():
            for compression in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits"):
                self.save(f"{mode}-{compression}.tif", picture, compression=compression)
        self.save("fax.tif", modes["1"], compression="group4")
        self.save("big.tiff", modes["RGB"], big_tiff=True)
        self.save("predicted.tif", modes["RGB"], compression="tiff_lzw", tiffinfo={317: 2})
        self.save("pages.tif", modes["RGB"], save_all=True, append_images=[modes["L"]])
        for orientation in range(1, 9):
            self.save(f"turned-{orientation}.tif", modes["RGB"], tiffinfo={274: orientation})
        self.check()

    @unittest.skipUnless(READS_TIFF, "built without libtiff")
    def test_tiff_of_jpegs_and_of_ycbcr(self):
        y, x = numpy.mgrid[0:64, 0:80]
        smooth = numpy.stack([128 + 100 * numpy.sin(x / 9), 128 + 100 * numpy.cos(y / 7), x + y], 2).astype(numpy.uint8)
        for mode in ("RGB", "L", "YCbCr"):
            self.save(f"{mode}.tif", Image.fromarray(smooth).convert(mode), compression="jpeg", quality=90)
        self.save("plain-YCbCr.tif", Image.fromarray(smooth).convert("YCbCr"), compression="tiff_lzw")
        self.check(most=1)

    @unittest.skipUnless(READS_TIFF, "built without libtiff")
    def test_tiff_of_the_kinds_that_pillow_only_reads(self):
        for order in "<>":
            for bits, photometric in itertools.product((1, 2, 4, 8), (0, 1)):
                samples = self.integers((19, 21, 1), bits)
                self.add(f"grey-{bits}-{photometric}-{ord(order)}.tif", made_tiff.tiff(samples, bits, photometric, order))
            for bits in (1, 2, 4, 8):
                colors = {320: (3, [257 * (i * 7 % 256) for i in range(3 << bits)])}
                samples = self.integers((19, 21, 1), bits)
                self.add(f"palette-{bits}-{ord(order)}.tif", made_tiff.tiff(samples, bits, 3, order, tags=colors))
            for channels, extra in ((3, None), (4, 0), (4, 2), (4, 1)):
                samples = self.integers((19, 21, channels), 16)
                samples[:2, :, -1] = 0
                tags = {} if extra is None else {338: (3, [extra])}
                self.add(f"rgb16-{channels}-{extra}-{ord(order)}.tif", made_tiff.tiff(samples, 16, 2, order, tags=tags))
            samples = self.integers((19, 21, 4), 8)
            samples[:2, :, 3], samples[2:4, :, 3] = 0, 255
            self.add(f"multiplied-{ord(order)}.tif", made_tiff.tiff(samples, 8, 2, order, tags={338: (3, [1])}))
            self.add(f"cmyk16-{ord(order)}.tif", made_tiff.tiff(self.integers((19, 21, 4), 16), 16, 5, order))
        samples = self.integers((37, 45, 3), 8)
        self.add("tiles.tif", made_tiff.tiff(samples, 8, 2, tile=(16, 32)))
        self.add("planes.tif", made_tiff.tiff(samples, 8, 2, separate=True))
        self.check()

    @unittest.skipUnless(READS_TIFF, "built without libtiff")
    def test_tiff_in_tiles_of_separate_planes(self):
        # Pillow puts tiles of planes in the wrong places.
        samples = self.integers((37, 45, 3), 8)
        self.add("planes.tif", made_tiff.tiff(samples, 8, 2, tile=(16, 32), separate=True))
        numpy.testing.assert_array_equal(decode(self.paths)[self.paths[0]], samples)


if __name__ == "__main__":
    unittest.main(verbosity=1)
