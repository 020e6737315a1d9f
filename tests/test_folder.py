"""Model folders: whole or not there, and never trusted further than they can be checked."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard.errors import CheckpointError, DiskFull, SpecError
from regard.files import storage
from regard.files.folder import (
    JSON_LIMIT,
    MANIFEST,
    MANIFEST_LIMIT,
    file_in,
    read_file,
    read_folder,
    write_folder,
)
from regard.files.tensors import pack, read_tensors
from tests.faulty import Memory, PowerCut

OLD = {"config.json": b'{"a": 1}', "model.safetensors": pack({"w": torch.ones(2)}), "README.md": b"old"}
NEW = {"config.json": b'{"a": 2}', "model.safetensors": pack({"w": torch.zeros(3)}), "card.md": b"new"}
BEST = Path("/run/best")


def written(storage: Memory, files: dict[str, bytes]) -> Memory:
    write_folder(BEST, files, storage=storage)
    return storage


# Writing.


def test_round_trip_on_disk(tmp_path: Path) -> None:
    write_folder(tmp_path / "a" / "best", OLD)
    folder = read_folder(tmp_path / "a" / "best")
    assert folder.files == OLD
    assert folder["README.md"] == b"old"
    assert "README.md" in folder
    assert "card.md" not in folder
    assert folder.json("config.json") == {"a": 1}
    assert torch.equal(folder.tensors()["w"], torch.ones(2))
    write_folder(str(tmp_path / "a" / "best"), NEW)
    assert read_folder(str(tmp_path / "a" / "best")).files == NEW
    assert [entry.name for entry in (tmp_path / "a").iterdir()] == ["best"]


def test_a_folder_can_be_moved(tmp_path: Path) -> None:
    write_folder(tmp_path / "best", OLD)
    (tmp_path / "best").rename(tmp_path / "mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    assert read_folder(tmp_path / "mine").files == read_folder(tmp_path / "link").files == OLD


def test_the_manifest_says_size_and_hash(tmp_path: Path) -> None:
    write_folder(tmp_path / "best", {"b": b"", "a": b"abc"})
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    files = json.loads((tmp_path / "best" / MANIFEST).read_text())["files"]
    assert files["a"] == {"size": 3, "sha256": digest}
    assert list(files) == ["a", "b"]


def test_an_empty_folder_is_filled_in_place(tmp_path: Path) -> None:
    (tmp_path / "best").mkdir()
    write_folder(tmp_path / "best", OLD)
    assert read_folder(tmp_path / "best").files == OLD


def test_a_folder_with_anything_else_in_it_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(
        SpecError, match=r"contains thesis.tex, which Regard did not write; move it or choose another folder"
    ):
        write_folder(tmp_path / "home", NEW)
    write_folder(tmp_path / "best", OLD)
    (tmp_path / "best" / "notes").mkdir()
    with pytest.raises(SpecError, match="contains notes, which Regard did not write"):
        write_folder(tmp_path / "best", NEW)
    assert read_folder(tmp_path / "best").files == OLD  # surplus names do not hurt a reader
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot write file in .*; there is a file where a folder should be"):
        write_folder(tmp_path / "file", NEW)


def test_a_power_cut_leaves_the_old_or_the_new_one() -> None:
    before, cut, done, seen = written(Memory(), OLD), 0, False, []
    while not done:
        storage = before.copy()
        storage.cut = cut
        try:
            written(storage, NEW)
            done = True
        except PowerCut:
            cut += 1
        for disk in storage.after_power_cut():
            found = read_folder(BEST, storage=disk).files
            assert found in ((NEW,) if done else (OLD, NEW))
            assert read_folder(BEST, storage=written(disk, OLD)).files == OLD
            assert disk.list(BEST.parent) == ["best"]
            seen.append(found == NEW)
    assert set(seen) == {True, False}


@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (errno.ENOSPC, DiskFull, "not enough disk space to write best in /run .* needed"),
        (errno.EIO, CheckpointError, r"cannot write best in /run \(Input/output error\)|cannot be read"),
        (errno.EACCES, CheckpointError, r"cannot write best in /run \(Permission denied\); you do not have permission"),
    ],
)
@pytest.mark.parametrize("lasting", [False, True])
def test_a_failing_call_costs_nothing(number: int, error: type[Exception], words: str, lasting: bool) -> None:
    before = written(Memory(), OLD)
    for at in range(len(written(before.copy(), NEW).calls)):
        storage = before.copy()
        storage.fault = lambda n, call: number if n == at or (lasting and n > at) else None  # noqa: B023
        with pytest.raises(error, match=words):
            written(storage, NEW)
        for disk in (storage.copy(), *storage.after_power_cut()):
            assert read_folder(BEST, storage=disk).files in (OLD, NEW)


def test_a_folder_replaced_while_it_is_read_is_read_again() -> None:
    class Busy(Memory):
        swapped = False

        def read(self, path: Path, limit: int) -> bytes:
            if path.name != MANIFEST and not self.swapped:
                self.swapped = True
                written(self, NEW)
            return super().read(path, limit)

    busy = Busy()
    busy.root = written(Memory(), OLD).root
    assert read_folder(BEST, storage=busy).files == NEW


# Reading what somebody else may have made.


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_folder(tmp_path / "m", OLD)
    return tmp_path / "m"


def relist(model: Path, change: Callable[[dict[str, object]], object]) -> None:
    manifest = json.loads((model / MANIFEST).read_text())
    change(manifest["files"])
    (model / MANIFEST).write_text(json.dumps(manifest))


def test_all_faults_are_in_one_message(model: Path) -> None:
    (model / "README.md").unlink()
    (model / "config.json").write_bytes(b'{"a": 2}')
    (model / "model.safetensors").write_bytes(b"short")
    with pytest.raises(CheckpointError) as caught:
        read_folder(model)
    size = len(OLD["model.safetensors"])
    assert str(caught.value) == (
        f"{model} is damaged: README.md is missing; config.json has changed since it was written (its SHA-256 differs); "
        f"model.safetensors should have {size} bytes, has 5"
    )
    (model / "model.safetensors").write_bytes(OLD["model.safetensors"] * 2)
    with pytest.raises(CheckpointError, match=f"model.safetensors should have {size} bytes, has more"):
        read_folder(model)


def test_links_pipes_and_folders_are_no_files(model: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(OLD["config.json"])
    (model / "config.json").unlink()
    (model / "config.json").symlink_to(tmp_path / "outside")
    (model / "README.md").unlink()
    os.mkfifo(model / "README.md")
    (model / "model.safetensors").unlink()
    (model / "model.safetensors").mkdir()
    with pytest.raises(CheckpointError) as caught:
        read_folder(model)
    assert "config.json is a link, and links are not followed" in str(caught.value)
    assert "README.md cannot be read (Not a regular file)" in str(caught.value)
    assert "model.safetensors cannot be read (Not a regular file)" in str(caught.value)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "a\0b"])
def test_a_manifest_speaks_only_of_plain_files_beside_it(model: Path, name: str) -> None:
    relist(model, lambda files: files.update({name: {"size": 0, "sha256": "0" * 64}}))
    with pytest.raises(CheckpointError) as caught:
        read_folder(model)
    assert f"{MANIFEST} is refused: it names {name!r}, not plain files in the same folder" in str(caught.value)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (b"", "it is not JSON"),
        (b"\xff\xfe\xff", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "damaged"),
        (b"{}", "files is missing"),
        (b'{"files": {}, "run": "rm"}', "no key 'run'"),
        (b'{"files": {"a": {"size": -1, "sha256": ""}}}', "size: input should be greater than or equal to 0"),
        (b'{"files": {"a": {"size": 1e99, "sha256": "%s"}}}' % (b"0" * 64), "damaged"),
        (b'{"files": {"%s": {"size": 1, "sha256": "%s"}}}' % (b"x" * 300, b"0" * 64), "File name too long"),
        (b'{"files": {"config.json": {"size": 999999999999999, "sha256": "%s"}}}' % (b"0" * 64), "has 8"),
        (b" " * (MANIFEST_LIMIT + 1), "a manifest has at most 1000000 bytes"),
    ],
)
def test_a_strange_manifest_is_refused(model: Path, manifest: bytes, words: str) -> None:
    (model / MANIFEST).write_bytes(manifest)
    with pytest.raises(CheckpointError, match=words):
        read_folder(model)


def test_what_is_no_model_folder(model: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"there is no model folder .*/none"):
        read_folder(tmp_path / "none")
    with pytest.raises(SpecError, match=r"there is no model folder .*/none/deeper"):
        read_folder(tmp_path / "none" / "deeper")
    with pytest.raises(SpecError, match=r"README.md is a file; a model is a folder with a manifest.json"):
        read_folder(model / "README.md")
    (model / MANIFEST).unlink()
    with pytest.raises(
        CheckpointError, match=r"has no manifest.json: it is not a Regard model folder, or was not finished"
    ):
        read_folder(model)
    (model / MANIFEST).symlink_to("config.json")
    with pytest.raises(CheckpointError, match=r"manifest.json is a link, and links are not followed"):
        read_folder(model)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pkl", "model.pth", "last.ckpt"])
def test_pickles_are_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path / "m", {"config.json": b"{}", name: b"\x80\x04."})
    reason = "loading a pickle can execute arbitrary code; convert it to safetensors where you trust it"
    with pytest.raises(CheckpointError) as caught:
        read_folder(tmp_path / "m")
    assert str(caught.value) == f"{tmp_path / 'm'} is refused: its weights are pickles ({name}); {reason}"
    with pytest.raises(CheckpointError) as caught:
        read_tensors(tmp_path / "m" / name)
    assert str(caught.value) == f"{tmp_path / 'm' / name} is refused: {reason}"


def test_a_pickle_beside_safetensors_is_only_ignored(model: Path) -> None:
    (model / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert read_folder(model).files == OLD


def test_asking_for_what_is_not_there(model: Path) -> None:
    folder = read_folder(model)
    with pytest.raises(CheckpointError, match=r"has no tokenizer.json; it contains README.md, config.json, model"):
        folder["tokenizer.json"]
    with pytest.raises(CheckpointError, match=r"README.md is damaged: it is not JSON"):
        folder.json("README.md")
    with pytest.raises(CheckpointError, match=r"README.md is damaged: it is not a valid safetensors file"):
        folder.tensors("README.md")


def test_torch_is_imported_only_for_tensors() -> None:
    modules = "regard.files.folder, regard.training.run.checkpoint, regard.training.schedule"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    done = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
    assert done.stdout == "False\n"


# Folders of others.


def test_a_link_may_lead_within_a_folder_or_into_the_store_of_a_download(tmp_path: Path) -> None:
    blobs, folder = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "0a1b"
    blobs.mkdir(parents=True)
    folder.mkdir(parents=True)
    (blobs / "77").write_bytes(b"stored")
    (folder / "config.json").symlink_to("../../blobs/77")
    (folder / "again.json").symlink_to("config.json")
    assert read_file(folder, "config.json") == read_file(folder, "again.json", 6) == b"stored"
    assert file_in(folder, "config.json") == blobs / "77"
    (tmp_path / "link").symlink_to(folder)  # which the user named
    assert read_file(tmp_path / "link", "config.json") == b"stored"
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "config.json").symlink_to(blobs / "77")
    with pytest.raises(CheckpointError, match=r"config.json is refused: it is a link to a file outside the folder"):
        read_file(plain, "config.json")
    (tmp_path / "secret").write_bytes(b"mine")
    (blobs / "78").symlink_to(tmp_path / "secret")
    (folder / "vocab.txt").symlink_to("../../blobs/78")
    with pytest.raises(CheckpointError, match=r"vocab.txt is refused: it is a link to a file outside the folder"):
        read_file(folder, "vocab.txt")


def test_a_file_of_others_is_a_file_and_not_too_large(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="pipe is refused: it is not a regular file"):
        read_file(tmp_path, "pipe")
    (tmp_path / "large").write_bytes(b"1234567")
    assert read_file(tmp_path, "large", 7) == b"1234567"
    with pytest.raises(CheckpointError, match="large is refused: it has more than 6 bytes"):
        read_file(tmp_path, "large", 6)
    with pytest.raises(CheckpointError, match=r"cannot read gone in .* \(No such file or directory\)"):
        read_file(tmp_path, "gone")


def test_a_header_is_looked_at_before_the_file_is_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (model / "model.safetensors").write_bytes(b"PK\x03\x04" + bytes(1000))
    read: list[int] = []
    whole = storage.Disk.read

    def counted(disk: storage.Disk, path: Path, limit: int) -> bytes:
        read.append(limit)
        return whole(disk, path, limit)

    monkeypatch.setattr(storage.Disk, "read", counted)
    with pytest.raises(
        CheckpointError,
        match=r"model\.safetensors is not a valid safetensors file \(its header would have 67324752",
    ):
        read_folder(model)
    assert 8 in read
    assert 1005 not in read


def test_a_file_beyond_memory_is_not_begun_with(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "LARGE", 4)
    monkeypatch.setattr(storage, "free_memory", lambda: 5)
    with pytest.raises(CheckpointError, match=r"\(\d+ bytes, more than the free memory\); the files are intact"):
        read_folder(model)
    monkeypatch.setattr(storage, "free_memory", lambda: 0)  # nobody knows
    assert read_folder(model)


def test_a_folder_we_name_ourselves_is_no_link(model: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".best.previous").symlink_to(model)
    with pytest.raises(
        CheckpointError, match=r"\.best\.previous is a link, and links are not followed; use its target"
    ):
        read_folder(tmp_path / "run" / "best")


def test_a_configuration_has_a_size(model: Path) -> None:
    write_folder(model, {**OLD, "config.json": b" " * (JSON_LIMIT + 1)})
    with pytest.raises(
        CheckpointError, match=f"config.json is refused: a configuration has at most {JSON_LIMIT} bytes"
    ):
        read_folder(model).json("config.json")
