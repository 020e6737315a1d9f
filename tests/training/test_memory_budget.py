"""What does not fit is refused in words, with its key, before anything is allocated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.data import generators
from regard.errors import SpecError
from regard.families import gpt
from regard.nn.blocks.body import MAX_LAYERS
from regard.text import TOKENIZERS
from regard.training.optimizer import OPTIMIZERS
from regard.training.step import memory_budget
from regard.training.step.memory_budget import explain_lack_of_memory
from regard.training.train import run_training
from tests.training.small import tiny

GB = 10**9
FITS: dict[str, Any] = {"train__steps": 4, "data__metrics": ["loss"]}


@pytest.fixture(autouse=True)
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 4 GB."""
    for module in (memory_budget, generators):
        monkeypatch.setattr(module, "free_memory", lambda: 4 * GB)


def refusal(folder: Path, recipe: str = "copy", data: tuple[str, ...] = (), **changes: Any) -> str:
    with pytest.raises(SpecError) as caught:
        run_training(tiny(folder / "run", recipe, data, **{**FITS, **changes}))
    assert "\n" not in str(caught.value)
    assert not (folder / "run" / "checkpoints").exists()
    return str(caught.value)


@pytest.mark.parametrize("width", [10**9, 10**7, 10**5])
def test_a_model_that_is_too_wide(tmp_path: Path, width: int) -> None:
    said = refusal(tmp_path, model__width=width)
    assert said.startswith(f"model.width is {width:,}: this model has ")
    assert "4.0 GB are free on this machine; lower model.width" in said


def test_a_model_that_fits_but_not_with_its_gradients_and_optimizer(tmp_path: Path) -> None:
    """About 600 million weights: 2.4 GB, and four times that in training."""
    said = refusal(tmp_path, model__width=8000)
    assert "model.width is 8,000" in said
    assert "for weights" in said
    assert "for gradients" in said
    assert "for optimizer" in said


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"model__hidden": 10**9}, "model.hidden"),
        ({"model__depth": 40, "model__width": 2048, "model__hidden": 2048}, "model.width"),
        ({"model__vocab": 10**10}, "model.vocab"),
    ],
    ids=str,
)
def test_the_key_is_the_one_that_helps_most(tmp_path: Path, changes: dict[str, Any], key: str) -> None:
    assert refusal(tmp_path, **changes).startswith(key)


def test_a_table_of_positions_is_named_by_the_data_that_asks_for_it(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be\n" * 50)
    said = refusal(tmp_path, "gpt", (str(text),), data__context=10**9)
    assert said.startswith("data.context is 1,000,000,000: this model has ")
    assert "most of them in `embed`" in said


@pytest.mark.parametrize("depth", [MAX_LAYERS + 1, 10**6, 10**12])
def test_too_many_layers_are_not_even_counted(tmp_path: Path, depth: int) -> None:
    said = refusal(tmp_path, model__depth=depth)
    assert f"depth is {depth:,}; a stack may have at most 500 layers" in said
    with pytest.raises(SpecError, match="at most 500 layers"):
        gpt.spec(width=8, depth=depth, heads=2, vocab=9, length=8)


@pytest.mark.parametrize("name", ["count", "valid"])
@pytest.mark.parametrize("count", [10**12, 10**8])
@pytest.mark.parametrize("kind", list(generators.GENERATORS))
def test_more_pairs_than_fit_are_not_made(kind: str, count: int, name: str) -> None:
    with pytest.raises(SpecError, match=rf"data.generate.{name} is {count:,}: so many pairs take .* lower it to "):
        generators.GENERATORS[kind](**{name: count}).check_memory()


def test_a_recipe_that_asks_for_a_trillion_pairs(tmp_path: Path) -> None:
    said = refusal(tmp_path, data__generate__count=10**12)
    assert said.startswith("data.generate.count is 1,000,000,000,000: so many pairs take ")
    assert "4.0 GB are free on this machine; lower it to " in said


def test_long_strings_count(tmp_path: Path) -> None:
    assert "so many pairs take" in refusal(tmp_path, data__generate__count=10**6, data__generate__max_length=20_000)
    assert "max_length" in refusal(tmp_path, data__generate__max_length=10**12)


@pytest.mark.parametrize("kind", [kind for kind, spec in TOKENIZERS.items() if "vocab" in spec.__dataclass_fields__])
def test_a_vocabulary_without_end_is_refused(tmp_path: Path, kind: str) -> None:
    """The library would reserve memory for all of it, and abort."""
    said = refusal(tmp_path, data__tokenizer={"kind": kind, "vocab": 10**10})
    assert "vocab: input should be less than or equal to 10000000, got 10000000000" in said


def test_batches_that_are_too_large(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be\n" * 20_000)
    said = refusal(
        tmp_path, "gpt", (str(text),), train__batch_tokens=10**9, model__width=512, model__depth=16, model__hidden=4096
    )
    assert said.startswith("train.batch_tokens is 1,000,000,000: the activations of such a batch take more than ")
    assert "lower it to" in said


def test_a_huge_budget_for_a_small_corpus_is_fine(tmp_path: Path) -> None:
    run_training(tiny(tmp_path / "run", **{**FITS, "train__batch_tokens": 10**9}))


def test_memory_that_is_unknown_refuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "free_memory", lambda: 0)
    run_training(tiny(tmp_path / "run", **FITS))


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_what_cannot_be_foreseen_is_told_in_words(error: Exception) -> None:
    with (
        pytest.raises(SpecError, match=r"not enough memory for this run \(4.0 GB are free\): lower train.batch_tokens"),
        explain_lack_of_memory(),
    ):
        raise error
    with pytest.raises(RuntimeError, match="other"), explain_lack_of_memory():
        raise RuntimeError("other")


def test_every_optimizer_says_what_it_keeps() -> None:
    assert all(spec.states >= 0 for _, spec in OPTIMIZERS.items())
