"""ddprun-curves from outside: a picture that is well-formed XML, one chart per tag, clear errors."""

import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

SVG = "{http://www.w3.org/2000/svg}"


class Curves(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def run_curves(self, *arguments):
        return subprocess.run(
            [os.environ["CURVES"], *map(str, arguments)], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            universal_newlines=True, timeout=60)

    def titles(self, picture):
        root = xml.etree.ElementTree.parse(self.folder / picture).getroot()
        return [text.text for text in root.iter(SVG + "text") if text.get("font-weight") == "bold"]

    def test_help_that_cannot_be_written_is_no_success(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([os.environ["CURVES"], "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual((result.returncode, result.stderr), (1, "ddprun-curves: standard output cannot be written\n"))

    def test_draws_every_tag_of_a_run(self):
        subprocess.run([os.environ["PROGRAM"], str(self.folder / "run")], check=True, timeout=60)
        result = self.run_curves("run", "--smooth", 0.6, "--x", "time", "-o", "all.svg")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(
            self.titles("all.svg"),
            ["both", "größe \ufffd", "infinite", "loss/train", "nan", "resumed"])
        # One value each, whatever they are called; a metric that is a curve too ("both") is drawn.
        for metric in ("hparam/accuracy", "dice"):
            self.assertIn(f"left out: {metric}, which has only one value (--tag {metric} draws it)", result.stdout)
        self.assertIn("left out: car's   IoU, which has only one value (--tag 'car'\\''s   IoU' draws it)", result.stdout)
        self.assertEqual(self.run_curves("run", "--tag", "loss", "--tag", "both").returncode, 0)
        self.assertEqual(self.titles("curves.svg"), ["both", "loss/train"])

    def test_metrics_of_the_hparams_page_are_drawn_when_asked_for(self):
        subprocess.run([os.environ["PROGRAM"], str(self.folder / "run")], check=True, timeout=60)
        self.assertEqual(self.run_curves("run", "--tag", "hparam/").returncode, 0)
        self.assertEqual(self.titles("curves.svg"), ["hparam/accuracy"])

    def test_the_ending_decides_the_format(self):
        subprocess.run([os.environ["PROGRAM"], str(self.folder / "run")], check=True, timeout=60)
        layout = ("--tag", "loss/", "--width", 300, "--height", 200)
        result = self.run_curves("run", *layout, "--out", "c.PNG")
        if result.returncode == 1 and "libcairo.so.2" in result.stderr:
            self.assertIn("install it", result.stderr)
            self.skipTest(result.stderr)
        self.assertEqual(result.returncode, 0)
        png = (self.folder / "c.PNG").read_bytes()
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(struct.unpack(">II", png[16:24]), (600, 400))
        self.assertEqual(self.run_curves("run", *layout, "--scale", 1, "-o", "small.png").returncode, 0)
        self.assertEqual(struct.unpack(">II", (self.folder / "small.png").read_bytes()[16:24]), (300, 200))
        for name in ["c.jpg", "c", "png"]:
            result = self.run_curves("run", *layout, "--out", name)
            self.assertEqual((result.returncode, result.stderr), (1, f"error: {name}: expected a picture that ends in .png or .svg\n"))
            self.assertFalse((self.folder / name).exists())

    def test_a_wrong_command_line_is_told_by_its_status(self):
        for words in ((), ("--nothing",), ("run", "--smooth", "2")):
            self.assertEqual(self.run_curves(*words).returncode, 2)
        self.assertIn("Exit status: ", self.run_curves("--help").stdout)

    def test_names_what_is_wrong(self):
        result = self.run_curves("nowhere")
        self.assertEqual((result.returncode, result.stderr), (1, "error: nowhere: no such file or folder\n"))
        subprocess.run([os.environ["PROGRAM"], str(self.folder / "run")], check=True, timeout=60)
        result = self.run_curves("run", "--out", "missing/x.svg")
        self.assertEqual(result.stderr, "error: missing/x.svg: cannot be written: No such file or directory\n")
        self.assertIn("no curve whose tag begins with 'los/'; there are: 'both' 'car's   IoU'", self.run_curves("run", "--tag", "los/").stderr)
        shutil.rmtree(self.folder / "run")
        self.assertIn("no event file", self.run_curves(".").stderr)
        (self.folder / "x.tfevents").write_bytes(b"not an event file at all")
        result = self.run_curves("x.tfevents")
        self.assertEqual(result.returncode, 1)
        self.assertIn("warning: x.tfevents: record at byte 0: wrong checksum", result.stderr)
        self.assertIn("error: no curve in these event files", result.stderr)


unittest.main()
