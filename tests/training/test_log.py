"""The log: what is written is read, what will be done again is forgotten, and a crash spoils no line but the last."""

from __future__ import annotations

import builtins
import errno
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DiskFull, SpecError
from regard.training.run.log import Log, read_log


def filled(path: Path, steps: int = 5) -> Log:
    log = Log(path)
    for step in range(steps + 1):
        log.write("train" if step else "start", step, loss=step / 3, rows=["é\n", None])
    return log


def test_one_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert read_log(path) == []
    filled(path)
    lines = path.read_text("utf-8").splitlines()
    assert json.loads(lines[2]) == {"event": "train", "step": 2, "loss": 2 / 3, "rows": ["é\n", None]}
    assert "é" in lines[2]
    assert [event["step"] for event in read_log(path)] == [0, 1, 2, 3, 4, 5]


def test_rewind(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = filled(path)
    before = path.read_bytes().splitlines()
    log.rewind(3)
    assert path.read_bytes().splitlines() == before[:4], "what stays is the same to the byte"
    log.write("train", 4, loss=9.0)
    assert [event["step"] for event in read_log(path)] == [0, 1, 2, 3, 4]
    log.rewind(-1)
    assert path.read_bytes() == b""
    assert [p.name for p in tmp_path.iterdir()] == ["log.jsonl"]


def test_rewinding_a_log_that_is_not_there(tmp_path: Path) -> None:
    Log(tmp_path / "log.jsonl").rewind(5)
    assert read_log(tmp_path / "log.jsonl") == []


@given(cut=st.integers(0, 400))
def test_a_line_half_written_is_forgotten_and_nothing_else(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    log = filled(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    lines = whole[:cut].count(b"\n") + (cut in _ends(whole))
    assert [event["step"] for event in read_log(path)] == list(range(lines))
    log.rewind(100)
    log.write("train", 77)
    assert [event["step"] for event in read_log(path)] == [*range(lines), 77]


def _ends(data: bytes) -> set[int]:
    """Where a line is whole but for its end."""
    return {i for i, byte in enumerate(data) if byte == ord("\n")}


def test_a_line_that_is_no_event_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'[1, 2]\n\xff\xfe\n{"event": "x", "step": 1}\n\n')
    assert read_log(path) == [{"event": "x", "step": 1}]


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    """JSON has no word for it, and many readers take none."""
    path = tmp_path / "log.jsonl"
    Log(path).write("valid", 1, loss=float("nan"), scores={"bleu": float("inf"), "wer": 2.0}, rows=["nan"])
    assert json.loads(path.read_text(), parse_constant=pytest.fail) == {
        "event": "valid", "step": 1, "loss": None, "scores": {"bleu": None, "wer": 2.0}, "rows": ["nan"],
    }  # fmt: skip


def test_a_full_disk_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = filled(tmp_path / "log.jsonl")
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(DiskFull, match="not enough disk space to write the log"):
        log.write("train", 6)


def test_tensorboard(tmp_path: Path) -> None:
    """Its file is written, and after a resume it is told which steps to forget."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = Log(tmp_path / "log.jsonl", tensorboard=tmp_path / "board")
    for step in (1, 2, 3):
        log.write("train", step, loss=step / 2, name="text is left out", scores={"bleu": 10.0 * step})
    log.rewind(1)
    log.write("train", 2, loss=7.0, scores={"bleu": 1.0})
    log.close()
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    assert sorted(board.Tags()["scalars"]) == ["train/loss", "train/scores/bleu"]
    assert [(event.step, event.value) for event in board.Scalars("train/loss")] == [(1, 0.5), (2, 7.0)]


def test_tensorboard_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("torch.utils.tensorboard"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SpecError, match=r"TensorBoard is not installed; .*pip install '\.\[tensorboard\]'"):
        Log(tmp_path / "log.jsonl", tensorboard=tmp_path)
    Log(tmp_path / "log.jsonl").write("train", 1)


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    whole = '{"event": "step", "step": 1}'
    damaged = [
        "{}",
        "[]",
        '{"event": 3, "step": 1}',
        '{"event": "step"}',
        '{"event": "step", "step": "x"}',
        "[" * 5000,
        "9" * 6000,
    ]
    (tmp_path / "log.jsonl").write_text("\n".join([*damaged, whole, "\0"]))
    assert read_log(tmp_path / "log.jsonl") == [{"event": "step", "step": 1}]


def test_half_a_character_can_be_written_again(tmp_path: Path) -> None:
    line = '{"event": "step", "step": 1, "a": "\\udcff", "b": "\\u00e9", "c": "\\ud83d\\ude00"}'
    (tmp_path / "log.jsonl").write_text(line)
    assert read_log(tmp_path / "log.jsonl") == [{"event": "step", "step": 1, "a": "?", "b": "é", "c": "😀"}]


def test_half_a_character_can_be_written(tmp_path: Path) -> None:
    """Python reads the name of a file that is not UTF-8 as half characters."""
    log = Log(tmp_path / "log.jsonl")
    log.write("valid", 1, example="rose/\udcff.png")
    log.write("valid", 2)
    assert [(event["step"], event.get("example")) for event in read_log(log.path)] == [(1, "rose/?.png"), (2, None)]
