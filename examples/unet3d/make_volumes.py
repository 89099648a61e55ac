#!/usr/bin/env python3
"""Makes volumes to segment: `make_volumes.py FOLDER [--train 16] [--validation 4] [--side 32] [--seed 0]`.

Each is a brighter ellipsoid in noise, with a distractor that is small and as bright; the label is the ellipsoid. NIfTI-1
files in imagesTr, labelsTr, imagesVal and labelsVal. They are computed here, of nobody's data, and under the project's
licence; nothing but Python's standard library is needed."""

import argparse
import gzip
import pathlib
import random
import struct


def nifti(side, kind, values):
    """A single-file NIfTI-1 volume of bytes."""
    header = bytearray(348)
    struct.pack_into("<i", header, 0, 348)
    struct.pack_into("<8h", header, 40, 3, side, side, side, 1, 1, 1, 1)
    struct.pack_into("<hh", header, 70, 2, 8)  # unsigned bytes
    struct.pack_into("<8f", header, 76, 1, 1, 1, 1, 1, 1, 1, 1)
    struct.pack_into("<3f", header, 108, 352, 1, 0)
    header[148 : 148 + len(kind)] = kind.encode()
    header[344:348] = b"n+1\0"
    return gzip.compress(bytes(header) + b"\0" * 4 + bytes(values), mtime=0)


def volume(side, source):
    """(intensities, labels), x fastest."""
    centre = [source.uniform(0.35, 0.65) * side for _ in range(3)]
    radius = [source.uniform(0.15, 0.3) * side for _ in range(3)]
    spot = [source.uniform(0.1, 0.9) * side for _ in range(3)]
    image, label = bytearray(), bytearray()
    for z in range(side):
        for y in range(side):
            for x in range(side):
                place = (x, y, z)
                is_inside = sum(((p - c) / r) ** 2 for p, c, r in zip(place, centre, radius)) <= 1
                is_spot = sum((p - c) ** 2 for p, c in zip(place, spot)) <= 4
                bright = 110 if is_inside or is_spot else 70
                image.append(min(255, max(0, round(bright + source.gauss(0, 25)))))
                label.append(is_inside)
    return image, label


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=16)
    parser.add_argument("--validation", type=int, default=4)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    source = random.Random(args.seed)
    for part, count in (("Tr", args.train), ("Val", args.validation)):
        for i in range(count):
            for kind, values in zip(("images", "labels"), volume(args.side, source)):
                folder = args.folder / (kind + part)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{i:03}.nii.gz").write_bytes(nifti(args.side, kind, values))
    print(f"{args.train} + {args.validation} volumes of {args.side}^3 in {args.folder}")


if __name__ == "__main__":
    main()
