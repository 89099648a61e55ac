"""Every C++ block of every page compiles against the installed package."""

import re
import unittest

import support

BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)
DEFINES = re.compile(r"int main\(\)|\A(?:void|double) \w+\(.*\) \{$", re.MULTILINE)  # functions, which stand in none


def pages():
    yield support.SOURCE / "README.md"
    yield support.SOURCE / "CONTRIBUTING.md"
    yield from sorted((support.SOURCE / "docs").glob("*.md"))


def compilable(page) -> tuple[list[str], str]:
    """The headers that a page's blocks include, and a source with one function per block that is none, in a namespace of the page."""
    text = page.read_text()
    headers, parts = [], []
    for match in BLOCK.finditer(text):
        code = match[1]
        headers += INCLUDE.findall(code)
        # The lines of the page are the lines of the compiler's messages.
        line = text.count("\n", 0, match.start(1)) + 1
        code = INCLUDE.sub("\n", code)
        if DEFINES.search(code):
            code = f'#line {line} "{page.name}"\n{code}'
            parts.append(f"namespace block_{line} {{\n{code}}}\n")
        else:
            parts.append(f'int block_{line}() {{\n#line {line} "{page.name}"\n{code}return 0;\n}}\n')
    name = re.sub(r"\W", "_", page.stem)
    return headers, f"namespace {name}_page {{\n{''.join(parts)}}}\n"


class Snippets(unittest.TestCase):
    def test_each_compiles(self):
        headers, sources = set(), []
        for page in pages():
            found, source = compilable(page)
            headers.update(found)
            sources.append(source)
        # Blocks that nobody would find, for want of the fence that BLOCK looks for, prove nothing.
        self.assertGreaterEqual(sum(source.count("#line") for source in sources), 20)
        program = support.WORK / "snippets.cpp"
        program.write_text('#include "reader_has.h"\n' + "".join(sorted(headers)) + "".join(sources))
        build = support.WORK / "build"
        support.configure(
            support.HERE / "snippets", build,
            "-D", f"CMAKE_PREFIX_PATH={support.PREFIX};{support.LIBTORCH}",
            "-D", f"USER_INCLUDES={support.CLI11_INCLUDES}", "-D", f"SOURCE={program}",
            "-D", "CMAKE_CXX_COMPILER_LAUNCHER=",  # nothing is made that a cache could keep
        )  # fmt: skip
        support.run("cmake", "--build", build)


support.main()
