"""Changes to a model: a word swaps a part, and a position in attention replaces that of the embedding."""

from __future__ import annotations

from typing import Any

import pytest

from regard.errors import SpecError, UnknownName
from regard.families import gpt, transformer
from regard.families.expand import expand_model
from regard.model.changes import change_model
from regard.model.model_spec import ModelSpec
from regard.nn.blocks.wiring import WIRINGS, PostNorm, PreNorm
from regard.nn.core.mixer import MIXERS
from regard.nn.layers.norm import LayerNorm, NormSpec, RMSNorm
from regard.nn.mixers import Flash, Full, Local, Performer
from regard.nn.positions.position import ALiBi, NoPosition, Rotary, Sinusoidal
from regard.recipes.merge import nest
from regard.spec import spec
from tests.nn.odd import Blur

pytestmark = pytest.mark.numeric

GPT = gpt.spec(width=8, depth=2, heads=2, vocab=11, length=8, dropout=0.1)
BOTH = transformer.spec("tiny", width=8, depth=1, heads=2, hidden=8, vocab=11)


def change(base: ModelSpec, *settings: str) -> tuple[Any, list[str]]:
    changes: dict[str, Any] = {}
    for setting in settings:
        path, value = setting.split("=")
        changes |= nest(path, value)
    return change_model(base, changes)


