"""The disk and its model in memory behave alike, and what the operating system says becomes plain words."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.errors import CheckpointError, DiskFull, SpecError
from regard.files.storage import (
    DISK,
    Disk,
    Storage,
    explain_errors,
    format_bytes,
    make_folder,
    write_file,
    write_output,
)
from tests.faulty import Memory, PowerCut
from tests.training.saves import disks

Place = tuple[Storage, Path]


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        return DISK, tmp_path
    memory = Memory()
    make_folder(memory, Path("/run"))
    return memory, Path("/run")


def test_what_was_written_is_read_and_no_more_than_asked(place: Place) -> None:
    storage, folder = place
    storage.write(folder / "a", b"hello")
    storage.sync(folder / "a")
    assert storage.read(folder / "a", 100) == b"hello"
    assert storage.read(folder / "a", 2) == b"he"
    assert storage.read(folder / "a", 10**15) == b"hello"  # makes room for what is there, not for what was asked


def test_a_file_is_summed_up_as_it_would_be_read(place: Place) -> None:
    storage, folder = place
    for name, data in (("none", b""), ("some", b"hello"), ("many", bytes(range(256)) * 4000)):
        storage.write(folder / name, data)
        assert storage.digest(folder / name) == (len(data), hashlib.sha256(data).hexdigest())


def test_a_file_is_mapped_as_it_would_be_read(tmp_path: Path) -> None:
    """And stays what it was when another one takes its place; nothing but a regular file with bytes is mapped."""
    DISK.write(tmp_path / "a", b"hello")
    mapped = DISK.map(tmp_path / "a")
    assert mapped is not None and mapped[:] == b"hello"
    write_file(tmp_path / "a", b"other")
    assert mapped[:] == b"hello" and DISK.read(tmp_path / "a", 9) == b"other"
    (tmp_path / "link").symlink_to(tmp_path / "a")
    DISK.write(tmp_path / "empty", b"")
    for name, number in (("link", errno.ELOOP), ("empty", errno.EINVAL), ("none", errno.ENOENT)):
        with pytest.raises(OSError) as told:
            DISK.map(tmp_path / name)
        assert told.value.errno == number


def test_names_are_listed_sorted_and_moved_whole(place: Place) -> None:
    storage, folder = place
    storage.mkdir(folder / "b")
    storage.write(folder / "b" / "x", b"1")
    storage.write(folder / "a", b"")
    storage.sync(folder)
    assert storage.list(folder) == ["a", "b"]
    storage.rename(folder / "b", folder / "c")
    assert storage.list(folder) == ["a", "c"]
    assert storage.read(folder / "c" / "x", 9) == b"1"
    storage.remove(folder / "c")
    storage.remove(folder / "a")
    assert storage.list(folder) == []
    assert storage.free(folder / "not" / "there") > 0


@pytest.mark.parametrize(
    ("number", "act"),
    [
        (errno.ENOENT, lambda s, f: s.read(f / "none", 1)),
        (errno.ENOENT, lambda s, f: s.list(f / "none")),
        (errno.ENOENT, lambda s, f: s.rename(f / "none", f / "other")),
        (errno.ENOENT, lambda s, f: s.remove(f / "none")),
        (errno.ENOENT, lambda s, f: s.mkdir(f / "none" / "inner")),
        (errno.ENOENT, lambda s, f: s.write(f / "none" / "inner", b"")),
        (errno.EEXIST, lambda s, f: s.mkdir(f / "full")),
        (errno.EEXIST, lambda s, f: s.write(f / "full" / "x", b"")),
        (errno.ENOTDIR, lambda s, f: s.list(f / "full" / "x")),
        (errno.ENOTEMPTY, lambda s, f: s.rename(f / "other", f / "full")),
        (errno.EINVAL, lambda s, f: s.read(f / "full", 1)),
        (errno.ENOENT, lambda s, f: s.digest(f / "none")),
        (errno.EINVAL, lambda s, f: s.digest(f / "full")),
    ],
)
def test_both_fail_alike(place: Place, number: int, act: Callable[[Storage, Path], object]) -> None:
    storage, folder = place
    storage.mkdir(folder / "full")
    storage.mkdir(folder / "other")
    storage.write(folder / "full" / "x", b"")
    with pytest.raises(OSError) as caught:
        act(storage, folder)
    assert caught.value.errno == number


def test_reading_follows_no_link_and_waits_for_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    for read in (DISK.digest, lambda path: DISK.read(path, 9)):
        with pytest.raises(OSError) as link:
            read(tmp_path / "link")
        assert link.value.errno == errno.ELOOP
        with pytest.raises(OSError, match="Not a regular file"):
            read(tmp_path / "pipe")


def test_removing_a_link_leaves_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    DISK.remove(tmp_path / "link")
    assert DISK.list(tmp_path) == ["target"]


def test_a_file_system_without_folder_sync_is_fine_but_no_other_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int) -> Callable[[int], None]:
        def fsync(handle: int) -> None:
            raise OSError(number, os.strerror(number))

        return fsync

    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(os, "fsync", refuse(errno.EINVAL))
    DISK.sync(tmp_path)
    with pytest.raises(OSError):
        DISK.sync(tmp_path / "file")
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError):
        DISK.sync(tmp_path)


def test_folders_made_survive_a_power_cut() -> None:
    memory = Memory()
    make_folder(memory, Path("/a/b/c"))
    make_folder(memory, Path("/a/b/c"))
    assert [disk.files() for disk in memory.after_power_cut()] == [{"/": b"", "/a/": b"", "/a/b/": b"", "/a/b/c/": b""}]


def test_make_folder_on_disk(tmp_path: Path) -> None:
    make_folder(DISK, tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_the_model_forgets_what_was_not_synced() -> None:
    memory = Memory()
    memory.write(Path("/a"), b"1234")
    left = [disk.files().get("/a") for disk in memory.after_power_cut()]
    assert left == [None, b"", b"12", b"12\0\0", b"1234"]
    memory.sync(Path("/a"))
    assert [disk.files().get("/a") for disk in memory.after_power_cut()] == [None, b"1234"]
    memory.sync(Path("/"))
    assert [disk.files().get("/a") for disk in memory.after_power_cut()] == [b"1234"]
    memory.rename(Path("/a"), Path("/b"))
    assert [sorted(disk.root.now) for disk in memory.after_power_cut()] == [["a"], ["b"]]


def test_the_model_stops_and_fails_where_told() -> None:
    memory = Memory(cut=1, fault=lambda number, call: errno.EIO if call == "write" else None)
    with pytest.raises(OSError):
        memory.write(Path("/a"), b"1234")
    assert memory.files()["/a"] == b"12"
    with pytest.raises(PowerCut):
        memory.sync(Path("/a"))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "you do not have permission"),
        (errno.EPERM, "you do not have permission"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EIO, "the disk reported an error"),
        (errno.ENOMEM, "the files are intact: close other programs, or use a machine with"),
        (errno.ENOTDIR, "there is a file where a folder should be"),
        (errno.ENOLCK, "this file system does not support locks: choose a folder on a local disk"),
        (errno.ENOTSUP, "this file system does not support this: choose a folder on a local disk"),
        (errno.ENAMETOOLONG, "File name too long"),
    ],
)
def test_errors_say_what_failed_where_and_what_to_do(number: int, words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as caught, explain_errors("save step 3", Path("runs/x")):
        raise OSError(number, os.strerror(number))
    assert f"cannot save step 3 in runs/x ({os.strerror(number)})" in str(caught.value)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_how_much_is_needed_and_free(number: int) -> None:
    with (
        pytest.raises(DiskFull) as caught,
        explain_errors("save", Path("runs/x"), needed=2_000_000, storage=Memory(room=10)),
    ):
        raise OSError(number, os.strerror(number))
    assert "not enough disk space to save in runs/x" in str(caught.value)
    assert "2.0 MB needed, 10 bytes free; make space and run the same command again" in str(caught.value)


def test_where_nobody_knows_how_much_is_needed_only_the_rest_is_told() -> None:
    with (
        pytest.raises(DiskFull, match=r"\(full\): 10 bytes free; make space"),
        explain_errors("x", Path(), storage=Memory(room=10)),
    ):
        raise OSError(errno.ENOSPC, "full")


def test_a_real_full_device_is_a_full_disk() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with (
        pytest.raises(DiskFull, match="No space left"),
        explain_errors("save", Path("/dev")),
        Path("/dev/full").open("wb") as f,
    ):
        f.write(b"x" * 100_000)


def test_amounts_read_well() -> None:
    shown = [format_bytes(n) for n in (0, 999, 1500, 999_949, 999_950, 104_900_000, 10**9, 10**13)]
    assert shown == ["0 bytes", "999 bytes", "1.5 kB", "999.9 kB", "1.0 MB", "104.9 MB", "1.0 GB", "10.0 TB"]


def test_free_space_is_never_an_error() -> None:
    assert Disk().free(Path("/nonexistent/folder")) > 0


def test_a_file_is_replaced_whole_and_its_name_is_synced(place: Place) -> None:
    storage, folder = place
    write_file(folder / "a", "old", storage=storage)
    storage.write(folder / ".a.partial", b"left by a crash")
    write_file(folder / "a", b"new", storage=storage)
    assert storage.read(folder / "a", 9) == b"new"
    assert storage.list(folder) == ["a"]


def test_a_power_cut_leaves_the_old_file_or_the_new_one() -> None:
    before, folder = Memory(), Path("/run")
    make_folder(before, folder)
    write_file(folder / "a", "old", storage=before)
    found = set()
    for done, disk in disks(before, lambda storage: write_file(folder / "a", "new", storage=storage)):
        found.add(data := disk.read(folder / "a", 9))
        assert data == b"new" or not done, "once it returns, the new file survives a power cut"
    assert found == {b"old", b"new"}


def test_a_file_that_cannot_be_written_leaves_nothing_half_written(tmp_path: Path) -> None:
    class Full(Disk):
        def sync(self, path: Path) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "x").write_text("old")
    with pytest.raises(DiskFull):
        write_file(tmp_path / "x", "new", storage=Full())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x": "old"}


def _make_pipe(path: Path) -> Path:
    if not hasattr(os, "mkfifo"):
        pytest.skip("pipes have no names here")
    os.mkfifo(path)
    return path


def test_an_output_goes_into_a_pipe_which_stays_one(tmp_path: Path) -> None:
    pipe, read = _make_pipe(tmp_path / "pipe"), list[bytes]()
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_output(pipe, "page" * 100_000)
    reader.join(60)
    assert read == [b"page" * 100_000]
    assert pipe.is_fifo()
    assert DISK.list(tmp_path) == ["pipe"]


def test_an_output_goes_through_a_link_which_stays_one(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    for name, target in (("link", "target"), ("dangling", "new")):
        (tmp_path / name).symlink_to(target)
        write_output(tmp_path / name, "page")
        assert (tmp_path / name).readlink() == Path(target)
        assert (tmp_path / target).read_text() == "page"


def test_a_device_stays_one_and_a_full_one_is_a_full_disk() -> None:
    write_output("/dev/null", "page")
    assert Path("/dev/null").is_char_device()
    if Path("/dev/full").exists():
        with pytest.raises(
            DiskFull, match=r"not enough disk space to write full in /dev \(No space left on device\): 4 bytes"
        ):
            write_output("/dev/full", "page")
        assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("stdout", ["file", "pipe"])
def test_an_output_to_dev_stdout_comes_beside_what_is_printed(tmp_path: Path, stdout: str) -> None:
    code = (
        "print('a', flush=True); from regard.files.storage import write_output as w; w('/dev/stdout', 'b'); print('c')"
    )
    if stdout == "pipe":
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    else:
        with (tmp_path / "out").open("ab") as file:
            subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
        said = (tmp_path / "out").read_bytes()
    assert said == b"a\nbc\n"


@pytest.mark.parametrize("name", [".", "folder", "/"])
def test_an_output_that_names_a_folder_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    with pytest.raises(SpecError, match=r"is a directory; name a file in it"):
        write_output(name, "page")


def test_an_output_to_a_socket_is_refused_and_the_socket_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(CheckpointError, match=r"cannot write socket in \. \(No such device or address\)"):
            write_output("socket", "page")
    assert Path("socket").is_socket()


def test_a_file_of_ours_never_takes_the_place_of_a_pipe_or_device(tmp_path: Path) -> None:
    """What Regard writes into its own folders is neither waited for nor put through a link."""
    pipe = _make_pipe(tmp_path / "report.html")
    with pytest.raises(CheckpointError, match=r"cannot write report.html in .* \(Not a regular file\)"):
        write_file(pipe, "page")
    assert pipe.is_fifo()
    assert DISK.list(tmp_path) == ["report.html"]
    (tmp_path / "other").write_text("kept")
    (tmp_path / "link").symlink_to("other")
    write_file(tmp_path / "link", "page")
    assert (tmp_path / "other").read_text() == "kept"


@pytest.mark.skipif(os.name != "posix", reason="files are mapped on POSIX only")
def test_mapped_file_stays_when_another_program_shortens_it(tmp_path: Path) -> None:
    """Pages of the file itself would kill the process that reads them (SIGBUS)."""
    path = tmp_path / "a"
    path.write_bytes(bytes(range(256)) * 1000)
    code = f"""
import os
from pathlib import Path
from regard.files.storage import DISK
pages = DISK.map(Path({str(path)!r}))
os.truncate({str(path)!r}, 0)
assert pages[:] == bytes(range(256)) * 1000
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
