"""Labeled images: IDX files (MNIST), or one folder per class.

Folders of classes may also be in a tar file:

    digits/train-images-idx3-ubyte.gz  train-labels-idx1-ubyte.gz  t10k-images-idx3-ubyte.gz  t10k-labels-idx1-ubyte.gz
    flowers/rose/001.jpg  rose/002.png  tulip/001.jpg                       one part
    flowers.tar.xz: train/rose/001.jpg …  test/rose/001.jpg …               two parts, also as a folder

Images are kept as bytes (N, height, width, channels) of one size. A file that cannot be read is an error that names it.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]
Part = Literal["train", "test"]

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")
TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
IDX = {"train": "train", "test": "t10k"}
"""The beginning of the file names of each part."""
UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError)


@dataclasses.dataclass(frozen=True)
class LoadedImage:
    """An image and its name in messages."""

    name: str
    pixels: Pixels
    """(height, width, channels)"""

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """Images (N, height, width, channels) of one size, with labels (indices of `classes`) and names."""

    pixels: Pixels
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    name: str
    names: Sequence[str] = ()
    """Names of the images; images without names are numbered."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> LoadedImage:
        return LoadedImage(self.names[i] if self.names else f"{self.name} {i}", self.pixels[i])

    def take(self, indices: NDArray[np.int64], name: str | None = None) -> ImageSet:
        """Return the images at `indices`."""
        names = [self[int(i)].name for i in indices]
        return ImageSet(self.pixels[indices], self.labels[indices], self.classes, name or self.name, names)

    def fingerprint(self) -> str:
        """Return the SHA-256 of pixels and labels, in order."""
        digest = hashlib.sha256(f"{self.pixels.shape} {self.classes}\n".encode())
        digest.update(np.ascontiguousarray(self.pixels).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        return digest.hexdigest()


def read_image_set(path: str | Path, part: Part, *, side: int | None = None) -> ImageSet:
    """Read a part of the images at `path`, or all if there are no parts; with `side`, resized to a square of that size."""
    path = Path(path)
    if path.is_dir() and any(path.glob(f"{IDX['train']}-images*")):
        return _read_idx(path, part, side)
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
        found = ((p.relative_to(path).as_posix(), p.read_bytes) for p in files)
        return _build_image_set(path, _select_part([(name, read()) for name, read in found], part), side)
    if path.name.lower().endswith(TARS):
        return _build_image_set(path, _select_part(list(_read_tar(path)), part), side)
    raise DataError(
        f"{path} is not a set of images; name a folder with IDX files (train-images-idx3-ubyte …), a folder with one folder "
        f"of images per class, or such a folder as {', '.join(TARS)}"
    )


def read_image(path: str | Path, *, channels: int, side: int | None = None) -> LoadedImage:
    """Read an image file as grayscale or color; with `side`, resized to a square of that size."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    return LoadedImage(str(path), _decode(data, str(path), channels, side))


def split_image_set(images: ImageSet, *, size: int, seed: int) -> tuple[ImageSet, ImageSet]:
    """Hold out `size` images and return the rest and those. The hash of an image decides, so copies stay together."""
    if not 1 <= size < len(images):
        raise DataError(f"cannot hold out {size} of the {len(images)} images of {images.name} for validation")
    key = hashlib.blake2b(str(seed).encode()).digest()
    hashes = [hashlib.blake2b(p.tobytes(), digest_size=8, key=key).digest() for p in images.pixels]
    chosen = set(sorted(set(hashes))[:size])
    chosen_rows = np.asarray([digest in chosen for digest in hashes])
    if chosen_rows.all():
        raise DataError(f"all images of {images.name} are identical: none can be held out for validation")
    rest = images.take(np.flatnonzero(~chosen_rows))
    return rest, images.take(np.flatnonzero(chosen_rows), f"{images.name}, held out")


# ------------------------------------------------------------------------------------------------------------ IDX files


def _read_idx(folder: Path, part: Part, side: int | None) -> ImageSet:
    pixels, labels = (_read_idx_array(folder, f"{IDX[part]}-{what}") for what in ("images", "labels"))
    if pixels.ndim != 3 or labels.ndim != 1 or len(pixels) != len(labels):
        raise DataError(
            f"{folder} should contain images (N, height, width) and N labels, got {pixels.shape} and {labels.shape}"
        )
    pixels = pixels[..., None]
    if side is not None and pixels.shape[1:3] != (side, side):
        pixels = np.stack([_resize(p, side) for p in pixels])
    classes = tuple(str(label) for label in range(int(labels.max()) + 1))
    return ImageSet(pixels, labels.astype(np.int64), classes, f"{folder.name} {IDX[part]}")


def _read_idx_array(folder: Path, start: str) -> Pixels:
    """Read an IDX file: two zeros, the type, the number of dimensions, the dimensions, then the bytes."""
    found = sorted(folder.glob(f"{start}*"))
    if not found:
        raise DataError(f"{folder} contains no {start}-… file")
    path = found[0]
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}; copy it again") from None
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise DataError(f"{path} is not an IDX file of bytes: it begins with {data[:4].hex(' ') or 'nothing'}")
    begin = 4 + 4 * data[3]
    shape = tuple(int.from_bytes(data[i : i + 4], "big") for i in range(4, min(begin, len(data)), 4))
    wanted = begin + int(np.prod(shape, dtype=np.int64))
    if len(data) != wanted or 0 in shape:
        raise DataError(f"{path} should have {wanted} bytes for {shape}, got {len(data)}; copy it again")
    return np.frombuffer(data, np.uint8, offset=begin).reshape(shape)


# ------------------------------------------------------------------------------------------------------- class folders


def _read_tar(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the images of a tar file; nothing is written to disk."""
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                name = PurePosixPath(member.name).as_posix()
                file = tar.extractfile(member) if member.isfile() and name.lower().endswith(ENDINGS) else None
                if file is not None:
                    yield name, file.read()
    except UNREADABLE as error:
        first = str(error).partition("\n")[0].rstrip(":")  # the rest lists every format that was tried
        raise DataError(f"{path} cannot be read: {first}; copy it or pack it again") from None


def _select_part(files: Sequence[tuple[str, bytes]], part: Part) -> list[tuple[str, str, bytes]]:
    """Return (class, name, bytes) of the files of a part: the folder of an image is its class, the folder above it the part."""
    split = [(PurePosixPath(name).parts, data) for name, data in sorted(files)]
    parts = {folders[-3] for folders, _ in split if len(folders) > 2} & {"train", "test", "valid", "val"}
    wanted = {"train"} if part == "train" else parts - {"train"}
    kept = [(folders, data) for folders, data in split if not parts or (len(folders) > 2 and folders[-3] in wanted)]
    return [(folders[-2], "/".join(folders), data) for folders, data in kept if len(folders) > 1]


def _build_image_set(path: Path, files: list[tuple[str, str, bytes]], side: int | None) -> ImageSet:
    if not files:
        raise DataError(
            f"{path} contains no images in class folders (rose/001.jpg, or train/rose/001.jpg) with the endings "
            f"{', '.join(ENDINGS)}"
        )
    classes = tuple(sorted({label for label, _, _ in files}))
    pixels = [_decode(data, f"{path}: {name}", None, side) for _, name, data in files]
    sizes = Counter(p.shape for p in pixels)
    if len(shapes := list(dict.fromkeys(shape[:2] for shape in sizes))) > 1:
        some = ", ".join(f"{h} × {w}" for h, w in shapes[:3])
        raise DataError(f"images of {path} have different sizes ({some} …); set data.side to resize them")
    channels = max(shape[2] for shape in sizes)  # grayscale images among color images
    whole = np.stack([p if p.shape[2] == channels else np.repeat(p, channels, 2) for p in pixels])
    labels = np.asarray([classes.index(label) for label, _, _ in files], np.int64)
    return ImageSet(whole, labels, classes, path.name, [name for _, name, _ in files])


def _decode(data: bytes, name: str, channels: int | None, side: int | None) -> Pixels:
    """Decode an image file to (height, width, channels); without `channels`, 1 or 3 as in the file."""
    image = _open_image(data, name)
    grey = image.mode in ("1", "L", "I", "I;16") if channels is None else channels == 1
    try:
        image = image.convert("L" if grey else "RGB")
    except UNREADABLE as error:
        raise DataError(f"{name} is a damaged image: {error}") from None
    pixels = np.asarray(image).reshape(image.height, image.width, 1 if grey else 3)
    return pixels if side is None or pixels.shape[:2] == (side, side) else _resize(pixels, side)


def _open_image(data: bytes, name: str) -> Image:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError("reading images needs pillow; pip install 'regard[vision]'") from None
    try:
        return Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        raise DataError(f"{name} is not an image that pillow can read") from None


def _resize(pixels: Pixels, side: int) -> Pixels:
    """Resize to a square, bilinear with antialiasing."""
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR)).reshape(side, side, pixels.shape[2])
