"""The manifest of a checkpoint's folder, and the checksums in it. Needs torch alone."""

import decimal
import errno
import functools
import math
import os
import pathlib
import re
import stat

import torch

from .._backend import load_library
from . import _json
from . import _shards as shards

MANIFEST = "MANIFEST.json"
MOST_MANIFEST_BYTES = 1 << 20  # that are read, as in C++: some 10,000 files
STEP = re.compile(r"step-(\d{8,})$")


class DamagedCheckpoint(RuntimeError):
    """A folder that is not a checkpoint, or not what its manifest says."""


# -- CRC32C (Castagnoli), many pieces at once -------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def _byte_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


@functools.lru_cache(maxsize=None)
def _pair_table():
    """For two bytes at once."""
    table = torch.tensor(_byte_table())
    pairs = torch.arange(65536)
    once = table[pairs & 255] ^ (pairs >> 8)
    return table[once & 255] ^ (once >> 8)


def _plain_crc(data, crc):
    table = _byte_table()
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc


def _times(matrix, vector):
    """A matrix over GF(2), one number per column, times a tensor of vectors."""
    result = torch.zeros_like(vector)
    for bit, column in enumerate(matrix):
        result ^= torch.where(vector >> bit & 1 == 1, column, 0)
    return result


def _squared(matrix):
    return _times(matrix, torch.tensor(matrix)).tolist()


def _shift(length):
    """The matrix that a register goes through when `length` bytes of zeros follow."""
    power = [_byte_table()[1 << bit & 255] ^ (1 << bit) >> 8 for bit in range(32)]
    result = [1 << bit for bit in range(32)]
    while length:
        if length & 1:
            result = _times(power, torch.tensor(result)).tolist()
        power = _squared(power)
        length >>= 1
    return result


def _registers(words, crcs):
    """What the registers `crcs` are after each one's row of `words`, two bytes each."""
    table = _pair_table()
    index, looked_up = torch.empty_like(crcs), torch.empty_like(crcs)
    for begin in range(0, words.shape[1], 256):
        block = words[:, begin : begin + 256].t().to(torch.int64, memory_format=torch.contiguous_format)
        for word in block:
            torch.bitwise_xor(crcs, word, out=index).bitwise_and_(0xFFFF)
            torch.index_select(table, 0, index, out=looked_up)
            crcs.bitwise_right_shift_(16).bitwise_xor_(looked_up)
    return crcs


def _combined(crcs, length, pieces):
    """Of pieces of `length` bytes each, `pieces` of which follow each other."""
    matrix = _shift(length)
    while pieces > 1:
        crcs = _times(matrix, crcs[0::2]) ^ crcs[1::2]
        matrix = _squared(matrix)
        pieces //= 2
    return crcs


@functools.lru_cache(maxsize=None)
def _native():
    """The operator of the backend's library, with the processor's instruction; None where this torch has no such library."""
    try:
        load_library()
    except (RuntimeError, OSError):
        return None
    return getattr(torch.ops.ddprun, "crc32c", None)  # a library of another ddprun may lack it


def crc32c(data: torch.Tensor) -> int:
    """The checksum of a one-dimensional uint8 tensor."""
    native = _native()
    if native is not None and data.numel():
        return native(data.contiguous(), data.numel())[0]
    return _crc32c_by_tables(data)


