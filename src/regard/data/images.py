"""Labeled images: IDX files (MNIST), or one folder per class.

Folders of classes may also be in a tar file:

    digits/train-images-idx3-ubyte.gz  train-labels-idx1-ubyte.gz  t10k-images-idx3-ubyte.gz  t10k-labels-idx1-ubyte.gz
    flowers/rose/001.jpg  rose/002.png  tulip/001.jpg                       one part
    flowers.tar.xz: train/rose/001.jpg …  test/rose/001.jpg …               two parts, also as a folder

Images are kept as bytes (N, height, width, channels) of one size. A file that cannot be read is an error that names it.
A file is decoded by its content, whatever its name, but only as one of `FORMATS`: pillow knows others, and some of them run
programs. Files and archives are read one image at a time, and a large set is memory-mapped.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import math
import os
import tarfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from regard.data.scratch import allocate, blocks
from regard.errors import DataError, make_printable, name_extra
from regard.files.user_file import UNREADABLE, decompress, open_user_file, read_user_file

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]
Part = Literal["train", "test"]

FORMATS = {"JPEG": (".jpg", ".jpeg"), "PNG": (".png",), "BMP": (".bmp",), "GIF": (".gif",), "WEBP": (".webp",)}
"""The formats that are read, by pillow's names, and the endings of file names in a folder of images."""
ENDINGS = tuple(ending for endings in FORMATS.values() for ending in endings)
TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
IDX = {"train": "train", "test": "t10k"}
"""The beginning of the file names of each part."""
MAX_FILE_BYTES = 100_000_000
"""Maximum bytes of an image file."""
MAX_PIXELS = 1 << 26
"""Maximum pixels of an image; more would take 200 MB, and hardly any camera takes such pictures."""
MAX_HEADER_BYTES = 1_000_000
"""Maximum bytes of a name in a tar file."""
GZIP_RATIO = 1100
"""The most that gzip can compress is a little less."""
SELECTED = 256
"""Number of images that are copied or read at a time."""


@dataclasses.dataclass(frozen=True)
class LoadedImage:
    """An image and its name in messages."""

    name: str
    pixels: Pixels
    """(height, width, channels)"""

    def __str__(self) -> str:
        return self.name


