"""Each public class, function, option and type has a comment that says what it is, so that no entry of the API reference is empty."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["PROJECT_SOURCE"])
WORK = pathlib.Path(os.environ["WORK"])


def api_pages(include: pathlib.Path):
    """Makes the API reference of these headers, as scripts/docs does."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    settings = (SOURCE / "docs/site/Doxyfile").read_text()
    (WORK / "Doxyfile").write_text(f'{settings}\nINPUT = "{include}/ddprun"\nOUTPUT_DIRECTORY = "{WORK}"\n')
    subprocess.run(["doxygen", WORK / "Doxyfile"], stdin=subprocess.DEVNULL, check=True)
    command = [sys.executable, "-B", SOURCE / "docs/site/api_pages.py", WORK / "xml", include, WORK / "api"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


class Docstrings(unittest.TestCase):
    def test_nothing_public_is_without_one(self):
        result = api_pages(SOURCE / "include")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertGreater(len(list((WORK / "api").rglob("*.rst"))), 50)

    def test_what_lacks_one_is_named(self):
        include = WORK.with_name(WORK.name + "_include")
        header = include / "ddprun/some/header.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(
            "// Lead.\n#pragma once\nnamespace ddp {\n"
            "int forgotten();\n"
            "/// A class.\nclass Known {\n public:\n  Known(Known&& other) noexcept;\n  Known& operator=(const Known&);\n  Known(const char* text);\n"
            "  int option = 0;\n  int other = 0;  ///< documented\n\n private:\n  int hidden_ = 0;\n};\n"
            "namespace detail {\nint internal();\n}  // namespace detail\n}  // namespace ddp\n")  # fmt: skip
        result = api_pages(include)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual([line.rpartition(": ")[2] for line in result.stdout.splitlines()], ["int forgotten()", "Known(const char *text)", "int option = 0"])


if __name__ == "__main__":
    if shutil.which("doxygen") is None:
        print("skipped: doxygen is not installed")
        sys.exit(77)
    unittest.main(verbosity=2)