def _crc32c_by_tables(data):
    lanes = 1 << 14
    length = data.numel() // lanes & ~1
    crc = 0xFFFFFFFF
    if length >= 16:
        words = data[: lanes * length].view(torch.int16).view(lanes, length // 2)
        crcs = torch.zeros(lanes, dtype=torch.int64)
        crcs[0] = crc
        crc = int(_combined(_registers(words, crcs), length, lanes))
        data = data[lanes * length :]
    return _plain_crc(bytes(data.tolist()), crc) ^ 0xFFFFFFFF


BLOCK = 1 << 20  # bytes with a checksum of their own in a sharded checkpoint


def crc32c_blocks(data: torch.Tensor) -> list:
    """The checksums of each BLOCK of a one-dimensional uint8 tensor; the last one may be shorter."""
    native = _native()
    return native(data.contiguous(), BLOCK) if native is not None else _crc32c_blocks_by_tables(data)


def _crc32c_blocks_by_tables(data):
    whole, pieces, at_once = data.numel() // BLOCK, 64, 256
    result = []
    for begin in range(0, whole, at_once):
        blocks = min(at_once, whole - begin)
        words = data[begin * BLOCK : (begin + blocks) * BLOCK].view(torch.int16).view(blocks * pieces, -1)
        crcs = torch.zeros(blocks * pieces, dtype=torch.int64)
        crcs[::pieces] = 0xFFFFFFFF
        crcs = _combined(_registers(words, crcs), words.shape[1] * 2, pieces)
        result += (crcs ^ 0xFFFFFFFF).tolist()
    if data.numel() % BLOCK:
        result.append(_crc32c_by_tables(data[whole * BLOCK :]))
    return result


def crc32c_of_blocks(checksums: list, size: int) -> int:
    """The checksum of all of a file of `size` bytes with these blocks."""
    crc, matrix = 0, _shift(BLOCK)
    for number, checksum in enumerate(checksums):
        last = min(BLOCK, size - number * BLOCK)
        columns = matrix if last == BLOCK else _shift(last)
        crc = functools.reduce(int.__xor__, (column for bit, column in enumerate(columns) if crc >> bit & 1), checksum)
    return crc


def text_crc32c(text: bytes) -> int:
    return _plain_crc(text, 0xFFFFFFFF) ^ 0xFFFFFFFF


def file_bytes(path: pathlib.Path) -> torch.Tensor:
    """The bytes of a file, mapped."""
    size = path.stat().st_size
    if size == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)


# -- The checksums of a sharded checkpoint's blocks, so that a rank can read a part of a file -----------------------------


BLOCKS = shards.BLOCKS
_BLOCKS_HEAD = f"ddprun block checksums 1: CRC32C of each {BLOCK} bytes\n"


def format_blocks(blocks):
    """The text of block-checksums.txt: each block's checksum, by file."""
    lines = [f"{name} {''.join(f'{crc:08x}' for crc in checksums)}\n" for name, checksums in sorted(blocks.items())]
    return _BLOCKS_HEAD + "".join(lines)


