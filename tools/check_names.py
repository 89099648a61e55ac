#!/usr/bin/env python3
"""Finds names that have two definitions in the same program.

    check_names.py ROOT

If two headers define a type with the same name in the same namespace, they break the one definition rule: the linker
keeps only one of its functions. Names in the anonymous namespaces of two sources of a library must differ, because the
sources may be compiled as one (DDPRUN_UNITY_BUILD). A name that a header also defines in the enclosing namespace is
ambiguous there. The same holds for the sources of one test program, where an overload in another source could even be
selected without an error.
"""

import collections
import pathlib
import re
import sys

TYPE = re.compile(r"(?:template <[^>]*>\s*)?(?:struct|class|enum class|enum)\s+(?:\[\[\w+\]\]\s*)?(\w+)(?![\w:<]*;)")
FUNCTION = re.compile(r"([\w:~]+)\s*\(")
INITIALIZED_CONSTANT = re.compile(r"(?:inline |static |thread_local )*(?:constexpr|const|constinit)\b[^(=]*\b(k[A-Z]\w*)\s*\(")
NOT_CODE = [
    (r"//[^\n]*|/\*.*?\*/", ""),
    (r'R"(\w*)\(.*?\)\1"', '""'),
    (r'"(\\.|[^"\\\n])*"', '""'),
    (r"'(\\.|[^'\\\n])'", "' '"),
    (r"^\s*#(.*\\\n)*.*$", ""),
]


def code_of(file: pathlib.Path) -> str:
    text = file.read_text()
    for pattern, instead in NOT_CODE:
        text = re.sub(pattern, instead, text, flags=re.DOTALL | re.MULTILINE if "#" not in pattern else re.MULTILINE)
    return text


def statements(code: str, inside: tuple[str, ...] = ()):
    """Yields each declaration in a namespace, without the bodies in braces, together with the enclosing namespaces."""
    start = position = 0
    while position < len(code):
        letter = code[position]
        if letter == ";":
            yield inside, code[start:position].strip()
            start = position + 1
        elif letter == "{":
            depth, end = 1, position + 1
            while depth and end < len(code):
                depth += (code[end] == "{") - (code[end] == "}")
                end += 1
            head = code[start:position].strip()
            if namespace := re.fullmatch(r"(?:inline )?namespace\s*([\w:]*)", head):
                yield from statements(code[position + 1 : end - 1], (*inside, namespace[1] or "anonymous"))
                start = end
            elif head.endswith(")") or re.search(r"\)\s*(const|noexcept|:.*|->.*)$", head, re.DOTALL):
                yield inside, head + "{}"
                start = end
            else:
                code = code[: position + 1] + " " * (end - position - 2) + code[end - 1 :]
            position = end - 1
        position += 1


def declared(statement: str) -> tuple[str, str] | None:
    """Returns the name that a definition defines, and a text that differs between overloads."""
    if found := re.match(r"using (\w+) =(.*)", statement, re.DOTALL):
        return found[1], "as" + found[2]  # equal definitions may be repeated
    if statement.startswith(("using", "namespace", "static_assert", "friend", "extern template")) or not statement:
        return None
    if (found := TYPE.match(statement)) and ("{" in statement):
        return found[1], "type"
    if (found := INITIALIZED_CONSTANT.match(statement)) and not statement.endswith("{}"):
        return found[1], "variable"
    found = FUNCTION.search(statement)
    if found and "=" not in statement[: found.start()]:
        if not statement.endswith("{}") or "::" in found[1]:
            return None
        parameters = re.sub(r"\s+", " ", statement[found.end() - 1 :].split("{")[0])
        types = re.sub(r"(?<=[\w>&*]) ?\b\w+(?=[,)])", "", parameters)  # parameter names do not distinguish overloads,
        return found[1], re.sub(r"\bconst |&", "", types)  # and neither do T and const T&
    found = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=|\{)", statement)
    return (found[1], "variable") if found else None


def headers_of(root: pathlib.Path, of_tests: bool) -> list[pathlib.Path]:
    """Returns the headers of the tests or of the product. Build folders are skipped, because tests that run at the
    same time change them."""
    skipped = ("build", "tests", "bench", "examples")
    folders = [root / "tests"] if of_tests else [path for path in root.iterdir() if path.is_dir() and path.name not in skipped]
    return sorted(header for folder in folders for header in folder.rglob("*.h"))


def types_of_headers(root: pathlib.Path) -> list[str]:
    places = collections.defaultdict(set)
    for header in headers_of(root, of_tests=False):
        for inside, statement in statements(code_of(header)):
            found = declared(statement)
            if found and found[1] == "type" and "anonymous" not in inside and "<" not in statement.split("{")[0]:
                places[("::".join((*inside, found[0])))].add(str(header.relative_to(root)))
    return [f"{name} is defined in {' and in '.join(sorted(files))}" for name, files in places.items() if len(files) > 1]


