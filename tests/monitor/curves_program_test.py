"""ddprun-curves from outside: a picture that is well-formed XML, one chart per tag, clear errors."""

import os
import pathlib
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

    def test_draws_every_tag_of_a_run(self):
        subprocess.run([os.environ["PROGRAM"], str(self.folder / "run")], check=True, timeout=60)
        result = self.run_curves("run", "--smooth", 0.6, "--x", "time", "-o", "all.svg")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(
            self.titles("all.svg"),
            ["both", "größe \ufffd", "hparam/accuracy", "infinite", "loss/train", "nan", "resumed"])
        self.assertEqual(self.run_curves("run", "--tag", "loss", "--tag", "both").returncode, 0)
        self.assertEqual(self.titles("curves.svg"), ["both", "loss/train"])

    def test_names_what_is_wrong(self):
        self.assertIn("no event file", self.run_curves(".").stderr)
        (self.folder / "x.tfevents").write_bytes(b"not an event file at all")
        result = self.run_curves("x.tfevents")
        self.assertEqual(result.returncode, 1)
        self.assertIn("warning: x.tfevents: record at byte 0: wrong checksum", result.stderr)
        self.assertIn("error: no such curve", result.stderr)


unittest.main()
