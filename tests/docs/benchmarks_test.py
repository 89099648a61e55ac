"""The tables of benchmarks on the pages are docs/benchmarks.json's, which bench/run.py --record wrote."""

import importlib.util
import json
import os
import pathlib
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["PROJECT_SOURCE"])
SPEC = importlib.util.spec_from_file_location("run", SOURCE / "bench/run.py")
bench = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bench)
ROWS = [
    {"case": "a thing; peer another", "metric": "ms", "ours": 1.25, "peer": 2.5, "ratio": 2.0},
    {"case": "alone", "metric": "images/s", "ours": 12345.6, "peer": None, "ratio": None},
]


class Benchmarks(unittest.TestCase):
    def test_the_pages_show_what_was_measured(self):
        known = json.loads((SOURCE / "docs/benchmarks.json").read_text())
        shown = set()
        for page in sorted((SOURCE / "docs").glob("*.md")):
            for match in bench.TABLE.finditer(page.read_text()):
                with self.subTest(page=page.name, benchmark=match[2]):
                    self.assertIn(match[2], bench.names())
                    self.assertEqual(match[0], match[1] + bench.page_table(known[match[2]]) + match[3])
                    shown.add(match[2])
        self.assertEqual(shown, set(known), "measured and shown nowhere, or the other way round")
        self.assertGreater(len(shown), 1)

    def test_rows_become_a_file_and_tables(self):
        with tempfile.TemporaryDirectory() as folder:
            docs = pathlib.Path(folder)
            page = docs / "page.md"
            page.write_text("before\n<!-- benchmark loader -->\nold\n<!-- end -->\nbetween\n<!-- benchmark other -->\nkept\n<!-- end -->\n")
            bench.record("loader", ROWS, docs)
            bench.record("loader", ROWS, docs)
            text = page.read_text()
            self.assertTrue(text.startswith("before\n<!-- benchmark loader -->\n| | ddprun |"), text)
            self.assertNotIn("old", text)
            self.assertIn("| a thing: ms | 1.25 | 2.5 (another) | 2 |\n| alone: images/s | 12,346 |  |  |\n", text)
            self.assertIn("kept", text)
            self.assertEqual(json.loads((docs / "benchmarks.json").read_text())["loader"]["rows"], ROWS)


if __name__ == "__main__":
    unittest.main(verbosity=2)
