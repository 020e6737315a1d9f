"""Pictures from IDX files, folders and tars, and what cannot be read."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import tarfile
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.data import images, scratch
from regard.data.images import ImageSet, read_image, read_image_set, split_image_set
from regard.errors import DataError


def idx(array: np.ndarray) -> bytes:  # type: ignore[type-arg]
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def png(pixels: np.ndarray, kind: str = "PNG") -> bytes:  # type: ignore[type-arg]
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


GREY = np.arange(36, dtype=np.uint8).reshape(6, 6) * 7
COLOUR = np.stack([GREY, GREY // 2, 255 - GREY], 2)


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    for part, names in (("train", ("cat", "dog")), ("test", ("cat", "dog"))):
        for i, name in enumerate(names):
            folder = root / part / name
            folder.mkdir(parents=True)
            (folder / "0.png").write_bytes(png(COLOUR if i else COLOUR[::-1]))
    (root / "train" / "cat" / "1.PNG").write_bytes(png(GREY))
    (root / "train" / "notes.txt").write_text("not a picture")
    return root


def test_idx_files(tmp_path: Path) -> None:
    pixels, labels = np.stack([GREY, GREY.T]), np.array([1, 0], np.uint8)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(labels))
    found = read_image_set(tmp_path, "train")
    assert np.array_equal(found.pixels[..., 0], pixels)
    assert (found.labels.tolist(), found.classes) == ([1, 0], ("0", "1"))
    assert str(found[1]) == f"{tmp_path.name} train 1"
    assert read_image_set(tmp_path, "train", side=3).pixels.shape == (2, 3, 3, 1)
    with pytest.raises(DataError, match=r"contains no t10k-images-… file"):
        read_image_set(tmp_path, "test")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not an IDX file of bytes: it begins with nothing"),
        (b"\x89PNG", "is not an IDX file of bytes: it begins with 89 50 4e 47"),
        (idx(GREY[None])[:-1], r"should have 52 bytes for \(1, 6, 6\), got 51"),
        (b"\x1f\x8b\x08\x00damaged", "cannot be read: .*copy it again"),
        (idx(GREY), r"should contain images \(N, height, width\) and N labels, got \(6, 6\) and \(1,\)"),
    ],
)
def test_idx_files_that_are_none(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "train-images").write_bytes(data)
    (tmp_path / "train-labels").write_bytes(idx(np.array([1], np.uint8)))
    with pytest.raises(DataError, match=said):
        read_image_set(tmp_path, "train")


def test_a_folder_a_class(classes: Path) -> None:
    train, test = read_image_set(classes, "train"), read_image_set(classes, "test")
    assert train.classes == test.classes == ("cat", "dog")
    assert train.labels.tolist() == [0, 0, 1]
    assert np.array_equal(train.pixels[0], COLOUR[::-1]) and np.array_equal(train.pixels[2], COLOUR)
    assert np.array_equal(train.pixels[1], np.repeat(GREY[..., None], 3, 2)), "a grey one among coloured ones"
    assert train[1].name == "train/cat/1.PNG"
    alone = read_image_set(classes / "train", "train")
    assert np.array_equal(alone.pixels, train.pixels), "without parts, all of it"


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tar.xz"])
def test_a_tar_is_its_folder(classes: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"set.{ending}"
    with tarfile.open(path, f"w:{ending.partition('.')[2]}") as tar:  # type: ignore[call-overload]
        tar.add(classes, "set")
    for part in ("train", "test"):
        assert read_image_set(path, part).fingerprint() == read_image_set(classes, part).fingerprint()  # type: ignore[arg-type]


def test_a_name_that_is_not_utf8_is_escaped(classes: Path, tmp_path: Path) -> None:
    path = tmp_path / "set.tar"
    with tarfile.open(path, "w", encoding="utf-8", errors="surrogateescape") as tar:
        tar.add(classes / "train" / "dog" / "0.png", "dog/\udcff\n.png")
    assert read_image_set(path, "train")[0].name == r"dog/\udcff\n.png"


def test_what_is_no_set_of_pictures(classes: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not a set of images; name a folder with IDX files"):
        read_image_set(tmp_path / "nowhere", "train")
    (tmp_path / "x.tar").write_bytes(b"not a tar")
    with pytest.raises(DataError, match=r"x\.tar cannot be read: .*pack it again"):
        read_image_set(tmp_path / "x.tar", "train")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="contains no images in class folders"):
        read_image_set(tmp_path / "empty", "train")
    (classes / "train" / "dog" / "1.jpg").write_bytes(png(COLOUR[:3], "JPEG"))
    with pytest.raises(DataError, match=r"different sizes \(6 × 6, 3 × 6 …\); set data\.side to resize them"):
        read_image_set(classes, "train")
    assert read_image_set(classes, "train", side=4).pixels.shape == (4, 4, 4, 3)
    (classes / "train" / "dog" / "1.jpg").write_bytes(b"hello")
    with pytest.raises(DataError, match=r"train/dog/1\.jpg is not an image in a format that is read here \(JPEG, PNG"):
        read_image_set(classes, "train")
    (classes / "train" / "dog" / "1.jpg").write_bytes(png(np.tile(COLOUR, (9, 9, 1)), "JPEG")[:-900])
    with pytest.raises(DataError, match=r"train/dog/1\.jpg is a damaged image"):
        read_image_set(classes, "train")


def test_one_picture(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(png(COLOUR))
    assert np.array_equal(read_image(path, channels=3).pixels, COLOUR)
    assert read_image(path, channels=1, side=3).pixels.shape == (3, 3, 1)
    with pytest.raises(DataError, match=r"cannot read .*nothing\.png: No such file"):
        read_image(tmp_path / "nothing.png", channels=1)


def test_a_file_is_only_opened_as_a_format_that_we_read(
    classes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow goes by content: PostScript in a .png file would reach the Ghostscript of the PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/reached\n")
    (programs / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 6\n%%EndComments\nshowpage\n%%EOF\n"
    path = classes / "train" / "dog" / "0.png"
    for data in (script, png(COLOUR, "TIFF"), png(COLOUR, "PPM"), b"%PDF-1.4\n"):
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"0\.png is not an image in a format that is read here"):
            read_image_set(classes, "train")
        with pytest.raises(DataError, match=r"0\.png is not an image in a format that is read here"):
            read_image(path, channels=3)
    assert not (tmp_path / "reached").exists()


@pytest.mark.parametrize(("width", "height"), [(10_000, 10_000), (20_000, 20_000), (2**31 - 1, 2**31 - 1)])
def test_a_header_that_announces_too_many_pixels(tmp_path: Path, width: int, height: int) -> None:
    """Before a pixel is decoded: pillow warns above 89 million pixels, and refuses twice as many."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IDAT" + bytes(4))
    with pytest.raises(DataError, match=r"x\.png is refused: .*67,108,864"):
        read_image(tmp_path / "x.png", channels=3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "WEBP"])
