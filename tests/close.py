"""Compare what two paths computed: floats with a tolerance, all else exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest


def assert_close(
    found: object, wanted: object, *, rel: float = 1e-5, absolute: float = 1e-7, where: str = "it"
) -> None:
    """Two JSON-like values are the same but for the last digits of floats."""
    if isinstance(wanted, Mapping):
        assert isinstance(found, Mapping), where
        assert list(found) == list(wanted), where
        for key, value in wanted.items():
            assert_close(found[key], value, rel=rel, absolute=absolute, where=f"{where}[{key!r}]")
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str | bytes):
        assert isinstance(found, Sequence), where
        assert len(found) == len(wanted), where
        for i, value in enumerate(wanted):
            assert_close(found[i], value, rel=rel, absolute=absolute, where=f"{where}[{i}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=rel, abs=absolute, nan_ok=True), where
    else:
        assert found == wanted, where
