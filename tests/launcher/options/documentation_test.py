"""docs/launcher.md has every option that --help lists, and no other."""

import pathlib
import re

from harness import LauncherTest, main

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "launcher.md"


class Documentation(LauncherTest):
    def test_the_page_and_the_help_list_the_same_options(self):
        status, text, _ = self.run_job("--help")
        self.assertEqual(status, 0)
        helped = {name for line in text.splitlines() if re.match(r"  -", line)
                  for name in re.findall(r"--(\w+)", line.split("  [")[0])}
        cells = [line.split(" | ")[0] for line in PAGE.read_text(encoding="utf-8").splitlines()
                 if re.match(r"\| `-", line)]
        documented = {name for cell in cells for name in re.findall(r"--(\w+)", cell)}
        self.assertGreater(len(helped), 40)
        self.assertEqual(documented, helped)

    def test_each_option_names_its_default_and_its_variable(self):
        _, text, _ = self.run_job("--help")
        lines = text.split("\nInformation\n")[0].splitlines()
        for line, following in zip(lines, lines[1:]):
            if not re.match(r"  -", line):
                continue
            name = re.search(r"--(\w+)", line)[1]
            shown = line if "  [" in line else following  # a long one has the next line for it
            self.assertRegex(shown, r"  \[.+\]  PET_" + name.upper() + "$")

    def test_the_help_fits_a_terminal_of_80_columns(self):
        _, text, _ = self.run_job("--help")
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])


if __name__ == "__main__":
    main()
