"""Writes base/character_widths.h: `make_character_widths.py > base/character_widths.h`.

The ranges of characters that take no column of a terminal, or two, by the Unicode tables of this Python. As in wcwidth():
no column for marks that stand over or around another character, for format characters (but the soft hyphen and
Arabic signs that enclose numbers, which are shown) and for the later parts of a Hangul syllable; two for East Asian wide and full-width characters. Characters that
Unicode has not assigned join two ranges, which keeps the table short.
"""

import sys
import unicodedata

COLUMNS = 120  # of a line in the file


def width(code: int) -> int | None:
    """None: not assigned, any width will do."""
    character = chr(code)
    category = unicodedata.category(character)
    is_unseen = category == "Cf" and code != 0xAD and unicodedata.bidirectional(character) not in ("AN", "AL")
    if category in ("Mn", "Me") or is_unseen or 0x1160 <= code <= 0x11FF:
        return 0
    if category == "Cn":  # not assigned; the planes of ideographs are wide from end to end
        return 2 if 0x20000 <= code <= 0x3FFFD else None
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def ranges(wanted: int):
    first = last = None
    for code in range(sys.maxunicode + 1):
        found = width(code)
        if found == wanted:
            first = code if first is None else first
            last = code
        elif found is not None and first is not None:
            yield first, last
            first = None
    if first is not None:
        yield first, last


def table(name: str, wanted: int) -> str:
    lines, line = [], "   "
    for first, last in ranges(wanted):
        entry = f" {{0x{first:04X}, 0x{last:04X}}},"
        if len(line) + len(entry) > COLUMNS:
            lines.append(line)
            line = "   "
        line += entry
    return "\n".join([f"inline constexpr CharacterRange {name}[] = {{", *lines, line, "};"])


print(f"""// Characters that take no column of a terminal, or two. Written by tools/make_character_widths.py from
// Unicode {unicodedata.unidata_version}.
// clang-format off
#pragma once

namespace ddp {{

struct CharacterRange {{
  char32_t first;
  char32_t last;
}};

{table("kNoColumn", 0)}

{table("kTwoColumns", 2)}

}}  // namespace ddp""")
