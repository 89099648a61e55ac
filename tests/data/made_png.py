"""PNG files chunk by chunk, of every kind that the format knows."""

import struct
import zlib

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
# First row and column, and the steps, of each of Adam7's passes.
ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def packed(rows, depth: int) -> bytes:
    """Rows of samples, each after a byte that says "not filtered"."""
    content = b""
    for row in rows:
        bits = "".join(format(int(value), f"0{depth}b") for value in row)
        bits += "0" * (-len(bits) % 8)
        content += b"\0" + int(bits, 2).to_bytes(len(bits) // 8, "big")
    return content


def extras(color_type: int, depth: int) -> dict[str, list[bytes]]:
    """Chunks that say what the values mean; none of them changes one."""
    profile = chunk(b"iCCP", b"ours\0\0" + zlib.compress(b"not a profile at all"))
    chromaticities = chunk(b"cHRM", struct.pack(">8I", 64000, 33000, 21000, 71000, 15000, 6000, 31270, 32900))
    gamma = chunk(b"gAMA", struct.pack(">I", 100000))
    samples = 3 if color_type in (2, 6) else 1
    background = chunk(b"bKGD", b"\1" if color_type == 3 else b"\0\1" * samples)
    transparent = {0: b"\0\1", 2: b"\0\1\0\1\0\1", 3: b"\0\x80"}
    return {
        "plain": [],
        "gAMA": [gamma],
        "gAMA45": [chunk(b"gAMA", struct.pack(">I", 45455))],
        "sRGB": [chunk(b"sRGB", b"\0")],
        "gAMA+sRGB": [gamma, chunk(b"sRGB", b"\1")],
        "cHRM+gAMA": [chromaticities, gamma],
        "iCCP": [profile],
        "late": [gamma, background],
        "tRNS": [gamma, chunk(b"tRNS", transparent[color_type])] if color_type in transparent else [],
    }


def png(samples, color_type: int, depth: int, interlaced: bool, extra: list[bytes]) -> bytes:
    """`samples`: integers (height, width, channels); of a palette of 2^depth colours, its indices."""
    height, width, channels = samples.shape
    assert channels == CHANNELS[color_type]
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    content = b""
    for row, column, rows, columns in passes:
        part = samples[row::rows, column::columns]
        if part.size:
            content += packed(part.reshape(part.shape[0], -1), depth)
    before = [part for part in extra if part[4:8] not in (b"tRNS", b"bKGD")]
    after = [part for part in extra if part not in before]
    palette = [chunk(b"PLTE", bytes(7 * i % 251 for i in range(3 << depth)))] if color_type == 3 else []
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, interlaced))
    parts = [header, *before, *palette, *after, chunk(b"IDAT", zlib.compress(content)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
