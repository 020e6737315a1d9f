"""Shape checks, and the names of all dimensions.

`b, n, d = sizes(x, "b n d", d=self.width)` names the dimensions of a tensor and checks those that are known.

The legend of every dimension name in Regard:

    b batch   n stream length   m memory or key length   d stream width   h heads   e head width
    f feed-forward width   v vocabulary   r rank or random features   w window or chunk

Layouts: stream (b, n, d), heads (b, h, n, e), scores (b, h, n, m).
"""

from __future__ import annotations

from torch import Tensor

from regard.errors import ShapeError, SpecError


def sizes(x: Tensor, names: str, **known: int) -> tuple[int, ...]:
    """Return the sizes of `x`; those in `known` must agree."""
    shape, letters = tuple(x.shape), names.split()
    wrong = [f"{k} is {s}" for k, s in zip(letters, shape, strict=False) if known.get(k, s) != s]
    if len(shape) != len(letters) or wrong:
        wanted = ", ".join(f"{k}={known[k]}" if k in known else k for k in letters)
        why = ", ".join(wrong) if len(shape) == len(letters) else f"{len(shape)} dimensions, not {len(letters)}"
        raise ShapeError(f"tensor should be ({wanted}), got {shape}: {why}")
    return shape


def width_of_head(width: int, heads: int, chosen: int | None) -> int:
    """Return the width of a head, d_k: `chosen`, or d_model / heads."""
    if chosen is None and width % heads:
        raise SpecError(f"heads={heads} should divide the width {width}, or head_width be set")
    return chosen or width // heads


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(b, n, h·e) to (b, h, n, e)."""
    b, n, width = x.shape
    return x.view(b, n, heads, width // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(b, h, n, e) to (b, n, h·e)."""
    b, h, n, e = x.shape
    return x.transpose(1, 2).reshape(b, n, h * e)


def device_kind(x: Tensor) -> str:
    """Return the device type for autocast; meta tensors count as CPU."""
    return "cpu" if x.is_meta else x.device.type
