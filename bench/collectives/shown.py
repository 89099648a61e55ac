"""Formats the rows of scripts/bench collectives as a table and a picture (see bench/run.py). The picture has a field
for each number of ranks, with size and time on logarithmic scales."""

import html
import math
import re

COLOURS = {"shm": "#1b7837", "Python's gloo": "#c51b7d", "mpich": "#2166ac", "openmpi": "#e08214", "copy": "#888888"}
NAMES = {"shm": "ddprun, shared memory", "mpich": "MPICH", "openmpi": "Open MPI", "copy": "copy of as many bytes"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 300, 260, 60, 34, 78, 24


SHOWN_BYTES = (4, 64, 1024, 65536, 2**20, 2**26)


def measured(rows):
    """Returns {ranks: {name: {bytes: microseconds}}} and the other rows."""
    fields, others = {}, []
    for row in rows:
        found = re.fullmatch(r"all_reduce: (\d+) bytes, (\d+) ranks; peer: (.+)", row["case"])
        if not found:
            others.append(row)
            continue
        size, ranks, peer = int(found[1]), int(found[2]), found[3]
        field = fields.setdefault(ranks, {})
        field.setdefault("shm", {})[size] = row["ours"]
        field.setdefault(peer, {})[size] = row["peer"]
    return fields, others


def own_tables(rows):
    fields, others = measured(rows)
    names = [name for name in COLOURS if any(name in field for field in fields.values())]
    lines = ["| ranks | float32 | " + " | ".join(f"{NAMES.get(name, name)}, µs" for name in names) + " |", "|---" * (2 + len(names)) + "|"]
    for ranks, field in sorted(fields.items()):
        for size in SHOWN_BYTES:
            if size in field["shm"]:
                times = (field.get(name, {}).get(size) for name in names)  # some peers lack some numbers of ranks
                lines.append(f"| {ranks} | {bytes_text(size)} | " + " | ".join(map(shown_time, times)) + " |")
    return lines, others


def pictures(rows):
    return {"all-reduce.svg": "\n".join(draw(measured(rows)[0])) + "\n"}


def bytes_text(size):
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


def shown_time(microseconds):
    return "" if microseconds is None else f"{microseconds:,.0f}" if microseconds >= 100 else f"{microseconds:.3g}"


def time_text(microseconds):
    return f"{microseconds / 1000:g} ms" if microseconds >= 1000 else f"{microseconds:g} µs"


def text(x, y, content, anchor="middle", size=11):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{html.escape(content)}</text>'


def line(points, colour, width=1.0):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


class Scale:
    def __init__(self, values, low, high):
        self.first, self.last = math.log10(min(values)), math.log10(max(values))
        self.low, self.high = low, high

    def __call__(self, value):
        share = (math.log10(value) - self.first) / max(self.last - self.first, 1e-9)
        return self.low + share * (self.high - self.low)


def draw_field(ranks, field, place, times):
    left = LEFT + place * (WIDTH + GAP)
    sizes = sorted({size for series in field.values() for size in series})
    x = Scale(sizes, left, left + WIDTH)
    y = Scale(times, TOP + HEIGHT, TOP)
    yield text(left + WIDTH / 2, TOP - 12, f"{ranks} ranks", size=13)
    for power in range(math.ceil(y.first), math.floor(y.last) + 1):
        yield line([(left, y(10**power)), (left + WIDTH, y(10**power))], "#dddddd")
        if place == 0:
            yield text(left - 6, y(10**power) + 4, time_text(10**power), "end")
    for size in sizes[::2]:
        yield line([(x(size), TOP), (x(size), TOP + HEIGHT)], "#eeeeee")
        yield text(x(size), TOP + HEIGHT + 15, bytes_text(size))
    for name, series in field.items():
        points = [(x(size), y(time)) for size, time in sorted(series.items())]
        yield line(points, COLOURS.get(name, "#000000"), 2.2 if name == "shm" else 1.4)


def draw(fields):
    width, height = LEFT + len(fields) * (WIDTH + GAP), TOP + HEIGHT + BOTTOM
    times = [time for field in fields.values() for series in field.values() for time in series.values()]
    times = [10 ** math.floor(math.log10(min(times))), 10 ** math.ceil(math.log10(max(times)))]
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif">'
    yield f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    for place, (ranks, field) in enumerate(sorted(fields.items())):
        yield from draw_field(ranks, field, place, times)
    names = [name for name in COLOURS if any(name in field for field in fields.values())]
    for index, name in enumerate(names):
        at = LEFT + index * (width - LEFT) / len(names)
        yield line([(at, height - 24), (at + 22, height - 24)], COLOURS[name], 2.2)
        yield text(at + 28, height - 20, NAMES.get(name, name), "start")
    yield text(width / 2, height - 44, "size of the tensor of float32")
    yield "</svg>"
