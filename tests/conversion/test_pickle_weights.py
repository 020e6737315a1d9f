"""Pickles are refused, and with trust only their tensors come out: no code in them runs, and they cannot take all there is."""

from __future__ import annotations

import argparse
import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.conversion import pickle_weights
from regard.errors import CheckpointError

REFUSED = (
    r"model\.bin is refused, even with --trust-pickle: it contains code or objects besides tensors \(posix\.system\); "
    r"nothing in it was run; get the weights as safetensors, or as a dictionary of tensors alone"
)


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


def test_a_pickle_is_refused_with_the_way_out(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "model.bin")
    with pytest.raises(
        CheckpointError, match=r"model\.bin is refused: it is a pickle, .* safetensors, or, .* add --trust-pickle"
    ):
        pickle_weights.read(tmp_path / "model.bin", trust=False)


@pytest.mark.parametrize("old", [False, True], ids=["zip", "legacy"])
def test_with_trust_the_tensors_come_out(old: bool, tmp_path: Path) -> None:
    shared = torch.randn(3, 4)
    weights = {"a": shared, "tied": shared, "part": shared[1:], "half": torch.randn(2).half(), "n": torch.tensor(7)}
    torch.save({"state_dict": weights, "epoch": 3}, tmp_path / "model.pt", _use_new_zipfile_serialization=not old)
    found = pickle_weights.read(tmp_path / "model.pt", trust=True)
    assert found.keys() == weights.keys()
    for name, tensor in weights.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


@pytest.mark.parametrize("nest", ["state_dict", "model", "model_state_dict", "module"])
def test_weights_are_found_where_trainers_put_them(nest: str) -> None:
    weights = {"a": torch.arange(2.0)}
    for found in (
        pickle_weights.extract_weights(weights | {"epoch": 1}),
        pickle_weights.extract_weights({nest: weights, "b": torch.ones(1)}),
    ):
        assert found.keys() == weights.keys() and torch.equal(found["a"], weights["a"])


def test_a_bomb_among_weights_does_not_go_off_even_with_trust(tmp_path: Path) -> None:
    mark = tmp_path / "went-off"
    torch.save({"a": torch.ones(2), "b": Bomb(mark)}, tmp_path / "model.bin")
    with pytest.raises(CheckpointError, match=REFUSED) as refused:
        pickle_weights.read(tmp_path / "model.bin", trust=True)
    assert not mark.exists()
    assert "weights_only" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_plain_pickle_does_not_go_off_even_with_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "went-off"
    (tmp_path / "torch.py").write_text(f"open({str(mark)!r}, 'w')")  # nor does code that lies beside it
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(CheckpointError, match=REFUSED):
        pickle_weights.read(tmp_path / "model.bin", trust=True)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists()  # it would have


@pytest.mark.parametrize(
    ("saved", "why"),
    [([1, 2], "it should be a dictionary of tensors, got list"), ({"a": 1}, "it should have tensors, got a$")],
)
def test_what_holds_no_weights_says_what_it_holds(saved: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        pickle_weights.extract_weights(saved)


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"a": torch.zeros(1 << 22)}, tmp_path / "model.pt")
    monkeypatch.setattr(pickle_weights, "_BASE_MEMORY", 1 << 20)
    monkeypatch.setattr(pickle_weights, "_MEMORY_PER_BYTE", 0)
    with pytest.raises(
        CheckpointError, match=r"model\.pt (has no usable weights: it needs too much memory|could not be read)"
    ):
        pickle_weights.read(tmp_path / "model.pt", trust=True)


def test_time_is_bounded(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1)}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"model\.pt could not be read within 0\.01 seconds"):
        pickle_weights.read(tmp_path / "model.pt", trust=True, seconds=0.01)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no file .*gone\.bin"):
        pickle_weights.read(tmp_path / "gone.bin", trust=True)


def _write_script(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/code/__torch__.py", "")
        archive.writestr("model/data.pkl", pickle.dumps({}))


NOT_WEIGHTS = "^it is damaged, or not a file that torch.save wrote$"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_bytes(b"no pickle at all"), NOT_WEIGHTS),
    "nothing": (lambda path: path.write_bytes(b""), NOT_WEIGHTS),
    "another pickle": (lambda path: path.write_bytes(pickle.dumps({"a": 1})), NOT_WEIGHTS),
    "a bomb, as torch once saved": (
        lambda path: torch.save({"b": Bomb(path)}, path, _use_new_zipfile_serialization=False),
        r"besides tensors \(posix\.system\); nothing in it was run$",
    ),
    "arguments": (
        lambda path: torch.save({"a": torch.ones(1), "args": argparse.Namespace(x=1)}, path),
        r"besides tensors \(argparse\.Namespace\)",
    ),
    "a module": (lambda path: torch.save(torch.nn.Linear(1, 1), path), r"\(torch\.nn\.modules\.linear\.Linear"),
    "a program": (_write_script, "^it is a TorchScript program, not a file of weights$"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_file_of_weights_is_described_without_bad_advice(damage: str, tmp_path: Path) -> None:
    make, why = DAMAGES[damage]
    make(path := tmp_path / "model.bin")
    with warnings.catch_warnings(), pytest.raises(Exception) as raised:
        warnings.simplefilter("ignore")
        torch.load(path, weights_only=True)
    _, reason = pickle_weights.explain_failure(raised.value, path)
    assert re.search(why, reason) and "weights_only" not in reason
