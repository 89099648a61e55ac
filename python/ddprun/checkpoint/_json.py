"""JSON of a checkpoint's files, which anybody may have written. Needs no torch."""

import json

MOST_LEVELS = 64  # of arrays and objects, as in C++

_ALL_BUT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))


def _is_nested_deeper(text: bytes, levels):
    """Whether arrays and objects are nested more than `levels` deep. The text need not be valid JSON."""
    # A header may have 100 MB, so no step is a loop in Python. Escapes are removed first, then texts, then all but brackets.
    text = b"".join(text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]).translate(None, _ALL_BUT_BRACKETS)
    for _ in range(levels):
        inner = text.replace(b"[]", b"").replace(b"{}", b"")
        if len(inner) == len(text):  # empty, or the brackets do not match, which the parser says better
            return text.count(b"[") + text.count(b"{") > levels
        text = inner
    return bool(text)


def check_levels(text: str):
    """Raises ValueError for JSON that is nested too deeply for C++ and for parse()."""
    if _is_nested_deeper(text.encode("utf-8", "surrogatepass"), MOST_LEVELS):
        raise ValueError(f"its JSON is nested too deeply: at most {MOST_LEVELS} levels are read")


def parse(text, object_hook=None):
    """What the JSON in `text`, str or UTF-8 bytes, stands for. Raises ValueError, also for more than MOST_LEVELS levels, for which
    json.loads() would raise RecursionError."""
    if not isinstance(text, str):
        text = bytes(text).decode()
    check_levels(text)
    try:
        return json.loads(text, object_hook=object_hook)
    except RecursionError as error:  # the caller's stack is almost full
        raise ValueError("its JSON is nested too deeply for the rest of the stack") from error
