"""Numbers for people to read.

A column or an axis is formatted as a whole, so that its numbers can be compared by looking.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

UNITS = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "B"), (1e12, "T"))
SHOWN = 4
"""Significant digits of a measured number."""


def number(value: float) -> str:
    """Four significant digits; whole numbers in full: 0.9312, 44,140,544, 3e-7."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    size = abs(value)
    if value == int(value) and size < 1e15:
        return f"{int(value):,}"
    if size < 1e-4 or size >= 1e15:
        return _power(value)
    digits = max(0, SHOWN - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def numbers(values: Sequence[float]) -> list[str]:
    """A column of numbers with the same number of decimals, unless that would hide the small ones."""
    real = [abs(v) for v in values if math.isfinite(v)]
    broken = [v for v in real if v != int(v)]
    digits = SHOWN - 1 - math.floor(math.log10(max(real))) if broken else 0
    if not 0 < digits < 8 or min(broken) < 10.0 ** (1 - digits):  # two digits at least of the smallest
        return [number(v) for v in values]
    while digits > 1 and all(f"{v:.{digits}f}".endswith("0") for v in real):
        digits -= 1
    return [f"{v:.{digits}f}" if math.isfinite(v) else number(v) for v in values]


def compact(value: float) -> str:
    """Three significant digits and a suffix: 8,200, 44.1M, 175B, 0.05, 2e-5."""
    size = abs(value)
    if not math.isfinite(value):
        return number(value)
    if size and not 1e-4 <= size < 999.5e12:
        return _power(value)
    if 999.5 <= size < 9999.5:
        return f"{value:,.0f}"
    scale, suffix = unit(size)
    return f"{value / scale:.3g}{suffix}"


def unit(size: float) -> tuple[float, str]:
    """The unit that leaves at most three digits before the point, and its suffix; thousands start at ten of them."""
    return next(((u, s) for u, s in UNITS if size < (9999.5 if u == 1 else 999.5 * u)), UNITS[-1])


def duration(seconds: float) -> str:
    """Format a duration, in the two units that matter: 12.3 s, 2 min 05 s, 3 h 20 min, 2 d 04 h."""
    if not math.isfinite(seconds):
        return number(seconds)
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole, spans = round(seconds), ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
    large, name, small, part = next(span for span in spans if whole >= span[0])
    return f"{whole // large} {name} {whole % large // small:02d} {part}"


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
