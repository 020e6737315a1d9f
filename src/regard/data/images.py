"""Pictures with their classes, from what people have: IDX files (MNIST), and folders or tars with a folder a class.

    digits/train-images-idx3-ubyte.gz  train-labels-idx1-ubyte.gz  t10k-images-idx3-ubyte.gz  t10k-labels-idx1-ubyte.gz
    flowers/rose/001.jpg  rose/002.png  tulip/001.jpg                       one part
    flowers.tar.xz: train/rose/001.jpg …  test/rose/001.jpg …               two parts, also as a folder

All pictures are kept as bytes (N, height, width, channels) of one size. What cannot be read is an error with its name.
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
"""How the files of a part begin."""
UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError)


@dataclasses.dataclass(frozen=True)
class LoadedImage:
    """One picture and what to call it."""

    name: str
    pixels: Pixels
    """(height, width, channels)"""

    def __str__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """Pictures (N, height, width, channels) of one size, the class of each by its place in `classes`, and their names."""

    pixels: Pixels
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    name: str
    names: Sequence[str] = ()
    """Of each picture; those of an array go by their number."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> LoadedImage:
        return LoadedImage(self.names[i] if self.names else f"{self.name} {i}", self.pixels[i])

    def take(self, indices: NDArray[np.int64], name: str | None = None) -> ImageSet:
        """The pictures at `indices`."""
        names = [self[int(i)].name for i in indices]
        return ImageSet(self.pixels[indices], self.labels[indices], self.classes, name or self.name, names)

    def fingerprint(self) -> str:
        """SHA-256 of pixels and classes, in their order."""
        digest = hashlib.sha256(f"{self.pixels.shape} {self.classes}\n".encode())
        digest.update(np.ascontiguousarray(self.pixels).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        return digest.hexdigest()


def read_image_set(path: str | Path, part: Part, *, side: int | None = None) -> ImageSet:
    """A part of what lies at `path`; where there are no parts, all of it. With `side`, resized to a square of that size."""
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
        f"{path} is no set of pictures; name a folder with IDX files (train-images-idx3-ubyte …), a folder with a folder "
        f"of pictures for each class, or such a folder as {', '.join(TARS)}"
    )


def read_image(path: str | Path, *, channels: int, side: int | None = None) -> LoadedImage:
    """A picture from its file, grey or in colour as asked, and resized to a square where a side is given."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    return LoadedImage(str(path), _decode(data, str(path), channels, side))


def split_image_set(pictures: ImageSet, *, size: int, seed: int) -> tuple[ImageSet, ImageSet]:
    """Set `size` pictures aside: the rest, and those. A picture's own bytes decide, so copies of one stay together."""
    if not 1 <= size < len(pictures):
        raise DataError(f"cannot set {size} of the {len(pictures)} pictures of {pictures.name} aside for validation")
    key = hashlib.blake2b(str(seed).encode()).digest()
    hashes = [hashlib.blake2b(p.tobytes(), digest_size=8, key=key).digest() for p in pictures.pixels]
    chosen = set(sorted(set(hashes))[:size])
    aside = np.asarray([digest in chosen for digest in hashes])
    if aside.all():
        raise DataError(f"all pictures of {pictures.name} are the same: none can be set aside for validation")
    rest = pictures.take(np.flatnonzero(~aside))
    return rest, pictures.take(np.flatnonzero(aside), f"{pictures.name}, set aside")


# ------------------------------------------------------------------------------------------------------------ IDX files


def _read_idx(folder: Path, part: Part, side: int | None) -> ImageSet:
    pixels, labels = (_read_idx_array(folder, f"{IDX[part]}-{what}") for what in ("images", "labels"))
    if pixels.ndim != 3 or labels.ndim != 1 or len(pixels) != len(labels):
        raise DataError(
            f"{folder} should hold pictures (N, height, width) and N labels, got {pixels.shape} and {labels.shape}"
        )
    pixels = pixels[..., None]
    if side is not None and pixels.shape[1:3] != (side, side):
        pixels = np.stack([_resize(p, side) for p in pixels])
    classes = tuple(str(label) for label in range(int(labels.max()) + 1))
    return ImageSet(pixels, labels.astype(np.int64), classes, f"{folder.name} {IDX[part]}")


