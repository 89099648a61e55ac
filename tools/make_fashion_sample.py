#!/usr/bin/env python3
"""Makes the bundled sample: a part of Fashion-MNIST in the binary layout of CIFAR-10.

Reads the four IDX files of Fashion-MNIST (on Debian: apt-get install dataset-fashion-mnist) and writes
data_batch_1.bin, test_batch.bin and batches.meta.txt. The selection is deterministic and balanced: the first images of
each class, kept in file order so that the classes stay mixed. Each 28x28 grey image is centred in 32x32 black pixels
and repeated over three channels. One record is the label byte and 3 x 32 x 32 pixels, channel by channel, row by row.

--check writes nothing, and fails if the files in --output differ from those that this run would write.
"""

import argparse
import gzip
import math
import pathlib
import struct
import sys

CLASS_NAMES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
SIDE, PADDED_SIDE, CHANNELS = 28, 32, 3


def read_idx(path, dimensions):
    """Returns the sizes and the bytes of a gzipped IDX file of unsigned bytes."""
    with gzip.open(path, "rb") as file:
        content = file.read()
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, 8, dimensions]):
        sys.exit(f"{path}: not an IDX file of unsigned bytes with {dimensions} dimension(s)")
    sizes = struct.unpack(f">{dimensions}I", content[4:header])
    expected = header + math.prod(sizes)
    if len(content) != expected:
        sys.exit(f"{path}: expected {expected} bytes for {sizes}, got {len(content)}")
    return sizes, content[header:]


def padded(image):
    """Returns a 28x28 grey image centred in 32x32 black pixels."""
    border = (PADDED_SIDE - SIDE) // 2
    empty_rows = bytes(border * PADDED_SIDE)
    empty_columns = bytes(border)
    rows = (image[row * SIDE : (row + 1) * SIDE] for row in range(SIDE))
    return empty_rows + b"".join(empty_columns + row + empty_columns for row in rows) + empty_rows


def records(source, prefix, count):
    """Returns `count` records of the set with the given prefix, with the same number for every class."""
    image_sizes, images = read_idx(source / f"{prefix}-images-idx3-ubyte.gz", 3)
    (label_count,), labels = read_idx(source / f"{prefix}-labels-idx1-ubyte.gz", 1)
    if image_sizes != (label_count, SIDE, SIDE):
        sys.exit(f"{source}: {prefix}: expected {label_count} images of {SIDE}x{SIDE}, got {image_sizes}")
    if count % len(CLASS_NAMES):
        sys.exit(f"expected a multiple of {len(CLASS_NAMES)} images, got {count}")
    wanted = [count // len(CLASS_NAMES)] * len(CLASS_NAMES)
    chosen = []
    for index, label in enumerate(labels):
        if label >= len(CLASS_NAMES):
            sys.exit(f"{source}: {prefix}: image {index} has label {label}, expected 0 to {len(CLASS_NAMES) - 1}")
        if wanted[label]:
            wanted[label] -= 1
            image = images[index * SIDE * SIDE : (index + 1) * SIDE * SIDE]
            chosen.append(bytes([label]) + padded(image) * CHANNELS)
    if len(chosen) != count:
        sys.exit(f"{source}: {prefix}: expected {count} images, got {len(chosen)}")
    return b"".join(chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True,
                        help="folder with the four IDX .gz files (dpkg -L dataset-fashion-mnist shows it)")
    parser.add_argument("--output", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "examples/data/fashion-mnist-sample",
                        help="folder to write to (default: the bundled sample's)")
    parser.add_argument("--train", type=int, default=2000, help="number of training images (default: 2000)")
    parser.add_argument("--test", type=int, default=500, help="number of test images (default: 500)")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()

    files = {
        "data_batch_1.bin": records(options.source, "train", options.train),
        "test_batch.bin": records(options.source, "t10k", options.test),
        "batches.meta.txt": "".join(name + "\n" for name in CLASS_NAMES).encode(),
    }
    if options.check:
        different = [name for name, content in files.items()
                     if not (options.output / name).is_file() or (options.output / name).read_bytes() != content]
        if different:
            sys.exit(f"{options.output}: not what {options.source} gives: {', '.join(different)}")
        return
    options.output.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (options.output / name).write_bytes(content)
        print(f"{options.output / name}: {len(content)} bytes")


if __name__ == "__main__":
    main()
