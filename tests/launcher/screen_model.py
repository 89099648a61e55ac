"""A terminal's screen: as much of one as ddprun may use, and an error for everything else."""

import codecs
import re
import unicodedata


def width_of(character):
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class ScreenModel:
    """Lines that have scrolled out are in `history`. Newlines return the carriage, as a cooked terminal's do. When it
    becomes narrower, what was wrapped or is too long goes on in the next row, as most terminals have it."""

    def __init__(self, rows, columns):
        self.height = rows
        self.columns = columns
        self.history = []
        self.lines = [""]  # "\\0" behind a wide character
        self.wrapped = [False]  # goes on in the next one
        self.row = self.column = 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.pending = ""

    def feed(self, data):
        text = self.pending + self.decoder.decode(data)
        self.pending = ""
        while text:
            if text[0] == "\x1b":
                found = re.match(r"\x1b\[([0-9;]*)([A-Za-z])", text)
                if not found:
                    if not re.fullmatch(r"\x1b(\[[0-9;]*)?", text):
                        raise AssertionError(f"not a sequence that may be used: {text[:20]!r}")
                    self.pending = text
                    return
                self.sequence(found.group(1), found.group(2))
                text = text[found.end():]
                continue
            if text[0] == "\n":
                self.down_or_scroll(False)
                self.column = 0
            elif text[0] == "\r":
                self.column = 0
            else:
                self.put(text[0])
            text = text[1:]

    def sequence(self, parameters, final):
        count = int(parameters.split(";")[0] or 0) or 1
        if final == "A":
            self.row = max(self.row - count, 0)
        elif final == "B":
            self.row = min(self.row + count, self.height - 1)
            while len(self.lines) <= self.row:
                self.lines.append("")
                self.wrapped.append(False)
        elif final == "K" and parameters in ("", "0"):
            self.lines[self.row] = self.lines[self.row][:self.column]
        elif final == "K" and parameters == "2":
            self.lines[self.row] = ""
        elif final != "m":
            raise AssertionError(f"not a sequence that may be used: ESC [ {parameters} {final}")
        if final == "K":
            self.wrapped[self.row] = False

    def put(self, character):
        width = width_of(character)
        if self.column + width > self.columns:
            self.down_or_scroll(True)
            self.column = 0
        line = self.lines[self.row].ljust(self.column + width)
        self.lines[self.row] = line[:self.column] + character + "\0" * (width - 1) + line[self.column + width:]
        self.column += width

    def down_or_scroll(self, wrapped):
        self.wrapped[self.row] = wrapped
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")
            self.wrapped.append(False)
        if self.row == self.height:
            self.history.append(self.lines.pop(0))
            self.wrapped.pop(0)
            self.row -= 1

    def resize(self, columns):
        """The number of rows stays. The cursor stays with its character."""
        lines, wrapped, cursor = [], [], None
        joined = ""
        for number, line in enumerate(self.lines):
            if number == self.row:
                cursor = (len(lines), len(joined) + self.column)
            joined += line
            if self.wrapped[number]:
                continue
            pieces = [joined[i:i + columns] for i in range(0, len(joined), columns)] or [""]
            if cursor is not None and cursor[0] == len(lines):
                cursor = (len(lines) + cursor[1] // columns, cursor[1] % columns)
                while len(pieces) <= cursor[0] - len(lines):
                    pieces.append("")
            lines += pieces
            wrapped += [True] * (len(pieces) - 1) + [False]
            joined = ""
        self.columns = columns
        self.lines, self.wrapped = lines, wrapped
        self.row, self.column = cursor
        while len(self.lines) > self.height:
            self.history.append(self.lines.pop(0))
            self.wrapped.pop(0)
            self.row = max(self.row - 1, 0)

    def text(self):
        """All rows, those that scrolled out too, without blanks at their ends and without empty ones at the end."""
        rows = [row.replace("\0", "").rstrip() for row in self.history + self.lines]
        while rows and not rows[-1]:
            rows.pop()
        return rows
