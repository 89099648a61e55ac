"""The names that C++ headers declare, with their namespaces and classes: enough of the language for headers without conditional names."""

import re

from check_names import code_of

SCOPE = re.compile(r"(?:inline\s+)?(namespace|class|struct|union|enum\s+class|enum)\b(?:\s*\[\[\w+\]\]|\s+[A-Z0-9_]+_API\b)*\s*([\w:]*)([^()]*)$", re.DOTALL)
BASE = re.compile(r"[:,]\s*(?:public\s+|virtual\s+)*([\w:]+)")
# TORCH_ARG(type, name) and the like declare an option.
OPTION = re.compile(r"\b(?:TORCH_ARG|\w+_OPTION)\((?:\([^()]*\)|[^,()]*),\s*(\w+)(?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
NOT_FUNCTIONS = {"requires", "decltype", "noexcept", "alignas", "sizeof", "explicit", "defined"}
PREFIX = re.compile(r"^\s*(?:(?:public|private|protected)\s*:|template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>)\s*")


def end_of(code, position):
    """Where the block ends that begins with the brace at `position`."""
    depth = 0
    for found in re.finditer(r"[{}]", code[position:]):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return position + found.end()
    return len(code)


def simplified(statement):
    """Without access specifiers and what is in angle brackets."""
    while found := PREFIX.match(statement):
        statement = statement[found.end():]
    while (shorter := re.sub(r"<[^<>;]*>", "", statement)) != statement:
        statement = shorter
    return statement.strip()


def name_of(statement):
    """What a declaration without the bodies in braces declares."""
    if found := re.match(r"TORCH_MODULE\w*\((\w+)", statement):
        return found[1]
    if re.match(r"(friend|static_assert|namespace|extern template)\b|(class|struct|enum)\s+\w+$", statement):
        return None
    if found := re.match(r"using (?:.*::)?(\w+)(?: =|$)", statement):
        return found[1]
    for found in re.finditer(r"(\w+)\s*\(", statement.split("=")[0]):
        if found[1] not in NOT_FUNCTIONS:
            return found[1]
    found = re.search(r"(\w+)\s*(?:=|\{|$)", statement)
    return found[1] if found else None


def names_in(code, inside=""):
    """The qualified names of a text without comments and texts, each with the bases of a class."""
    start = position = 0
    while found := re.compile(r"[;{]").search(code, position):
        statement = simplified(code[start:found.start()])
        position = found.end()
        if found[0] == ";":
            if name := name_of(statement):
                yield inside + name, []
            start = position
            continue
        position = end_of(code, found.start())
        if statement.count("(") > statement.count(")"):
            continue  # of a default argument
        body = code[found.end():position - 1]
        if scope := SCOPE.match(statement):
            name = f"{inside}{scope[2]}::" if scope[2] else inside
            yield name.removesuffix("::"), BASE.findall(scope[3])
            if scope[1].startswith("enum"):
                yield from ((name + each, []) for each in re.findall(r"(?:^|,)\s*(\w+)", body))
            else:
                yield from names_in(body, name)
            start = position
        elif "(" in statement.split("=")[0]:
            yield inside + (name_of(statement) or ""), []
            start = position


class Declarations:
    """What these headers declare."""

    def __init__(self, files):
        self.bases = {}
        for file in files:
            for name, bases in names_in(OPTION.sub(r"; option \1;", code_of(file))):
                self.bases.setdefault(name, set()).update(bases)

    def has(self, name):
        """Whether there is this qualified name, of a class also where a base has it."""
        owner, _, member = name.rpartition("::")
        if name in self.bases:
            return True
        outer = owner.rpartition("::")[0]
        return any(self.has(f"{place}{base}::{member}") for base in self.bases.get(owner, ()) for place in (f"{outer}::", ""))
