"""Mutants of binary formats that know where their numbers are: safetensors, GGUF, PNG, tar, gzip, IDX."""

from __future__ import annotations

import gzip
import json
import lzma
import random
import struct
import zlib
from collections.abc import Iterator

from tests.fuzz.mutate import NUMBERS, TEXTS, Mutator, dump, mutate_bytes, mutate_value

DTYPES = (
    "F64",
    "F32",
    "F16",
    "BF16",
    "I64",
    "I32",
    "I16",
    "I8",
    "U8",
    "BOOL",
    "F8_E4M3",
    "F8_E5M2",
    "C64",
    "U64",
    "F4",
    "X",
    "",
)


def mutate_safetensors(data: bytes, draw: random.Random) -> bytes:
    """Change the header, its length, or the numbers."""
    how = draw.random()
    size = int.from_bytes(data[:8], "little")
    head, body = data[8 : 8 + size], data[8 + size :]
    if how < 0.15 or not head:
        return mutate_bytes(data, draw)
    if how < 0.25:
        return (draw.choice(NUMBERS) % 2**64).to_bytes(8, "little") + data[8:]
    if how < 0.4:
        return data[: 8 + size] + _mutate_floats(body, draw)
    try:
        header = json.loads(head)
    except ValueError:
        return mutate_bytes(data, draw)
    if how < 0.7:
        name = draw.choice([*header])
        entry = header[name]
        if "dtype" not in entry:
            header[name] = {"tied": draw.choice(("{", '{"a": "b"}', "[]", '{"a": "a"}', dump({name: [*header][-1]})))}
        elif draw.random() < 0.3:
            entry["dtype"] = draw.choice(DTYPES)
        elif draw.random() < 0.5:
            entry["shape"] = draw.choice((entry["shape"][::-1], [], [0], [*entry["shape"], 1], [-1], [2**62, 2**62], [1] * 100,
                                          [draw.choice(NUMBERS) for _ in entry["shape"]]))  # fmt: skip
        else:
            start, end = entry["data_offsets"]
            entry["data_offsets"] = draw.choice(([end, start], [0, end - start], [start, end + 4], [start + 1, end + 1],
                                                 [-1, end], [start, 2**63], [start], [start, start]))  # fmt: skip
    else:
        header = mutate_value(header, draw)
    text = dump(header, draw).encode(errors="surrogatepass")
    text += b" " * (-len(text) % 8 if draw.random() < 0.8 else draw.choice((0, 1, 10_000)))
    return struct.pack("<Q", len(text)) + text + body


