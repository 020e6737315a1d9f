"""muP: as PyPI's `mup` has it: initial scales, learning rates, training, and its coordinate check."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import SpecError
from regard.families import convs2s
from regard.families.expand import expand_model
from regard.model.model_spec import ModelSpec
from regard.model.mup import narrow, parametrize, rate_factors
from regard.model.net import Net
from regard.nn.core.coords import Coords
from regard.training.optimizer import Adam, AdamW, set_learning_rate, set_rate_factors

pytestmark = pytest.mark.numeric
BASE, VOCAB, LENGTH, HEADS, DEPTH = 16, 11, 6, 2, 2


def model(width: int, base: int | None = BASE, **changes: object) -> ModelSpec:
    plain = {"family": "gpt", "width": width, "hidden": 2 * width, "depth": DEPTH, "heads": HEADS, "dropout": 0.0}
    return expand_model(
        {**plain, "tied": False, "init": "normal", "mup_base": base, **changes}, {"vocab": VOCAB, "length": LENGTH}
    )


class Twin(nn.Module):
    """The same model, written for PyPI's mup."""

    def __init__(self, width: int) -> None:
        super().__init__()
        from mup import MuReadout

        self.embed, self.position = nn.Embedding(VOCAB, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(TwinBlock(width) for _ in range(DEPTH))
        self.norm = nn.LayerNorm(width)
        self.head = MuReadout(width, VOCAB, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.norm(x))
        return out


class TwinBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.mix_norm(x)
        q, k, v = (part(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = q @ k.mT * (BASE // HEADS) ** 0.5 / q.shape[-1]
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        seen = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.feed_norm(x)), approximate="tanh"))


def names(theirs: str) -> str:
    """Our name of one of the twin's weights."""
    theirs = theirs.replace("position.weight", "embed.position.weight")
    if theirs.startswith("blocks"):
        theirs = theirs.replace(".up.", ".feed.up.").replace(".down.", ".feed.down.")
        for part in "q", "k", "v", "out":
            theirs = theirs.replace(f".{part}.", f".mix.{part}.")
        return f"decoder.{theirs}"
    return f"decoder.{theirs}" if theirs.startswith("norm") else theirs


def twin(width: int) -> Twin:
    mup = pytest.importorskip("mup")
    made = Twin(width)
    mup.set_base_shapes(made, Twin(BASE), delta=Twin(2 * BASE), rescale_params=False)
    return made


def logits(net: Net, ids: Tensor) -> Tensor:
    stream = net(ids, Coords.span(ids.shape[1]))
    return net.logits(stream if isinstance(stream, Tensor) else stream[0])


def test_initial_scales_are_those_of_mup() -> None:
    init = pytest.importorskip("mup").init
    ours, theirs = dict(model(256).build(1).named_parameters()), twin(256)
    for name, weight in theirs.named_parameters():
        if weight.dim() == 2:
            init.normal_(weight, std=0.02)
            assert ours[names(name)].std().item() == pytest.approx(weight.std().item(), rel=0.06), name


def test_rates_and_a_few_steps_are_those_of_mup() -> None:
    mup = pytest.importorskip("mup")
    torch.manual_seed(1)
    other = twin(64).double()
    net = model(64).build(1).double()
    ours = dict(net.named_parameters())
    with torch.no_grad():
        for name, weight in other.named_parameters():
            weight.copy_(ours[names(name)])
    settings = {"lr": 0.02, "betas": (0.9, 0.98), "eps": 1e-8, "weight_decay": 0.1}
    matrices, rest = ([w for w in other.parameters() if (w.dim() > 1) is wanted] for wanted in (True, False))
    theirs = mup.MuAdamW([{"params": matrices}, {"params": rest, "weight_decay": 0.0}], **settings)
    optimizer = AdamW(weight_decay=0.1).build(net)
    set_rate_factors(net, optimizer, rate_factors(net), same_decay=True)
    set_learning_rate(optimizer, 0.02)
    by_name = {weight: name for name, weight in other.named_parameters()}
    wanted = {names(by_name[w]): (g["lr"], g["weight_decay"]) for g in theirs.param_groups for w in g["params"]}
    mine = {weight: name for name, weight in net.named_parameters()}
    found = {mine[w]: (g["lr"], g["weight_decay"]) for g in optimizer.param_groups for w in g["params"]}
    assert found.keys() == wanted.keys()
    assert all(found[name] == pytest.approx(wanted[name]) for name in found)
    assert found["decoder.blocks.0.mix.q.weight"] == pytest.approx((0.005, 0.4))
    for _ in range(4):
        ids = torch.randint(VOCAB, (3, LENGTH))
        for forward, steps in ((lambda x: logits(net, x), optimizer), (other, theirs)):
            loss = F.cross_entropy(forward(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            steps.zero_grad()
            loss.backward()
            steps.step()
    for name, weight in other.named_parameters():
        torch.testing.assert_close(ours[names(name)], weight, msg=name)


def test_at_its_base_width_it_is_the_standard_model() -> None:
    standard, mup = model(BASE, None).build(3), model(BASE).build(3)
    for (name, a), b in zip(standard.named_parameters(), mup.parameters(), strict=True):
        assert torch.equal(a, b), name
    ids = torch.randint(VOCAB, (2, LENGTH))
    torch.testing.assert_close(logits(standard, ids), logits(mup, ids))
    assert set(rate_factors(mup).values()) == {1.0}


def coordinates(width: int, base: int | None, seed: int) -> list[float]:
    """Mean size of what each sublayer adds to the stream and of the logits, as they changed in three steps of Adam."""
    net = model(width, base, init="xavier").build(seed)
    torch.manual_seed(seed)
    optimizer = Adam().build(net)
    if base is not None:
        set_rate_factors(net, optimizer, rate_factors(net), same_decay=True)
    set_learning_rate(optimizer, 0.01)
    ids = torch.randint(VOCAB, (16, LENGTH))

    def look() -> list[Tensor]:
        found: list[Tensor] = []
        parts = [part for name, part in net.named_modules() if name.endswith((".mix.out", ".feed.down"))]
        hooks = [part.register_forward_hook(lambda _part, _given, y: found.append(y.detach())) for part in parts]
        found.append(logits(net, ids).detach())
        for hook in hooks:
            hook.remove()
        return found

    before = look()
    for _ in range(3):
        loss = F.cross_entropy(logits(net, ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [(now - then).abs().mean().item() for now, then in zip(look(), before, strict=True)]


def test_the_coordinate_check() -> None:
    """Updates of activations grow with the width in the standard parametrization, and keep their size with muP.

    As in mup's coordinate check: the slope of log size by log width, for every layer and the logits.
    """
    widths = (32, 64, 128, 256)

    def slopes(base: int | None) -> Tensor:
        found = [[coordinates(width, base, seed) for seed in range(3)] for width in widths]
        sizes = torch.tensor(found, dtype=torch.float64).mean(1).log()
        x = torch.tensor(widths, dtype=torch.float64).log()
        x = x - x.mean()
        return (x[:, None] * sizes).sum(0) / x.square().sum()

    assert slopes(32).abs().max() < 0.25  # a wrong scale is a power of ½ or more
    assert slopes(None).min() > 0.3


def test_a_spec_with_it_is_parametrized_once() -> None:
    made = model(64)
    assert made.head.scale == BASE / 64  # type: ignore[attr-defined]
    assert expand_model({"spec": made.plain()}, {}) == made
    assert narrow(made).width == BASE
    paper = expand_model({"width": 64, "hidden": 64, "heads": 2, "depth": 1, "mup_base": 16}, {"vocab": VOCAB})
    assert paper.embed.scaled == 4.0  # type: ignore[attr-defined]
    assert paper.build(1).embed.scale == 4.0


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"decoder": {"block": {"mix": {"kind": "performer"}}}}, "mup_base needs softmax attention, and decoder.block.mix is"),
        ({"head": {"kind": "classes", "count": 3}}, "mup_base needs one head over a vocabulary"),
        ({"hidden": 65}, "is no whole number; choose a width that is a multiple of mup_base"),
        ({"mup_base": 0}, "mup_base"),
    ],
)  # fmt: skip
def test_what_it_refuses(changes: dict[str, object], wanted: str) -> None:
    with pytest.raises(SpecError, match=wanted):
        model(64, **changes)
    with pytest.raises(SpecError, match="mup_base needs softmax"):
        parametrize(model(64, None, decoder={"block": {"mix": {"kind": "linformer"}}}), 16)
    with pytest.raises(SpecError, match="mup_base needs softmax attention, and encoder is 'gated_convolutions'"):
        parametrize(convs2s.spec(depth=1), 16)
