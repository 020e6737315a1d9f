"""A loaded model and its scheduler, while it is served.

What the API process may know of a model is its description: plain data, from the model's own folder.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from regard.api import load
from regard.api.trained_model import Model
from regard.conversion.hf_origin import Origin
from regard.engine.fallback_engine import FallbackEngine
from regard.engine.torch_engine import TorchEngine
from regard.files.folder import Folder, read_folder
from regard.registry import kind_of
from regard.serialization.model_folder import BEST, FINAL
from regard.serve.chat_template import ChatTemplate
from regard.serve.scheduler import Scheduler
from regard.serve.vital_signs import SchedulerRow
from regard.serve.work_limit import WORKING_MEMORY, WorkLimit
from regard.spec import Plain
from regard.tasks.common.capabilities import (
    Classifies,
    Embeds,
    Inspects,
    ReadsImages,
    Scores,
    StreamsText,
    list_tags,
    supports,
)
from regard.tasks.common.lm_frame import LmFrame
from regard.tasks.common.task import Task

BY_TASK = {
    "translate": "translate",
    "mlm": "fill",
    "span": "fill",
    "denoise": "fill",
    "classify": "classify",
    "tag": "tag",
    "babi": "answer",
    "recommend": "recommend",
    "frames": "continue",
}
"""Use of models, by their task."""
BY_CAPABILITY = {
    "complete": StreamsText,
    "score": Scores,
    "embed": Embeds,
    "attention": Inspects,
    "image": ReadsImages,
}
SIDES = ("source", "target")
"""Names of the languages of models that do not say."""


@dataclasses.dataclass(frozen=True)
class LoadSettings:
    """Settings for loading models."""

    engine: str = "auto"
    device: str = "cpu"
    set: Mapping[str, object] = dataclasses.field(default_factory=dict)
    slots: int = 64
    working_memory: int = WORKING_MEMORY
    """Bytes that a request may need, besides the models."""


class ServedModel:
    """A model whose requests share the batch of one scheduler. It stays until its last request is done."""

    def __init__(
        self, name: str, path: Path, settings: LoadSettings, open_row: Callable[[], SchedulerRow] = SchedulerRow
    ) -> None:
        self.name, self.stamp = name, stamp_folder(path)
        self.model: Model = load(path, device=settings.device, engine=settings.engine, set=settings.set)
        self.chat_template = read_chat_template(read_folder(self.model.path), self.model.task)
        own, net = self.model.engine, self.model.engine.nets[0]
        self.limit = WorkLimit(net, settings.working_memory)
        net.check_pass = self.limit.check_pass
        self.scheduler = Scheduler(
            own.first if isinstance(own, FallbackEngine) else own,
            slots=settings.slots,
            has_encoder=net.encoder is not None,
            row=open_row(),
            limit=self.limit,
        )
        self.model.engine = FallbackEngine(self.scheduler, TorchEngine(net))
        self._users, self._retired, self._lock = 0, False, threading.Lock()

    @contextmanager
    def use(self) -> Iterator[Model]:
        """The model, which is not closed before the end of the block."""
        with self._lock:
            self._users += 1
        try:
            yield self.model
        finally:
            with self._lock:
                self._users -= 1
                last = self._retired and self._users == 0
            if last:
                self.scheduler.close()

    @property
    def is_used(self) -> bool:
        return self._users > 0

    def retire(self) -> None:
        """Close it after its last request."""
        with self._lock:
            self._retired = True
            idle = self._users == 0
        if idle:
            self.scheduler.close()

    def describe(self) -> Plain:
        """Describe it to the API process."""
        return {
            "name": self.name,
            **describe_task(self.model.task, chats=self.chat_template is not None),
            "parameters": self.model.parameters,
            "engine": self.scheduler.name,
            "created": self.stamp[0] // 1_000_000_000,
            "search": self.model.search.plain(),
        }


def describe_task(task: Task, *, chats: bool) -> Plain:
    """Describe the uses of models of this task, their languages and their classes."""
    kind = kind_of(type(task))
    uses = [BY_TASK[kind]] if kind in BY_TASK else []
    uses += [use for use, capability in BY_CAPABILITY.items() if supports(task, capability)] + ["chat"] * chats
    out: Plain = {"task": kind, "uses": uses, "classes": list(task.classes) if supports(task, Classifies) else []}
    if "translate" in uses:
        out["languages"] = list_languages(task)
    return out


def list_languages(task: Task) -> Plain:
    """The codes of source and target languages."""
    given = list(getattr(task.settings, "languages", None) or ())
    tags = list(list_tags(task))
    if tags:
        return {"sources": sorted({*tags, *given}), "targets": tags, "tagged": True}
    source, *targets = given or SIDES
    return {"sources": [source], "targets": targets, "tagged": False}


def read_chat_template(folder: Folder, task: Task) -> ChatTemplate | None:
    """The chat template that a model from elsewhere came with."""
    origin = Origin.load(folder)
    if origin.chat_template is None or not isinstance(task, LmFrame):
        return None
    return ChatTemplate(origin.chat_template, task.tokenizer, origin.end_tokens)


def stamp_folder(path: Path) -> tuple[int, int]:
    """Changes whenever another model lies in the folder: time and size of the manifest of what would be loaded."""
    for place in (path / FINAL, path / BEST, path):
        try:
            found = (place / "manifest.json").stat()
        except OSError:
            continue
        return found.st_mtime_ns, found.st_ino
    return 0, 0
