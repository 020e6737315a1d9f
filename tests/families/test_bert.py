"""BERT and its kin: its words. That they are theirs is shown in `tests/conversion`."""

from __future__ import annotations

import pytest

from regard.errors import UnknownName
from regard.families import bert
from regard.nn.blocks.head import Classes, Masked, Vector

pytestmark = pytest.mark.numeric


def test_the_base_model_is_the_papers() -> None:
    plain = bert.spec().plain()
    assert (plain["width"], plain["length"], plain["encoder"]["depth"]) == (768, 512, 12)
    assert plain["encoder"]["wiring"] == {
        "kind": "post_norm", "norm": {"kind": "layer_norm", "eps": 1e-12, "bias": True}, "dropout": 0.1,
    }  # fmt: skip
    assert plain["beside"] == {
        "kind": "classes",
        "count": 2,
        "pool": "first",
        "hidden": True,
        "dropout": 0.0,
        "activation": "tanh",
    }
    assert bert.spec(next_sentence=False).beside is None


def test_heads() -> None:
    assert isinstance(bert.spec().head, Masked)
    assert bert.spec(classes=3).head == Classes(3, hidden=True, dropout=0.1)
    assert bert.spec("distilbert-base", classes=3).head == Classes(3, hidden=True, dropout=0.1, activation="relu")
    assert bert.spec(classes=3, head="tags").head == Classes(3, None, dropout=0.1)
    assert bert.spec(head="vector").head == Vector(hidden=True)
    assert bert.spec(head="mean").head == Vector("mean")
    assert bert.spec(head="vector").beside is bert.spec(classes=3).beside is None


def test_an_unknown_head() -> None:
    with pytest.raises(UnknownName, match=r"^no head 'maskd'; did you mean 'masked'\?$"):
        bert.spec(head="maskd")  # type: ignore[arg-type]
