"""Writes a text's bytes as files of tokens, as nanoGPT's prepare.py does: make_tokens.py TEXT FOLDER [--val-ratio 0.1].

FOLDER/train.bin and FOLDER/val.bin hold numbers of 16 bits. With another tokenizer (tiktoken, sentencepiece) only the line
that makes tokens changes.
"""

import argparse
import array
import pathlib
import sys


def main():
    parser = argparse.ArgumentParser(description="Writes a text's bytes as files of tokens.")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--val-ratio", type=float, default=0.1)
    arguments = parser.parse_args()
    tokens = array.array("H", list(arguments.text.read_bytes()))
    if sys.byteorder == "big":
        tokens.byteswap()
    cut = int(len(tokens) * (1 - arguments.val_ratio))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train.bin", tokens[:cut]), ("val.bin", tokens[cut:])):
        (arguments.folder / name).write_bytes(part.tobytes())
        print(f"{arguments.folder / name}: {len(part)} tokens")


main()
