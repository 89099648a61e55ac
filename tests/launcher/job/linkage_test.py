"""The binary needs the C and C++ libraries and nothing else."""

import os
import struct
import unittest

ALLOWED = ("libc.so", "libstdc++.so", "libm.so", "libgcc_s.so", "ld-linux", "libpthread.so", "libdl.so", "librt.so", "libc++",
           "libasan.so", "libubsan.so", "libtsan.so", "liblsan.so")


def needed_libraries(path):
    """DT_NEEDED of a 64-bit ELF file."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:5] == b"\x7fELF\x02", "not a 64-bit ELF file"
    offset, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQ", data, offset + i * size) for i in range(count)]
    file_offset = lambda address: next(h[2] + address - h[3] for h in headers if h[0] == 1 and h[3] <= address < h[3] + h[5])
    dynamic = next(h for h in headers if h[0] == 2)
    entries = [struct.unpack_from("<qQ", data, position)
               for position in range(dynamic[2], dynamic[2] + dynamic[5], 16)]
    strings = file_offset(dict(entries)[5])
    name = lambda value: data[strings + value:data.index(b"\0", strings + value)].decode()
    return [name(value) for tag, value in entries if tag == 1]


class Linkage(unittest.TestCase):
    def test_only_the_language_libraries_are_needed(self):
        libraries = needed_libraries(os.environ["DDPRUN"])
        self.assertIn("libc.so.6", libraries)
        for library in libraries:
            self.assertTrue(library.startswith(ALLOWED), library)


if __name__ == "__main__":
    unittest.main()
