"""TIFF files, uncompressed, of the kinds that Pillow does not write."""

import struct


def tiff(samples, bits=8, photometric=1, order="<", tile=None, separate=False, tags=None) -> bytes:
    """`samples`: (height, width, channels), integers, or of a NumPy type that the file then has. `tags` adds {tag: (type 3 or 4, values)}."""
    height, width, channels = samples.shape
    kind = "u" if samples.dtype == "i8" and bits <= 16 else samples.dtype.kind
    chunk_height, chunk_width = tile or (max(1, height // 2), width)

    def packed(part) -> bytes:
        content = b""
        if samples.dtype != "i8" or bits > 16:
            return part.astype(part.dtype.newbyteorder(order)).tobytes()
        for row in part:
            if bits == 16:
                content += struct.pack(f"{order}{row.size}H", *map(int, row.ravel()))
                continue
            text = "".join(format(int(value), f"0{bits}b") for value in row.ravel())
            text += "0" * (-len(text) % 8)
            content += int(text, 2).to_bytes(len(text) // 8, "big")
        return content

    chunks = []
    for planes in [samples[:, :, c : c + 1] for c in range(channels)] if separate else [samples]:
        for y in range(0, height, chunk_height):
            for x in range(0, width, chunk_width):
                part = planes[y : y + chunk_height, x : x + chunk_width]
                if tile:
                    full = planes[:1, :1].repeat(chunk_height, 0).repeat(chunk_width, 1)
                    full[: part.shape[0], : part.shape[1]] = part
                    part = full
                chunks.append(packed(part))
    entries = {
        256: (4, [width]), 257: (4, [height]), 258: (3, [bits] * channels), 259: (3, [1]), 262: (3, [photometric]),
        277: (3, [channels]), 284: (3, [2 if separate else 1]), 339: (3, [{"u": 1, "i": 2, "f": 3}[kind]] * channels),
        **(tags or {}),
    }  # fmt: skip
    offsets, at = [], 8
    for content in chunks:
        offsets.append(at)
        at += len(content)
    if tile:
        entries |= {322: (4, [chunk_width]), 323: (4, [chunk_height]), 324: (4, offsets), 325: (4, [*map(len, chunks)])}
    else:
        entries |= {273: (4, offsets), 278: (4, [chunk_height]), 279: (4, [*map(len, chunks)])}
    pixels = b"".join(chunks) + b"\0" * (at % 2)
    at += at % 2
    directory, further = struct.pack(order + "H", len(entries)), b""
    behind = at + 2 + 12 * len(entries) + 4
    for tag, (kind, values) in sorted(entries.items()):
        content = struct.pack(f"{order}{len(values)}{'H' if kind == 3 else 'I'}", *values)
        if len(content) > 4:
            place = struct.pack(order + "I", behind + len(further))
            further += content + b"\0" * (len(content) % 2)
        else:
            place = content.ljust(4, b"\0")
        directory += struct.pack(order + "HHI", tag, kind, len(values)) + place
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(order + "I", at) + pixels + directory + b"\0\0\0\0" + further
