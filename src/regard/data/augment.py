"""Image augmentation: shift, flip and cutout.

The change of an image is a pure function of (seed, epoch, index of the image). It depends neither on the batch nor on earlier
random numbers, so a resumed run sees the same images as an uninterrupted one.
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
"""Random numbers per image: two for the shift, one for the flip, one for the center of the hole."""


@spec
class Augment(Spec):
    """Changes of images in training.

    shift   maximum shift in pixels, up, down, left and right; the border is filled with zeros
    flip    mirror half of the images left to right
    hole    side of a square that is set to zero (cutout, DeVries & Taylor 2017); 0 for none
    """

    shift: Pixel = 0
    flip: bool = False
    hole: Pixel = 0

    def change(self, pixels: Pixels, draws: Draws) -> Pixels:
        """Return changed copies of images (b, height, width, channels), as the random numbers `draws` (b, 4) say."""
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
    """Return the random numbers of `count` images in one epoch, (count, 4)."""
    bits = np.random.Philox(np.random.SeedSequence(seed, spawn_key=(epoch,)))
    return bits.random_raw(count * DRAWS).reshape(count, DRAWS)


def _wipe(pixels: Pixels, draws: Draws, side: int) -> None:
    """Set a square of each image to zero, in place; its center is anywhere in the image."""
    _, height, width, _ = pixels.shape
    middle = (draws % np.uint64(height * width)).astype(np.int64)
    near = [
        np.abs(np.arange(size) - at[:, None]) * 2 < side
        for size, at in ((height, middle // width), (width, middle % width))
    ]
    pixels[near[0][:, :, None] & near[1][:, None, :]] = 0
