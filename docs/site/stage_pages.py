"""Makes the folder that Sphinx builds the site from: README, docs/*.md and the folders' READMEs, with links to the staged pages.

    stage_pages.py PROJECT TARGET

A link to a public header becomes one to its page of the API reference; any other file of the project gets a page that shows it. The first mention of
a class or function on a page leads to the reference, whose pages lead back; names of options stay in one piece, and those of ddprun have anchors."""

import json
import os
import pathlib
import re
import shutil
import sys

# The pages by heading of the navigation. A page that is in none of them fails the build.
CONTENTS = {
    "Begin": ["install", "port", "programs", "gallery", "coming-from"],
    "Guides": ["guide-parallel", "ddp", "data-parallel", "guide-accumulation", "guide-allreduce", "guide-mixed-precision", "guide-sync-batch-norm",
               "guide-dataset", "guide-fine-tuning", "guide-memory", "fully-sharded", "many-nodes", "watching", "errors", "faq"],
    "Reference": ["launcher", "collectives", "samplers", "data", "training", "checkpoints", "python", "optim", "schedules", "amp", "nn", "syncbn", "monitor",
                  "horovod", "messages", "api/index"],
    "Project": ["compatibility", "not-here", "design", "contributing", "changelog", "security", "versions", "cuda-status"],
}  # fmt: skip
GUIDES = [name for caption in ("Begin", "Guides", "Reference") for name in CONTENTS[caption] if name != "coming-from"]
NAMES = {"README.md": "index", "CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog", "SECURITY.md": "security"}
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
CODE = re.compile(r"^```(?s:.*?)^```$|`[^`\n]+`|^    .*$", re.MULTILINE)
OPTION = re.compile(r"`--?(?P<name>\w[\w-]*)[^`]{0,24}`")
MENTION = re.compile(r"`(?:\w+::)*(?P<name>\w+)(?P<call><[^`]*>|\([^`]*\))?`")
DECLARED = re.compile(r"^\.\. cpp:(?:class|struct|concept|enum-class|function):: (?:template <.*?> )?(?P<what>.*)$", re.MULTILINE)
INCLUDED = re.compile(r"^   #include <.*>\n\n", re.MULTILINE)
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".py": "python", ".sbatch": "bash", ".sh": "bash", ".diff": "diff"}


def toctree(caption: str, names) -> str:
    return "\n```{toctree}\n:hidden:\n:caption: " + caption + "\n\n" + "".join(f"{name}\n" for name in names) + "```\n"


