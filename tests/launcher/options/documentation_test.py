"""What docs/ says of ddprun's options is what ddprun says: the tables are its own, and no default is repeated beside them.

    DDPRUN=build/release/bin/ddprun PYTHONPATH=tests/launcher python3 -B tests/launcher/options/documentation_test.py --write     # writes the tables
"""

import pathlib
import re
import subprocess
import sys

from harness import DDPRUN, LauncherTest, main

SOURCE = pathlib.Path(__file__).resolve().parents[3]
PAGES = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").glob("*.md"))]
# Of others, of an example, or of a time of its own (tests/docs/constants.txt has these).
OTHERS = ("30 s between TERM and KILL", "`terminationGracePeriodSeconds` (30)", "port 29500 of host a", "look for it for 10 s", "an interruption of 10 s")
REGION = re.compile(r"(?<=<!-- of ddprun --generate )(\S+) -->\n(.*?)(?=<!-- end -->\n)", re.DOTALL)


def generated(kind):
    return subprocess.run([DDPRUN, "--generate", kind], capture_output=True, text=True, check=True, timeout=60).stdout


def write():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        made = REGION.sub(lambda region: f"{region[1]} -->\n{generated(region[1])}", text)
        if made != text:
            page.write_text(made, encoding="utf-8")


def sentences(text):
    """Those of prose, rows and comments, each on one line; without what ddprun has made and what is a program's output."""
    for other in OTHERS:
        text = text.replace(other, "")
    text = re.sub(r"^```.*?^```|^    .*?$", "", REGION.sub("", text), flags=re.DOTALL | re.MULTILINE)
    return [" ".join(sentence.split()) for sentence in re.split(r"(?<=[.;])\s|\n\n|\n(?=[|-])", text)]


def repeated(text, defaults):
    """The sentences that name an option and its default."""
    found = []
    for sentence in sentences(text):
        for name, default in defaults.items():
            bare = sentence.replace("--" + name, "")
            if bare != sentence and re.search(rf"(?<![\w.:{{-]){re.escape(default)}(?![\w:.]\w|\w|\}})", bare):
                found.append((name, default, sentence))
    return found


class Documentation(LauncherTest):
    def help_text(self):
        status, text, _ = self.run_job("--help")
        self.assertEqual(status, 0)
        return text

    def defaults(self):
        """Those that are a number above 1 or an address: nobody writes them by chance."""
        rows = re.findall(r"^\| (`-.*?`) \| (.*?) \|", generated("options"), re.MULTILINE)
        return {name: figures for names, default in rows for figures in re.findall(r"\d[\d.]+|[2-9]", default)
                for name in re.findall(r"--(\w+)", names)}

    def test_the_tables_are_those_that_ddprun_goes_by(self):
        """What each row of coming-from.md does is in foreign_options_test.cpp."""
        seen = []
        for page in PAGES:
            for kind, text in REGION.findall(page.read_text(encoding="utf-8")):
                self.assertEqual(text, generated(kind), f"{page}: write it with documentation_test.py --write")
                seen.append(kind)
        self.assertEqual(sorted(seen), ["coming-from", "exit-statuses", "options", "variables"])

    def test_the_table_has_every_option_of_the_help(self):
        helped = {name for line in self.help_text().splitlines() if re.match(r"  -", line)
                  for name in re.findall(r"--(\w+)", line.split("  [")[0])}
        cells = [line.split(" | ")[0] for line in generated("options").splitlines() if re.match(r"\| `-", line)]
        self.assertGreater(len(helped), 40)
        self.assertEqual({name for cell in cells for name in re.findall(r"--(\w+)", cell)}, helped)

    def test_no_page_repeats_a_default(self):
        defaults = self.defaults()
        self.assertLessEqual({"grace", "hang_timeout", "node_timeout", "ssh_fanout", "master_port"}, set(defaults))
        for page in PAGES:
            if page.name in ("CHANGELOG.md", "messages.md"):
                continue
            self.assertEqual(repeated(page.read_text(encoding="utf-8"), defaults), [], f"{page}: name the option alone")

    def test_no_comment_repeats_a_default(self):
        defaults = self.defaults()
        for source in sorted((SOURCE / "launcher").rglob("*.[hc]*")):
            comments = "\n\n".join(re.findall(r"//(.*)", source.read_text(encoding="utf-8")))
            self.assertEqual(repeated(comments, defaults), [], source)
        options = (SOURCE / "launcher/plan/options.h").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"//.*\b(?:[2-9]|\d\d+)\b.*", options), [], "a default stands in a member's initialiser alone")

    def test_a_default_that_is_repeated_is_seen(self):
        defaults = {"grace": "30", "master_addr": "127.0.0.1"}
        for text in ("It is killed after `--grace` (30 s).", "| 30 s | `--grace SECONDS` |\n", "Of --grace: 30.", "`--master_addr`, else 127.0.0.1, is"):
            self.assertEqual(len(repeated(text, defaults)), 1, text)
        for text in ("`--grace` is a time. It may be 30 s.", "`--grace 300`", "```\n--grace 30\n```", "    --grace 30"):
            self.assertEqual(repeated(text, defaults), [], text)

    def test_each_option_names_its_default_and_its_variable(self):
        lines = self.help_text().split("\nInformation\n")[0].splitlines()
        for line, following in zip(lines, lines[1:]):
            if not re.match(r"  -", line):
                continue
            name = re.search(r"--(\w+)", line)[1]
            shown = line if "  [" in line else following  # a long one has the next line for it
            self.assertRegex(shown, r"  \[.+\]  PET_" + name.upper() + "$")

    def test_the_help_fits_a_terminal_of_80_columns(self):
        self.assertEqual([line for line in self.help_text().splitlines() if len(line) > 80], [])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        main()
