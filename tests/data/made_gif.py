"""GIF files with any size of code, which Pillow reads and does not write."""

import struct


def lzw(indices, bits: int) -> bytes:
    """The codes for `indices`, each below 2**bits, from `bits` + 1 bits on; the table stays when it is full."""
    clear, codes = 1 << bits, []
    size, following, table = bits + 1, clear + 2, {}
    codes.append((clear, size))
    string = ()
    for index in indices:
        if not string or string + (index,) in table:
            string += (index,)
            continue
        codes.append((table[string] if len(string) > 1 else string[0], size))
        if following < 4096:
            table[string + (index,)] = following
            if following == 1 << size and size < 12:
                size += 1
            following += 1
        string = (index,)
    codes.append((table[string] if len(string) > 1 else string[0], size))
    codes.append((clear + 1, size))
    return packed(codes)


def packed(codes) -> bytes:
    value = at = 0
    for code, size in codes:
        value |= code << at
        at += size
    return value.to_bytes(-(-at // 8), "little")


def gif(width: int, height: int, bits: int, data: bytes, palette: bytes = b"", flags: int = 0) -> bytes:
    """`flags` of the picture: 0x40 is interlaced."""
    colours = 0x80 | (len(palette) // 3).bit_length() - 2 if palette else 0
    blocks = b"".join(bytes([len(data[i : i + 255])]) + data[i : i + 255] for i in range(0, len(data), 255)) + b"\0"
    screen = struct.pack("<HHBBB", width, height, colours, 0, 0) + palette
    return b"GIF89a" + screen + b"," + struct.pack("<HHHHBB", 0, 0, width, height, flags, bits) + blocks + b";"
