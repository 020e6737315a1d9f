"""The contract of tasks is small, and what else a task can do is what this table says."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import regard
from regard.errors import SpecError
from regard.tasks import find, names
from regard.tasks.common import capabilities, training_hooks
from regard.tasks.common.capabilities import Aligns, Embeds, Generates, ReadsPairs, require, supports
from regard.tasks.common.task import Task
from regard.tasks.common.training_hooks import Streams

COMMON = "DescribesExamples Generates Inspects Scores"
CAPABILITIES = {
    "babi": "Augments ChecksLength ExplainsCut OrdersBatches",
    "classify": "Advises ChecksLength ChecksVocabulary Embeds Finetunes Framed FramesText ReadsTexts Stores",
    "code": "Augments ChecksVocabulary Completes Framed FramesText OrdersBatches ReadsTexts Stores Streams StreamsText",
    "denoise": "Augments ChecksLength ChecksVocabulary FramesText ReadsTexts Stores",
    "embed": "ChecksLength ChecksVocabulary Contrasts Embeds Framed OrdersBatches ReadsPairs FramesText ReadsTexts Stores",
    "frames": "",
    "image": "Augments",
    "music": (
        "Augments ChecksVocabulary Framed OrdersBatches FramesText ReadsFiles ReadsTexts Stores Streams StreamsText WritesFiles"
    ),
    "lm": "ChecksVocabulary Framed OrdersBatches FramesText ReadsTexts Stores Streams StreamsText",
    "mlm": "Augments ChecksVocabulary Embeds FramesText ReadsTexts Stores",
    "pronounce": (
        "Aligns Augments ChecksLength ChecksVocabulary Constrains "
        "Framed FramesText ReadsTexts Splits Stores StreamsText Tags"
    ),
    "recommend": "Augments ChecksLength CountsBaselines ExplainsCut OrdersBatches",
    "span": "Augments ChecksLength ChecksVocabulary FramesText ReadsTexts Stores",
    "summarize": (
        "Advises Aligns Augments ChecksLength ChecksVocabulary Constrains HasBaseline "
        "Framed OrdersBatches ReadsPairs FramesText ReadsTexts Splits Stores StreamsText Tags"
    ),
    "tag": "Advises ChecksVocabulary Embeds Finetunes Framed FramesText ReadsTexts Stores",
    "translate": (
        "Advises Aligns Augments ChecksLength ChecksVocabulary Constrains "
        "Framed OrdersBatches ReadsPairs FramesText ReadsTexts Splits Stores StreamsText Tags"
    ),
}
"""What each task can do besides `COMMON` (images have no names to describe them by)."""
OF_INSTANCES = {"Classifies", "ReadsImages"}
"""Capabilities that a class does not show, only its instances: their members are set when a task is made."""
PROTOCOLS = {
    name: value
    for module in (capabilities, training_hooks)
    for name, value in vars(module).items()
    if inspect.isclass(value) and value.__module__ == module.__name__
}


def members(protocol: type) -> set[str]:
    """The methods, properties and attributes that a protocol asks for."""
    own = {name for name in vars(protocol) if not name.startswith("_")}
    return own | set(protocol.__annotations__)


def test_the_contract_is_small() -> None:
    assert len(members(Task)) <= 15


def test_every_capability_is_small() -> None:
    assert all(1 <= len(members(protocol)) <= 4 for protocol in PROTOCOLS.values())


@pytest.mark.parametrize("name", names())
def test_a_task_fulfills_the_contract_and_has_these_capabilities(name: str) -> None:
    kind = find(name)
    missing = {member for member in members(Task) - {"settings", "tokenizer"} if not hasattr(kind, member)}
    assert not missing
    wanted = {*CAPABILITIES[name].split(), *COMMON.split()} - ({"DescribesExamples"} if name == "image" else set())
    assert {title for title, protocol in PROTOCOLS.items() if supports(kind, protocol)} - OF_INSTANCES == wanted


def test_a_capability_that_is_missing_is_an_error_for_users() -> None:
    task = object()
    with pytest.raises(SpecError, match=r"writes one text for another \(tasks summarize, translate\).*, got object"):
        require(task, Aligns)
    with pytest.raises(SpecError, match=r"only a model that reads texts with an encoder alone .*, got object"):
        require(task, Embeds)
    with pytest.raises(SpecError, match=r"only tasks that read pairs of texts .* can drop bad ones, got lm"):
        require(find("lm"), ReadsPairs)
    with pytest.raises(SpecError, match="this needs a task with the capability Streams, got image"):
        require(find("image"), Streams)
    assert require(find("lm"), Generates) is find("lm")


def test_capabilities_are_asked_for_in_one_place() -> None:
    """No module asks `isinstance(…, Aligns)`, nor for the signature of a task's method."""
    for path in Path(regard.__file__).parent.rglob("*.py"):
        if path.name == "capabilities.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked = {getattr(part, "id", None) for part in ast.walk(node.args[1])}
                assert not asked & {*PROTOCOLS, "Task"}, f"{path}:{node.lineno}"
