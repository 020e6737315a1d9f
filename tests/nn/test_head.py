"""Heads that are not a plain product with a table; `Vocab` is in `test_parts.py`."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.errors import ShapeError, SpecError
from regard.nn.blocks.head import Classes, HeadSpec, Masked, Vector, Vocab, pool_stream
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import Site

pytestmark = pytest.mark.numeric

SITE = Site("head", width=8, length=16)
DRAW = torch.Generator().manual_seed(1)
X = torch.randn(2, 3, 8, dtype=torch.double, generator=DRAW)
TABLE = torch.randn(5, 8, dtype=torch.double, generator=DRAW)
TARGET = torch.tensor([[1, -100, 3], [0, 0, 4]])


def shaken(head: torch.nn.Module) -> torch.nn.Module:
    for parameter in head.double().parameters():
        torch.nn.init.normal_(parameter)
    return head


class TestMasked:
    @pytest.mark.parametrize("tied", [True, False])
    def test_a_layer_before_the_table(self, tied: bool) -> None:
        head = shaken(Masked(tied=tied).build(SITE, 5))
        w = head.state_dict()
        hidden = F.layer_norm(F.gelu(X @ w["dense.weight"].T + w["dense.bias"]), (8,), eps=1e-12)
        hidden = hidden * w["norm.weight"] + w["norm.bias"]
        wanted = hidden @ (TABLE if tied else w["weight"]).T + w["bias"]
        torch.testing.assert_close(head(X, TABLE), wanted)

    def test_the_loss_is_of_its_logits(self) -> None:
        head = shaken(Masked().build(SITE, 5))
        loss, plain = head.loss(X, TABLE, TARGET, 0.1)  # type: ignore[operator]
        flat = head(X, TABLE).flatten(0, 1), TARGET.flatten()
        torch.testing.assert_close(loss, F.cross_entropy(*flat, label_smoothing=0.1, reduction="sum"))
        torch.testing.assert_close(plain, F.cross_entropy(*flat, reduction="sum"))

    def test_an_unknown_activation(self) -> None:
        with pytest.raises(SpecError, match=r"^no activation 'gelo'; did you mean 'gelu'\?"):
            Masked("gelo")


@pytest.mark.parametrize(
    "spec", [Vocab(), Vocab(tied=False, bias=True, scale=0.5), Masked(), Classes(5, pool=None)], ids=str
)
def test_scores_of_a_few_are_their_logits(spec: HeadSpec) -> None:
    head, ids = shaken(spec.build(SITE, 5)), torch.randint(5, (2, 3, 2), generator=DRAW)
    torch.testing.assert_close(head.score(X, TABLE, ids), head(X, TABLE).gather(-1, ids))  # type: ignore[operator]


class TestPooled:
    @pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
    def test_a_row_in_a_batch_is_the_row_alone(self, left: bool) -> None:
        at = Coords.lengths([3, 2], left=left)
        alone = X[1:, 1:] if left else X[1:, :2]
        for how in ("first", "mean"):
            got = pool_stream(X, at, how)  # type: ignore[arg-type]
            torch.testing.assert_close(got[:1], pool_stream(X[:1], Coords.span(3), how))  # type: ignore[arg-type]
            torch.testing.assert_close(got[1:], pool_stream(alone, Coords.span(2), how))  # type: ignore[arg-type]

    def test_first_and_mean(self) -> None:
        at = Coords.span(3)
        assert torch.equal(pool_stream(X, at, "first"), X[:, 0])
        torch.testing.assert_close(pool_stream(X, at, "mean"), X.mean(1))

    def test_a_row_of_nothing_is_zeros_not_nan(self) -> None:
        assert (pool_stream(X, Coords.lengths([3, 0]), "mean")[1] == 0).all()


class TestClasses:
    at = Coords.lengths([3, 2])

    @pytest.mark.parametrize("pool", ["first", "mean", None])
    @pytest.mark.parametrize("hidden", [False, True])
    def test_is_its_formula(self, pool: str | None, hidden: bool) -> None:
        head = shaken(Classes(4, pool, hidden).build(SITE, 0))  # type: ignore[arg-type]
        w = head.state_dict()
        x = X if pool is None else pool_stream(X, self.at, pool)  # type: ignore[arg-type]
        x = (x @ w["dense.weight"].T + w["dense.bias"]).tanh() if hidden else x
        torch.testing.assert_close(head(X, None, self.at), x @ w["classes.weight"].T + w["classes.bias"])

    def test_the_loss_of_each_token(self) -> None:
        head = shaken(Classes(5, None).build(SITE, 0))
        loss, plain = head.loss(X, None, TARGET, 0.1)  # type: ignore[operator]
        flat = head(X, None).flatten(0, 1), TARGET.flatten()
        torch.testing.assert_close(loss, F.cross_entropy(*flat, label_smoothing=0.1, reduction="sum"))
        torch.testing.assert_close(plain, F.cross_entropy(*flat, reduction="sum"))

    def test_dropout_in_training_only(self) -> None:
        head = shaken(Classes(5, dropout=0.5).build(SITE, 0))
        assert not torch.equal(head(X, None, self.at), head(X, None, self.at))
        assert torch.equal(head.eval()(X, None, self.at), head(X, None, self.at))

    def test_pooling_without_knowing_where_tokens_stand(self) -> None:
        said = r"^head pools its rows and needs coordinates; use logits\(stream, at\)$"
        with pytest.raises(ShapeError, match=said):
            Classes(5).build(SITE, 0).double()(X, None)
        said = r"^head pools its rows and has no loss per token; use the loss of logits\(stream, at\)$"
        with pytest.raises(ShapeError, match=said):
            Classes(5).build(SITE, 0).loss(X, None, TARGET, 0.0)


class TestVector:
    @pytest.mark.parametrize("pool", ["first", "mean"])
    def test_what_was_pooled(self, pool: str) -> None:
        at = Coords.lengths([3, 2])
        wanted = X[:, 0] if pool == "first" else torch.stack([X[0].mean(0), X[1, :2].mean(0)])
        torch.testing.assert_close(Vector(pool).build(SITE, 5)(X, None, at), wanted)  # type: ignore[arg-type]

    def test_a_layer_behind(self) -> None:
        head = shaken(Vector(hidden=True).build(SITE, 5))
        w = head.state_dict()
        torch.testing.assert_close(
            head(X, None, Coords.span(3)), (X[:, 0] @ w["dense.weight"].T + w["dense.bias"]).tanh()
        )

    def test_there_is_no_loss_a_token(self) -> None:
        with pytest.raises(ShapeError, match=r"^head pools its rows and has no loss per token; use the loss of logits"):
            Vector().build(SITE, 5).loss(X, TABLE, TARGET, 0.0)


def test_a_classifier_with_another_activation() -> None:
    head = shaken(Classes(3, hidden=True, activation="relu").build(SITE, 5))
    w = head.state_dict()
    hidden = F.relu(X[:, 0] @ w["dense.weight"].T + w["dense.bias"])
    torch.testing.assert_close(head(X, None, Coords.span(3)), hidden @ w["classes.weight"].T + w["classes.bias"])
    with pytest.raises(SpecError, match=r"^no activation 'reluu'; did you mean 'relu'\?$"):
        Classes(3, activation="reluu")
