#!/usr/bin/env python3
"""Draws how a ring all-reduce moves data: `make_ring_picture.py FILE.svg`.

There are four ranks with four parts each. The contents of each rank after every step are computed with the algorithm
and then drawn, so the picture always matches the algorithm."""

import pathlib
import sys

RANKS = 4
CELL, GAP, LEFT, TOP = 58, 6, 70, 50
PANEL = RANKS * CELL + 40
INK, PALE, HALF, FULL = "#1f2937", "#e5e7eb", "#93c5fd", "#2563eb"


def steps():
    """Yields (title, contents, messages) of each step. The contents are, for each rank and part, the set of ranks
    whose numbers are included. A message is (from, to, part)."""
    held = [[{rank} for _ in range(RANKS)] for rank in range(RANKS)]
    yield "before", [[set(part) for part in row] for row in held], []
    for phase in ("reduce-scatter", "all-gather"):
        for step in range(RANKS - 1):
            offset = 0 if phase == "reduce-scatter" else 1
            messages = [(rank, (rank + 1) % RANKS, (rank - step + offset) % RANKS) for rank in range(RANKS)]
            sent = {(to, part): set(held[rank][part]) for rank, to, part in messages}
            for (to, part), numbers in sent.items():
                held[to][part] = held[to][part] | numbers if phase == "reduce-scatter" else numbers
            yield f"{phase}, step {step + 1}", [[set(part) for part in row] for row in held], messages


def panel(title, held, messages, x, y):
    moved = {(to, part) for _, to, part in messages}
    yield f'<text x="{x + RANKS * CELL / 2}" y="{y - 14}" text-anchor="middle" font-weight="bold">{title}</text>'
    for rank, row in enumerate(held):
        for part, numbers in enumerate(row):
            colour = FULL if len(numbers) == RANKS else HALF if len(numbers) > 1 else PALE
            ink = "#ffffff" if colour == FULL else INK
            cell_x, cell_y = x + part * CELL, y + rank * (CELL + GAP)
            edge = ' stroke="#dc2626" stroke-width="3"' if (rank, part) in moved else ' stroke="#9ca3af"'
            yield f'<rect x="{cell_x + 2}" y="{cell_y}" width="{CELL - 4}" height="{CELL}" rx="5" fill="{colour}"{edge}/>'
            text = "sum" if len(numbers) == RANKS else "+".join(str(number) for number in sorted(numbers))
            yield f'<text x="{cell_x + CELL / 2}" y="{cell_y + CELL / 2 + 5}" text-anchor="middle" fill="{ink}" font-size="13">{text}</text>'


def picture() -> str:
    panels = list(steps())
    columns = 4
    rows = -(-len(panels) // columns)
    height_of_panel = RANKS * (CELL + GAP) + 50
    width, height = LEFT + columns * PANEL, TOP + rows * height_of_panel + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="15" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for i, (title, held, messages) in enumerate(panels):
        x, y = LEFT + i % columns * PANEL, TOP + i // columns * height_of_panel
        if i % columns == 0:
            parts += [f'<text x="{LEFT - 10}" y="{y + r * (CELL + GAP) + CELL / 2 + 5}" text-anchor="end">rank {r}</text>' for r in range(RANKS)]
        parts += panel(title, held, messages, x, y)
    legend = "A cell is a part of the data; its text says whose numbers are summed in it. Red edge: has just come from the rank before."
    parts.append(f'<text x="{LEFT}" y="{height - 12}" font-size="14">{legend}</text>')
    return "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_text(picture())
