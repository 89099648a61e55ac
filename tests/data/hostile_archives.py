"""For hostile_files.py: what is packed with gzip, and tar archives."""

import gzip
import zlib


def gzip_zeros(head: bytes, count: int) -> bytes:
    packer, piece = zlib.compressobj(9, zlib.DEFLATED, 31), bytes(1 << 20)
    packed = [packer.compress(head)]
    while count > 0:
        packed.append(packer.compress(piece[: min(count, len(piece))]))
        count -= len(piece)
    return b"".join(packed) + packer.flush()


def archives():
    def head(name, size, kind=b"0"):
        content = bytearray(512)
        content[: len(name)] = name
        content[100:108] = b"0000644\0"
        content[124:136] = b"%011o\0" % size
        content[156:157] = kind
        content[257:265] = b"ustar\00000"
        content[148:156] = b" " * 8
        content[148:156] = b"%06o\0 " % sum(content)
        return bytes(content)

    end = bytes(1024)
    yield "claims.tar", head(b"a.x", 8**10) + bytes(512)
    yield "read-file.tar.gz", gzip_zeros(head(b"a.x", 950_000_128), 950_000_128 + 1024)
    yield "other-file.tar.gz", gzip_zeros(head(b"a.x", 950_000_128, b"3"), 950_000_128 + 1024)
    yield "zeros.tar.gz", gzip_zeros(b"", 950_000_000)
    for kind in b"L", b"x", b"g":
        yield f"long-{kind.decode()}.tar.gz", gzip_zeros(head(b"a", 950_000_128, kind), 950_000_128 + 1024)
    records = (b"12 path=abc\n" * 80_000).ljust(960_512, b"\0")[:960_512]
    yield "records.tar.gz", gzip.compress((head(b"p", len(records), b"x") + records) * 300 + head(b"a.x", 0) + end)
    yield "read-samples.tar.gz", gzip.compress(b"".join(head(b"%06d.s" % i, 0) for i in range(130_000)) + end)
    yield "read-samples-one.tar.gz", gzip.compress(b"".join(head(b"s.%06d" % i, 0) for i in range(130_000)) + end)
    yield "folders.tar.gz", gzip.compress(head(b"d/", 0, b"5") * 440_000 + end)
    yield "members.tar.gz", gzip.compress(b"") * 49_000
