"""Strided and fixed patterns: their dense twins, how many pairs they look at, and single steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.errors import SpecError
from regard.nn.core.context import Context, Tape
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Causal, Fixed, Rule, Strided, Window
from regard.nn.core.mixer import Site
from regard.nn.mixers import Full, Sparse
from regard.nn.positions.position import ALiBi, PositionSpec, Relative, Rotary
from tests.nn.mixers.test_local import PLACES, WIDTH, N, built, same

pytestmark = pytest.mark.numeric

PATTERNS = [Strided(3), Strided(5), Strided(1), Fixed(4), Fixed(5, summary=2), Fixed(3, summary=3), Fixed(1)]


class TestTwin:
    @pytest.mark.parametrize("pattern", PATTERNS, ids=str)
    @pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
    @pytest.mark.parametrize("place", PLACES)
    def test_the_same_attention_under_a_mask(self, pattern: Rule, causal: bool, place: str) -> None:
        spec = Sparse(4, pattern, kv_heads=2)
        assert spec.twin() == Full(4, kv_heads=2, mask=pattern)
        same(built(spec, causal), built(spec.twin(), causal), PLACES[place])

    @pytest.mark.parametrize("pattern", [Strided(4), Fixed(4, summary=2)], ids=str)
    @pytest.mark.parametrize("position", [Rotary(), ALiBi(), Relative(3)], ids=["rotate", "bias", "content"])
    @pytest.mark.parametrize("place", ["span", "left"])
    def test_with_positions(self, pattern: Rule, position: PositionSpec, place: str) -> None:
        spec = Sparse(2, pattern, position=position)
        same(built(spec, True), built(spec.twin(), True), PLACES[place])

    @pytest.mark.parametrize("pattern", [Strided(4), Fixed(4)], ids=str)
    def test_from_any_first_position(self, pattern: Rule) -> None:
        spec = Sparse(2, pattern)
        same(built(spec, True), built(spec.twin(), True), Coords.span(N, first=6))

    @pytest.mark.parametrize("pattern", [Strided(4), Fixed(4)], ids=str)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_in_lower_precision(self, pattern: Rule, dtype: torch.dtype) -> None:
        mixer, at = built(Sparse(2, pattern), True), PLACES["left"]
        x = torch.randn(3, N, WIDTH, dtype=torch.double)
        wanted = mixer(x, Context(at))[0]
        out = mixer.to(dtype)(x.to(dtype), Context(at))[0]
        torch.testing.assert_close(out.double(), wanted, rtol=0, atol=20 * torch.finfo(dtype).eps)


class TestWork:
    @pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
    def test_pairs_of_a_fixed_pattern(self, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        import regard.nn.mixers.full as full

        pairs, attend = [], full.attend
        monkeypatch.setattr(
            full, "attend", lambda q, k, *a, **kw: pairs.append(q.shape[2] * k.shape[2]) or attend(q, k, *a, **kw)
        )
        for n, stride in ((64, 8), (256, 16)):
            pairs.clear()
            built(Sparse(2, Fixed(stride)), causal)(torch.randn(1, n, WIDTH).double(), Context(Coords.span(n)))
            assert len(pairs) == n // stride
            assert sum(pairs) == n * stride + n * (n // stride + 1 if causal else 2 * n // stride) / 2

    @pytest.mark.parametrize("causal", [False, True], ids=["", "causal"])
    def test_pairs_of_a_strided_pattern(self, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        import regard.nn.mixers.sparse as sparse

        pairs, multiply = [], sparse.grouped_matmul
        monkeypatch.setattr(
            sparse, "grouped_matmul", lambda a, b: pairs.append(multiply(a, b).numel()) or multiply(a, b)
        )
        for n, stride in ((64, 8), (256, 16)):
            pairs.clear()
            built(Sparse(2, Strided(stride)), causal)(torch.randn(1, n, WIDTH).double(), Context(Coords.span(n)))
            near, far = pairs[:2]
            assert near == 2 * n * stride * (2 if causal else 3)
            assert far == 2 * n * (n // stride)

    def test_flops(self) -> None:
        maps = 4 * 2 * WIDTH * WIDTH
        for pattern, causal, seen in (
            (Strided(8), True, 8 + 4), (Strided(8), False, 16 + 8), (Fixed(8, 2), True, 8 + 8), (Strided(99), True, 64),
        ):  # fmt: skip
            mixer = Sparse(2, pattern).build(Site("x", WIDTH, N, causal=causal))
            assert mixer.flops(64, 0) == maps + 4 * seen * WIDTH


@pytest.mark.parametrize("pattern", [Strided(5), Fixed(5)], ids=str)
def test_a_step_reads_only_what_it_sees(pattern: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    import regard.nn.mixers.full as full

    read, attend = [], full.attend
    monkeypatch.setattr(full, "attend", lambda q, k, *a, **kw: read.append(k.shape[2]) or attend(q, k, *a, **kw))
    mixer = built(Sparse(2, pattern), True).requires_grad_(False)
    x = torch.randn(2, 40, WIDTH, dtype=torch.double)
    whole, state = mixer(x[:, :30], Context(Coords.span(30)), mixer.start(2, 40))
    for t in range(30, 40):
        read.clear()
        y, state = mixer(x[:, t : t + 1], Context(Coords.span(1, t)), state)
        keep = (Causal() & pattern).allows(Coords.span(1, t), Coords.span(t + 1))
        assert keep is not None
        assert read == [int(keep.sum())]
        whole = torch.cat([whole, y], 1)
    torch.testing.assert_close(whole, mixer(x, Context(Coords.span(40)))[0], rtol=0, atol=1e-12)


def test_the_plan_says_how() -> None:
    for pattern, said in (
        (Strided(4), "plain: chunks of 4, and lanes of every 4th token"),
        (Fixed(4), "blocks of 4 and what sums up others; fused; mask of coordinates"),
    ):
        tape = Tape("nothing")
        mixer = built(Sparse(2, pattern), True)
        mixer(torch.randn(1, 9, WIDTH, dtype=torch.double), Context(Coords.span(9), tape=tape))
        assert tape.plans == {"decoder.blocks.0.mix": said}


def test_other_patterns_are_refused() -> None:
    with pytest.raises(SpecError, match=r"^pattern should be 'strided' or 'fixed', got 'window'$"):
        Sparse(2, Window(3))
    spec: Any = Sparse.parse({"heads": 2, "pattern": {"kind": "fixed", "stride": 4}})
    assert spec == Sparse(2, Fixed(4))