def names_of_headers(root: pathlib.Path, of_tests: bool) -> dict[tuple[str, str], str]:
    """Returns the types and variables in namespaces of headers, with the header of each. For the headers of the
    tests, also functions."""
    names = {}
    for header in headers_of(root, of_tests):
        for inside, statement in statements(code_of(header)):
            if (found := declared(statement)) and (of_tests or not found[1].startswith("(")):
                names["::".join(inside), found[0]] = str(header.relative_to(root))
    return names


def ambiguous(program: str, root: pathlib.Path, sources: list[pathlib.Path], headers: dict[tuple[str, str], str]) -> list[str]:
    """Reports names in anonymous namespaces of sources that a header defines in the enclosing namespace."""
    reports = []
    for source in sources:
        for inside, statement in statements(code_of(source)):
            found = declared(statement) if "anonymous" in inside else None
            header = headers.get(("::".join(name for name in inside if name != "anonymous"), found[0])) if found else None
            if header:
                reports.append(f"{program}: {found[0]} is in the anonymous namespace of {source.relative_to(root)} and in {header}")
    return reports


def compiled_as_one(root: pathlib.Path):
    """Yields the sources of each library and program that DDPRUN_UNITY_BUILD compiles as one."""
    for listing in sorted(root.glob("*/CMakeLists.txt")):
        text = listing.read_text()
        for library in re.finditer(r"(?:ddprun_library\(\s*|add_library\(\s*ddprun_)(\w+)\s+(?:SOURCES|STATIC)\s+(.*?)\)", text, re.DOTALL):
            if re.search(rf"ddprun_use_precompiled_headers\(ddprun_{library[1]} \w+\)", text):
                yield library[1], [listing.parent / name for name in re.findall(r"[\w/]+\.cpp", library[2])]
        for program in re.finditer(r"ddprun_executable\(\s*(\w+)\s+SOURCES\s+(.*?)\)", text, re.DOTALL):
            if re.search(rf"set_target_properties\({program[1]} .*\bUNITY_BUILD\b", text):
                yield program[1], [listing.parent / name for name in re.findall(r"[\w/]+\.cpp", program[2])]


def test_programs(root: pathlib.Path):
    """Returns the sources of each test program that several tests share, and those of all programs that tests start."""
    programs = collections.defaultdict(list)
    for listing in sorted(root.glob("tests/*/CMakeLists.txt")):
        text = listing.read_text()
        for loop in re.finditer(r"foreach\(\s*(\w+) IN\s+ITEMS(.*?)\)\n(.*?)endforeach\(\)", text, re.DOTALL):
            body = "".join(loop[3].replace(f"${{{loop[1]}}}", item) for item in loop[2].split())
            text = text.replace(loop[0], body)
        for test in re.finditer(r"ddprun_test\(\s*[\w${}]+ IN (\w+) LABEL (\w+)(.*?)\)", text, re.DOTALL):
            sources = test[3].partition("SOURCES")[2]
            programs[f"test_{test[2]}_{test[1]}"] += [(listing.parent / name).resolve() for name in re.findall(r"[\w./]+\.cpp", sources)]
        for program in re.finditer(r"ddprun_test_executable\(\s*\w+ SOURCE ([\w./]+\.cpp)", text):
            programs["test_executables"].append((listing.parent / program[1]).resolve())
    return programs.items()


def clashes(root: pathlib.Path, program: str, sources: list[pathlib.Path], overloads_too: bool) -> list[str]:
    places = collections.defaultdict(dict)
    for source in sources:
        for inside, statement in statements(code_of(source)):
            found = declared(statement) if "anonymous" in inside else None
            if found and not found[0].startswith(("TEST_CASE", "TORCH_")):
                overload = found[1] if found[1].startswith("(") and not overloads_too else ""
                places["::".join(inside), found[0], overload][str(source.relative_to(root))] = found[1]
    reports = []
    for (_, name, _), kinds in places.items():
        is_one_alias = len(set(kinds.values())) == 1 and next(iter(kinds.values())).startswith("as")
        if len(kinds) > 1 and not is_one_alias:
            reports.append(f"{program}: {name} is in the anonymous namespaces of {' and of '.join(sorted(kinds))}")
    return reports


def names_of_sources(root: pathlib.Path) -> list[str]:
    reports = []
    headers = names_of_headers(root, of_tests=False)
    headers_of_tests = names_of_headers(root, of_tests=True)
    for program, sources in compiled_as_one(root):
        reports += ambiguous(program, root, sources, headers)
        reports += clashes(root, program, sources, overloads_too=False)
    for program, sources in test_programs(root):
        reports += ambiguous(program, root, sources, headers_of_tests)
        reports += clashes(root, program, sources, overloads_too=True)
    return reports


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    reports = types_of_headers(root) + names_of_sources(root)
    print("\n".join(reports) if reports else "no name means two things")
    return 1 if reports else 0


if __name__ == "__main__":
    sys.exit(main())
