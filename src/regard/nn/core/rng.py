"""The chance a forward pass draws from: torch's own generator, or one of this thread's while rows of a batch run in parallel.

Whatever is drawn comes from one stream a thread, so a pass is a function of its inputs and one seed, whoever runs beside it;
and a block that is run again for the backward pass first winds that stream back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Generator
from torch.utils.checkpoint import get_device_states, set_device_states

_own = threading.local()


def generator() -> Generator:
    """The stream of this thread."""
    return getattr(_own, "generator", None) or torch.default_generator


def new_seed() -> int:
    """A seed drawn from the stream."""
    return int(torch.randint(1 << 62, (), generator=generator()))


@contextmanager
def use_seed(seed: int) -> Iterator[None]:
    """A stream of this thread's own for a while."""
    before = getattr(_own, "generator", None)
    _own.generator = Generator().manual_seed(seed)
    try:
        yield
    finally:
        _own.generator = before


class RngSnapshot:
    """Where the stream stands, and where those of the devices of some tensors do.

    `with place:` draws again what was drawn from there on, as often as one likes; afterwards all goes on from where it was.
    """

    def __init__(self, *tensors: Any) -> None:
        self.stream, self.devices = generator().get_state(), get_device_states(*tensors)
        self._undo = ExitStack()

    def __enter__(self) -> None:
        source, (devices, states) = generator(), self.devices
        self._undo.enter_context(torch.random.fork_rng(devices, enabled=bool(devices)))
        self._undo.callback(source.set_state, source.get_state())
        set_device_states(devices, states)
        source.set_state(self.stream)

    def __exit__(self, *_: object) -> None:
        self._undo.close()