@pytest.mark.parametrize("path", ["decoder.block.mix.kind", "decoder.block.mix"])
class TestOneWord:
    """Both spellings mean the same, for parts of ours and of a plugin."""

    def test_keeps_what_both_kinds_have(self, path: str) -> None:
        spec, notes = change(GPT, f"{path}=flash")
        assert spec.decoder.block.mix == Flash(2, dropout=0.1)
        assert notes == ["decoder.block.mix: kept from 'full': dropout=0.1 (the default of 'flash' is 0.0)"]

    def test_drops_the_rest_and_says_so(self, path: str) -> None:
        spec, notes = change(GPT, f"{path}=performer")
        assert spec.decoder.block.mix == Performer(2)
        assert notes == ["decoder.block.mix: 'performer' does not have dropout=0.1 of 'full'; dropped"]

    def test_a_mixer_without_heads(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(MIXERS._parts, "blur", Blur)
        spec, notes = change(GPT, f"{path}=blur")
        assert spec.decoder.block.mix == Blur()
        assert len(notes) == 1 and "does not have dropout=0.1 of 'full'" in notes[0]

    def test_the_same_kind_changes_nothing(self, path: str) -> None:
        assert change(GPT, f"{path}=full") == (GPT, [])

    def test_what_the_new_kind_needs_is_asked_for(self, path: str) -> None:
        with pytest.raises(SpecError, match=r"mix: reach is missing$"):
            change(GPT, f"{path}=local")

    def test_an_unknown_word(self, path: str) -> None:
        with pytest.raises(UnknownName, match=r"^no mixer 'favor'; did you mean 'performer'\?$"):
            change(GPT, f"{path}=favor")


def test_a_kind_has_its_own_default_where_it_means_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wiring of a plugin with a norm of its own, as ReZero's gate."""

    @spec
    class Rezero(PreNorm):
        norm: NormSpec = RMSNorm(eps=0.5)

    monkeypatch.setitem(WIRINGS._parts, "rezero", Rezero)
    base = GPT.replace("decoder.wiring.norm.bias", False).replace("decoder.wiring.dropout", 0.0)
    new, notes = change(base, "decoder.wiring=rezero")
    assert new.decoder.wiring == Rezero()
    assert notes == [
        "decoder.wiring: not kept from 'pre_norm', because 'rezero' means something else by it: "
        "norm=layer_norm(bias=False) (it is rms_norm(eps=0.5) now)"
    ]
    new, notes = change(base, "decoder.wiring=post_norm")
    assert new.decoder.wiring.norm == LayerNorm(bias=False)
    assert notes == [
        "decoder.wiring: kept from 'pre_norm': norm=layer_norm(bias=False) (the default of 'post_norm' is layer_norm)"
    ]
    new, notes = change_model(base, {"decoder": {"wiring": {"kind": "post_norm", "norm": {"kind": "rms_norm"}}}})
    assert (new.decoder.wiring, notes) == (PostNorm(RMSNorm()), [])  # type: ignore[union-attr]


def test_a_mapping_may_give_the_rest() -> None:
    spec, _ = change_model(GPT, {"decoder": {"block": {"mix": {"kind": "local", "reach": 3}}}})
    assert spec.decoder.block.mix == Local(2, 3, dropout=0.1)  # type: ignore[union-attr]


class TestPosition:
    def test_one_in_the_stack_replaces_that_of_the_embedding(self) -> None:
        spec, notes = change(GPT, "decoder.position=rotary")
        assert (spec.decoder.position, spec.embed.position) == (Rotary(), None)
        assert notes == [
            "decoder position 'rotary' replaces embed.position='learned'; set model.embed.position to keep both"
        ]
        assert not [name for name, _ in spec.build().named_parameters() if "position" in name]

    def test_so_does_one_in_every_mixer(self) -> None:
        spec, notes = change(GPT, "decoder.block.mix.position=alibi")
        assert (spec.decoder.block.mix, spec.embed.position) == (Full(2, dropout=0.1, position=ALiBi()), None)
        assert len(notes) == 1

    def test_both_if_both_are_set(self) -> None:
        spec, notes = change(GPT, "decoder.position=rotary", "embed.position=sinusoidal")
        assert (spec.decoder.position, spec.embed.position, notes) == (Rotary(), Sinusoidal(), [])

    def test_an_embedding_of_two_sides(self) -> None:
        said = (
            r"^decoder position 'rotary' would replace embed.position='sinusoidal', which the encoder needs too; "
            r"set model.encoder.position as well, or model.embed.position to keep both$"
        )
        with pytest.raises(SpecError, match=said):
            change(BOTH, "decoder.position=rotary")
        spec, notes = change(BOTH, "decoder.position=rotary", "encoder.position=rotary")
        assert (spec.embed.position, len(notes)) == (None, 1)

    def test_another_setting_of_a_model_that_has_both_changes_nothing(self) -> None:
        both, _ = change(GPT, "decoder.position=rotary", "embed.position=sinusoidal")
        spec, notes = change(both, "decoder.position.base=500.0")
        assert (spec.embed.position, spec.decoder.position, notes) == (Sinusoidal(), Rotary(500.0), [])

    def test_none_at_all(self) -> None:
        spec, notes = change(GPT, "embed.position=none")
        assert (spec.embed.position, notes) == (NoPosition(), [])
        assert not [name for name, _ in spec.build().named_parameters() if "position" in name]
        assert change(GPT, "embed.position=null")[0].embed.position is None

    def test_none_in_a_mixer_turns_the_stacks_off(self) -> None:
        rotary = GPT.replace("decoder.position", "rotary").replace("embed.position", None)
        off = rotary.replace("decoder.block.mix.position", "none")
        import torch

        from regard.nn.core.coords import Coords

        ids = torch.tensor([[3, 4, 5, 6]])
        nets = [spec.build(1).eval() for spec in (rotary, off, GPT.replace("embed.position", None))]
        outs = [net(ids, Coords.span(4)) for net in nets]
        assert torch.equal(outs[1], outs[2]) and not torch.allclose(outs[0], outs[1])


def test_a_recipe_collects_the_notes() -> None:
    notes: list[str] = []
    expand_model({"family": "gpt", "decoder": {"position": "rotary"}}, {"vocab": 11}, notes)
    assert notes == [
        "decoder position 'rotary' replaces embed.position='learned'; set model.embed.position to keep both"
    ]
