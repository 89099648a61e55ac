"""What run.py relies on: descriptions depend on their seed alone, and no difference is passed over. Standard library only."""

import json
import pathlib
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compare import first_difference  # noqa: E402
from draw import MODELS, UNUSUAL, draw  # noqa: E402
import known  # noqa: E402
from shrink import shrunk  # noqa: E402

CASE = {"ranks": 1, "hops": None, "optimizer": {"zero": False}}


def record(name, *values, dtype="float32"):
    content = struct.pack(f"<{len(values)}{'f' if dtype == 'float32' else 'd'}", *values)
    return f"{name}|{dtype}|{len(values)}|{len(content)}\n".encode() + content


class Compare(unittest.TestCase):
    def found(self, python, cpp, tolerance=0):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "python.-1.rank0").write_bytes(b"".join(python))
            (folder / "cpp.-1.rank0").write_bytes(b"".join(cpp))
            found = first_difference(CASE, folder, tolerance)
            return found and found.name

    def test_every_difference_is_found_and_the_first_is_named(self):
        a, b = record("a", 1.0, 2.0), record("b", 3.0)
        self.assertIsNone(self.found([a, b], [b, a]))
        self.assertEqual(self.found([a, b], [a]), "b")
        self.assertEqual(self.found([a], [a, b]), "b")
        self.assertEqual(self.found([a, b], [record("a", 1.0, 2.0000002), record("b", 9.0)]), "a")
        self.assertEqual(self.found([record("a", 0.0)], [record("a", -0.0)]), "a")
        self.assertEqual(self.found([record("a", 1.0)], [record("a", 1.0, dtype="float64")]), "a")
        self.assertEqual(self.found([record("a", 1.0)], [b"a|none||0\n"]), "a")
        self.assertEqual(self.found([record("a", 1.0)], [record("a", float("nan"))]), "a")
        self.assertIsNone(self.found([record("a", float("nan"))], [record("a", float("nan"))]))

    def test_a_tolerance_passes_over_nothing_larger(self):
        self.assertIsNone(self.found([record("a", 1.0)], [record("a", 1.001)], 2e-3))
        self.assertEqual(self.found([record("a", 1.0)], [record("a", 1.01)], 2e-3), "a")
        self.assertEqual(self.found([record("a", 1.0)], [record("a", float("nan"))], 2e-3), "a")
        self.assertEqual(self.found([record("a", 1.0)], [record("a", float("inf"))], 2e-3), "a")


class Draw(unittest.TestCase):
    def test_a_seed_always_gives_the_same_description(self):
        for seed in range(300):
            for unusual in (False, True):
                self.assertEqual(json.dumps(draw(seed, unusual)), json.dumps(draw(seed, unusual)))
            self.assertEqual(json.dumps(draw(seed, combined=True)), json.dumps(draw(seed, combined=True)))
            self.assertIn('"region"', json.dumps([draw(seed + other, recompute=True) for other in range(20)]))

    def test_everything_is_drawn_and_most_of_it_is_judged_by_every_bit(self):
        cases = [draw(seed) for seed in range(2000)]
        self.assertEqual({case["kind"] for case in cases}, set(MODELS))
        self.assertEqual({draw(seed, True)["unusual"] for seed in range(300)}, set(UNUSUAL))
        for part in ("hops", "join", "hook", "scaler", "autocast", "clip", "schedule", "ema"):
            self.assertGreater(sum(bool(case[part]) for case in cases), 40, part)
        self.assertGreater(sum(not known.near(case) for case in cases), 1400)

    def test_a_gradient_of_0_is_not_divided_by_itself_where_values_are_judged(self):
        cases = [case for case in (draw(seed, True) for seed in range(3000)) if known.is_computed(case)]
        normed = [case for case in cases if '"batch_norm' in json.dumps(case["layers"])]
        self.assertGreater(len(normed), 100)
        self.assertEqual({case["optimizer"]["name"] for case in normed}, {"SGD"})
        self.assertGreater(len({case["optimizer"]["name"] for case in cases}), 5)

    def test_combined_programs_have_what_they_are_named_for(self):
        cases = [draw(seed, combined=True) for seed in range(600)]
        self.assertGreater(sum('"region"' in json.dumps(case["layers"]) for case in cases), 400)
        for part in ("freeze", "parameter_hooks", "hook", "unusual"):
            self.assertGreater(sum(bool(case[part]) for case in cases), 50, part)
        self.assertGreater(sum(bool(case["hook"] and case["unusual"]) for case in cases), 15)
        self.assertGreater(sum('"save": ["' in json.dumps(case["layers"]) for case in cases), 200)

    def test_shrinking_keeps_what_fails_and_drops_the_rest(self):
        case = next(case for case in map(draw, range(1000)) if case["clip"] and case["schedule"] and case["ranks"] == 3)
        smaller, what = shrunk(case, "differs", lambda other: "differs" if other["clip"] else "equal", lambda other: other == "differs", 600)
        self.assertEqual((what, bool(smaller["clip"]), smaller["schedule"], smaller["ranks"]), ("differs", True, None, 1))


if __name__ == "__main__":
    unittest.main()