class Staging:
    def __init__(self, project: pathlib.Path, target: pathlib.Path):
        self.project, self.target = project, target
        self.chapters = {f"{page.parent.name}/README.md": f"design-{page.parent.name}" for page in sorted(project.glob("*/README.md"))}
        self.pages = {f"docs/{page.name}": page.stem for page in (project / "docs").glob("*.md")} | NAMES | self.chapters
        self.shown = set()
        self.reference = self.declared_names()
        lines = (project / "docs/site/keywords.txt").read_text().splitlines()
        self.keywords = dict(line.split(": ", 1) for line in lines if not line.startswith("#"))
        self.mentioned = {}  # {page of the reference: the pages that lead to it}

    def declared_names(self) -> dict[str, str]:
        """Where the reference has a class or function; not those of several places, and no everyday words."""
        found = {}
        for page in (self.target / "api").rglob("*.rst"):
            for match in DECLARED.finditer(page.read_text()):
                name = re.findall(r"\w+", re.split(r"\(| : ", match["what"])[0])[-1]
                found.setdefault(name, set()).add(page.relative_to(self.target).as_posix())
        return {name: min(places) for name, places in found.items() if len(places) == 1}

    def place(self, path: str) -> str | None:
        """Where the site has a file or folder of the project."""
        file = self.project / path
        if path in self.pages:
            return self.pages[path] + ".md"
        if path.startswith("include/") and file.suffix == ".h":
            return "api/" + path.removeprefix("include/ddprun/").removesuffix(".h") + ".rst"
        if file.is_dir():
            if f"docs/{path}.md" in self.pages and not (self.project / "include/ddprun" / path).is_dir():
                return f"{path}.md"
            return f"api/{path}/index.rst" if (self.project / "include/ddprun" / path).is_dir() else None
        if file.suffix == ".svg":
            shutil.copy(file, self.target)
            return file.name
        if not file.is_file():
            sys.exit(f"a link leads to {path}, which is not there")
        self.shown.add(path)
        return f"files/{path}.md"

    def link(self, page: str):
        def led(match):
            text, goal = match[1], match[2]
            if re.match(r"[a-z]+:|#", goal):
                return match[0]
            path, _, anchor = goal.partition("#")
            place = self.place(os.path.normpath(os.path.join(os.path.dirname(page), path)))
            if place is None:
                return text[1:-1]
            return f"{text}({place}{'#' + anchor if anchor else ''})"

        return led

    def code(self, match, page: str, seen: set[str], is_in_link: bool) -> str:
        """An inline code with what the site adds to it."""
        if option := OPTION.fullmatch(match[0]):
            line = match.string[match.string.rfind("\n", 0, match.start()) + 1 : match.start()]
            if page == "docs/launcher.md" and line.startswith("| ") and " | " not in line and match[0].startswith("`--"):
                return f'<a class="option" id="option-{option["name"]}" href="#option-{option["name"]}">{match[0]}</a>'
            return f'<span class="option">{match[0]}</span>'
        if " -" in match[0] and max(map(len, match[0].split())) < 35:
            return f'<span class="command">{match[0]}</span>'
        mention = MENTION.fullmatch(match[0])
        is_name = mention and (mention["call"] or "::" in match[0] or re.search(r"[A-Z]\w*[a-z]|\w_\w", mention["name"]))
        if not is_name or is_in_link or mention["name"] in seen or mention["name"] not in self.reference or self.pages[page] not in GUIDES:
            return match[0]
        seen.add(mention["name"])
        goal = self.reference[mention["name"]]
        self.mentioned.setdefault(goal, []).append(self.pages[page])
        return f"[{match[0]}]({goal})"

    def stage(self, page: str):
        text = (self.project / page).read_text()
        kept, seen = [], set()
        taken = [match.span() for match in re.finditer(rf"{LINK.pattern}|^#.*$", text, re.MULTILINE)]

        def keep(match):
            is_in_link = any(begin <= match.start() < end for begin, end in taken)
            kept.append(match[0] if match[0].startswith(("```", " ")) else self.code(match, page, seen, is_in_link))
            return f"\0{len(kept) - 1}\0"

        text = LINK.sub(self.link(page), CODE.sub(keep, text))
        while "\0" in text:  # code within the text of a link
            text = re.sub("\0(\\d+)\0", lambda match: kept[int(match[1])], text)
        if page == "README.md":
            text += "".join(toctree(caption, names) for caption, names in CONTENTS.items())
        if page == "docs/design.md":
            text += toctree("Folders", self.chapters.values())
        if words := ", ".join(self.keywords.pop(self.pages[page], "").split()):
            text = f'---\nmyst:\n  html_meta:\n    keywords: "{words}"\n---\n{text}'
        (self.target / f"{self.pages[page]}.md").write_text(text)

    def lead_back(self):
        """From each page of the reference to the guides that mention what it declares."""
        for page, guides in self.mentioned.items():
            file = self.target / page
            links = ", ".join(f":doc:`/{name}`" for name in GUIDES if name in guides)
            file.write_text(INCLUDED.sub(lambda match: f"{match[0]}Guides: {links}\n\n", file.read_text(), count=1))

    def show_files(self):
        for path in sorted(self.shown):
            page = self.target / "files" / f"{path}.md"
            page.parent.mkdir(parents=True, exist_ok=True)
            language = LANGUAGES.get(pathlib.Path(path).suffix, "text")
            text = (self.project / path).read_text()
            page.write_text(f"---\norphan: true\nnosearch: true\n---\n# {path}\n\n``````{{code-block}} {language}\n{text}``````\n")


def main():
    project, target = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    staging = Staging(project, target)
    scorer = (project / "docs/site/static/scorer.js").read_text()
    (target.parent / "scorer.js").write_text(f"const KEYWORDS = {json.dumps(staging.keywords)};\n{scorer}")
    for page in staging.pages:
        staging.stage(page)
    if staging.keywords:
        sys.exit(f"docs/site/keywords.txt: there is no page {', '.join(staging.keywords)}")
    staging.lead_back()
    staging.show_files()


if __name__ == "__main__":
    main()
