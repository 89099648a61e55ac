"""What the headers of a checkpoint's safetensors files say: whether the files of a part fit together, and which tensors are in bytes that
are damaged or missing. Needs torch alone, and of it no tensors."""

import math
import os

from . import _json
from ._manifest import DamagedCheckpoint, open_regular
from ._shards import BLOCKS, owner, part_of

_MOST_BYTES = 100_000_000  # of a header, as in safetensors
_PLACES = "DCP_SHARDING_INFO"


def _read(path, written=None):
    """The texts of a header, its tensors' entries by name, and where their bytes begin. `written` is the size that the file had. Raises
    OSError and ValueError."""
    with open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size if written is None else written
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(_MOST_BYTES, size - 8):
            raise ValueError(f"the header would have {length} bytes")
        header = _json.parse(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("the header is not an object")
    return header.pop("__metadata__", {}), header, 8 + length


def _places(texts):
    places = _json.parse(texts.get(_PLACES, "{}"))
    return places if isinstance(places, dict) else {}


# -- Which tensors are lost -------------------------------------------------------------------------------------------


def tensors_between(path, begin, end, written):
    """"'fc.weight' and others": the tensors in these bytes of a file, as its own header says; empty where it cannot be read."""
    try:
        _, tensors, start = _read(path, written)
        spans = [(name, *(start + int(each) for each in entry["data_offsets"])) for name, entry in tensors.items()]
    except (OSError, ValueError, TypeError, KeyError):
        return ""
    found = [name for name, first, last in spans if first < end and last > begin]
    return f"{found[0]!r}" + (" and others" if len(found) > 1 else "") if found else ""


def _kind_of(part):
    stem, _, kind = part.rpartition(".")
    known = {BLOCKS: "checksums of the other files' blocks", "trainer.json": "the values",
             "ranks.safetensors": "random generators and objects of the ranks"}
    if part in known:
        return known[part]
    if kind == "safetensors":
        return "states of the optimizer" if part.startswith("optim") else f"tensors of {stem}"
    return f"the state of {stem}" if kind == "state" else "a part of the run"


def content_of_lost(folder, files, lost):
    """What the file `lost` held: "a part of 'fc.weight'", as the headers of the part's other files say, otherwise the part."""
    part = part_of(lost)
    found, wanted = {}, {}
    for name in files:
        if name == lost or part_of(name) != part:
            continue
        try:
            texts, tensors, _ = _read(folder / name)
            for tensor, place in _places(texts).items():
                found[tensor] = found.get(tensor, 0) + math.prod(tensors[tensor]["shape"])
                wanted[tensor] = math.prod(place["tensor_shape"])
        except (OSError, ValueError, TypeError, KeyError):
            continue
    incomplete = sorted(name for name, count in wanted.items() if found[name] < count)
    if incomplete:
        return f"a part of {incomplete[0]!r}"
    return _kind_of(part)


# -- Whether the files of a part fit together -------------------------------------------------------------------------


def _are_sizes(values):
    return isinstance(values, list) and all(type(each) is int and 0 <= each < 2**63 for each in values)


def _box(file, name, entry, place):
    """Offsets, sizes, shape of the whole tensor and dtype of what `file` holds of the tensor `name`."""
    def refuse(text):
        raise DamagedCheckpoint(f"{file}{owner(file)} is damaged: {name!r} {text}")

    if not isinstance(entry, dict) or not _are_sizes(entry.get("shape")):
        refuse("is in the list of its shards, but not among its tensors")
    sizes, offsets, shape = entry["shape"], None, None
    if isinstance(place, dict):
        offsets, shape = place.get("saved_offsets"), place.get("tensor_shape")
    if not _are_sizes(offsets) or not _are_sizes(shape) or not len(offsets) == len(sizes) == len(shape):
        refuse(f"has shape {sizes}, but its place is {place}")
    if any(offset + size > most for offset, size, most in zip(offsets, sizes, shape)):
        refuse(f"of shape {sizes} at {offsets} is outside the whole tensor of shape {shape}")
    return offsets, sizes, shape, entry.get("dtype")


def _overlap(boxes):
    """Whether two of the boxes (offsets, sizes) have elements in common."""
    live = []
    for offsets, sizes in sorted(boxes):
        if 0 in sizes:
            continue
        live = [each for each in live if not offsets or each[0][0] + each[1][0] > offsets[0]]
        for others, theirs in live:
            if all(a < b + t and b < a + s for a, s, b, t in zip(offsets, sizes, others, theirs)):
                return True
        live.append((offsets, sizes))
    return False


def check_part(paths, part):
    """Raises DamagedCheckpoint, naming file and tensor, unless the shards in the files of `part` are the whole of each tensor, once.
    `paths` are those of a checkpoint's files, by name."""
    boxes, wholes = {}, {}
    for file, path in sorted(paths.items()):
        if part_of(file) != part or file == part:
            continue
        try:
            texts, tensors, _ = _read(path)
            places = _places(texts)
        except (ValueError, AttributeError, TypeError) as error:
            raise DamagedCheckpoint(f"{file}{owner(file)} is damaged: its header cannot be read: {error}") from error
        for name in sorted(places.keys() | tensors.keys()):
            offsets, sizes, shape, dtype = _box(file, name, tensors.get(name), places.get(name))
            whole = wholes.setdefault(name, (shape, dtype))
            if whole != (shape, dtype):
                raise DamagedCheckpoint(f"{file}{owner(file)} is damaged: {name!r} is of a tensor of {dtype} and shape {shape}, but another "
                                        f"file has it of {whole[1]} and shape {whole[0]}")
            boxes.setdefault(name, []).append((offsets, sizes))
    for name, (shape, _) in wholes.items():
        found, wanted = sum(math.prod(sizes) for _, sizes in boxes[name]), math.prod(shape)
        if found < wanted:
            raise DamagedCheckpoint(f"the files of {part} do not hold all of {name!r}: {found} of {wanted} elements")
        if found > wanted or _overlap(boxes[name]):
            raise DamagedCheckpoint(f"the files of {part} hold elements of {name!r} twice")
