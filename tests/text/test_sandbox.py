"""A tokenizer's file is tried in a child: what would panic, abort, hang or take all memory here does so there."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from tokenizers import Tokenizer as Core

from regard.errors import CheckpointError
from regard.text import Tokenizer, sandbox
from regard.text.sandbox_child import max_growth, probe_texts
from regard.text.tokenizer_specs import Words


def file_of(**changes: Any) -> bytes:
    return json.dumps(json.loads(Tokenizer.train(["a b a b"], Words()).to_bytes()) | changes).encode()


def charsmap(text: str) -> dict[str, str]:
    return {"type": "Precompiled", "precompiled_charsmap": text}


GROWS = [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 50}] * 40


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"normalizer": charsmap("BAAAAP////8AAAAA")}, "index out of bounds: the len is 1 but the index is"),
        ({"normalizer": charsmap("/////////////////w==")}, "it makes the library abort, or needs too much memory for"),
        ({"normalizer": {"type": "Sequence", "normalizers": GROWS}}, "it (makes the library abort|takes more time than)"),
        ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}},
         "Onig: Regex search error: retry-limit-in-match over"),
    ],
)  # fmt: skip
def test_what_harms_is_found_out_elsewhere(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(CheckpointError, match=rf"odd\.json is not a tokenizer: {fault}"):
        sandbox.check_tokenizer_file(file_of(**changes), "odd.json")


def test_growth_is_bounded_where_no_trial_finds_it() -> None:
    steps = [{"type": "Replace", "pattern": {"Regex": "t(?=.*[c]at)"}, "content": "tt"}] * 33
    with pytest.raises(CheckpointError, match=r"its normalizer can make a text 6e\+15 times as long; the limit is 100"):
        sandbox.check_tokenizer_file(file_of(normalizer={"type": "Sequence", "normalizers": steps}), "odd.json")
    sandbox.check_tokenizer_file(file_of(normalizer={"type": "Sequence", "normalizers": steps[:3]}), "odd.json")


def test_growth() -> None:
    assert max_growth(None) == 1
    assert max_growth({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}) == 1
    assert max_growth({"type": "Replace", "pattern": {"String": "ab"}, "content": ""}) == 1
    assert max_growth({"type": "Replace", "pattern": {"String": "ab"}, "content": "abcabc"}) == 3
    assert max_growth({"type": "Replace", "pattern": {"Regex": "(?=a)"}, "content": "aa"}) == 3
    assert max_growth({"type": "Prepend", "prepend": "\u2581"}) == 2
    within = {"type": "Sequence", "normalizers": [GROWS[0], {"type": "Sequence", "normalizers": GROWS[:1]}]}
    assert max_growth(within) == 2500


def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_checked", {})
    monkeypatch.setattr(sandbox, "_SECONDS", 0)  # none to compute in
    with pytest.raises(CheckpointError, match="it takes too much time for a file of its size"):
        sandbox.check_tokenizer_file(file_of(normalizer={"type": "Sequence", "normalizers": GROWS[:9]}), "odd.json")
    monkeypatch.setattr(sandbox, "_WAIT", 0.001)
    with pytest.raises(CheckpointError, match=r"it could not be checked within 0\.001 seconds"):
        sandbox.check_tokenizer_file(file_of(truncation=None), "odd.json")


def test_size_is_bounded() -> None:
    with pytest.raises(CheckpointError, match="it has 64000001 bytes; the limit is 64000000"):
        sandbox.check_tokenizer_file(b" " * 64_000_001, "odd.json")


def test_what_was_tried_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data, bad = file_of(), file_of(model=None)
    calls: list[object] = []
    run = subprocess.run

    def counted(*words: Any, **how: Any) -> Any:
        calls.append(words)
        return run(*words, **how)

    monkeypatch.setattr(subprocess, "run", counted)
    monkeypatch.setattr(sandbox, "_checked", {})
    for _ in range(2):
        Tokenizer.from_bytes(data, "good.json")
        with pytest.raises(CheckpointError, match=r"bad\.json is not a tokenizer"):
            Tokenizer.from_bytes(bad, "bad.json")
    assert len(calls) == 2


def test_a_check_may_begin_before_its_result_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_checked", {})
    monkeypatch.setattr(sandbox, "_begun", {})
    tried: list[bytes] = []
    monkeypatch.setattr(sandbox, "_run_child", lambda data: tried.append(data) or "it is odd")
    for _ in range(2):
        sandbox.begin_check(b"{}")
    with pytest.raises(CheckpointError, match=r"odd.json is not a tokenizer: it is odd"):
        sandbox.check_tokenizer_file(b"{}", "odd.json")
    sandbox.begin_check(b"{}")
    sandbox.begin_check(b" " * 64_000_001)  # too large to be tried
    assert tried == [b"{}"]


def test_padding_and_truncation_of_the_file_are_not_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others' files pad to a length; a hostile one to 10^12 tokens, which costs nothing until a text is encoded."""
    core = Core.from_str(file_of().decode())
    core.enable_padding(length=10**12)
    data = core.to_str().encode()
    assert b"1000000000000" in data
    tokenizer = Tokenizer.from_bytes(data, "padded.json")
    assert len(tokenizer.encode("a b")) == 2


def test_texts_are_of_what_the_rules_speak_of() -> None:
    rule = {"type": "Split", "pattern": {"Regex": "(q+)+$"}, "behavior": "Isolated", "invert": False}
    found = [*probe_texts(json.loads(file_of(pre_tokenizer=rule)))]
    assert "q" * 256 + "!" in found
    assert any(text.startswith("(q+)+$(q+)+$") for text in found)
