"""Compares the section "Walks" of docs/design.md with the sources; part of check_includes.py.

A walk is "NAME (at most N[, no climb][, by includes][, from A to B]): FILE, FILE, ..."; its files may continue on lines
with deeper indentation. Each file must exist, and there must be at most N files. With "no climb", no file may be above
the previous one. With "by includes", each file must include an earlier one or be included by one. A file may be
followed by functions:

    comm/reducer/reduction_context.cpp ReductionContext::begin GroupTransport::start

In that case the walk follows calls. The file must define these functions (a function without a class belongs to the
class of the previous function, or to no class), and each must call the next one, also across files. For a call into
another file, one of the following must hold: the file of the caller or its header includes the header of the other
file; or the other file includes the header of the caller, and the called function is an override, or a callback that is
called as (*name_)(...); or the called function is an override, and both files include a common header. "then FILE ..."
returns to a function that the walk has reached before. The first file must contain the name A, the last function of
each part the name B.
"""

import dataclasses
import functools
import pathlib
import re

from check_sizes import cpp_functions

WALK = re.compile(r"^    (\S.*) \(at most (\d+)(, no climb)?(, by includes)?(?:, from (\w+) to (\w+))?\): +(.+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Step:
    path: pathlib.PurePath
    functions: list[str]  # "Class::function" or "function"
    begins: bool  # the step returns to an earlier function
    via: str | None  # the function through which a template reaches it


@dataclasses.dataclass(frozen=True)
class Walk:
    name: str
    most: int
    may_climb: bool
    by_includes: bool
    begin: str | None
    end: str | None
    steps: list[Step]


def read_step(text: str) -> Step:
    words = text.split()
    begins = words[0] == "then"
    path, *functions = words[begins:]
    via = functions.pop() if functions[-2:-1] == ["via"] else None
    functions = [function for function in functions if function != "via"]
    qualified, scope = [], ""
    for function in functions:
        name = function if "::" in function else scope + function
        scope = name[: name.rindex("::") + 2] if "::" in name else ""
        qualified.append(name)
    return Step(pathlib.PurePath(path), qualified, begins, via)


def read_walks(design: str):
    for match in WALK.finditer(re.sub(r"([,:])\n {8}", r"\1 ", design)):
        name, most, no_climb, by_includes, begin, end, steps = match.groups()
        yield Walk(name, int(most), not no_climb, bool(by_includes), begin, end, [read_step(step) for step in steps.split(", ")])


class Sources:
    """Finds out what the checked files define, call and include."""

    def __init__(self, tree):
        self.tree = tree

    @functools.cache
    def text(self, path: pathlib.PurePath) -> str:
        return (self.tree.root / path).read_text()

    @functools.cache
    def with_header(self, path: pathlib.PurePath) -> frozenset[pathlib.PurePath]:
        own = [include.path for include in self.tree.includes(path) if include.path and include.path.stem == path.stem]
        return frozenset([path, *own])

    @functools.cache
    def includes(self, path: pathlib.PurePath) -> frozenset[pathlib.PurePath]:
        return frozenset(include.path for part in self.with_header(path) for include in self.tree.includes(part) if include.path)

    @functools.cache
    def bodies(self, path: pathlib.PurePath) -> list[tuple[str, str]]:
        """Returns (name, text) of each function."""
        lines = self.text(path).splitlines()
        return [(name, "\n".join(lines[first - 1 : first - 1 + count])) for name, first, count, _ in cpp_functions(self.text(path))]

    def body(self, path: pathlib.PurePath, function: str) -> str | None:
        """Returns the body of the function, joined for all functions with its name; None if the file does not define
        it."""
        scope, _, name = function.rpartition("::")
        is_class_here = scope and re.search(rf"\b(?:class|struct) (?:\w+::)*{scope}\b[^;]*\{{", self.text(path))
        found = [
            text
            for known, text in self.bodies(path)
            if (f"::{known}".endswith(f"::{function}")) or (is_class_here and known == name)
        ]
        return "\n".join(found) if found else None

    def calls(self, path: pathlib.PurePath, function: str, other: pathlib.PurePath, called: str) -> str | None:
        """Returns how it is called: "callback" for (*name_)(...), otherwise "call"; None if it is not called."""
        name = re.escape(simple(called))
        body = (self.body(path, function) or "").partition("{")[2]
        if re.search(rf"\*{name}_\)\(", body):
            return "callback"
        # If the file defines a function with that name, a call without an object is a call of that function.
        is_own = path != other and any(simple(known) == simple(called) for known, _ in self.bodies(path))
        before = r"(?:\.|->|::)" if is_own else r"(?<!\w)"
        return "call" if re.search(rf"{before}{name}\(", body) else None

    def may_call(self, path: pathlib.PurePath, other: pathlib.PurePath, called: str, is_callback: bool) -> bool:
        if path == other or self.with_header(other) & self.includes(path):
            return True
        override = re.compile(rf"\b{re.escape(simple(called))}\([^;{{]*\)[^;{{]*\b(?:override|final)\b")
        overrides = any(override.search(self.text(part)) for part in self.with_header(other))
        if self.with_header(path) & self.includes(other):
            return is_callback or overrides
        return overrides and bool(self.includes(path) & self.includes(other))


    def is_called(self, name: str, path: pathlib.PurePath, before: list[pathlib.PurePath]) -> bool:
        call = re.compile(rf"(?:\.|->){re.escape(name)}\(")
        return self.body(path, name) is not None and any(call.search(self.text(other)) for other in before)


def simple(function: str) -> str:
    return function.rpartition("::")[2]


def call_violations(sources: Sources, walk: Walk):
    came_to, last = set(), None
    for step in walk.steps:
        missing = [function for function in step.functions if sources.body(step.path, function) is None]
        if missing or not step.functions:
            yield f"{step.path} defines no {' and no '.join(missing) or 'function that the walk names'}"
            return
        if step.begins:
            if walk.end and last and walk.end not in sources.body(*last):
                yield f"{last[1]} in {last[0]} does not name {walk.end}"
            last = None
            if (step.path, step.functions[0]) not in came_to:
                yield f"it has not come to {step.functions[0]} in {step.path} before"
        for function in step.functions:
            if last and not (how := sources.calls(*last, step.path, function)):
                yield f"{last[1]} in {last[0]} does not call {function} in {step.path}"
            elif last and not sources.may_call(last[0], step.path, function, how == "callback"):
                yield f"{last[0]} cannot call {function} in {step.path}: no include makes it possible"
            last = (step.path, function)
            came_to.add(last)
    if walk.begin and walk.begin not in sources.text(walk.steps[0].path):
        yield f"{walk.steps[0].path} does not name {walk.begin}"
    if walk.end and walk.end not in sources.body(*last):
        yield f"{last[1]} in {last[0]} does not name {walk.end}"


def include_violations(tree, sources: Sources, walk: Walk, files: list[pathlib.PurePath]):
    via = {step.path: step.via for step in walk.steps if step.via}
    for number, path in enumerate(files[1:], 1):
        if path in via and not sources.is_called(via[path], path, files[:number]):
            yield f"{path} defines no {via[path]}(), or no file before it calls that"
        elif path not in via and not any(tree.meet(path, other) for other in files[:number]):
            yield f"{path} includes no file before it, and none includes it"


def walk_violations(tree):
    sources = Sources(tree)
    for walk in read_walks((tree.root / "docs/design.md").read_text()):
        where = f"docs/design.md: the walk of {walk.name}"
        files = list(dict.fromkeys(step.path for step in walk.steps))
        if len(files) > walk.most:
            yield f"{where} has {len(files)} files"
        missing = [path for path in files if not (tree.root / path).is_file()]
        for path in missing:
            yield f"{where} names {path}, which is not there"
        floors = [tree.floor(path) for path in files if path not in missing]
        for path, floor, before in zip(files[1:], floors[1:], floors):
            if not walk.may_climb and floor > before:
                yield f"{where} climbs at {path}"
        if walk.by_includes and not missing:
            yield from (f"{where}: {violation}" for violation in include_violations(tree, sources, walk, files))
        if not missing and any(step.functions for step in walk.steps):
            yield from (f"{where}: {violation}" for violation in call_violations(sources, walk))
