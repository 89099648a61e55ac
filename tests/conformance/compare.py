"""Compares what two programs recorded, tensor by tensor. Standard library only."""

import array
import dataclasses
import math
import struct

FORMATS = {"float32": "f", "float64": "d", "int64": "q"}


@dataclasses.dataclass
class Record:
    name: str
    dtype: str
    shape: str
    content: bytes

    def values(self):
        if self.dtype in FORMATS:
            return list(array.array(FORMATS[self.dtype], self.content))
        if self.dtype == "float16":
            return list(struct.unpack(f"<{len(self.content) // 2}e", self.content))
        if self.dtype == "bfloat16":
            halves = struct.unpack(f"<{len(self.content) // 2}H", self.content)
            return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
        return []


def read(path):
    """The records in `path`, by name, in their order."""
    data, position, result = path.read_bytes(), 0, {}
    while position < len(data):
        end = data.index(b"\n", position)
        name, dtype, shape, length = data[position:end].decode().split("|")
        position = end + 1 + int(length)
        result[name] = Record(name, dtype, shape, data[end + 1:position])
    return result


@dataclasses.dataclass
class Difference:
    """The first tensor that differs, in the order in which the judge computed them."""

    rank: int
    name: str
    text: str

    def __str__(self):
        return f"rank {self.rank}, {self.name}: {self.text}"


def records_of(folder, languages, rank):
    """Of several programs that went on from each other, as of one."""
    result = {}
    for hop, language in languages:
        result |= read(folder / f"{language}.{hop}.rank{rank}")
    return result


def close(one, other, tolerance):
    return one == other or math.isnan(one) and math.isnan(other) or abs(one - other) <= tolerance * max(1.0, abs(other))


def first_difference(case, folder, tolerance):
    """None where every bit is equal, or with a `tolerance` every value nearly so."""
    hops = [(number, language) for number, (language, _) in enumerate(case["hops"] or [])] or [(-1, "cpp")]
    for rank in range(case["ranks"]):
        expected, actual = read(folder / f"python.-1.rank{rank}"), records_of(folder, hops, rank)
        # Its buffers come with the next forward, and optimizers that share their state out have it nowhere whole.
        skipped = (lambda name: case["optimizer"]["zero"] and "/state/" in name)
        names = [name for name in expected if not skipped(name)]
        for name in names:
            if name not in actual:
                return Difference(rank, name, "not there in C++")
            text = difference(expected[name], actual[name], tolerance)
            if text:
                return Difference(rank, name, text)
        for name in actual:
            if name not in expected:
                return Difference(rank, name, "not there in Python")
    return None


def difference(expected, actual, tolerance):
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        return f"{actual.dtype} [{actual.shape}] in C++, {expected.dtype} [{expected.shape}] in Python"
    if expected.content == actual.content:
        return None
    pairs = list(zip(actual.values(), expected.values()))
    if tolerance and all(close(one, other, tolerance) for one, other in pairs):
        return None
    # Which NaN it is depends on where in a vector of the processor it was computed.
    different = [(place, one, other) for place, (one, other) in enumerate(pairs)
                 if not (math.isnan(one) and math.isnan(other)) and (one != other or math.copysign(1, one) != math.copysign(1, other))]
    if not different:
        return None
    place, one, other = max(different, key=lambda each: abs(each[1] - each[2]) if math.isfinite(each[1] - each[2]) else math.inf)
    return f"{len(different)} of {len(pairs)} values differ, most at {place}: {one!r} in C++, {other!r} in Python"