def read_blocks(path, files):
    """The checksums in block-checksums.txt by file, for files of these sizes and checksums by name. Raises OSError, and ValueError for
    what format_blocks() does not make."""
    most = len(_BLOCKS_HEAD) + sum(len(name) + 2 + 8 * -(-size // BLOCK) for name, (size, _) in files.items())
    text = bounded_bytes(path, most).decode()
    if not text.startswith(_BLOCKS_HEAD):
        raise ValueError("does not begin as this program writes it")
    blocks = {}
    for line in text[len(_BLOCKS_HEAD):].splitlines(keepends=True):
        match = re.fullmatch(r"(\S+) ((?:[0-9a-f]{8})*)\n", line)
        if not match or match[1] in blocks:
            raise ValueError("has a broken line" if not match else f"names {match[1]} twice")
        blocks[match[1]] = [int(match[2][begin : begin + 8], 16) for begin in range(0, len(match[2]), 8)]
    return blocks


def check_blocks(path, files):
    """Raises ValueError unless block-checksums.txt has the checksums of each shard's blocks, of which the manifest's follows."""
    blocks = read_blocks(path, files)
    for name in sorted(name for name in files if shards.parse(name)):
        if name not in blocks:
            raise ValueError(f"does not have {name}")
    for name, checksums in blocks.items():
        if name not in files:
            continue
        size, crc = files[name]
        if len(checksums) != -(-size // BLOCK):
            raise ValueError(f"has {len(checksums)} checksums of {name}, but {size} bytes have {-(-size // BLOCK)} blocks")
        if crc32c_of_blocks(checksums, size) != crc:
            raise ValueError(f"has checksums of {name}{shards.owner(name)} that are not those of the file in the manifest")


# -- The manifest: one text for one content, so that any change is seen ------------------------------------------------


def _number(value, sequence):
    """As C++'s std::to_chars writes it: the shorter of both notations."""
    value = float(value)
    if not math.isfinite(value):
        name = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return f'{{"__float__": "{name}"}}' if sequence else "null"
    sign, digits, exponent = decimal.Decimal(repr(value)).normalize().as_tuple()
    mantissa = "".join(map(str, digits))
    power = exponent + len(mantissa) - 1
    scientific = mantissa[0] + ("." + mantissa[1:] if len(mantissa) > 1 else "") + f"e{'-' if power < 0 else '+'}{abs(power):02d}"
    fixed = str(int(abs(value))) if value.is_integer() else f"{abs(decimal.Decimal(repr(value))):f}"
    return ("-" if sign else "") + (fixed if len(fixed) <= len(scientific) else scientific)


def format_manifest(step, sequence, world_size, metrics, files):
    """In version 2 of the format, or in version 1 without a sequence: the number of the save within its run."""

    def items(pairs):
        return ",".join(f'\n    "{name}": {value}' for name, value in sorted(pairs.items()))

    for name in metrics:
        if not 0 < len(name) < 256 or re.search(r'["\\\x00-\x1f\x7f]', name):
            raise ValueError(f"{name!r} cannot be the name of a metric")
    for name in files:
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}", name) or name == MANIFEST:
            raise ValueError(f"{name!r} cannot be the name of a checkpoint's file")
    records = {name: f'{{"size": {size}, "crc32c": "{crc:08x}"}}' for name, (size, crc) in files.items()}
    numbered = f',\n  "sequence": {sequence}' if sequence else ""
    text = (
        f'{{\n  "format": "ddprun-checkpoint",\n  "version": {2 if sequence else 1},\n  "step": {step}{numbered},\n'
        f'  "world_size": {world_size},\n  "metrics": {{{items({k: _number(v, sequence) for k, v in metrics.items()})}}},\n  "files": {{{items(records)}}},\n  "crc32c": "'
    )
    text += f'{text_crc32c(text.encode()):08x}"\n}}\n'
    if len(text.encode()) > MOST_MANIFEST_BYTES:
        raise ValueError(f"the checkpoint's manifest would have {len(text.encode())} bytes, more than the {MOST_MANIFEST_BYTES} that are read: give it fewer metrics")
    return text


def _metric(value):
    if isinstance(value, dict):
        return float(value["__float__"])
    return math.nan if value is None else value


def refuse_unread(error: OSError, text: str):
    """Raises DamagedCheckpoint, or `error` for a shortage, in which any checkpoint would seem to be bad."""
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise error
    raise DamagedCheckpoint(text) from error


def open_regular(path):
    """A descriptor of a regular file, to be closed by the caller. Raises OSError, also for what is something else: it does not wait
    for the writer of a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "expected a regular file", str(path))


def regular_bytes(path, size=-1):
    """The first `size` bytes of a regular file, or all. Raises OSError as open_regular() does."""
    with open(open_regular(path), "rb") as file:
        return file.read(size)


def bounded_bytes(path, most):
    """All of a regular file. Raises OSError as open_regular() does, and ValueError for more than `most` bytes."""
    with open(open_regular(path), "rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            raise ValueError(f"has {size} bytes, more than the {most} that are read")
        return file.read(most)


def parse_manifest(folder: pathlib.Path):
    """The manifest of a checkpoint's folder as a dict, whether it fits the folder and its files or not."""
    try:
        text = bounded_bytes(folder / MANIFEST, MOST_MANIFEST_BYTES)
    except OSError as error:
        refuse_unread(error, f"{folder} is not a complete checkpoint: {error}")
    except ValueError as error:
        raise DamagedCheckpoint(f"{folder / MANIFEST} is damaged: it {error}") from error
    try:
        manifest = _json.parse(text)
        files = {name: (record["size"], int(record["crc32c"], 16)) for name, record in manifest["files"].items()}
        metrics = {name: _metric(value) for name, value in manifest["metrics"].items()}
        numbers = [manifest["step"], manifest.get("sequence", 0), manifest["world_size"], *(size for size, _ in files.values())]
        if not all(type(each) is int for each in numbers) or not all(0 <= each < 2**63 for each in numbers[:2]):
            raise ValueError("step, sequence, world_size and sizes must be whole numbers, the first two not negative and of 64 bits")
        good = format_manifest(manifest["step"], manifest.get("sequence", 0), manifest["world_size"], metrics, files).encode() == text
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise DamagedCheckpoint(f"{folder / MANIFEST} is damaged: {error}") from error
    if not good:
        raise DamagedCheckpoint(f"{folder / MANIFEST} is damaged or of another version")
    return {**manifest, "metrics": metrics, "files": files}


def read_manifest(folder: pathlib.Path):
    """The manifest of a checkpoint's folder as a dict. Of the files only the names are looked at: whether they are of as many ranks as it says."""
    manifest = parse_manifest(folder)
    if (named := STEP.match(folder.name)) and int(named[1]) != manifest["step"]:
        raise DamagedCheckpoint(f"{folder} has the manifest of step {manifest['step']}")
    if fault := shards.fault(manifest["files"], manifest["world_size"]):
        raise DamagedCheckpoint(f"{folder} is damaged: {fault}")
    return manifest
