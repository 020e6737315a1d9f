"""A power cut at any moment, or a call that fails, never costs the last completed checkpoint."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import CheckpointError, DiskFull, RegardError
from regard.files.folder import read_files, write_folder
from regard.training.run.checkpoint import Checkpoints
from regard.training.step.weight_averaging import Snapshots
from regard.training.train import run_training
from tests.faulty import Memory, PowerCut
from tests.training.saves import HERE, disks, groups, loaded_step, save
from tests.training.small import tiny, traces

pytestmark = pytest.mark.numeric

# The power may be cut before any operation, and whatever was not synced may be gone.


@pytest.mark.parametrize(("before", "after", "keep"), [([1], 2, 1), ([1, 2], 3, 2), ([1], 1, 1), ([], 1, 1)])
def test_a_power_cut_leaves_the_old_or_the_new_one(before: list[int], after: int, keep: int) -> None:
    seen = set()
    for done, disk in disks(save(Memory(), *before), lambda storage: save(storage, after, keep=keep)):
        step = loaded_step(disk)
        seen.add(step)
        assert step == after or (not done and step == max(before, default=None))
        assert not any(mark in name for name in disk.files() for mark in (".partial", ".previous", ".corrupt"))
    assert seen == {max(before, default=None), after}


def test_after_a_power_cut_the_run_goes_on() -> None:
    for _, disk in disks(save(Memory(), 1), lambda storage: save(storage, 2, keep=1)):
        assert loaded_step(disk) in (1, 2)
        assert all(name.startswith("step-") for name in disk.list(HERE))
        assert loaded_step(save(disk, 3, keep=1)) == 3
        assert disk.list(HERE)[0].startswith("step-")


def test_a_killed_process_leaves_no_half_removed_checkpoint() -> None:
    before = save(Memory(), 1, 2)
    for cut in range(len(save(before.copy(), 3, keep=1).calls)):
        storage = before.copy()
        storage.cut = cut
        with pytest.raises(PowerCut):
            save(storage, 3, keep=1)
        left = storage.copy()  # all that was done, synced or not
        for step in Checkpoints(HERE, storage=left).steps():
            assert read_files(HERE / f"step-{step:08d}", left)


def test_a_power_cut_while_loading_loses_nothing() -> None:
    for _, disk in disks(save(Memory(), 1), lambda storage: save(storage, 1, keep=1)):
        for _, again in disks(disk, loaded_step):
            assert loaded_step(again) == 1


@pytest.mark.parametrize("forgotten", ["files", "folder", "parent"])
def test_each_sync_is_needed(forgotten: str) -> None:
    """The tests above can fail: leave out one kind of sync, and some power cut loses everything."""

    class Careless(Memory):
        def sync(self, path: Path) -> None:
            what = "files" if path.suffix in (".safetensors", ".json") else "folder" if path != HERE else "parent"
            if what != forgotten:
                super().sync(path)

    def lost(disk: Memory) -> bool:
        try:
            return loaded_step(disk) is None
        except CheckpointError:
            return True

    act = lambda storage: save(storage, 2, keep=1)  # noqa: E731
    assert any(lost(disk) for _, disk in disks(save(Memory(), 1), act, Careless))


# Any call may fail.


def faults(number: int, lasting: bool) -> Iterator[Memory]:
    """A storage for every call of a save, on which that call fails, and with `lasting` all later ones that write."""
    calls = save(save(Memory(), 1).copy(), 2, keep=1).calls
    for at in range(len(calls)):
        storage = save(Memory(), 1).copy()
        spared = ("remove", "list", "read") if number == errno.ENOSPC else ()
        storage.fault = lambda n, call: number if n == at or (lasting and n > at and call not in spared) else None  # noqa: B023
        yield storage


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (errno.ENOSPC, DiskFull, r"not enough disk space to .* in /run/checkpoints .*: (.* needed, )?1.2 kB free"),
        (errno.EIO, CheckpointError, r"the disk reported an error|cannot be read \(Input/output error\)"),
        (errno.EACCES, CheckpointError, "you do not have permission"),
    ],
)
def test_a_failing_call_is_reported_and_costs_nothing(
    number: int, error: type[Exception], words: str, lasting: bool
) -> None:
    for storage in faults(number, lasting):
        with pytest.raises(error, match=words):
            save(storage, 2, keep=1)
        assert loaded_step(storage.copy()) in (1, 2)
        for disk in storage.after_power_cut():
            assert loaded_step(disk) in (1, 2)


def test_older_checkpoints_that_could_not_be_removed_are_removed_later() -> None:
    """The new one was written; whoever resumes from it makes up for the removal."""
    storage = save(Memory(), 1)
    calls = save(storage.copy(), 2, keep=1).calls
    failing = next(n for n, call in enumerate(calls) if call == f"rename {HERE / 'step-00000001'}")
    storage = storage.copy()
    storage.fault = lambda number, _: errno.EIO if number == failing else None
    with pytest.raises(
        CheckpointError, match=r"cannot remove older checkpoints in /run/checkpoints .*the disk reported"
    ):
        save(storage, 2, keep=1)
    assert Checkpoints(HERE, storage=storage).steps() == [2, 1]
    storage.fault = lambda number, call: None
    Checkpoints(HERE, keep=1, storage=storage).prune(2)
    assert storage.files() == save(save(Memory(), 1).copy(), 2, keep=1).files()


def test_a_resumed_run_has_as_many_checkpoints_as_it_keeps(tmp_path: Path) -> None:
    request = tiny(tmp_path / "run", train__steps=4, train__save_every=2, train__keep_checkpoints=1)
    run_training(request)
    whole = traces(request.folder)
    (newest,) = (request.folder / "checkpoints").iterdir()
    facts = json.dumps({"step": 2, "facts": {"epoch": 0}}).encode()
    write_folder(newest.with_name("step-00000002"), {"facts.json": facts})  # as an interrupted save leaves one
    run_training(request)
    assert [*(request.folder / "checkpoints").iterdir()] == [newest]
    assert traces(request.folder) == whole


def test_a_full_disk_is_cleaned_up_and_says_what_is_needed() -> None:
    storage = save(Memory(), 1)
    storage.fault = lambda number, call: errno.ENOSPC if call == "write" else None
    with pytest.raises(DiskFull) as caught:
        save(storage, 2)
    assert storage.files() == save(Memory(), 1).files()
    whole = save(Memory(), 2).files()
    needed = sum(len(data) for data in whole.values())
    assert (
        "not enough disk space to write step-00000002 in /run/checkpoints (No space left on device): "
        f"{needed} bytes needed, 1.2 kB free" in str(caught.value)
    )


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EACCES, "you do not have permission"), (errno.ENOMEM, "the files are intact")],
)
def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_damaged(number: int, advice: str) -> None:
    storage = save(Memory(), 1, 2)
    storage.fault = lambda _, call: number if call == "read" else None
    with pytest.raises(CheckpointError, match=rf"cannot read checkpoints in /run/checkpoints .*; {advice}"):
        Checkpoints(HERE, storage=storage).load_newest()
    assert loaded_step(storage.copy()) == 2


def test_a_bad_sector_is_damage() -> None:
    storage = save(Memory(), 1, 2)
    first = len(storage.calls) + 3  # two lists, then the manifest, then the first file
    storage.fault = lambda number, call: errno.EIO if number == first else None
    assert loaded_step(storage) == 1
    assert "step-00000002.corrupt" in storage.list(HERE)


# All that a run saves, in its order: a snapshot, a checkpoint that speaks of it, and what goes for them.


def train(storage: Memory, *steps: int) -> Memory:
    """What the loop writes in these steps."""
    checkpoints, snapshots = Checkpoints(HERE, storage=storage), Snapshots(HERE.parent / "snapshots", storage)
    for step in steps:
        snapshots.add(step, groups(step)["weights"])
        checkpoints.save(step, groups(step), {"epoch": step, "snapshots": [[s, 0.5] for s in (step - 1, step) if s]})
        snapshots.prune(checkpoints)
    return storage


def resumed(storage: Memory) -> int | None:
    """The step a run would go on from, after making sure that the snapshots it speaks of are what was set aside."""
    loaded = Checkpoints(HERE, storage=storage).load_newest()
    if loaded is None:
        return None
    steps = [step for step, _ in loaded.facts["snapshots"]]
    mean = Snapshots(HERE.parent / "snapshots", storage).average(steps)
    assert torch.equal(mean["w"], torch.full((3,), sum(steps) / len(steps)))
    return loaded.step


def test_a_power_cut_anywhere_in_a_run() -> None:
    """Every prefix of its operations, with all that was not synced lost, torn or whole; and the run goes on from there."""
    states, seen = 0, set()
    for done, disk in disks(Memory(), lambda storage: train(storage, 1, 2, 3, 4)):
        step = resumed(disk)
        states += 1
        seen.add(step)
        assert step == 4 or not done
        if states % 10 == 0:
            assert resumed(train(disk, (step or 0) + 1)) == (step or 0) + 1
    assert seen == {None, 1, 2, 3, 4}
    assert 500 < states <= 10_000


ERRORS = [
    (
        errno.ENOSPC,
        DiskFull,
        5,
        r"^not enough disk space to [a-z -.\d]+ in /run\S* \(No space left on device\): .*1.2 kB free; make space",
    ),
    (errno.EIO, CheckpointError, 3, r"the disk reported an error: check it|cannot be read \(Input/output error\)"),
    (
        errno.EACCES,
        CheckpointError,
        3,
        r"^cannot [a-z -.\d]+ in /run\S* \(Permission denied\); you do not have permission",
    ),
]


@pytest.mark.parametrize(("number", "error", "code", "words"), ERRORS, ids=["ENOSPC", "EIO", "EACCES"])
def test_any_call_of_a_run_may_fail(number: int, error: type[RegardError], code: int, words: str) -> None:
    """The right words, the right exit code, and the last checkpoint that was done is there."""
    before = train(Memory(), 1, 2)
    calls = train(before.copy(), 3).calls
    for at, call in enumerate(calls):
        storage = before.copy()
        storage.fault = lambda n, _: number if n == at else None  # noqa: B023
        try:
            train(storage, 3)
        except RegardError as caught:
            assert type(caught) is error and caught.exit_code == code, call
            assert re.search(words, str(caught)), (call, str(caught))
            assert number != errno.ENOSPC or not call.startswith("write") or " bytes needed, " in str(caught), call
        else:  # the last looks, before snapshots go: without them none does
            assert number != errno.ENOSPC and at > calls.index(f"rename {HERE / '.step-00000003.partial'}"), call
        for disk in (storage.copy(), *storage.after_power_cut()):
            assert resumed(disk) in (2, 3), call


@pytest.mark.parametrize(("number", "error", "code", "words"), ERRORS, ids=["ENOSPC", "EIO", "EACCES"])
def test_any_call_of_resuming_may_fail(number: int, error: type[RegardError], code: int, words: str) -> None:
    """After a crash in the middle of a save; when the fault is gone, the run goes on."""
    crashes = [disk for _, disk in disks(save(Memory(), 1, 2), lambda storage: save(storage, 2))]
    for crash in crashes[:: max(len(crashes) // 12, 1)]:
        healthy = crash.copy()
        assert loaded_step(healthy) == 2
        for at, call in enumerate(healthy.calls):
            storage = crash.copy()
            storage.fault = lambda n, _: number if n == at else None  # noqa: B023
            try:
                assert loaded_step(storage) == (1 if number == errno.EIO else 2), call  # a bad sector is damage
            except RegardError as caught:
                assert type(caught) is error and caught.exit_code == code, call
                assert re.search(words, str(caught)), (call, str(caught))
            assert loaded_step(storage.copy()) in (1, 2), call


@pytest.mark.parametrize(
    "change",
    [
        {"none": 1, "step": "x"},
        {"snapshots": 3},
        {"position": [0] * 9},
        {"tokens": None},
        {"epoch": -(2**53)},
        {"position": -1},
        {"snapshots": [[-1, 0.5]]},
        {"log": True},
        {"log": {"size": "x"}},
    ],
)
def test_a_checkpoint_that_says_something_else_is_refused_in_words(change: dict[str, Any], tmp_path: Path) -> None:
    """Its checksums fit, so it is not damaged; but no version of ours wrote it."""
    run_training(tiny(tmp_path / "run", train__steps=4))
    folder = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}
    facts = json.loads(files["facts.json"])
    write_folder(folder, files | {"facts.json": json.dumps(facts | {"facts": facts["facts"] | change}).encode()})
    with pytest.raises(
        CheckpointError, match=r"the checkpoint of step 4 in .* is not of this version: .*; start over with --fresh"
    ) as caught:
        run_training(tiny(tmp_path / "run", train__steps=5))
    assert "validation error" not in str(caught.value)
