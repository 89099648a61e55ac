"""What TensorBoard itself reads from the files of monitor/: every value, step, pixel, bucket and text. Skipped without it."""

import importlib.util
import io
import math
import os
import subprocess
import sys
import tempfile
import unittest

if not all(importlib.util.find_spec(name) for name in ("tensorboard", "numpy", "PIL")):
    print("skipped: this Python has no tensorboard, numpy and Pillow")
    sys.exit(77)

import numpy
from PIL import Image
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util import tensor_util

PROGRAM = os.environ["PROGRAM"]
SCALARS = 1000


def load(folder):
    unlimited = dict.fromkeys(event_accumulator.DEFAULT_SIZE_GUIDANCE, 0)
    accumulator = event_accumulator.EventAccumulator(folder, size_guidance=unlimited)
    accumulator.Reload()
    return accumulator


def write(folder, *arguments):
    return subprocess.run([PROGRAM, folder, *arguments], timeout=60).returncode


def grid(images, columns=8):
    """(count, channels, height, width) as one picture (height, width, channels)."""
    count, channels, height, width = images.shape
    columns = min(columns, count)
    rows = -(-count // columns)
    canvas = numpy.zeros((rows * height, columns * width, channels), numpy.uint8)
    for i, image in enumerate(images):
        y, x = i // columns * height, i % columns * width
        canvas[y : y + height, x : x + width] = image.transpose(1, 2, 0)
    return canvas


def default_limits():
    positive = []
    limit = 1e-12
    while limit < 1e20:
        positive.append(limit)
        limit *= 1.1
    return numpy.array([-x for x in reversed(positive)] + [0] + positive)


class TensorBoard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = cls.temporary.name
        assert write(cls.folder) == 0
        cls.read = load(cls.folder)

    def tensors(self, tag):
        return self.read.Tensors(tag)

    def test_scalars(self):
        seen = self.read.Scalars("loss/train")
        expected = [numpy.float32(math.sin(step * 0.01) * math.exp(step % 50)) for step in range(SCALARS)]
        self.assertEqual([event.step for event in seen], [step * 1_000_003 for step in range(SCALARS)])
        numpy.testing.assert_allclose([event.value for event in seen], expected, rtol=2e-7)
        self.assertTrue(all(abs(event.wall_time - seen[0].wall_time) < 60 for event in seen))
        (nan,) = self.read.Scalars("nan")
        self.assertTrue(math.isnan(nan.value))
        self.assertEqual(nan.step, -5)
        self.assertEqual(self.read.Scalars("infinite")[0].value, math.inf)
        self.assertEqual(self.read.Scalars("größe \ufffd")[0].value, 1)

    def test_scalar_groups_are_runs(self):
        for name, factor in (("train", 0.5), ("test", -1.0)):
            seen = load(os.path.join(self.folder, "both_" + name)).Scalars("both")
            self.assertEqual([(event.step, event.value) for event in seen], [(step, factor * step) for step in range(20)])

    def check_image(self, tag, step, expected):
        (event,) = self.read.Images(tag)
        self.assertEqual(event.step, step)
        self.assertEqual((event.height, event.width), expected.shape[:2])
        pixels = numpy.asarray(Image.open(io.BytesIO(event.encoded_image_string)))
        numpy.testing.assert_array_equal(pixels.reshape(expected.shape), expected)

    def test_every_pixel_of_image_grids(self):
        for channels in (1, 2, 3, 4):
            index = numpy.arange(11 * channels * 5 * 7)
            images = (index * 31 + index // 13).astype(numpy.uint8).reshape(11, channels, 5, 7)
            self.check_image(f"image/{channels}", channels, grid(images))
        values = numpy.arange(72, dtype=numpy.float32) / numpy.float32(50) - numpy.float32(0.2)
        expected = (values.clip(0, 1) * numpy.float32(255)).astype(numpy.uint8).reshape(3, 6, 4).transpose(1, 2, 0)
        self.check_image("image/float", 9, expected)

    def test_every_bucket_of_histograms(self):
        seen = self.read.Histograms("weights")
        self.assertEqual([event.step for event in seen], list(range(10)))
        for event in seen:
            values = numpy.array([math.ldexp(i % 7 - 3.0, event.step - i % 40) for i in range(500)])
            counts, limits = numpy.histogram(values, default_limits())
            full = numpy.flatnonzero(counts)
            begin, end = full[0], full[-1] + 1
            histogram = event.histogram_value
            self.assertEqual(list(histogram.bucket_limit), list(limits[begin : end + 1]))
            self.assertEqual(list(histogram.bucket), [0] + list(counts[begin:end]))
            self.assertEqual((histogram.min, histogram.max, histogram.num), (values.min(), values.max(), 500))
            self.assertAlmostEqual(histogram.sum, values.sum(), delta=1e-9)
            self.assertAlmostEqual(histogram.sum_squares, values.dot(values), delta=1e-6)

    def test_texts(self):
        seen = self.tensors("notes/text_summary")
        texts = [tensor_util.make_ndarray(event.tensor_proto)[0].decode() for event in seen]
        self.assertEqual(texts, [f"# line {step}\né *x*" for step in range(15)])
        metadata = self.read.SummaryMetadata("notes/text_summary")
        self.assertEqual(metadata.plugin_data.plugin_name, "text")

    def test_hyper_parameters(self):
        content = self.read.PluginTagToContent("hparams")
        start = plugin_data_pb2.HParamsPluginData.FromString(content["_hparams_/session_start_info"]).session_start_info
        self.assertEqual(start.hparams["lr"].number_value, 0.125)
        self.assertEqual(start.hparams["batch"].number_value, 64)
        self.assertIs(start.hparams["nesterov"].bool_value, True)
        self.assertEqual(start.hparams["optimizer"].string_value, "sgd")
        experiment = plugin_data_pb2.HParamsPluginData.FromString(content["_hparams_/experiment"]).experiment
        self.assertEqual([info.name.tag for info in experiment.metric_infos], ["both", "car's \x1b IoU", "dice", "hparam/accuracy"])
        self.assertEqual([info.name for info in experiment.hparam_infos], ["batch", "lr", "nesterov", "optimizer"])
        self.assertEqual(self.read.Scalars("hparam/accuracy")[0].value, 0.75)

    def test_a_resumed_run_replaces_the_later_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(write(folder), 0)
            self.assertEqual(write(folder, "40"), 0)
            seen = load(folder).Scalars("resumed")
            self.assertEqual([event.step for event in seen], list(range(41)))
            self.assertEqual(seen[-1].value, 7)

    def test_a_killed_run_is_readable_up_to_the_last_flush(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(write(folder, "kill"), -9)
            read = load(folder)
            self.assertEqual(len(read.Scalars("loss/train")), SCALARS)
            self.assertEqual(len(read.Scalars("resumed")), 100)


unittest.main()
