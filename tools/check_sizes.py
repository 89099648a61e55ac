"""Checks that no folder, file or function of the product is too large: `check_sizes.py [project root]`.

  - no folder has more than 60 files (files in sub-folders count for the sub-folder);
  - no source has more than 400 lines, no function more than 60;
  - no function has a cyclomatic complexity above 20: 1, plus 1 for each if, loop, case, catch, &&, || and ?:. A lambda
    or a nested function counts for the function that contains it.
  - all functions of a class are in one source, so that readers find them there. A class that is too large for one
    source must be divided. SPLIT lists the exceptions, each with its reason.
Applies to C++ and Python outside tests/ and bench/. Prints one line per violation; the exit status is 1 if there are
any.
"""

import ast
import collections
import pathlib
import re
import sys

from check_tree import tracked_files
from report import report

MOST_FILES, MOST_LINES, MOST_FUNCTION_LINES, MOST_COMPLEXITY = 60, 400, 60, 20
SPLIT = {
    "ddp::SummaryWriter": "add_figure() needs monitor/curves, which is above the writer: programs that draw nothing do without it",
}
NOT_PRODUCT = {"tests", "bench", "docs"}

# Text that is not code: comments, raw strings, strings, characters (but not the ' of 1'000'000), directives.
NO_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\''
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"[{};(]")
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b")
LABEL = re.compile(r"\s*(?:(?:public|protected|private):\s*)?")
CLASS = re.compile(r"(.+)::~?\w+")
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.MULTILINE)
CATCH = re.compile(r"\s*catch\s*\([^)]*\)\s*\{")
# The text before the brace of a member initializer: `: a_` or `, a_`.
MEMBER = re.compile(r"(?<!:)[:,]\s*[\w:]+(?:<[^{}]*>)?\s*$")
BRANCH = re.compile(r"\b(?:if|for|while|case|catch)\b|\s&&\s|\|\||\?")  # excludes the && of a reference
PYTHON_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.comprehension, ast.match_case)


def cpp_functions(source: str):
    """Yields (name, first line, lines, complexity) of each function with a body, including those in classes."""
    code = NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    start = position = 0  # the start of the current declaration, and the current position
    while match := MARK.search(code, position):
        position = match.end()
        head = code[start:match.start()]
        if match[0] == "(":
            position = closing(code, match.start(), "()") + 1
        elif match[0] in ";}":
            start = position
        elif is_function(head):
            end = closing(code, match.start(), "{}")
            while follow := CATCH.match(code, end + 1):  # the body of a function may be a try block
                end = closing(code, follow.end() - 1, "{}")
            first = start + LABEL.match(head).end()
            name = re.search(r"([\w:~]+|operator\W+)\s*\(", head)
            complexity = 1 + len(BRANCH.findall(code, match.start(), end))
            yield name[1] if name else "?", code.count("\n", 0, first) + 1, code.count("\n", first, end) + 1, complexity
            start = position = end + 1
        elif SCOPE.search(head):
            start = position
        else:  # the brace belongs to an initializer
            position = closing(code, match.start(), "{}") + 1


def is_function(head: str) -> bool:
    """Returns whether `head`, the text before a brace, declares a function, so that the brace begins its body."""
    while "(" in (head := re.sub(r"\(\)", "\0", head)):
        shorter = re.sub(r"\([^()]*\)", "\0", head)
        if shorter == head:
            return False
        head = shorter
    parameters, members = head.find("\0"), MEMBER.search(head)
    return parameters >= 0 and not re.search(r"(?<![=!<>])=\s*$", head) and not (members and parameters < members.start())


def closing(code: str, opening: int, pair: str) -> int:
    depth = 0
    for match in re.compile(f"[{re.escape(pair)}]").finditer(code, opening):
        depth += 1 if match[0] == pair[0] else -1
        if depth == 0:
            return match.start()
    return len(code) - 1


def python_functions(source: str):
    """The same as cpp_functions() for Python."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            branches = sum(isinstance(each, PYTHON_BRANCHES) for each in ast.walk(node))
            operators = sum(len(each.values) - 1 for each in ast.walk(node) if isinstance(each, ast.BoolOp))
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1, 1 + branches + operators


def splits(places: dict[str, set[str]]):
    """Yields classes whose functions are in several sources."""
    for name, sources in sorted(places.items()):
        if len(sources) > 1 and name not in SPLIT:
            yield f"{name}: its functions are in {' and in '.join(sorted(sources))}: one source, or several classes"
        if len(sources) == 1 and name in SPLIT:
            yield f"{name}: its functions are in one source, so tools/check_sizes.py needs no exception for it"


def violations(root: pathlib.Path):
    places = collections.defaultdict(set)
    names = [name for name in tracked_files(root) if name.parts[0] not in NOT_PRODUCT]
    for folder, count in sorted(collections.Counter(name.parent.as_posix() for name in names).items()):
        if count > MOST_FILES:
            yield f"{folder}: {count} files, more than {MOST_FILES}: sort them into folders"
    for name in names:
        functions = {".h": cpp_functions, ".cpp": cpp_functions, ".py": python_functions}.get(name.suffix)
        if not functions:
            continue
        source = (root / name).read_text()
        if source.count("\n") > MOST_LINES:
            yield f"{name}: {source.count(chr(10))} lines, more than {MOST_LINES}"
        namespace = NAMESPACE.search(source) if name.suffix == ".cpp" else None
        for function, line, lines, complexity in functions(source):
            if namespace and (owner := CLASS.fullmatch(function)):
                places[f"{namespace[1]}::{owner[1]}"].add(name.as_posix())
            if lines > MOST_FUNCTION_LINES:
                yield f"{name}:{line}: {function}() has {lines} lines, more than {MOST_FUNCTION_LINES}"
            if complexity > MOST_COMPLEXITY:
                yield f"{name}:{line}: {function}() has a complexity of {complexity}, more than {MOST_COMPLEXITY}"
    yield from splits(places)


if __name__ == "__main__":
    sys.exit(report(violations, "no folder, file or function is too large"))