class SelectedImages:
    """Some of the images of an array, in an order; they are read on access."""

    def __init__(self, pixels: Pixels | SelectedImages, rows: NDArray[np.int64]) -> None:
        self._pixels, self._rows = pixels, rows
        self.shape: tuple[int, ...] = (len(rows), *pixels.shape[1:])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, which: Any) -> Pixels:
        return self._pixels[self._rows[which]]

    def __iter__(self) -> Iterator[Pixels]:
        return (self[i] for i in range(len(self)))


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """Images (N, height, width, channels) of one size, with labels (indices of `classes`) and names."""

    pixels: Pixels | SelectedImages
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    name: str
    names: Sequence[str] = ()
    """Names of the images, as messages show them; images without names are numbered."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> LoadedImage:
        return LoadedImage(self.names[i] if self.names else f"{self.name} {i}", self.pixels[i])

    def take(self, indices: NDArray[np.int64], name: str | None = None) -> ImageSet:
        """Return the images at `indices`."""
        names = [self[int(i)].name for i in indices]
        pixels = SelectedImages(self.pixels, indices) if len(indices) > SELECTED else self.pixels[indices]
        return ImageSet(pixels, self.labels[indices], self.classes, name or self.name, names)

    def fingerprint(self) -> str:
        """Return the SHA-256 of pixels and labels, in order."""
        digest = hashlib.sha256(f"{self.pixels.shape} {self.classes}\n".encode())
        for some in blocks(len(self), SELECTED):
            digest.update(np.ascontiguousarray(self.pixels[some]).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        return digest.hexdigest()


def read_image_set(path: str | Path, part: Part, *, side: int | None = None) -> ImageSet:
    """Read a part of the images at `path`, or all if there are no parts; with `side`, resized to a square of that size."""
    path = Path(path)
    if path.is_dir() and any(path.glob(f"{IDX['train']}-images*")):
        return _read_idx(path, part, side)
    if path.is_dir():
        return _build_image_set(path, partial(_walk_folder, path), part, side)
    if path.name.lower().endswith(TARS):
        return _build_image_set(path, partial(_walk_tar, path), part, side)
    raise DataError(
        f"{path} is not a set of images; name a folder with IDX files (train-images-idx3-ubyte …), a folder with one folder "
        f"of images per class, or such a folder as {', '.join(TARS)}"
    )


def read_image(path: str | Path, *, channels: int, side: int | None = None) -> LoadedImage:
    """Read an image file as grayscale or color; with `side`, resized to a square of that size."""
    return LoadedImage(str(path), _decode(read_user_file(path, MAX_FILE_BYTES), str(path), channels, side))


def decode_image(data: bytes, name: str, *, channels: int, side: int | None = None) -> LoadedImage:
    """An image from the bytes of its file; `name` is what errors call it."""
    return LoadedImage(name, _decode(data, name, channels, side))


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
        resized = allocate((len(pixels), side, side, 1), np.uint8)
        for i, one in enumerate(pixels):
            resized[i] = _resize(one, side)
        pixels = resized
    classes = tuple(str(label) for label in range(int(labels.max()) + 1))
    return ImageSet(pixels, labels.astype(np.int64), classes, f"{folder.name} {IDX[part]}")


def _read_idx_array(folder: Path, start: str) -> Pixels:
    """Read an IDX file: two zeros, the type, the number of dimensions, the dimensions, then the bytes."""
    found = sorted(folder.glob(f"{start}*"))
    if not found:
        raise DataError(f"{folder} contains no {start}-… file")
    path = found[0]
    with open_user_file(path) as file:
        packed = os.fstat(file.fileno()).st_size
        try:
            inside = decompress(file, path, ("gzip",))
            magic = inside.read(4)
            if len(magic) < 4 or magic[:3] != b"\0\0\x08":
                raise DataError(f"{path} is not an IDX file of bytes: it begins with {magic.hex(' ') or 'nothing'}")
            head = inside.read(4 * magic[3])
            shape = tuple(int.from_bytes(head[i : i + 4], "big") for i in range(0, len(head), 4))
            count = math.prod(shape)
            if count > GZIP_RATIO * packed:
                raise DataError(
                    f"{path} should have {count:,} bytes for {shape}, and is too small for that; copy it again"
                )
            pixels = allocate((count,), np.uint8)
            read = inside.readinto(pixels.data) if count else 0
            more = len(inside.read(1))
        except UNREADABLE as error:
            raise DataError(f"{path} cannot be read: {error}; copy it again") from None
    begin = 4 + 4 * magic[3]
    if read != count or more or len(head) != 4 * magic[3] or 0 in shape:
        got = f"{begin + read} or more" if more else f"{4 + len(head) + read}"
        raise DataError(f"{path} should have {begin + count} bytes for {shape}, got {got}; copy it again")
    return pixels.reshape(shape)


# ------------------------------------------------------------------------------------------------------- class folders


Walk = Callable[[], Iterator[tuple[str, Callable[[], bytes]]]]
"""Walks through the images of a set: their names, and functions that read them while the walk is there."""


def _walk_folder(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for file in sorted(p for p in path.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file()):
        yield file.relative_to(path).as_posix(), partial(read_user_file, file, MAX_FILE_BYTES)


def _walk_tar(path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Read a tar file from its beginning to its end, once; nothing is written to disk."""
    with _open_tar(path) as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # the library would keep every header
            name = PurePosixPath(member.name).as_posix()
            if not member.isfile() or not name.lower().endswith(ENDINGS):
                continue
            if member.size > MAX_FILE_BYTES:
                raise DataError(
                    f"{path}: {name} is refused: it has {member.size:,} bytes; the limit is {MAX_FILE_BYTES:,}"
                )
            yield name, partial(_extract, tar, member)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return b"" if file is None else file.read()


@contextmanager
def _open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    with open_user_file(path) as file:
        try:
            with tarfile.open(fileobj=decompress(file, path), mode="r|", tarinfo=BoundedTarInfo) as tar:
                yield tar
        except (*UNREADABLE, tarfile.TarError) as error:
            first = str(error).partition("\n")[0].rstrip(":")
            raise DataError(f"{path} cannot be read: {first}; copy it or pack it again") from None


