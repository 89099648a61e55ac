"""The tables in the guides are what scripts/figures measured, and measuring again gives the same."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PROJECT_SOURCE"])
DOCS = SOURCE / "docs"
MEASURED = json.loads((DOCS / "figures.json").read_text())
ROUNDING = 1e-5  # of float32, after 20 steps


class Figures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.again = pathlib.Path(folder.name)
        subprocess.run([sys.executable, "-B", SOURCE / "scripts/figures", "--output", cls.again], check=True)

    def test_the_pages_show_what_was_measured(self):
        pages = [page for page in DOCS.glob("*.md") if "<!-- figures:" in page.read_text()]
        self.assertEqual(len(pages), len(MEASURED))
        for page in pages:
            shown = re.search(r"<!-- figures: ([\w-]+) -->\n(.*?)<!-- end -->", page.read_text(), re.DOTALL)
            rows = MEASURED[shown[1]]
            for title, row in rows.items():
                self.assertIn(f"| {title} | {row['last_loss']:.4f} | {row['loss']:.0e} | {row['weight']:.0e} |", shown[2])
            self.assertEqual(len(shown[2].splitlines()), len(rows) + 3)

    def test_the_same_comes_out_again(self):
        again = json.loads((self.again / "figures.json").read_text())
        self.assertEqual({name: list(rows) for name, rows in again.items()}, {name: list(rows) for name, rows in MEASURED.items()})
        for name, rows in again.items():
            for title, row in rows.items():
                before = MEASURED[name][title]
                for what in ("last_loss", "reference_last_loss"):
                    self.assertAlmostEqual(row[what], before[what], delta=2e-3 if "bfloat16" in title else 1e-4, msg=f"{name}, {title}, {what}")

    def test_what_the_guides_conclude(self):
        for rows in (MEASURED, json.loads((self.again / "figures.json").read_text())):
            for title, row in rows["accumulation"].items():
                self.assertLess(max(row["loss"], row["weight"]), ROUNDING, title)
            for title, row in rows["sync-batch-norm"].items():
                if "SyncBatchNorm" in title:
                    self.assertLess(max(row["loss"], row["weight"]), ROUNDING, title)
                else:
                    self.assertGreater(row["weight"], 100 * ROUNDING, title)

    def test_the_pictures_are_those_that_scripts_draw(self):
        self.assertEqual((self.again / "ring-all-reduce.svg").read_text(), (DOCS / "ring-all-reduce.svg").read_text())
        files = [file for folder in ("scripts", "tools", "bench") for file in (SOURCE / folder).rglob("*") if file.is_file()]
        scripts = "".join(file.read_text() for file in files if "__pycache__" not in file.parts)
        pages = "".join(page.read_text() for page in DOCS.glob("*.md"))
        for picture in DOCS.glob("*.svg"):
            # scripts/programs copies what the commands of docs/programs.md draw.
            self.assertTrue(picture.name in scripts or f"--out {picture.name}" in pages, picture)


if __name__ == "__main__":
    unittest.main(verbosity=2)
