"""GGUF files whose header promises what is not there are refused before room is made for it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from regard.conversion import gguf
from regard.errors import CheckpointError


def header(said: bytes = b"", pairs: int = 0, table: bytes = b"", tensors: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + said + table


def text(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def entry(name: str, shape: list[int], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "is damaged: it is empty"),
        (b"PK\x03\x04 and more", "is not a GGUF file: it does not begin with 'GGUF'"),
        (b"GGUF\x03", "is damaged: 4 bytes should come at 4, and it ends at 5"),
        (header(version=1), r"has GGUF version 1; only \(2, 3\) in little-endian order are read"),
        (header(version=3 << 24), r"has GGUF version 50331648; only"),
        (header(pairs=2**60), "1152921504606846976 entries cannot follow at 24"),
        (header(tensors=2**60), "1152921504606846976 entries cannot follow at 16"),
        (header(struct.pack("<Q", 2**63) + bytes(40), pairs=1), "9223372036854775808 entries cannot follow at 32"),
        (header(text("k") + struct.pack("<IIQ", 9, 4, 2**61), pairs=1), "2305843009213693952 entries cannot follow"),
        (header(text("k") + struct.pack("<IIQ", 9, 8, 2**61), pairs=1), "2305843009213693952 entries cannot follow"),
        (
            header(text("k") + struct.pack("<IIQ", 9, 9, 1) + bytes(9), pairs=1),
            "no value is of kind 9, which stands at",
        ),
        (header(text("k") + struct.pack("<I", 77), pairs=1), "no value is of kind 77"),
        (header((text("k") + struct.pack("<Ib", 1, 1)) * 2, pairs=2), "it says 'k' twice"),
        (header(struct.pack("<Q", 2) + b"\xff\xfe" + struct.pack("<Ib", 1, 1), pairs=1), "no text at 32"),
        (header(table=entry("w", [1] * 9), tensors=1), "the tensor 'w' comes twice or has 9 dimensions"),
        (header(table=entry("w", [1]) * 2, tensors=2), "the tensor 'w' comes twice or has 1 dimensions"),
        (header(table=entry("w", [2**62, 2**62]), tensors=1), "w should lie at 96 with .* bytes; the file ends at"),
        (header(table=entry("w", [4], offset=2**63), tensors=1), "w should lie at .* with 16 bytes; the file ends at"),
        (header(table=entry("w", [0]), tensors=1), r"w has the shape \(0,\), which F32 cannot store"),
        (header(table=entry("w", [33], kind=8), tensors=1), r"w has the shape \(33,\), which Q8_0 cannot store"),
        (header(table=entry("w", [32], kind=16), tensors=1), r"w is stored as IQ2_XXS"),
        (header(table=entry("w", [32], kind=999), tensors=1), r"w is stored as 999"),
        (header(text("general.alignment") + struct.pack("<II", 4, 0), pairs=1), "it aligns tensors to 0 bytes"),
        (
            header(table=b"".join(entry(f"w{i}", [64]) for i in range(90)), tensors=90) + bytes(600),
            "its tensors need 23040 bytes, the file has",
        ),
    ],
)
def test_a_lie_is_found_before_room_is_made_for_it(data: bytes, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=fault):
        gguf.read(path)
