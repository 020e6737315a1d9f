"""NaN and infinity are found before they are written: no file that training leaves ever holds one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from regard.errors import Diverged

AFTER = (
    "what was saved before is good, but the same command would come to the same end: lower train.schedule.lr and start "
    "over with --fresh, or go on from this run's best model with --from and another --out"
)
Groups = Mapping[str, Mapping[str, Tensor]]


def unsound(groups: Groups) -> list[str]:
    """The names of those tensors that hold anything but finite numbers, each after its group."""
    return [
        f"{group}: {name}"
        for group, tensors in groups.items()
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and not torch.isfinite(tensor).all()
    ]


def demand_finite(step: int, groups: Groups) -> None:
    """What a step left is judged, exported and saved only if all of it is finite."""
    if bad := unsound(groups):
        more = " …" if len(bad) > 3 else ""
        raise Diverged(f"step {step} left numbers that are not finite ({', '.join(bad[:3])}{more}); {AFTER}")
