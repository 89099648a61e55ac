"""bench/imagenet/plot.py makes table and picture of rows."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

PLOT = pathlib.Path(__file__).resolve().parent.parent.parent / "bench/imagenet/plot.py"
ROWS = [
    {"case": f"imagenet: resnet18, 64 images of 64 pixels, {way}; peer Python's DDP", "metric": "s per epoch", "ours": 1.25, "peer": 2.5, "ratio": 2.0}
    for way in ("none", "dp", "ddp", "apex", "horovod")
]  # fmt: skip
ROWS += [{"case": "mixed precision: LeNet, bf16 O1, 2 seeds; peer float", "metric": "% right", "ours": 59.8, "peer": 60.2, "ratio": 0.993}]


class Plot(unittest.TestCase):
    def test_rows_become_a_table_in_the_page_and_a_picture_beside_it(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder, "page.md")
            page.write_text("before\n<!-- bench imagenet -->\nold\n<!-- end -->\nafter\n")
            text = "".join(json.dumps(row) + "\n" for row in ROWS)
            subprocess.run([sys.executable, "-B", PLOT, page], input=text, text=True, check=True, env=os.environ)
            written = page.read_text()
            self.assertTrue(written.startswith("before\n<!-- bench imagenet -->\n| one epoch: resnet18, 64 images"), written)
            self.assertTrue(written.endswith("<!-- end -->\nafter\n"), written)
            self.assertNotIn("old", written)
            self.assertIn("| Horovod's way | 1.25 | 2.50 |", written)
            self.assertIn("| bf16, O1 | 59.8 % | 60.2 % |", written)
            picture = xml.dom.minidom.parse(str(pathlib.Path(folder, "imagenet.svg")))
            self.assertEqual(len(picture.getElementsByTagName("rect")), 1 + 2 * 2 + 2 * len(ROWS))


if __name__ == "__main__":
    unittest.main()
