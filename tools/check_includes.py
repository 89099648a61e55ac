"""Checks that folders include only what docs/design.md allows: `check_includes.py [project root]`.

The allowed includes are read from the arrows in docs/design.md ("a, b → c → d"), so that page defines the rule. Also:
  - public headers are in include/ddprun/FOLDER and are included as <ddprun/FOLDER/...>, by their own source in quotes;
    they include no private header and do not say "Internal". ddprun/ddp.h, which users include, may include those of
    every folder.
  - include/ddprun/detail/FOLDER contains what only templates and inline functions of public headers need. It belongs to
    FOLDER. Its headers are not named by any page, by any example or by ddprun/ddp.h.
  - there are at most 105 public headers, and ddprun/ddp.h or a page (README.md, docs/) names each of them.
  - "inside FOLDER: a < b, c < d" orders sub-folders: each includes only itself and those to its left. Files directly in
    FOLDER are above all of them, or at the position of "." if the line contains it. "inside FOLDER/a: ..." orders the
    sub-folders of a sub-folder. A public header belongs to the sub-folder that contains its source; a header without a
    source belongs to the highest sub-folder that it includes. With "(at most N folders, M arrows)", FOLDER has at most
    N sub-folders, and in at most M pairs of these one includes the other.
  - only comm/ includes c10d, gloo, CUDA and NCCL headers.
  - the line "May include:" in the README.md of a folder matches the arrows.
  - the section "Walks" is correct (walks.py).
Prints one line per violation; the exit status is 1 if there are any.
"""

import dataclasses
import functools
import pathlib
import re
import sys

from report import report
from walks import walk_violations

PUBLIC = pathlib.PurePath("include/ddprun")
UMBRELLA = PUBLIC / "ddp.h"
DETAIL = PUBLIC / "detail"
MOST_PUBLIC_HEADERS = 105
HEADER_NAME = re.compile(r"\bddprun/[\w/]+\.h\b")
FOR_MAINTAINERS = {"design.md", "messages.md"}  # in docs/: these may name any file
COMM_ONLY = re.compile(r"torch/csrc/distributed/|gloo/|c10/cuda/|ATen/cuda/|THC/|nccl|cuda")
INTERNAL = re.compile(r"// Internal\b")
LIBTORCH = re.compile(r"torch/|ATen/|c10/|caffe2/")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
MAY_INCLUDE = re.compile(r"^May include: (.*)\.$", re.MULTILINE)
TOP = 1000  # the layer of files that lie directly in a folder


def read_arrows(design: str) -> dict[str, set[str]]:
    """Returns {folder: all folders that it may include}, directly or through other arrows."""
    direct: dict[str, set[str]] = {}
    for line in design.splitlines():
        if not line.startswith("    ") or "→" not in line:
            continue
        for chain in re.split(r"\s{2,}", line.strip()):
            groups = [[name.strip() for name in group.split(",")] for group in chain.split("→")]
            for sources, targets in zip(groups, groups[1:]):
                for source in sources:
                    direct.setdefault(source, set()).update(targets)
    allowed = {}
    for folder in direct:
        reached, pending = set(), [folder]
        while pending:
            for target in direct.get(pending.pop(), ()):
                if target not in reached:
                    reached.add(target)
                    pending.append(target)
        allowed[folder] = reached
    return allowed


INSIDE = re.compile(r"^    inside ([\w/]+)(?: \(at most (\d+) folders, (\d+) arrows\))?: (.+)$", re.MULTILINE)


def read_layers(design: str) -> dict[str, dict[str, int]]:
    """Returns {folder: {sub-folder: its layer}}."""
    layers = {}
    for folder, _, _, order in INSIDE.findall(design):
        groups = enumerate(order.split("<"))
        layers[folder] = {name.strip(): layer for layer, group in groups for name in group.split(",")}
    return layers


def read_limits(design: str) -> dict[str, tuple[int, int]]:
    """Returns {folder: (maximum number of sub-folders, maximum number of arrows between them)}."""
    return {folder: (int(folders), int(arrows)) for folder, folders, arrows, _ in INSIDE.findall(design) if folders}


@dataclasses.dataclass(frozen=True)
class Include:
    line: int
    text: str
    is_public: bool  # written as the path of a public header of this project
    folder: str
    path: pathlib.PurePath | None  # None unless it is an existing file of this project


