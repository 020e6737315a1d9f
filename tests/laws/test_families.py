"""Laws of whole families, whatever they read: rows are apart, a folder is the model, nothing is counted or kept twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from regard.errors import SpecError
from regard.files.folder import read_folder, write_folder
from regard.laws.case import CLOSE
from regard.model.cost import cost
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import Classes, Masked, Vocab
from regard.nn.core.coords import Coords
from regard.serialization.load import build_outline
from tests.laws.examples import FAMILIES, Case, given, name_of

pytestmark = pytest.mark.numeric

each = pytest.mark.parametrize("case", FAMILIES, ids=name_of)


def said(net: Net, x: Tensor, at: Coords) -> Tensor:
    """What the heads make of an input; one that writes reads what it writes."""
    both = net.encoder is not None and net.decoder is not None
    with torch.no_grad():
        stream = net(x, at, (x, at) if both else None)
        out = [net.logits(stream, at)] + ([] if net.beside is None else [net.logits_beside(stream, at)])
    return torch.cat([part.flatten(1) for part in out], 1)


@each
def test_a_row_alone_is_the_row_in_a_batch(case: Case) -> None:
    net = case.net()
    x, at = given(net, 4)
    together = said(net, x, at)
    assert together.std(0).max() > 1e-3, "rows should differ"
    for i in range(4):
        torch.testing.assert_close(said(net, x[i : i + 1], at)[0], together[i], **CLOSE)
    turned = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(said(net, x[turned], at), together[turned], **CLOSE)


@each
def test_a_folder_is_the_model(case: Case, tmp_path: Path) -> None:
    net = case.net()
    files = {"config.json": case.spec.json().encode(), "model.safetensors": save(net.state_dict())}
    write_folder(tmp_path / "m", files)
    folder = read_folder(tmp_path / "m")
    spec, weights = ModelSpec.parse(json.loads(folder["config.json"])), folder.tensors()
    assert build_outline(spec, layers=len(weights)).shapes() == {name: tuple(t.shape) for name, t in weights.items()}
    again = spec.build(5).double().eval()
    again.load_weights(weights)
    assert torch.equal(said(again, *given(net, 2)), said(net, *given(net, 2)))


@each
def test_a_model_can_be_filled_instead_of_drawn(case: Case) -> None:
    """Its weights are all that it is, and one that nobody gave is not left as the memory was."""
    drawn = case.spec.build(5)
    weights = drawn.state_dict()
    filled = case.spec.build_with(weights)
    x, at = given(case.net(), 2)
    assert torch.equal(said(filled.double().eval(), x, at), said(drawn.double().eval(), x, at))
    *_, name = weights
    with pytest.raises(SpecError, match=f"^{name} is missing$"):
        case.spec.build_with({n: weight for n, weight in weights.items() if n != name})


@each
def test_what_is_tied_is_counted_and_kept_once(case: Case) -> None:
    net = case.net()
    count = sum(p.numel() for p in net.parameters())
    assert cost(net, 8).parameters == count
    assert sum(t.numel() for t in net.state_dict().values()) == count
    head = case.spec.head
    if isinstance(head, Vocab | Masked) and case.spec.embed.leaves(case.spec.width) == case.spec.out_width:
        other = case.spec.replace("head.tied", not head.tied).build()
        table = case.spec.embed.vocab * case.spec.out_width
        assert abs(sum(p.numel() for p in other.parameters()) - count) == table


@each
def test_a_head_that_cannot_be_is_refused(case: Case) -> None:
    """Over a vocabulary only where tokens are read; classes can be read from anything."""
    asked = case.spec.replace("beside", None).replace("head", Vocab(tied=False))
    case.spec.replace("beside", None).replace("head", Classes(3)).build()
    if case.spec.embed.vocab:
        asked.build()
        return
    with pytest.raises(SpecError, match="a head over a vocabulary needs a token embedding, and this model has none"):
        asked.build()
