"""No measured figure is written into a page by hand. What has been measured stands in tables that scripts write, between
`<!-- ... -->` and `<!-- end -->`, in console blocks and on pages that are written whole. Every other number with a unit of time, size
or rate, and every ratio, is a setting: constants.txt says which, and which source has it."""

import os
import pathlib
import re
import unittest

SOURCE = pathlib.Path(os.environ["PROJECT_SOURCE"])
LIST = SOURCE / "tests/docs/constants.txt"
# Written whole by scripts/gallery, tools/torch_versions.py and scripts/test --gpu.
GENERATED = {"gallery.md": "scripts/gallery", "versions.md": "tools/torch_versions.py", "cuda-status.md": "scripts/test --gpu"}
BLOCKS = (r"^```.*?^```", r"^<!-- (?:benchmark|figures:|of ddprun --generate) \S+ -->$.*?^<!-- end -->$", r"^    .*?$")
COUNTED = r"(?:two|three|four|five|six|seven|eight|nine|ten|\d[\d.,]*)"
PART = r"(?:half|(?:a|one|two|three|nine) (?:third|quarter|fifth|sixth|seventh|eighth|ninth|tenth|hundredth|thousandth)s?)"
MEASURES = re.compile(
    r"(?<![\w.:/+-])\d[\d,.]*(?:[ -]?)"
    r"(?:ns|us|µs|ms|s|min|minutes?|hours?|seconds?|days?|bytes?|[kKMGT]i?B|%|×|[MG]bit/s|\w+/s|(?:times )?(?:a|per) second|cores?|instructions)(?![\w/])"
    r"|\b(?:half|some|about|nearly|" + COUNTED + r") (?:a )?(?:seconds|milliseconds|microseconds|minutes|hours|[MG]i?B)\b"
    rf"|\b{COUNTED} times (?:as|the|faster|slower|longer|more|less|that|within|what)\b"
    rf"|\b{PART} (?:of|the|as|a second)\b"
    r"|\b(?:thousand|million)s? (?:of )?(?:instructions|cycles|messages)\b"
)  # fmt: skip


def without_generated(text: str) -> str:
    for block in BLOCKS:
        text = re.sub(block, "¶", text, flags=re.DOTALL | re.MULTILINE)
    return " ".join(text.split())


def constants() -> list[tuple[str, str, str]]:
    """(page, words, source) of each line."""
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    return [tuple(part.strip() for part in line.split(" | ", 2)) for line in lines]


def by_hand(text: str, words: list[str]) -> list[str]:
    """The measures of a page that are in none of these words, with what stands around them."""
    text = without_generated(text)
    said = [(found.start(), found.end()) for each in words for found in re.finditer(re.escape(each), text)]
    hits = [hit for hit in MEASURES.finditer(text) if not any(begin <= hit.start() and hit.end() <= end for begin, end in said)]
    return [text[max(0, hit.start() - 50) : hit.end() + 30] for hit in hits]


def pages() -> dict[str, str]:
    files = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").glob("*.md"))]
    return {file.name: file.read_text() for file in files}


class Measured(unittest.TestCase):
    def test_no_page_has_a_figure_that_no_script_wrote(self):
        known = constants()
        for page, text in pages().items():
            if page in GENERATED:
                self.assertIn(f"`{GENERATED[page]}`", text, f"{page} does not say who writes it")
                continue
            words = [words for of, words, _ in known if of == page]
            for place in by_hand(text, words):
                with self.subTest(page=page):
                    self.fail(f"{page}: '... {place} ...': if it was measured, let a script write it (scripts/bench NAME --record, scripts/figures); "
                              "if it is a setting, tests/docs/constants.txt says so")  # fmt: skip

    def test_what_is_said_to_be_a_setting_stands_in_the_source(self):
        texts = {page: without_generated(text) for page, text in pages().items()}
        for page, words, source in constants():
            with self.subTest(page=page, words=words):
                self.assertIn(words, texts[page], "no longer on the page")
                self.assertRegex(words, MEASURES)
                if source.startswith(("arithmetic", "upstream", "example", "case")):
                    continue
                file, _, text = source.partition(": ")
                self.assertIn(text, " ".join((SOURCE / file).read_text().split()), f"{file} has it no more")

    def test_figures_by_hand_are_seen(self):
        for text in ("It takes 25 ms.", "uses 1.5 GB", "is 12 % slower", "three times as fast", "It halves: a third of its time", "about two seconds",
                     "300 MB/s here", "9.3 MB)", "14 times a second", "a thousand instructions", "2,800 messages/s", "| 0.91 s |", "some 70 µs", "of 3.5×"):  # fmt: skip
            self.assertTrue(by_hand(f"before\n{text}\n", []), text)
        for text in ("```console\n$ run\n25 ms\n```", "<!-- benchmark loader -->\n| 25 ms |\n<!-- end -->", "    25 ms", "--steps 100:120", "2 ranks", "version 2.11"):
            self.assertFalse(by_hand(f"before\n{text}\n", []), text)
        self.assertFalse(by_hand("waits for 5 s\nat most", ["for 5 s at most"]))
        self.assertTrue(by_hand("takes 5 s, and waits for 5 s", ["waits for 5 s"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
