"""Sentence embedding: pooling by definition, padding that never matters, pairs that find each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.api import Model
from regard.data.pairs import Pairs
from regard.decode import Search
from regard.engine.torch_engine import TorchEngine
from regard.errors import DataError, SpecError
from regard.families import bert, gpt
from regard.nn.blocks.head import Vector
from regard.nn.core.coords import Coords
from regard.tasks.common.encoder_input import embed_texts
from regard.tasks.common.losses import evaluate_loss
from regard.tasks.embed import Embed, EmbedData
from regard.text import Chars, Tokenizer

pytestmark = pytest.mark.numeric

TEXTS = ["a fine day", "so bad", "fine", "bad and bad again and again", ""]
TASK = Embed(EmbedData(tokenizer="chars", max_length=20), Tokenizer.train(TEXTS, Chars()))
SPEC = TASK.adapt_spec(bert.spec(width=16, depth=2, heads=2, hidden=32, dropout=0.0, **TASK.model_arguments()))
NET: Any = SPEC.build(seed=1).double().eval()
MODEL = Model(TorchEngine(NET), TASK, Search(), Path("x"))


@torch.no_grad()
@pytest.mark.parametrize("pool", ["first", "mean"])
def test_a_vector_is_the_stream_pooled(pool: str) -> None:
    """Each text alone, without padding, is the oracle for the batch."""
    found = MODEL.embed(TEXTS, pool=pool, unit=False)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = TASK.tokenizer.frame(TASK.tokenizer.encode(text)[:18])[0]
        stream = NET(torch.tensor([ids]), Coords.span(len(ids)))[0]
        wanted = stream[0] if pool == "first" else stream.mean(0)
        torch.testing.assert_close(vector, wanted.float(), rtol=0, atol=1e-6)


def test_padding_and_neighbours_never_matter() -> None:
    alone = torch.cat([MODEL.embed([text]) for text in TEXTS])
    torch.testing.assert_close(MODEL.embed(TEXTS), alone, rtol=0, atol=1e-6)
    torch.testing.assert_close(MODEL.embed(TEXTS[::-1]).flip(0), alone, rtol=0, atol=1e-6)


def test_length_one_and_cosines() -> None:
    found = MODEL.embed(TEXTS)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(5))
    cosines = MODEL.score(TEXTS[:2], TEXTS[2:4])
    assert cosines == pytest.approx((found[:2] * found[2:4]).sum(1).tolist(), abs=1e-6)
    (output,) = TASK.run(TorchEngine(NET), TEXTS[:1], Search())[0]
    assert output.plain()["vector"] == pytest.approx(found[0].tolist())
    assert [float(x) for x in output.text.split()] == pytest.approx(found[0].tolist(), rel=1e-5)
    assert MODEL.embed([]).shape == (0, 16)


@torch.no_grad()
def test_the_loss_is_that_of_finding_ones_own() -> None:
    """Both ways; a copy of a text does not compete with it."""
    pairs = Pairs(["a fine day", "so bad", "again"], ["fine day", "bad", "bad"])
    batch = TASK.batch(TASK.encode([pairs]), np.arange(3))
    a, b = (MODEL.embed(side).double() for side in (pairs.source, pairs.target))
    scores = 20.0 * a @ b.T
    scores[1, 2] = scores[2, 1] = -torch.inf
    own = torch.arange(3)
    wanted = (F.cross_entropy(scores, own, reduction="sum") + F.cross_entropy(scores.T, own, reduction="sum")) / 2
    loss = TASK.loss(NET, batch, 0.0)
    assert float(loss.total) == pytest.approx(float(wanted), rel=1e-4)
    assert (loss.tokens, len(loss.rows["pair_accuracy"])) == (3, 3)


def test_judged_among_as_many_others_whatever_the_room() -> None:
    words = [f"{a}{b}{c}" for a in "find" for b in "bad" for c in "again"]
    examples = TASK.encode([Pairs([*words] * 4, [word[::-1] for word in words] * 4)])
    found = [evaluate_loss(TASK, NET, examples, tokens=tokens) for tokens in (None, 64, 4096)]
    assert found[0] == found[1] == found[2]
    sizes = [len(batch) for batch in TASK.order_batches(examples, tokens=64, seed=3, evaluate=True).epoch(0)]
    assert sizes == [80, 80, 80]
    assert max(len(batch) for batch in TASK.order_batches(examples, tokens=64, seed=3).epoch(0)) < 20


def test_what_is_refused() -> None:
    assert SPEC.head == Vector("mean")
    with pytest.raises(SpecError, match="embedding needs a model with an encoder and no decoder"):
        TASK.adapt_spec(gpt.spec(width=16, depth=1, heads=2, vocab=9, length=16))
    decoder = gpt.spec(width=16, depth=1, heads=2, vocab=9, length=16).build(0)
    with pytest.raises(SpecError, match="only a model with an encoder and no decoder gives vectors"):
        embed_texts(decoder, TASK.tokenizer, ["a"], pool="mean", unit=True)
    with pytest.raises(SpecError, match=r"embed takes a list of texts, got one text; write model\.embed\(\[text\]\)"):
        MODEL.embed("a fine day")
    with pytest.raises(DataError, match="no training data; name two text files"):
        Embed.read(EmbedData(), 1)
    assert TASK.find_too_long(["a" * 18, "a" * 19]) == [1]
