"""Makes the folder that Sphinx builds the site from: README, docs/*.md and the folders' READMEs, with links to the staged pages.

    stage_pages.py PROJECT TARGET

A link to a public header becomes one to its page of the API reference; any other file of the project gets a page that shows it."""

import os
import pathlib
import re
import shutil
import sys

# The pages by heading of the navigation. A page that is in none of them fails the build.
CONTENTS = {
    "Begin": ["install", "port", "programs", "gallery", "coming-from"],
    "Guides": ["guide-parallel", "ddp", "data-parallel", "guide-accumulation", "guide-allreduce", "guide-mixed-precision", "guide-sync-batch-norm",
               "guide-dataset", "guide-fine-tuning", "many-nodes", "watching", "errors", "faq"],
    "Reference": ["launcher", "collectives", "samplers", "data", "training", "checkpoints", "optim", "schedules", "amp", "nn", "syncbn", "monitor",
                  "horovod", "messages", "api/index"],
    "Project": ["design", "contributing", "changelog", "security", "versions", "cuda-status"],
}  # fmt: skip
NAMES = {"README.md": "index", "CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog", "SECURITY.md": "security"}
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
CODE = re.compile(r"^```(?s:.*?)^```$|`[^`\n]+`|^    .*$", re.MULTILINE)
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".py": "python", ".sbatch": "bash", ".sh": "bash", ".diff": "diff"}


def toctree(caption: str, names) -> str:
    return "\n```{toctree}\n:hidden:\n:caption: " + caption + "\n\n" + "".join(f"{name}\n" for name in names) + "```\n"


class Staging:
    def __init__(self, project: pathlib.Path, target: pathlib.Path):
        self.project, self.target = project, target
        self.chapters = {f"{page.parent.name}/README.md": f"design-{page.parent.name}" for page in sorted(project.glob("*/README.md"))}
        self.pages = {f"docs/{page.name}": page.stem for page in (project / "docs").glob("*.md")} | NAMES | self.chapters
        self.shown = set()

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

    def stage(self, page: str):
        text = (self.project / page).read_text()
        kept = []

        def keep(match):
            kept.append(match[0])
            return f"\0{len(kept) - 1}\0"

        text = LINK.sub(self.link(page), CODE.sub(keep, text))
        while "\0" in text:  # code within the text of a link
            text = re.sub("\0(\\d+)\0", lambda match: kept[int(match[1])], text)
        if page == "README.md":
            text += "".join(toctree(caption, names) for caption, names in CONTENTS.items())
        if page == "docs/design.md":
            text += toctree("Folders", self.chapters.values())
        (self.target / f"{self.pages[page]}.md").write_text(text)

    def show_files(self):
        for path in sorted(self.shown):
            page = self.target / "files" / f"{path}.md"
            page.parent.mkdir(parents=True, exist_ok=True)
            language = LANGUAGES.get(pathlib.Path(path).suffix, "text")
            text = (self.project / path).read_text()
            page.write_text(f"---\norphan: true\n---\n# {path}\n\n``````{{code-block}} {language}\n{text}``````\n")


def main():
    project, target = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    staging = Staging(project, target)
    for page in staging.pages:
        staging.stage(page)
    staging.show_files()


if __name__ == "__main__":
    main()
