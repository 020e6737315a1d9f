"""Build a module from a spec, or refuse it with reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.errors import SpecError
from regard.model.init import initialize
from regard.model.model_spec import ModelSpec
from regard.model.net import Net
from regard.nn.blocks.head import HeadSpec
from regard.registry import kind_of


def build(spec: ModelSpec, seed: int | None = None) -> Net:
    """Check the spec, make the module and initialize it; all refusals are in one error."""
    _check(spec)
    if seed is None:
        with _explain_overflow(), _fill_unset():
            net = Net(spec)
        initialize(net, spec.init)
        return net
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(spec)


def build_with(spec: ModelSpec, weights: Mapping[str, Tensor]) -> Net:
    """Build the module with these weights, which must be complete; nothing is initialized first."""
    _check(spec)
    with _Unset(), torch.random.fork_rng(devices=[]), _explain_overflow():
        net = Net(spec)
    if faults := weight_faults(net.shapes(), weights) or nan_faults(weights):
        raise SpecError(*faults)
    net.load_weights(weights)
    return net


@contextmanager
def _fill_unset() -> Iterator[None]:
    """Make what nobody has set yet (`torch.empty`) NaN, as torch does where results must be the same in every run."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def weight_faults(wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, Tensor]) -> list[str]:
    """List every missing, unknown or wrongly shaped weight."""
    out = [f"{name} is missing" for name in wanted if name not in given]
    out += [f"{name} is not part of this model" for name in given if name not in wanted]
    for name, tensor in given.items():
        if name in wanted and tuple(tensor.shape) != wanted[name]:
            out.append(f"{name} should be {wanted[name]}, got {tuple(tensor.shape)}")
        elif name in wanted and not tensor.is_floating_point():
            out.append(f"{name} should hold real numbers, got {tensor.dtype}")
    return out


def nan_faults(weights: Mapping[str, Tensor]) -> list[str]:
    """List every weight with values that are not numbers: whatever such a model computes is wrong."""
    found = []
    for name, tensor in weights.items():
        if tensor.numel() and tensor.is_floating_point():
            least = (tensor.float() if tensor.element_size() == 1 else tensor).amin()  # NaN if any value is
            found += [f"{name} has values that are not numbers (NaN)"] if least.isnan() else []
    return found


@contextmanager
def _explain_overflow() -> Iterator[None]:
    """Refuse a weight whose size torch cannot even compute; without memory behind it, everything smaller can be made."""
    try:
        yield
    except RuntimeError as error:
        if "overflow" not in str(error).lower():
            raise
        raise SpecError(
            "a weight of this model would have more numbers than any machine holds; lower its sizes"
        ) from None


class _Unset(TorchFunctionMode):
    """Within this mode, torch's modules leave their parameters uninitialized."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def _check(spec: ModelSpec) -> None:
    if faults := refusals(spec):
        raise SpecError(*faults)


def refusals(spec: ModelSpec) -> list[str]:
    """List everything that the spec asks of a part and the part cannot do."""
    out = [] if spec.encoder is None else spec.encoder.refusals(spec.encoder_site)
    if spec.decoder is not None:
        out += spec.decoder.refusals(spec.decoder_site)
        if spec.encoder is not None:
            out += spec.decoder.refusals_of(spec.encoder, spec.decoder_site)
        if not spec.decoder.causal:
            out.append("a decoder writes from left to right; set decoder.causal")
        if spec.encoder is not None and not spec.decoder.reads_memory:
            out.append("the decoder never looks at the encoder; give a block a `cross` mixer or drop the encoder")
    out += spec.embed.refusals("embed", spec.width, None)
    out += [] if spec.source is None else spec.source.refusals("source", spec.width, spec.embed)
    for head in (spec.head, spec.beside):
        out += (
            []
            if head is None
            else head.refusals(spec.out_width, spec.embed.table_width(spec.width) if spec.embed.vocab else 0)
        )
        out += [] if head is None or not head.reads_source else _source_refusals(spec, head)
    return list(dict.fromkeys(out))


def _source_refusals(spec: ModelSpec, head: HeadSpec) -> list[str]:
    """List what a head that copies tokens of the source lacks."""
    name = kind_of(type(head))
    if head is spec.beside:
        return [f"head '{name}' cannot stand beside another; set it as `head`"]
    if spec.encoder is None or spec.decoder is None:
        return [
            f"head '{name}' copies from what an encoder reads, and this model has only one side; use head.kind: vocab"
        ]
    if spec.source is not None and not getattr(spec.source, "tied", False):
        return [
            f"head '{name}' copies tokens of the source, so both sides need one vocabulary; set data.joint_vocab: true"
        ]
    return []
