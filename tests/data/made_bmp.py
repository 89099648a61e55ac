"""BMP files of the kinds that Pillow does not write."""

import struct

PALETTE = b"".join(bytes((9 * i % 256, 5 * i % 256, 255 - i, 0)) for i in range(256))


def rows(samples, bits: int) -> bytes:
    """Integers (height, width), each row filled up to four bytes."""
    content = b""
    for row in samples:
        if bits >= 8:
            packed = b"".join(int(value).to_bytes(bits // 8, "little") for value in row)
        else:
            text = "".join(format(int(value), f"0{bits}b") for value in row)
            text += "0" * (-len(text) % 8)
            packed = int(text, 2).to_bytes(len(text) // 8, "big")
        content += packed + b"\0" * (-len(packed) % 4)
    return content


def bmp(height, width, bits, pixels, compression=0, colors=0, masks=(), header_bytes=40, palette=None) -> bytes:
    if palette is None:
        palette = PALETTE[: 4 * (colors or 1 << bits)] if bits <= 8 else b""
    if header_bytes == 12:
        header = struct.pack("<IHHHH", 12, width, height, 1, bits)
        palette = b"".join(palette[i : i + 3] for i in range(0, len(palette), 4))
    else:
        header = struct.pack("<IiiHHIIiiII", header_bytes, width, height, 1, bits, compression, len(pixels), 0, 0, colors, 0)
        header += struct.pack(f"<{len(masks)}I", *masks)
        header = header.ljust(header_bytes, b"\0")
    at = 14 + len(header) + len(palette)
    return b"BM" + struct.pack("<IHHI", at + len(pixels), 0, 0, at) + header + palette + pixels
