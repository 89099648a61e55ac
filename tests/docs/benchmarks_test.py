"""The tables of benchmarks on the pages are docs/benchmarks.json's, which bench/run.py --record wrote."""

import importlib.util
import json
import os
import pathlib
import tempfile
import unittest
import unittest.mock
import xml.dom.minidom

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
        pages = "".join(page.read_text() for page in (SOURCE / "docs").glob("*.md"))
        for name, record in known.items():
            pictures = own.pictures(record["rows"]) if (own := bench.own_show(name)) else {}
            if pictures and all(f"({picture})" in pages for picture in pictures):
                shown.add(name)
        self.assertEqual(shown, set(known), "measured and shown nowhere, or the other way round")
        self.assertGreater(len(shown), 1)

    def test_pictures_are_drawn_of_the_same_rows(self):
        drawn = set()
        for name, record in json.loads((SOURCE / "docs/benchmarks.json").read_text()).items():
            own = bench.own_show(name)
            for file, picture in own.pictures(record["rows"]).items() if own else ():
                with self.subTest(picture=file):
                    self.assertEqual((SOURCE / "docs" / file).read_text(), picture)
                    drawn.add(file)
        self.assertIn("imagenet.svg", drawn)

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

    def test_a_page_says_how_much_was_measured(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, {"BENCH_DDP_CASES": "ways", "BENCH_PYTHON": "python3"}):
            docs = pathlib.Path(folder)
            (docs / "page.md").write_text("<!-- benchmark ddp -->\n<!-- end -->\n")
            bench.record("ddp", ROWS, docs)
            self.assertIn("Measured by `BENCH_DDP_CASES=ways scripts/bench ddp --record` on ", (docs / "page.md").read_text())

    def test_some_rows_have_tables_and_pictures_of_their_own(self):
        rows = {
            "imagenet": [
                *({"case": f"imagenet: resnet18, 64 images of 64 pixels, {way}; peer Python's DDP", "metric": "s per epoch", "ours": 1.25, "peer": 2.5, "ratio": 2.0}
                  for way in ("none", "dp", "ddp", "apex", "horovod")),
                {"case": "mixed precision: LeNet, bf16 O1, 2 seeds; peer float", "metric": "% right", "ours": 59.8, "peer": 60.2, "ratio": 0.993},
            ],
            "rendezvous": [
                *({"case": f"rendezvous: {nodes} nodes x 8 ranks", "metric": metric, "ours": value * nodes, "peer": None, "ratio": None}
                  for nodes in (10, 100, 1000)
                  for metric, value in {"rendezvous, s": 0.001, "CPU of it, s": 0.0005, "store: all ranks meet, s": 0.002, "CPU of that, s": 0.001,
                                        "connections": 1, "memory, MB": 0.02, "heartbeats, messages/s": 28, "heartbeats, CPU": 0.0003,
                                        "failure known to all, s": 0.00002}.items()),
                ROWS[0],
            ],
            "collectives": [
                *({"case": f"all_reduce: {size} bytes, {ranks} ranks; peer: {peer}", "metric": "microseconds", "ours": 0.00321 * size, "peer": 1.5 * size, "ratio": 3.0}
                  for ranks in (2, 4) for size in (4, 65536, 8388608) for peer in ("Python's gloo", "openmpi", "copy")),
            ],
        }  # fmt: skip
        expected = {
            "imagenet": ["| one epoch: resnet18, 64 images of 64 pixels | ddprun, s | Python, s |", "| Horovod's way | 1.25 | 2.50 |", "| bf16, O1 | 59.8 % | 60.2 % |"],
            "rendezvous": ["| 100 | 0.10 (0.05) | 0.20 (0.10) | 2 | 2,800 (0.03) | 0.00 |", "| 1,000 | 1 (0.50) | 2 (1) | 20 | 28,000 (0.30) | 0.02 |", "| a thing: ms | 1.25 |"],
            "collectives": ["| ranks | float32 | ddprun, shared memory, µs | Python's gloo, µs | Open MPI, µs | copy of as many bytes, µs |",
                            "| 4 | 4 B | 0.0128 | 6 | 6 | 6 |", "| 4 | 64 KiB | 210 | 98,304 | 98,304 | 98,304 |"],
        }  # fmt: skip
        for name, found in rows.items():
            with self.subTest(benchmark=name), tempfile.TemporaryDirectory() as folder:
                docs = pathlib.Path(folder)
                (docs / "page.md").write_text(f"before\n<!-- benchmark {name} -->\nold\n<!-- end -->\nafter\n")
                bench.record(name, found, docs)
                text = (docs / "page.md").read_text()
                for line in expected[name]:
                    self.assertIn(line, text)
                (picture,) = docs.glob("*.svg")
                self.assertGreater(len(xml.dom.minidom.parse(str(picture)).getElementsByTagName("rect")), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
