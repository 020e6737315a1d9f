"""Work is counted before it begins: attention weights, logits, states."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from regard import load
from regard.errors import DataError
from regard.serve.model_table import ModelTable
from regard.serve.operations import attention, run, score
from regard.serve.served_model import LoadSettings
from regard.serve.ticket import Ticket
from regard.serve.work_limit import WorkLimit
from regard.tasks.common.capabilities import Inspects, ReadsFiles, ReadsImages, supports
from tests.laws.uses import USES

TEXTS = {
    "span": "the <mask> sat",
    "mlm": "the <mask> sat",
    "babi": "Mary went home. Where is Mary?",
    "recommend": "1; 2",
}


@pytest.mark.parametrize("name", ["translate", "lm", "mlm", *(use.task for use in USES)])
def test_the_weights_are_counted_before_they_are_computed(models: dict[str, Path], name: str) -> None:
    model = load(models[name], engine="torch")
    if not supports(model.task, Inspects) or supports(model.task, ReadsImages) or supports(model.task, ReadsFiles):
        pytest.skip("it looks inside no text")
    try:
        read = model.forward_pass(TEXTS.get(name, "a b"))
    except DataError:
        pytest.skip("it reads other texts")
    limit = WorkLimit(model.net)
    computed = sum(weights.numel() for weights in read.attention(model.net)[0].values())
    assert sum(limit._count_kept(size) for size in read.list_sizes(model.net)) >= computed


def test_long_texts_are_refused_before_anything_is_computed(http: httpx.Client) -> None:
    """Both took a minute and gigabytes; the server has half a minute."""
    answer = http.post("/attention", json={"model": "lm", "text": "a" * 90_000})
    assert answer.status_code in (200, 400), answer.text
    answer = http.post("/attention", json={"model": "translate", "text": "ab" * 30, "output": "ab" * 2500})
    assert answer.status_code == 400
    assert "attention weights in all layers and heads, and an answer may have 4,000,000" in answer.json()["error"]


def test_a_text_that_is_cut_is_told(http: httpx.Client) -> None:
    answer = http.post("/attention", json={"model": "translate", "text": "ab" * 40_000}).json()
    assert answer["notes"] == ["the text is longer than the model can read; the end is left out"]
    assert http.post("/attention", json={"model": "translate", "text": "ab"}).json()["notes"] == []


def test_every_route_has_the_same_limit(models: dict[str, Path]) -> None:
    table = ModelTable({"translate": models["translate"]}, LoadSettings("torch", working_memory=200_000))
    words = r"need about .* of working memory, most of it for .*, and a request may need 200.0 kB; shorten the text"
    with table.use("translate") as served:
        with pytest.raises(DataError, match=words):
            score(served, Ticket(), {"inputs": ["ab"], "outputs": ["ab" * 500]})
        with pytest.raises(DataError, match=words):
            attention(served, Ticket(), {"inputs": ["ab"], "output": "ab" * 300})
        assert score(served, Ticket(), {"inputs": ["ab"], "outputs": ["ab"]})["scores"]
    table = ModelTable({"lm": models["lm"]}, LoadSettings("torch", working_memory=100_000))
    options = {"beam": 1, "max_length": 2000, "max_extra": 2000}
    with table.use("lm") as served:
        (((found, *_),),) = (run(served, Ticket(), {"inputs": ["the"], "options": options})["outputs"],)
        assert "of working memory, most of it for the state of the decoder, and a request may need" in found["error"]
