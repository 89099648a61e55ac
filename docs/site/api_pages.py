"""Writes the API reference as pages for Sphinx: one for each public header, from what Doxygen found in it.

    api_pages.py XML_FOLDER INCLUDE_FOLDER PAGES_FOLDER

Declarations stand in the order of the header, with the comments above them; what is called `detail`, private or deleted is the
library's own and left out, and so are copying and moving. What has no comment is an error."""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ET

from doxygen_text import plain, rst

MEMBERS = {"function": "cpp:function", "variable": "cpp:member", "typedef": "cpp:type", "enum": "cpp:enum", "define": "c:macro"}


def signature(member) -> str:
    """A member as C++ declares it, without its body."""
    kind = member.get("kind")
    name = member.findtext("name")
    type_ = plain(member.find("type"))
    if kind in ("enum", "define"):
        return name
    if kind == "typedef":
        template = template_of(member)
        return f"{template}{name} = {type_}" if not member.findtext("argsstring") else f"{name}"
    if kind == "variable":
        value = plain(member.find("initializer"))
        value = "" if re.search(r"[\n.]", value) or len(value) > 60 else value
        return f"{type_} {name}{member.findtext('argsstring') or ''} {value}".strip()
    arguments = plain(member.find("argsstring")).replace("=default", "").strip()
    static = "static " if member.get("static") == "yes" else ""
    explicit = "explicit " if member.get("explicit") == "yes" else ""
    virtual = "virtual " if member.get("virt") in ("virtual", "pure-virtual") and "override" not in arguments else ""
    type_ = re.sub(r"^(friend|inline|virtual|static|explicit|constexpr)\s+", "", type_)
    arguments = re.sub(r"=\s*0$", "", arguments)
    arguments = re.sub(r"\s*\brequires\b.*$", "", arguments, flags=re.DOTALL)  # what a type must have is said in the comment
    return " ".join(f"{template_of(member)}{static}{explicit}{virtual}{type_} {name}{arguments}".split())


def template_of(node) -> str:
    """`template <typename T, int N = 2> `, or nothing."""
    parameters = node.find("templateparamlist")
    if parameters is None:
        return ""
    words = []
    for parameter in parameters.findall("param"):
        word = f"{plain(parameter.find('type'))} {plain(parameter.find('declname'))}".strip()
        default = plain(parameter.find("defval"))
        words.append(f"{word} = {default}" if default else word)
    return f"template <{', '.join(words)}> "


def copies_or_moves(member) -> bool:
    """A class's own constructor or assignment from another object of the class."""
    owner, _, name = (member.findtext("qualifiedname") or "").rpartition("::")
    parameter = re.fullmatch(r"\((?:const )?(\w+)(?:<[^()]*>)? ?&&? ?\w*\).*", plain(member.find("argsstring")))
    return parameter is not None and parameter[1] == owner.rpartition("::")[2] and name in (parameter[1], "operator=")


def is_shown(member) -> bool:
    arguments = plain(member.find("argsstring"))
    name = member.findtext("name")
    return (
        member.get("kind") in MEMBERS
        and member.get("prot") == "public"
        and not name.startswith(("~", "@"))
        and not copies_or_moves(member)
        and not re.search(r"=\s*delete$", arguments)
        and "friend" not in plain(member.find("type")).split()
    )


def file_of(node) -> pathlib.Path:
    """Doxygen names what lies below the folder that it was started in from there on."""
    return pathlib.Path(node.find("location").get("file")).resolve()


def line_of(node) -> int:
    return int(node.find("location").get("line"))


def indented(text: str, depth: int) -> str:
    return "".join("   " * depth + line + "\n" if line else "\n" for line in f"{text}\n".split("\n")) if text else ""


def comment(node) -> str:
    texts = (rst(node.find("briefdescription")), rst(node.find("detaileddescription")))
    return "\n\n".join(text for text in texts if text)


