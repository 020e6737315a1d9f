"""Starting from another model: of its heads only what means the same is taken, whatever the rest is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from regard.families import bert
from regard.files.folder import read_folder, write_folder
from regard.serialization.model_folder import FORMAT
from regard.tasks.common.class_names import pack_classes
from regard.training.finetune import Initialization, initialize_from

pytestmark = pytest.mark.numeric

BERT: dict[str, Any] = dict(width=8, depth=1, heads=2, hidden=12, vocab=11, length=6)


@pytest.mark.parametrize(
    ("old", "new", "classes", "wanted"),
    [
        (dict(head="masked", next_sentence=False), dict(head="classes"), (), {}),
        (dict(head="masked", next_sentence=True), dict(head="classes"), (), {"head.dense": "beside.dense"}),
        (dict(head="masked", next_sentence=True), dict(head="tags"), (), {}),
        (dict(head="masked", next_sentence=False), dict(head="masked", next_sentence=True), (), {"head": "head"}),
        (dict(head="masked", activation="relu", next_sentence=False), dict(head="masked", next_sentence=False), (), {}),
        (dict(head="vector"), dict(head="classes"), (), {"head.dense": "head.dense"}),
        (dict(head="vector"), dict(head="classes", squash="relu"), (), {}),
        (dict(head="mean"), dict(head="vector"), (), {}),
        (dict(head="classes", classes=3), dict(head="classes", classes=3), (), {"head.dense": "head.dense"}),
        (dict(head="classes", classes=3), dict(head="classes", classes=3), ("a", "b", "c"), {"head": "head"}),
        (dict(head="classes", classes=3), dict(head="tags", classes=3), ("a", "b", "c"), {}),
        (dict(head="classes", classes=2), dict(head="masked", next_sentence=True), (), {"beside.dense": "head.dense"}),
    ],
)
def test_of_a_head_is_taken_what_means_the_same(
    old: dict[str, Any], new: dict[str, Any], classes: tuple[str, ...], wanted: dict[str, str], tmp_path: Path
) -> None:
    """Though `head.dense` is so called, and as large, in a masked head and in a classifier."""
    theirs, ours = bert.spec(**BERT, **old).build(1), bert.spec(**BERT, **new).build(2)
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    config = {"format": FORMAT, "task": "x", "settings": {}, "decode": {}, "model": theirs.spec.plain()}
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": save(theirs.state_dict())}
    write_folder(tmp_path / "m", files | pack_classes(("a", "b", "c")))
    taken = initialize_from(ours, read_folder(tmp_path / "m"), "m", pack_classes(classes) if classes else {})
    assert {name.partition(".")[0] for name in before} >= {name.partition(".")[0] for name in wanted}
    for name, tensor in ours.state_dict().items():
        front = next((front for front in wanted if f"{name}.".startswith(f"{front}.")), None)
        if name.startswith(("head.", "beside.")) and front is None:
            assert name in taken.new and torch.equal(tensor, before[name])
        else:
            place = name if front is None else wanted[front] + name.removeprefix(front)
            assert name in taken.taken and torch.equal(tensor, theirs.state_dict()[place])
            assert place not in taken.left
            assert (name in dict(taken.lent)) is (name != place)


def test_what_begins_from_another_place_is_said() -> None:
    assert Initialization(("a", "head.b"), (), (), (("head.b", "beside.b"),)).lines("m") == [
        "from m: 2 weights taken",
        "taken from another part: head.b (beside.b)",
    ]
