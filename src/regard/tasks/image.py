"""Image classification with a Vision Transformer.

The model reads patches of the image (Dosovitskiy et al. 2020).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from regard.data.augment import Augment, Draws, draw
from regard.data.images import (
    SELECTED,
    ImageSet,
    LoadedImage,
    Pixels,
    SelectedImages,
    read_image,
    read_image_set,
    split_image_set,
)
from regard.data.scratch import blocks
from regard.decode import Engine, Search
from regard.errors import CheckpointError, DataError, SpecError
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.patches import Patches
from regard.nn.core.context import Tape
from regard.nn.core.coords import Coords
from regard.spec import Spec, spec
from regard.stopping import rest
from regard.tasks.common.class_names import check_class_names, label_indices, pack_classes, rank_classes, unpack_classes
from regard.tasks.common.classifier import add_class_head, average_log_probs, class_logits, wanted_class
from regard.tasks.common.data_settings import check_metrics
from regard.tasks.common.forward_pass import ForwardPass
from regard.tasks.common.losses import class_loss
from regard.tasks.common.task import TASKS, Dataset, EvalSet, Loss, Output, RunOptions, check_pairs

PATCH = 16
"""Pixels that count as one token when batches are filled, whatever the patch size of the model."""
BATCH_PATCHES = 16_384
"""Such tokens per batch when nothing is trained."""

Side = Annotated[int, Field(ge=1, le=16384)]
"""Pixels per side; the largest images take a gigabyte."""
Number = Annotated[float, Field(allow_inf_nan=False)]


@spec
class ImageData(Spec):
    """The `data` part of a recipe: a folder or tar file with a folder of images per class, or a folder of IDX files."""

    train: str | None = None
    valid: str | None = None
    hold_out: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Fraction of the training images held out for validation if none are given; test images are for `eval`."""
    side: Side | None = None
    """Resize images to squares of this side; without it, they must be squares of one size."""
    augment: Augment = Augment()
    metrics: tuple[str, ...] = ("accuracy", "macro_f1")

    def __post_init__(self) -> None:
        check_metrics(self.metrics)


@spec
class PixelNormalization(Spec):
    """Normalization of pixels, as stored in a model folder."""

    side: Side
    mean: Annotated[tuple[Number, ...], Field(min_length=1)]
    deviation: tuple[Annotated[Number, Field(gt=0)], ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.deviation):
            raise SpecError(
                f"mean and deviation should have the same number of channels, got {len(self.mean)}, {len(self.deviation)}"
            )


@dataclasses.dataclass(frozen=True)
class EncodedImages:
    """Images as bytes with their class indices, and the random augmentation of this epoch."""

    pixels: Pixels | SelectedImages
    labels: NDArray[np.int64]
    lengths: NDArray[np.int64]
    draws: Draws | None = None
    groups: None = None
    shares: None = None
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class ImageBatch:
    """Images (b, channels, height, width) as bytes, and their classes (b,)."""

    pixels: Tensor
    labels: Tensor

    @property
    def tokens(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device | str) -> ImageBatch:
        return ImageBatch(self.pixels.to(device), self.labels.to(device))


@dataclasses.dataclass(frozen=True)
class ImageOptions(RunOptions):
    """Options of reading images."""

    side: int | None = None
    """The resolution, if not that of the model."""


