"""Softmax mixers share one set of settings, and a twin has the same values."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from regard.errors import SpecError
from regard.nn.core.mask import Strided, Window
from regard.nn.layers.norm import RMSNorm
from regard.nn.mixers import MIXERS, BigBird, Flash, Full, Local, Sparse, XLMemory
from regard.nn.mixers.softmax import SoftmaxAttention
from regard.nn.positions.position import Rotary

DIALS: dict[str, Any] = dict(
    kv_heads=2, head_width=3, scale=0.5, bias="qkv", dropout=0.1, position=Rotary(), qk_norm=RMSNorm()
)
SPECS: list[SoftmaxAttention] = [
    Full(4, **DIALS), Flash(4, **DIALS, mask=Window(2)), Local(4, 2, **DIALS), BigBird(4, **DIALS),
    Sparse(4, Strided(2), **DIALS), XLMemory(4, 8, **DIALS, mask=Window(3)),
]  # fmt: skip
KINDS = {name: part for name, part in MIXERS.items() if issubclass(part, SoftmaxAttention)}


def test_every_softmax_mixer_is_here() -> None:
    assert {type(spec) for spec in SPECS} == set(KINDS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_settings_with_the_same_defaults(kind: str) -> None:
    shared = {f.name: f for f in dataclasses.fields(SoftmaxAttention)}
    assert set(shared) == {"heads", *DIALS}
    for f in dataclasses.fields(KINDS[kind]):  # type: ignore[arg-type]
        if f.name in shared:
            assert (f.default, f.type, f.kw_only) == (
                shared[f.name].default, shared[f.name].type, f.name != "heads",
            )  # fmt: skip


@pytest.mark.parametrize("kind", [name for name in MIXERS if name not in KINDS])
def test_other_mixers_use_these_words_with_the_same_defaults(kind: str) -> None:
    """Except that the hash of `lsh` is of queries without a bias, as in the paper."""
    shared = {f.name: f.default for f in dataclasses.fields(SoftmaxAttention)}
    for f in dataclasses.fields(MIXERS[kind]):  # type: ignore[arg-type]
        if (kind, f.name) != ("lsh", "bias"):
            assert f.default == shared.get(f.name, f.default), f.name


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: type(s).__name__)
def test_a_twin_has_the_same_values(spec: SoftmaxAttention) -> None:
    assert spec.dials() == {"heads": 4, **DIALS}
    twin = spec.twin()
    if twin is not None:
        assert isinstance(twin, Full) and twin.dials() == spec.dials()


def test_a_fault_names_the_positional_field() -> None:
    with pytest.raises(SpecError, match=r"^reach: .*got 'far'$"):
        Local(2, "far")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"^argument 6: unexpected positional argument, got 3$"):
        Local(2, 2, 1, False, 8, 3)  # type: ignore[misc]
    with pytest.raises(SpecError, match=r"^kv_heads should divide heads=4, got 3$"):
        BigBird(4, kv_heads=3)
