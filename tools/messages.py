#!/usr/bin/env python3
"""docs/messages.md lists each text that library and launcher print, under what it means and what to do.

    messages.py [--root PROJECT]                 says what the page lacks; the exit status is 1 then
    messages.py [--root PROJECT] --write         brings its lists up to date
    messages.py [--root PROJECT] --find TEXT     prints the sections that know a message

A section names its sources in a comment, `<!-- from comm/core/init_method.cpp launcher/plan/* -->`, and the list of their messages
follows, which this program writes. Of several sections that match a source the one with the longest pattern has it. A source that
none has is an error, and so is a pattern without a message: somebody has to say what the message means.
"""

import argparse
import fnmatch
import pathlib
import re
import sys
import textwrap

from cpp_messages import messages

FOLDERS = ("base", "comm", "ddp", "horovod", "samplers", "data", "metrics", "nn", "training", "monitor", "syncbn", "optim", "schedules", "amp",
           "checkpoint", "timeline", "include", "launcher", "examples")  # fmt: skip
# What is read by nobody who looks for a message, by source.
NO_MESSAGES = {
    "launcher/options/declare_*.cpp": "what --help says of each option",
    "launcher/options/foreign_options.cpp": "the tables of docs/coming-from.md",
    "launcher/options/foreign_mpirun.cpp": "the same, whose texts stand there",
    "launcher/options/foreign_horovodrun.cpp": "the same",
    "launcher/options/foreign_srun.cpp": "the same",
    "launcher/options/help.cpp": "what --help says around it",
    "launcher/options/help_of_words.cpp": "the same, of status, top and timeline",
    "launcher/options/subcommands.cpp": "the same",
    "launcher/options/command_line.cpp": "the same",
    "launcher/options/manual_*.cpp": "the manual page",
    "launcher/options/*_completion.cpp": "programs for shells",
    "launcher/options/script_text.h": "the same",
    "launcher/observe/watch/open_metrics.cpp": "the names and units of metrics",
    "launcher/nodes/elastic/http_request.cpp": "what etcd is asked",
    "include/ddprun/training/command_line.h": "what --help of a user's program says",
    "include/ddprun/base/number_ranges.h": "what CLI11 says of an option of a user's program",
    "monitor/curves/svg.cpp": "parts of a picture",
}
# Texts that are printed to nobody, by their words: protocols, programs for a shell, formats of files.
NO_MESSAGE = re.compile(r"HTTP/1\.1|\"extraInfo\"|exec /bin/sh|\[ -x |import importlib|\"format\":|<rect |charset=|\\x8[0a]")
# What --help of an example says, among its messages.
HELP_OF_EXAMPLE = re.compile(r"^void declare\(.*?^}|CLI::App app\(.*?;", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[A-Za-z][A-Za-z']+")
SECTION = re.compile(r"^## (?P<title>.*?)\n(?P<text>.*?)^<!-- from (?P<patterns>[^>]*?) -->\n(?P<list>(?:```text\n.*?^```\n)?)", re.DOTALL | re.MULTILINE)
WIDTH = 150


def is_message(text: str) -> bool:
    """Two words or more: less is a part of something else, or a name."""
    return len(WORD.findall(text)) >= 2 and re.search(r"\S\s+\S", text) is not None and not NO_MESSAGE.search(text)


def matches(name: str, patterns) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def collect(root: pathlib.Path) -> dict[str, list[str]]:
    """The messages of each source."""
    found = {}
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            name = file.relative_to(root).as_posix()
            if file.suffix in (".h", ".cpp") and not matches(name, NO_MESSAGES):
                source = HELP_OF_EXAMPLE.sub("", file.read_text()) if folder == "examples" else file.read_text()
                texts = [" ".join(text.split()) for text in messages(source) if is_message(text)]
                if texts:
                    found[name] = list(dict.fromkeys(texts))
    return found


def assign(found, sections, say) -> dict[str, list[str]]:
    """The messages of each section, in the order of its patterns."""
    owners = [(len(pattern), pattern, title) for title, patterns in sections.items() for pattern in patterns]
    by_section = {title: {} for title in sections}
    used = set()
    for name, texts in found.items():
        fitting = sorted(owner for owner in owners if fnmatch.fnmatchcase(name, owner[1]))
        if not fitting:
            say(f"{name} has messages, and no section of docs/messages.md names it: {texts[0]!r}")
            continue
        _, pattern, title = fitting[-1]
        used.add(pattern)
        by_section[title].update(dict.fromkeys(texts))
    for title, patterns in sections.items():
        for pattern in patterns:
            if pattern not in used:
                say(f"docs/messages.md, {title!r}: no source with a message is {pattern}")
    return {title: list(texts) for title, texts in by_section.items()}


def listing(texts) -> str:
    lines = "".join(textwrap.fill(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False) + "\n" for text in texts)
    return f"```text\n{lines}```\n"


def pattern_of(text: str) -> re.Pattern:
    """What fits a message as it was printed."""
    return re.compile(".*?".join(re.escape(part.strip()) for part in text.split("…") if part.strip()), re.DOTALL)


def says_enough(text: str) -> bool:
    """Not `… of …`, which fits everything."""
    return max(len(part.strip()) for part in text.split("…")) >= 8


def fits(line: str, text: str) -> bool:
    """`text` may be a message with all around it, or a piece of one; where `line` has … it may have anything."""
    if text.lower() in line.lower() or (says_enough(line) and pattern_of(line).search(text)):
        return True
    parts = [part.strip() for part in line.split("…") if len(part.strip()) >= 16]
    return any(part in text for part in parts)


def find(text: str, page: str) -> bool:
    text, found = " ".join(text.split()), False
    for match in SECTION.finditer(page):
        known = re.sub(r"\n    ", " ", match["list"]).splitlines()[1:-1]
        hits = [line for line in known if fits(line, text)]
        if hits:
            print(f"{match['title']}\n{match['text'].rstrip()}\n\n" + "".join(f"    {line}\n" for line in hits))
            found = True
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--find", metavar="TEXT")
    args = parser.parse_args()
    file = args.root / "docs/messages.md"
    page = file.read_text()
    if args.find is not None:
        if not find(args.find, page):
            print("no section knows it", file=sys.stderr)
            return 1
        return 0
    sections = {match["title"]: match["patterns"].split() for match in SECTION.finditer(page)}
    faults = []
    texts = assign(collect(args.root), sections, faults.append)

    def renewed(match):
        return match[0].removesuffix(match["list"]) + listing(texts[match["title"]])

    new = SECTION.sub(renewed, page)
    if args.write:
        file.write_text(new)
    elif new != page:
        before = set(page.splitlines())
        faults += [f"docs/messages.md lacks: {line}" for line in new.splitlines() if line not in before]
        faults.append("the lists of docs/messages.md are not those of the sources: read what is new there, and its section; then tools/messages.py --write")
    print("".join(fault + "\n" for fault in faults), end="")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
