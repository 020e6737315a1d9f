"""Depth and path length of things whose depth and paths are known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from regard.studies.contenders import CONTENDERS, Shape
from regard.studies.path_length import path_length, reach
from regard.studies.sequential_depth import depth

SHAPE = Shape(16, width=8, heads=2, window=8)


class TestDepth:
    def test_a_chain(self) -> None:
        assert depth(lambda x: x, torch.ones(3)) == 0
        assert depth(lambda x: (x + 1).exp() * 2, torch.ones(3)) == 3

    def test_what_runs_side_by_side_counts_once(self) -> None:
        assert depth(lambda x: x.exp() + x.exp() + x.exp(), torch.ones(3)) == 3

    def test_a_view_is_free(self) -> None:
        assert depth(lambda x: x.view(3, 1).T[0, 1:] + 1, torch.ones(3)) == 1

    def test_what_does_not_depend_on_the_input_is_free(self) -> None:
        assert depth(lambda x: x + torch.ones(3).exp().exp().exp(), torch.ones(3)) == 1

    def test_writing_in_place(self) -> None:
        def write(x: Tensor) -> Tensor:
            out = torch.zeros(3)
            out[1:] = x.exp()[1:]
            return out * 2

        assert depth(write, torch.ones(3)) == 3

    @pytest.mark.parametrize("name", CONTENDERS)
    def test_of_the_contenders(self, name: str) -> None:
        """Attention and convolutions: the same for any length. Recurrence, and segments: in proportion to it."""
        short, long = (
            depth(CONTENDERS[name].plain(Shape(n, 8, 2, 8)), torch.randn(1, n, 8)) for n in (32, 64)
        )  # fmt: skip
        if name in ("lstm", "gru", "rnn"):
            assert long > 1.9 * short
        elif name == "xl_memory":
            assert long - short == 64 // 8 - 32 // 8
        else:
            assert long == short


class TestPath:
    def test_who_feels_whom(self) -> None:
        torch.manual_seed(0)
        layer = CONTENDERS["conv"].layer(Shape(4, 8), 0)
        assert reach(layer, torch.randn(4, 8)).int().tolist() == [
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [0, 1, 1, 1],
            [0, 0, 1, 1],
        ]

    @pytest.mark.parametrize(
        ("name", "layers"),
        [
            ("fused", 1), ("flash", 1), ("performer", 1), ("linformer", 1), ("strided", 2), ("fixed", 2), ("bigbird", 2),
            ("local", math.ceil(15 / 4)), ("conv", 15), ("dilated", 4), ("lstm", 15), ("gru", 15),
        ],
    )  # fmt: skip
    def test_of_the_contenders(self, name: str, layers: int) -> None:
        torch.manual_seed(0)
        hop, x = CONTENDERS[name].hop, torch.randn(16, 8, dtype=torch.float64)
        assert hop is not None
        found = path_length(lambda i: hop(SHAPE, i), x, causal=CONTENDERS[name].causal, most=16)
        assert found == layers

    def test_what_never_arrives(self) -> None:
        assert path_length(lambda _: nn.Linear(8, 8), torch.randn(4, 8), causal=False, most=5) is None
