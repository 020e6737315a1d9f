"""Pixels as a PNG file, without a library for images."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from regard.errors import ShapeError

GRAY, COLOR = 0, 2
"""Color types of the format."""


def encode_png(pixels: NDArray[np.number]) -> bytes:
    """A PNG of pixels (1 or 3, height, width) from 0 to 255."""
    if pixels.ndim != 3 or pixels.shape[0] not in (1, 3):
        raise ShapeError(f"a picture should be (1 or 3, height, width), got {pixels.shape}")
    channels, height, width = pixels.shape
    rows = np.clip(np.rint(pixels), 0, 255).astype(np.uint8).transpose(1, 2, 0).reshape(height, width * channels)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], 1)  # every line begins with its filter: none
    head = struct.pack(">IIBBBBB", width, height, 8, COLOR if channels == 3 else GRAY, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
