"""Images as tokens: what each patch becomes, and places stretched to other sizes."""

from __future__ import annotations

import pytest
import torch

from regard.errors import ShapeError, SpecError
from regard.model.build import refusals
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.head import Classes, Masked, Vocab
from regard.nn.blocks.patches import PatchEmbedding, Patches
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.mixers import Full

pytestmark = pytest.mark.numeric

SITE = Site("embed", width=5, length=10)
IMAGES = torch.randn(2, 3, 6, 6, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def made(**more: bool) -> PatchEmbedding:
    embed = Patches(6, 2, **more).build(SITE).double().eval()  # type: ignore[arg-type]
    for parameter in embed.parameters():
        torch.nn.init.normal_(parameter)
    return embed


@pytest.mark.parametrize("first", [True, False])
def test_a_token_is_its_patch_projected_at_its_place(first: bool) -> None:
    embed = made(first=first)
    x = embed(IMAGES, Coords.span(9 + first))
    patch = IMAGES[1, :, 2:4, 4:6]  # second row, third column
    wanted = (embed.patch.weight * patch).sum((1, 2, 3)) + embed.patch.bias + embed.position[5 + first]
    torch.testing.assert_close(x[1, 5 + first], wanted)
    if first:
        assert embed.first is not None
        torch.testing.assert_close(x[1, 0], embed.first + embed.position[0])


def cubic(far: float, a: float = -0.75) -> float:
    """The weight of a place so far away (Keys 1981), with torch's and most others' a."""
    if far <= 1:
        return (a + 2) * far**3 - (a + 3) * far**2 + 1
    return a * far**3 - 5 * a * far**2 + 8 * a * far - 4 * a


def test_places_of_another_size_are_interpolated() -> None:
    """Twice as many rows: the new ones lie a quarter before and after the old; the first token keeps its own place."""
    embed = Patches(12, 2).build(SITE).double()
    for parameter in embed.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.normal_(embed.position)
    with torch.no_grad():
        x = embed(torch.zeros(1, 3, 24, 12, dtype=torch.double), Coords.span(1 + 12 * 6))[0]
    torch.testing.assert_close(x[0], embed.position[0])
    old, new = embed.position[1:].view(6, 6, 5), x[1:].view(12, 6, 5)
    for i, here in ((5, 2.25), (6, 2.75)):
        wanted = sum(cubic(abs(k - here)) * old[k] for k in range(1, 5))
        torch.testing.assert_close(new[i], wanted)


def test_places_of_their_own_size_are_the_table_itself() -> None:
    """And so they would be if they were interpolated: stretching to the same size changes nothing."""
    embed = made()
    assert embed._places(3, 3) is embed.position
    table = embed.position[1:].t().reshape(1, 5, 3, 3)
    stretched = torch.nn.functional.interpolate(table, (3, 3), mode="bicubic", align_corners=False)
    torch.testing.assert_close(stretched, table, rtol=0, atol=1e-12)


def test_how_many_tokens() -> None:
    assert Patches(6, 2).tokens() == 10
    assert Patches(6, 2, first=False).tokens(4, 8) == 8


def test_images_that_cannot_be_cut() -> None:
    with pytest.raises(SpecError, match=r"^patch=4 should divide the side of the image, 6$"):
        Patches(6, 4)
    said = r"^embed cuts images into patches of 2 × 2, and 6 × 5 cannot be; resize or crop them$"
    with pytest.raises(ShapeError, match=said):
        made()(IMAGES[..., :5], Coords.span(10))
    with pytest.raises(ShapeError, match=r"^embed makes 10 tokens of an image 6 × 6, and 9 are placed$"):
        made()(IMAGES, Coords.span(9))
    with pytest.raises(ShapeError, match=r"c is 1$"):
        made()(IMAGES[:, :1], Coords.span(10))


@pytest.mark.parametrize("head", [Vocab(), Vocab(tied=False), Masked()], ids=str)
def test_a_head_over_a_vocabulary_is_refused(head: Vocab | Masked) -> None:
    body = Stack(Block(mix=Full(1)), depth=1)
    said = "a head over a vocabulary needs a token embedding, and this model has none; use head.kind: classes"
    assert refusals(ModelSpec(5, 10, Patches(6, 2), encoder=body, head=head)) == [said]
    assert refusals(ModelSpec(5, 10, Patches(6, 2), encoder=body, head=Classes(2), beside=head)) == [said]
    assert refusals(ModelSpec(5, 10, Patches(6, 2), encoder=body, head=Classes(2))) == []
