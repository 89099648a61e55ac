#!/usr/bin/env python3
"""Makes an image folder of the bundled sample: `make_images.py FOLDER [--per-class 60] [--classes 5]`.

FOLDER gets a sub-folder of PNG files per class. The pictures are Fashion-MNIST's (MIT licence, examples/data), 32 x 32
pixels; nothing but Python's standard library is needed."""

import argparse
import pathlib
import struct
import zlib

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / "data" / "fashion-mnist-sample"
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE


def png(record):
    """The bytes of a PNG file of a CIFAR-10 record's three planes."""
    plane = SIDE * SIDE
    rows = b""
    for y in range(SIDE):
        rows += b"\0" + bytes(record[1 + channel * plane + y * SIDE + x] for x in range(SIDE) for channel in range(3))

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--per-class", type=int, default=60)
    parser.add_argument("--classes", type=int, default=5)
    args = parser.parse_args()
    names = (SAMPLE / "batches.meta.txt").read_text().split("\n")[: args.classes]
    content = (SAMPLE / "data_batch_1.bin").read_bytes()
    counts = [0] * args.classes
    for start in range(0, len(content), RECORD):
        record = content[start : start + RECORD]
        label = record[0]
        if label >= args.classes or counts[label] >= args.per_class:
            continue
        folder = args.folder / names[label].replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{counts[label]:04}.png").write_bytes(png(record))
        counts[label] += 1
    print(f"{sum(counts)} pictures of {args.classes} classes in {args.folder}")


if __name__ == "__main__":
    main()
