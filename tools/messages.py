#!/usr/bin/env python3
"""Checks docs/messages.md, which explains the messages of library and launcher. Only the sources contain the texts.

    messages.py [--root PROJECT]                              prints unexplained sources (exit status 1)
    messages.py [--root PROJECT] --cpp FILE --depfile FILE    writes sections and texts as C++, for `ddprun --explain`

A section names its sources in a comment, `<!-- from comm/core/init_method.cpp launcher/plan/* -->`. If several sections
match a source, its texts belong to the section with the longest pattern. The following are errors: a source with
messages that no section names (each message needs an explanation), a pattern that matches no message, and a message
that contains "this rank".
"""

import argparse
import fnmatch
import pathlib
import re
import sys
import textwrap

from cpp_messages import messages

FOLDERS = ("base", "comm", "ddp", "horovod", "samplers", "data", "metrics", "nn", "training", "monitor", "syncbn", "optim", "schedules", "amp", "recompute", "fsdp",
           "checkpoint", "timeline", "include", "launcher", "examples")  # fmt: skip
# Sources whose texts no user would look up as a message, with the reason.
NO_MESSAGES = {
    "launcher/options/declare_*.cpp": "what --help says of each option",
    "launcher/options/foreign_options.cpp": "the tables of docs/coming-from.md",
    "launcher/options/foreign_mpirun.cpp": "the same, whose texts stand there",
    "launcher/options/foreign_horovodrun.cpp": "the same",
    "launcher/options/foreign_srun.cpp": "the same",
    "launcher/options/help.cpp": "what --help says around it",
    "launcher/options/subcommands.h": "what --help says of status, top and timeline",
    "launcher/options/command_line.cpp": "the same",
    "launcher/options/manual_*.cpp": "the manual page",
    "launcher/options/*_completion.cpp": "programs for shells",
    "launcher/options/generated_texts.h": "the same",
    "launcher/observe/watch/open_metrics.cpp": "the names and units of metrics",
    "launcher/nodes/elastic/http_request.cpp": "what etcd is asked",
    "include/ddprun/training/command_line.h": "what --help of a user's program says",
    "include/ddprun/base/option_checks.h": "what CLI11 says of an option of a user's program",
    "base/joined.h": "the rest of a list, in messages of others",
    "monitor/curves/svg.cpp": "parts of a picture",
}
# Texts that are not shown to users, recognized by their words: protocols, programs for a shell, file formats.
NO_MESSAGE = re.compile(r"^; (?:from|at least|more than) |\| option \||HTTP/1\.1|\"extraInfo\"|exec /bin/sh|\[ -x |import importlib|\"format\":|<rect |charset=|\\x8[0a]")
# Other ranks and the launcher quote the messages of a rank, where "this rank" would mean a different rank. Messages of
# PyTorch itself are unchanged.
WHICH_RANK = re.compile(r"\bthis rank\b(?!\. Please call `consolidate_state)")
# The help texts of an example, which are mixed with its messages.
HELP_OF_EXAMPLE = re.compile(r"^void declare\(.*?^}|CLI::App app\(.*?;", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[A-Za-z][A-Za-z']+")
SECTION = re.compile(r"^## (?P<title>.*?)\n(?P<text>.*?)^<!-- from (?P<patterns>[^>]*?) -->$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[([^]]*)\]\(([^)\s]+)\)")


def is_message(text: str) -> bool:
    """Returns whether the text has two words or more: a shorter text is a part of another message, or a name."""
    return len(WORD.findall(text)) >= 2 and re.search(r"\S\s+\S", text) is not None and not NO_MESSAGE.search(text)


def matches(name: str, patterns) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def collect(root: pathlib.Path) -> dict[str, list[str]]:
    """Returns the messages of each source."""
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
    """Returns the messages of each section, in the order of its patterns."""
    owners = [(len(pattern), pattern, title) for title, patterns in sections.items() for pattern in patterns]
    by_section = {title: {} for title in sections}
    used = set()
    for name, texts in found.items():
        for text in texts:
            if WHICH_RANK.search(text):
                say(f"{name}: a message must name the rank, as others quote it: {text!r}")
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


def cpp_string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def as_cpp(page: str, texts: dict[str, list[str]]) -> str:
    """Returns the definition of known_explanations(), declared in launcher/options/answers/answers.h."""
    rows = ""
    for match in SECTION.finditer(page):
        text = LINK.sub(lambda link: f"docs/{link[2]}" if link[1] == link[2].partition("#")[0] else f"{link[1]} (docs/{link[2]})", match["text"])
        text = "\n\n".join(textwrap.fill(part, 80, break_long_words=False, break_on_hyphens=False) for part in text.replace("**", "").split("\n\n"))
        known = "".join(f"\n        {cpp_string(message + chr(10))}" for message in texts[match["title"]])
        rows += f"    {{{cpp_string(match['title'])},\n     {cpp_string(text.strip())},{known}}},\n"
    return f'''// Written by tools/messages.py.
#include "launcher/options/answers/answers.h"

namespace launcher {{

std::span<const Explanation> known_explanations() {{
  static constexpr Explanation kAll[] = {{
{rows}  }};
  return kAll;
}}

}}  // namespace launcher
'''


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--cpp", type=pathlib.Path)
    parser.add_argument("--depfile", type=pathlib.Path)
    args = parser.parse_args()
    page = (args.root / "docs/messages.md").read_text()
    sections = {match["title"]: match["patterns"].split() for match in SECTION.finditer(page)}
    faults = []
    texts = assign(collect(args.root), sections, faults.append)
    if args.cpp is None:
        print("".join(fault + "\n" for fault in faults), end="")
        return 1 if faults else 0
    new = as_cpp(page, texts)  # written despite faults, which only a test reports
    if not args.cpp.exists() or args.cpp.read_text() != new:
        args.cpp.write_text(new)
    if args.depfile is not None:
        read = [path for folder in FOLDERS for path in sorted((args.root / folder).rglob("*")) if path.is_dir() or path.suffix in (".h", ".cpp")]
        args.depfile.write_text(f"{args.cpp}: " + " ".join(str(path).replace(" ", "\\ ") for path in read) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
