"""Token classification: labels on first tokens, long texts in pieces, as many labels out as words in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batch import IGNORE
from regard.data.pairs import Pairs
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import DataError
from regard.families import bert
from regard.nn.blocks.head import Classes
from regard.nn.core.coords import Coords
from regard.tasks.tag import Tag, TagData
from regard.text import Bpe, Chars, Tokenizer

pytestmark = pytest.mark.numeric

LINES = ["the cat sat on the mat", "a catalogue of mats, and of cats"] * 4
SMALL: dict[str, Any] = dict(width=16, depth=1, heads=2, hidden=32, dropout=0.0)


def made(spec: Any, **settings: Any) -> Tag:
    return Tag(TagData(**{"max_length": 8, **settings}), Tokenizer.train(LINES, spec), ("N", "V", "X"))


def net_of(task: Tag) -> Any:
    return task.adapt_spec(bert.spec(**SMALL, **task.model_arguments())).build(seed=1).double().eval()


WORDS = made(Bpe(50))
NET = net_of(WORDS)


def test_labels_stand_at_first_tokens() -> None:
    rows = WORDS.encode([Pairs(["a catalogue"], ["X N"])])
    ids, labels = rows.ids[0].tolist(), rows.labels[0].tolist()
    t = WORDS.tokenizer
    assert ids == [t.bos, *t.encode("a catalogue"), t.eos]
    first = 1 + len(t.encode("a"))
    assert {i: label for i, label in enumerate(labels) if label != IGNORE} == {1: 2, first: 0}
    assert WORDS.adapt_spec(bert.spec(**SMALL, **WORDS.model_arguments())).head == Classes(3, None, dropout=0.1)


@given(st.lists(st.sampled_from(["the", "catalogue", "zebra", "é", "\u200b", "of"]), max_size=12))
def test_as_many_labels_as_words(words: list[str]) -> None:
    text = " ".join(words)
    ((output,),) = WORDS.run(TorchEngine(NET), [text], Search())
    assert len(output.text.split()) == len(words) == len(output.more["labels"])
    assert WORDS.score(TorchEngine(NET), [text], [output.text])[0] == pytest.approx(output.log_prob, abs=1e-9)


@torch.no_grad()
def test_long_texts_are_read_in_pieces() -> None:
    task = made(Chars(), unit="letters")
    net, text = net_of(task), "thecatsatonthemat"
    ((output,),) = task.run(TorchEngine(net), [text], Search())
    wanted = ""
    for i in range(0, len(text), 6):  # eight tokens, two of them marks
        piece = [task.tokenizer.bos, *task.tokenizer.encode(text[i : i + 6]), task.tokenizer.eos]
        told = net.logits(net(torch.tensor([piece]), Coords.span(len(piece))))[0, 1:-1]
        wanted += "".join(task.classes[j] for j in told.argmax(-1).tolist())
    assert output.text == wanted
    rows = task.encode([Pairs([text], ["N" * len(text)])])
    assert rows.lengths.tolist() == [8, 8, 7]
    assert sum((row >= 0).sum() for row in rows.labels) == len(text)


def test_labels_that_do_not_fit() -> None:
    with pytest.raises(DataError, match="there are 2 words to label, got 1 labels"):
        WORDS.score(TorchEngine(NET), ["the cat"], ["N"])
    with pytest.raises(DataError, match="as many outputs as inputs are needed, got 0 for 1"):
        WORDS.score(TorchEngine(NET), ["the cat"], [])
    with pytest.raises(DataError, match="has a class 'Q' that the model does not have"):
        WORDS.encode([Pairs(["cat"], ["Q"])])


def test_scores_suit_the_unit() -> None:
    assert WORDS.metrics == ("word_accuracy", "word_macro_f1")
    assert made(Chars(), unit="letters").metrics == ("letter_accuracy", "letter_macro_f1")
    assert made(Chars(), metrics=("span_f1",)).metrics == ("span_f1",)
    assert WORDS.forward_pass(NET, "the cat", "N V").attention(NET)[0]["encoder.blocks.0.mix"].shape[0] == 2
