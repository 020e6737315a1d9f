"""Every kind of number that a GGUF file may hold is what the format's own package makes of it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf as library
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from regard.conversion.gguf_file import BLOCKS, KINDS, GgufFile
from regard.engine.quantized_weights import restore_weights
from tests.conversion.test_gguf import write

pytestmark = pytest.mark.numeric


def blocks(kind: str, rows: int = 3, n: int = 512) -> NDArray[Any]:
    """Random weights in this kind; those the package cannot make are random blocks with sensible scales."""
    number = library.GGMLQuantizationType[kind]
    random = np.random.default_rng(0)
    if not kind.endswith("_K"):
        return library.quants.quantize(random.normal(size=(rows, n)).astype(np.float32), number)
    block, size = library.GGML_QUANT_SIZES[number]
    data = random.integers(0, 256, (rows, n // block, size), np.uint8)
    scales = random.normal(size=(rows, n // block, 2)).astype(np.float16).view(np.uint8)
    data[..., :4] = scales if kind == "Q4_K" else data[..., :4]
    data[..., -2:] = scales[..., :2] if kind == "Q6_K" else data[..., -2:]
    return data.reshape(rows, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_the_packages(kind: str, tmp_path: Path) -> None:
    data = blocks(kind)
    found = GgufFile(write(tmp_path / "x.gguf", {"odd": (blocks("F32", 1, 3), "F32"), "w": (data, kind)}, {})).read("w")
    assert found.shape == (3, 512) and found.dtype == np.float32
    np.testing.assert_array_equal(found, library.quants.dequantize(data, library.GGMLQuantizationType[kind]))
    assert np.isfinite(found).all() and len(np.unique(found)) > 30


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_the_same_numbers(kind: str, tmp_path: Path) -> None:
    """What is kept in blocks of 4 and 8 bits for the native engine is what the package makes of it, bit by bit."""
    file = GgufFile(write(tmp_path / "x.gguf", {"w": (blocks(kind), kind)}, {}))
    found = file.read_blocks("w")
    assert (found is not None) == (kind in BLOCKS)
    if found is not None:
        back = restore_weights({f"w{suffix}": torch.from_numpy(part) for suffix, part in found.items()})
        np.testing.assert_array_equal(back["w"].numpy(), file.read("w"))


def test_scales_that_have_no_equal_are_not_kept(tmp_path: Path) -> None:
    data = blocks("Q4_0")
    data[:, :2] = np.array([60000], np.float16).view(np.uint8)
    file = GgufFile(write(tmp_path / "x.gguf", {"w": (data, "Q4_0")}, {}))
    assert file.read_blocks("w") is None and np.isfinite(file.read("w")).all()


def q4_k(block: bytes) -> list[float]:
    """One block, number by number: 8 groups of 32, each with a scale and a least value of 6 bits."""
    scale, least = struct.unpack("<2e", block[:4])
    s, quants, out = block[4:16], block[16:], []
    for group in range(8):
        if group < 4:
            a, b = s[group] & 63, s[group + 4] & 63
        else:
            a = (s[group + 4] & 15) | (s[group - 4] >> 6 << 4)
            b = (s[group + 4] >> 4) | (s[group] >> 6 << 4)
        for i in range(32):
            q = quants[group // 2 * 32 + i]
            out.append(scale * a * (q >> 4 if group % 2 else q & 15) - least * b)
    return out


def q6_k(block: bytes) -> list[float]:
    """One block, number by number: 6 bits each, four in `low` and two in `high`, and a scale for every 16."""
    low, high, scales = block[:128], block[128:192], struct.unpack("<16b", block[192:208])
    (scale,) = struct.unpack("<e", block[208:])
    out = []
    for i in range(256):
        half, at = divmod(i, 128)
        part, j = divmod(at, 32)
        four = low[half * 64 + part % 2 * 32 + j] >> (4 if part > 1 else 0) & 15
        two = high[half * 32 + j] >> 2 * part & 3
        out.append(scale * scales[i // 16] * ((four | two << 4) - 32))
    return out


@pytest.mark.parametrize(("kind", "plain"), [("Q4_K", q4_k), ("Q6_K", q6_k)])
def test_k_quants_number_by_number(kind: str, plain: Any, tmp_path: Path) -> None:
    data = blocks(kind)
    found = GgufFile(write(tmp_path / "x.gguf", {"w": (data, kind)}, {})).read("w")
    size = library.GGML_QUANT_SIZES[library.GGMLQuantizationType[kind]][1]
    wanted = [x for block in data.reshape(-1, size) for x in plain(block.tobytes())]
    np.testing.assert_allclose(found.ravel(), wanted, rtol=1e-5, atol=1e-5)
