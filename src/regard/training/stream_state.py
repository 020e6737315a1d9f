"""Memory carried from step to step: what a model remembers of a stream, cut from the graph, saved with every checkpoint.

A batch may be divided into parts that run side by side; each part's rows go on in the same part of the next batch, so each has
a state of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from regard.errors import SpecError
from regard.model.net import Net
from regard.nn.core.mixer import Mixer
from regard.nn.core.state import State
from regard.registry import kind_of
from regard.tasks.common.capabilities import compute_loss, is_streaming
from regard.tasks.common.task import Loss, Task

ENDLESS = 1 << 40
"""Tokens of a stream that has no end."""
OTHERS = "use model.family=transformer_xl, or the mixer 'xl_memory', 'local' or 'performer'"


class StreamState:
    """What the model remembers of a stream, by the number of the part; of a task that carries nothing, nothing."""

    def __init__(self, net: Net, task: Task, *, processes: int = 1) -> None:
        self.net, self.wanted = net, is_streaming(task)
        self.states: dict[int, State] = {}
        if self.wanted and (faults := find_stream_faults(net, processes)):
            raise SpecError(*faults)

    def begin(self, step: int, *, first: bool) -> None:
        """Tell the net that a step begins. The first of an epoch remembers nothing; nor does one with other random features."""
        before = self._drawn()
        self.net.tick(step)
        if first or self._drawn() != before:
            self.forget()

    def loss(self, task: Task, part: int, batch: Any, smoothing: float) -> Loss:
        """The loss of a part of a batch, which goes on where the same part of the batch before stopped."""
        loss = compute_loss(task, self.net, batch, smoothing, state=self.states.get(part))
        if loss.state is not None:
            self.states[part] = loss.state.detach()
        return loss

    def forget(self) -> None:
        self.states.clear()

    def tensors(self) -> dict[str, Tensor]:
        return {name: t for part, state in self.states.items() for name, t in state.flat(str(part)).items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        parts: dict[int, dict[str, Tensor]] = {}
        for full, tensor in tensors.items():
            part, _, name = full.partition(".")
            parts.setdefault(int(part), {})[name] = tensor
        self.states = {
            part: self.net.start(1, 0).filled(own).to(self.net.device) for part, own in sorted(parts.items())
        }

    def _drawn(self) -> list[tuple[int, int]]:
        return [(id(buffer), buffer._version) for buffer in self.net.buffers()] if self.wanted else []


def find_stream_faults(net: Net, processes: int = 1) -> list[str]:
    """Why this model cannot read a stream without end."""
    if processes > 1:
        return [
            "data.stream is learned by one process: what others remember would not be saved; train without torchrun"
        ]
    if net.spec.decoder is None:
        return ["data.stream is for models that write from left to right, and this one has no decoder"]
    if not net.spec.decoder.streams:
        kinds = {kind_of(type(mixer)) for _, mixer in net.spec.decoder.mixers() if not mixer.can.stream}
        return [
            f"mixer {', '.join(map(repr, sorted(kinds)))} cannot go on where it stopped, as data.stream asks; {OTHERS}"
        ]
    out = []
    if net.spec.room is not None:
        out.append(
            f"the model has room for {net.spec.room} tokens, and data.stream has no end: its positions should be relative"
        )
    mixers = [part for part in net.modules() if isinstance(part, Mixer)]
    if full := [part.site.path for part in mixers if part.state_numbers(2 * ENDLESS) > part.state_numbers(ENDLESS)]:
        out.append(f"{full[0]} remembers everything, and data.stream has no end; {OTHERS}")
    return out
