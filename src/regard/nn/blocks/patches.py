"""Images as tokens: patches, flattened and projected.

Dosovitskiy et al. 2020.

    image 4 × 6, patch 2      0 0 1 1 2 2        ──▶      first  0  1  2  3  4  5        7 tokens
                              0 0 1 1 2 2
                              3 3 4 4 5 5
                              3 3 4 4 5 5

Each position has a learned vector, for square images of one size; for other sizes the table is interpolated (§3.2).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ShapeError, SpecError
from regard.nn.blocks.embedding import EMBEDS, Embedding, EmbedSpec
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site
from regard.nn.core.shape import sizes
from regard.nn.layers.dropout import Dropout
from regard.spec import Count, Share, spec


@EMBEDS.add
@spec
class Patches(EmbedSpec):
    """Square patches of images (b, channels, height, width) that are `side` high and wide in training.

    With `first` there is one more token before them, learned, which a classifier reads.
    """

    side: Count
    patch: Count
    channels: Count = 3
    first: bool = True
    dropout: Share = 0.0
    vocab = 0

    def __post_init__(self) -> None:
        if self.side % self.patch:
            raise SpecError(f"patch={self.patch} should divide the side of the image, {self.side}")

    def build(self, site: Site) -> PatchEmbedding:
        return PatchEmbedding(self, site)

    def tokens(self, height: int | None = None, width: int | None = None) -> int:
        """Return the number of tokens of an image, of the training size by default."""
        return (height or self.side) // self.patch * ((width or self.side) // self.patch) + self.first


class PatchEmbedding(Embedding):
    def __init__(self, spec: Patches, site: Site) -> None:
        super().__init__()
        self.spec, self.path = spec, site.path
        self.register_parameter("weight", None)  # there is no table to share
        self.patch = nn.Conv2d(spec.channels, site.width, spec.patch, stride=spec.patch)
        self.first = nn.Parameter(torch.empty(site.width)) if spec.first else None
        self.position = nn.Parameter(torch.empty(spec.tokens(), site.width))
        self.dropout = Dropout(spec.dropout)

    def forward(self, ids: Tensor, at: Coords, table: Tensor | None = None) -> Tensor:
        _, _, height, width = sizes(ids, "b c h w", c=self.spec.channels)
        if height % self.spec.patch or width % self.spec.patch:
            raise ShapeError(
                f"{self.path} cuts images into patches of {self.spec.patch} × {self.spec.patch}, and {height} × {width} "
                "cannot be; resize or crop them"
            )
        if at.n != self.spec.tokens(height, width):
            wanted = self.spec.tokens(height, width)
            raise ShapeError(f"{self.path} makes {wanted} tokens of an image {height} × {width}, and {at.n} are placed")
        grid = self.patch(ids)
        x = grid.flatten(2).transpose(1, 2)
        if self.first is not None:
            x = torch.cat([self.first.expand(x.shape[0], 1, -1), x], 1)
        out: Tensor = self.dropout(x + self._places(grid.shape[2], grid.shape[3]))
        return out

    def sample(self, n: int) -> tuple[Tensor, Coords]:
        side = self.spec.side
        images = torch.zeros(2, self.spec.channels, side, side, device=self.position.device)
        return images, Coords.span(self.spec.tokens(), device=self.position.device)

    def _places(self, rows: int, columns: int) -> Tensor:
        """Return one vector per token, interpolated if this is not the training grid."""
        side = self.spec.side // self.spec.patch
        if (rows, columns) == (side, side):
            return self.position
        skip = int(self.spec.first)
        table = self.position[skip:].t().reshape(1, -1, side, side)
        table = F.interpolate(table, (rows, columns), mode="bicubic", align_corners=False)
        return torch.cat([self.position[:skip], table.flatten(2)[0].t()])
