"""Weights that lie about themselves: lengths, places, shapes, kinds, names."""

from __future__ import annotations

import json
import struct
from typing import Any

from regard.files.tensors import pack
from regard.model.model_spec import ModelSpec
from tests.hostile.place import ATTACKS, CONFIG, MANIFEST, WEIGHTS, Place, add, both
from tests.hostile.whole import safetensors


def one(dtype: str, shape: list[Any], offsets: list[Any], name: str = "a") -> dict[str, Any]:
    return {name: {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def _sparse(p: Place, size: int, start: bytes) -> None:
    """A file that has nearly no bytes on disk, and promises very many; the manifest with it."""
    p.seal()
    with p.clear(WEIGHTS).open("wb") as file:
        file.write(start)
        file.truncate(size)
    p.change(MANIFEST, "files", lambda files: files | {WEIGHTS: {"size": size, "sha256": "0" * 64}})


F = b"1234" * 4
HEADERS: dict[str, bytes] = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "a header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}",
    "a header of 2^64-1 bytes": struct.pack("<Q", 2**64 - 1) + b"{}",
    "a header of 99 MB": struct.pack("<Q", 99_000_000) + b"{}",
    "a header of no bytes": struct.pack("<Q", 0) + b"{}",
    "a deep header": safetensors(b"[" * 1_000_000),
    "a deep object": safetensors(b'{"a":' * 1_000_000),
    "a header that is no JSON": safetensors(b"\xff" * 40),
    "a header of 30 MB": safetensors(b"{" + b" " * 30_000_000 + b"}"),
    "a hundred thousand tensors": safetensors(
        {f"{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(100_000)}
    ),
    "a name twice": safetensors(
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
        F,
    ),
    "tensors that overlap": safetensors(one("F32", [4], [0, 16]) | one("F32", [4], [0, 16], "b"), F),
    "tensors with a gap": safetensors(one("F32", [1], [0, 4]) | one("F32", [1], [12, 16], "b"), F),
    "a place beyond the end": safetensors(one("F32", [4], [16, 32]), F),
    "a negative place": safetensors(one("F32", [4], [-16, 0]), F),
    "a place that ends first": safetensors(one("F32", [4], [16, 0]), F),
    "a place of 2^64": safetensors(one("F32", [4], [0, 2**64]), F),
    "a place that is no number": safetensors(one("F32", [4], ["0", "16"]), F),
    "a wider type": safetensors(one("F64", [4], [0, 16]), F),
    "a narrower type": safetensors(one("F16", [4], [0, 16]), F),
    "a type that is none": safetensors(one("os.system", [4], [0, 16]), F),
    "whole numbers": safetensors(one("I64", [2], [0, 16]), F),
    "a shape that overflows": safetensors(one("F32", [2**32, 2**32], [0, 16]), F),
    "a shape of 2^62": safetensors(one("F32", [2**62], [0, 16]), F),
    "nothing times very much": safetensors(one("F32", [0, 2**62, 2**62], [0, 0])),
    "a negative shape": safetensors(one("F32", [-4], [0, 16]), F),
    "a shape in fractions": safetensors(one("F32", [4.5], [0, 16]), F),
    "a shape of many ones": safetensors(one("F32", [1] * 100_000 + [4], [0, 16]), F),
    "strides": safetensors({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16], "stride": [0]}}, F),
    "ties to nothing": safetensors({"__metadata__": {"tied": '{"a": "b"}'}}),
    "ties that are deep": safetensors({"__metadata__": {"tied": "[" * 100_000}}),
    "ties to tensors that are none of the model's": safetensors(
        {"__metadata__": {"tied": json.dumps({f"t{i}": "a" for i in range(50_000)})}, **one("F32", [4], [0, 16])}, F
    ),
    "metadata that is none": safetensors({"__metadata__": {"a": 3}}),
    "no tensors": safetensors({}),
    "a name with an escape": safetensors(one("F32", [4], [0, 16], "\x1b[2J\x1b]0;pwned\x07"), F),
    "a name of a megabyte": safetensors(one("F32", [4], [0, 16], "n" * 1_000_000), F),
    "a name that is a path": safetensors(one("F32", [4], [0, 16], "../../outside/secret"), F),
    "a name that is code": safetensors(one("F32", [4], [0, 16], "__class__.__init__.__globals__"), F),
    "bytes to spare": safetensors(one("F32", [4], [0, 16]), F * 2),
}
for said, data in HEADERS.items():
    both(f"weights are {said}", lambda p, data=data: p.write(WEIGHTS, data))
for size, start in (
    (1 << 40, b""),
    (1 << 40, safetensors(one("F32", [(1 << 38) - 32], [0, (1 << 40) - 128]))),
    (1 << 33, b"\x80\x04" + b"." * 100),
    (1 << 33, b"PK\x03\x04"),
):
    both(
        f"a file of {size} bytes that has none, beginning with {start[:4].hex() or 'nothing'}",
        lambda p, size=size, start=start: _sparse(p, size, start),
    )
    ATTACKS[[*ATTACKS][-2]] = ("ours", ATTACKS[[*ATTACKS][-2]][1], False)


def _tied(p: Place) -> None:
    """A layer of a few megabytes, tied to be 300 of them."""
    model = p.read(CONFIG)["model"] | {"width": 256}
    model["decoder"]["block"]["feed"]["width"] = 1024
    weights = ModelSpec.parse(model).build(seed=1).state_dict()
    layer = {name: tensor for name, tensor in weights.items() if ".blocks.0." in name}
    for i in range(1, 300):
        weights |= {name.replace(".blocks.0.", f".blocks.{i}."): tensor for name, tensor in layer.items()}
    model["decoder"]["depth"] = 300
    p.change(CONFIG, "model", model)
    p.write(WEIGHTS, pack(weights))


def _layers(p: Place, count: int) -> None:
    """As many weights as there should be layers, and all of them empty."""
    header = {str(i): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(count)}
    p.change(CONFIG, "model.decoder.depth", count)
    p.write(WEIGHTS, safetensors(header))


add("ours", "weights are tied to be many", _tied)
add("ours", "weights are empty, one for each of 40,000 layers", lambda p: _layers(p, 40_000))
