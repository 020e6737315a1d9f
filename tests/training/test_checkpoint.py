"""A crash, a full disk or a flipped bit never costs the last completed checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from regard.errors import CheckpointError, SpecError
from regard.files.folder import write_folder
from regard.training.run.checkpoint import Checkpoints
from tests.faulty import Bytes, Memory, Names
from tests.training.saves import HERE, groups, loaded_step, save

pytestmark = pytest.mark.numeric

# What is saved comes back.


def test_round_trip_on_disk(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "x" / "checkpoints")
    assert checkpoints.load_newest() is None
    path = checkpoints.save(7, groups(7), {"best": 0.1, "name": "né", "order": [1, 2], "none": None})
    assert sorted(p.name for p in path.iterdir()) == [
        "facts.json",
        "manifest.json",
        "optimizer.safetensors",
        "weights.safetensors",
    ]
    loaded = checkpoints.load_newest()
    assert loaded is not None
    assert loaded.step == 7
    assert loaded.facts == {"best": 0.1, "name": "né", "order": [1, 2], "none": None}
    assert torch.equal(loaded.groups["optimizer"]["m"], torch.tensor([7, -7]))
    assert loaded.messages == [f"continuing from {path}"]


# Which are kept.


def test_the_newest_are_kept() -> None:
    assert Checkpoints(HERE, storage=save(Memory(), 1, 2, 10, 100_000_000, keep=2)).steps() == [100_000_000, 10]
    assert Checkpoints(HERE, storage=save(Memory(), 1, 2, 3, keep=1)).steps() == [3]
    assert Checkpoints(HERE, storage=save(Memory(), 1, 2, 3, keep=9)).steps() == [3, 2, 1]


def test_nothing_is_no_number_to_keep() -> None:
    with pytest.raises(SpecError, match="at least 1 checkpoint must be kept, got keep=0"):
        Checkpoints(HERE, keep=0)


def test_an_older_one_goes_only_when_the_new_one_reads_back_well() -> None:
    class Lossy(Memory):
        def sync(self, path: Path) -> None:
            super().sync(path)
            node = self._node(path)
            if path.name == "weights.safetensors" and isinstance(node, Bytes):
                node.data = node.data[:-1] + b"?"

    lossy = Lossy()
    lossy.root = save(Memory(), 1).root
    with pytest.raises(
        CheckpointError, match=r"step-00000002 is damaged: weights.safetensors has changed since it was written"
    ):
        save(lossy, 2, keep=1)
    assert loaded_step(lossy.copy()) == 1


def test_a_checkpoint_beyond_memory_is_saved_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.files.storage.LARGE", 100)
    monkeypatch.setattr("regard.files.storage.free_memory", lambda: 1000)
    large = {"weights": {"w": torch.zeros(1000)}}
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in (1, 2):
        checkpoints.save(step, large, {})
    assert checkpoints.steps() == [2]
    with pytest.raises(CheckpointError, match=r"4\.1 kB, more than the free memory\); the files are intact"):
        checkpoints.load_newest()
    assert checkpoints.steps() == [2], "nothing is set aside"


def test_the_same_step_can_be_saved_again() -> None:
    storage = save(Memory(), 3)
    Checkpoints(HERE, storage=storage).save(3, {}, {"again": True})
    loaded = Checkpoints(HERE, storage=storage).load_newest()
    assert loaded is not None
    assert loaded.facts == {"again": True}
    assert storage.list(HERE) == ["step-00000003"]


# Any bit may flip.


def damaged() -> Iterator[tuple[str, Memory]]:
    """Two checkpoints, the newer of which has one fault: a flipped bit, a missing end, an end too many, a missing file."""
    newest = HERE / "step-00000002"
    two = save(Memory(), 1, 2)
    for name in two.list(newest):
        size = len(two.read(newest / name, 10**6))
        places = sorted({*range(0, size, max(1, size // 40)), *range(min(size, 10)), size - 1})
        changes: list[tuple[str, Callable[[bytes], bytes]]] = [("longer", lambda data: data + b" ")]
        for at in places:
            changes.append((f"bit of byte {at}", lambda d, at=at: d[:at] + bytes([d[at] ^ 1 << at % 8]) + d[at + 1 :]))  # type: ignore[misc]
        for at in places[::4]:
            changes.append((f"cut at {at}", lambda d, at=at: d[:at]))  # type: ignore[misc]
        for what, change in changes:
            storage = two.copy()
            file = storage._node(newest / name)
            assert isinstance(file, Bytes)
            if change(file.data).strip() != file.data:  # a blank after JSON changes nothing
                file.data = change(file.data)
                yield f"{name}: {what}", storage
        storage = two.copy()
        storage.remove(newest / name)
        yield f"{name}: missing", storage


def test_every_damage_is_seen_and_the_one_before_is_used() -> None:
    count = 0
    for what, storage in damaged():
        loaded = Checkpoints(HERE, storage=storage).load_newest()
        assert loaded is not None, what
        assert loaded.step == 1, what
        assert len(loaded.messages) == 2, what
        assert loaded.messages[0].startswith("/run/checkpoints/step-00000002"), what
        assert loaded.messages[0].endswith("; renamed to step-00000002.corrupt")
        assert loaded.messages[1] == "continuing from /run/checkpoints/step-00000001"
        assert "step-00000002.corrupt" in storage.list(HERE)
        assert loaded_step(storage) == 1
        count += 1
    assert count > 200


def spoil(storage: Memory, step: int) -> None:
    file = storage._node(HERE / f"step-{step:08d}" / "facts.json")
    assert isinstance(file, Bytes)
    file.data = b"?" + file.data[1:]


def test_a_step_damaged_twice_is_set_aside_twice() -> None:
    storage = save(Memory(), 1, 2)
    for _ in range(3):
        spoil(storage, 2)
        assert loaded_step(storage) == 1
        save(storage, 2)
    corrupt = [name for name in storage.list(HERE) if name.endswith(".corrupt")]
    assert corrupt == ["step-00000002.2.corrupt", "step-00000002.3.corrupt", "step-00000002.corrupt"]


def test_a_run_with_only_damaged_checkpoints_never_starts_over_by_itself() -> None:
    storage = save(Memory(), 1, 2)
    spoil(storage, 1)
    spoil(storage, 2)
    with pytest.raises(CheckpointError) as caught:
        Checkpoints(HERE, storage=storage).load_newest()
    assert "no checkpoint in /run/checkpoints can be used: " in str(caught.value)
    for step in (1, 2):
        fault = (
            f"/run/checkpoints/step-0000000{step} is damaged: "
            "facts.json has changed since it was written (its SHA-256 differs)"
        )
        assert f"{fault}; renamed to step-0000000{step}.corrupt" in str(caught.value)
    assert str(caught.value).endswith("Start over with --fresh")
    with pytest.raises(
        CheckpointError, match=r"only damaged ones are left \(step-00000001.corrupt, step-00000002.corrupt\)"
    ):
        Checkpoints(HERE, storage=storage).load_newest()


@pytest.mark.parametrize("facts", [None, b"[]", b'{"step": 4}', json.dumps({"step": 3, "facts": {}}).encode()])
def test_a_checkpoint_under_another_step_is_damaged(facts: bytes | None) -> None:
    storage = save(Memory(), 1)
    write_folder(HERE / "step-00000004", {"facts.json": facts} if facts else {}, storage=storage)
    loaded = Checkpoints(HERE, storage=storage).load_newest()
    assert loaded is not None
    assert loaded.step == 1
    assert "its facts.json is not that of step 4" in loaded.messages[0]


def test_other_things_in_the_folder_are_left_alone() -> None:
    storage = save(Memory(), 1)
    storage.mkdir(HERE / "step-notes")
    storage.write(HERE / ".step-notes.partial", b"mine")
    assert loaded_step(save(storage, 2, 3, keep=1)) == 3
    assert isinstance(storage._node(HERE / "step-notes"), Names)
    assert storage.read(HERE / ".step-notes.partial", 9) == b"mine"