class Tree:
    def __init__(self, root: pathlib.Path):
        self.root = root
        design = (root / "docs/design.md").read_text()
        self.arrows, self.layers, self.limits = read_arrows(design), read_layers(design), read_limits(design)
        self.folders = set(self.arrows).union(*self.arrows.values()) - {"LibTorch", "std", "POSIX"}

    def sources(self):
        for folder in [*sorted(self.folders), PUBLIC]:
            for path in sorted((self.root / folder).rglob("*")):
                if path.suffix in {".h", ".cpp"}:
                    yield path.relative_to(self.root)

    @functools.cache
    def includes(self, name: pathlib.PurePath) -> list[Include]:
        found = []
        for number, line in enumerate((self.root / name).read_text().splitlines(), 1):
            if match := INCLUDE.match(line):
                parts = match[2].split("/")
                is_public = parts[0] == "ddprun"
                path = pathlib.PurePath("include", match[2]) if is_public else pathlib.PurePath(match[2])
                folder = self.folder_of(path)
                is_there = (self.root / path).is_file() or (self.root / f"{path}.in").is_file()  # made by CMake
                found.append(Include(number, match[2], is_public, folder, path if is_there else None))
        return found

    @staticmethod
    def inside(name: pathlib.PurePath) -> tuple[str, ...]:
        """Returns the folder of a public header, its sub-folder if any, and its file name."""
        return name.relative_to(DETAIL if name.is_relative_to(DETAIL) else PUBLIC).parts

    @classmethod
    def folder_of(cls, name: pathlib.PurePath) -> str:
        return cls.inside(name)[0] if name.is_relative_to(PUBLIC) and len(cls.inside(name)) > 1 else name.parts[0]

    def unit(self, name: pathlib.PurePath) -> set[pathlib.PurePath]:
        """Returns a file and its corresponding header or source."""
        inside = pathlib.PurePath(*self.inside(name)) if name.is_relative_to(PUBLIC) else name
        stems = {inside.with_suffix(""), pathlib.PurePath(self.folder_of(name), inside.stem)}
        names = {place / f"{stem}{suffix}" for stem in stems for place in (pathlib.PurePath(), PUBLIC, DETAIL) for suffix in (".h", ".cpp")}
        return {name} | {path for path in names if (self.root / path).is_file()}

    def meet(self, one: pathlib.PurePath, other: pathlib.PurePath) -> bool:
        units = self.unit(one), self.unit(other)
        return any(include.path in target for source, target in (units, units[::-1]) for path in source for include in self.includes(path))

    def floor(self, name: pathlib.PurePath) -> tuple[int | None, ...]:
        """Returns the layers of a file: in its folder, then in its sub-folder, and so on. To compare two files, the
        first layer that differs decides which one is higher."""
        if name.is_relative_to(PUBLIC):
            return (self.layer(name),)
        return tuple(self.layer_in(len(folder.parts), name) for folder in reversed(name.parents[:-1]))

    def layer_in(self, depth: int, name: pathlib.PurePath) -> int | None:
        layers = self.layers.get("/".join(name.parts[:depth]))
        if not layers:
            return TOP
        return layers.get(".", TOP) if len(name.parts) == depth + 1 else layers.get(name.parts[depth])

    @functools.cache
    def layer(self, name: pathlib.PurePath) -> int | None:
        """Returns the layer of a file in its folder; None if the design defines no layer for its sub-folder."""
        folder = self.folder_of(name)
        layers = self.layers.get(folder)
        if not layers:
            return TOP
        if not name.is_relative_to(PUBLIC):
            return self.layer_in(1, name)
        if len(self.inside(name)) > 2:
            return layers.get(self.inside(name)[1])
        if (self.root / folder / f"{name.stem}.cpp").is_file():
            return layers.get(".", TOP)
        for sub_folder, layer in layers.items():
            if (self.root / folder / sub_folder / f"{name.stem}.cpp").is_file():
                return layer
        below = [self.layer(i.path) for i in self.includes(name) if i.path and self.folder_of(i.path) == folder]
        return max((layer for layer in below if layer is not None), default=0)

    def violations(self):
        if not self.arrows:
            yield "docs/design.md: no arrows found"
        for name in self.sources():
            if name.is_relative_to(PUBLIC) and INTERNAL.match((self.root / name).read_text()):
                yield f"{name}: says that it is internal, so it stands beside its source and not in {PUBLIC}"
            if None in self.floor(name):
                yield f"{name}: docs/design.md names no layer for {name.parent}"
                continue
            for include in self.includes(name):
                if reason := self.objection(name, include):
                    yield f"{name}:{include.line}: includes {include.text}, {reason}"

        yield from self.excesses()
        yield from walk_violations(self)
        if (self.root / UMBRELLA).is_file():
            yield from self.interface_violations()
        for folder, allowed in self.arrows.items():
            readme = self.root / folder / "README.md"
            expected = f"May include: {', '.join(sorted(allowed))}."
            if readme.is_file() and MAY_INCLUDE.findall(readme.read_text()) != [expected[len("May include: ") : -1]]:
                yield f"{folder}/README.md: docs/design.md allows: {expected}"

    def excesses(self):
        """Yields folders with more sub-folders than the design allows, or with more arrows between them."""
        for folder, (most_folders, most_arrows) in self.limits.items():
            depth = len(pathlib.PurePath(folder).parts)
            files = [name for name in self.sources() if name.is_relative_to(folder) and len(name.parts) > depth + 1]
            folders = {name.parts[depth] for name in files}
            paths = {(name.parts[depth], include.path.parts[depth]) for name in files for include in self.includes(name)
                     if include.path and include.path.is_relative_to(folder) and len(include.path.parts) > depth + 1}
            arrows = {(source, target) for source, target in paths if source != target}
            if len(folders) > most_folders:
                yield f"{folder}: {len(folders)} folders, more than {most_folders}"
            if len(arrows) > most_arrows:
                yield f"{folder}: {len(arrows)} arrows between its folders, more than {most_arrows}"

    def interface_violations(self):
        def named_in(file: pathlib.Path) -> set[str]:
            return set(HEADER_NAME.findall(file.read_text()))

        headers = {file.relative_to(self.root / "include").as_posix() for file in (self.root / PUBLIC).rglob("*.h")}
        detail = {header for header in headers if header.startswith("ddprun/detail/")}
        public = headers - detail - {"ddprun/ddp.h"}
        if len(public) >= MOST_PUBLIC_HEADERS:
            yield f"{PUBLIC}: {len(public) + 1} public headers; at most {MOST_PUBLIC_HEADERS}"
        pages = [self.root / "README.md", *sorted((self.root / "docs").glob("*.md"))]
        pages = [page for page in pages if page.is_file() and page.name not in FOR_MAINTAINERS]
        named = named_in(self.root / UMBRELLA).union(*map(named_in, pages))
        for header in sorted(public - named):
            yield f"include/{header}: neither {UMBRELLA} nor a page names it"
        examples = (file for file in sorted((self.root / "examples").rglob("*")) if file.suffix in {".h", ".cpp", ".md"})
        for file in [self.root / UMBRELLA, *pages, *examples]:
            for header in sorted(named_in(file) & detail):
                yield f"{file.relative_to(self.root)}: names {header}, which is not for users"

    def objection(self, name: pathlib.PurePath, include: Include) -> str | None:
        folder = self.folder_of(name)
        allowed = self.arrows.get(folder, set())
        if include.folder in self.folders and "/" in include.text:
            return self.objection_to_ours(name, include)
        if folder != "comm" and COMM_ONLY.match(include.text):
            return "but only comm/ touches c10d, gloo, CUDA and NCCL headers"
        if LIBTORCH.match(include.text) and name != UMBRELLA and "LibTorch" not in allowed:
            return f"but {folder} is built without LibTorch"
        return None

    def objection_to_ours(self, name: pathlib.PurePath, include: Include) -> str | None:
        if include.path is None:
            return "which is not there: public headers are <ddprun/...>"
        if name.is_relative_to(PUBLIC) and not include.is_public:
            return "but a public header cannot include a private one"
        folder = self.folder_of(name)
        if name == UMBRELLA or (include.folder != folder and include.folder in self.arrows.get(folder, set())):
            return None
        if include.folder != folder:
            return f"but docs/design.md draws no arrow from {folder} to {include.folder}"
        if self.layers.get(folder) and not include.is_public and not name.is_relative_to(PUBLIC):
            return self.objection_to_private(name, include.path)
        return "which is not below it in docs/design.md" if (self.layer(include.path) or 0) > self.layer(name) else None

    def objection_to_private(self, name: pathlib.PurePath, other: pathlib.PurePath) -> str | None:
        """Compares the layers of both files in the deepest folder that contains both."""
        depth = next(i for i, parts in enumerate(zip(name.parts, other.parts)) if parts[0] != parts[1])
        if len(name.parts) == len(other.parts) == depth + 1:
            return None  # both are in the same folder
        own_layer, other_layer = self.layer_in(depth, name), self.layer_in(depth, other)
        if other_layer is None or other_layer < own_layer:
            return None
        return f"which is {'beside it, not below it' if other_layer == own_layer else 'not below it'}, in docs/design.md"


if __name__ == "__main__":
    sys.exit(report(lambda root: Tree(root).violations(), "includes follow docs/design.md"))
