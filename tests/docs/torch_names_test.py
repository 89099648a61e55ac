"""torch/<version>.json says which names and parameters each supported PyTorch has, torch/answers.json what serves each of them: a name of
the library, one of LibTorch's, or a reason why nothing does, which docs/not-here.md shows.

    torch_names_test.py            runs the test
    torch_names_test.py --write    writes the tables of docs/not-here.md

After a new release: tools/torch_interface.py library FOLDER --write tests/docs/torch/VERSION.json."""

import fnmatch
import functools
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent / "torch"
SOURCE = FOLDER.parents[2]
TOOL = SOURCE / "tools/torch_interface.py"
PAGE = SOURCE / "docs/not-here.md"
TABLES_OF_PAGE = re.compile(r"(?<=<!-- names: torch -->\n).*?(?=<!-- end -->)", re.DOTALL)
CACHE = os.environ.get("DDPRUN_CACHE") or os.path.expanduser("~/.cache/ddprun")
ANSWERS = json.loads((FOLDER / "answers.json").read_text())
TABLES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("[0-9]*.json"))}
# The headers of LibTorch that have the names of the answers.
LIBTORCH = ("torch/csrc/api/include/**/*.h", "torch/csrc/distributed/c10d/*.h*", "torch/csrc/cuda/comm.h", "ATen/autocast_mode.h", "c10/util/Exception.h")

sys.path.insert(0, str(SOURCE / "tools"))
from declared_names import Declarations  # noqa: E402


def installations():
    """The version and the package `torch` of each one in the cache folder."""
    for version in TABLES:
        for package in glob.glob(f"{CACHE}/venv-{version}/lib/python3*/site-packages/torch"):
            yield version, pathlib.Path(package)


@functools.cache
def belongs(place, pattern):
    return fnmatch.fnmatchcase(place, pattern)


def answered(answers, place):
    """The names with an answer, of the place itself or of all that are named as it is, such as torch.optim.*()."""
    found = []
    for pattern, part in answers.items():
        if belongs(place, pattern):
            found += [*part.get("here", {}), *(name for row in part.get("not here", []) for name in row["names"])]
    return found


def unanswered(table, answers):
    """What a version offers and nobody has answered."""
    return [f"{place} {name}" for place, names in table.items() for name in set(names).difference(answered(answers, place))]


def unknown(answers, declared, is_ours):
    """The answers that name what is not declared."""
    names = [(f"{place} {name}", serves) for place, part in answers.items() for name, serves in part.get("here", {}).items()]
    return [f"{name}: {serves}" for name, serves in names if serves.startswith("ddp::") == is_ours and not declared.has(serves)]


def tables_of_page(answers):
    """What is not here: a table of names, then one of parameters."""
    rows = {False: [], True: []}
    for place, part in answers.items():
        for row in part.get("not here", []):
            names = ", ".join(f"`{name}`" for name in row["names"])
            rows[place.endswith("()")].append(f"| `{place}` | {names} | {row['reason']} |\n")
    heading = "| {} | not here | instead, or why |\n|---|---|---|\n"
    return heading.format("module") + "".join(rows[False]) + "\n" + heading.format("function or class") + "".join(rows[True])


def without(answers, place, name):
    """The answers without that to one name."""
    fewer = {}
    for pattern, part in answers.items():
        if belongs(place, pattern):
            rows = [{**row, "names": [each for each in row["names"] if each != name]} for row in part.get("not here", [])]
            part = {"here": {each: serves for each, serves in part.get("here", {}).items() if each != name}, "not here": rows}
        fewer[pattern] = part
    return fewer


class TorchNames(unittest.TestCase):
    def test_the_tables_are_those_of_the_supported_versions(self):
        source = (TOOL.parent / "torch_versions.py").read_text()
        self.assertEqual(set(TABLES), set(re.findall(r'"([\d.]+)"', re.search(r"VERSIONS = \[.*\]", source)[0])))

    def test_an_installed_torch_offers_what_its_table_says(self):
        for version, package in installations():
            read = subprocess.run([sys.executable, "-B", TOOL, "library", package], stdout=subprocess.PIPE, text=True, check=True)
            self.assertEqual(json.loads(read.stdout), TABLES[version], version)

    def test_every_name_of_every_version_has_one_answer(self):
        for version, table in TABLES.items():
            self.assertEqual(unanswered(table, ANSWERS), [], version)
        offered = {}
        for table in TABLES.values():
            for place, names in table.items():
                offered.setdefault(place, set()).update(names)
        for place, part in ANSWERS.items():
            of_all = set().union(*(names for each, names in offered.items() if belongs(each, place)))
            self.assertEqual(set(answered({place: part}, place)) - of_all, set(), f"{place}: in no version")
        for place, names in offered.items():
            given = [name for name in answered(ANSWERS, place) if name in names]
            self.assertEqual(sorted(given), sorted(names), f"{place}: answered twice")

    def test_an_answer_that_is_taken_away_is_missed(self):
        newest = TABLES[max(TABLES, key=lambda version: [int(part) for part in version.split(".")])]
        for place, names in newest.items():
            for name in names:
                missing = unanswered(newest, without(ANSWERS, place, name))
                self.assertIn(f"{place} {name}", missing)
                self.assertEqual({each.rpartition(" ")[2] for each in missing}, {name})

    def test_the_names_of_the_library_exist(self):
        declared = Declarations(sorted((SOURCE / "include/ddprun").rglob("*.h")))
        self.assertEqual(unknown(ANSWERS, declared, is_ours=True), [])
        self.assertTrue(declared.has("ddp::optim::AdamOptions::betas"))  # of a base
        for wrong in ("ddp::Nothing", "ddp::optim::all_reduce", "ddp::DdpOptions::replacement", "ddp::optim::SGDOptions::betas", "ddp::AdamW"):
            answers = {"torch.optim": {"here": {"SGD": wrong}}}
            self.assertEqual(unknown(answers, declared, is_ours=True), [f"torch.optim SGD: {wrong}"])

    def test_the_names_of_libtorch_exist(self):
        for version, package in installations():
            declared = Declarations(file for pattern in LIBTORCH for file in sorted((package / "include").glob(pattern)))
            self.assertEqual(unknown(ANSWERS, declared, is_ours=False), [], version)
            answers = {"torch.optim": {"here": {"NAdam": "torch::optim::NAdam"}}}
            self.assertEqual(unknown(answers, declared, is_ours=False), ["torch.optim NAdam: torch::optim::NAdam"])

    def test_the_page_says_what_is_not_here(self):
        for part in ANSWERS.values():
            for row in part.get("not here", []):
                self.assertRegex(row["reason"], r"^\S.*\.$")
        self.assertEqual(TABLES_OF_PAGE.search(PAGE.read_text())[0], tables_of_page(ANSWERS), "renew it: torch_names_test.py --write")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(TABLES_OF_PAGE.sub(lambda _: tables_of_page(ANSWERS), PAGE.read_text()))
        sys.exit(0)
    unittest.main(verbosity=2)
