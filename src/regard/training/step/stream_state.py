"""The state of a model that reads a stream across batches.

The state is detached from the graph after each batch and saved with every checkpoint. A batch may be divided into parts that
run side by side; the rows of a part continue in the same part of the next batch, so each part has its own state.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from regard.errors import SpecError
from regard.model.net import Net
from regard.nn.core.mixer import Mixer
from regard.nn.core.state import State
from regard.tasks.common.task import Task
from regard.tasks.common.training_hooks import is_streaming

ENDLESS = 1 << 40
"""A length in tokens that stands for a stream without end."""
OTHERS = "use model.family=transformer_xl, or the mixer 'xl_memory', 'local' or 'performer'"


class StreamState:
    """The states of a stream by part number; always empty for a task that does not stream."""

    def __init__(self, net: Net, task: Task, *, processes: int = 1) -> None:
        self.net, self.wanted = net, is_streaming(task)
        self.states: dict[int, State] = {}
        if self.wanted and (faults := find_stream_faults(net, processes)):
            raise SpecError(*faults)

    def begin(self, step: int, *, first: bool) -> None:
        """Start a step. The first one of an epoch starts without state, as does one with new random features."""
        before = self._drawn()
        self.net.before_step(step)
        if first or self._drawn() != before:
            self.forget()

    def keep(self, part: int, state: State | None) -> None:
        """Keep the state after a part of a batch for the next one."""
        if state is not None:
            self.states[part] = state.detach()

    def forget(self) -> None:
        """Drop all states."""
        self.states.clear()

    def tensors(self) -> dict[str, Tensor]:
        """All states as named tensors."""
        return {name: t for part, state in self.states.items() for name, t in state.flat(str(part)).items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        parts: dict[int, dict[str, Tensor]] = {}
        for full, tensor in tensors.items():
            part, _, name = full.partition(".")
            parts.setdefault(int(part), {})[name] = tensor
        self.states = {
            part: self.net.start(1, 0).load_flat(own).to(self.net.device) for part, own in sorted(parts.items())
        }

    def _drawn(self) -> list[tuple[int, int]]:
        return [(id(buffer), buffer._version) for buffer in self.net.buffers()] if self.wanted else []


def find_stream_faults(net: Net, processes: int = 1) -> list[str]:
    """Reasons why this model cannot read a stream without end."""
    if processes > 1:
        return [
            "data.stream needs a single process: the state of the others would not be saved; train without torchrun"
        ]
    if net.spec.decoder is None:
        return ["data.stream needs a model with a decoder, and this one has none"]
    if not net.spec.decoder.streams:
        names = sorted({part.name for part in net.spec.decoder.abilities() if not part.can.stream})
        return [f"{', '.join(names)} cannot continue from a state, which data.stream needs; {OTHERS}"]
    out = []
    if net.spec.room is not None:
        out.append(f"the model has room for {net.spec.room} tokens, and data.stream has no end: use relative positions")
    mixers = [part for part in net.modules() if isinstance(part, Mixer)]
    if full := [part.site.path for part in mixers if part.state_numbers(2 * ENDLESS) > part.state_numbers(ENDLESS)]:
        out.append(f"{full[0]} keeps all past tokens, and data.stream has no end; {OTHERS}")
    return out
