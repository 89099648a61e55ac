"""Formats the rows of scripts/bench rendezvous as a table and as a plot over the number of nodes with two
logarithmic axes (see bench/run.py)."""

import math
import re

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 760, 440, 60, 30, 50, 230
CURVES = [
    ("rendezvous, s", "#1f77b4"),
    ("CPU of it, s", "#7fb2dd"),
    ("store: all ranks meet, s", "#d62728"),
    ("CPU of that, s", "#ef9a9a"),
    ("failure known to all, s", "#2ca02c"),
    ("heartbeats, CPU", "#9467bd"),
    ("memory, MB", "#8c564b"),
]


SHOWN_NODES = (100, 1000, 3000, 10000)


def points(rows):
    """Returns the measurements by number of nodes, and the other rows."""
    table, others = {}, []
    for row in rows:
        if found := re.fullmatch(r"rendezvous: (\d+) nodes x \d+ ranks", row["case"]):
            table.setdefault(int(found[1]), {"nodes": int(found[1])})[row["metric"]] = row["ours"]
        else:
            others.append(row)
    return list(table.values()), others


def own_tables(rows):
    table, others = points(rows)
    number = lambda value: f"{value:.2f}" if value < 1 else f"{value:.3g}"
    lines = ["| nodes of 8 ranks | all nodes have met, s (CPU of the coordinator) | all ranks have met at the store, s (CPU) | memory, MB "
             "| heartbeats, messages/s (cores) | failure known to all, s |", "|---|---|---|---|---|---|"]
    for row in table:
        if row["nodes"] in SHOWN_NODES:
            lines.append(f"| {row['nodes']:,} | {number(row['rendezvous, s'])} ({number(row['CPU of it, s'])}) | {number(row['store: all ranks meet, s'])} "
                         f"({number(row['CPU of that, s'])}) | {row['memory, MB']:.0f} | {row['heartbeats, messages/s']:,} ({row['heartbeats, CPU']:.2f}) "
                         f"| {number(row['failure known to all, s'])} |")
    return lines, others


def pictures(rows):
    return {"rendezvous-scale.svg": svg(points(rows)[0])}


def svg(table):
    nodes = [row["nodes"] for row in table]
    values = [row[name] for row in table for name, _ in CURVES if row[name] > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    first, last = math.log10(nodes[0]), math.log10(nodes[-1])
    x = lambda n: LEFT + (math.log10(n) - first) / (last - first) * (WIDTH - LEFT - RIGHT)
    y = lambda v: HEIGHT - BOTTOM - (math.log10(v) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="sans-serif" font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for count in nodes:
        parts.append(f'<line x1="{x(count):.1f}" x2="{x(count):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>')
        parts.append(f'<text x="{x(count):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{count}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
                 'nodes, of 8 ranks each (all on one machine)</text>')
    for index, (name, colour) in enumerate(CURVES):
        points = " ".join(f"{x(row['nodes']):.1f},{y(row[name]):.1f}" for row in table if row[name] > 0)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = TOP + 14 + 20 * index
        parts.append(f'<line x1="{WIDTH - RIGHT + 15}" x2="{WIDTH - RIGHT + 40}" y1="{at}" y2="{at}" stroke="{colour}" '
                     'stroke-width="2"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 46}" y="{at + 4}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
