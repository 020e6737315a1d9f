"""`regard doctor`: is this installation healthy, what does this machine support, and what will therefore be used."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import platform
import sys

from regard.machine import free_memory, keep_large_blocks, machine, precision

NEEDED = (
    "torch",
    "numpy",
    "safetensors",
    "tokenizers",
    "pydantic",
    "ruamel.yaml",
    "typer",
    "rich",
    "sacrebleu",
    "jiwer",
    "babel",
)
EXTRAS = {"sentencepiece": "sentencepiece", "tensorboard": "tensorboard", "plots": "matplotlib"}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    what: str
    healthy: bool
    said: str


def examine() -> list[Finding]:
    """Look at everything; never raises."""
    out = [Finding("python", sys.version_info >= (3, 11), platform.python_version())]
    for name in NEEDED:
        try:
            importlib.import_module(name)
            out.append(Finding(name, True, _version(name)))
        except (ImportError, OSError) as error:  # OSError: a library that torch is linked with
            out.append(Finding(name, False, f"cannot be imported: {error}; pip install '{name}'"))
    for extra, name in EXTRAS.items():
        there = importlib.util.find_spec(name) is not None
        out.append(
            Finding(f"extra {extra}", True, "installed" if there else f"not installed; pip install 'regard[{extra}]'")
        )
    return [*out, *_machine(), _computes()] if all(finding.healthy for finding in out) else out


def _machine() -> list[Finding]:
    import torch

    here = machine()
    matrices = "native" if here.bf16 else "not native: float32 is faster here"
    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kept = keep_large_blocks()
    return [
        Finding("processor", True, f"{here.processor}, {here.cores} cores, {here.memory / 2**30:.1f} GiB"),
        Finding("bfloat16", True, f"{matrices}; train.precision auto is {precision('auto', device)}"),
        Finding("threads", True, f"{torch.get_num_threads()} of torch; rows of a batch are divided among them"),
        Finding("free memory", True, f"{free_memory() / 2**30:.1f} GiB; train.batch_tokens auto fits batches into it"),
        Finding("device", True, f"auto is {device}" + ("" if device == "cpu" else " (only the CPU is tested)")),
        Finding("allocator", True, "keeps large blocks while training" if kept else "as the system has it"),
    ]


def _computes() -> Finding:
    """A tiny model, forward and backward."""
    import torch

    from regard.families import transformer
    from regard.nn.core.coords import Coords

    try:
        net = transformer.spec(width=8, depth=1, heads=2, vocab=5, dropout=0.0).build(seed=0)
        ids, at = torch.tensor([[1, 2, 3]]), Coords.span(3)
        loss, _ = net.loss(net(ids, at, (ids, at)), ids)
        loss.backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        return Finding("a small model", False, f"cannot run: {error}")
    whole = all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in net.parameters())
    return Finding(
        "a small model", whole, "runs forward and backward" if whole else "gives gradients that are not finite"
    )


def _version(name: str) -> str:
    package = {"babel": "Babel"}.get(name, name)
    return importlib.metadata.version(package)


def told(findings: list[Finding]) -> str:
    return "\n".join(f"{'ok ' if f.healthy else 'BAD'} {f.what:<20} {f.said}" for f in findings)
