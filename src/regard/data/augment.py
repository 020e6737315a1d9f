"""Pictures moved a little: shifted, mirrored, cut out, so that no pass over them shows quite the same ones.

What happens to a picture is a pure function of (seed, epoch, its place in the data): it depends neither on the batch it is in
nor on anything drawn before, so a resumed run sees what an uninterrupted one does.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.data.images import Pixels
from regard.spec import Spec, spec

Pixel = Annotated[int, Field(ge=0, le=64)]
Draws = NDArray[np.uint64]
DRAWS = 4
"""Random numbers a picture: two for the shift, one for the mirror, one for where the hole is."""


@spec
class Augment(Spec):
    """How pictures are changed in training.

    shift   by up to so many pixels up, down, left and right; zeros come in from the border
    flip    half of them are mirrored left to right
    hole    a square of so many pixels is wiped out (DeVries & Taylor 2017); 0 for none
    """

    shift: Pixel = 0
    flip: bool = False
    hole: Pixel = 0

    def change(self, pixels: Pixels, draws: Draws) -> Pixels:
        """Pictures (b, height, width, channels) as their draws (b, 4) have it."""
        b, height, width, channels = pixels.shape
        down, right = (draws[:, :2] % np.uint64(2 * self.shift + 1)).astype(np.int64).T
        edge = self.shift
        framed = np.zeros((b, height + 2 * edge, width + 2 * edge, channels), np.uint8)
        framed[:, edge : edge + height, edge : edge + width] = pixels
        rows, columns = down[:, None] + np.arange(height), right[:, None] + np.arange(width)
        if self.flip:
            turned = (draws[:, 2] % np.uint64(2)).astype(bool)
            columns[turned] = columns[turned, ::-1]
        out: Pixels = framed[np.arange(b)[:, None, None], rows[:, :, None], columns[:, None, :]]
        if self.hole:
            _wipe(out, draws[:, 3], self.hole)
        return out


def draw(count: int, *, seed: int, epoch: int) -> Draws:
    """Random numbers for so many pictures in one pass over them."""
    bits = np.random.Philox(np.random.SeedSequence(seed, spawn_key=(epoch,)))
    return bits.random_raw(count * DRAWS).reshape(count, DRAWS)


def _wipe(pixels: Pixels, draws: Draws, side: int) -> None:
    """A hole in each picture, its middle anywhere."""
    _, height, width, _ = pixels.shape
    middle = (draws % np.uint64(height * width)).astype(np.int64)
    near = [
        np.abs(np.arange(size) - at[:, None]) * 2 < side
        for size, at in ((height, middle // width), (width, middle % width))
    ]
    pixels[near[0][:, :, None] & near[1][:, None, :]] = 0