@TASKS.add
class Image:
    """Classes, and the normalization of pixels: resized, minus the channel's mean, divided by its deviation."""

    Settings = ImageData
    Options = ImageOptions
    tokenizer = None

    def __init__(
        self,
        settings: ImageData,
        classes: Sequence[str],
        side: int,
        mean: Sequence[float],
        deviation: Sequence[float],
    ) -> None:
        self.settings, self.classes, self.side = settings, tuple(classes), side
        self.mean, self.deviation = tuple(mean), tuple(deviation)

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    @property
    def channels(self) -> int:
        return len(self.mean)

    # ------------------------------------------------------------------------------------------------ from data

    @classmethod
    def configure_data(cls, files: Sequence[str], valid: Sequence[str] = ()) -> dict[str, object]:
        for several in (files, valid):
            if len(several) > 1:
                raise SpecError(f"images come in one folder or tar file, got {len(several)}: {', '.join(several)}")
        named: dict[str, object] = {"train": files[0], "valid": None} if files else {}
        return {**named, "valid": valid[0]} if valid else named

    @classmethod
    def read_test(cls, settings: ImageData, files: Sequence[str]) -> ImageSet:
        cls.configure_data(files)
        return _check_square(read_image_set(files[0], "test", side=settings.side))

    @classmethod
    def read(cls, settings: ImageData, seed: int) -> Dataset:
        if settings.train is None:
            raise DataError(
                "no training data; name a folder of IDX files (MNIST), or a folder or tar file with a folder of "
                "images for each class"
            )
        train = _check_square(read_image_set(settings.train, "train", side=settings.side))
        if len(train.classes) < 2:
            raise DataError(f"{train.name} has one class, {train.classes[0]!r}; at least two are needed")
        check_class_names(train.classes, train.name)
        if settings.valid is not None:
            valid = _check_square(read_image_set(settings.valid, "test", side=settings.side))
        else:
            size = max(1, round(settings.hold_out * len(train)))
            train, valid = split_image_set(train, size=size, seed=seed)
        statistics = {
            part: {"images": len(p), "classes": len(p.classes)} for part, p in (("train", train), ("valid", valid))
        }
        height, width, channels = train.pixels.shape[1:]
        messages = (
            f"{train.name}: {len(train):,} images of {height} × {width}, {'grayscale' if channels == 1 else 'in color'}, "
            f"in {len(train.classes)} classes; {len(valid):,} for validation"
        )
        return Dataset(train, valid, f"{train.fingerprint()} {valid.fingerprint()}", statistics, [messages])

    @classmethod
    def prepare(cls, settings: ImageData, dataset: Dataset) -> Self:
        pixels = dataset.train.pixels
        counts = np.zeros((pixels.shape[3], 256), np.int64)
        for some in blocks(len(pixels), SELECTED):
            part = pixels[some]
            counts += [np.bincount(part[..., c].ravel(), minlength=256) for c in range(len(counts))]
        values = np.arange(256) / 255
        mean = [float(n @ values / n.sum()) for n in counts]
        deviation = [float(np.sqrt(n @ (values - m) ** 2 / n.sum())) for n, m in zip(counts, mean, strict=True)]
        if min(deviation) == 0:
            raise DataError(f"all pixels of {dataset.train.name} are equal; there is nothing to learn")
        return cls(settings, dataset.train.classes, pixels.shape[1], mean, deviation)

    @classmethod
    def load(cls, settings: ImageData, files: Mapping[str, bytes]) -> Self:
        kept = unpack_classes(files)
        if missing := [name for name in ("side", "mean", "deviation") if name not in kept]:
            raise CheckpointError(f"classes.json has no {missing[0]!r}; it is not from a model that reads images")
        try:
            pixels = PixelNormalization.parse({name: kept[name] for name in ("side", "mean", "deviation")})
        except SpecError as error:
            raise CheckpointError(f"classes.json: {error}") from None
        return cls(settings, kept["classes"], settings.side or pixels.side, pixels.mean, pixels.deviation)

    def files(self) -> dict[str, bytes]:
        return pack_classes(self.classes, side=self.side, mean=self.mean, deviation=self.deviation)

    def model_arguments(self) -> dict[str, int]:
        return {"image": self.side, "channels": self.channels, "classes": len(self.classes)}

    def adapt_spec(self, spec: ModelSpec) -> ModelSpec:
        if not isinstance(spec.embed, Patches):
            raise SpecError("images need a model that reads patches; use model.family: vit")
        if spec.embed.channels != self.channels:
            raise SpecError(f"the model reads {spec.embed.channels} channels, but these images have {self.channels}")
        return add_class_head(
            spec, len(self.classes), "first" if spec.embed.first else "mean", hidden=False, dropout=0.0
        )

    def encode(self, raw: ImageSet) -> EncodedImages:
        where = np.asarray(label_indices(raw.classes, self.classes, raw.name))
        pixels = raw.pixels
        if pixels.shape[3] > self.channels:
            raise DataError(f"{raw.name} is in color, but the model was trained on grayscale images")
        size = max(1, pixels.shape[1] * pixels.shape[2] // PATCH)
        return EncodedImages(pixels, where[raw.labels], np.full(len(raw), size))

    def augment(self, examples: EncodedImages, seed: int, epoch: int) -> EncodedImages:
        if self.settings.augment == Augment():
            return examples
        return dataclasses.replace(examples, draws=draw(len(examples), seed=seed, epoch=epoch))

    # ------------------------------------------------------------------------------------------------ to the model

    def batch(self, examples: EncodedImages, indices: NDArray[np.int64]) -> ImageBatch:
        pixels = examples.pixels[indices]
        if pixels.shape[3] < self.channels:
            pixels = np.repeat(pixels, self.channels, 3)
        if examples.draws is not None:
            pixels = self.settings.augment.change(pixels, examples.draws[indices])
        return ImageBatch(_to_tensor(pixels), torch.from_numpy(examples.labels[indices]))

    def loss(self, net: Net, batch: ImageBatch, smoothing: float) -> Loss:
        images, at = self._read(net, batch.pixels)
        tape = Tape(outer=net.tape)
        return class_loss(net, class_logits(net, images, at, tape), batch.labels, smoothing, tape)

    def _read(self, net: Net, pixels: Tensor) -> tuple[Tensor, Coords]:
        """Bytes as normalized numbers, and the positions of their patches."""
        assert isinstance(net.spec.embed, Patches)
        mean, deviation = (torch.tensor(v, device=pixels.device).view(1, -1, 1, 1) for v in (self.mean, self.deviation))
        kind = next(net.embed.parameters()).dtype
        images = ((pixels / 255 - mean) / deviation).to(kind)
        return images, Coords.span(net.spec.embed.tokens(*images.shape[2:]), device=pixels.device)

    # ------------------------------------------------------------------------------------------------ to the user

    def run(
        self,
        engine: Engine,
        inputs: Sequence[str | LoadedImage],
        search: Search,
        options: ImageOptions = ImageOptions(),
    ) -> list[list[Output]]:
        """The likeliest classes of each image, given as a path; `options.side` sets another resolution.

        An image that cannot be read gives an output with an `error`.
        """
        found = list[list[Output]]()
        for some in self._divide(inputs, options.side):
            rest()
            read = [self._try_image(one, options.side) for one in some]
            if good := [pixels for pixels in read if not isinstance(pixels, DataError)]:
                pixels = _to_tensor(np.stack(good))
                with torch.no_grad():
                    logits = [class_logits(net, *self._read(net, pixels.to(net.device))).cpu() for net in engine.nets]
                ranked = iter(
                    [rank_classes(row, self.classes, search.n_best) for row in average_log_probs(logits).tolist()]
                )
            found += [[Output("", error=str(one))] if isinstance(one, DataError) else next(ranked) for one in read]
        return found

    def score(
        self,
        engine: Engine,
        inputs: Sequence[str | LoadedImage],
        outputs: Sequence[str],
        options: ImageOptions = ImageOptions(),
    ) -> list[float]:
        """log P(class | image) for each pair."""
        net = engine.nets[0]
        check_pairs(inputs, outputs)
        wanted = label_indices(outputs, self.classes, "what is asked about")
        with torch.no_grad():
            rows = [
                average_log_probs([class_logits(net, *self._read(net, p.to(net.device)))])
                for p in self._batch_images(inputs, options.side)
            ]
        log_probs = torch.cat(rows).cpu() if rows else torch.empty(0, len(self.classes))
        return [float(row[i]) for row, i in zip(log_probs, wanted, strict=True)]

    def forward_pass(
        self, net: Net, text: str | LoadedImage, output: str, options: ImageOptions = ImageOptions()
    ) -> ForwardPass:
        """The image, given as a path, and its class; tokens are named by their row and column."""
        (pixels,) = self._batch_images([text], options.side)
        images, at = self._read(net, pixels.to(net.device))
        assert isinstance(net.spec.embed, Patches)
        rows, columns = (size // net.spec.embed.patch for size in images.shape[2:])
        labels = ["first"] * net.spec.embed.first + [f"{r},{c}" for r in range(rows) for c in range(columns)]
        wanted = torch.tensor([wanted_class(output, self.classes)], device=net.device)
        return ForwardPass(images, at, labels, wanted)

    def eval_sets(self, raw: ImageSet) -> list[EvalSet]:
        inputs = [raw[i] for i in range(len(raw))]
        return [EvalSet(inputs, [raw.classes[i] for i in raw.labels.tolist()], ImageOptions())]

    def _batch_images(self, inputs: Sequence[str | LoadedImage], side: int | None) -> Iterator[Tensor]:
        """Images in batches of one size; those from files are resized to the model's size, or to `side`."""
        for some in self._divide(inputs, side):
            rest()
            yield _to_tensor(np.stack([self._load_image(one, side) for one in some]))

    def _divide(self, inputs: Sequence[str | LoadedImage], side: int | None) -> Iterator[Sequence[str | LoadedImage]]:
        """Yield as many inputs at a time as fit into a batch."""
        rows = max(1, BATCH_PATCHES * PATCH // (side or self.side) ** 2)
        return (inputs[i : i + rows] for i in range(0, len(inputs), rows))

    def _try_image(self, one: str | LoadedImage, side: int | None) -> Pixels | DataError:
        try:
            return self._load_image(one, side)
        except DataError as error:
            return error

    def _load_image(self, one: str | LoadedImage, side: int | None) -> Pixels:
        side = side or self.side
        image = one if isinstance(one, LoadedImage) else read_image(one, channels=self.channels, side=side)
        pixels = image.pixels
        if pixels.shape[2] < self.channels:
            pixels = np.repeat(pixels, self.channels, 2)
        if pixels.shape != (side, side, self.channels):
            raise DataError(
                f"{image} should be {(side, side, self.channels)}, got {pixels.shape}; give its path instead"
            )
        return pixels


def _check_square(images: ImageSet) -> ImageSet:
    height, width = images.pixels.shape[1:3]
    if height != width:
        raise DataError(f"images of {images.name} are {height} × {width}; set data.side to resize them to squares")
    return images


def _to_tensor(pixels: Pixels) -> Tensor:
    """(b, height, width, channels) → (b, channels, height, width)."""
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))
