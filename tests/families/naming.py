"""Weights of other people's models under our names, by a family's own table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.model.model import Net


def shaken(model: nn.Module) -> dict[str, Tensor]:
    """Their weights, far from where they start; norms near one."""
    for name, parameter in model.named_parameters():
        norm = "norm" in name.lower() and name.endswith("weight")
        nn.init.normal_(parameter, mean=1.0 if norm else 0.0, std=0.3)
    return dict(model.state_dict())


def saved(model: Any, folder: Path) -> dict[str, Tensor]:
    """Their weights, far from where they start, as a folder of theirs has them."""
    shaken(model)
    model.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def put(net: Net, values: dict[str, Tensor], rows: Sequence[tuple[str, str]]) -> Net:
    """The net with all of its weights from `values`; every one of these has a row, and tied copies are left out.

    Theirs may have leading dimensions of one.
    """
    out = {}
    for name, value in values.items():
        for ours, theirs in rows:
            found = re.fullmatch(re.escape(theirs).replace(r"\{\}", r"(\d+)") + r"(\.weight|\.bias|)", name)
            if found is not None:
                *layer, kind = found.groups()
                out[ours.format(*layer) + kind] = value
                break
        else:
            raise AssertionError(f"no row for {name}")
    own = net.shapes()
    for name in own.keys() & out.keys():
        while out[name].dim() > len(own[name]):
            out[name] = out[name].squeeze(0)
    net.load_state_dict({name: value for name, value in out.items() if name in own})
    return net.eval()


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def close(mine: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)
