"""Reads or writes a safetensors file without any code of ours: with Python's safetensors package where it is installed,
else by the format's description alone.

    safetensors_python.py read FILE       one line per tensor: name, dtype, shape, bytes in hexadecimal
    safetensors_python.py write FILE      a file whose order and padding are legal, but not ours
"""

import json
import struct
import sys

try:
    import safetensors
except ImportError:
    safetensors = None


def read_plainly(data):
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        yield name, entry["dtype"], entry["shape"], data[8 + length + begin : 8 + length + end]


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    tensors = list(read_plainly(data))
    if safetensors is not None:
        reference = {n: (t["dtype"], list(t["shape"]), bytes(t["data"])) for n, t in safetensors.deserialize(data)}
        assert reference == {n: (d, s, bytes(b)) for n, d, s, b in tensors}, "the reference reader sees something else"
    for name, dtype, shape, content in sorted(tensors):
        print(name, dtype, shape, content.hex())


def write(path):
    content = struct.pack("<2h", -1, 515) + struct.pack("<3f", 1.5, -2.0, 0.25) + struct.pack("<q", 1 << 40)
    header = json.dumps(
        {
            "short": {"dtype": "I16", "shape": [2, 1], "data_offsets": [0, 4]},
            "scalar": {"dtype": "I64", "shape": [], "data_offsets": [16, 24]},
            "empty": {"dtype": "F32", "shape": [0, 3], "data_offsets": [4, 4]},
            "__metadata__": {"format": "pt"},
            "float": {"dtype": "F32", "shape": [3], "data_offsets": [4, 16]},
        },
        indent=1,
    ).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + content)
    if safetensors is not None:
        with open(path, "rb") as file:
            assert len(safetensors.deserialize(file.read())) == 4


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](sys.argv[2])