def test_damaged_images_are_data_errors(tmp_path: Path, kind: str) -> None:
    """Whatever a decoder raises."""
    whole = bytearray(png(np.tile(COLOUR, (5, 5, 1)), kind))
    draw = np.random.Generator(np.random.PCG64(1))
    for _ in range(200):
        data = bytearray(whole)
        for place in draw.integers(0, len(data), 4):
            data[place] = draw.integers(0, 256)
        (tmp_path / "x").write_bytes(data[: draw.integers(1, len(data) + 1)])
        with suppress(DataError):
            read_image(tmp_path / "x", channels=3)


def test_sets_that_lie_about_their_size(tmp_path: Path) -> None:
    head = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (2**31 - 1, 2**10, 2**10))
    (tmp_path / "train-images").write_bytes(gzip.compress(head + bytes(1000)))
    with pytest.raises(DataError, match=r"train-images should have .* bytes for .*, and is too small for that"):
        read_image_set(tmp_path, "train")
    member = tarfile.TarInfo("name")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    (tmp_path / "x.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
    with pytest.raises(DataError, match=r"x\.tar cannot be read: a header has 8,589,934,592 bytes"):
        read_image_set(tmp_path / "x.tar", "train")


def test_set_aside_by_content(tmp_path: Path) -> None:
    draw = np.random.Generator(np.random.PCG64(0))
    pixels = draw.integers(0, 255, (20, 3, 3, 1), dtype=np.uint8)
    pixels[7] = pixels[3]
    pictures = ImageSet(pixels, np.arange(20) % 2, ("a", "b"), "x")
    rest, aside = split_image_set(pictures, size=5, seed=1)
    assert len(rest) + len(aside) == 20
    assert {"x 3", "x 7"} <= set(rest.names) or {"x 3", "x 7"} <= set(aside.names), "copies stay together"
    again = split_image_set(pictures.take(np.arange(19, -1, -1)), size=5, seed=1)[1]
    assert sorted(again.names) == sorted(aside.names)
    with pytest.raises(DataError, match="cannot hold out 20 of the 20 images of x"):
        split_image_set(pictures, size=20, seed=1)
    with pytest.raises(DataError, match="all images of x are identical"):
        split_image_set(pictures.take(np.array([3, 7])), size=1, seed=1)


def test_mnist(shared_data: Path) -> None:
    """The published pictures: how many of each digit there are to be judged by, and their first bytes."""
    found = read_image_set(shared_data / "mnist", "test")
    assert found.pixels.shape == (10_000, 28, 28, 1)
    assert np.bincount(found.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    raw = gzip.decompress(next((shared_data / "mnist").glob("t10k-images*")).read_bytes())
    assert hashlib.sha256(found.pixels.tobytes()).digest() == hashlib.sha256(raw[16:]).digest()


def test_a_large_set_is_mapped_not_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same images, whether they are in memory or in a file, and whatever is taken of them."""
    draw = np.random.default_rng(1)
    for i in range(12):
        folder = tmp_path / "ab"[i % 2]
        folder.mkdir(exist_ok=True)
        shape = (6, 6) if i < 3 else (6, 6, 3)  # color comes after grayscale
        Image.fromarray(draw.integers(0, 256, shape, np.uint8)).save(folder / f"{i}.png")
    held = read_image_set(tmp_path, "train")
    monkeypatch.setattr(scratch, "ROOM", 0)
    monkeypatch.setattr(images, "SELECTED", 2)
    mapped = read_image_set(tmp_path, "train")
    base: object = mapped.pixels
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert mapped.fingerprint() == held.fingerprint()
    some = np.array([7, 1, 5])
    chosen, again = mapped.take(some), mapped.take(some).take(np.array([2, 0, 1]))
    assert isinstance(chosen.pixels, images.SelectedImages)
    assert chosen.fingerprint() == held.take(some).fingerprint()
    assert again.fingerprint() == held.take(some[[2, 0, 1]]).fingerprint()
    for one, other in zip(split_image_set(mapped, size=3, seed=1), split_image_set(held, size=3, seed=1), strict=True):
        assert one.fingerprint() == other.fingerprint()
        assert list(one.names) == list(other.names)
