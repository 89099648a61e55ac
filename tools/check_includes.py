"""Checks that folders include only what docs/design.md allows: `check_includes.py [project root]`.

The arrows are read from docs/design.md ("a, b → c → d"), so that page is the rule. Besides:
  - only comm/ includes c10d, gloo, CUDA and NCCL headers;
  - include/ddprun/ddp.h, the umbrella header, may include any folder's public headers.
  - "inside FOLDER: a < b, c < d" orders sub-folders: each includes only itself and those further left.
  - the section "Walks" names files that exist, not too many for each walk, and without climb where it says so.
Prints one line per violation; the exit status is 1 if there is any.
"""

import pathlib
import re
import sys

UMBRELLA = pathlib.PurePath("include/ddprun/ddp.h")
COMM_ONLY = re.compile(r"torch/csrc/distributed/|gloo/|c10/cuda/|ATen/cuda/|THC/|nccl|cuda")
LIBTORCH = re.compile(r"torch/|ATen/|c10/|caffe2/")
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')


def read_arrows(design: str) -> dict[str, set[str]]:
    """{folder: everything that it may include}, following arrows to their end."""
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


def read_layers(design: str) -> dict[str, dict[str, int]]:
    """{folder: {sub-folder: its layer}}."""
    layers = {}
    for match in re.finditer(r"^    inside (\w+): (.+<.+)$", design, re.MULTILINE):
        groups = enumerate(match[2].split("<"))
        layers[match[1]] = {name.strip(): layer for layer, group in groups for name in group.split(",")}
    return layers


def layer_violations(root: pathlib.Path, design: str):
    for folder, layers in read_layers(design).items():
        for path in sorted((root / folder).glob("*/*")):
            own = path.parent.name
            if own not in layers:
                yield f"{path.relative_to(root)}: docs/design.md names no layer for {folder}/{own}"
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                parts = match[1].split("/") if match else []
                if len(parts) == 3 and parts[0] == folder and parts[1] != own and layers[parts[1]] >= layers[own]:
                    yield f"{path.relative_to(root)}:{number}: includes {match[1]}, which is not below it in docs/design.md"


def read_walks(design: str):
    """(name, most files, whether it may climb, files) of each walk; its files may go on on deeper lines."""
    text = re.sub(r",\n {8}", ", ", design)
    for match in re.finditer(r"^    (\S.*) \(at most (\d+)(, no climb)?\): +(.+)$", text, re.MULTILINE):
        yield match[1], int(match[2]), not match[3], [pathlib.PurePath(name) for name in match[4].split(", ")]


def walk_violations(root: pathlib.Path, design: str):
    layers = read_layers(design)
    for name, most, may_climb, files in read_walks(design):
        if len(files) > most:
            yield f"docs/design.md: the walk of {name} has {len(files)} files"
        lowest = None
        for path in files:
            if not (root / path).is_file():
                yield f"docs/design.md: the walk of {name} names {path}, which is not there"
            floors = layers.get(path.parts[0], {})
            floor = floors.get(path.parts[1], len(floors))  # files beside the sub-folders are above them
            if not may_climb and lowest is not None and floor > lowest:
                yield f"docs/design.md: the walk of {name} climbs at {path}"
            lowest = floor


def violations(root: pathlib.Path):
    design = (root / "docs/design.md").read_text()
    yield from layer_violations(root, design)
    yield from walk_violations(root, design)
    arrows = read_arrows(design)
    if not arrows:
        yield "docs/design.md: no arrows found"
    for folder, allowed in sorted(arrows.items()):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cpp"}:
                continue
            name = path.relative_to(root)
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if match and (reason := objection(folder, allowed, name, match[1], arrows)):
                    yield f"{name}:{number}: includes {match[1]}, but {reason}"


def objection(folder, allowed, name, header, arrows) -> str | None:
    target = header.split("/")[0]
    if target in arrows and "/" in header:
        if target == folder or target in allowed or name == UMBRELLA:
            return None
        return f"docs/design.md draws no arrow from {folder} to {target}"
    if folder != "comm" and COMM_ONLY.match(header):
        return "only comm/ touches c10d, gloo, CUDA and NCCL headers"
    if LIBTORCH.match(header) and "LibTorch" not in allowed:
        return f"{folder} is built without LibTorch"
    return None


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(violations(root))
    print("\n".join(found) if found else "includes follow docs/design.md")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
