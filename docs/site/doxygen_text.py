"""Doxygen's XML of a comment as reStructuredText."""

import re
import xml.etree.ElementTree as ET

CODE = "computeroutput"
# Where markup ends without a blank beside it, reStructuredText wants a backslash and a blank.
SEAM = "\x01"
BLOCKS = {"para", "verbatim", "programlisting", "itemizedlist", "orderedlist", "simplesect", "preformatted"}


def plain(node) -> str:
    """All text of a node."""
    return "" if node is None else "".join(node.itertext()).strip()


def escaped(text: str) -> str:
    return re.sub(r"([*`|\\_])", r"\\\1", text)


def inline(node) -> str:
    """Text with markup, without the blocks inside."""
    text = escaped(node.text or "")
    for child in node:
        if child.tag == CODE:
            code = plain(child)
            text += f"{SEAM}``{code}``{SEAM}" if code else ""
        elif child.tag == "ulink":
            text += f"`{plain(child)} <{child.get('url')}>`__"
        elif child.tag == "emphasis":
            text += f"{SEAM}*{plain(child)}*{SEAM}"
        elif child.tag == "bold":
            text += f"{SEAM}**{plain(child)}**{SEAM}"
        elif child.tag == "linebreak":
            text += " "
        elif child.tag not in BLOCKS:
            text += inline(child)
        text += escaped(child.tail or "")
    return text


def code_block(text: str) -> str:
    lines = text.strip("\n").split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return ".. code-block:: cpp\n\n" + "\n".join("   " + line[margin:] if line.strip() else "" for line in lines)


def listing(node) -> str:
    """<programlisting>: Doxygen writes blanks as <sp/>."""
    def text(part):
        return (part.text or "") + "".join((" " if child.tag == "sp" else text(child)) + (child.tail or "") for child in part)

    return "\n".join(text(line) for line in node.findall("codeline"))


def paragraph(node) -> list[str]:
    """A <para>, cut at the blocks that it holds."""
    parts = []
    run = _Run(node.text)
    for child in node:
        if child.tag not in BLOCKS:
            run.add(child)
            continue
        parts.append(run.text())
        parts.append(block(child))
        run = _Run(child.tail)
    parts.append(run.text())
    return [part for part in parts if part.strip()]


class _Run:
    """Text between two blocks."""

    def __init__(self, text):
        self.node = ET.Element("run")
        self.node.text = text

    def add(self, child):
        self.node.append(child)

    def text(self) -> str:
        text = " ".join(inline(self.node).split())
        return re.sub(rf"(?<!\S){SEAM}|{SEAM}(?!\S)", "", text).replace(SEAM, "\\ ")


def block(node) -> str:
    if node.tag == "verbatim":
        return code_block(node.text or "")
    if node.tag in ("programlisting", "preformatted"):
        return code_block(listing(node) if node.tag == "programlisting" else plain(node))
    if node.tag in ("itemizedlist", "orderedlist"):
        mark = "- " if node.tag == "itemizedlist" else "#. "
        items = ["\n\n".join(part for p in item.findall("para") for part in paragraph(p)) for item in node.findall("listitem")]
        return "\n".join(mark + item.replace("\n", "\n" + " " * len(mark)) for item in items)
    return "\n\n".join(part for p in node.findall("para") for part in paragraph(p))


def rst(node) -> str:
    """A description's paragraphs."""
    if node is None:
        return ""
    return "\n\n".join(part for p in node.findall("para") for part in paragraph(p))
