"""GGUF files with counts, lengths and places that are not so."""

from __future__ import annotations

import pickle
import struct

from tests.hostile.place import Place, add
from tests.hostile.whole import gguf, pair, tensor, text

GGUF: dict[str, bytes] = {
    "nothing": b"",
    "another magic": b"GGML" + bytes(100),
    "a pickle": pickle.dumps({"a": 1}),
    "another version": gguf(version=99),
    "the other order of bytes": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "2^64-1 tensors": gguf(counts=(2**64 - 1, 0)),
    "2^40 pairs": gguf(counts=(0, 2**40)),
    "a text of 2^63 bytes": gguf(struct.pack("<Q", 2**63) + b"a", counts=(0, 1)),
    "a value of no kind": gguf(pair(b"a", 99, b""), counts=(0, 1)),
    "an array of 2^61": gguf(pair(b"a", 9, struct.pack("<IQ", 12, 2**61)), counts=(0, 1)),
    "texts without end": gguf(pair(b"a", 9, struct.pack("<IQ", 8, 2**50)), counts=(0, 1)),
    "arrays of arrays": gguf(pair(b"a", 9, struct.pack("<IQ", 9, 1)), counts=(0, 1)),
    "a key twice": gguf(pair(b"a", 0, b"1") * 2, counts=(0, 2)),
    "a key that is no text": gguf(pair(b"\xff\xfe", 0, b"1"), counts=(0, 1)),
    "a tensor of 2^62": gguf(tensors=tensor(b"a", (2**62, 2**62)), counts=(1, 0)),
    "a tensor beyond the end": gguf(tensors=tensor(b"a", (4,), offset=2**40), counts=(1, 0)),
    "a tensor of no kind": gguf(tensors=tensor(b"a", (4,), kind=77), counts=(1, 0)),
    "a tensor twice": gguf(tensors=tensor(b"a", (4,)) * 2, counts=(2, 0)),
    "a tensor of no size": gguf(tensors=tensor(b"a", (0, 2**60)), counts=(1, 0)),
    "99 dimensions": gguf(tensors=tensor(b"a", (1,) * 99), counts=(1, 0)),
    "no step": gguf(pair(b"general.alignment", 4, struct.pack("<I", 0)), counts=(0, 1)),
    "a step of 2^32": gguf(pair(b"general.alignment", 4, b"\xff" * 4), counts=(0, 1)),
    "tensors that share bytes": gguf(tensors=b"".join(tensor(b"%d" % i, (16,)) for i in range(200)), counts=(200, 0))
    + bytes(64),
    "a family that is an import": gguf(pair(b"general.architecture", 8, text(b"os.system")), counts=(0, 1)),
    "a family that is a list": gguf(pair(b"general.architecture", 9, struct.pack("<IQ", 0, 1) + b"a"), counts=(0, 1)),
    "a depth of 2^39": gguf(
        pair(b"general.architecture", 8, text(b"llama")) + pair(b"llama.block_count", 10, struct.pack("<Q", 2**39)),
        counts=(0, 2),
    ),
}
for said, data in GGUF.items():
    add("gguf", said, lambda p, data=data: p.folder.with_name(f"{p.folder.name}.gguf").write_bytes(data))


def _sparse(place: Place, start: bytes, size: int) -> None:
    """A file that has nearly no bytes on disk, and room for all that its header promises."""
    with place.folder.with_name(f"{place.folder.name}.gguf").open("wb") as file:
        file.write(start)
        file.truncate(size)


SPARSE: dict[str, bytes] = {
    "a key of 3 GB": struct.pack("<Q", 3_000_000_000),
    "a text of 3 GB": text(b"general.name") + struct.pack("<IQ", 8, 3_000_000_000),
    "a text of 60 MB": text(b"general.name") + struct.pack("<IQ", 8, 60_000_000),
    "an array of 3 GB": text(b"a") + struct.pack("<IIQ", 9, 1, 3_000_000_000),
    "an array of 60 MB": text(b"a") + struct.pack("<IIQ", 9, 1, 60_000_000),
    "texts without number": text(b"a") + struct.pack("<IIQ", 9, 8, 300_000_000),
}
for said, data in SPARSE.items():
    start = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + data
    add("gguf", f"{said} that takes no room", lambda p, start=start: _sparse(p, start, 3_000_001_000))
many = b"GGUF" + struct.pack("<IQQ", 3, 0, 200_000_000)
add("gguf", "pairs without number that take no room", lambda p: _sparse(p, many, 3_000_001_000))
