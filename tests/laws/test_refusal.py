"""What a mixer's `Can` denies, the builder refuses: tried on a mixer that can do nothing."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from regard.errors import SpecError, StateError
from regard.laws.case import describe
from regard.laws.refusal import check_places
from regard.model.build import refusals
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.block import Block
from regard.nn.blocks.body import Stack
from regard.nn.blocks.embedding import Tokens
from regard.nn.core.context import Context
from regard.nn.core.coords import Coords
from regard.nn.core.mixer import MIXERS, Can, Mixer, MixerSpec, Site
from regard.nn.core.state import State, moving
from regard.nn.mixers import Full
from regard.nn.positions.position import ALiBi, Learned, PositionSpec, Relative, Rotary
from regard.spec import spec
from tests.laws.examples import MIX, POSITION, every


@spec
class Shy(MixerSpec):
    """Passes everything through, and can do nothing else."""

    can = Can(causal=False, cross=False, stream=False, rewind=False, weights=False, positions=frozenset())

    def build(self, site: Site) -> Mixer:
        return ShyMixer(site)


class ShyMixer(Mixer):
    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        return x, state


@spec
class Forgetful(MixerSpec):
    """Remembers the last token; cannot go back."""

    can = Can(cross=False, rewind=False, weights=False, positions=frozenset())

    def build(self, site: Site) -> Mixer:
        return ForgetfulMixer(site)


@dataclasses.dataclass
class Last(State):
    token: Tensor = moving()


class ForgetfulMixer(Mixer):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        before = state.token if isinstance(state, Last) else torch.zeros_like(x[:, :1])
        out = x + self.scale * torch.cat([before, x[:, :-1]], 1)
        return out, None if state is None else Last(x[:, -1:])

    def start(self, rows: int, capacity: int) -> State:
        return Last(self.scale.new_zeros(rows, 1, self.site.width))


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MIXERS._parts, "shy", Shy)
    monkeypatch.setitem(MIXERS._parts, "forgetful", Forgetful)


def model(block: Block, causal: bool = False, position: PositionSpec | None = None) -> ModelSpec:
    stack = Stack(block, depth=2, causal=causal, position=position)
    side = {"decoder": stack} if causal else {"encoder": stack}
    return ModelSpec(8, 12, Tokens(11), init="normal", **side)  # type: ignore[arg-type]


def test_what_it_can_do_is_built() -> None:
    net = model(Block(mix=Shy())).build()
    assert net(torch.zeros(1, 3, dtype=torch.long), Coords.span(3)).shape == (1, 3, 8)


def test_causal() -> None:
    asked = model(Block(mix=Shy()), causal=True)
    able = [repr(name) for name, part in MIXERS.items() if part.can.causal]
    assert "'shy'" not in able
    assert refusals(asked) == [
        f"mixer 'shy' cannot be causal (decoder.blocks.{i}.mix); use {' or '.join(able[:3])}" for i in range(2)
    ]
    with pytest.raises(SpecError, match=r"^mixer 'shy' cannot be causal \(decoder.blocks.0.mix\); use 'full'"):
        asked.build()


def test_cross() -> None:
    both = ModelSpec(
        8,
        12,
        Tokens(11),
        encoder=Stack(Block(mix=Shy()), depth=1),
        decoder=Stack(Block(mix=Full(2), cross=Shy()), depth=1, causal=True),
    )
    with pytest.raises(SpecError, match=r"^mixer 'shy' cannot attend across \(decoder.blocks.0.cross\); use 'full'"):
        both.build()


def test_all_refusals_come_at_once() -> None:
    asked = model(Block(mix=Shy(), cross=Shy()), causal=True)
    with pytest.raises(SpecError) as error:
        asked.build()
    for said in ("blocks.0.mix); use", "blocks.1.mix); use", "cannot attend across", "and there is none before it"):
        assert said in str(error.value)


@pytest.mark.parametrize("position", [p for p in every(POSITION) if p.acts - {"embed"}], ids=describe)
def test_positions(position: PositionSpec) -> None:
    needs = ", ".join(sorted(position.acts))
    said = rf"^mixer 'shy' cannot use position '\w+' \(encoder.blocks.0.mix\): it needs {needs}$"
    with pytest.raises(SpecError, match=said):
        model(Block(mix=Shy()), position=position).build()


def test_streaming() -> None:
    net = model(Block(mix=Full(2)), causal=True).build()
    mixer = Shy().build(Site("decoder.blocks.0.mix", 8, 12))
    net.decoder.blocks[0].mix = mixer  # type: ignore[union-attr, index]
    with pytest.raises(StateError, match=r"^decoder.blocks.0.mix cannot run token by token$"):
        net.start(2, 8)


def test_rewinding() -> None:
    net = model(Block(mix=Forgetful()), causal=True).build().eval()
    ids = torch.randint(11, (2, 5))
    _, state = net.decode(ids, Coords.span(5), state=net.start(2, 8))
    assert state is not None
    with pytest.raises(StateError, match=r"^Last cannot go back to 3 tokens; run them again from the start$"):
        state.cut(3)


def test_a_name_in_a_file_finds_it_only_while_it_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Block.parse({"mix": "shy"}) == Block(mix=Shy())
    monkeypatch.delitem(MIXERS._parts, "shy")
    with pytest.raises(SpecError, match=r"^mix: no mixer 'shy'; "):
        Block.parse({"mix": "shy"})


@pytest.mark.parametrize("mixer", every(MIX), ids=describe)
@pytest.mark.parametrize("position", [Rotary(), ALiBi(), Relative(2), Learned()], ids=describe)
def test_every_mixer_takes_what_it_says(mixer: MixerSpec, position: PositionSpec) -> None:
    asked = model(Block(mix=mixer), position=position)
    if position.acts <= mixer.can.positions:
        asked.build()
    else:
        with pytest.raises(SpecError, match=r"^(mixer|position) '\w+' (cannot use|acts on)"):
            asked.build()


@pytest.mark.parametrize("mixer", every(MIX), ids=describe)
def test_every_mixer_is_built_where_it_can_be_and_refused_where_not(mixer: MixerSpec) -> None:
    check_places(mixer)