class Pages:
    def __init__(self, folder: pathlib.Path):
        self.classes = {}
        self.undocumented = []  # "header:line: declaration"
        self.by_file = collections.defaultdict(list)  # header: [(line, namespace, node)]
        for file in folder.glob("*.xml"):
            for compound in ET.parse(file).getroot().iter("compounddef"):
                self.add(compound)
        self.by_file = {file: sorted(entries, key=lambda e: e[0]) for file, entries in self.by_file.items()}

    def add(self, compound):
        name = compound.findtext("compoundname")
        kind = compound.get("kind")
        if kind == "namespace":
            for member in compound.iter("memberdef"):
                self.by_file[file_of(member)].append((line_of(member), name, member))
        elif kind == "file":
            for member in compound.iter("memberdef"):
                if member.get("kind") == "define" and comment(member):
                    self.by_file[file_of(member)].append((line_of(member), "", member))
        elif kind in ("class", "struct", "concept") and "<" not in name:  # specialisations are details
            self.classes[name] = compound
            self.by_file[file_of(compound)].append((line_of(compound), name.rpartition("::")[0], compound))

    def members(self, compound):
        """What a class shows, nested classes included, in the order of the source."""
        shown = [m for m in compound.iter("memberdef") if is_shown(m)]
        nested = [self.classes[c.text] for c in compound.findall("innerclass") if c.get("prot") == "public" and c.text in self.classes]
        return sorted(shown + nested, key=line_of)

    def entity(self, node, depth: int) -> str:
        """One declaration with its comment and, of a class, its members."""
        kind = node.get("kind")
        if not comment(node):
            what = signature(node) if node.tag == "memberdef" else node.findtext("compoundname")
            self.undocumented.append(f"{file_of(node)}:{line_of(node)}: no comment says what this is: {what}")
        if node.tag == "memberdef":
            directive = "cpp:enum-class" if kind == "enum" and node.get("strong") == "yes" else MEMBERS[kind]
            text = head(directive, signature(node), depth) + indented(comment(node), depth + 1)
            for value in node.findall("enumvalue"):
                text += head("cpp:enumerator", value.findtext("name"), depth + 1) + indented(comment(value), depth + 2)
            return text
        name = node.findtext("compoundname").rpartition("::")[2]
        if kind == "concept":
            return head("cpp:concept", template_of(node) + name, depth) + indented(comment(node), depth + 1)
        bases = ", ".join(f"public {plain(b)}" for b in node.findall("basecompoundref") if b.get("prot") == "public" and "detail::" not in plain(b))
        text = head(f"cpp:{kind}", template_of(node) + name + (f" : {bases}" if bases else ""), depth) + indented(comment(node), depth + 1)
        # Constructors that differ in what they require of a type look alike.
        entities = dict.fromkeys(self.entity(member, depth + 1) for member in self.members(node))
        heads = {entity.split("\n", 1)[0]: entity for entity in reversed(entities)}
        return text + "".join(entity for entity in entities if heads[entity.split("\n", 1)[0]] is entity)

    def page(self, header: pathlib.Path, name: str) -> str:
        title = name.removeprefix("ddprun/")
        lead, declared = lead_of(header), self.by_file.get(header, [])
        text = f"{title}\n{'=' * len(title)}\n\n.. code-block:: cpp\n\n   #include <{name}>\n\n{lead}\n\n"
        classes = {n.findtext("compoundname").rpartition("::")[2] for _, _, n in declared if n.tag == "compounddef"}
        space, seen = None, set()
        for _, namespace, node in declared:
            is_member = node.tag == "memberdef"
            if namespace in self.classes or (is_member and (not is_shown(node) or node.findtext("name") in classes)):
                continue  # of a class, which shows it, or a deduction guide
            if namespace and namespace != space:
                text += f".. cpp:namespace:: {namespace}\n\n"
                space = namespace
            once = (namespace, signature(node)) if is_member else (namespace, node.findtext("compoundname"))
            if once not in seen:
                text += self.entity(node, 0)
            seen.add(once)
        if not declared and declares(header):
            sys.exit(f"Doxygen found nothing in {header}")
        return text if seen else text + included(header)


def head(directive: str, what: str, depth: int) -> str:
    return f"{'   ' * depth}.. {directive}:: {what}\n\n"


def declares(header: pathlib.Path) -> bool:
    """Not of a header that only includes others, or only serves the library."""
    text = re.sub(r"^namespace (?:ddp::)?detail \{.*?^\}  // namespace (?:ddp::)?detail$", "", header.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.search(r"^///", text, re.MULTILINE) is not None


def included(header: pathlib.Path) -> str:
    """What a header brings in that has nothing of its own."""
    names = re.findall(r"^#include <ddprun/(.*)\.h>$", header.read_text(), re.MULTILINE)
    return "It includes\n\n" + "".join(f"- :doc:`/api/{name}`\n" for name in names) if names else ""


def lead_of(header: pathlib.Path) -> str:
    """What a header's first lines say of it."""
    lines = []
    for line in header.read_text().splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").strip())
    return re.sub(r"([*|\\])", r"\\\1", " ".join(lines)).replace("`", "``")


def main():
    xml, include, target = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    pages = Pages(xml)
    folders = collections.defaultdict(list)
    for header in sorted(include.rglob("*.h")):
        name = header.relative_to(include).as_posix()
        if name.startswith("ddprun/detail/"):
            continue
        folder = header.parent.relative_to(include / "ddprun").as_posix().removeprefix(".")
        page = target / folder / f"{header.stem}.rst"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(pages.page(header, name))
        folders[folder].append(header.stem)
    if pages.undocumented:
        sys.exit("\n".join(pages.undocumented))
    for folder, names in folders.items():
        if folder:
            entries = "".join(f"   {name}\n" for name in names)
            (target / folder / "index.rst").write_text(f"{folder}\n{'=' * len(folder)}\n\n.. toctree::\n   :maxdepth: 1\n\n{entries}")
    entries = "".join(f"   {folder}/index\n" for folder in sorted(folders) if folder) + "".join(f"   {name}\n" for name in folders[""])
    (target / "index.rst").write_text(
        "API reference\n=============\n\nEach public header, by folder. ``#include <ddprun/ddp.h>`` brings in nearly all of them.\n\n"
        f".. toctree::\n   :maxdepth: 2\n\n{entries}")  # fmt: skip


if __name__ == "__main__":
    main()
