"""Random numbers of a forward pass, one stream per thread.

This is torch's default generator, or one of the thread's own while parts of a batch run in parallel. A pass is thus a function
of its inputs and one seed, and a block that runs again for the backward pass can rewind the stream.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Generator
from torch.utils.checkpoint import get_device_states, set_device_states

_own = threading.local()


def generator() -> Generator:
    """Return the generator of this thread."""
    return getattr(_own, "generator", None) or torch.default_generator


def new_seed() -> int:
    """Draw a seed."""
    return int(torch.randint(1 << 62, (), generator=generator()))


@contextmanager
def use_seed(seed: int) -> Iterator[None]:
    """Use a generator of its own for this thread within a `with` block."""
    before = getattr(_own, "generator", None)
    _own.generator = Generator().manual_seed(seed)
    try:
        yield
    finally:
        _own.generator = before


class RngSnapshot:
    """The state of the random generators of this thread and of the devices of some tensors.

    `with snapshot:` repeats the draws made after it was taken, any number of times; afterwards the generators continue.
    """

    def __init__(self, *tensors: object) -> None:
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
