"""Files of at most 1 MB that claim or hold far more than they should, for every reader: {name: bytes}."""

import gzip
import lzma
import struct
import zlib

from hostile_archives import archives, gzip_zeros

SIDE = 16384  # 2^28 pixels
TOP = 1_000_000


def deflated_zeros(count: int, level: int = 9) -> bytes:
    """`count` zero bytes after deflate, without allocating them."""
    packer, piece, packed = zlib.compressobj(level), bytes(1 << 20), []
    while count > 0:
        packed.append(packer.compress(piece[: min(count, len(piece))]))
        count -= len(piece)
    return b"".join(packed) + packer.flush()


# ---- PNG


def png_chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width, height, depth, color_type, data, interlaced=False) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, int(interlaced))
    palette = png_chunk(b"PLTE", bytes(range(12))) if color_type == 3 else b""
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + palette + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


def pngs():
    yield "claims.png", png(SIDE, SIDE, 8, 2, zlib.compress(b""))
    yield "claims-interlaced.png", png(SIDE, SIDE, 8, 2, zlib.compress(b""), True)
    row = 1 + 3 * SIDE
    yield "half.png", png(SIDE, SIDE, 8, 2, deflated_zeros(row * 1024) + bytes(780_000))
    yield "half-interlaced.png", png(SIDE, SIDE, 8, 2, deflated_zeros((1 + 3 * SIDE // 8) * 2048) + bytes(780_000), True)
    yield "junk.png", png(SIDE, SIDE, 8, 2, bytes(range(1, 251)) * 3900)
    yield "junk-interlaced.png", png(SIDE, SIDE, 8, 2, bytes(range(1, 251)) * 3900, True)
    yield "blank.png", png(SIDE - 4000, SIDE - 2000, 8, 2, deflated_zeros((1 + 3 * (SIDE - 4000)) * (SIDE - 2000)))
    yield "blank-grey.png", png(SIDE - 4000, SIDE - 2000, 1, 0, deflated_zeros((1 + (SIDE - 4000) // 8) * (SIDE - 2000)))
    wide = (1 + 8 * 10_000) * 12_000
    yield "blank-16.png", png(10_000, 12_000, 16, 6, deflated_zeros(wide))
    passes = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
    side = 12_000
    rows = sum(-(-(side - y) // dy) * (1 + 3 * -(-(side - x) // dx)) for y, x, dy, dx in passes)
    yield "blank-interlaced.png", png(side, side, 8, 2, deflated_zeros(rows), True)
    for must, name, color_type, bits, side, row_filter in (
        ("read", "palette", 3, 2, SIDE, 0),
        ("read", "grey", 0, 8, 13_000, 0),
        ("read", "grey-paeth", 0, 8, 13_000, 4),
        ("refused", "grey-paeth-large", 0, 8, SIDE, 4),
    ):
        row = bytes([row_filter]) + b"\1" * (side * bits // 8)
        yield f"read-{name}.png", png(side, side, bits, color_type, zlib.compress(row * side, 9))
        packer, packed = zlib.compressobj(9), []
        for y, x, dy, dx in passes:
            row = bytes([row_filter]) + b"\1" * (-(-(side - x) // dx) * bits // 8)
            packed.append(packer.compress(row * -(-(side - y) // dy)))
        yield f"{must}-{name}-interlaced.png", png(side, side, bits, color_type, b"".join(packed) + packer.flush(), True)
    yield "tall.png", png(1, TOP, 1, 0, deflated_zeros(2 * TOP))
    yield "tall-interlaced.png", png(1, TOP, 1, 0, deflated_zeros(2 * TOP), True)
    yield "tall-centre.png", png(1, TOP, 1, 0, deflated_zeros(2 * TOP))
    yield "wide-centre.png", png(TOP, 1, 1, 0, deflated_zeros(1 + TOP // 8))
    yield "wide-tall-centre.png", png(255, TOP // 2, 1, 0, deflated_zeros(33 * TOP // 2))


# ---- JPEG


def jpeg(width, height, components, scans, marker=0xC0, subsampling=None) -> bytes:
    """`scans`: (component indices, first, last, high and low bit, data). Codes: one of length 1 (the symbol 0), and one of
    length 2 for AC, which is an end-of-block run of 2^14 blocks and more where the file is progressive."""
    subsampling = subsampling or [(1, 1)] * components
    frame = struct.pack(">BHHB", 8, height, width, components)
    for i, (across, down) in enumerate(subsampling):
        frame += bytes([i + 1, across << 4 | down, 0])
    quantization = b"\0" + b"\1" * 64
    codes = b"\0\1" + bytes(15) + b"\0" + b"\x10\1\1" + bytes(14) + b"\0\xe0"
    parts = [b"\xff\xd8"]
    for kind, content in ((0xDB, quantization), (marker, frame), (0xC4, codes)):
        parts.append(struct.pack(">BBH", 0xFF, kind, len(content) + 2) + content)
    for indices, first, last, bits, data in scans:
        content = bytes([len(indices)]) + b"".join(bytes([i + 1, 0]) for i in indices) + bytes([first, last, bits])
        parts.append(struct.pack(">BBH", 0xFF, 0xDA, len(content) + 2) + content + data)
    return b"".join(parts) + b"\xff\xd9"


def ones(bits: int, pattern: str) -> bytes:
    """`pattern` again and again for `bits` bits; a byte 0xFF would be a marker, so patterns have a 0."""
    text = pattern * (-(-bits // len(pattern)))
    return int(text, 2).to_bytes(len(text) // 8, "big")


def jpegs_of_many_scans():
    """Valid files whose last scans go over 63 coefficients of each block and change none: two bytes for 2^14 blocks. A scan that
    refines looks at each coefficient, another one at none. `must` is what the reader has to do, `size` the file's size: bytes
    behind the end make the limit higher."""
    first, refine = 0x00, 0x10
    for must, width, height, kind, count, size in (
        ("refused", 30_000, 6000, refine, 6, 0),
        ("refused", 30_000, 6000, refine, 7, TOP),
        ("refused", 16_000, 10_000, refine, 60, 0),
        ("refused", 12_000, 8000, refine, 19, TOP),
        ("refused", 12_000, 8000, first, 210, TOP),
        ("refused", 8000, 8000, refine, 32, TOP),
        ("refused", 4000, 4000, refine, 100, 0),
        ("refused", 4000, 4000, refine, 145, TOP),
        ("refused", SIDE, SIDE - 384, refine, 3, TOP),
        ("read", 30_000, 6000, refine, 2, 0),
        ("read", 30_000, 6000, first, 65, TOP),
        ("read", SIDE, SIDE - 384, refine, 2, TOP),
        ("read", 12_000, 8000, refine, 17, TOP),
        ("read", 4000, 4000, refine, 135, TOP),
        ("read", 2000, 2000, refine, 390, 0),
    ):
        blocks = -(-width // 8) * -(-height // 8)
        run = ones(16, "1" + "0" * 15) * -(-blocks // 2**14)
        scans = [((0,), 0, 0, 0, bytes(blocks // 8 + 1)), ((0,), 1, 63, 0x01, run)] + [((0,), 1, 63, kind, run)] * count
        content = jpeg(width, height, 1, scans, 0xC2)
        yield f"{must}-scans-{width}-{kind}-{count}-{size}.jpg", content + bytes(max(size - len(content), 0))
    width, height = SIDE, 12_000  # the scans that libjpeg writes of grey pictures
    bits, run = bytes(width * height // 512 + 1), ones(16, "1" + "0" * 15) * (width * height // 2**20 + 1)
    usual = [(0, 0, 0x01, bits), (1, 5, 0x02, run), (6, 63, 0x02, run), (1, 63, 0x21, run), (0, 0, 0x10, bits), (1, 63, 0x10, run)]
    yield "read-scans-usual.jpg", jpeg(width, height, 1, [((0,), *scan) for scan in usual], 0xC2)
    yield "refused-arithmetic-grey.jpg", jpeg(SIDE, SIDE, 1, [((0,), 0, 63, 0, bytes(100))], 0xC9)
    yield "read-arithmetic-grey.jpg", jpeg(5000, 5000, 1, [((0,), 0, 63, 0, bytes(100))], 0xC9)
    yield "refused-arithmetic-progressive.jpg", jpeg(SIDE, SIDE, 1, [((0,), 0, 0, 0, bytes(100)), ((0,), 1, 63, 0, bytes(100))], 0xCA)


def jpegs():
    blocks = (SIDE // 8) ** 2
    yield "claims.jpg", jpeg(SIDE, SIDE, 3, [((0, 1, 2), 0, 63, 0, b"")])
    yield "claims-progressive.jpg", jpeg(SIDE, SIDE, 3, [((0, 1, 2), 0, 0, 0, b"")], 0xC2)
    yield "half-progressive.jpg", jpeg(SIDE, SIDE, 3, [((0, 1, 2), 0, 0, 0, bytes(blocks // 16))], 0xC2)
    yield "blank.jpg", jpeg(SIDE - 8384, SIDE, 1, [((0,), 0, 63, 0, bytes(blocks // 8))])
    yield "blank-colours.jpg", jpeg(8000, 10_000, 3, [((0, 1, 2), 0, 63, 0, bytes(1000 * 1250 * 6 // 8 + 1))])
    inks = [((0, 1, 2, 3), 0, 63, 0, bytes(1000 * 500 * 8 // 8 + 1))]
    yield "blank-inks.jpg", jpeg(8000, 4000, 4, inks)
    # each further scan is 128 runs of 2^14 blocks: three bytes each
    run = ones(16 * 8, "1" + "0" * 15)
    yield "scans.jpg", jpeg(SIDE, SIDE, 1, [((0,), 0, 0, 0, bytes(blocks // 8 + 1))] + [((0,), k % 63 + 1, k % 63 + 1, 0, run * 32) for k in range(400)], 0xC2)
    yield "scans-small.jpg", jpeg(4096, 4096, 1, [((0,), 0, 0, 0, bytes(2**18 // 8 + 1))] + [((0,), k % 63 + 1, k % 63 + 1, 0, run * 2) for k in range(490)], 0xC2)
    yield from jpegs_of_many_scans()
    yield "blank-progressive.jpg", jpeg(SIDE, SIDE // 2, 3, [((0, 1, 2), 0, 0, 0, bytes(blocks * 3 // 16 + 1))], 0xC2)
    for name, sampling in (("odd", [(3, 1), (1, 2), (1, 1)]), ("tall", None)):
        size = (4096, 65500) if name == "tall" else (SIDE, SIDE)
        yield f"arithmetic-{name}.jpg", jpeg(*size, 3, [((0, 1, 2), 0, 63, 0, bytes(100))], 0xC9, sampling)
    for side in (SIDE, 12_000):
        yield f"arithmetic-inks-{side}.jpg", jpeg(side, side, 4, [((0, 1, 2, 3), 0, 63, 0, bytes(100))], 0xC9)
    yield "arithmetic.jpg", jpeg(SIDE, SIDE, 3, [((0, 1, 2), 0, 63, 0, bytes(100))], 0xC9)
    yield "arithmetic-progressive.jpg", jpeg(SIDE, SIDE, 3, [((0, 1, 2), 0, 0, 0, bytes(100))], 0xCA)


# ---- TIFF


def tiff(tags, content=b"") -> bytes:
    """`tags`: {tag: values}, all LONG; strips or tiles begin at byte 8."""
    directory, further = struct.pack("<H", len(tags)), b""
    behind = 8 + len(content) + 2 + 12 * len(tags) + 4
    for tag, values in sorted(tags.items()):
        numbers = struct.pack(f"<{len(values)}I", *values)
        place = numbers
        if len(values) > 1:
            place = struct.pack("<I", behind + len(further))
            further += numbers
        directory += struct.pack("<HHI", tag, 4, len(values)) + place
    return b"II*\0" + struct.pack("<I", 8 + len(content)) + content + directory + bytes(4) + further


def strips(width, height, content, **more):
    tags = {256: [width], 257: [height], 258: [8, 8, 8], 259: [1], 262: [2], 273: [8], 277: [3], 278: [height], 279: [len(content)]}
    return tiff({**tags, **{int(name[1:]): values for name, values in more.items()}}, content)


def tiles(width, height, tile, content, **more):
    count = (-(-width // tile)) * (-(-height // tile))
    tags = {256: [width], 257: [height], 258: [8, 8, 8], 259: [1], 262: [2], 277: [3], 322: [tile], 323: [tile],
            324: [8] * count, 325: [len(content)] * count}  # fmt: skip
    return tiff({**tags, **{int(name[1:]): values for name, values in more.items()}}, content)


def lzw_zeros(codes: int) -> bytes:
    """Strings of zeros that get longer with each code, in TIFF's LZW: the most that it can hold."""
    text, bits, following, previous = format(256, "09b") + format(0, "09b"), 9, 258, 0
    out = []
    for _ in range(codes):
        out.append(format(following, f"0{bits}b"))
        following += 1
        if following == (1 << bits) - 1 and bits < 12:
            bits += 1
        if following == 4094:
            out += [format(256, "012b"), format(0, "09b")]
            bits, following = 9, 258
    text += "".join(out) + format(257, f"0{bits}b")
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")


def shared_tags(count: int) -> bytes:
    """Unknown tags that all have the same bytes as their value."""
    content = bytes(880_000)
    begin, end = strips(16, 16, content, t279=[768]), bytes(4)
    known = begin[8 + len(content) + 2 :]
    entries, place = known[: 12 * 9], struct.unpack_from("<I", known, 12 * 2 + 8)[0]
    entries = entries.replace(struct.pack("<I", place), struct.pack("<I", place + 12 * count))  # three times 8 bits
    more = b"".join(struct.pack("<HHII", 40_000 + i, 7, len(content), 8) for i in range(count))
    return begin[: 8 + len(content)] + struct.pack("<H", 9 + count) + entries + more + end + known[12 * 9 + 4 :]


def tiffs():
    yield "read-tags.tif", shared_tags(1)
    yield "refused-tags-300.tif", shared_tags(300)
    yield "refused-tags-4000.tif", shared_tags(4000)
    for samples in (6, 100, 1500, 65535):
        yield f"samples-{samples}.tif", strips(4096, 4096, bytes(100), t277=[samples], t258=[8])
        yield f"samples-deflate-{samples}.tif", strips(4096, 4096, deflated_zeros(100_000_000), t277=[samples], t258=[8], t259=[8])
        yield f"samples-grey-{samples}.tif", strips(16, 16, bytes(100), t277=[samples], t258=[8], t262=[1], t284=[2])
    yield "tile.tif", tiles(4096, 4096, 16384, bytes(100))
    yield "tile-deflate.tif", tiles(4096, 4096, 16384, deflated_zeros(3 << 28), t259=[8])
    yield "tile-lzw.tif", tiles(4096, 4096, 16384, lzw_zeros(300_000), t259=[5])
    yield "tile-small-picture.tif", tiles(16, 16, 16384, bytes(100))
    yield "tile-planes.tif", tiles(4096, 4096, 16384, bytes(100), t284=[2], t324=[8] * 3, t325=[100] * 3)
    yield "claims.tif", strips(SIDE, SIDE, bytes(100))
    for name, number in (("deflate", 8), ("lzw", 5), ("packbits", 32773), ("fax3", 3), ("fax4", 4), ("jpeg", 7), ("zstd", 50000), ("lzma", 34925),
                         ("webp", 50001), ("rle", 2), ("pixarlog", 32909), ("lerc", 34887), ("thunder", 32809), ("next", 32766), ("ojpeg", 6), ("jbig", 34661)):  # fmt: skip
        bits = {"t258": [1], "t262": [0], "t277": [1]} if name in ("fax3", "fax4", "rle", "jbig") else {}
        if name == "thunder":
            bits = {"t258": [4], "t262": [1], "t277": [1]}
        if name == "next":
            bits = {"t258": [2], "t262": [1], "t277": [1]}
        yield f"claims-{name}.tif", strips(SIDE, SIDE, bytes(100), t259=[number], **bits)
        yield f"long-{name}.tif", strips(SIDE, SIDE, bytes(range(256)) * 2000, t259=[number], **bits)
    yield "claims-ycbcr.tif", strips(SIDE, SIDE, bytes(100), t262=[6], t530=[2, 2])
    yield "claims-ycbcr-lzw.tif", strips(SIDE, SIDE, lzw_zeros(600_000), t262=[6], t530=[2, 2], t259=[5])
    yield "ycbcr-lzw.tif", strips(6000, 6000, lzw_zeros(60_000), t262=[6], t530=[1, 1], t259=[5])
    yield "ycbcr-tile.tif", tiles(1024, 1024, 16384, bytes(100), t262=[6], t530=[2, 2])
    yield "rows.tif", strips(1 << 28, 1, bytes(100), t258=[1], t277=[1], t262=[1])
    yield "one-row-deflate.tif", strips(1 << 28, 1, deflated_zeros(1 << 28), t258=[8], t277=[1], t262=[1], t259=[8])
    yield "rows-16.tif", strips(1 << 27, 2, deflated_zeros(1 << 29), t258=[16], t277=[1], t262=[1], t259=[8])
    yield "height.tif", strips(1, 1 << 28, bytes(100), t278=[1], t258=[1], t277=[1], t262=[1])
    yield "strips.tif", strips(1, 1 << 28, deflated_zeros(1 << 28), t258=[8], t277=[1], t262=[1], t259=[8])
    yield "strip-rows.tif", strips(4096, 4096, bytes(100), t278=[0xFFFFFFFF])
    yield "strip-bytes.tif", strips(4096, 4096, bytes(100), t279=[0xFFFFFFF0])
    count, packed, stream = 110_000, zlib.compress(bytes(48)), lzma.compress(bytes(48), preset=9)
    for name, number, data in (("deflate", 8, packed), ("lzma", 34925, stream), ("none", 1, bytes(48))):
        yield f"shared-{name}.tif", strips(16, count, data, t259=[number], t278=[1], t273=[8] * count, t279=[len(data)] * count)
    yield "shared-long.tif", strips(16, 100_000, bytes(100_000), t278=[1], t273=[8] * 100_000, t279=[100_000] * 100_000)
    yield "planes-strips.tif", strips(16, TOP, bytes(100), t277=[65535], t258=[8], t284=[2], t278=[1])
    for must, side in (("refused", 16_000), ("read", 4000)):
        coded = jpeg(side, side, 1, [((0,), 0, 63, 0, bytes(100))], 0xC9)
        yield f"{must}-arithmetic.tif", strips(side, side, coded, t258=[8], t277=[1], t262=[1], t259=[7])
    yield "blank.tif", strips(12_000, 14_000, deflated_zeros(3 * 12_000 * 14_000), t259=[8])
    for bits in (1, 13):
        yield f"read-raster-{bits}.tif", strips(12_000, 12_000, deflated_zeros(1500 * bits * 12_000), t259=[8], t258=[bits], t277=[1], t262=[1])
    yield "read-raster-row.tif", strips(TOP, 1, deflated_zeros(TOP // 8 * 200), t259=[8], t258=[1], t277=[200])
    yield "read-raster-floats.tif", strips(6000, 6000, deflated_zeros(6 * 6000 * 6000), t259=[8], t258=[16] * 3, t339=[3])
    for must, samples in (("read", 1), ("refused", 3)):
        side = 14_000 if samples == 1 else 11_000
        packed = lzma.compress(bytes(samples * side * 1000), preset=1)
        parts = {"t273": [8] * (side // 1000), "t278": [1000], "t279": [len(packed)] * (side // 1000)}
        yield f"{must}-lzma.tif", strips(side, side, packed, t259=[34925], t258=[8] * samples, t277=[samples], t262=[samples // 2 + 1], **parts)
    # the decoders keep as much of a strip as the file asks for
    for must, side in (("read", 7000), ("refused", 14_000)):
        window = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 512 << 20}]
        packed = lzma.compress(bytes(side * side), format=lzma.FORMAT_XZ, filters=window)
        yield f"{must}-lzma-window.tif", strips(side, side, packed, t259=[34925], t258=[8], t277=[1], t262=[1])
        blocks = [struct.pack("<I", 128 << 10 << 3 | 1 << 1)[:3] + b"\0"] * (side * side >> 17) + [struct.pack("<I", side * side % 2**17 << 3 | 1 << 1 | 1)[:3] + b"\0"]
        packed = b"\x28\xb5\x2f\xfd\0" + bytes([(27 - 10) << 3]) + b"".join(blocks)  # a window of 128 MiB, runs of a zero
        yield f"{must}-zstd-window.tif", strips(side, side, packed, t259=[50000], t258=[8], t277=[1], t262=[1])
    yield "blank-lzw.tif", strips(12_000, 14_000, lzw_zeros(270_000), t259=[5])
    yield "blank-turned.tif", strips(12_000, 14_000, deflated_zeros(3 * 12_000 * 14_000), t259=[8], t274=[6])
    yield "blank-inks.tif", strips(12_000, 14_000, deflated_zeros(4 * 12_000 * 14_000), t259=[8], t258=[8] * 4, t277=[4], t262=[5])
    yield "blank-multiplied.tif", strips(12_000, 14_000, deflated_zeros(4 * 12_000 * 14_000), t259=[8], t258=[8] * 4, t277=[4], t338=[1])
    yield "blank-grey.tif", strips(12_000, 14_000, deflated_zeros(12_000 * 14_000), t259=[8], t258=[8], t277=[1], t262=[1])
    yield "blank-16.tif", strips(10_000, 14_000, deflated_zeros(6 * 10_000 * 14_000), t259=[8], t258=[16] * 3)
    yield "blank-planes.tif", strips(12_000, 14_000, deflated_zeros(12_000 * 14_000), t259=[8], t284=[2], t273=[8] * 3, t279=[170_000] * 3)
    yield "blank-fax.tif", strips(12_000, 14_000, b"\xff" * 20_000, t259=[4], t258=[1], t277=[1], t262=[0])


# ---- the others


def bmps():
    def bmp(width, height, bits, compression, pixels):
        return struct.pack("<2sIIIIiiHHIIIIII", b"BM", 0, 0, 54 + 4 * (1 << bits), 40, width, height, 1, bits, compression, 0, 0, 0, 0, 0) + bytes(4 << bits) + pixels  # fmt: skip

    yield "claims.bmp", bmp(SIDE, SIDE, 8, 0, b"")
    yield "claims-rle.bmp", bmp(SIDE, SIDE, 8, 1, b"")
    yield "cut-rle.bmp", bmp(SIDE, SIDE, 8, 1, b"\5\7" * 100)
    yield "refused-rle.bmp", bmp(SIDE, SIDE, 8, 1, b"\5\7\0\1")
    yield "blank-rle.bmp", bmp(SIDE - 4000, SIDE - 2000, 8, 1, b"\0\1")
    yield "long-rle.bmp", bmp(SIDE - 4000, SIDE - 2000, 4, 2, b"\xff\1" * 490_000 + b"\0\1")


def pnms():
    for kind in range(1, 7):
        most = b"" if kind in (1, 4) else b"255\n"
        yield f"claims-p{kind}.ppm", b"P%d\n%d %d\n" % (kind, SIDE, SIDE) + most + b"0 " * 100
    yield "comments.ppm", b"P3\n" + b"#\n" * 490_000
    yield "bits.ppm", b"P4\n%d %d\n" % (8 * 900, 1100) + bytes(900 * 1100)


def gifs():
    def gif(width, height, left, top, columns, rows, data, bits=8, interlaced=False):
        blocks = b"".join(bytes([len(data[i : i + 255])]) + data[i : i + 255] for i in range(0, len(data), 255)) + b"\0"
        flags = 0x40 if interlaced else 0
        return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b"," + struct.pack("<HHHHBB", left, top, columns, rows, flags, bits) + blocks + b";"  # fmt: skip

    def lzw(codes):
        out, bits, following = [(256, 9), (0, 9)], 9, 258
        for _ in range(codes):
            out.append((following, bits))
            following += 1
            if following == 1 << bits and bits < 12:
                bits += 1
            if following == 4095:
                out += [(256, bits), (0, 9)]
                bits, following = 9, 258
        value = at = 0
        pieces = bytearray()
        for code, size in out:
            value |= code << at
            at += size
            while at >= 8:
                pieces.append(value & 255)
                value >>= 8
                at -= 8
        pieces.append(value & 255)
        return bytes(pieces)

    yield "claims.gif", gif(SIDE, SIDE, 0, 0, SIDE, SIDE, b"")
    yield "cut.gif", gif(SIDE, SIDE, 0, 0, SIDE, SIDE, lzw(100_000))
    yield "cut-interlaced.gif", gif(SIDE, SIDE, 0, 0, SIDE, SIDE, lzw(100_000), interlaced=True)
    yield "blank.gif", gif(12_000, 14_000, 0, 0, 12_000, 14_000, lzw(90_000))
    yield "blank-interlaced.gif", gif(12_000, 14_000, 0, 0, 12_000, 14_000, lzw(90_000), interlaced=True)
    yield "refused-screen.gif", gif(SIDE, SIDE, 0, 0, 1, 1, lzw(10))
    yield "screen.gif", gif(12_000, 14_000, 0, 0, 1, 1, lzw(10))


class LowBitsFirst:
    def __init__(self):
        self.value = self.count = 0
        self.bytes = bytearray()

    def put(self, value, count):
        self.value |= value << self.count
        self.count += count
        while self.count >= 8:
            self.bytes.append(self.value & 255)
            self.value >>= 8
            self.count -= 8

    def put_code(self, value, count):
        self.put(int(f"{value:0{count}b}"[::-1], 2), count)


def code_groups(groups, blocks, has_long_codes=False):
    """VP8L's image stream for a picture of `blocks` times `blocks` blocks of 4x4 pixels that take the groups in turn."""
    bits = LowBitsFirst()

    def one_symbol():
        bits.put(0b0001, 4)

    def all_of_eight_bits():
        bits.put(0, 1)
        bits.put(12 - 4, 4)
        for length in (17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8):
            bits.put(int(length == 8), 3)
        bits.put(1, 1)
        bits.put(3, 3)
        bits.put(254, 8)

    def lengths_up_to_15():
        bits.put(0, 1)
        bits.put(19 - 4, 4)
        for length in (17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15):
            bits.put(0 if length > 15 else 4, 3)
        bits.put(1, 1)
        bits.put(1, 3)
        bits.put(14, 4)
        for length in (*range(1, 16), 15):
            bits.put_code(length, 4)

    bits.put(0b0100, 5)  # no transform, no cache, groups, of blocks of 4x4
    bits.put(0, 2)  # ... in an image without a cache
    all_of_eight_bits()
    all_of_eight_bits()
    for _ in range(3):
        one_symbol()
    for block in range(blocks * blocks):
        bits.put_code(block % groups % 256, 8)
        bits.put_code(block % groups // 256, 8)
    for _ in range(groups):
        for code in range(5):
            lengths_up_to_15() if has_long_codes and code < 4 else one_symbol()
    if has_long_codes:
        for _ in range(16 * blocks * blocks):
            bits.put(0, 4)
    bits.put(0, 64)
    return bytes(bits.bytes)


def webps():
    def vp8l(width, height, data):
        bits = 0x2F | (width - 1) << 8 | (height - 1) << 22
        content = bits.to_bytes(5, "little") + data
        chunk = b"VP8L" + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)
        return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk

    one_colour = bytes.fromhex("8888 0800")  # no transform, no cache, five codes of one symbol 0
    yield "claims.webp", vp8l(16383, 16383, b"")
    yield "claims-long.webp", vp8l(16383, 16383, bytes(range(256)) * 3000)
    yield "blank.webp", vp8l(12_000, 14_000, one_colour + bytes(8))
    yield "blank-small.webp", vp8l(3500, 3500, one_colour + bytes(8))
    yield "read-groups.webp", vp8l(256, 256, code_groups(4096, 64))
    yield "read-groups-long-codes.webp", vp8l(1024, 1024, code_groups(4000, 256, has_long_codes=True))
    yield "refused-groups.webp", vp8l(1024, 1024, code_groups(4097, 256))
    yield "refused-groups-all.webp", vp8l(1024, 1024, code_groups(65536, 256))
    lossy = struct.pack("<I", 0x10 | 100_000 << 5)[:3] + b"\x9d\x01\x2a" + struct.pack("<HH", 16383, 16383)
    chunk = b"VP8 " + struct.pack("<I", 900_000) + (lossy + bytes(900_000))[:900_000]
    yield "claims-lossy.webp", b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk
    canvas = (12_000 - 1).to_bytes(3, "little") + (14_000 - 1).to_bytes(3, "little")
    frame = vp8l(4, 4, one_colour + bytes(8))[12:]
    extended = b"VP8X" + struct.pack("<I", 10) + b"\2\0\0\0" + canvas
    animation = b"ANIM" + struct.pack("<I", 6) + bytes(6)
    content = bytes(6) + bytes([3, 0, 0, 3, 0, 0, 1, 0, 0, 0]) + frame
    frames = (b"ANMF" + struct.pack("<I", len(content)) + content) * 2
    body = extended + animation + frames
    yield "canvas.webp", b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def volumes():
    def header(shape, kind):
        content = bytearray(352)
        struct.pack_into("<i", content, 0, 348)
        struct.pack_into("<8h", content, 40, 3, *shape, 1, 1, 1, 1)
        struct.pack_into("<hh", content, 70, kind, 8)
        struct.pack_into("<f", content, 108, 352)
        content[344:348] = b"n+1\0"
        return bytes(content)

    yield "claims.nii", header((32767, 32767, 7), 2)
    yield "claims.nii.gz", gzip.compress(header((32767, 32767, 7), 2))
    yield "claims-junk.nii.gz", gzip.compress(header((1000, 1000, 900), 2)) + bytes(range(1, 251)) * 3900
    yield "blank.nii.gz", gzip_zeros(header((1000, 1000, 300), 2), 300_000_000)
    yield "blank-500.nii.gz", gzip_zeros(header((1000, 1000, 500), 2), 500_000_000)
    yield "blank-900.nii.gz", gzip_zeros(header((1000, 1000, 900), 2), 900_000_000)
    yield "blank-double.nii.gz", gzip_zeros(header((1000, 1000, 120), 64), 960_000_000)
    yield "cut.nii.gz", gzip_zeros(header((1000, 1000, 900), 2), 100_000_000) + bytes(850_000)


def arrays():
    def head(*shape):
        return struct.pack(">I3I", 0x0803, *shape)

    yield "claims.idx", head(0xFFFFFFFF, 1, 1)
    yield "claims.idx.gz", gzip.compress(head(1_000_000_000, 1, 1))
    yield "zero.idx", head(0, 0xFFFFFFFF, 0xFFFFFFFF)
    yield "blank.idx.gz", gzip_zeros(head(900_000_000, 1, 1), 900_000_000)
    yield "cut.idx.gz", gzip_zeros(head(900_000_000, 1, 1), 100_000_000) + bytes(850_000)


def lists():
    yield "deep.json", b"[" * 1_000_000
    yield "deep-in-object.json", b'{"0":' * 200_000
    yield "numbers.json", b"[" + b"0," * 499_000 + b"0]"
    yield "empty-objects.json", b'{"0":[' + b"{}," * 330_000 + b"{}]}"
    yield "names.json", b"{" + b",".join(b'"%d":""' % i for i in range(90_000)) + b"}"


def records():
    yield "zeros.cifar10", bytes(3073 * 325)
    yield "zeros.cifar100", bytes(3074 * 325)
    yield "short.cifar100", bytes(3073)


def all_files():
    for kind in (pngs, jpegs, tiffs, bmps, pnms, gifs, webps, volumes, arrays, lists, records, archives):
        for name, content in kind():
            assert len(content) <= 1_000_000, (name, len(content))
            yield name, content
