"""What is shown of one example: words, links, the page's data, the terminal, and what is refused."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.api import Model
from regard.conversion.convert import convert
from regard.errors import SpecError
from regard.interpret import look_page
from regard.interpret.word_joining import find_word, join_labels, join_weights, word_of_tokens
from tests.conversion.test_convert import TASKS, folder
from tests.verbs.calling import call

pytestmark = pytest.mark.numeric


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["[CLS]", "un", "##cut", "stone", "[SEP]"], ["[CLS]", "uncut", "stone", "[SEP]"]),
        (["<s>", "▁un", "cut", "▁stone", ".", "</s>"], ["<s>", "uncut", "stone.", "</s>"]),
        (["un@@", "cut", "stone"], ["uncut", "stone"]),
        (["a", "b"], ["a", "b"]),
        ([], []),
    ],
)
def test_tokens_are_joined_to_words(labels: list[str], words: list[str]) -> None:
    assert join_labels(labels, word_of_tokens(labels)) == words


def test_weights_between_words_keep_their_sums() -> None:
    weights = torch.rand(2, 5, 5).softmax(-1)
    joined = join_weights(weights, [0, 1, 1, 2, 3], [0, 1, 1, 2, 3])
    assert joined.shape == (2, 4, 4)
    torch.testing.assert_close(joined.sum(-1), torch.ones(2, 4))
    torch.testing.assert_close(joined[:, 1, 1], weights[:, 1:3, 1:3].sum(-1).mean(-1))


def test_a_word_is_found_without_its_capital_and_punctuation() -> None:
    assert find_word(["▁The", "▁ani", "mal", ",", "▁it"], "Animal") == [1, 2, 3]
    with pytest.raises(SpecError, match="there is no word 'cat' here; there are 'a', 'dog'"):
        find_word(["▁a", "▁dog"], "cat")


@pytest.fixture(params=[name for name in TASKS if TASKS[name] != "image"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Model:
    convert(str(folder(request.param, tmp_path / "theirs")), str(tmp_path / "ours"))
    return regard.load(tmp_path / "ours")


def stored(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def test_every_kind_of_model_can_be_looked_at(model: Model) -> None:
    text = "a cab bad"
    seen = regard.look(model, text)
    (view,) = stored(seen.html())["views"]  # type: ignore[misc, attr-defined]
    weights = seen.views[0].layers[0].weights
    raw = base64.b64decode(view["layers"][0]["heads"][0]["weights"])
    assert np.array_equal(np.frombuffer(raw, "<f4").reshape(weights.shape[1:]), weights[0].numpy())
    assert seen.render()
    assert seen.plain()["views"][0]["text"] == text  # type: ignore[index]


HOSTILE = "</script><script>document.title='pwned'</script><img src=x onerror=alert(1)>"


def test_text_full_of_markup_stays_text(tmp_path: Path) -> None:
    convert(str(folder("gpt2", tmp_path / "theirs")), str(tmp_path / "ours"))
    page = regard.look(tmp_path / "ours", HOSTILE, "a").html()
    assert page.count("<script") == 2
    assert "<img" not in page
    assert stored(page)["views"][0]["text"] == HOSTILE  # type: ignore[index]
    assert re.search(r"script-src &#x27;sha256-[\w+/=]+&#x27;", page)


def test_a_page_that_cannot_hold_all_heads_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_page, "EXACT_BYTES", 10)
    convert(str(folder("bert, body", tmp_path / "theirs")), str(tmp_path / "ours"))
    seen = regard.look(tmp_path / "ours", "a cab bad", heads=["encoder.blocks.1.mix.head.1"])
    (view,) = stored(seen.html())["views"]  # type: ignore[misc, attr-defined]
    exact = {(i, h) for i, layer in enumerate(view["layers"]) for h, head in enumerate(layer["heads"]) if head["exact"]}
    assert exact == {(1, 1)}
    head = view["layers"][0]["heads"][0]
    at = np.frombuffer(base64.b64decode(head["largest_at"]), "<u2").reshape(-1, head["largest_count"])
    assert np.array_equal(at[:, 0], seen.views[0].layers[0].weights[0].argmax(-1).numpy())
    assert not view["whole"]


def test_the_verb(tmp_path: Path) -> None:
    convert(str(folder("marian", tmp_path / "theirs")), str(tmp_path / "ours"))
    page = tmp_path / "page.html"
    said = call("look", tmp_path / "ours", "a cab", "--output", "bad", "--out", page)
    assert (said.code, said.err, said.lines) == (0, "", [str(page)])
    assert page.read_text().startswith("<!doctype html>")
    said = call("look", tmp_path / "ours", "a cab", "--output", "bad", "--text")
    assert said.code == 0
    assert "cross-attention, mean of all heads" in said.out
    said = call("look", tmp_path / "ours", "a cab", "--output", "bad", "--link", "bad", "cab", "--json")
    told = json.loads(said.out)
    (view,) = told["views"]
    assert len(view["attribution"]) == len(view["wanted"]) == len(view["lens"][0]["best"])
    assert told["patched"] is None
    found = told["links"]
    assert [link["weight"] for link in found] == sorted((link["weight"] for link in found), reverse=True)
    said = call("look", tmp_path / "ours", "a cab", "--against", "a bad", "--output", "bad", "--out", page)
    assert len(stored(page.read_text())["views"]) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--link", "dog", "cab"], "there is no word 'dog' here"),
        (["--head", "encoder.blocks.9.mix.head.0"], "there is no attention layer 'encoder.blocks.9.mix'"),
        (["--head", "encoder.blocks.0.mix.head.99"], "a head is written LAYER.head.N with N from 0 to"),
    ],
)
def test_what_is_not_there(words: list[str], message: str, tmp_path: Path) -> None:
    convert(str(folder("marian", tmp_path / "theirs")), str(tmp_path / "ours"))
    said = call("look", tmp_path / "ours", "a cab", "--output", "bad", *words)
    assert said.code == 2
    assert message in said.err
    assert len(said.err.splitlines()) == 1
