"""`ddprun-timeline --what-if` from the command line to its tables: what docs/guide-allreduce.md shows is what it prints for the recording
in this folder (`what_if_test.py --write` writes it), and what cannot be used is refused."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parents[1] / "docs/guide-allreduce.md"
TOOL = os.environ["TIMELINE_TOOL"]
RECORDING = HERE / "resnet18.json"
STEPS = 9  # the recording has so many steps with a complete one before them
BLOCK = re.compile(r"(?<=^\$ ddprun-timeline trace\.json --what-if )(\S+)\n(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)


def run(*words):
    return subprocess.run([TOOL, *map(str, words)], capture_output=True, text=True, timeout=60)


def table_for_page(match):
    shown = run(RECORDING, "--what-if", match[1])
    if shown.returncode != 0:
        raise SystemExit(shown.stderr)
    return match[1] + "\n" + "".join(line.rstrip() + "\n" for line in shown.stdout.splitlines())


class WhatIf(unittest.TestCase):
    def refused(self, status, text, *words):
        done = run(*words)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertIn(text, done.stderr)

    def test_the_page_shows_what_it_prints(self):
        page = PAGE.read_text()
        self.assertEqual(len(BLOCK.findall(page)), 1)
        self.assertEqual(BLOCK.sub(table_for_page, page), page, "write it by what_if_test.py --write")

    def test_json_has_the_curve_and_the_prediction_for_what_was_recorded_is_near_it(self):
        done = run(RECORDING, "--json", "--what-if", "ranks=2,hosts=1,bandwidth=1GB,latency=20us")
        forecast = json.loads(done.stdout)
        self.assertEqual((forecast["recorded"]["ranks"], forecast["recorded"]["steps"]), (2, STEPS))
        self.assertEqual([each["ranks"] for each in forecast["curve"]], [2**power for power in range(11)])
        efficiencies = [each["efficiency"] for each in forecast["curve"]]
        self.assertEqual(efficiencies[0], 1)
        self.assertEqual(efficiencies, sorted(efficiencies, reverse=True))
        for each in forecast["curve"]:
            self.assertAlmostEqual(each["step_ms"], each["computing_ms"] + each["exposed_ms"])
        self.assertEqual(sum(forecast["recorded"]["bucket_bytes"]), 4 * 11_181_642)  # parameters of a ResNet-18 with 10 classes
        self.assertLess(abs(forecast["predicted"]["step_ms"] / forecast["recorded"]["step_ms"] - 1), 0.15)
        self.assertLessEqual(forecast["best_bucket_size"]["step_ms"], 1.001 * min(each["step_ms"] for each in forecast["bucket_sizes"]))

    def test_what_is_called_best_is_not_slower_than_what_was_recorded(self):
        found = set()
        for ranks, hosts in ((2, 2), (8, 1), (64, 8), (1024, 128)):
            for bandwidth in ("100Mbit", "10Gbit", "400Gbit"):
                for latency in ("1us", "20us", "1ms"):
                    what_if = f"ranks={ranks},hosts={hosts},bandwidth={bandwidth},latency={latency}"
                    with self.subTest(what_if):
                        forecast = json.loads(run(RECORDING, "--json", "--what-if", what_if).stdout)
                        text = run(RECORDING, "--what-if", what_if).stdout
                        recorded, best = forecast["predicted"]["step_ms"], forecast["best_bucket_size"]
                        least = min(each["step_ms"] for each in forecast["bucket_sizes"])
                        self.assertLessEqual(best["step_ms"], recorded)
                        self.assertLessEqual(best["step_ms"], 1.001 * least)
                        self.assertEqual(best["recorded"], recorded <= 1.001 * least)
                        self.assertEqual("the recorded buckets would be best" in text, best["recorded"])
                        self.assertEqual(best["bytes"] is None, best["recorded"])
                        found.add(best["recorded"])
        self.assertEqual(found, {False, True})

    def test_a_wrong_option_is_misuse(self):
        good = "ranks=8,bandwidth=1Gbit,latency=5us"
        self.refused(2, '--what-if: bandwidth: expected a number with kbit, Mbit, Gbit, Tbit, kB, MB or GB, in 1kbit .. 1000Tbit, got "1"',
                     RECORDING, "--what-if", "ranks=8,bandwidth=1,latency=5us")
        self.refused(2, "expected a value for latency", RECORDING, "--what-if", "ranks=8,bandwidth=1Gbit")
        self.refused(2, "--svg excludes --what-if", RECORDING, "--svg", "x.svg", "--what-if", good)
        self.refused(2, "--what-if: expected KEY=VALUE", RECORDING, "--what-if", "")

    def test_a_file_of_which_nothing_can_be_predicted_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "trace.json"
            good = "ranks=8,bandwidth=1Gbit,latency=5us"
            for text in ("", "{}", "[" * 100_000, RECORDING.read_text()[:200]):
                file.write_text(text)
                self.refused(1, str(file), file, "--what-if", good)
            without = json.loads(RECORDING.read_text())
            without["traceEvents"] = [event for event in without["traceEvents"] if event.get("cat") != "bucket"]
            file.write_text(json.dumps(without))
            self.refused(1, f"{file}: no prediction is possible: expected at least two consecutive steps", file, "--what-if", good)

    def test_the_steps_of_one_rank_are_not_enough(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "trace.json"
            one = json.loads(RECORDING.read_text())
            one["traceEvents"] = [event for event in one["traceEvents"] if event["pid"] == 1]
            file.write_text(json.dumps(one))
            for option in ([], ["--json"]):
                self.refused(1, f"{file}: no prediction is possible: expected complete steps of at least two ranks, got those of rank 1 only",
                             file, *option, "--what-if", "ranks=8,bandwidth=1Gbit,latency=5us")

    def test_what_was_cut_off_is_predicted_from_as_far_as_it_goes(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "trace.json"
            text = RECORDING.read_text()
            file.write_text(text[: len(text) * 2 // 3])
            done = run(file, "--what-if", "ranks=8,bandwidth=1Gbit,latency=5us")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"\n  1024 +1024 ")
            self.assertTrue(done.stdout.splitlines()[0].endswith("; the end is cut off"), done.stdout)
            self.assertIn("; the end is cut off\n", run(file).stdout)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(BLOCK.sub(table_for_page, PAGE.read_text()))
    else:
        unittest.main(verbosity=2)