def _mutate_floats(body: bytes, draw: random.Random) -> bytes:
    """Numbers that no training gives: not finite, huge, all the same."""
    out = bytearray(body)
    value = struct.pack("<f", draw.choice((float("nan"), float("inf"), -1e38, 1e38, 0.0, 1e-40)))
    start = draw.randrange(0, max(1, len(out) - 3), 4) if out else 0
    count = draw.choice((1, 16, len(out) // 4))
    out[start : start + 4 * count] = (value * count)[: max(0, len(out) - start)]
    return bytes(out)


GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def mutate_gguf(data: bytes, draw: random.Random) -> bytes:
    """Change counts, lengths, kinds, shapes and offsets, or bytes."""
    if draw.random() < 0.2:
        return mutate_bytes(data, draw)
    out = bytearray(data)
    places = list(gguf_numbers(data))
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        at, size = draw.choice(places[:8] if draw.random() < 0.2 else places)
        old = int.from_bytes(data[at : at + size], "little")
        new = draw.choice((*NUMBERS, old + 1, old - 1, old * 2, draw.randrange(16)))
        out[at : at + size] = (new % 256**size).to_bytes(size, "little")
    return bytes(out)


def gguf_numbers(data: bytes) -> Iterator[tuple[int, int]]:
    """Place and size of every number and length of a GGUF file's header; of arrays only the first ones."""
    at = 4

    def number(size: int) -> tuple[int, tuple[int, int]]:
        nonlocal at
        at += size
        return int.from_bytes(data[at - size : at], "little"), (at - size, size)

    for size in (4, 8, 8):
        yield number(size)[1]
    tensors, pairs = struct.unpack_from("<QQ", data, 8)
    for _ in range(pairs):
        length, place = number(8)
        yield place
        at += length
        kind, place = number(4)
        yield place
        count = 1
        if kind == 9:
            kind, place = number(4)
            yield place
            count, place = number(8)
            yield place
        for i in range(count):
            if kind == 8:
                length, place = number(8)
                at += length
            else:
                _, place = number(GGUF_SIZES[kind])
            if i < 3:
                yield place
    for _ in range(tensors):
        length, place = number(8)
        yield place
        at += length
        count, place = number(4)
        yield place
        for size in (*(8,) * count, 4, 8):
            yield number(size)[1]


def mutate_png(data: bytes, draw: random.Random) -> bytes:
    """Change chunks, with checksums that fit; or bytes."""
    if draw.random() < 0.3:
        return mutate_bytes(data, draw)
    chunks, at = list[tuple[bytes, bytes]](), 8
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    i = draw.randrange(len(chunks))
    how = draw.random()
    if how < 0.4:
        width, height, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
        sizes = (0, 1, 8, 100, 5000, 20_000, 70_000, 2**31 - 1, 2**32 - 1)
        fields = [
            draw.choice((width, *sizes)),
            draw.choice((height, *sizes)),
            *(draw.choice((r, r, draw.randrange(256))) for r in rest),
        ]
        chunks[0] = (b"IHDR", struct.pack(">IIBBBBB", *fields))
    elif how < 0.6:
        chunks[i] = (chunks[i][0], mutate_bytes(chunks[i][1], draw))
    elif how < 0.7:
        chunks.insert(i, chunks[draw.randrange(len(chunks))])
    elif how < 0.8:
        del chunks[i]
    else:
        text = draw.choice((zlib.compress(bytes(10_000_000)), draw.choice(TEXTS).encode(errors="surrogatepass")))
        kind = draw.choice((b"zTXt", b"iTXt", b"iCCP", b"eXIf", b"acTL", b"fcTL", b"tRNS", b"PLTE", b"gAMA", b"cHRM"))
        chunks.insert(1, (kind, b"x\0\0" + text))
    return data[:8] + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def mutate_tar(data: bytes, draw: random.Random) -> bytes:
    """Change the head of a member, with a checksum that fits; or bytes."""
    if draw.random() < 0.3 or len(data) < 1024:
        return mutate_bytes(data, draw)
    heads = [i for i in range(0, len(data) - 512, 512) if data[i + 257 : i + 262] == b"ustar"]
    out = bytearray(data)
    at = draw.choice(heads)
    start, size = draw.choice(
        ((0, 100), (100, 8), (124, 12), (124, 12), (136, 12), (156, 1), (156, 1), (157, 100), (345, 155))
    )
    if size == 1:
        out[at + start] = draw.choice(b"0123456LKxgSDNV\0")
    elif size == 12:
        number = draw.choice(NUMBERS) % 2**90
        digits = f"{number % 8**11:011o}\0".encode()
        out[at + start : at + start + size] = (
            digits if draw.random() < 0.5 else (b"\x80" + number.to_bytes(12, "big")[-11:])
        )
    else:
        name = draw.choice((*TEXTS, "../x/1.png", "/etc/x/1.png", "a/b/c/d.png", "train/rose/1.png", "x.png")).encode(
            errors="surrogatepass"
        )
        out[at + start : at + start + size] = name[:size].ljust(size, b"\0")
    out[at + 148 : at + 156] = b" " * 8
    out[at + 148 : at + 156] = f"{sum(out[at : at + 512]):06o}\0 ".encode()
    return bytes(out)


def inside_gzip(mutator: Mutator) -> Mutator:
    """A mutator of what was compressed; sometimes of the compressed bytes."""

    def mutate(data: bytes, draw: random.Random) -> bytes:
        if draw.random() < 0.3:
            return mutate_bytes(data, draw)
        if draw.random() < 0.03:
            return gzip.compress(b"x" * draw.choice((10_000_000, 100_000_000)), 9, mtime=0)
        return gzip.compress(mutator(gzip.decompress(data), draw), mtime=0)

    return mutate


def inside_xz(mutator: Mutator) -> Mutator:
    """The same for .xz."""

    def mutate(data: bytes, draw: random.Random) -> bytes:
        if draw.random() < 0.3:
            return mutate_bytes(data, draw)
        return lzma.compress(mutator(lzma.decompress(data), draw), preset=0)

    return mutate


def mutate_idx(data: bytes, draw: random.Random) -> bytes:
    """Change the kind, the number of dimensions or a size, or bytes."""
    if draw.random() < 0.3:
        return mutate_bytes(data, draw)
    out = bytearray(data)
    if draw.random() < 0.4:
        out[draw.randrange(4)] = draw.choice((0, 1, 2, 3, 8, 9, 11, 12, 13, 14, 255))
    else:
        at = 4 + 4 * draw.randrange(max(1, data[3]))
        out[at : at + 4] = (draw.choice(NUMBERS) % 2**32).to_bytes(4, "big")
    return bytes(out)
