"""Named initialisations, by parameter name: what each paper starts from.

xavier   linear maps Xavier-uniform, embeddings and lone vectors N(0, 1/d), biases 0   (Vaswani et al., reference code)
normal   N(0, 0.02) everywhere, biases 0                                       (BERT, GPT-1)
gpt2     as normal; maps that feed the stream N(0, 0.02/√(2·layers))           (Radford et al. 2019)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.errors import UnknownName
from regard.nn.mixer import Mixer

Rule = Callable[[str, Tensor, int, int], None]


def initialise(net: nn.Module, scheme: str) -> None:
    """Fill every parameter in place. Norm weights start at one, every bias at zero, and mixers `begin` as they like."""
    if scheme not in SCHEMES:
        raise UnknownName("initialisation", scheme, SCHEMES)
    layers = sum(1 for name, _ in net.named_modules() if name.split(".")[-2:-1] == ["blocks"])
    width = net.spec.width  # type: ignore[union-attr]
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "norm" in name:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                SCHEMES[scheme](name, parameter, width, max(layers, 1))  # type: ignore[arg-type]
        for part in net.modules():
            if isinstance(part, Mixer):
                part.begin()


def _is_table(name: str) -> bool:
    """Lookup tables: embeddings, positions, an untied output projection."""
    return ".position." in name or name.split(".")[0] in ("embed", "source", "head")


def _xavier(name: str, parameter: Tensor, width: int, layers: int) -> None:
    if parameter.dim() < 2 or (_is_table(name) and parameter.shape[-1] == width):
        nn.init.normal_(parameter, std=width**-0.5)
    else:
        nn.init.xavier_uniform_(parameter)


def _normal(name: str, parameter: Tensor, width: int, layers: int) -> None:
    nn.init.normal_(parameter, std=0.02)


def _gpt2(name: str, parameter: Tensor, width: int, layers: int) -> None:
    feeds_stream = name.endswith((".out.weight", ".down.weight"))
    nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if feeds_stream else 0.02)


SCHEMES: dict[str, Rule] = {"xavier": _xavier, "normal": _normal, "gpt2": _gpt2}