class BoundedTarInfo(tarfile.TarInfo):
    """A header of a tar file; one that announces a huge name, which the library would read into memory, is refused."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type not in (*tarfile.REGULAR_TYPES, tarfile.DIRTYPE) and found.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header has {found.size:,} bytes")
        return found


def _select_part(names: Sequence[str], part: Part) -> dict[str, str]:
    """The class of each image of a part, by name: its folder is its class, the folder above it the part."""
    split = {name: PurePosixPath(name).parts for name in sorted(names)}
    parts = {folders[-3] for folders in split.values() if len(folders) > 2} & {"train", "test", "valid", "val"}
    wanted = {"train"} if part == "train" else parts - {"train"}
    kept = {n: f for n, f in split.items() if not parts or (len(f) > 2 and f[-3] in wanted)}
    return {name: folders[-2] for name, folders in kept.items() if len(folders) > 1}


def _build_image_set(path: Path, walk: Walk, part: Part, side: int | None) -> ImageSet:
    """Walk through a set twice: for its names, then for the images of a part, which are decoded one by one."""
    owners = _select_part([name for name, _ in walk()], part)
    if not owners:
        raise DataError(
            f"{path} contains no images in class folders (rose/001.jpg, or train/rose/001.jpg) with the endings "
            f"{', '.join(ENDINGS)}"
        )
    order = {name: i for i, name in enumerate(owners)}
    whole: Pixels | None = None
    for name, read in walk():
        if name not in order:
            continue
        pixels = _decode(read(), f"{path}: {name}", None, side)
        if whole is None:
            whole = allocate((len(order), *pixels.shape), np.uint8)
        if pixels.shape[:2] != whole.shape[1:3]:
            some = ", ".join(f"{h} × {w}" for h, w in (whole.shape[1:3], pixels.shape[:2]))
            raise DataError(f"images of {path} have different sizes ({some} …); set data.side to resize them")
        if pixels.shape[2] > whole.shape[3]:  # the first one in color after grayscale images
            gray, whole = whole, allocate((*whole.shape[:3], pixels.shape[2]), np.uint8)
            for i, one in enumerate(gray):
                whole[i] = one
        whole[order[name]] = pixels  # grayscale images among color images have equal channels
    assert whole is not None
    classes = tuple(sorted(set(owners.values())))
    number = {label: i for i, label in enumerate(classes)}
    labels = np.asarray([number[label] for label in owners.values()], np.int64)
    return ImageSet(whole, labels, classes, path.name, [*map(make_printable, owners)])


def _decode(data: bytes, name: str, channels: int | None, side: int | None) -> Pixels:
    """Decode an image file to (height, width, channels); without `channels`, 1 or 3 as in the file."""
    image = _open_image(data, name)
    grey = image.mode in ("1", "L", "I", "I;16") if channels is None else channels == 1
    try:
        image = image.convert("L" if grey else "RGB")
    except Exception as error:  # a decoder of a damaged file raises anything
        raise DataError(f"{name} is a damaged image: {error}") from None
    pixels = np.asarray(image).reshape(image.height, image.width, 1 if grey else 3)
    return pixels if side is None or pixels.shape[:2] == (side, side) else _resize(pixels, side)


def _open_image(data: bytes, name: str) -> Image:
    """Read the header of an image, and refuse formats and sizes that we do not read."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError(f"reading images needs pillow; {name_extra('vision')}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is lower
            image = Image.open(io.BytesIO(data), formats=list(FORMATS))
    except UnidentifiedImageError:
        raise DataError(f"{name} is not an image in a format that is read here ({', '.join(FORMATS)})") from None
    except Image.DecompressionBombError:
        raise DataError(f"{name} is refused: an image has at most {MAX_PIXELS:,} pixels") from None
    except Exception as error:  # a header that is damaged raises anything
        raise DataError(f"{name} is a damaged image: {error}") from None
    if image.width * image.height > MAX_PIXELS:
        raise DataError(
            f"{name} is refused: it would have {image.width:,} × {image.height:,} pixels; the limit is {MAX_PIXELS:,}"
        )
    return image


def _resize(pixels: Pixels, side: int) -> Pixels:
    """Resize to a square, bilinear with antialiasing."""
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR)).reshape(side, side, pixels.shape[2])
