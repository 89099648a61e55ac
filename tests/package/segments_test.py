"""Every program and shared library can be loaded: its read-only-after-relocation segment (PT_GNU_RELRO) begins in a page
that a loaded segment maps. Some linkers, mold before 2.4 among them, break that when thread-local storage that has no bytes
in the file lies before it; whether they do depends on sizes, and so on the length of the path that was built in."""

import contextlib
import pathlib
import struct
import tempfile
import unittest

import support

PAGE = 4096
LOAD = 1
RELRO = 0x6474E552


def program_headers(file: pathlib.Path):
    """(offset in the file, type, address, size in memory) of each segment of an ELF64 file of this machine."""
    with file.open("rb") as stream:
        start = stream.read(64)
        offset, = struct.unpack_from("<Q", start, 32)
        size, count = struct.unpack_from("<HH", start, 54)
        stream.seek(offset)
        table = stream.read(size * count)
    for index in range(count):
        kind, _flags, _offset, address, _physical, _in_file, in_memory, _align = struct.unpack_from("<IIQQQQQQ", table, index * size)
        yield offset + index * size, kind, address, in_memory


def defect(file: pathlib.Path) -> str:
    """What the loader would refuse; empty when it takes the file."""
    loads, protected = [], []
    for _, kind, address, size in program_headers(file):
        if kind == LOAD:
            loads.append((address // PAGE * PAGE, -(-(address + size) // PAGE) * PAGE))
        elif kind == RELRO and size > 0:
            protected.append(address // PAGE * PAGE)
    for page in protected:
        if not any(begin <= page < end for begin, end in loads):
            return f"{file}: RELRO begins at {page:#x}, in no loaded segment ({[tuple(map(hex, load)) for load in loads]})"
    return ""


def elf_files(folder: pathlib.Path):
    for file in sorted(folder.iterdir()):
        if file.is_file() and not file.is_symlink():
            with contextlib.suppress(OSError), file.open("rb") as stream:
                # 64 bits, and an executable or a shared object: no archive, no script.
                if stream.read(5) == b"\x7fELF\x02":
                    yield file


class Segments(unittest.TestCase):
    def test_every_program_and_library_can_be_loaded(self):
        folders = [support.path("PROGRAMS"), support.path("LIBRARIES")]
        files = [file for folder in folders if folder.exists() for file in elf_files(folder)]
        self.assertTrue(files, f"nothing is built in {folders}")
        self.assertEqual([text for text in map(defect, files) if text], [])

    def test_a_segment_outside_of_every_page_is_found(self):
        good = next(elf_files(support.path("PROGRAMS")))
        lowest = 0
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / "program"
            content = bytearray(good.read_bytes())
            for at, kind, address, size in program_headers(good):
                if kind == LOAD:
                    lowest = max(lowest, address + size)
            for at, kind, _, _ in program_headers(good):
                if kind == RELRO:
                    struct.pack_into("<Q", content, at + 16, lowest + 16 * PAGE)
            bad.write_bytes(content)
            self.assertIn("RELRO begins at", defect(bad))
        self.assertEqual(defect(good), "")


support.main()
