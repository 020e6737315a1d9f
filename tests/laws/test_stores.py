"""Where texts and tokens are kept changes nothing: in memory, in files, in one part or many, interrupted or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data import document_parts, line_store, scratch
from regard.tasks import find
from regard.tasks.common import encoded_pairs
from regard.tasks.common.capabilities import supports
from regard.tasks.common.training_hooks import Stores, encode_to
from regard.text import Tokenizer
from regard.training.train import run_training
from tests.laws.tasks import TASK, Recipe, order_of
from tests.training.small import traces

TEXTS = [(task, name, TASK[task][name]) for task in ("lm", "mlm", "span") for name in TASK[task]]
each = pytest.mark.parametrize(("task", "name", "example"), TEXTS, ids=[f"{task}: {name}" for task, name, _ in TEXTS])
pytestmark = pytest.mark.numeric

Example = Callable[[Path], Recipe]


def spread(patch: pytest.MonkeyPatch) -> None:
    """Keep nothing in memory, and read little at a time."""
    for module in (scratch, line_store):
        patch.setattr(module, "ROOM", 0)
    patch.setattr(scratch, "BLOCK", 3)
    patch.setattr(encoded_pairs, "CHUNK", 3)
    patch.setattr(document_parts.plan_parts, "__defaults__", (40,))


@each
def test_a_run_is_the_same_to_the_bit_wherever_its_corpus_is(
    tmp_path: Path, task: str, name: str, example: Example
) -> None:
    changes = {"train__steps": 4, "train__validate_every": 2, "train__schedule__warmup": 1}
    run_training(order_of(example, tmp_path, tmp_path / "held", **changes))
    with pytest.MonkeyPatch.context() as patch:
        spread(patch)
        run_training(order_of(example, tmp_path, tmp_path / "kept", **changes))
    assert traces(tmp_path / "kept") == traces(tmp_path / "held")


@each
def test_an_interrupted_preparation_goes_on_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, name: str, example: Example
) -> None:
    kind, asked = find(task), example(tmp_path)
    settings = kind.Settings.parse(asked["data"])
    data = kind.read(settings, 1)
    made = kind.prepare(settings, data)
    assert supports(made, Stores)
    wanted = made.encode(data.train)
    spread(monkeypatch)
    monkeypatch.setattr("regard.data.token_store.AHEAD", 1)
    encode, calls = Tokenizer.encode_all, list[int]()

    def failing(self: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
        calls.append(len(lines))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return encode(self, lines)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Tokenizer, "encode_all", failing)
        encode_to(made, tmp_path / "tokens", data.train, "one")
    found = encode_to(made, tmp_path / "tokens", data.train, "one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tokenizer, "encode_all", None)  # nothing is left to encode
        again = encode_to(made, tmp_path / "tokens", data.train, "one")
    rows = np.arange(len(wanted))
    for other in (found, again):
        assert len(other) == len(wanted)
        assert np.asarray(other.lengths[:]).tolist() == np.asarray(wanted.lengths[:]).tolist()
        one, two = (made.batch(examples, rows) for examples in (wanted, other))
        assert torch.equal(one.given.ids, two.given.ids)  # type: ignore[attr-defined]
        assert torch.equal(one.wanted, two.wanted)  # type: ignore[attr-defined]
