"""Formats the rows of scripts/bench imagenet as tables and a picture (see bench/run.py). Uses only the standard
library of Python."""

import html
import re

OURS, PEER = "#1b7837", "#c51b7d"
NAMES = {"none": "one process", "dp": "DataParallel", "ddp": "DDP", "apex": "apex's settings", "horovod": "Horovod's way"}
LEFT, RIGHT, BAR, GAP, TOP = 130, 360, 13, 12, 44


def read(rows):
    """Returns the rows of times (way, ours, peer), the rows of accuracy (level, mixed, float), and what was
    measured."""
    times, accuracy, subject = [], [], ""
    for row in rows:
        if found := re.fullmatch(r"imagenet: (.+), (\w+); peer (.+)", row["case"]):
            subject = found[1]
            times.append((NAMES[found[2]], row["ours"], row["peer"]))
        elif found := re.search(r"(O\d)", row["case"]):
            accuracy.append((f"bf16, {found[1]}", row["ours"], row["peer"]))
    return times, accuracy, subject


def text(x, y, content, anchor="start", weight="normal"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11" font-weight="{weight}">{html.escape(content)}</text>'


def panel(top, title, rows, names, unit):
    parts = [text(10, top + 14, title, weight="bold")]
    for i, (name, colour) in enumerate(zip(names, (OURS, PEER))):
        parts += [f'<rect x="{LEFT + i * 150}" y="{top + 22}" width="10" height="10" fill="{colour}"/>', text(LEFT + i * 150 + 15, top + 31, name)]
    most = max(max(ours, peer) for _, ours, peer in rows)
    y = top + TOP
    for name, *values in rows:
        parts.append(text(LEFT - 8, y + BAR + 4, name, "end"))
        for value, colour in zip(values, (OURS, PEER)):
            width = RIGHT * value / most
            parts += [f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 1}" fill="{colour}"/>',
                      text(LEFT + width + 5, y + BAR - 3, f"{value:.4g} {unit}")]  # fmt: skip
            y += BAR
        y += GAP
    return parts, y


def picture(times, accuracy, subject):
    parts, bottom = panel(0, f"One epoch: {subject}", times, ("ddprun", "Python"), "s")
    more, bottom = panel(bottom + 6, "Right after the same training", accuracy, ("mixed precision", "float"), "%")
    width = LEFT + RIGHT + 80
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom}" viewBox="0 0 {width} {bottom}" font-family="sans-serif">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, *more, "</svg>"]) + "\n"


def own_tables(rows):
    times, accuracy, subject = read(rows)
    lines = [f"| one epoch: {subject} | ddprun, s | Python, s |", "|---|---|---|"]
    lines += [f"| {name} | {ours:.2f} | {peer:.2f} |" for name, ours, peer in times]
    lines += ["", "| right after the same training | mixed precision | float |", "|---|---|---|"]
    lines += [f"| {name} | {ours:.1f} % | {peer:.1f} % |" for name, ours, peer in accuracy]
    return lines, []


def pictures(rows):
    return {"imagenet.svg": picture(*read(rows))}
