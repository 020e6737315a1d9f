"""Wirings, blocks and stacks: how sublayers meet the stream, written out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard.errors import SpecError
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack, StackBody
from regard.nn.blocks.wiring import Bare, Parallel, PostNorm, PreNorm, WiringSpec
from regard.nn.core.context import Context, Memory
from regard.nn.core.coords import Coords
from regard.nn.core.mask import Window
from regard.nn.core.mixer import Site
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.norm import RMSNorm
from regard.nn.mixers import Full
from regard.nn.positions.position import Bucketed, Relative, Rotary, Sinusoidal

pytestmark = pytest.mark.numeric

SITE = Site("decoder", width=8, length=16)
BLOCK = Block(mix=Full(2), cross=Full(2), feed=FeedForward(12))
CTX = Context(Coords.span(4), memory=Memory(*[torch.randn(2, 3, 8, dtype=torch.double)] * 2, Coords.span(3)))


def built(spec: Stack) -> StackBody:
    body = spec.build(SITE).double()
    assert isinstance(body, StackBody)
    for parameter in body.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return body


def by_hand(wiring: WiringSpec, body: StackBody, x: Tensor) -> Tensor:
    ctx = CTX
    for b in body.blocks:

        def f(role: str, y: Tensor, b: torch.nn.Module = b) -> Tensor:
            return getattr(b, role)(y, ctx)[0]  # type: ignore[no-any-return]

        match wiring:
            case PostNorm():
                for role in ("mix", "cross", "feed"):
                    x = getattr(b, f"{role}_norm")(x + f(role, x))
            case PreNorm():
                for role in ("mix", "cross", "feed"):
                    x = x + f(role, getattr(b, f"{role}_norm")(x))
            case Parallel():
                y = b.mix_norm(x)
                x = x + f("mix", y) + f("cross", y) + f("feed", y)
            case Bare():
                x = f("feed", f("cross", f("mix", x)))
    return x if body.norm is None else body.norm(x)


@pytest.mark.parametrize(
    ("wiring", "norms"),
    [
        (PostNorm(), ["cross_norm", "feed_norm", "mix_norm"]),
        (PreNorm(RMSNorm()), ["cross_norm", "feed_norm", "mix_norm", "norm"]),
        (Parallel(), ["mix_norm", "norm"]),
        (Bare(), []),
    ],
)
def test_wirings_are_their_drawings(wiring: WiringSpec, norms: list[str]) -> None:
    body = built(Stack(BLOCK, depth=2, causal=True, wiring=wiring))
    x = torch.randn(2, 4, 8, dtype=torch.double)
    out, state = body(x, CTX)
    torch.testing.assert_close(out, by_hand(wiring, body, x), rtol=0, atol=1e-10)
    assert state is None
    names = {name.split(".")[-2] for name, _ in body.named_parameters()}
    assert sorted(n for n in names if "norm" in n) == norms


@pytest.mark.parametrize(
    "wiring", [PostNorm(dropout=0.5), PreNorm(dropout=0.5), Parallel(dropout=0.5), Bare(dropout=0.5)]
)
def test_dropout_falls_on_what_sublayers_give(wiring: WiringSpec) -> None:
    body = built(Stack(BLOCK, depth=1, wiring=wiring))
    x = torch.randn(2, 4, 8, dtype=torch.double)
    assert not torch.equal(body(x, CTX)[0], body(x, CTX)[0])
    body.eval()
    torch.testing.assert_close(body(x, CTX)[0], by_hand(wiring, body, x), rtol=0, atol=1e-10)


def test_a_hybrid_lists_its_blocks() -> None:
    other = Block(mix=Full(4, mask=Window(1)))
    stack = Stack(blocks=(BLOCK, other, BLOCK))
    assert stack.layers() == (BLOCK, other, BLOCK)
    body = built(stack)
    assert [b.roles for b in body.blocks] == [("mix", "cross", "feed"), ("mix",), ("mix", "cross", "feed")]
    assert [b.mix.heads for b in body.blocks] == [2, 4, 2]


def test_a_repeated_block_has_weights_of_its_own() -> None:
    body = built(Stack(BLOCK, depth=3))
    assert len({p.data_ptr() for p in body.parameters()}) == len(list(body.parameters()))


def test_a_part_knows_its_place() -> None:
    body = built(Stack(BLOCK, depth=2, causal=True))
    site = body.blocks[1].cross.site
    assert (site.path, site.layer, site.depth, site.causal, site.role) == (
        "decoder.blocks.1.cross",
        1,
        2,
        True,
        "cross",
    )


def test_a_position_in_the_stack_is_one_object() -> None:
    shared = built(Stack(Block(mix=Full(2)), depth=3, position=Bucketed(8, 16)))
    assert [n for n, _ in shared.named_parameters() if "position" in n] == ["position.weight"]
    apart = built(Stack(Block(mix=Full(2, position=Bucketed(8, 16))), depth=3))
    assert [n for n, _ in apart.named_parameters() if "position" in n] == [
        f"blocks.{i}.mix.position.weight" for i in range(3)
    ]


class TestRefusals:
    def test_an_empty_block(self) -> None:
        with pytest.raises(SpecError, match=r"^a block needs at least one of mix, cross and feed"):
            Block()

    @pytest.mark.parametrize("parts", [{}, {"block": BLOCK, "depth": 1, "blocks": (BLOCK,)}])
    def test_a_stack_of_nothing_or_of_both(self, parts: dict[str, object]) -> None:
        with pytest.raises(SpecError, match=r"^a stack is either one `block` with a `depth`, or a list of `blocks`"):
            Stack(**parts)  # type: ignore[arg-type]

    @pytest.mark.parametrize("parts", [{"block": BLOCK}, {"depth": 2, "blocks": (BLOCK,)}])
    def test_a_depth_without_a_block(self, parts: dict[str, object]) -> None:
        with pytest.raises(SpecError, match=r"^`depth` goes with `block`: how often the block is repeated"):
            Stack(**parts)  # type: ignore[arg-type]

    def test_a_position_of_the_stream_in_a_stack(self) -> None:
        said = r"^position 'sinusoidal' acts on the stream; set it in the embedding, not in decoder$"
        with pytest.raises(SpecError, match=said):
            Stack(BLOCK, depth=1, position=Sinusoidal()).build(SITE)

    def test_one_position_for_heads_that_differ(self) -> None:
        blocks = (Block(mix=Full(2)), Block(mix=Full(4)))
        said = r"^position 'rotary' in decoder is shared by all layers, whose heads differ: \[\(2, 4\), \(4, 2\)\]$"
        with pytest.raises(SpecError, match=said):
            Stack(blocks=blocks, position=Rotary()).build(SITE)

    def test_a_position_of_the_stream_in_a_mixer(self) -> None:
        said = r"^mixer 'full' cannot use position 'sinusoidal' \(decoder.blocks.0.mix\): it needs embed$"
        with pytest.raises(SpecError, match=said):
            Stack(Block(mix=Full(2, position=Sinusoidal())), depth=1).build(SITE)


def test_feeds_have_no_position_to_share() -> None:
    """Blocks without a mixer beside one with: the position is that one's."""
    blocks = (Block(feed=FeedForward(4)), Block(mix=Full(2)))
    body = built(Stack(blocks=blocks, position=Relative(2)))
    assert body.position.keys.shape == (5, 4)  # type: ignore[union-attr]
