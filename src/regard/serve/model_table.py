"""Models by name: loaded when needed, within a budget.

Names come from the command line and are looked up here; a request can never name a path. A folder that changes, because its
run is still training and has found a better model, is loaded again beside the old one, which finishes its requests.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from regard.engine.choose_engine import NAMES
from regard.errors import RegardError, UnknownName
from regard.files.folder import WEIGHTS
from regard.recipes.merge import merge_settings
from regard.serialization.load import load_task
from regard.serialization.model_folder import find_model
from regard.serve.served_model import LoadSettings, ServedModel, describe_task, read_chat_template, stamp_folder
from regard.serve.ticket import ServerBusy
from regard.serve.vital_signs import SchedulerRow
from regard.spec import Plain

"""Engines whose batches sequences can join and leave."""
COPIES = 2
"""Weights in memory per weight on disk: the model's own, and those that are laid out for decoding."""


class UnknownModel(UnknownName):
    """A request names a model that is not served."""


@dataclasses.dataclass
class _Entry:
    path: Path
    about: Plain
    size: int
    """Bytes in memory, once it is loaded."""
    served: ServedModel | None = None
    last_used: float = 0.0


class ModelTable:
    """The models of a server. Those that do not fit into `budget` bytes are loaded when they are asked for."""

    def __init__(
        self,
        paths: Mapping[str, Path],
        settings: LoadSettings = LoadSettings(),
        *,
        budget: int | None = None,
        tell: Callable[[str], None] = lambda text: None,
        open_row: Callable[[], SchedulerRow] = SchedulerRow,
    ) -> None:
        if settings.engine not in NAMES:
            raise UnknownName("engine", settings.engine, NAMES)
        self._settings, self._budget, self._tell, self._open_row = settings, budget, tell, open_row
        self._lock = threading.RLock()
        self._entries = {name: self._examine(name, path) for name, path in paths.items()}
        for name, entry in self._entries.items():
            if self._fits(entry):
                self._load(name, entry)

    def _examine(self, name: str, path: Path) -> _Entry:
        """Read a folder without loading its weights: what a model is for, and how large it is."""
        folder = find_model(path)
        task = load_task(folder, merge_settings(self._settings.set))
        about = {"name": name, **describe_task(task, chats=read_chat_template(folder, task) is not None)}
        created = stamp_folder(path)[0] // 1_000_000_000
        return _Entry(path, about | {"created": created}, COPIES * len(folder[WEIGHTS]))

    def describe(self) -> list[Plain]:
        """All models, loaded or not."""
        with self._lock:
            return [
                entry.about | {"loaded": False} if entry.served is None else entry.served.describe() | {"loaded": True}
                for entry in self._entries.values()
            ]

    @contextmanager
    def use(self, name: str) -> Iterator[ServedModel]:
        """A model by name, loaded if it is not; it is not unloaded before the end of the block."""
        with self._lock:
            if name not in self._entries:
                raise UnknownModel("model", name, self._entries)
            entry = self._entries[name]
            served = entry.served
            if served is None:
                self._make_room(entry)
                served = self._load(name, entry)
            entry.last_used = time.monotonic()
            context = served.use()
            context.__enter__()
        try:
            yield served
        finally:
            context.__exit__(None, None, None)

    def refresh(self) -> bool:
        """Load what has changed on disk; whether something has."""
        changed = False
        for name, entry in self._entries.items():
            old = entry.served
            if old is None or stamp_folder(entry.path) == old.stamp:
                continue
            try:
                new = ServedModel(name, entry.path, self._settings, self._open_row)  # requests go on
            except RegardError as error:
                self._tell(f"{name} has changed and cannot be loaded; the old one stays: {error}")
                continue
            with self._lock:
                entry.served = new
            old.retire()
            self._tell(f"{name} was replaced by the newer model of {entry.path}")
            changed = True
        return changed

    def list_served(self) -> dict[str, ServedModel]:
        """The loaded models; it waits for nothing, not even for one that is being loaded."""
        return {name: served for name, entry in self._entries.items() if (served := entry.served) is not None}

    def _load(self, name: str, entry: _Entry) -> ServedModel:
        entry.served = ServedModel(name, entry.path, self._settings, self._open_row)
        self._tell(f"{name} was loaded from {entry.path}")
        return entry.served

    def _fits(self, entry: _Entry) -> bool:
        used = sum(other.size for other in self._entries.values() if other.served is not None)
        return self._budget is None or used + entry.size <= self._budget

    def _make_room(self, entry: _Entry) -> None:
        """Unload what was not used for the longest time, unless it is in use."""
        loaded = [other for other in self._entries.values() if other.served is not None]
        for other in sorted(loaded, key=lambda other: other.last_used):
            if self._fits(entry):
                return
            if other.served is not None and not other.served.is_used:
                other.about = other.served.describe()
                other.served.retire()
                other.served = None
        if not self._fits(entry) and any(other.served is not None for other in self._entries.values()):
            raise ServerBusy("the models in use take all the memory there is for models; try again later")