def _read_idx_array(folder: Path, start: str) -> Pixels:
    """The array of an IDX file: two zeros, the type, how many dimensions, each of them, then the bytes."""
    found = sorted(folder.glob(f"{start}*"))
    if not found:
        raise DataError(f"{folder} holds no {start}-… file")
    path = found[0]
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read: {error}; copy it again") from None
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise DataError(f"{path} is no IDX file of bytes: it begins with {data[:4].hex(' ') or 'nothing'}")
    begin = 4 + 4 * data[3]
    shape = tuple(int.from_bytes(data[i : i + 4], "big") for i in range(4, min(begin, len(data)), 4))
    wanted = begin + int(np.prod(shape, dtype=np.int64))
    if len(data) != wanted or 0 in shape:
        raise DataError(f"{path} should have {wanted} bytes for {shape}, got {len(data)}; copy it again")
    return np.frombuffer(data, np.uint8, offset=begin).reshape(shape)


# ------------------------------------------------------------------------------------------------------- class folders


def _read_tar(path: Path) -> Iterator[tuple[str, bytes]]:
    """The pictures of a tar; nothing is written to disk."""
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                name = PurePosixPath(member.name).as_posix()
                file = tar.extractfile(member) if member.isfile() and name.lower().endswith(ENDINGS) else None
                if file is not None:
                    yield name, file.read()
    except UNREADABLE as error:
        first = str(error).partition("\n")[0].rstrip(":")  # what follows is about every way that was tried
        raise DataError(f"{path} cannot be read: {first}; copy it or pack it again") from None


def _select_part(files: Sequence[tuple[str, bytes]], part: Part) -> list[tuple[str, str, bytes]]:
    """(class, name, bytes) of the files of a part: the folder around a picture is its class, one further out the part."""
    split = [(PurePosixPath(name).parts, data) for name, data in sorted(files)]
    parts = {folders[-3] for folders, _ in split if len(folders) > 2} & {"train", "test", "valid", "val"}
    wanted = {"train"} if part == "train" else parts - {"train"}
    kept = [(folders, data) for folders, data in split if not parts or (len(folders) > 2 and folders[-3] in wanted)]
    return [(folders[-2], "/".join(folders), data) for folders, data in kept if len(folders) > 1]


def _build_image_set(path: Path, files: list[tuple[str, str, bytes]], side: int | None) -> ImageSet:
    if not files:
        raise DataError(
            f"{path} holds no pictures in folders of their classes (rose/001.jpg, or train/rose/001.jpg), each of them "
            f"{', '.join(ENDINGS)}"
        )
    classes = tuple(sorted({label for label, _, _ in files}))
    pixels = [_decode(data, f"{path}: {name}", None, side) for _, name, data in files]
    sizes = Counter(p.shape for p in pixels)
    if len(shapes := list(dict.fromkeys(shape[:2] for shape in sizes))) > 1:
        some = ", ".join(f"{h} × {w}" for h, w in shapes[:3])
        raise DataError(f"pictures of {path} are of different sizes ({some} …); say to which to resize them: data.side")
    channels = max(shape[2] for shape in sizes)  # some may be grey among coloured ones
    whole = np.stack([p if p.shape[2] == channels else np.repeat(p, channels, 2) for p in pixels])
    labels = np.asarray([classes.index(label) for label, _, _ in files], np.int64)
    return ImageSet(whole, labels, classes, path.name, [name for _, name, _ in files])


def _decode(data: bytes, name: str, channels: int | None, side: int | None) -> Pixels:
    """The pixels (height, width, channels) of a picture's file; without `channels`, as the file has them: 1 or 3."""
    image = _open_image(data, name)
    grey = image.mode in ("1", "L", "I", "I;16") if channels is None else channels == 1
    try:
        image = image.convert("L" if grey else "RGB")
    except UNREADABLE as error:
        raise DataError(f"{name} is a damaged picture: {error}") from None
    pixels = np.asarray(image).reshape(image.height, image.width, 1 if grey else 3)
    return pixels if side is None or pixels.shape[:2] == (side, side) else _resize(pixels, side)


def _open_image(data: bytes, name: str) -> Image:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError("pictures are read by pillow, which is not installed; pip install 'regard[vision]'") from None
    try:
        return Image.open(io.BytesIO(data))
    except UnidentifiedImageError:
        raise DataError(f"{name} is no picture that pillow knows") from None


def _resize(pixels: Pixels, side: int) -> Pixels:
    """Stretched or shrunk to a square, bilinear with antialiasing."""
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR)).reshape(side, side, pixels.shape[2])
