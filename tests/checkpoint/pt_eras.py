"""Files as the versions of PyTorch and of Python have written them, by hand: no old version is needed."""

import collections
import pickle
import pickletools
import struct
import zipfile

import torch
from torch.serialization import MAGIC_NUMBER, PROTOCOL_VERSION

_SYSTEM = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


class _Pickler(pickle._Pickler):
    """Pickles tensors as an old torch.save did. `functions`: 1 for torch._utils._rebuild_tensor (until 0.3), 2 for _v2.
    `python2`: as cPickle wrote it: numbers of the memo from 1, texts as bytes, large numbers as decimal text."""

    dispatch = dict(pickle._Pickler.dispatch)

    def __init__(self, file, protocol, functions, parts, python2):
        super().__init__(file, protocol)
        self.functions, self.parts, self.python2 = functions, parts, python2
        self.storages = {}

    def persistent_id(self, value):
        if not isinstance(value, torch.storage.TypedStorage):
            return None
        key = str(value._cdata)
        self.storages[key] = value
        kind = getattr(torch, value.pickle_storage_type())
        return ("storage", kind, key, "cpu", value._size(), None)[: self.parts]

    def reducer_override(self, value):
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        arguments = (value.storage(), value.storage_offset(), tuple(value.shape), value.stride())
        if self.functions == 1:
            return torch._utils._rebuild_tensor, arguments
        return torch._utils._rebuild_tensor_v2, (*arguments, value.requires_grad, collections.OrderedDict())

    def memoize(self, value):
        if not self.python2:
            return super().memoize(value)
        number = len(self.memo) + 1
        self.write(self.put(number))
        self.memo[id(value)] = number, value

    def save_text(self, value):
        if not self.python2:
            return self.save_str(value)
        data = value.encode("latin1")
        self.write(b"U" + bytes([len(data)]) + data if len(data) < 256 else b"T" + struct.pack("<i", len(data)) + data)
        self.memoize(value)

    def save_number(self, value):
        if not self.python2 or -2**31 <= value < 2**31:
            return self.save_long(value)
        self.write(b"I%d\n" % value)

    dispatch[str] = save_text
    dispatch[int] = save_number


def _pickled(value, protocol, functions=2, parts=6, python2=False, optimized=False):
    import io
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, protocol, functions, parts, python2)
    pickler.dump(value)
    data = buffer.getvalue()
    return (pickletools.optimize(data) if optimized else data), pickler.storages


def _bytes_of(storage):
    return bytes(storage._untyped_storage)


def save_legacy(value, path, protocol=2, functions=2, python2=False, optimized=False):
    """The format from 0.1.10 to 1.5: pickles one after the other, then the storages."""
    data, storages = _pickled(value, protocol, functions, 6, python2, optimized)
    with open(path, "wb") as file:
        for head in (MAGIC_NUMBER, PROTOCOL_VERSION, _SYSTEM):
            pickle.dump(head, file, protocol)
        file.write(data)
        keys = sorted(storages)
        pickle.dump(keys, file, protocol)
        for key in keys:
            file.write(struct.pack("<q", storages[key]._size()) + _bytes_of(storages[key]))


def save_zip(value, path, protocol=2, optimized=False):
    """The zip format as 1.6 wrote it, with no byteorder and no .data of its own."""
    data, storages = _pickled(value, protocol, parts=5, optimized=optimized)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        for key, storage in storages.items():
            archive.writestr(f"archive/data/{key}", _bytes_of(storage))
        archive.writestr("archive/version", "3\n")


def eras():
    """Ways to save a dict of tensors, by the version that wrote so."""
    ways = {"python2_torch03": lambda v, p: save_legacy(v, p, functions=1, python2=True),
            "python2_torch04": lambda v, p: save_legacy(v, p, python2=True),
            "python3_torch03": lambda v, p: save_legacy(v, p, functions=1),
            "torch16": save_zip, "torch16_optimized": lambda v, p: save_zip(v, p, optimized=True),
            "legacy_optimized": lambda v, p: save_legacy(v, p, optimized=True)}
    for protocol in (2, 3, 4, 5):
        ways[f"torch04_protocol{protocol}"] = lambda v, p, n=protocol: save_legacy(v, p, n)
        ways[f"torch10_protocol{protocol}"] = lambda v, p, n=protocol: torch.save(
            v, p, pickle_protocol=n, _use_new_zipfile_serialization=False)
        ways[f"torch16_protocol{protocol}"] = lambda v, p, n=protocol: save_zip(v, p, n)
        ways[f"torch2_protocol{protocol}"] = lambda v, p, n=protocol: torch.save(v, p, pickle_protocol=n)
    return ways
