"""`regard check`: the laws, tried on parts of a user's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.laws.suite import LAWS
from regard.nn.mixers import MIXERS
from regard.nn.positions.position import POSITIONS
from tests.verbs.calling import ROOT, call
from tests.verbs.test_plugin import one_command

pytestmark = pytest.mark.numeric
HEAD = """
from torch import Tensor, nn

from regard.nn.core.context import Context
from regard.nn.core.mixer import MIXERS, Act, Can, Mixer, MixerSpec, Site
from regard.nn.core.state import State
from regard.nn.positions.position import POSITIONS, Position, PositionSpec
from regard.spec import spec
"""
MEAN = (
    HEAD
    + """
@MIXERS.add
@spec
class Everyone(MixerSpec):
    can = Can(causal={causal}, cross=False, stream=False, rewind=False, weights=False, packed=False, positions=frozenset())

    def build(self, site: Site) -> Mixer:
        return EveryoneMixer(site)

class EveryoneMixer(Mixer):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.v = nn.Linear(site.width, site.width)

    def forward(self, x: Tensor, ctx: Context, state: State | None = None) -> tuple[Tensor, State | None]:
        kept = ctx.at.kept.unsqueeze(-1).to(x.dtype).expand(x.shape[0], -1, -1)
        total = (self.v(x) * kept).sum(1, keepdim=True)
        return (total / kept.sum(1, keepdim=True).clamp(min=1)).expand_as(x), state
"""
)


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    positions = dict(POSITIONS._parts)
    with one_command():
        yield
    POSITIONS._parts = positions


def write(folder: Path, text: str) -> Path:
    file = folder / "mine.py"
    file.write_text(text)
    return file


def test_the_example_obeys_the_laws_it_claims() -> None:
    said = call("check", ROOT / "examples" / "plugin.py")
    assert (said.code, said.err) == (0, "")
    head, *rows = said.out.splitlines()
    assert head == "Average()"
    assert [row.split(maxsplit=1)[0] for row in rows] == ["ok", "ok", "ok", "ok", "ok", "ok", "not", "not", "ok"]


def test_a_mixer_that_is_not_causal_and_says_it_is(tmp_path: Path) -> None:
    said = call("check", write(tmp_path, MEAN.format(causal=True)))
    assert said.code == 2
    assert said.err.startswith("regard: Everyone() breaks causality")
    row = next(line for line in said.out.splitlines() if line.startswith("  failed"))
    assert "causality   changing token 1 changes the output before it; read only earlier tokens where" in row
    assert "or declare Can(causal=False) (largest difference " in row
    assert row.endswith("[decoder: Everyone()]")


def test_and_one_that_does_not(tmp_path: Path) -> None:
    said = call("check", write(tmp_path, MEAN.format(causal=False)), "--json")
    assert (said.code, said.err) == (0, "")
    found = {row["law"]: row["status"] for row in json.loads(said.out)}
    assert tuple(found) == LAWS
    assert found["causality"] == "not claimed" and found["padding"] == found["refusal"] == "ok"


def test_a_position(tmp_path: Path) -> None:
    """This one is added at every position, counted from the end of the row: padding changes it."""
    text = (
        HEAD
        + """
@POSITIONS.add
@spec
class FromTheEnd(PositionSpec):
    acts = frozenset[Act]({"embed"})

    def build(self, site: Site) -> Position:
        return FromTheEndPosition()

class FromTheEndPosition(Position):
    acts = FromTheEnd.acts

    def embed(self, x: Tensor, at: object) -> Tensor:
        return x * x.new_ones(x.shape[1], 1).cumsum(0).flip(0)
"""
    )
    said = call("check", write(tmp_path, text))
    assert said.code == 2
    assert "FromTheEnd() breaks streaming" in said.err and "FromTheEnd() breaks padding" in said.err


def test_a_part_that_needs_more_than_heads(tmp_path: Path) -> None:
    text = MEAN.format(causal=False).replace("    can =", "    rank: int\n    can =")
    said = call("check", write(tmp_path, text))
    assert (said.code, said.out) == (2, "")
    wanted = "cannot make a 'everyone' to try: rank is missing; add EXAMPLES = [Everyone(…)] to the plugin"
    assert said.err == f"regard: {wanted}\n"
    MIXERS._parts.pop("everyone")
    said = call("check", write(tmp_path, f"{text}\nEXAMPLES = [Everyone(rank=3)]\n"))
    assert (said.code, said.out.splitlines()[0]) == (0, "Everyone(rank=3)")


def test_whatever_it_raises_is_reported(tmp_path: Path) -> None:
    said = call("check", write(tmp_path, MEAN.format(causal=False).replace("total / kept", "total / nothing")))
    assert said.code == 2
    assert "failed       padding     NameError: name 'nothing' is not defined [encoder: Everyone()]" in said.out


def test_nothing_to_check(tmp_path: Path) -> None:
    said = call("check", write(tmp_path, "x = 1\n"))
    assert said.code == 2
    assert "mine.py adds no mixer and no position; add one with @MIXERS.add or @POSITIONS.add" in said.err
